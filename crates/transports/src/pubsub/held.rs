//! What this process holds of one Pub/Sub subscription.
//!
//! The service delivers a key in order, and accepts acknowledgements of a key only in that order.
//! So the acknowledgement of a message waits here for those before it in its key. A message that is
//! handed back or late is delivered again from here, and the followers of its key after it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use chapar_core::machine::flight::{Flight, Key, Stale, Taken};
use chapar_core::port::Delivery;

use super::MOST_KNOWN;
use crate::recent::Recent;

/// A message as the service delivered it.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) ack_id: String,
    /// The message id of the service.
    pub(super) message: String,
    /// A fingerprint of the event in it.
    pub(super) event: Option<u128>,
    pub(super) delivery: Delivery,
}

#[derive(Debug)]
pub(super) struct Held {
    deadline: Duration,
    flight: Flight<Delivery>,
    /// The number of the last message; messages are numbered by arrival, which within a key is
    /// their order.
    last: u64,
    entries: BTreeMap<u64, Entry>,
    by_message: HashMap<String, u64>,
    /// Fingerprints of events that were seen, with the first message of each.
    events: Recent<u128, String>,
}

#[derive(Debug)]
struct Entry {
    ack_id: String,
    message: String,
    key: Option<String>,
    /// Acknowledged by the consumer, and not yet to the service.
    done: bool,
}

impl Held {
    pub(super) fn new(deadline: Duration, duplicate_window: Duration) -> Self {
        Held {
            deadline,
            flight: Flight::new(0, deadline),
            last: 0,
            entries: BTreeMap::new(),
            by_message: HashMap::new(),
            events: Recent::new(MOST_KNOWN, Some(duplicate_window)),
        }
    }

    /// Adds a message; returns whether it can be acknowledged right away.
    pub(super) fn arrive(&mut self, arrival: Arrival) -> bool {
        // Delivered again by the service while it is held: only the ack id is new.
        if let Some(entry) =
            self.by_message.get(&arrival.message).and_then(|number| self.entries.get_mut(number))
        {
            entry.ack_id = arrival.ack_id;
            return entry.done;
        }
        let first = arrival.event.and_then(|event| self.events.get(&event));
        let duplicate = first.is_some_and(|first| *first != arrival.message);
        if let Some(event) = arrival.event.filter(|_| !duplicate) {
            self.events.put(event, arrival.message.clone());
        }
        self.last += 1;
        let key = arrival.delivery.key.clone();
        if !duplicate {
            self.flight.push(self.last, key.as_deref().map(Key::of), arrival.delivery);
        }
        self.by_message.insert(arrival.message.clone(), self.last);
        let Arrival { ack_id, message, .. } = arrival;
        self.entries.insert(self.last, Entry { ack_id, message, key, done: duplicate });
        duplicate
    }

    pub(super) fn take(&mut self, max: usize, now: Duration) -> Vec<Taken<Delivery>> {
        self.flight.take(max, now)
    }

    pub(super) fn take_oldest(&mut self, now: Duration) -> Option<Taken<Delivery>> {
        self.flight.take_oldest(now)
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.flight.due()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.flight.in_flight()
    }

    pub(super) fn ack(&mut self, number: u64, attempt: u32) -> Result<(), Stale> {
        if self.flight.ack(number, attempt)?.is_some()
            && let Some(entry) = self.entries.get_mut(&number)
        {
            entry.done = true;
        }
        Ok(())
    }

    pub(super) fn nack(&mut self, number: u64, attempt: u32, until: Duration) -> Result<(), Stale> {
        self.flight.nack(number, attempt, until)
    }

    pub(super) fn extend_all(&mut self, now: Duration) {
        self.flight.extend_all(now);
    }

    /// What can be acknowledged to the service: of each key, what is done before the first message
    /// that is not.
    pub(super) fn settleable(&self) -> (Vec<u64>, Vec<String>) {
        let mut open: HashSet<&str> = HashSet::new();
        let (mut numbers, mut ack_ids) = (Vec::new(), Vec::new());
        for (number, entry) in &self.entries {
            match (&entry.key, entry.done) {
                (Some(key), false) => drop(open.insert(key)),
                (Some(key), true) if open.contains(key.as_str()) => {}
                (None, false) => {}
                (_, true) => {
                    numbers.push(*number);
                    ack_ids.push(entry.ack_id.clone());
                }
            }
        }
        (numbers, ack_ids)
    }

