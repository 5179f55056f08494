//! A store, a transport and some relays, in memory and in no hurry: every call takes effect
//! whenever the dice say so, and its answer comes later still, or never.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use chapar_core::machine::relay::{Asked, Do, Happened, Plan, Reading, Refusal, Relay, Sending};
use chapar_core::machine::retry::RetryPolicy;
use chapar_core::machine::stamps::Stamper;
use chapar_core::port::{
    Checkpoint, Chunk, Cursor, Fate, KeyMarks, Lease, OutboxRow, Park, Renewed, Settled, Shard,
    Track, Tried,
};
use jiff::Timestamp;

const SHARDS: Shard = 4;
const KEYS: u64 = 6;
const TTL: Duration = Duration::from_secs(3);

/// How often what has happened, so that a quiet world is noticed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) crashes: u64,
    pub(crate) thaws: u64,
    pub(crate) outages: u64,
    pub(crate) parked: u64,
    pub(crate) quarantined: u64,
    pub(crate) lost_leases: u64,
    pub(crate) duplicates: u64,
    pub(crate) marked: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Seen) {
        self.crashes += other.crashes;
        self.thaws += other.thaws;
        self.outages += other.outages;
        self.parked += other.parked;
        self.quarantined += other.quarantined;
        self.lost_leases += other.lost_leases;
        self.duplicates += other.duplicates;
        self.marked += other.marked;
    }
}

pub(crate) struct World {
    dice: fastrand::Rng,
    now: Duration,
    store: Store,
    broker: Vec<(String, i64)>,
    /// What the first delivery of a row said of its order.
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
    ask: Ask,
    /// It is still on its way to the store or the transport.
    not_before: Duration,
}

enum Ask {
    Lease(Option<i64>),
    Renew(i64),
    Read(Reading),
    Mark(i64, Vec<Track>),
    Due(i64),
    Publish(Vec<Sending>, Vec<Option<Result<(), Refusal>>>),
    Checkpoint(i64, Checkpoint),
    Settle(i64, Vec<(i64, Settled)>),
    Release(i64),
}

#[derive(Default)]
struct Store {
    /// In the order of commits.
    log: Vec<(i64, String)>,
    relays: BTreeMap<i64, Duration>,
    shards: BTreeMap<Shard, (Option<i64>, i64)>,
    tracks: HashMap<i64, usize>,
    parked: BTreeMap<i64, Parked>,
    /// How far the marks of each shard are written.
    marked: HashMap<Shard, usize>,
    marks: HashMap<String, BTreeMap<String, i64>>,
    next_epoch: i64,
    next_track: i64,
}

#[derive(Clone, Debug)]
struct Parked {
    key: String,
    attempts: u32,
    first: Option<Timestamp>,
    due: Duration,
    quarantined: bool,
    stamp: Option<String>,
}

