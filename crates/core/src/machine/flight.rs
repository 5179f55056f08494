//! The messages of a partition that its owner has read and that are not acknowledged.
//!
//! Messages are added by ascending offset and taken in that order. Several of a key may be in
//! flight at once, but when one of them is handed back or its deadline passes, its followers are
//! taken back with it: the next delivery of that key is the earliest open message. Every transport
//! with a cursor per partition uses one of these for each partition.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// The open messages of one partition, by the owner's monotonic clock.
#[derive(Debug)]
pub struct Flight<T> {
    deadline: Duration,
    read_to: u64,
    /// By ascending offset. The first seat is always open. A later message that is acknowledged
    /// leaves its seat empty, until all before it are acknowledged or too many seats are empty.
    seats: VecDeque<Seat<T>>,
    empty: usize,
    flying: usize,
    /// No message before this offset waits.
    waiting_from: u64,
    /// No deadline passes before this time.
    late_from: Duration,
}

#[derive(Debug)]
struct Seat<T> {
    offset: u64,
    open: Option<Open<T>>,
}

/// With at most this many empty seats, compacting is not worth it.
const FEW: usize = 64;

/// The hash of an ordering key. Two keys with the same hash are treated as one: each may wait for
/// the other, and both stay in order.
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

/// A message to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken<T> {
    /// Its offset.
    pub offset: u64,
    /// Which delivery this is, from 1. Offset and attempt identify the delivery.
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
    /// Starts after the offset `acked`; a delivery may take `deadline`.
    pub fn new(acked: u64, deadline: Duration) -> Self {
        Flight {
            deadline,
            read_to: acked,
            seats: VecDeque::new(),
            empty: 0,
            flying: 0,
            waiting_from: 0,
            late_from: Duration::MAX,
        }
    }

    /// Adds a message after all others. An offset that was read before is ignored: a broker may
    /// send a message again.
    pub fn push(&mut self, offset: u64, key: Option<Key>, item: T) {
        if offset > self.read_to {
            let state = State::Waiting { not_before: Duration::ZERO };
            let open = Some(Open { key, attempt: 0, state, item });
            self.seats.push_back(Seat { offset, open });
            self.read_to = offset;
        }
    }

    /// No other message up to this offset is for this subscription.
    pub fn skip_to(&mut self, offset: u64) {
        self.read_to = self.read_to.max(offset);
    }

    /// The offset up to which messages were read.
    pub fn read_to(&self) -> u64 {
        self.read_to
    }

    /// The offset up to which every message is acknowledged: the cursor.
    pub fn acked(&self) -> u64 {
        self.seats.front().map_or(self.read_to, |first| first.offset - 1)
    }

    /// Whether any of `offsets` is not acknowledged.
    pub fn is_open(&self, offsets: std::ops::Range<u64>) -> bool {
        let inside = self.seats.range(self.first_from(offsets.start)..);
        inside.take_while(|seat| seat.offset < offsets.end).any(|seat| seat.open.is_some())
    }

    /// How many messages are in flight: delivered and not acknowledged.
    pub fn in_flight(&self) -> usize {
        self.flying
    }

    /// How many messages wait to be delivered, for the first time or again.
    pub fn waiting(&self) -> usize {
        self.seats.len() - self.empty - self.flying
    }

    /// Takes at most `max` messages that are due, in order.
    pub fn take(&mut self, max: usize, now: Duration) -> Vec<Taken<T>> {
        self.expire(now);
        let mut taken = Vec::new();
        if max == 0 || self.waiting() == 0 {
            return taken;
        }
        self.late_from = self.late_from.min(now + self.deadline);
        let mut blocked = HashSet::new();
        let mut left = None;
        let first = self.first_from(self.waiting_from);
        for Seat { offset, open } in self.seats.range_mut(first..) {
            let Some(open) = open else { continue };
            let State::Waiting { not_before } = open.state else { continue };
            let waits = match open.key {
                _ if taken.len() == max => true,
                Some(key) if blocked.contains(&key) => true,
                key if not_before > now => {
                    blocked.extend(key);
                    true
                }
                _ => false,
            };
            if waits {
                left.get_or_insert(*offset);
                if taken.len() == max {
                    break;
                }
                continue;
            }
            open.state = State::Flying { until: now + self.deadline };
            open.attempt += 1;
            self.flying += 1;
            taken.push(Taken { offset: *offset, attempt: open.attempt, item: open.item.clone() });
        }
        self.waiting_from = left.unwrap_or(self.read_to);
        taken
    }

    /// Takes the oldest unacknowledged message, if it is due and not in flight.
    pub fn take_oldest(&mut self, now: Duration) -> Option<Taken<T>> {
        self.expire(now);
        let Seat { offset, open: Some(open) } = self.seats.front_mut()? else { return None };
        match open.state {
            State::Waiting { not_before } if not_before <= now => {}
            _ => return None,
        }
        open.state = State::Flying { until: now + self.deadline };
        open.attempt += 1;
        self.flying += 1;
        self.late_from = self.late_from.min(now + self.deadline);
        Some(Taken { offset: *offset, attempt: open.attempt, item: open.item.clone() })
    }

    /// When [`Flight::take`] may have something to give without a new message.
    pub fn due(&self) -> Option<Duration> {
        let due = |open: &Open<T>| match open.state {
            State::Waiting { not_before } => not_before,
            State::Flying { until } => until,
        };
        self.seats.iter().filter_map(|seat| seat.open.as_ref()).map(due).min()
    }

    /// Acknowledges a message and returns it. Acknowledging again returns none.
    pub fn ack(&mut self, offset: u64, attempt: u32) -> Result<Option<T>, Stale> {
        let known = offset <= self.read_to;
        let Some(index) = self.seat_of(offset) else {
            return if known { Ok(None) } else { Err(Stale) };
        };
        let seat = &mut self.seats[index];
        let open = match seat.open.take() {
            None => return Ok(None),
            Some(open) if open.attempt == attempt && open.is_flying() => open,
            other => {
                seat.open = other;
                return Err(Stale);
            }
        };
        self.flying -= 1;
        self.empty += 1;
        self.tidy();
        Ok(Some(open.item))
    }

    /// Hands a message back: it is delivered again, not before `not_before`, and its followers
    /// after it.
    pub fn nack(&mut self, offset: u64, attempt: u32, not_before: Duration) -> Result<(), Stale> {
        let (index, open) = self.open(offset).ok_or(Stale)?;
        if open.attempt != attempt || !open.is_flying() {
            return Err(Stale);
        }
        open.state = State::Waiting { not_before };
        let key = open.key;
        self.took_back(offset);
        self.take_back_followers(index, key);
        Ok(())
    }

    /// Restarts the deadline of everything in flight.
    pub fn extend_all(&mut self, now: Duration) {
        for open in self.seats.iter_mut().filter_map(|seat| seat.open.as_mut()) {
            if let State::Flying { until } = &mut open.state {
                *until = now + self.deadline;
            }
        }
    }

    /// Takes back everything in flight; earlier deliveries are stale.
    pub fn recall(&mut self) {
        for open in self.seats.iter_mut().filter_map(|seat| seat.open.as_mut()) {
            if open.is_flying() {
                open.state = State::Waiting { not_before: Duration::ZERO };
            }
        }
        self.flying = 0;
        self.waiting_from = 0;
    }

    fn expire(&mut self, now: Duration) {
        if now < self.late_from {
            return;
        }
        for index in 0..self.seats.len() {
            let Seat { offset, open: Some(open) } = &mut self.seats[index] else { continue };
            // An earlier message of its key may have taken it back already.
            if matches!(open.state, State::Flying { until } if until <= now) {
                open.state = State::Waiting { not_before: now };
                let (offset, key) = (*offset, open.key);
                self.took_back(offset);
                self.take_back_followers(index, key);
            }
        }
        let until = |open: &Open<T>| match open.state {
            State::Flying { until } => Some(until),
            State::Waiting { .. } => None,
        };
        let open = self.seats.iter().filter_map(|seat| seat.open.as_ref());
        self.late_from = open.filter_map(until).min().unwrap_or(Duration::MAX);
    }

    /// Takes back the messages of a key after a seat.
    fn take_back_followers(&mut self, index: usize, key: Option<Key>) {
        let Some(key) = key else { return };
        for open in self.seats.range_mut(index + 1..).filter_map(|seat| seat.open.as_mut()) {
            if open.key == Some(key) && open.is_flying() {
                open.state = State::Waiting { not_before: Duration::ZERO };
                self.flying -= 1;
            }
        }
    }

    /// Notes that a message in flight waits again.
    fn took_back(&mut self, offset: u64) {
        self.flying -= 1;
        self.waiting_from = self.waiting_from.min(offset);
    }

    /// Removes empty seats: those at the front, and all once they are the majority.
    fn tidy(&mut self) {
        while self.seats.front().is_some_and(|seat| seat.open.is_none()) {
            self.seats.pop_front();
            self.empty -= 1;
        }
        if self.empty > FEW.max(self.seats.len() / 2) {
            self.seats.retain(|seat| seat.open.is_some());
            self.empty = 0;
        }
    }

    /// An open message, and the index of its seat.
    fn open(&mut self, offset: u64) -> Option<(usize, &mut Open<T>)> {
        let index = self.seat_of(offset)?;
        Some((index, self.seats[index].open.as_mut()?))
    }

    fn seat_of(&self, offset: u64) -> Option<usize> {
        let index = self.first_from(offset);
        self.seats.get(index).is_some_and(|seat| seat.offset == offset).then_some(index)
    }

    /// The index of the first seat at or after an offset. Mostly offsets are consecutive, and then
    /// the index is the distance of the offsets; it is never more.
    fn first_from(&self, offset: u64) -> usize {
        let Some(first) = self.seats.front() else { return 0 };
        let apart = usize::try_from(offset.saturating_sub(first.offset)).unwrap_or(usize::MAX);
        let at_most = apart.min(self.seats.len());
        match self.seats.get(at_most) {
            Some(seat) if seat.offset == offset => at_most,
            _ => self.seats.partition_point(|seat| seat.offset < offset),
        }
    }
}