    /// The service accepted the acknowledgements.
    pub(super) fn settled(&mut self, numbers: &[u64]) {
        for number in numbers {
            if let Some(entry) = self.entries.remove(number) {
                self.by_message.remove(&entry.message);
            }
        }
    }

    /// The ack ids of everything that is leased.
    pub(super) fn ack_ids(&self) -> Vec<String> {
        self.entries.values().map(|entry| entry.ack_id.clone()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Drops everything: the leases are lost.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.by_message.clear();
        self.flight = Flight::new(self.last, self.deadline);
    }
}

#[cfg(test)]
mod tests {
    use chapar_core::port::{AckToken, Position};
    use jiff::Timestamp;

    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    fn arrival(message: &str, key: Option<&str>, event: u128) -> Arrival {
        let position = Position { partition: 0, offset: 0 };
        Arrival {
            ack_id: format!("ack-{message}"),
            message: message.into(),
            event: Some(event),
            delivery: Delivery {
                token: AckToken::unacknowledgeable(position),
                topic: "t".into(),
                key: key.map(str::to_owned),
                headers: Default::default(),
                body: message.to_owned().into(),
                attempt: 0,
                published_at: Timestamp::UNIX_EPOCH,
            },
        }
    }

    fn held() -> Held {
        Held::new(Duration::from_secs(30), Duration::from_secs(60))
    }

    fn settle(held: &mut Held) -> Vec<String> {
        let (numbers, ids) = held.settleable();
        held.settled(&numbers);
        ids
    }

    #[test]
    fn the_service_hears_of_a_key_in_its_order() {
        let mut held = held();
        for (number, (message, key)) in
            [("a1", Some("a")), ("a2", Some("a")), ("b1", Some("b")), ("x", None)]
                .into_iter()
                .enumerate()
        {
            held.arrive(arrival(message, key, number as u128));
        }
        assert_eq!(held.take(10, NOW).len(), 4);
        held.ack(2, 1).unwrap();
        assert!(settle(&mut held).is_empty(), "a1 is open");
        held.ack(3, 1).unwrap();
        held.ack(4, 1).unwrap();
        assert_eq!(settle(&mut held), ["ack-b1", "ack-x"]);
        held.ack(1, 1).unwrap();
        assert_eq!(settle(&mut held), ["ack-a1", "ack-a2"]);
        assert!(held.is_empty() && held.ack(1, 1).is_ok(), "acknowledged again, it does nothing");
    }

    #[test]
    fn sent_once_more_a_message_has_a_new_name_and_no_second_delivery() {
        let mut held = held();
        held.arrive(arrival("a1", Some("a"), 1));
        let again = Arrival { ack_id: "newer".into(), ..arrival("a1", Some("a"), 1) };
        held.arrive(again);
        assert_eq!((held.take(10, NOW).len(), held.ack_ids()), (1, vec!["newer".to_owned()]));
    }

    #[test]
    fn an_event_published_twice_is_delivered_once() {
        let mut held = held();
        held.arrive(arrival("first", Some("a"), 1));
        held.arrive(arrival("second", Some("a"), 1));
        assert_eq!(held.take(10, NOW).len(), 1);
        assert!(settle(&mut held).is_empty(), "the copy goes behind the first");
        held.ack(1, 1).unwrap();
        assert_eq!(settle(&mut held), ["ack-first", "ack-second"]);
        held.arrive(arrival("first", Some("a"), 1));
        assert_eq!(held.take(10, NOW).len(), 1, "the first itself may be asked for again");
    }

    #[test]
    fn what_was_lost_can_come_again() {
        let mut held = held();
        held.arrive(arrival("a1", Some("a"), 1));
        held.clear();
        assert!(held.is_empty() && held.take(10, NOW).is_empty());
        held.arrive(arrival("a1", Some("a"), 1));
        assert_eq!(held.take(10, NOW).len(), 1);
    }
}