fn shard(key: &str) -> Shard {
    key.bytes().map(Shard::from).sum::<Shard>() % SHARDS
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut store = Store { next_track: 2, ..Store::default() };
        store.shards = (0..SHARDS).map(|shard| (shard, (None, 1))).collect();
        store.tracks.insert(1, 0);
        let mut dice = fastrand::Rng::with_seed(seed);
        World {
            ordered: dice.u8(0..3) == 0,
            dice,
            now: Duration::from_secs(1),
            store,
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
        }
    }

    pub(crate) fn run(mut self) -> Seen {
        for _ in 0..self.dice.usize(30..120) {
            self.disturb();
            self.progress();
        }
        self.heal();
        let mut steps = 0;
        while !self.all_published() {
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
            let seq = self.store.log.len() as i64 + 1;
            let key = format!("k{}", self.dice.u64(0..KEYS));
            self.store.log.push((seq, key));
            if self.chance(4) {
                self.poison.insert(seq);
            } else if self.chance(6) {
                let times = self.dice.u32(1..5);
                self.sulking.insert(seq, times);
            }
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
    }

    fn release_quarantined(&mut self) {
        for (seq, parked) in self.store.parked.iter_mut().filter(|(_, parked)| parked.quarantined) {
            self.poison.remove(seq);
            *parked = Parked { quarantined: false, attempts: 0, due: self.now, ..parked.clone() };
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
                    self.calls.push(Call { process: process.id, ask: ask(what), not_before });
                }
            }
            self.relays[which] = Some(process);
        }
        // What nobody has seen the release of may be released again.
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
                    true => Err(Refusal::Behind),
                    false => Err(Refusal::Later("an earlier one failed".into())),
                }
            } else if self.outage {
                Err(Refusal::Later("down".into()))
            } else if self.poison.contains(&seq) {
                Err(Refusal::Never("poison".into()))
            } else if sulks {
                Err(Refusal::Later("sulking".into()))
            } else {
                self.published.insert(seq);
                self.broker.push((key, seq));
                let stamp = batch[n].row.stamp.clone().unwrap_or_default();
                let first = self.stamps.entry(seq).or_insert_with(|| stamp.clone());
                assert_eq!(*first, stamp, "row {seq} was stamped again");
                if lost_answer { Err(Refusal::Later("no answer".into())) } else { Ok(()) }
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
        let lost = |epoch: i64, store: &Store| !store.relays.contains_key(&epoch);
        match ask {
            Ask::Lease(epoch) => Happened::Leased(store.lease(epoch, now)),
            Ask::Renew(epoch) if lost(epoch, store) => Happened::LeaseLost(Asked::Renew),
            Ask::Renew(epoch) => {
                store.relays.insert(epoch, now + TTL);
                let free = store.shards.values().any(|(owner, _)| owner.is_none());
                let dead = store.relays.values().any(|expires| *expires <= now);
                let balanced = store.share(epoch).0 == store.share(epoch).1;
                let held = !(free || dead) && balanced;
                Happened::Renewed(if held { Renewed::Held } else { Renewed::Unbalanced })
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
        for (key, seq) in &self.broker {
            let list = firsts.entry(key).or_default();
            if !list.contains(seq) {
                list.push(*seq);
            }
        }
        firsts
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

impl Store {
    fn bury(&mut self, epoch: i64) {
        self.relays.remove(&epoch);
        for (owner, _) in self.shards.values_mut().filter(|(owner, _)| *owner == Some(epoch)) {
            *owner = None;
        }
    }

    fn share(&self, epoch: i64) -> (usize, usize) {
        let held = self.shards.values().filter(|(owner, _)| *owner == Some(epoch)).count();
        let live = self.relays.len().max(1);
        let share = usize::from(SHARDS).div_ceil(live);
        (held.min(share), held)
    }

    fn lease(&mut self, epoch: Option<i64>, now: Duration) -> Lease {
        let dead: Vec<i64> =
            self.relays.iter().filter(|(_, at)| **at <= now).map(|(epoch, _)| *epoch).collect();
        for dead in dead {
            self.bury(dead);
        }
        let epoch = epoch.filter(|epoch| self.relays.contains_key(epoch)).unwrap_or_else(|| {
            self.next_epoch += 1;
            self.next_epoch
        });
        self.relays.insert(epoch, now + TTL);
        let share = usize::from(SHARDS).div_ceil(self.relays.len());
        let mut held = 0;
        for (owner, track) in self.shards.values_mut() {
            if *owner == Some(epoch) && held >= share {
                // Who gives a shard back leaves a copy of its cursor with it.
                let cursor = self.tracks[track];
                *track = self.next_track;
                self.tracks.insert(*track, cursor);
                self.next_track += 1;
                *owner = None;
            } else if *owner == Some(epoch) || (owner.is_none() && held < share) {
                if owner.is_none() {
                    let cursor = self.tracks[track];
                    *track = self.next_track;
                    self.tracks.insert(*track, cursor);
                    self.next_track += 1;
                    *owner = Some(epoch);
                }
                held += 1;
            }
        }
        let mut tracks: BTreeMap<i64, Vec<Shard>> = BTreeMap::new();
        for (shard, (_, track)) in self.shards.iter().filter(|(_, (o, _))| *o == Some(epoch)) {
            tracks.entry(*track).or_default().push(*shard);
        }
        let tracks = tracks.into_iter().map(|(id, shards)| {
            let cursor = Cursor(self.tracks[&id].to_string());
            Track { id, version: 0, shards, cursor }
        });
        Lease { epoch, tracks: tracks.collect() }
    }

    fn read(&self, mut tracks: Vec<Track>, limit: usize) -> Chunk {
        let mut rows = Vec::new();
        for track in &mut tracks {
            let mut at: usize = track.cursor.0.parse().unwrap();
            while at < self.log.len() && rows.len() < limit {
                let (seq, key) = &self.log[at];
                at += 1;
                if track.shards.contains(&shard(key)) {
                    let behind = self.parked.values().any(|parked| parked.key == *key);
                    rows.push(row(*seq, key, behind, Tried::default()));
                }
            }
            track.cursor = Cursor(at.to_string());
        }
        Chunk { rows, tracks }
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint, now: Duration) {
        for track in checkpoint.tracks {
            self.tracks.insert(track.id, track.cursor.0.parse().unwrap());
        }
        for Park { seq, fate, stamp } in checkpoint.parks {
            let key = self.log[seq as usize - 1].1.clone();
            let (attempts, due, quarantined) = match fate {
                Fate::Behind => (0, now, false),
                Fate::Retry { at, .. } => (1, mono(at), false),
                Fate::Quarantine { .. } => (1, now, true),
            };
            let first = (attempts > 0).then(|| wall(now));
            let parked = Parked { key, attempts, first, due, quarantined, stamp };
            self.parked.entry(seq).or_insert(parked);
        }
    }

    fn mark(&mut self, tracks: &[Track]) {
        for track in tracks {
            let to: usize = track.cursor.0.parse().unwrap();
            for part in &track.shards {
                let from = self.marked.insert(*part, to).unwrap_or(0);
                for (seq, key) in
                    self.log[from.min(to)..to].iter().filter(|(_, key)| shard(key) == *part)
                {
                    let marks = self.marks.entry(key.clone()).or_default();
                    let last = marks.entry(topic(*seq).into()).or_default();
                    *last = (*last).max(*seq);
                }
            }
        }
    }

    fn marks_of(&self, keys: &[String]) -> Vec<KeyMarks> {
        let marks =
            |key: &String| Some(KeyMarks { key: key.clone(), marks: self.marks.get(key)?.clone() });
        keys.iter().filter_map(marks).collect()
    }

    fn due(&self, epoch: i64, now: Duration) -> Vec<OutboxRow> {
        let mut rows = Vec::new();
        let mut stuck = HashSet::new();
        for (seq, parked) in &self.parked {
            let ours = self.shards[&shard(&parked.key)].0 == Some(epoch);
            if !ours || stuck.contains(&parked.key) {
                continue;
            }
            if parked.quarantined || parked.due > now {
                stuck.insert(parked.key.clone());
                continue;
            }
            let tried = Tried { attempts: parked.attempts, first_failed_at: parked.first };
            let stamp = parked.stamp.clone();
            rows.push(OutboxRow { stamp, ..row(*seq, &parked.key, false, tried) });
        }
        rows.truncate(5);
        rows
    }

    fn settle(&mut self, settled: Vec<(i64, Settled)>, now: Duration) {
        for (seq, settled) in settled {
            match settled {
                Settled::Published => {
                    self.parked.remove(&seq);
                }
                Settled::Failed { fate, counts } => {
                    let Some(parked) = self.parked.get_mut(&seq) else { continue };
                    parked.attempts += u32::from(counts);
                    parked.first.get_or_insert(wall(now));
                    match fate {
                        Fate::Retry { at, .. } => parked.due = mono(at),
                        Fate::Quarantine { .. } => parked.quarantined = true,
                        Fate::Behind => {}
                    }
                }
            }
        }
    }
}

const TOPICS: [&str; 3] = ["made", "paid", "sent"];

fn topic(seq: i64) -> &'static str {
    TOPICS[seq as usize % TOPICS.len()]
}

fn row(seq: i64, key: &str, behind: bool, tried: Tried) -> OutboxRow {
    OutboxRow {
        seq,
        event_id: format!("e{seq}").parse().unwrap(),
        topic: topic(seq).into(),
        tenant: "acme".into(),
        key: Some(key.into()),
        headers: Default::default(),
        body: Bytes::new(),
        behind,
        tried,
        stamp: None,
        draft: None,
        written_at: Timestamp::UNIX_EPOCH,
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

fn wall(now: Duration) -> Timestamp {
    Timestamp::UNIX_EPOCH.saturating_add(now).unwrap()
}

fn mono(at: Timestamp) -> Duration {
    at.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs()
}
