//! Order: where an event stands among the events of its key that a consumer has handled.
//!
//! Numbers count on lines. The relay's stamps count on one line per topic, and record how far the
//! other lines were when the event was written; versions of an aggregate count on the line of that
//! aggregate. A line only moves forward.

use std::collections::HashMap;

use super::stamps::Stamp;

/// The place of an event in the order of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The line it counts on.
    pub line: String,
    /// Its number there.
    pub number: i64,
    /// The previous number on its own line, if any.
    pub previous: Option<i64>,
    /// How far the other lines must have advanced.
    pub after: Vec<(String, i64)>,
    scale: Scale,
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
            number: stamp.seq,
            previous: stamp.after.get(topic).copied(),
            after,
            scale: Scale::Stamp,
        }
    }

    /// The place by the version of an aggregate. Versions count from 1 without gaps.
    pub fn by_version(aggregate: &str, version: i64) -> Self {
        Place {
            line: format!("aggregate {aggregate}"),
            number: version,
            previous: (version > 1).then(|| version - 1),
            after: Vec::new(),
            scale: Scale::Version,
        }
    }

    /// The same place without those predecessors on other topics that are `prehistory`: older than
    /// anything its reader will ever receive.
    pub fn without(&self, prehistory: impl Fn(&str, i64) -> bool) -> Self {
        let mut place = self.clone();
        place.after.retain(|(line, number)| !prehistory(line, *number));
        place
    }

    /// Its number, if a relay has stamped it.
    pub fn stamped(&self) -> Option<i64> {
        (self.scale == Scale::Stamp).then_some(self.number)
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
            Some(last) => last < previous,
            // A topic keeps its own order, so its first event is where the subscription started.
            // Versions of an aggregate span several topics.
            None => place.scale == Scale::Version,
        });
        let waits = |(line, number): &(String, i64)| self.0.get(line).is_none_or(|at| at < number);
        if behind || place.after.iter().any(waits) { Standing::Early } else { Standing::Next }
    }

    /// The numbers of the event's own line that would be skipped if it were applied now.
    pub fn hole_before(&self, place: &Place) -> Option<(i64, i64)> {
        let previous = place.previous?;
        let low = match self.0.get(&place.line) {
            Some(last) => last + 1,
            None if place.scale == Scale::Version => 1,
            None => return None,
        };
        (low <= previous).then_some((low, previous))
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
        assert_eq!(progress.hole_before(&tenth), Some((8, 9)));
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
    fn versions_count_from_one() {
        let mut progress = Progress::default();
        let at = |version| Place::by_version("booking b1", version);
        assert_eq!(progress.standing(&at(1)), Standing::Next);
        assert_eq!(progress.standing(&at(3)), Standing::Early);
        assert_eq!(progress.hole_before(&at(3)), Some((1, 2)));
        progress.pass(&at(3));
        assert_eq!(progress.standing(&at(2)), Standing::Old);
        assert_eq!(progress.standing(&at(3)), Standing::Old);
        assert_eq!(
            (progress.standing(&at(4)), progress.hole_before(&at(4))),
            (Standing::Next, None)
        );
    }
}
