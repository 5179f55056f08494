//! Leases with an epoch (a fencing token): one owner at a time, and an expired owner that cannot
//! write.
//!
//! [`LeaseRow`] is the store's side. SQL stores express the same decision in one statement; the
//! in-memory store calls it. [`Tenure`] is the holder's side: when to renew, and when to stop
//! because the lease may expire before the answer arrives.

use std::time::Duration;

use jiff::Timestamp;

/// A lease as a store keeps it. All times are those of the store's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseRow {
    owner: Option<String>,
    epoch: i64,
    expires_at: Timestamp,
}

impl LeaseRow {
    /// Takes or renews the lease for `owner`; returns the epoch, or `None` if another holds it.
    ///
    /// Renewing keeps the epoch. Taking over an expired lease gives a new epoch, also to the same
    /// owner: it may have been suspended in between.
    pub fn claim(&mut self, owner: &str, now: Timestamp, ttl: Duration) -> Option<i64> {
        let live = self.expires_at > now;
        match &self.owner {
            Some(holder) if live && holder != owner => return None,
            Some(_) if live => {}
            _ => {
                self.owner = Some(owner.to_owned());
                self.epoch += 1;
            }
        }
        self.expires_at = now.saturating_add(ttl).unwrap_or(Timestamp::MAX);
        Some(self.epoch)
    }

    /// Ends the lease, if it is still this epoch.
    pub fn release(&mut self, epoch: i64) {
        if self.epoch == epoch {
            self.owner = None;
            self.expires_at = Timestamp::MIN;
        }
    }

    /// Whether a write guarded by `epoch` may change anything.
    ///
    /// The epoch decides and not the time: an expired lease that no other owner has taken is
    /// harmless, and a taken one has another epoch.
    pub fn admits(&self, epoch: i64) -> bool {
        self.epoch == epoch && self.owner.is_some()
    }
}

/// The holder's side of a lease, by the holder's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenure {
    asked_at: Duration,
    ttl: Duration,
}

/// What the holder should do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Continue; the next renewal is due after this long.
    Work(Duration),
    /// Renew, and continue meanwhile.
    Renew,
    /// Stop before the next side effect: the lease may have expired.
    Stop,
}

impl Tenure {
    /// A lease of `ttl` that was requested at `asked_at`.
    ///
    /// The time counts from the request, because the answer may have been delayed.
    pub fn new(asked_at: Duration, ttl: Duration) -> Self {
        Tenure { asked_at, ttl }
    }

    /// What to do at `now`: renew after a third of the time, stop after two thirds.
    pub fn at(&self, now: Duration) -> Holder {
        let held = now.saturating_sub(self.asked_at);
        if held >= self.ttl * 2 / 3 {
            Holder::Stop
        } else if held >= self.ttl / 3 {
            Holder::Renew
        } else {
            Holder::Work(self.ttl / 3 - held)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_secs(4);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH.saturating_add(SignedDuration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn a_live_lease_is_renewed_by_its_owner_and_refused_to_others() {
        let mut row = LeaseRow::default();
        assert_eq!(row.claim("a", at(0), TTL), Some(1));
        assert_eq!(row.claim("b", at(3), TTL), None);
        assert_eq!(row.claim("a", at(3), TTL), Some(1));
        assert_eq!(row.claim("b", at(6), TTL), None);
        assert_eq!(row.claim("b", at(7), TTL), Some(2));
    }

    #[test]
    fn a_zombie_of_an_earlier_epoch_writes_nothing() {
        let mut row = LeaseRow::default();
        let zombie = row.claim("a", at(0), TTL).unwrap();
        let heir = row.claim("b", at(4), TTL).unwrap();
        assert!(!row.admits(zombie) && row.admits(heir));
        row.release(zombie);
        assert!(row.admits(heir), "an expired holder cannot end the lease of its successor");
    }

    #[test]
    fn the_same_owner_back_from_sleep_gets_a_new_epoch() {
        let mut row = LeaseRow::default();
        let before = row.claim("a", at(0), TTL).unwrap();
        let after = row.claim("a", at(9), TTL).unwrap();
        assert!(after > before && !row.admits(before));
    }

    #[test]
    fn the_holder_stops_before_the_lease_can_be_over() {
        let tenure = Tenure::new(Duration::from_secs(10), Duration::from_secs(6));
        assert_eq!(tenure.at(Duration::from_secs(11)), Holder::Work(Duration::from_secs(1)));
        assert_eq!(tenure.at(Duration::from_secs(12)), Holder::Renew);
        assert_eq!(tenure.at(Duration::from_secs(14)), Holder::Stop);
    }

    proptest! {
        /// However claims, renewals and sleeps interleave, at most one epoch is ever admitted,
        /// and epochs only grow.
        #[test]
        fn at_most_one_epoch_is_admitted(steps in prop::collection::vec((0usize..3, 0i64..7), 1..60)) {
            let mut row = LeaseRow::default();
            let mut held: [Option<i64>; 3] = [None; 3];
            let (mut now, mut last) = (0, 0);
            for (who, passed) in steps {
                now += passed;
                if let Some(epoch) = row.claim(["a", "b", "c"][who], at(now), TTL) {
                    prop_assert!(epoch >= last);
                    last = epoch;
                    held[who] = Some(epoch);
                }
                let admitted = held.iter().flatten().filter(|epoch| row.admits(**epoch)).count();
                prop_assert!(admitted <= 1);
            }
        }
    }
}
