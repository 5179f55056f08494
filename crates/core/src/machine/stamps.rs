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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Tried;
    use bytes::Bytes;
    use jiff::Timestamp;

    fn row(seq: i64, key: &str, topic: &str) -> OutboxRow {
        OutboxRow {
            seq,
            event_id: format!("e{seq}").parse().unwrap_or_else(|e| panic!("{e:?}")),
            topic: topic.into(),
            tenant: "acme".into(),
            key: Some(key.into()),
            headers: Vec::new(),
            body: Bytes::new(),
            behind: false,
            tried: Tried::default(),
            stamp: None,
            draft: None,
            written_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn stamper(capacity: usize) -> Stamper {
        Stamper::new(["made", "paid", "closed"].map(str::to_owned).into(), capacity)
    }

    fn stamps(rows: &[OutboxRow]) -> Vec<&str> {
        rows.iter().map(|row| row.stamp.as_deref().unwrap_or("none")).collect()
    }

    #[test]
    fn a_stamp_names_the_last_event_before_it_on_each_subject() {
        let mut stamper = stamper(10);
        let mut rows = [
            row(3, "a", "made"),
            row(4, "b", "made"),
            row(7, "a", "paid"),
            row(8, "a", "unrelated"),
            row(9, "a", "paid"),
        ];
        assert_eq!(stamper.unknown(&rows).len(), 2);
        stamper.learn(vec!["a".into(), "b".into()], vec![]);
        let marks = stamper.stamp(&mut rows);
        assert_eq!(stamps(&rows), ["3", "4", "7 made=3", "none", "9 made=3 paid=7"]);
        assert_eq!(marks.len(), 2);
        let stamp = Stamp::read(rows[4].stamp.as_deref().unwrap_or_default());
        let stamp = stamp.unwrap_or_else(|| panic!("it is one of ours"));
        assert_eq!(stamp.predecessor(["made", "closed"]), Some(3));
        assert_eq!(stamp.predecessor(["made", "paid"]), Some(7));
        assert_eq!(stamp.predecessor(["closed"]), None);
        assert_eq!(Stamp::read("9 made"), None);
        assert_eq!(Stamp::read(""), None);
    }

    #[test]
    fn who_starts_again_at_a_checkpoint_says_the_same() {
        let mut first = stamper(10);
        let mut before = [row(1, "a", "made"), row(2, "a", "paid")];
        let unknown = first_unknown(&mut first, &before);
        first.learn(unknown, vec![]);
        let checkpoint = first.stamp(&mut before);
        let mut after = [row(5, "a", "closed"), row(6, "a", "paid")];
        first.stamp(&mut after);
        let mut heir = stamper(10);
        let mut again = [row(5, "a", "closed"), row(6, "a", "paid")];
        let unknown = first_unknown(&mut heir, &again);
        heir.learn(unknown, checkpoint);
        heir.stamp(&mut again);
        assert_eq!(stamps(&again), stamps(&after));
        assert_eq!(stamps(&again), ["5 made=1 paid=2", "6 closed=5 made=1 paid=2"]);
    }

    fn first_unknown(stamper: &mut Stamper, rows: &[OutboxRow]) -> Vec<String> {
        stamper.unknown(rows)
    }

    #[test]
    fn keys_that_are_used_are_remembered_and_others_are_asked_for_again() {
        let mut stamper = stamper(3);
        for n in 0..20 {
            let mut rows = [row(n * 2, "hot", "made"), row(n * 2 + 1, &format!("k{n}"), "made")];
            let unknown = stamper.unknown(&rows);
            let hot_is_new = unknown.iter().any(|key| key == "hot");
            assert_eq!(hot_is_new, n == 0, "round {n}");
            stamper.learn(unknown, vec![]);
            stamper.stamp(&mut rows);
        }
        assert_eq!(stamper.unknown(&[row(99, "k0", "made")]), ["k0"]);
    }
}
