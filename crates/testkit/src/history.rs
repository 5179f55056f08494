//! Judges what was applied against what was written. Shares no code with the engine: it knows lists, and nothing of outboxes,
//! relays or inboxes.
//!
//! Writers log what they wrote and whether it committed. Consumers keep a list per key in a table of their own
//! business. An independent reader provides the broker's log. From these alone:
//!
//! * every acknowledged write is applied once by every consumer, or lies in a box;
//! * a write that failed is never applied, and nothing is applied that was not written;
//! * a write whose fate is unknown is applied at most once;
//! * a key's list, and the first appearances of a key in the broker's log, are in the order of the commits;
//! * nothing of a key is applied behind an event that lies in a box.
//!
//! ```
//! use chapar_testkit::history::{Fate, History, Write};
//!
//! let write = |id: &str, n| Write { id: id.into(), key: "room 7".into(), n, fate: Fate::Committed };
//! let mut history = History { writes: vec![write("a", 1), write("b", 2)], ..History::default() };
//! history.apply("desk", "room 7", "b");
//! let judgement = history.judge();
//! assert_eq!((judgement.lost, judgement.holds()), (1, false), "{:?}", judgement.examples);
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

/// Whether a write committed, as far as its writer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The commit was acknowledged.
    Committed,
    /// It was rolled back, or refused before the commit.
    Failed,
    /// The writer, the connection or the server went away during the commit.
    Unknown,
}

/// One attempted write of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Names the attempt, and no other.
    pub id: String,
    /// The ordering key.
    pub key: String,
    /// Its place among the commits of the key, if it committed. One that did not may have the number of one that did.
    pub n: u64,
    /// What became of it.
    pub fate: Fate,
}

/// A message of the broker's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The ordering key.
    pub key: String,
    /// The write that it is about.
    pub id: String,
}

/// Everything that is known of a run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// What was written, in any order.
    pub writes: Vec<Write>,
    /// Per consumer and key, the writes in the order in which they were applied.
    pub applied: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// The broker's log from its beginning, where it was read.
    pub broker: Option<Vec<Message>>,
    /// Per consumer, the writes that lie among its dead letters or parked followers.
    pub boxed: BTreeMap<String, BTreeSet<String>>,
    /// Writes that lie in quarantine, before the broker.
    pub quarantined: BTreeSet<String>,
}

/// The verdict on a history.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Writes whose commit was acknowledged.
    pub acknowledged: usize,
    /// Writes whose fate the writer does not know.
    pub unknown: usize,
    /// Acknowledged writes that are missing from the broker or at a consumer, and lie in no box.
    pub lost: usize,
    /// Writes that were published or applied though they failed, or that were never written.
    pub phantom: usize,
    /// Applications beyond the first of a write.
    pub applied_twice: usize,
    /// Writes that came behind a later one of their key.
    pub out_of_order: usize,
    /// Writes that were applied though an earlier one of their key lies in a box.
    pub unparked_followers: usize,
    /// Messages of the broker beyond the first of a write.
    pub duplicates: usize,
    /// The first of the violations in words.
    pub examples: Vec<String>,
}

impl Judgement {
    /// Whether no promise was broken.
    pub fn holds(&self) -> bool {
        let Judgement { lost, phantom, applied_twice, out_of_order, unparked_followers, .. } = self;
        lost + phantom + applied_twice + out_of_order + unparked_followers == 0
    }
}

impl History {
    /// Puts a write at the end of a consumer's list.
    pub fn apply(&mut self, consumer: &str, key: &str, id: &str) {
        let lists = self.applied.entry(consumer.to_owned()).or_default();
        lists.entry(key.to_owned()).or_default().push(id.to_owned());
    }

    /// Judges it, as of when everything should have arrived.
    pub fn judge(&self) -> Judgement {
        Judge::over(self).finish(Stage::Ended)
    }

    /// Judges a run in progress: a missing write may still arrive, unless a later one of its key has already.
    ///
    /// Read the broker's log and the lists before the writers' word, and nothing is taken for a phantom that is not one.
    pub fn judge_so_far(&self) -> Judgement {
        Judge::over(self).finish(Stage::InProgress)
    }
}

/// Whether more may still arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    InProgress,
    Ended,
}

const EXAMPLES: usize = 20;

struct Judge<'h> {
    history: &'h History,
    writes: HashMap<&'h str, &'h Write>,
    phantoms: HashSet<&'h str>,
    lost: HashSet<&'h str>,
    judgement: Judgement,
}

impl<'h> Judge<'h> {
    fn over(history: &'h History) -> Self {
        let writes: HashMap<&str, &Write> =
            history.writes.iter().map(|write| (write.id.as_str(), write)).collect();
        let count = |fate| history.writes.iter().filter(|write| write.fate == fate).count();
        let judgement = Judgement {
            acknowledged: count(Fate::Committed),
            unknown: count(Fate::Unknown),
            ..Judgement::default()
        };
        Judge { history, writes, phantoms: HashSet::new(), lost: HashSet::new(), judgement }
    }

