//! Order: where an event stands among the events of its key that a consumer has handled.
//!
//! Numbers count on lines. The relay's stamps count on one line per topic, and record how far the
//! other lines were when the event was written; versions of an aggregate count on the line of that
//! aggregate. A line only moves forward.
//!
//! After a crash, a failover or a restore a store may give out numbers of lost events again. A
//! stamp therefore names the life of its store, and the number on the line is made of both: an
//! event of a later life is never old. The predecessors in a stamp are events that the store still
//! has, whose numbers ascend over all its lives, so they are compared without the life.

use std::collections::HashMap;

use super::stamps::Stamp;

/// The place of an event in the order of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The line it counts on.
    pub line: String,
    /// Its number there: the sequence number, below the life of the store.
    pub number: i64,
    /// The previous number on its own line, if any, without a life.
    pub previous: Option<i64>,
    /// How far the other lines must have advanced, without a life.
    pub after: Vec<(String, i64)>,
    /// Its predecessors may be in another partition, and arrive after it.
    spread: bool,
    scale: Scale,
}

/// The bits of a sequence number; the life of the store is above them. This is room for 500
/// billion events and, in minutes, for 30 years.
const SEQ_BITS: u32 = 39;

fn with_life(life: i64, seq: i64) -> i64 {
    (life << SEQ_BITS) | seq
}

fn parts(number: i64) -> (i64, i64) {
    (number >> SEQ_BITS, number & ((1 << SEQ_BITS) - 1))
}

/// Numbers can be compared within one scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    Stamp,
    Version,
}

impl Place {
    /// The place that a relay has stamped on an event of `topic`, for a reader of `topics`.
    pub fn by_stamp<'a>(
        stamp: &Stamp,
        topic: &str,
        topics: impl IntoIterator<Item = &'a String>,
    ) -> Self {
        let others = topics.into_iter().filter(|other| *other != topic);
        let mut after: Vec<(String, i64)> = others
            .filter_map(|other| Some((other.clone(), stamp.after.get(other).copied()?)))
            .collect();
        after.sort_unstable();
        Place {
            line: topic.to_owned(),
            number: with_life(i64::from(stamp.life), stamp.seq),
            previous: stamp.after.get(topic).copied(),
            after,
            spread: false,
            scale: Scale::Stamp,
        }
    }

    /// The same place, of an event whose key may be in several partitions.
    pub fn spread(self, spread: bool) -> Self {
        Place { spread, ..self }
    }

    /// The place by the version of an aggregate. Versions count from 1 without gaps.
    pub fn by_version(aggregate: &str, version: i64) -> Self {
        Place {
            line: format!("aggregate {aggregate}"),
            number: version,
            previous: (version > 1).then(|| version - 1),
            after: Vec::new(),
            spread: false,
            scale: Scale::Version,
        }
    }

    /// The same place without those predecessors that are `prehistory`: older than anything its
    /// reader will ever receive.
    pub fn without(&self, prehistory: impl Fn(&str, i64) -> bool) -> Self {
        let mut place = self.clone();
        place.after.retain(|(line, number)| !prehistory(line, *number));
        if place.scale == Scale::Stamp {
            place.previous = place.previous.filter(|number| !prehistory(&place.line, *number));
        }
        place
    }

    /// Whether its predecessor on its own line may be missing where nothing of that line has been
    /// handled. A topic in one partition keeps its own order, so there the first event is where the
    /// subscription started. Versions of an aggregate span several topics.
    fn may_lack_first(&self) -> bool {
        self.scale == Scale::Version || self.spread
    }

    /// Its sequence number, without a life, if a relay has stamped it.
    pub fn stamped(&self) -> Option<i64> {
        (self.scale == Scale::Stamp).then_some(parts(self.number).1)
    }

    /// Whether a line that is at `at` has passed a predecessor of this event.
    fn is_past(&self, at: i64, predecessor: i64) -> bool {
        match self.scale {
            Scale::Version => at >= predecessor,
            Scale::Stamp => {
                let (life, seq) = parts(at);
                life > parts(self.number).0 || seq >= predecessor
            }
        }
    }

    /// Whether the numbers of two places can be compared.
    pub fn comparable(&self, other: &Place) -> bool {
        self.scale == other.scale && (self.scale == Scale::Stamp || self.line == other.line)
    }
}

/// Where an event stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// All its predecessors are handled.
    Next,
    /// Its line has already passed it.
    Old,
    /// A predecessor is missing.
    Early,
}

/// Numbers of a line that were left out, from `low` to `high` inclusive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hole {
    /// The line.
    pub line: String,
    /// The first number.
    pub low: i64,
    /// The last number.
    pub high: i64,
}

/// How far a consumer has come with a key, per line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress(HashMap<String, i64>);

impl Progress {
    /// Records how far a line is.
    pub fn learn(&mut self, line: String, number: i64) {
        let known = self.0.entry(line).or_insert(number);
        *known = number.max(*known);
    }

    /// Where an event stands.
    pub fn standing(&self, place: &Place) -> Standing {
        let own = self.0.get(&place.line).copied();
        if own.is_some_and(|last| last >= place.number) {
            return Standing::Old;
        }
        let behind = place.previous.is_some_and(|previous| match own {
            Some(last) => !place.is_past(last, previous),
            None => place.may_lack_first(),
        });
        let waits = |(line, number): &(String, i64)| {
            self.0.get(line).is_none_or(|at| !place.is_past(*at, *number))
        };
        if behind || place.after.iter().any(waits) { Standing::Early } else { Standing::Next }
    }

