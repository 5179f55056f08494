//! A store, two processes of a consumer and an operator, driven by dice.
//!
//! One transaction of the engine is one step here; what it does in several transactions is in
//! several steps, between which anything may happen.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use chapar_core::machine::admission::{
    Candidate, Cause, Claim, Decision, Facts, Origin, Rules, admit,
};
use chapar_core::machine::order::{Hole, Place};
use chapar_core::machine::stamps::Stamp;

const KEYS: usize = 3;
const TOPICS: [&str; 2] = ["a", "b"];
const PROCESSES: usize = 2;
const STEPS: usize = 240;
const RULES: Rules = Rules { gap: Duration::from_secs(30), parks: true, stops: false };

/// What goes wrong in a consumer that is built wrongly; the explorer must notice each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A released event is applied without looking whether it is still held.
    HeldAreNotLocked,
    /// What was fetched before a seek is applied after it.
    EpochsAreIgnored,
    /// A redelivered dead letter is not recognised.
    LettersAreNotRecognised,
    /// Giving up a letter leaves no claim.
    GivingUpClaimsNothing,
    /// A parked event is released although a fresh letter blocks its key.
    FreshLettersDoNotBlock,
    /// Events do not wait for those of other topics.
    NothingWaits,
    /// A seek leaves the marks where they are.
    SeeksLeaveMarks,
    /// An event that fails again after its letter was closed gets no letter, and is acknowledged.
    LettersStayClosed,
    /// The letter of an event that fails does not block its key.
    LettersDoNotBlock,
}

impl Mutant {
    pub(crate) const ALL: [Mutant; 9] = [
        Mutant::HeldAreNotLocked,
        Mutant::EpochsAreIgnored,
        Mutant::LettersAreNotRecognised,
        Mutant::GivingUpClaimsNothing,
        Mutant::FreshLettersDoNotBlock,
        Mutant::NothingWaits,
        Mutant::SeeksLeaveMarks,
        Mutant::LettersStayClosed,
        Mutant::LettersDoNotBlock,
    ];
}

/// How often what happened.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) crashes: u64,
    pub(crate) moves: u64,
    pub(crate) duplicates: u64,
    pub(crate) parked: u64,
    pub(crate) letters: u64,
    pub(crate) waited: u64,
    pub(crate) deleted: u64,
    pub(crate) seeks: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Seen) {
        self.crashes += other.crashes;
        self.moves += other.moves;
        self.duplicates += other.duplicates;
        self.parked += other.parked;
        self.letters += other.letters;
        self.waited += other.waited;
        self.deleted += other.deleted;
        self.seeks += other.seeks;
    }
}

struct Event {
    key: usize,
    topic: usize,
    /// Its place among the events of its key, from 0.
    rank: usize,
    place: Place,
    /// It fails until an operator has mended it.
    broken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Open,
    Replay,
    Closed,
}

struct Letter {
    event: usize,
    status: Status,
    blocks: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    Letter(usize),
    Parked(i64),
}

#[derive(Clone, Copy)]
struct Item {
    event: usize,
    epoch: Option<u64>,
    release: Option<Release>,
}

#[derive(Default)]
struct Process {
    /// Fetched and not dealt with, by key.
    queues: HashMap<usize, VecDeque<Item>>,
    /// Failed, and not yet stored.
    failed: Vec<Item>,
    /// To be released, as it was read.
    released: VecDeque<Item>,
    /// The consumer's epoch when it subscribed.
    epoch: u64,
    /// How far it has fetched, by key and topic.
    fetched: HashMap<(usize, usize), usize>,
    /// Dealt with, and not yet acknowledged.
    unacknowledged: Vec<usize>,
}