impl<T> Open<T> {
    fn is_flying(&self) -> bool {
        matches!(self.state, State::Flying { .. })
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
        flight.extend_all(at(9));
        assert_eq!(offsets(flight.take(9, at(18))), []);
        flight.extend_all(at(18));
        assert_eq!(offsets(flight.take(9, at(27))), []);
        assert_eq!(offsets(flight.take(9, at(28))), [(1, 2)]);
    }

    #[test]
    fn what_is_acknowledged_behind_one_that_is_not_takes_no_memory() {
        let mut flight = flight(&["a"]);
        flight.take(1, at(0));
        for offset in 2..100_000 {
            flight.push(offset, None, ());
            assert_eq!(offsets(flight.take(9, at(1))), [(offset, 1)]);
            flight.ack(offset, 1).unwrap();
        }
        assert_eq!((flight.acked(), flight.in_flight(), flight.waiting()), (0, 1, 0));
        assert!(flight.seats.capacity() < 1000, "{}", flight.seats.capacity());
        flight.ack(1, 1).unwrap();
        assert_eq!(flight.acked(), 99_999);
    }

    /// A reference model: a list that is searched from the front every time.
    #[derive(Default)]
    struct Plain(Vec<(u64, Option<Key>, u32, Option<State>)>);

    impl Plain {
        fn take_back(&mut self, index: usize, not_before: Duration) {
            let key = self.0[index].1;
            self.0[index].3 = Some(State::Waiting { not_before });
            for (_, other, _, state) in &mut self.0[index + 1..] {
                if key.is_some() && *other == key && matches!(state, Some(State::Flying { .. })) {
                    *state = Some(State::Waiting { not_before: Duration::ZERO });
                }
            }
        }

