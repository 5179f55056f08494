//! A store, a transport and some relays in memory. Every call takes effect at a random time, and
//! its answer arrives later still, or never.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use chapar_core::machine::relay::{
    Asked, Do, Happened, Plan, PublishError, Reading, Relay, Sending,
};
use chapar_core::machine::retry::RetryPolicy;
use chapar_core::machine::stamps::Stamper;
use chapar_core::port::{Checkpoint, Fate, Park, Renewed, Settled, Track};

use crate::store::{Parked, Store, TOPICS, shard, topic, wall};

const KEYS: u64 = 6;
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// How often each thing has happened: schedules in which nothing fails prove nothing.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) crashes: u64,
    pub(crate) store_crashes: u64,
    pub(crate) thaws: u64,
    pub(crate) outages: u64,
    pub(crate) parked: u64,
    pub(crate) quarantined: u64,
    pub(crate) lost_leases: u64,
    pub(crate) duplicates: u64,
    pub(crate) marked: u64,
    pub(crate) requests: u64,
    pub(crate) cancelled: u64,
    pub(crate) republished: u64,
    pub(crate) parked_again: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Seen) {
        self.crashes += other.crashes;
        self.store_crashes += other.store_crashes;
        self.thaws += other.thaws;
        self.outages += other.outages;
        self.parked += other.parked;
        self.quarantined += other.quarantined;
        self.lost_leases += other.lost_leases;
        self.duplicates += other.duplicates;
        self.marked += other.marked;
        self.requests += other.requests;
        self.cancelled += other.cancelled;
        self.republished += other.republished;
        self.parked_again += other.parked_again;
    }
}

/// What goes wrong in a relay that is built wrongly; the explorer must notice each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Positions from before a crash of the database are accepted.
    LivesAreIgnored,
    /// A relay that has lost its lease goes on writing.
    EpochsAreIgnored,
}

impl Mutant {
    pub(crate) const ALL: [Mutant; 2] = [Mutant::LivesAreIgnored, Mutant::EpochsAreIgnored];
}

pub(crate) struct World {
    mutant: Option<Mutant>,
    dice: fastrand::Rng,
    now: Duration,
    store: Store,
    broker: Vec<Delivered>,
    /// The stamp of the first delivery of each row.
    stamps: HashMap<i64, String>,
    published: HashSet<i64>,
    outage: bool,
    poison: HashSet<i64>,
    sulking: HashMap<i64, u32>,
    /// The transport keeps the order of a key within a batch.
    ordered: bool,
    relays: Vec<Option<Process>>,
    calls: Vec<Call>,
    seen: Seen,
    next_process: u64,
    /// What the republish requests have to deliver.
    wanted: Vec<Wanted>,
    /// The number of calls so far.
    issued: u64,
}

/// A message in the broker.
struct Delivered {
    key: String,
    seq: i64,
    /// The number of the call that published it.
    issued: u64,
}

/// A republish request, as an operator sees it.
struct Wanted {
    request: i64,
    /// The published rows of its range.
    rows: Vec<i64>,
    /// The length of the broker's log when it was asked for.
    since: usize,
}

struct Process {
    id: u64,
    machine: Relay,
    stamper: Stamper,
    frozen_until: Duration,
    answers: Vec<Happened>,
}

/// A call that is under way.
struct Call {
    process: u64,
    number: u64,
    ask: Ask,
    /// It has not reached the store or the transport before this time.
    not_before: Duration,
}

enum Ask {
    Lease(Option<i64>),
    Renew(i64),
    Read(Reading),
    Mark(i64, Vec<Track>),
    Due(i64),
    Publish(Vec<Sending>, Vec<Option<Result<(), PublishError>>>),
    Checkpoint(i64, Checkpoint),
    Settle(i64, Vec<(i64, Settled)>),
    Release(i64),
}

