//! Retry policy: when to retry, and when to give up.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How often and for how long something is retried.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// The most attempts, the first one included.
    pub attempts: u32,
    /// The shortest pause, after the first failure.
    pub min_backoff: Duration,
    /// The longest pause.
    pub max_backoff: Duration,
    /// Giving up also requires this much time since the first failure.
    #[serde(default)]
    pub min_span: Duration,
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Retry at this time.
    RetryAt(Timestamp),
    /// Give up.
    GiveUp,
}

impl RetryPolicy {
    /// The usual pauses of brokers: 10 s to 10 min.
    pub const fn attempts(attempts: u32) -> Self {
        RetryPolicy {
            attempts,
            min_backoff: Duration::from_secs(10),
            max_backoff: Duration::from_secs(600),
            min_span: Duration::ZERO,
        }
    }

    /// The outbox's policy: 50 attempts spanning at least 6 hours before a row is quarantined.
    pub const fn outbox() -> Self {
        RetryPolicy {
            attempts: 50,
            min_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(600),
            min_span: Duration::from_secs(6 * 3600),
        }
    }

    /// Other pauses.
    pub const fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.min_backoff = min;
        self.max_backoff = max;
        self
    }

    /// What to do after attempt number `attempt`, counted from 1, has failed.
    ///
    /// `dice` is a number in 0..1 that adds jitter when many fail at once: the pause is between
    /// half of the exponential backoff and all of it.
    pub fn after(&self, attempt: u32, first_failure: Timestamp, now: Timestamp, dice: f64) -> Next {
        let span = now.duration_since(first_failure).unsigned_abs();
        if attempt >= self.attempts && span >= self.min_span {
            return Next::GiveUp;
        }
        let pause = self.pause(attempt).mul_f64(0.5 + dice.clamp(0.0, 1.0) / 2.0);
        Next::RetryAt(now.saturating_add(pause).unwrap_or(Timestamp::MAX))
    }

    fn pause(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        self.min_backoff.saturating_mul(1 << doublings).min(self.max_backoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn after(policy: RetryPolicy, attempt: u32, seconds: i64) -> Next {
        let now = START.saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
        policy.after(attempt, START, now, 1.0)
    }

    #[test]
    fn a_budget_of_seven_gives_up_after_the_seventh_failure() {
        let policy = RetryPolicy::attempts(7);
        assert!(matches!(after(policy, 6, 0), Next::RetryAt(_)));
        assert_eq!(after(policy, 7, 0), Next::GiveUp);
    }

    #[test]
    fn the_outbox_gives_up_after_fifty_attempts_and_six_hours_and_not_before_both() {
        let policy = RetryPolicy::outbox();
        assert!(matches!(after(policy, 50, 6 * 3600 - 1), Next::RetryAt(_)));
        assert!(matches!(after(policy, 49, 7 * 3600), Next::RetryAt(_)));
        assert_eq!(after(policy, 50, 6 * 3600), Next::GiveUp);
    }

    #[test]
    fn pauses_double_from_ten_seconds_to_ten_minutes() {
        let policy = RetryPolicy::attempts(10);
        let pauses: Vec<_> = (1..=8).map(|attempt| policy.pause(attempt).as_secs()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600]);
    }

    proptest! {
        #[test]
        fn a_pause_is_within_bounds_for_any_attempt(attempt in 1u32..u32::MAX, dice in 0.0f64..1.0) {
            let policy = RetryPolicy { attempts: u32::MAX, ..RetryPolicy::attempts(1) };
            let Next::RetryAt(at) = policy.after(attempt, START, START, dice) else { panic!() };
            let pause = at.duration_since(START).as_secs_f64();
            prop_assert!((5.0..=600.0).contains(&pause), "{pause}");
        }
    }
}