        fn take(&mut self, max: usize, now: Duration) -> Vec<(u64, u32)> {
            for index in 0..self.0.len() {
                if matches!(self.0[index].3, Some(State::Flying { until }) if until <= now) {
                    self.take_back(index, now);
                }
            }
            let (mut taken, mut blocked) = (Vec::new(), Vec::new());
            for (offset, key, attempt, state) in &mut self.0 {
                let Some(State::Waiting { not_before }) = *state else { continue };
                if not_before > now || blocked.contains(key) {
                    blocked.extend(key.map(Some));
                } else if taken.len() < max {
                    *state = Some(State::Flying { until: now + DEADLINE });
                    *attempt += 1;
                    taken.push((*offset, *attempt));
                }
            }
            taken
        }

        fn first_open(&self) -> Option<u64> {
            self.0.iter().find(|message| message.3.is_some()).map(|message| message.0)
        }
    }

    #[test]
    fn it_does_as_a_plain_list_does() {
        for seed in 0..200 {
            let mut dice = fastrand::Rng::with_seed(seed);
            let (mut flight, mut plain) = (Flight::new(0, DEADLINE), Plain::default());
            let (mut last, mut now, mut out) = (0, 0, Vec::new());
            for _ in 0..400 {
                now += dice.u64(0..2);
                match dice.u32(0..8) {
                    0 | 1 => {
                        for _ in 0..dice.u32(0..20) {
                            last += if dice.u32(0..4) == 0 { dice.u64(1..50) } else { 1 };
                            let key = (dice.u32(0..3) > 0).then(|| Key(dice.u64(0..6)));
                            flight.push(last, key, ());
                            let waiting = State::Waiting { not_before: Duration::ZERO };
                            plain.0.push((last, key, 0, Some(waiting)));
                        }
                    }
                    2 | 3 => {
                        let max = dice.usize(0..12);
                        let taken = offsets(flight.take(max, at(now)));
                        assert_eq!(taken, plain.take(max, at(now)), "seed {seed}");
                        out.extend(taken);
                    }
                    4 => {
                        let taken = offsets(flight.take_oldest(at(now)).into_iter().collect());
                        plain.take(0, at(now));
                        let first = plain.0.iter_mut().find(|message| message.3.is_some());
                        let due = |state: &Option<State>| matches!(state, Some(State::Waiting { not_before }) if *not_before <= at(now));
                        let first = first.filter(|message| due(&message.3)).map(|message| {
                            message.3 = Some(State::Flying { until: at(now) + DEADLINE });
                            message.2 += 1;
                            (message.0, message.2)
                        });
                        assert_eq!(taken, first.into_iter().collect::<Vec<_>>(), "seed {seed}");
                        out.extend(taken);
                    }
                    step => {
                        if out.is_empty() {
                            continue;
                        }
                        let (offset, attempt) = out[dice.usize(..out.len())];
                        let index = plain.0.iter().position(|m| m.0 == offset).unwrap();
                        let (_, _, latest, state) = plain.0[index];
                        let flies =
                            latest == attempt && matches!(state, Some(State::Flying { .. }));
                        if step == 5 {
                            let later = at(now + dice.u64(0..5));
                            assert_eq!(flight.nack(offset, attempt, later).is_ok(), flies);
                            if flies {
                                plain.take_back(index, later);
                            }
                        } else {
                            let acked = flight.ack(offset, attempt);
                            let expected = match state {
                                None => Ok(None),
                                Some(_) if flies => Ok(Some(())),
                                Some(_) => Err(Stale),
                            };
                            assert_eq!(acked, expected, "seed {seed}");
                            if flies {
                                plain.0[index].3 = None;
                            }
                        }
                    }
                }
                let open = plain.0.iter().filter(|message| message.3.is_some()).count();
                assert_eq!(flight.in_flight() + flight.waiting(), open, "seed {seed}");
                assert_eq!(flight.acked(), plain.first_open().map_or(last, |first| first - 1));
            }
        }
    }
}