    fn finish(mut self, stage: Stage) -> Judgement {
        let history = self.history;
        if let Some(broker) = &history.broker {
            self.broker(broker);
            let there: HashSet<&str> = broker.iter().map(|m| m.id.as_str()).collect();
            self.missing("the broker", &there, &BTreeSet::new(), stage);
        }
        for (consumer, lists) in &history.applied {
            let mut there = HashSet::new();
            for (key, list) in lists {
                self.list(consumer, key, list);
                there.extend(list.iter().map(String::as_str));
            }
            let none = BTreeSet::new();
            let boxed = history.boxed.get(consumer).unwrap_or(&none);
            self.followers(consumer, lists, boxed);
            self.missing(consumer, &there, boxed, stage);
        }
        self.judgement.lost = self.lost.len();
        self.judgement.phantom = self.phantoms.len();
        self.judgement
    }

    fn broker(&mut self, broker: &'h [Message]) {
        let mut seen = HashSet::new();
        let mut last: HashMap<&str, &Write> = HashMap::new();
        for message in broker {
            let Some(write) = self.expected("the broker", &message.key, &message.id) else {
                continue;
            };
            if !seen.insert(write.id.as_str()) {
                self.judgement.duplicates += 1;
                continue;
            }
            self.in_order("the broker", &mut last, write);
        }
    }

    fn list(&mut self, consumer: &str, key: &str, list: &'h [String]) {
        let mut seen = HashSet::new();
        let mut last = HashMap::new();
        for id in list {
            let Some(write) = self.expected(consumer, key, id) else { continue };
            if !seen.insert(id.as_str()) {
                self.judgement.applied_twice += 1;
                self.tell(format!("{consumer} applied {id} of {key} twice"));
                continue;
            }
            self.in_order(consumer, &mut last, write);
        }
    }

    /// The write that an id names, unless it should not be there.
    fn expected(&mut self, place: &str, key: &str, id: &'h str) -> Option<&'h Write> {
        let write = self.writes.get(id).copied();
        let why = match write {
            None => "which was never written",
            Some(write) if write.key != key => "which is of another key",
            Some(write) if write.fate == Fate::Failed => "whose transaction failed",
            Some(write) => return Some(write),
        };
        if self.phantoms.insert(id) {
            self.tell(format!("{place} has {id} of {key}, {why}"));
        }
        None
    }

    /// Compares with the latest of its key so far, which stays: each that came too late counts.
    fn in_order(&mut self, place: &str, last: &mut HashMap<&'h str, &'h Write>, write: &'h Write) {
        match last.get(write.key.as_str()) {
            Some(latest) if latest.n > write.n => {
                self.judgement.out_of_order += 1;
                let Write { id, key, n, .. } = write;
                let text = format!(
                    "{place} has {id} of {key} (number {n}) behind {} ({})",
                    latest.id, latest.n
                );
                self.tell(text);
            }
            _ => {
                last.insert(&write.key, write);
            }
        }
    }

    fn missing(
        &mut self,
        place: &str,
        there: &HashSet<&str>,
        boxed: &BTreeSet<String>,
        stage: Stage,
    ) {
        let mut latest: HashMap<&str, u64> = HashMap::new();
        for id in there {
            let Some(write) = self.writes.get(id) else { continue };
            let latest = latest.entry(&write.key).or_default();
            *latest = write.n.max(*latest);
        }
        for write in &self.history.writes {
            let Write { id, key, n, fate } = write;
            let accounted = there.contains(id.as_str())
                || boxed.contains(id)
                || self.history.quarantined.contains(id);
            let overtaken = latest.get(key.as_str()).is_some_and(|latest| latest > n);
            let passed = stage == Stage::Ended || overtaken;
            if *fate == Fate::Committed && !accounted && passed && self.lost.insert(id) {
                self.tell(format!("{id} of {key} (number {n}) is missing at {place}"));
            }
        }
    }

    /// Whatever is applied of a key must come before whatever lies in a box of it.
    fn followers(
        &mut self,
        consumer: &str,
        lists: &'h BTreeMap<String, Vec<String>>,
        boxed: &BTreeSet<String>,
    ) {
        let mut first: HashMap<&str, &Write> = HashMap::new();
        for id in boxed.iter().chain(&self.history.quarantined) {
            let Some(write) = self.writes.get(id.as_str()).copied() else { continue };
            // One that was replayed since lies in no box any more, whatever the box says.
            if lists.get(&write.key).is_some_and(|list| list.contains(id)) {
                continue;
            }
            let earliest = first.entry(&write.key).or_insert(write);
            if write.n < earliest.n {
                *earliest = write;
            }
        }
        for (key, blocked) in first {
            for id in lists.get(key).into_iter().flatten() {
                let Some(write) = self.writes.get(id.as_str()).copied() else { continue };
                if write.n > blocked.n {
                    self.judgement.unparked_followers += 1;
                    let text = format!(
                        "{consumer} applied {id} of {key} though {} lies in a box",
                        blocked.id
                    );
                    self.tell(text);
                }
            }
        }
    }

    fn tell(&mut self, example: String) {
        if self.judgement.examples.len() < EXAMPLES {
            self.judgement.examples.push(example);
        }
    }
}