impl World {
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        World {
            mutant,
            ordered: dice.u8(0..3) == 0,
            dice,
            now: Duration::from_secs(1),
            store: Store::new(),
            broker: Vec::new(),
            stamps: HashMap::new(),
            published: HashSet::new(),
            outage: false,
            poison: HashSet::new(),
            sulking: HashMap::new(),
            relays: vec![None, None, None],
            calls: Vec::new(),
            seen: Seen::default(),
            next_process: 1,
            wanted: Vec::new(),
            issued: 0,
        }
    }

    pub(crate) fn run(mut self) -> Seen {
        for _ in 0..self.dice.usize(30..120) {
            self.disturb();
            self.progress();
        }
        self.heal();
        let mut steps = 0;
        while !self.all_published() || self.store.is_republishing() {
            self.progress();
            steps += 1;
            assert!(steps < 100_000, "still not published: {}", self.missing());
        }
        self.check();
        self.seen
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.dice.u32(0..100) < percent
    }

    fn disturb(&mut self) {
        if self.chance(40) {
            let key = format!("k{}", self.dice.u64(0..KEYS));
            let seq = self.store.append(key);
            if self.chance(4) {
                self.poison.insert(seq);
            } else if self.chance(6) {
                let times = self.dice.u32(1..5);
                self.sulking.insert(seq, times);
            }
        }
        if self.chance(10) {
            self.store.burn_ids(self.dice.u64(1..5));
        }
        if self.chance(2) {
            self.crash_store();
        }
        if self.chance(3) {
            self.outage = !self.outage;
            self.seen.outages += u64::from(self.outage);
        }
        let which = self.dice.usize(0..self.relays.len());
        if self.chance(2) && self.relays[which].take().is_some() {
            self.seen.crashes += 1;
        }
        if self.chance(3)
            && let Some(process) = &mut self.relays[which]
        {
            process.frozen_until = self.now + Duration::from_millis(self.dice.u64(500..8000));
            self.seen.thaws += 1;
        }
        if self.chance(2) {
            self.release_quarantined();
        }
        if self.chance(3) {
            self.ask_to_republish();
        }
        if self.chance(1) {
            self.seen.cancelled += u64::from(self.store.cancel());
        }
    }

    /// Asks for a part of what is published; some of it the transport refuses this time.
    fn ask_to_republish(&mut self) {
        let last = self.store.log.len() as i64;
        let from = self.dice.i64(0..=last);
        let rows = self.store.published_after(from);
        for seq in &rows {
            match self.dice.u32(0..40) {
                0 => _ = self.poison.insert(*seq),
                1 | 2 => _ = self.sulking.insert(*seq, self.dice.u32(1..5)),
                _ => {}
            }
        }
        let request = self.store.ask(from);
        self.wanted.push(Wanted { request, rows, since: self.broker.len() });
        self.seen.requests += 1;
    }

    fn release_quarantined(&mut self) {
        for (seq, parked) in self.store.parked.iter_mut().filter(|(_, parked)| parked.quarantined) {
            self.poison.remove(seq);
            *parked = Parked { quarantined: false, attempts: 0, due: self.now, ..parked.clone() };
        }
    }

    /// The database crashes and is back at once. Calls on open connections fail; others arrive
    /// afterwards, and no relay need notice anything.
    fn crash_store(&mut self) {
        self.store.crash();
        self.seen.store_crashes += 1;
        for n in (0..self.calls.len()).rev() {
            let Some(asked) = asked(&self.calls[n].ask) else { continue };
            if self.dice.bool() {
                continue;
            }
            let Call { process, .. } = self.calls.swap_remove(n);
            if let Some(process) = self.relays.iter_mut().flatten().find(|p| p.id == process) {
                process.answers.push(Happened::Failed(asked));
            }
        }
    }

    fn heal(&mut self) {
        self.outage = false;
        self.poison.clear();
        self.release_quarantined();
        for process in self.relays.iter_mut().flatten() {
            process.frozen_until = self.now;
        }
    }

    fn progress(&mut self) {
        self.now += Duration::from_millis(self.dice.u64(0..60));
        for which in 0..self.relays.len() {
            if self.relays[which].is_none() && self.chance(30) {
                let retry = RetryPolicy {
                    attempts: 6,
                    min_span: Duration::from_secs(2),
                    ..RetryPolicy::outbox()
                };
                let plan = Plan {
                    retry,
                    chunk_rows: self.dice.usize(1..6),
                    chunks: self.dice.usize(1..4),
                    lease: TTL,
                    ordered_in_flight: self.ordered,
                    mark_every: Some(Duration::from_millis(self.dice.u64(0..2000))),
                    ..Plan::default()
                };
                let id = self.next_process;
                self.next_process += 1;
                let process = Process {
                    id,
                    machine: Relay::new(plan),
                    stamper: Stamper::new(&TOPICS.map(str::to_owned), self.dice.usize(1..8)),
                    frozen_until: self.now,
                    answers: Vec::new(),
                };
                self.relays[which] = Some(process);
            }
        }
        for _ in 0..self.dice.usize(0..8) {
            self.take_effect();
        }
        for which in 0..self.relays.len() {
            let Some(mut process) = self.relays[which].take() else { continue };
            if process.frozen_until <= self.now {
                let happened = match process.answers.is_empty() {
                    true => Happened::Tick,
                    false => process.answers.remove(self.dice.usize(0..process.answers.len())),
                };
                let wall = wall(self.now);
                let todo = process.machine.step(self.now, wall, self.dice.f64(), happened);
                for what in todo {
                    let slow = self.chance(4);
                    let delay = if slow { self.dice.u64(1000..9000) } else { 0 };
                    let not_before = self.now + Duration::from_millis(delay);
                    self.issued += 1;
                    let (id, number) = (process.id, self.issued);
                    self.calls.push(Call { process: id, number, ask: ask(what), not_before });
                }
            }
            self.relays[which] = Some(process);
        }
        // A row that failed again after its release is released again.
        if self.chance(5) {
            self.release_when_healthy();
        }
    }

    fn release_when_healthy(&mut self) {
        if self.poison.is_empty() {
            self.release_quarantined();
        }
    }

    /// One of the calls under way does something.
    fn take_effect(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let at = self.dice.usize(0..self.calls.len());
        if self.calls[at].not_before > self.now {
            return;
        }
        let number = self.calls[at].number;
        if let Ask::Publish(batch, answers) = &mut self.calls[at].ask {
            // Messages arrive one by one, and of different keys in any order.
            let first = |n: &usize| {
                let key = &batch[*n].row.key;
                !self.ordered || (0..*n).all(|m| batch[m].row.key != *key || answers[m].is_some())
            };
            let open: Vec<usize> =
                (0..batch.len()).filter(|n| answers[*n].is_none()).filter(first).collect();
            let Some(n) = self.dice.choice(open).filter(|_| answers.iter().any(Option::is_none))
            else {
                return;
            };
            let seq = batch[n].row.seq;
            let key = batch[n].row.key.clone().unwrap();
            let sulks = self.sulking.get_mut(&seq).is_some_and(|left| {
                let sulks = *left > 0;
                *left = left.saturating_sub(1);
                sulks
            });
            let lost_answer = self.dice.u32(0..100) < 4;
            let behind = (0..n).any(|m| {
                let refused = answers[m].as_ref().is_some_and(Result::is_err);
                batch[m].row.key == batch[n].row.key && refused
            });
            let answer = if behind {
                match self.dice.bool() {
                    true => Err(PublishError::Behind),
                    false => Err(PublishError::Later("an earlier one failed".into())),
                }
            } else if self.outage {
                Err(PublishError::Later("down".into()))
            } else if self.poison.contains(&seq) {
                Err(PublishError::Never("poison".into()))
            } else if sulks {
                Err(PublishError::Later("sulking".into()))
            } else {
                self.published.insert(seq);
                self.broker.push(Delivered { key, seq, issued: number });
                let stamp = batch[n].row.stamp.clone().unwrap_or_default();
                let first = self.stamps.entry(seq).or_insert_with(|| stamp.clone());
                assert_eq!(*first, stamp, "row {seq} was stamped again");
                if lost_answer { Err(PublishError::Later("no answer".into())) } else { Ok(()) }
            };
            answers[n] = Some(answer);
            if answers.iter().any(Option::is_none) {
                return;
            }
        }
        let Call { process, ask, .. } = self.calls.swap_remove(at);
        // The connection breaks before or after the call did its work.
        let breaks = self.dice.u32(0..100);
        let asked = asked(&ask);
        let answer = match asked {
            Some(asked) if breaks < 3 => Happened::Failed(asked),
            // What was read is stamped once it is there.
            Some(Asked::Read) if breaks < 6 => Happened::Failed(Asked::Read),
            _ => {
                let answer = self.carry_out(process, ask);
                match asked {
                    Some(asked) if breaks < 6 => Happened::Failed(asked),
                    _ => answer,
                }
            }
        };
        if matches!(answer, Happened::LeaseLost(_)) {
            self.seen.lost_leases += 1;
        }
        if let Some(process) = self.relays.iter_mut().flatten().find(|p| p.id == process) {
            process.answers.push(answer);
        }
    }

    fn carry_out(&mut self, process: u64, ask: Ask) -> Happened {
        let (now, store) = (self.now, &mut self.store);
        let mutant = self.mutant;
        let lost = |epoch: i64, store: &Store| {
            (!store.relays.contains_key(&epoch) && mutant != Some(Mutant::EpochsAreIgnored))
                || (store.is_void(epoch) && mutant != Some(Mutant::LivesAreIgnored))
        };
        match ask {
            Ask::Lease(epoch) => Happened::Leased(store.lease(epoch, now, self.issued)),
            Ask::Renew(epoch) if lost(epoch, store) => Happened::LeaseLost(Asked::Renew),
            Ask::Renew(epoch) => {
                store.relays.insert(epoch, now + TTL);
                let free = store.shards.values().any(|(owner, _)| owner.is_none());
                let dead = store.relays.values().any(|expires| *expires <= now);
                let balanced = store.share(epoch).0 == store.share(epoch).1;
                store.end_requests();
                let held = !(free || dead) && balanced && !store.has_work_for(epoch);
                Happened::Renewed(if held { Renewed::Held } else { Renewed::Unbalanced })
            }
            Ask::Read(reading)
                if store.is_void(reading.epoch) && mutant != Some(Mutant::LivesAreIgnored) =>
            {
                Happened::LeaseLost(Asked::Read)
            }
            Ask::Read(reading) if reading.fresh && lost(reading.epoch, store) => {
                Happened::LeaseLost(Asked::Read)
            }
            Ask::Read(reading) => {
                let process = self.relays.iter_mut().flatten().find(|p| p.id == process);
                let Some(Process { stamper, .. }) = process else { return Happened::Tick };
                if reading.fresh {
                    stamper.forget();
                    store.mark(&reading.tracks);
                }
                let mut chunk = store.read(reading.tracks, reading.limit);
                stamper.marked(reading.marked);
                let unknown = stamper.unknown(&chunk.rows);
                let known = store.marks_of(&unknown);
                stamper.learn(unknown, known);
                stamper.stamp(reading.number, &mut chunk.rows);
                Happened::Read { chunk, full: stamper.is_full() }
            }
            Ask::Mark(epoch, _) if lost(epoch, store) => Happened::LeaseLost(Asked::Mark),
            Ask::Mark(_, tracks) => {
                self.seen.marked += 1;
                store.mark(&tracks);
                Happened::Marked
            }
            Ask::Due(epoch) => Happened::Due(store.due(epoch, now)),
            Ask::Publish(batch, answers) => {
                let tickets = batch.into_iter().map(|sending| sending.ticket);
                let answers = answers.into_iter().map(Option::unwrap);
                Happened::Published(tickets.zip(answers).collect())
            }
            Ask::Checkpoint(epoch, _) if lost(epoch, store) => {
                Happened::LeaseLost(Asked::Checkpoint)
            }
            Ask::Checkpoint(_, checkpoint) => {
                self.seen.parked += checkpoint.parks.len() as u64;
                let fate = |park: &&Park| matches!(park.fate, Fate::Quarantine { .. });
                self.seen.quarantined += checkpoint.parks.iter().filter(fate).count() as u64;
                for republished in checkpoint.republished.values() {
                    self.seen.republished += republished.published;
                    self.seen.parked_again += republished.parked;
                }
                store.checkpoint(checkpoint, now);
                Happened::Checkpointed
            }
            Ask::Settle(epoch, _) if lost(epoch, store) => Happened::LeaseLost(Asked::Settle),
            Ask::Settle(_, settled) => {
                store.settle(settled, now);
                Happened::Settled
            }
            Ask::Release(epoch) => {
                store.bury(epoch);
                Happened::Released
            }
        }
    }

    fn first_deliveries(&self) -> HashMap<&str, Vec<i64>> {
        let mut firsts: HashMap<&str, Vec<i64>> = HashMap::new();
        for Delivered { key, seq, .. } in &self.broker {
            let list = firsts.entry(key).or_default();
            if !list.contains(seq) {
                list.push(*seq);
            }
        }
        firsts
    }

    /// Every row of a request is delivered again, unless the request was cancelled.
    fn check_requests(&self) {
        for Wanted { request, rows, since } in &self.wanted {
            if self.store.is_cancelled(*request) {
                continue;
            }
            let again: HashSet<i64> = self.broker[*since..].iter().map(|at| at.seq).collect();
            let missing: Vec<_> = rows.iter().filter(|seq| !again.contains(seq)).collect();
            assert!(missing.is_empty(), "request {request} has not republished {missing:?}");
        }
    }

    /// From the start of a request, a key is delivered in order, as if it had never been before:
    /// neither new nor parked rows overtake the republished ones.
    fn check_order_of_requests(&self) {
        for (shard_of, starts) in &self.store.started {
            for (n, (request, start)) in starts.iter().enumerate() {
                // After a cancellation, a publish of an earlier holder may still arrive.
                if self.store.is_cancelled(*request) {
                    continue;
                }
                let end = starts.get(n + 1).map_or(u64::MAX, |(_, end)| *end);
                let mut last: HashMap<&str, i64> = HashMap::new();
                let mut seen = HashSet::new();
                for Delivered { key, seq, issued } in &self.broker {
                    let within = start < issued && *issued <= end;
                    if shard(key) != *shard_of || !within || !seen.insert(*seq) {
                        continue;
                    }
                    let before = last.insert(key, *seq);
                    let ascends = before.is_none_or(|before| before < *seq);
                    assert!(ascends, "row {seq} of {key} was overtaken by row {before:?}");
                }
            }
        }
    }

    fn all_published(&self) -> bool {
        self.store.parked.is_empty() && self.published.len() == self.store.log.len()
    }

    fn missing(&self) -> String {
        let missing = |(seq, _): &&(i64, String)| !self.published.contains(seq);
        let missing: Vec<_> = self.store.log.iter().filter(missing).collect();
        format!("{missing:?}, parked {:?}", self.store.parked)
    }

    fn check(&mut self) {
        self.check_requests();
        self.check_order_of_requests();
        for (key, seqs) in self.first_deliveries() {
            let committed: Vec<i64> = self
                .store
                .log
                .iter()
                .filter(|(_, other)| other == key)
                .map(|(seq, _)| *seq)
                .collect();
            assert_eq!(seqs, committed, "the first deliveries of {key}");
        }
        let mut marks: HashMap<&str, BTreeMap<&str, i64>> = HashMap::new();
        for (seq, key) in &self.store.log {
            let before = marks.entry(key).or_default();
            let after = before.iter().map(|(topic, seq)| format!(" {topic}={seq}"));
            let stamp = format!("{seq}{}", after.collect::<String>());
            assert_eq!(self.stamps[seq], stamp, "the stamp of row {seq}");
            before.insert(topic(*seq), *seq);
        }
        self.seen.duplicates = (self.broker.len() - self.store.log.len()) as u64;
    }
}

