//! Order stamps: the order of a key across several topics.
//!
//! No broker keeps the order between topics. The relay knows it and writes it into a header: the
//! sequence number of the event, and for each subject of its key the number of the last event
//! before it. A consumer of several subjects holds an event back until its predecessors have
//! arrived.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use crate::port::{KeyMarks, OutboxRow};

/// The header that carries a stamp.
pub const HEADER: &str = "chapar-order";

/// Stamps new rows, and remembers the marks of recently used keys.
///
/// Deterministic: the same rows from the same marks get the same stamps, so a relay that restarts
/// at the last checkpoint repeats the stamps of its predecessor.
#[derive(Debug)]
pub struct Stamper {
    topics: HashSet<Arc<str>>,
    capacity: usize,
    // A cache in two generations: a key that is used moves to the young one. When that is full,
    // the old generation is dropped once its marks are in the store, and the young one ages.
    young: HashMap<String, Marks>,
    old: HashMap<String, Marks>,
    /// The last read that stamped a key of the old generation.
    old_until: u64,
    last_read: u64,
    life: u32,
}

/// The last sequence numbers of a key, sorted by subject. A key has few subjects.
type Marks = Vec<(Arc<str>, i64)>;

impl Stamper {
    /// Stamps the events of `topics` and no others. About twice `capacity` keys are remembered,
    /// more only while their marks are not in the store.
    pub fn new(topics: &[String], capacity: usize) -> Self {
        Stamper {
            topics: topics.iter().map(|topic| Arc::from(topic.as_str())).collect(),
            capacity,
            young: HashMap::new(),
            old: HashMap::new(),
            old_until: 0,
            last_read: 0,
            life: 0,
        }
    }

    /// Stamps name this life of the store from now on.
    pub fn begin_life(&mut self, life: u32) {
        self.life = life;
    }

    /// The keys in `rows` whose marks have to be [loaded](Stamper::learn) first.
    pub fn unknown(&self, rows: &[OutboxRow]) -> Vec<String> {
        if self.topics.is_empty() {
            return Vec::new();
        }
        let stamped = rows.iter().filter(|row| self.stamps(row));
        let keys = stamped.filter_map(|row| row.key.as_ref());
        let unknown: HashSet<&String> = keys.filter(|key| !self.knows(key)).collect();
        unknown.into_iter().cloned().collect()
    }

    /// Republished rows keep the stamp that the store has for them.
    fn stamps(&self, row: &OutboxRow) -> bool {
        row.republish.is_none() && self.topics.contains(row.topic.as_str())
    }

    fn knows(&self, key: &str) -> bool {
        self.young.contains_key(key) || self.old.contains_key(key)
    }

    /// Takes the marks of `keys` from the store. A key that is not in `known` has none.
    pub fn learn(&mut self, keys: Vec<String>, known: Vec<KeyMarks>) {
        if self.young.len() + keys.len() > self.capacity && self.old.is_empty() {
            self.old = std::mem::take(&mut self.young);
            self.old_until = self.last_read;
        }
        self.young.extend(keys.into_iter().map(|key| (key, Marks::new())));
        for KeyMarks { key, marks } in known {
            let marks = marks.into_iter().map(|(topic, seq)| (self.name(&topic), seq)).collect();
            self.young.insert(key, marks);
        }
    }

    fn name(&self, topic: &str) -> Arc<str> {
        self.topics.get(topic).cloned().unwrap_or_else(|| Arc::from(topic))
    }

    /// Stamps the new rows of a read, in their order. A republished row of a topic that is not
    /// stamped any more loses the stamp that the store has for it.
    pub fn stamp(&mut self, read: u64, rows: &mut [OutboxRow]) {
        self.last_read = read;
        for row in rows {
            if row.republish.is_some() {
                row.stamp.take_if(|_| !self.topics.contains(row.topic.as_str()));
                if let Some(stamp) = &mut row.stamp {
                    Stamp::name_life(stamp, self.life);
                }
                continue;
            }
            let (Some(key), Some(topic)) = (&row.key, self.topics.get(row.topic.as_str())) else {
                continue;
            };
            if !self.young.contains_key(key) {
                let marks = self.old.remove(key).unwrap_or_default();
                self.young.insert(key.clone(), marks);
            }
            let Some(marks) = self.young.get_mut(key) else { continue };
            let mut stamp = Stamp::write(row.seq, marks);
            Stamp::name_life(&mut stamp, self.life);
            row.stamp = Some(stamp);
            match marks.binary_search_by(|(known, _)| known.cmp(topic)) {
                Ok(at) => marks[at].1 = row.seq,
                Err(at) => marks.insert(at, (topic.clone(), row.seq)),
            }
        }
    }

    /// Takes note that the marks of all reads up to this one are in the store.
    pub fn marked(&mut self, read: u64) {
        if read >= self.old_until {
            self.old.clear();
        }
    }

    /// Whether the cache is full: marks should be written so that old keys can be dropped.
    pub fn is_full(&self) -> bool {
        self.young.len() >= self.capacity && !self.old.is_empty()
    }

    /// Forgets everything, because reading restarts at the last checkpoint.
    pub fn forget(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

/// An order stamp: the place of an event among the events of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Its sequence number, ascending within the key and a life of the store.
    pub seq: i64,
    /// The life of the store in which it was published. Numbers of lost events are given out again
    /// in a later life, so a number is only old if it is old in its own life.
    pub life: u32,
    /// The sequence number of the last event before it, for each subject of the key.
    pub after: BTreeMap<String, i64>,
}

impl Stamp {
    /// The text of a stamp. The subjects have to be sorted: the text is compared.
    pub fn write<T: AsRef<str>>(seq: i64, after: &[(T, i64)]) -> String {
        let length = after.iter().map(|(topic, _)| topic.as_ref().len() + 12).sum::<usize>();
        let mut text = String::with_capacity(12 + length);
        let _ = write!(text, "{seq}");
        for (topic, seq) in after {
            let _ = write!(text, " {}={seq}", topic.as_ref());
        }
        text
    }

