//! What one owner of a partition has read and not yet seen acknowledged.
//!
//! Messages go in by ascending offset and come out in that order. Several of a key may be out
//! at once, but when one of them is handed back or its deadline passes, its followers are taken
//! back with it: whatever is delivered next of that key starts with the earliest that is open.
//! Every transport that keeps a cursor per partition works with one of these.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// The open messages of one partition, by the owner's monotonic clock.
#[derive(Debug)]
pub struct Flight<T> {
    deadline: Duration,
    read_to: u64,
    open: BTreeMap<u64, Open<T>>,
    flying: usize,
    /// No deadline is over before this.
    late_from: Duration,
}

/// An ordering key, told apart by a hash. Two with the same one count as one key: each may wait for
/// the other, and neither is out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u64);

impl Key {
    /// The key with this text.
    pub fn of(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Key(hasher.finish())
    }
}

/// A message on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken<T> {
    /// Where it lies.
    pub offset: u64,
    /// Which delivery this is, from 1; it names the delivery together with the offset.
    pub attempt: u32,
    /// The message.
    pub item: T,
}

/// The delivery is not the latest one of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale;

#[derive(Debug)]
struct Open<T> {
    key: Option<Key>,
    attempt: u32,
    state: State,
    item: T,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Waiting { not_before: Duration },
    Flying { until: Duration },
}

impl<T: Clone> Flight<T> {
    /// Everything up to `acked` is done; a delivery may take `deadline`.
    pub fn new(acked: u64, deadline: Duration) -> Self {
        let (open, late_from) = (BTreeMap::new(), Duration::MAX);
        Flight { deadline, read_to: acked, open, flying: 0, late_from }
    }

    /// Adds a message behind all others. One that is known already is ignored: a broker may
    /// send again what is still open here.
    pub fn push(&mut self, offset: u64, key: Option<Key>, item: T) {
        if offset > self.read_to {
            let state = State::Waiting { not_before: Duration::ZERO };
            self.open.insert(offset, Open { key, attempt: 0, state, item });
            self.read_to = offset;
        }
    }

    /// Nothing else up to here is for this subscription.
    pub fn skip_to(&mut self, offset: u64) {
        self.read_to = self.read_to.max(offset);
    }

    /// Everything up to here has been looked at.
    pub fn read_to(&self) -> u64 {
        self.read_to
    }

    /// Everything up to here is acknowledged.
    pub fn acked(&self) -> u64 {
        self.open.keys().next().map_or(self.read_to, |first| first - 1)
    }

    /// Whether any of `offsets` is not acknowledged.
    pub fn is_open(&self, offsets: std::ops::Range<u64>) -> bool {
        self.open.range(offsets).next().is_some()
    }

    /// How many are delivered and not acknowledged.
    pub fn in_flight(&self) -> usize {
        self.flying
    }

    /// How many wait to be delivered, for the first time or again.
    pub fn waiting(&self) -> usize {
        self.open.len() - self.flying
    }

    /// Takes at most `max` messages that are due, in order.
    pub fn take(&mut self, max: usize, now: Duration) -> Vec<Taken<T>> {
        self.expire(now);
        let mut taken = Vec::new();
        if max == 0 || self.flying == self.open.len() {
            return taken;
        }
        self.late_from = self.late_from.min(now + self.deadline);
        let mut blocked = HashSet::new();
        for (&offset, open) in &mut self.open {
            let State::Waiting { not_before } = open.state else { continue };
            if open.key.as_ref().is_some_and(|key| blocked.contains(key)) {
                continue;
            }
            if not_before > now {
                blocked.extend(open.key);
                continue;
            }
            open.state = State::Flying { until: now + self.deadline };
            open.attempt += 1;
            self.flying += 1;
            taken.push(Taken { offset, attempt: open.attempt, item: open.item.clone() });
            if taken.len() == max {
                break;
            }
        }
        taken
    }

    /// Takes the oldest open message, if it is due and not in flight.
    pub fn take_oldest(&mut self, now: Duration) -> Option<Taken<T>> {
        self.expire(now);
        let (&offset, open) = self.open.iter_mut().next()?;
        match open.state {
            State::Waiting { not_before } if not_before <= now => {}
            _ => return None,
        }
        open.state = State::Flying { until: now + self.deadline };
        open.attempt += 1;
        self.flying += 1;
        self.late_from = self.late_from.min(now + self.deadline);
        Some(Taken { offset, attempt: open.attempt, item: open.item.clone() })
    }

    /// When [`Flight::take`] may have something to give without a new message.
    pub fn due(&self) -> Option<Duration> {
        let due = |open: &Open<T>| match open.state {
            State::Waiting { not_before } => not_before,
            State::Flying { until } => until,
        };
        self.open.values().map(due).min()
    }

    /// The message is dealt with, and is returned. Acknowledging once more does nothing.
    pub fn ack(&mut self, offset: u64, attempt: u32) -> Result<Option<T>, Stale> {
        match self.open.get(&offset) {
            None if offset <= self.read_to => Ok(None),
            Some(Open { attempt: last, state: State::Flying { .. }, .. }) if *last == attempt => {
                self.flying -= 1;
                Ok(self.open.remove(&offset).map(|open| open.item))
            }
            _ => Err(Stale),
        }
    }

    /// The message is to come again, not before `not_before`, and its followers behind it.
    pub fn nack(&mut self, offset: u64, attempt: u32, not_before: Duration) -> Result<(), Stale> {
        let open = self.open.get_mut(&offset).ok_or(Stale)?;
        if open.attempt != attempt || matches!(open.state, State::Waiting { .. }) {
            return Err(Stale);
        }
        open.state = State::Waiting { not_before };
        self.flying -= 1;
        let key = open.key;
        self.take_back_followers(offset, key);
        Ok(())
    }

