//! Deduplication by ids that were seen recently.
//!
//! Kafka and Pub/Sub do not deduplicate by event id. A repeated publish is recognised in two places:
//! by the process that published the event before, and by a subscription that has seen both
//! messages. What passes both is removed by the consumer's inbox.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A bounded map of recent keys. It holds at most a given number, and certainly the later half of
/// them, for no longer than a time window.
///
/// Keys go into a new half until it is full. Then it becomes the old half, and the previous old
/// half is dropped as a whole, which is cheaper than removing one key for every message.
#[derive(Debug)]
pub(crate) struct Recent<K, T> {
    most: usize,
    /// Without a window, the clock is not read.
    window: Option<Duration>,
    fresh: Half<K, T>,
    old: Half<K, T>,
}

type Half<K, T> = HashMap<K, (T, Option<Instant>)>;

impl<K: Hash + Eq, T> Recent<K, T> {
    pub(crate) fn new(most: usize, window: Option<Duration>) -> Self {
        Recent { most, window, fresh: HashMap::new(), old: HashMap::new() }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&T> {
        self.get_at(key, self.window.map(|_| Instant::now()))
    }

    pub(crate) fn clear(&mut self) {
        self.fresh.clear();
        self.old.clear();
    }

    pub(crate) fn put(&mut self, key: K, value: T) {
        self.put_at(key, value, self.window.map(|_| Instant::now()));
    }

    fn get_at(&self, key: &K, now: Option<Instant>) -> Option<&T> {
        let (value, at) = self.fresh.get(key).or_else(|| self.old.get(key))?;
        let in_time = match (self.window, at, now) {
            (Some(window), Some(at), Some(now)) => now.saturating_duration_since(*at) < window,
            _ => true,
        };
        in_time.then_some(value)
    }

    fn put_at(&mut self, key: K, value: T, at: Option<Instant>) {
        if self.most == 0 {
            return;
        }
        if self.fresh.len() >= self.most.div_ceil(2) {
            std::mem::swap(&mut self.fresh, &mut self.old);
            self.fresh.clear();
        }
        self.fresh.insert(key, (value, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_for_its_window_and_no_longer() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let at = |seconds| Some(start + second * seconds);
        let mut recent = Recent::new(1, Some(second * 10));
        recent.put_at(1, "a", at(1));
        assert_eq!(recent.get_at(&1, at(10)), Some(&"a"));
        assert_eq!(recent.get_at(&1, at(11)), None);
        recent.put_at(1, "b", at(9));
        assert_eq!(recent.get_at(&1, at(12)), Some(&"b"), "put again, it stays");
    }

    #[test]
    fn the_later_half_is_known_and_no_more_than_all() {
        let mut recent = Recent::new(6, None);
        for number in 1..=100 {
            recent.put(number, number);
            let last = (1..=number).rev().take(3);
            assert_eq!(last.filter(|key| recent.get(key) != Some(key)).count(), 0, "{number}");
            assert!((1..=number).filter(|key| recent.get(key).is_some()).count() <= 6);
        }
        let mut nothing = Recent::new(0, None);
        nothing.put(1, 1);
        assert_eq!(nothing.get(&1), None);
    }
}
