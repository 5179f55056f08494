//! A circuit breaker: after enough consecutive failures it opens for a while before the next
//! attempt.

use std::time::Duration;

use jiff::Timestamp;

/// Counts consecutive failures. Open, it lets no attempt pass; after the cool-down it lets one
/// attempt pass at a time, until one succeeds.
#[derive(Debug, Clone)]
pub struct Breaker {
    limit: u32,
    cool_down: Duration,
    failures: u32,
    open_until: Option<Timestamp>,
}

impl Breaker {
    /// Opens after `limit` consecutive failures, for `cool_down`.
    pub fn new(limit: u32, cool_down: Duration) -> Self {
        Breaker { limit: limit.max(1), cool_down, failures: 0, open_until: None }
    }

    /// The end of the cool-down, if it is open.
    pub fn rests_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.open_until.filter(|until| *until > now)
    }

    /// Whether the last attempt failed, so that the next one is a probe.
    pub fn is_trial(&self) -> bool {
        self.open_until.is_some()
    }

    /// An attempt succeeded.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.open_until = None;
    }

    /// An attempt failed; returns the end of the cool-down if the breaker opens.
    pub fn failed(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= self.limit && self.rests_until(now).is_none() {
            self.open_until = now.saturating_add(self.cool_down).ok();
        }
        self.rests_until(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_after_a_trial_that_works() {
        let mut breaker = Breaker::new(2, Duration::from_secs(10));
        assert_eq!(breaker.failed(at(0)), None);
        breaker.succeeded();
        assert_eq!(breaker.failed(at(1)), None);
        assert_eq!(breaker.failed(at(2)), Some(at(12)));
        assert_eq!(breaker.failed(at(3)), Some(at(12)), "what was under way does not prolong it");
        assert_eq!(
            (breaker.rests_until(at(11)), breaker.rests_until(at(12))),
            (Some(at(12)), None)
        );
        assert!(breaker.is_trial());
        assert_eq!(breaker.failed(at(13)), Some(at(23)), "one failed trial is enough");
        breaker.succeeded();
        assert_eq!(breaker.failed(at(24)), None);
        assert!(!breaker.is_trial());
    }
}
