//! What was seen a short while ago: Pub/Sub knows messages by its own ids alone, so that the same
//! event published twice is two messages to it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sha2::{Digest, Sha256};

/// The most that are remembered, whatever the window.
const MOST: usize = 16_384;

/// Remembers values by a fingerprint, for a window of time.
#[derive(Debug)]
pub(super) struct Recent<T> {
    window: Duration,
    values: HashMap<u128, (T, Duration)>,
    order: VecDeque<(u128, Duration)>,
}

impl<T> Recent<T> {
    pub(super) fn new(window: Duration) -> Self {
        Recent { window, values: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, print: u128, now: Duration) -> Option<&T> {
        let (value, at) = self.values.get(&print)?;
        (now.saturating_sub(*at) < self.window).then_some(value)
    }

    pub(super) fn put(&mut self, print: u128, value: T, now: Duration) {
        self.values.insert(print, (value, now));
        self.order.push_back((print, now));
        while let Some((first, at)) = self.order.front().copied() {
            if self.order.len() <= MOST && now.saturating_sub(at) < self.window {
                break;
            }
            self.order.pop_front();
            // One that was put again since stays.
            if self.values.get(&first).is_some_and(|(_, latest)| *latest == at) {
                self.values.remove(&first);
            }
        }
    }
}

/// Half of a SHA-256: equal for equal parts, and in practice for no others.
pub(super) fn fingerprint(parts: [&str; 2]) -> u128 {
    let mut hash = Sha256::new();
    hash.update(parts[0].as_bytes());
    hash.update([0]);
    hash.update(parts[1].as_bytes());
    let hash = hash.finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    u128::from_be_bytes(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_for_its_window_and_no_longer() {
        let second = Duration::from_secs(1);
        let mut recent = Recent::new(second * 10);
        recent.put(1, "a", second);
        assert_eq!(recent.get(1, second * 10), Some(&"a"));
        assert_eq!(recent.get(1, second * 11), None);
        recent.put(1, "b", second * 9);
        recent.put(2, "c", second * 12);
        assert_eq!(recent.get(1, second * 12), Some(&"b"), "put again, it stays");
        for number in 0..2 * MOST as u128 {
            recent.put(number + 10, "x", second * 13);
        }
        assert!(recent.values.len() <= MOST + 1);
    }
}