fn ask(what: Do) -> Ask {
    match what {
        Do::Lease(epoch) => Ask::Lease(epoch),
        Do::Renew(epoch) => Ask::Renew(epoch),
        Do::Read(reading) => Ask::Read(reading),
        Do::Mark(epoch, tracks) => Ask::Mark(epoch, tracks),
        Do::Due(epoch) => Ask::Due(epoch),
        Do::Publish(batch) => {
            let answers = batch.iter().map(|_| None).collect();
            Ask::Publish(batch, answers)
        }
        Do::Checkpoint(epoch, checkpoint) => Ask::Checkpoint(epoch, checkpoint),
        Do::Settle(epoch, settled) => Ask::Settle(epoch, settled),
        Do::Release(epoch) => Ask::Release(epoch),
        Do::Leave => unreachable!("nobody was told to stop"),
    }
}

fn asked(ask: &Ask) -> Option<Asked> {
    Some(match ask {
        Ask::Lease(_) => Asked::Lease,
        Ask::Renew(_) => Asked::Renew,
        Ask::Read(_) => Asked::Read,
        Ask::Mark(..) => Asked::Mark,
        Ask::Due(_) => Asked::Due,
        Ask::Checkpoint(..) => Asked::Checkpoint,
        Ask::Settle(..) => Asked::Settle,
        Ask::Release(_) => Asked::Release,
        Ask::Publish(..) => return None,
    })
}