    /// The message is being worked on: its deadline starts anew.
    pub fn extend(&mut self, offset: u64, attempt: u32, now: Duration) -> Result<(), Stale> {
        match self.open.get_mut(&offset) {
            Some(open) if open.attempt == attempt => match &mut open.state {
                State::Flying { until } => {
                    *until = now + self.deadline;
                    Ok(())
                }
                State::Waiting { .. } => Err(Stale),
            },
            _ => Err(Stale),
        }
    }

    /// Starts the deadline of everything in flight anew.
    pub fn extend_all(&mut self, now: Duration) {
        for open in self.open.values_mut() {
            if let State::Flying { until } = &mut open.state {
                *until = now + self.deadline;
            }
        }
    }

    /// Takes back everything that is in flight: whoever had it is gone.
    pub fn recall(&mut self) {
        for open in self.open.values_mut() {
            if let State::Flying { .. } = open.state {
                open.state = State::Waiting { not_before: Duration::ZERO };
            }
        }
        self.flying = 0;
    }

    fn expire(&mut self, now: Duration) {
        if now < self.late_from {
            return;
        }
        let late = |open: &Open<T>| matches!(open.state, State::Flying { until } if until <= now);
        let late: Vec<u64> =
            self.open.iter().filter(|(_, open)| late(open)).map(|(offset, _)| *offset).collect();
        for offset in late {
            let Some(open) = self.open.get_mut(&offset) else { continue };
            // An earlier one of its key may have taken it back already.
            if let State::Flying { .. } = open.state {
                open.state = State::Waiting { not_before: now };
                self.flying -= 1;
                let key = open.key;
                self.take_back_followers(offset, key);
            }
        }
        let until = |open: &Open<T>| match open.state {
            State::Flying { until } => Some(until),
            State::Waiting { .. } => None,
        };
        self.late_from = self.open.values().filter_map(until).min().unwrap_or(Duration::MAX);
    }

    fn take_back_followers(&mut self, offset: u64, key: Option<Key>) {
        let Some(key) = key else { return };
        for (_, open) in self.open.range_mut(offset + 1..) {
            if open.key == Some(key) && matches!(open.state, State::Flying { .. }) {
                open.state = State::Waiting { not_before: Duration::ZERO };
                self.flying -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn flight(keys: &[&str]) -> Flight<()> {
        let mut flight = Flight::new(0, DEADLINE);
        for (offset, key) in (1..).zip(keys) {
            flight.push(offset, Some(Key::of(key)), ());
        }
        flight
    }

    fn offsets(taken: Vec<Taken<()>>) -> Vec<(u64, u32)> {
        taken.into_iter().map(|taken| (taken.offset, taken.attempt)).collect()
    }

    #[test]
    fn a_message_handed_back_comes_before_its_followers() {
        let mut flight = flight(&["a", "a", "b", "a"]);
        assert_eq!(offsets(flight.take(9, at(0))), [(1, 1), (2, 1), (3, 1), (4, 1)]);
        flight.nack(2, 1, at(5)).unwrap();
        assert_eq!(flight.in_flight(), 2);
        assert_eq!(flight.ack(4, 1), Err(Stale));
        assert_eq!(offsets(flight.take(9, at(1))), []);
        assert_eq!(offsets(flight.take(9, at(5))), [(2, 2), (4, 2)]);
    }

    #[test]
    fn a_deadline_takes_the_followers_back_as_well() {
        let mut flight = flight(&["a", "b", "a"]);
        flight.take(1, at(0));
        flight.take(9, at(5));
        assert_eq!(offsets(flight.take(9, at(10))), [(1, 2), (3, 2)]);
        assert_eq!(flight.ack(1, 1), Err(Stale));
        assert_eq!(flight.ack(1, 2), Ok(Some(())));
        assert_eq!(flight.ack(1, 2), Ok(None));
    }

    #[test]
    fn the_cursor_stops_before_the_first_open_message() {
        let mut flight = flight(&["a", "b", "c"]);
        flight.take(9, at(0));
        flight.ack(3, 1).unwrap();
        assert_eq!(flight.acked(), 0);
        flight.ack(1, 1).unwrap();
        assert_eq!(flight.acked(), 1);
        flight.ack(2, 1).unwrap();
        flight.skip_to(7);
        assert_eq!(flight.acked(), 7);
    }

    #[test]
    fn the_oldest_is_taken_by_itself_unless_it_is_out_or_not_due() {
        let mut flight = flight(&["a", "b"]);
        assert_eq!(offsets(flight.take_oldest(at(0)).into_iter().collect()), [(1, 1)]);
        assert_eq!(flight.take_oldest(at(0)), None);
        flight.nack(1, 1, at(5)).unwrap();
        assert_eq!(flight.take_oldest(at(4)), None);
        assert_eq!(offsets(flight.take_oldest(at(5)).into_iter().collect()), [(1, 2)]);
        flight.ack(1, 2).unwrap();
        assert_eq!(offsets(flight.take_oldest(at(5)).into_iter().collect()), [(2, 1)]);
        assert_eq!(flight.in_flight(), 1);
    }

    #[test]
    fn an_extended_deadline_holds() {
        let mut flight = flight(&["a"]);
        flight.take(9, at(0));
        flight.extend(1, 1, at(9)).unwrap();
        assert_eq!(offsets(flight.take(9, at(18))), []);
        flight.extend_all(at(18));
        assert_eq!(offsets(flight.take(9, at(27))), []);
        assert_eq!(offsets(flight.take(9, at(28))), [(1, 2)]);
    }
}
