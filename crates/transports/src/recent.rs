//! What was seen a short while ago.
//!
//! Kafka and Pub/Sub do not know an event that is published twice: it is two messages to them. So
//! it is recognised in two places: by the transport that had a receipt for it, and by the
//! subscription that has seen both. What escapes both (another process published it, and another
//! reads it) meets the consumer's inbox.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The last so many keys, each with something about it, for no longer than a window of time.
#[derive(Debug)]
pub(crate) struct Recent<K, T> {
    most: usize,
    window: Duration,
    known: HashMap<K, (T, Instant)>,
    order: VecDeque<(K, Instant)>,
}

impl<K: Hash + Eq + Clone, T> Recent<K, T> {
    pub(crate) fn new(most: usize, window: Duration) -> Self {
        Recent { most, window, known: HashMap::new(), order: VecDeque::new() }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&T> {
        self.get_at(key, Instant::now())
    }

    pub(crate) fn put(&mut self, key: K, value: T) {
        self.put_at(key, value, Instant::now());
    }

    fn get_at(&self, key: &K, now: Instant) -> Option<&T> {
        let (value, at) = self.known.get(key)?;
        (now.saturating_duration_since(*at) < self.window).then_some(value)
    }

    fn put_at(&mut self, key: K, value: T, now: Instant) {
        self.known.insert(key.clone(), (value, now));
        self.order.push_back((key, now));
        while let Some((first, at)) = self.order.front() {
            let fresh = now.saturating_duration_since(*at) < self.window;
            if self.order.len() <= self.most && fresh {
                break;
            }
            // One that was put again since stays.
            if self.known.get(first).is_some_and(|(_, latest)| latest == at) {
                self.known.remove(first);
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_for_its_window_and_no_longer() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut recent = Recent::new(1000, second * 10);
        recent.put_at(1, "a", start + second);
        assert_eq!(recent.get_at(&1, start + second * 10), Some(&"a"));
        assert_eq!(recent.get_at(&1, start + second * 11), None);
        recent.put_at(1, "b", start + second * 9);
        recent.put_at(2, "c", start + second * 12);
        assert_eq!(recent.get_at(&1, start + second * 12), Some(&"b"), "put again, it stays");
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut recent = Recent::new(2, Duration::MAX);
        for number in 1..=3 {
            recent.put(number, number);
        }
        assert_eq!([1, 2, 3].map(|key| recent.get(&key).copied()), [None, Some(2), Some(3)]);
        assert_eq!((recent.known.len(), recent.order.len()), (2, 2));
        let mut nothing = Recent::new(0, Duration::MAX);
        nothing.put(1, 1);
        assert_eq!(nothing.get(&1), None);
    }
}