    /// The numbers that would be skipped if the event were applied now, on its own line and on the
    /// others that it comes after. A line that nothing is known of may lack any number.
    pub fn holes_before(&self, place: &Place) -> Vec<Hole> {
        let own = place.previous.and_then(|previous| {
            let known = self.0.contains_key(&place.line) || place.may_lack_first();
            known.then_some((&place.line, previous))
        });
        let others = place.after.iter().map(|(line, number)| (line, *number));
        let life = match place.scale {
            Scale::Version => 0,
            Scale::Stamp => parts(place.number).0,
        };
        // A missing predecessor may be of an earlier life than the event, so the hole begins where
        // the line stands, whatever the life of that number.
        let hole = |(line, predecessor): (&String, i64)| {
            let at = self.0.get(line).copied();
            let missing = at.is_none_or(|at| !place.is_past(at, predecessor));
            let (low, high) = (at.map_or(1, |at| at + 1), with_life(life, predecessor));
            (missing && low <= high).then(|| Hole { line: line.clone(), low, high })
        };
        own.into_iter().chain(others).filter_map(hole).collect()
    }

    /// Learns what another one knows.
    pub fn merge(&mut self, other: &Progress) {
        for (line, number) in &other.0 {
            self.learn(line.clone(), *number);
        }
    }

    /// The event is handled: applied, or stored as a dead letter.
    pub fn pass(&mut self, place: &Place) {
        self.learn(place.line.clone(), place.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics() -> Vec<String> {
        ["a", "b", "c"].map(str::to_owned).to_vec()
    }

    fn stamped(topic: &str, stamp: &str) -> Place {
        Place::by_stamp(&Stamp::read(stamp).unwrap(), topic, &topics())
    }

    fn hole(line: &str, low: i64, high: i64) -> Hole {
        Hole { line: line.to_owned(), low, high }
    }

    #[test]
    fn what_another_topic_lacks_is_left_out_with_it() {
        let mut progress = Progress::default();
        progress.pass(&stamped("a", "3"));
        let event = stamped("b", "9 a=5 c=7");
        assert_eq!(progress.holes_before(&event), [hole("a", 4, 5), hole("c", 1, 7)]);
    }

    #[test]
    fn a_stamped_event_waits_for_the_other_topics_of_its_reader_only() {
        let mut progress = Progress::default();
        let first = stamped("a", "1");
        let second = stamped("b", "2 a=1 elsewhere=1");
        assert_eq!(progress.standing(&second), Standing::Early);
        assert_eq!(progress.standing(&first), Standing::Next);
        progress.pass(&first);
        assert_eq!(progress.standing(&second), Standing::Next);
        assert_eq!(progress.standing(&first), Standing::Old);
    }

    #[test]
    fn a_reader_comes_in_in_the_middle_of_a_topic_and_then_misses_what_it_misses() {
        let mut progress = Progress::default();
        let seventh = stamped("a", "7 a=6");
        assert_eq!(progress.standing(&seventh), Standing::Next);
        progress.pass(&seventh);
        let tenth = stamped("a", "10 a=9");
        assert_eq!(progress.standing(&tenth), Standing::Early);
        assert_eq!(progress.holes_before(&tenth), [hole("a", 8, 9)]);
    }

    #[test]
    fn a_topic_that_is_read_later_is_not_old_because_another_is_further() {
        let mut progress = Progress::default();
        progress.pass(&stamped("a", "100"));
        assert_eq!(progress.standing(&stamped("b", "1")), Standing::Next);
    }

    #[test]
    fn what_is_older_than_the_reader_is_not_waited_for() {
        let progress = Progress::default();
        let place = stamped("b", "9 a=3 c=7");
        let before = |floor: i64| place.without(|_, number| number < floor);
        assert_eq!(progress.standing(&before(7)), Standing::Early);
        assert_eq!(progress.standing(&before(8)), Standing::Next);
    }

    #[test]
    fn a_number_that_is_given_out_again_in_a_later_life_is_not_old() {
        let mut progress = Progress::default();
        // 105 was published by a server that was lost before it reached its standby.
        progress.pass(&stamped("a", "100"));
        progress.pass(&stamped("a", "105 a=100"));
        let again = stamped("a", "103@7 a=100");
        assert_eq!(progress.standing(&again), Standing::Next);
        progress.pass(&again);
        assert_eq!(progress.standing(&again), Standing::Old);
        assert_eq!(progress.standing(&stamped("a", "106 a=105")), Standing::Old, "a lost life");
        let next = stamped("b", "104@7 a=103");
        assert_eq!(progress.standing(&next), Standing::Next);
        let early = stamped("a", "110@7 a=108");
        assert_eq!(progress.standing(&early), Standing::Early);
        let holes = progress.holes_before(&early);
        assert_eq!(holes, [hole("a", with_life(7, 104), with_life(7, 108))]);
        assert_eq!(early.stamped(), Some(110));
    }

    #[test]
    fn what_survived_a_failover_is_not_waited_for_again() {
        let mut progress = Progress::default();
        progress.pass(&stamped("a", "3"));
        assert_eq!(progress.standing(&stamped("b", "9@7 a=3")), Standing::Next);
        assert_eq!(progress.standing(&stamped("b", "9@7 a=5")), Standing::Early);
    }

    #[test]
    fn versions_count_from_one() {
        let mut progress = Progress::default();
        let at = |version| Place::by_version("booking b1", version);
        assert_eq!(progress.standing(&at(1)), Standing::Next);
        assert_eq!(progress.standing(&at(3)), Standing::Early);
        assert_eq!(progress.holes_before(&at(3)), [hole("aggregate booking b1", 1, 2)]);
        progress.pass(&at(3));
        assert_eq!(progress.standing(&at(2)), Standing::Old);
        assert_eq!(progress.standing(&at(3)), Standing::Old);
        assert_eq!(progress.standing(&at(4)), Standing::Next);
        assert_eq!(progress.holes_before(&at(4)), []);
    }
}