    /// Writes the life of the store behind the number of a stamp: `7@12 made=3`. The first life
    /// has no mention.
    fn name_life(text: &mut String, life: u32) {
        if life == 0 {
            return;
        }
        let end = text.find(' ').unwrap_or(text.len());
        if !text[..end].contains('@') {
            text.insert_str(end, &format!("@{life}"));
        }
    }

    /// Parses the text of a stamp.
    pub fn read(text: &str) -> Option<Stamp> {
        let mut parts = text.split(' ');
        let own = parts.next()?;
        let (seq, life) = match own.split_once('@') {
            Some((seq, life)) => (seq.parse().ok()?, life.parse().ok()?),
            None => (own.parse().ok()?, 0),
        };
        let mark = |part: &str| {
            let (topic, seq) = part.rsplit_once('=')?;
            Some((topic.to_owned(), seq.parse().ok()?))
        };
        Some(Stamp { seq, life, after: parts.map(mark).collect::<Option<_>>()? })
    }

    /// The last event before this one among `topics`, if there was any.
    pub fn predecessor<'a>(&self, topics: impl IntoIterator<Item = &'a str>) -> Option<i64> {
        topics.into_iter().filter_map(|topic| self.after.get(topic).copied()).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Headers;
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
            headers: Headers::new(),
            body: Bytes::new(),
            behind: false,
            tried: Tried::default(),
            stamp: None,
            republish: None,
            draft: None,
            unreadable: None,
            written_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn stamper(capacity: usize) -> Stamper {
        Stamper::new(&["made", "paid", "closed"].map(str::to_owned), capacity)
    }

    fn stamps(rows: &[OutboxRow]) -> Vec<&str> {
        rows.iter().map(|row| row.stamp.as_deref().unwrap_or("none")).collect()
    }

    fn marks(key: &str, marks: &[(&str, i64)]) -> KeyMarks {
        let marks = marks.iter().map(|(topic, seq)| ((*topic).to_owned(), *seq));
        KeyMarks { key: key.into(), marks: marks.collect() }
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
        stamper.stamp(1, &mut rows);
        assert_eq!(stamps(&rows), ["3", "4", "7 made=3", "none", "9 made=3 paid=7"]);
        let stamp = Stamp::read(rows[4].stamp.as_deref().unwrap_or_default());
        let stamp = stamp.unwrap_or_else(|| panic!("it is one of ours"));
        assert_eq!(stamp.predecessor(["made", "closed"]), Some(3));
        assert_eq!(stamp.predecessor(["made", "paid"]), Some(7));
        assert_eq!(stamp.predecessor(["closed"]), None);
        assert_eq!(stamp.life, 0);
        assert_eq!(Stamp::read("9 made"), None);
        assert_eq!(Stamp::read("9@x made=3"), None);
        assert_eq!(Stamp::read(""), None);
    }

    #[test]
    fn a_later_life_of_the_store_is_named_once() {
        let mut stamper = stamper(10);
        stamper.begin_life(12);
        let mut rows = [row(3, "a", "made"), row(7, "a", "paid"), row(2, "a", "made")];
        rows[2].republish = Some(1);
        rows[2].stamp = Some("2 paid=1".into());
        stamper.stamp(1, &mut rows);
        assert_eq!(stamps(&rows), ["3@12", "7@12 made=3", "2@12 paid=1"]);
        let stamp = Stamp::read("7@12 made=3").unwrap_or_else(|| panic!("it is one of ours"));
        assert_eq!((stamp.seq, stamp.life, stamp.predecessor(["made"])), (7, 12, Some(3)));
    }

    #[test]
    fn a_relay_that_restarts_from_the_marks_writes_the_same_stamps() {
        let mut first = stamper(10);
        let mut before = [row(1, "a", "made"), row(2, "a", "paid")];
        first.learn(first.unknown(&before), vec![]);
        first.stamp(1, &mut before);
        let mut after = [row(5, "a", "closed"), row(6, "a", "paid")];
        first.stamp(2, &mut after);
        let mut heir = stamper(10);
        let mut again = [row(5, "a", "closed"), row(6, "a", "paid")];
        heir.learn(heir.unknown(&again), vec![marks("a", &[("made", 1), ("paid", 2)])]);
        heir.stamp(1, &mut again);
        assert_eq!(stamps(&again), stamps(&after));
        assert_eq!(stamps(&again), ["5 made=1 paid=2", "6 closed=5 made=1 paid=2"]);
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
            stamper.stamp(n as u64, &mut rows);
            stamper.marked(n as u64);
        }
        assert_eq!(stamper.unknown(&[row(99, "k0", "made")]), ["k0"]);
    }

    #[test]
    fn nothing_is_forgotten_before_its_marks_are_written() {
        let mut stamper = stamper(3);
        for n in 0..20 {
            let mut rows = [row(n, &format!("k{n}"), "made")];
            stamper.learn(stamper.unknown(&rows), vec![]);
            stamper.stamp(n as u64, &mut rows);
        }
        assert!(stamper.is_full());
        assert!(stamper.unknown(&[row(99, "k0", "made")]).is_empty());
        stamper.marked(1);
        assert!(stamper.unknown(&[row(99, "k0", "made")]).is_empty(), "the third is not written");
        stamper.marked(2);
        assert_eq!(stamper.unknown(&[row(99, "k0", "made")]), ["k0"]);
        assert!(!stamper.is_full());
    }
}
