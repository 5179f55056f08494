//! Judges what was applied against what was written. Shares no code with the engine: it knows lists, and nothing of outboxes,
//! relays or inboxes.
//!
//! Writers log what they wrote and whether it committed. Consumers keep a list per key in a table of their own
//! business. An independent reader provides the broker's log. Operators log what they asked for. From these alone:
//!
//! * every acknowledged write is applied once by every consumer that reads its topic, or is held;
//! * a write that failed is never applied, and nothing is applied that was not written;
//! * a write whose fate is unknown is applied at most once;
//! * a key's list, and the first appearances of a key in the broker's log, are in the order of the commits;
//! * nothing of a key is applied behind an event that is held, and no healthy event becomes a letter or is refused;
//! * after a seek that applies again, a list goes back once, and all that was written since its target comes again;
//! * what an operator has given up is never applied afterwards, and what was dropped is never published.
//!
//! ```
//! use chapar_testkit::history::{Fate, History, Write};
//!
//! let write = |id: &str, n| Write { fate: Fate::Committed, ..Write::new(id, "room 7", n) };
//! let mut history = History { writes: vec![write("a", 1), write("b", 2)], ..History::default() };
//! history.apply("desk", "room 7", "b");
//! let judgement = history.judge();
//! assert_eq!((judgement.lost, judgement.holds()), (1, false), "{:?}", judgement.examples);
//! ```

mod judge;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use self::judge::{Judge, Stage};

/// Whether a write committed, as far as its writer knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The commit was acknowledged.
    Committed,
    /// It was rolled back, or refused before the commit.
    Failed,
    /// The writer, the connection or the server went away during the commit.
    #[default]
    Unknown,
    /// It was acknowledged, and the database was allowed to forget it: a commit that did not wait for the disk, or one
    /// that a promoted standby had not received. It may have been published and applied before that, in any order.
    Forgotten,
}

/// One attempted write of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Names the attempt, and no other.
    pub id: String,
    /// The ordering key.
    pub key: String,
    /// Its place among the commits of the key, if it committed. One that did not may have the number of one that did.
    pub n: u64,
    /// What became of it.
    pub fate: Fate,
    /// Its topic; empty where there is only one.
    pub topic: String,
    /// When it was about to be committed, in milliseconds of any one clock.
    pub at: u64,
    /// Something is wrong with it on purpose: it may be refused, or become a dead letter.
    pub ill: bool,
}

impl Write {
    /// A healthy write, of unknown fate.
    pub fn new(id: impl Into<String>, key: impl Into<String>, n: u64) -> Self {
        Write { id: id.into(), key: key.into(), n, ..Write::default() }
    }
}

/// A message of the broker's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The ordering key.
    pub key: String,
    /// The write that it is about.
    pub id: String,
    /// The topic, where a broker keeps the order of a key only within a topic; else empty.
    pub line: String,
}

/// An entry of a consumer's list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// The write.
    pub id: String,
    /// When, on the clock of [`Write::at`].
    pub at: u64,
}

/// A consumer was asked to apply again what was published since a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seek {
    /// Which consumer.
    pub consumer: String,
    /// Since when.
    pub target: u64,
    /// When the operator began to ask.
    pub begun: u64,
    /// Whether the operator was told that it is done. If not, it may have happened.
    pub done: bool,
}

/// Everything that is known of a run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// What was written, in any order.
    pub writes: Vec<Write>,
    /// Per consumer and key, the writes in the order in which they were applied.
    pub applied: BTreeMap<String, BTreeMap<String, Vec<Applied>>>,
    /// The broker's log from its beginning, where it was read.
    pub broker: Option<Vec<Message>>,
    /// Per consumer, the writes that lie among its dead letters or parked followers.
    pub held: BTreeMap<String, BTreeSet<String>>,
    /// Of those, the dead letters themselves.
    pub letters: BTreeMap<String, BTreeSet<String>>,
    /// Writes that lie in quarantine, before the broker, or wait behind one that does.
    pub quarantined: BTreeSet<String>,
    /// Of those, the ones that were refused themselves.
    pub refused: BTreeSet<String>,
    /// The topics of a consumer, and since when it reads each: writes since then are required, earlier ones may be there.
    /// A consumer without an entry reads everything.
    pub readers: BTreeMap<String, BTreeMap<String, u64>>,
    /// Seeks that apply again, in their order.
    pub seeks: Vec<Seek>,
    /// Per consumer, letters that an operator has given up, and when that was confirmed.
    pub given_up: BTreeMap<String, BTreeMap<String, u64>>,
    /// Writes that an operator has dropped from quarantine.
    pub dropped: BTreeSet<String>,
    /// Writes that an operator may have dropped: the answer was lost, or a promoted standby may not know of it. They may
    /// be published or not.
    pub perhaps_dropped: BTreeSet<String>,
}

/// The verdict on a history.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Writes whose commit was acknowledged.
    pub acknowledged: usize,
    /// Writes whose fate the writer does not know.
    pub unknown: usize,
    /// Acknowledged writes that the database was allowed to forget, and has.
    pub forgotten: usize,
    /// Acknowledged writes that are missing from the broker or at a consumer, and are not held.
    pub lost: usize,
    /// Writes that were published or applied though they failed, or that were never written.
    pub phantom: usize,
    /// Applications beyond the first of a write that no seek explains.
    pub applied_twice: usize,
    /// Writes that came behind a later one of their key.
    pub out_of_order: usize,
    /// Writes that were applied though an earlier one of their key is held.
    pub unparked_followers: usize,
    /// Healthy writes that were refused or became dead letters.
    pub wrongly_held: usize,
    /// Writes that were applied or published after an operator had given them up.
    pub resurrected: usize,
    /// Messages of the broker beyond the first of a write.
    pub duplicates: usize,
    /// The first of the violations in words.
    pub examples: Vec<String>,
}

impl Judgement {
    /// How often each promise was broken, by name.
    pub fn violations(&self) -> [(&'static str, usize); 7] {
        [
            ("lost", self.lost),
            ("phantom", self.phantom),
            ("applied_twice", self.applied_twice),
            ("out_of_order", self.out_of_order),
            ("unparked_followers", self.unparked_followers),
            ("wrongly_held", self.wrongly_held),
            ("resurrected", self.resurrected),
        ]
    }

    /// Whether no promise was broken.
    pub fn holds(&self) -> bool {
        self.violations().iter().all(|(_, count)| *count == 0)
    }
}

impl History {
    /// Puts a write at the end of a consumer's list.
    pub fn apply(&mut self, consumer: &str, key: &str, id: &str) {
        self.apply_at(consumer, key, id, 0);
    }

    /// The same, with its time.
    pub fn apply_at(&mut self, consumer: &str, key: &str, id: &str, at: u64) {
        let lists = self.applied.entry(consumer.to_owned()).or_default();
        // Most entries are of a key that is there already.
        if !lists.contains_key(key) {
            lists.insert(key.to_owned(), Vec::new());
        }
        if let Some(list) = lists.get_mut(key) {
            list.push(Applied { id: id.to_owned(), at });
        }
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
