//! Stamps: the order of a key over several topics.
//!
//! No broker keeps the order between topics. The relay knows it, and writes it on the message:
//! the number of the event, and the number of the last event before it on each subject of its
//! key. A consumer of several of them holds an event back until the ones before it are there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use crate::port::{KeyMarks, OutboxRow};

/// The header that carries a stamp.
pub const HEADER: &str = "chapar-order";

/// Numbers the events of keys, remembering what came last.
///
/// Deterministic: the same rows from the same marks get the same stamps, so that a relay that
/// starts again at the last checkpoint repeats what the one before it said.
#[derive(Debug)]
pub struct Stamper {
    topics: HashSet<String>,
    capacity: usize,
    // Two generations: a key that is used moves to the young one, and when that is full the old
    // one goes.
    young: HashMap<String, Marks>,
    old: HashMap<String, Marks>,
}

type Marks = BTreeMap<String, i64>;

impl Stamper {
    /// Stamps the events of `topics` and no others. At most about twice `capacity` keys are
    /// remembered; more than that many may not be stamped between two checkpoints.
    pub fn new(topics: HashSet<String>, capacity: usize) -> Self {
        Stamper { topics, capacity, young: HashMap::new(), old: HashMap::new() }
    }

    /// The keys in `rows` whose marks must be [told](Stamper::learn) first.
    pub fn unknown(&mut self, rows: &[OutboxRow]) -> Vec<String> {
        let mut unknown = HashSet::new();
        for row in rows.iter().filter(|row| self.topics.contains(&row.topic)) {
            let Some(key) = &row.key else { continue };
            if self.young.contains_key(key) {
                continue;
            }
            match self.old.remove(key) {
                Some(marks) => {
                    self.young.insert(key.clone(), marks);
                }
                None => {
                    unknown.insert(key);
                }
            }
        }
        unknown.into_iter().cloned().collect()
    }

    /// Takes the marks of keys as the store has them; of `keys` that it has none of, there are none.
    pub fn learn(&mut self, keys: Vec<String>, known: Vec<KeyMarks>) {
        if self.young.len() + keys.len() > self.capacity {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.extend(keys.into_iter().map(|key| (key, Marks::new())));
        self.young.extend(known.into_iter().map(|known| (known.key, known.marks)));
    }

    /// Stamps rows in their order; returns the marks of their keys afterwards.
    pub fn stamp(&mut self, rows: &mut [OutboxRow]) -> Vec<KeyMarks> {
        let mut touched = HashSet::new();
        for row in rows.iter_mut().filter(|row| self.topics.contains(&row.topic)) {
            let Some(key) = &row.key else { continue };
            if !self.young.contains_key(key)
                && let Some(marks) = self.old.remove(key)
            {
                self.young.insert(key.clone(), marks);
            }
            let marks = self.young.entry(key.clone()).or_default();
            row.stamp = Some(Stamp::write(row.seq, marks));
            marks.insert(row.topic.clone(), row.seq);
            touched.insert(key.clone());
        }
        let after = |key: String| Some(KeyMarks { marks: self.young.get(&key)?.clone(), key });
        touched.into_iter().filter_map(after).collect()
    }

    /// Forgets everything: what comes next starts again at the last checkpoint.
    pub fn forget(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

/// The place of an event among the events of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Its number, ascending within the key.
    pub seq: i64,
    /// The number of the last event before it, for each subject of the key.
    pub after: BTreeMap<String, i64>,
}

impl Stamp {
    fn write(seq: i64, after: &Marks) -> String {
        let mut text = seq.to_string();
        for (topic, seq) in after {
            let _ = write!(text, " {topic}={seq}");
        }
        text
    }

    /// Reads a stamp, if it is one.
    pub fn read(text: &str) -> Option<Stamp> {
        let mut parts = text.split(' ');
        let seq = parts.next()?.parse().ok()?;
        let mark = |part: &str| {
            let (topic, seq) = part.rsplit_once('=')?;
            Some((topic.to_owned(), seq.parse().ok()?))
        };
        Some(Stamp { seq, after: parts.map(mark).collect::<Option<_>>()? })
    }

    /// The last event before this one among `topics`, if there was any.
    pub fn predecessor<'a>(&self, topics: impl IntoIterator<Item = &'a str>) -> Option<i64> {
        topics.into_iter().filter_map(|topic| self.after.get(topic).copied()).max()
    }
}