pub(crate) struct World {
    dice: u64,
    mutant: Option<Mutant>,
    events: Vec<Event>,
    /// Events by key and topic, in order.
    log: HashMap<(usize, usize), Vec<usize>>,
    /// What is acknowledged, by key and topic: all before this place.
    cursors: HashMap<(usize, usize), usize>,
    acknowledged: HashSet<usize>,
    owners: [usize; KEYS],
    processes: Vec<Process>,
    epoch: u64,
    inbox: HashMap<usize, Claim>,
    given_up: HashSet<usize>,
    deleted: HashSet<usize>,
    marks: BTreeMap<(usize, String), i64>,
    holes: Vec<(usize, Hole)>,
    letters: Vec<Letter>,
    parked: Vec<(i64, usize)>,
    next_parked: i64,
    /// What was applied since the last seek, by key: ranks.
    applied: Vec<Vec<usize>>,
    ever: HashSet<usize>,
    seen: Seen,
}

type Checked = Result<(), String>;

impl World {
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        World {
            dice: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d,
            mutant,
            events: Vec::new(),
            log: HashMap::new(),
            cursors: HashMap::new(),
            acknowledged: HashSet::new(),
            owners: [0; KEYS],
            processes: (0..PROCESSES).map(|_| Process::default()).collect(),
            epoch: 0,
            inbox: HashMap::new(),
            given_up: HashSet::new(),
            deleted: HashSet::new(),
            marks: BTreeMap::new(),
            holes: Vec::new(),
            letters: Vec::new(),
            parked: Vec::new(),
            next_parked: 0,
            applied: vec![Vec::new(); KEYS],
            ever: HashSet::new(),
            seen: Seen::default(),
        }
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 11) as usize % sides
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn run(mut self) -> Result<Seen, String> {
        for _ in 0..STEPS {
            let process = self.roll(PROCESSES);
            match self.roll(64) {
                0..=5 => self.produce(),
                6..=17 => self.fetch(process),
                18..=37 => self.work(process)?,
                38..=43 => self.store_failed(process),
                44..=47 => self.look_at_held(process),
                48..=54 => self.release(process)?,
                55..=58 => self.acknowledge(process),
                59 => self.disturb(process),
                _ => self.operate(),
            }
        }
        self.come_to_rest()?;
        Ok(self.seen)
    }

    fn produce(&mut self) {
        let (key, topic) = (self.roll(KEYS), self.roll(TOPICS.len()));
        let seq = self.events.len() as i64 + 1;
        let mut stamp = seq.to_string();
        for (other, name) in TOPICS.iter().enumerate() {
            let of_topic = |event: &&Event| event.key == key && event.topic == other;
            if let Some(last) = self.events.iter().rfind(of_topic) {
                stamp += &format!(" {name}={}", last.place.number);
            }
        }
        let topics: Vec<String> = TOPICS.map(str::to_owned).to_vec();
        let place = Place::by_stamp(&Stamp::read(&stamp).unwrap(), TOPICS[topic], &topics);
        let rank = self.events.iter().filter(|event| event.key == key).count();
        let broken = self.roll(4) == 0;
        self.log.entry((key, topic)).or_default().push(self.events.len());
        self.events.push(Event { key, topic, rank, place, broken });
    }

    /// The owner of a key gets the next messages of its topics.
    fn fetch(&mut self, process: usize) {
        for key in 0..KEYS {
            if self.owners[key] != process {
                continue;
            }
            for topic in 0..TOPICS.len() {
                let from = self.cursors.get(&(key, topic)).copied().unwrap_or(0);
                let at = *self.processes[process].fetched.entry((key, topic)).or_insert(from);
                let log = self.log.get(&(key, topic)).map_or(&[][..], Vec::as_slice);
                if let (Some(event), true) =
                    (log.get(at).copied(), self.dice.is_multiple_of(3) || topic == 0)
                {
                    let epoch = Some(self.processes[process].epoch);
                    let item = Item { event, epoch, release: None };
                    self.processes[process].queues.entry(key).or_default().push_back(item);
                    self.processes[process].fetched.insert((key, topic), at + 1);
                }
                self.roll(2);
            }
        }
    }

    fn facts(&self, items: &[Item]) -> Facts {
        let mut facts = Facts::default();
        for ((key, line), number) in &self.marks {
            facts.learn_mark("t", &key.to_string(), line.clone(), *number);
        }
        for (key, hole) in &self.holes {
            facts.learn_hole("t", &key.to_string(), hole.clone());
        }
        for letter in self.letters.iter().filter(|it| it.blocks && it.status != Status::Closed) {
            if !self.is(Mutant::FreshLettersDoNotBlock) || items[0].release.is_none() {
                facts.learn_letter("t", &self.events[letter.event].key.to_string());
            }
        }
        for key in 0..KEYS {
            let of_key = |(_, event): &&(i64, usize)| self.events[*event].key == key;
            if let Some((first, _)) = self.parked.iter().find(of_key) {
                facts.learn_parked("t", &key.to_string(), *first);
            }
        }
        if !self.is(Mutant::LettersAreNotRecognised) {
            let open = self.letters.iter().filter(|letter| letter.status != Status::Closed);
            let held = open.map(|letter| letter.event).chain(self.parked.iter().map(|it| it.1));
            held.for_each(|event| facts.learn_held(event.to_string()));
        }
        for (event, claim) in &self.inbox {
            facts.learn_claim(event.to_string(), *claim);
        }
        facts
    }

    fn origin(&self, item: &Item) -> Origin {
        let any = self.is(Mutant::HeldAreNotLocked);
        match item.release {
            None => Origin::Delivered,
            Some(Release::Letter(at)) => {
                Origin::Letter { there: any || self.letters[at].status == Status::Replay }
            }
            Some(Release::Parked(id)) => {
                Origin::Parked { id, there: any || self.parked.iter().any(|it| it.0 == id) }
            }
        }
    }

    fn decide(&self, items: &[Item]) -> Option<Vec<Decision>> {
        let moved = |item: &Item| item.epoch.is_some_and(|epoch| epoch != self.epoch);
        if items.iter().any(moved) && !self.is(Mutant::EpochsAreIgnored) {
            return None;
        }
        let names: Vec<(String, String)> = items
            .iter()
            .map(|item| (item.event.to_string(), self.events[item.event].key.to_string()))
            .collect();
        let waited = if self.is(Mutant::NothingWaits) { RULES.gap } else { Duration::ZERO };
        let candidates: Vec<Candidate<'_>> = items
            .iter()
            .zip(&names)
            .map(|(item, (event, key))| Candidate {
                event,
                tenant: "t",
                topic: TOPICS[self.events[item.event].topic],
                key: Some(key),
                place: Some(&self.events[item.event].place),
                origin: self.origin(item),
                waited,
                usable: true,
                remembered: true,
            })
            .collect();
        Some(admit(&candidates, self.facts(items), &RULES))
    }

    /// One transaction over items of a key. Fails as a whole, with the first item that fails.
    fn transact(&mut self, process: usize, items: &[Item]) -> Result<Outcome, String> {
        let Some(decisions) = self.decide(items) else { return Ok(Outcome::Moved) };
        let mut fresh = HashSet::new();
        for (item, decision) in items.iter().zip(&decisions) {
            let taken = self.inbox.get(&item.event) == Some(&Claim::Done);
            if matches!(decision, Decision::Apply { .. }) && !taken {
                if self.events[item.event].broken {
                    return Ok(Outcome::Failed(*item));
                }
                fresh.insert(item.event);
            }
        }
        let mut held = Vec::new();
        for (item, decision) in items.iter().zip(decisions) {
            let (key, place) = {
                let event = &self.events[item.event];
                (event.key, event.place.clone())
            };
            match decision {
                Decision::Apply { skips, fills } => {
                    if fresh.remove(&item.event) {
                        self.apply(item.event)?;
                    } else {
                        self.seen.duplicates += 1;
                    }
                    if item.release.is_none() {
                        self.mark(key, &place.line, place.number);
                        for hole in skips {
                            self.mark(key, &hole.line, hole.high);
                            self.holes.push((key, hole));
                        }
                    }
                    if fills || item.release.is_some() {
                        self.fill(key, &place);
                    }
                    self.leave_box(item);
                }
                Decision::Wait => {
                    self.seen.waited += 1;
                    held.push(*item);
                    continue;
                }
                Decision::Park => {
                    self.seen.parked += 1;
                    let open = |it: &Letter| it.event == item.event && it.status != Status::Closed;
                    if self.letters.iter().any(open) {
                        return Err(format!("event {} is parked behind itself", item.event));
                    }
                    if !self.parked.iter().any(|(_, event)| *event == item.event) {
                        self.next_parked += 1;
                        self.parked.push((self.next_parked, item.event));
                    }
                    self.pass_over(key, &place);
                }
                Decision::Bury(cause) => self.bury(item.event, cause != Cause::Late),
                Decision::Settled => {
                    self.seen.duplicates += 1;
                    self.mark(key, &place.line, place.number);
                }
                Decision::Leave => continue,
            }
            if item.release.is_none() {
                self.processes[process].unacknowledged.push(item.event);
            }
        }
        Ok(Outcome::Done(held))
    }

    fn apply(&mut self, event: usize) -> Checked {
        let Event { key, rank, .. } = self.events[event];
        if self.deleted.contains(&event) {
            return Err(format!("event {event} was deleted, and is applied"));
        }
        if let Some(last) = self.applied[key].last().filter(|last| **last >= rank) {
            return Err(format!("key {key}: {rank} is applied after {last}"));
        }
        self.inbox.insert(event, Claim::Done);
        self.applied[key].push(rank);
        self.ever.insert(event);
        Ok(())
    }

    fn mark(&mut self, key: usize, line: &str, number: i64) {
        let mark = self.marks.entry((key, line.to_owned())).or_insert(number);
        *mark = number.max(*mark);
    }

    fn pass_over(&mut self, key: usize, place: &Place) {
        self.mark(key, &place.line, place.number);
        let (low, high) = (place.number, place.number);
        self.holes.push((key, Hole { line: place.line.clone(), low, high }));
    }

    fn fill(&mut self, key: usize, place: &Place) {
        let number = place.number;
        let (within, rest) = std::mem::take(&mut self.holes).into_iter().partition(|(of, hole)| {
            *of == key && hole.line == place.line && (hole.low..=hole.high).contains(&number)
        });
        self.holes = rest;
        let within: Vec<(usize, Hole)> = within;
        for (key, hole) in within {
            for (low, high) in [(hole.low, number - 1), (number + 1, hole.high)] {
                if low <= high {
                    self.holes.push((key, Hole { line: hole.line.clone(), low, high }));
                }
            }
        }
    }

    fn leave_box(&mut self, item: &Item) {
        match item.release {
            Some(Release::Letter(at)) => self.letters[at].status = Status::Closed,
            Some(Release::Parked(id)) => self.parked.retain(|it| it.0 != id),
            None => {}
        }
    }

    fn bury(&mut self, event: usize, blocks: bool) {
        self.seen.letters += 1;
        let blocks = blocks && !self.is(Mutant::LettersDoNotBlock);
        let stays = self.is(Mutant::LettersStayClosed);
        match self.letters.iter_mut().find(|letter| letter.event == event) {
            Some(letter) if stays && letter.status == Status::Closed => {}
            Some(letter) => (letter.status, letter.blocks) = (Status::Open, blocks),
            None => self.letters.push(Letter { event, status: Status::Open, blocks }),
        }
    }

    fn work(&mut self, process: usize) -> Checked {
        let key = self.roll(KEYS);
        let busy = self.processes[process].failed.iter();
        if busy.filter(|it| it.release.is_none()).any(|it| self.events[it.event].key == key) {
            return Ok(());
        }
        let most = 1 + self.roll(3);
        let queue = self.processes[process].queues.entry(key).or_default();
        // What waits is looked at together with what came after it.
        let mut items: Vec<Item> = queue.drain(..).collect();
        items.sort_by_key(|item| self.events[item.event].place.number);
        let rest = items.split_off(items.len().min(most));
        let epoch = self.processes[process].epoch;
        let back = self.settle(process, items)?;
        // One that has subscribed again has discarded all that it had.
        if epoch != self.processes[process].epoch {
            return Ok(());
        }
        let queue = self.processes[process].queues.entry(key).or_default();
        queue.extend(back.into_iter().chain(rest));
        Ok(())
    }

    /// Applies items together, or one by one if one of them fails. Returns what stays.
    fn settle(&mut self, process: usize, items: Vec<Item>) -> Result<Vec<Item>, String> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        match self.transact(process, &items)? {
            Outcome::Done(held) => Ok(held),
            Outcome::Moved => {
                self.subscribe(process);
                Ok(Vec::new())
            }
            Outcome::Failed(item) if items.len() == 1 => {
                self.processes[process].failed.push(item);
                Ok(Vec::new())
            }
            Outcome::Failed(_) => {
                let mut items = VecDeque::from(items);
                while let Some(item) = items.pop_front() {
                    let held = self.settle(process, vec![item])?;
                    let failed =
                        self.processes[process].failed.iter().any(|it| it.event == item.event);
                    if !held.is_empty() || failed {
                        return Ok(held.into_iter().chain(items).collect());
                    }
                }
                Ok(Vec::new())
            }
        }
    }

    fn store_failed(&mut self, process: usize) {
        let Some(item) = self.processes[process].failed.pop() else { return };
        let moved = item.epoch.is_some_and(|epoch| epoch != self.epoch);
        if moved && !self.is(Mutant::EpochsAreIgnored) {
            return self.subscribe(process);
        }
        let there = match self.origin(&item) {
            Origin::Delivered => self.inbox.get(&item.event) != Some(&Claim::Done),
            Origin::Letter { there } | Origin::Parked { there, .. } | Origin::Stashed { there } => {
                there
            }
        };
        if there {
            self.leave_box(&item);
            self.bury(item.event, true);
            if item.release.is_none() {
                let (key, place) =
                    (self.events[item.event].key, self.events[item.event].place.clone());
                self.pass_over(key, &place);
            }
        }
        if item.release.is_none() {
            self.processes[process].unacknowledged.push(item.event);
        }
    }

    /// Reads what can be released, to be applied later.
    fn look_at_held(&mut self, process: usize) {
        let replayed =
            (0..self.letters.len()).filter(|at| self.letters[*at].status == Status::Replay);
        let mut released: VecDeque<Item> = replayed
            .map(|at| (self.letters[at].event, Release::Letter(at)))
            .map(|(event, release)| Item { event, epoch: None, release: Some(release) })
            .collect();
        for (id, event) in &self.parked {
            let key = self.events[*event].key;
            let blocked = self.letters.iter().any(|letter| {
                letter.blocks
                    && letter.status != Status::Closed
                    && self.events[letter.event].key == key
            });
            if !blocked {
                let release = Some(Release::Parked(*id));
                released.push_back(Item { event: *event, epoch: None, release });
            }
        }
        self.processes[process].released = released;
    }

    fn release(&mut self, process: usize) -> Checked {
        if let Some(item) = self.processes[process].released.pop_front() {
            self.settle(process, vec![item])?;
        }
        Ok(())
    }

    fn acknowledge(&mut self, process: usize) {
        for event in std::mem::take(&mut self.processes[process].unacknowledged) {
            let Event { key, topic, .. } = self.events[event];
            if self.owners[key] == process && self.processes[process].epoch == self.epoch {
                self.acknowledged.insert(event);
                let log = &self.log[&(key, topic)];
                let cursor = self.cursors.entry((key, topic)).or_default();
                while log.get(*cursor).is_some_and(|event| self.acknowledged.contains(event)) {
                    *cursor += 1;
                }
            }
        }
    }

    /// Forgets what was fetched, and begins again at the cursors.
    fn subscribe(&mut self, process: usize) {
        self.processes[process] = Process { epoch: self.epoch, ..Process::default() };
    }

    fn disturb(&mut self, process: usize) {
        if self.roll(2) == 0 {
            self.seen.crashes += 1;
            return self.subscribe(process);
        }
        // The old owner does not know yet, and goes on with what it has.
        self.seen.moves += 1;
        let key = self.roll(KEYS);
        self.owners[key] = (self.owners[key] + 1) % PROCESSES;
        let owner = &mut self.processes[self.owners[key]];
        owner.fetched.retain(|(of, _), _| *of != key);
        owner.queues.remove(&key);
    }

    fn operate(&mut self) {
        let open: Vec<usize> = (0..self.letters.len())
            .filter(|at| self.letters[*at].status != Status::Closed)
            .collect();
        if self.roll(24) == 0 {
            return self.seek();
        }
        if open.is_empty() {
            return;
        }
        let at = open[self.roll(open.len())];
        match self.roll(3) {
            0 => {
                self.seen.deleted += 1;
                let event = self.letters[at].event;
                self.letters[at].status = Status::Closed;
                self.given_up.insert(event);
                self.deleted.insert(event);
                if !self.is(Mutant::GivingUpClaimsNothing) {
                    self.inbox.insert(event, Claim::Done);
                    self.parked.retain(|it| it.1 != event);
                }
            }
            _ => {
                self.events[self.letters[at].event].broken = false;
                self.letters[at].status = Status::Replay;
            }
        }
    }

    /// All is to be applied again, from the beginning, but for what was deleted.
    fn seek(&mut self) {
        // Where something is held, what comes after it in the log is applied before it.
        if !self.parked.is_empty() || self.letters.iter().any(|it| it.status != Status::Closed) {
            return;
        }
        self.seen.seeks += 1;
        self.epoch += 1;
        self.cursors.clear();
        self.acknowledged.clear();
        self.applied.iter_mut().for_each(Vec::clear);
        // Or events of one topic would not wait for those of another that come again.
        if !self.is(Mutant::SeeksLeaveMarks) {
            self.marks.clear();
        }
        // Some of what was mended fails again.
        for event in self.events.iter_mut().step_by(5) {
            event.broken = true;
        }
        for (event, claim) in &mut self.inbox {
            if !self.deleted.contains(event) {
                *claim = Claim::Expected;
            }
        }
    }

    /// Everything is mended and goes on until nothing is left to do.
    fn come_to_rest(&mut self) -> Checked {
        self.events.iter_mut().for_each(|event| event.broken = false);
        for process in 0..PROCESSES {
            self.subscribe(process);
        }
        for _ in 0..400 {
            for letter in self.letters.iter_mut().filter(|it| it.status == Status::Open) {
                letter.status = Status::Replay;
            }
            for process in 0..PROCESSES {
                self.fetch(process);
                self.work(process)?;
                self.store_failed(process);
                self.look_at_held(process);
                self.release(process)?;
                self.acknowledge(process);
            }
        }
        for (number, event) in self.events.iter().enumerate() {
            let applied = self.applied[event.key].contains(&event.rank);
            if !applied && !self.deleted.contains(&number) {
                return Err(format!("event {number} of key {} is lost", event.key));
            }
        }
        match self.parked.is_empty() {
            true => Ok(()),
            false => Err(format!("{} events stay parked", self.parked.len())),
        }
    }
}

enum Outcome {
    Done(Vec<Item>),
    Moved,
    Failed(Item),
}
