use std::collections::HashMap;
use std::time::Duration;

/// What a member leaves in a store that has no clock: it is raised at every turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Distinguishes two processes that use the same name, one after the other.
    pub life: u64,
    /// Raised at every turn.
    pub beat: u64,
}

/// Leases in a store that has no clock, as one member sees them.
///
/// A member counts as expired when this one has *seen* the same heartbeat for more than a lease.
/// The other asked for its renewal before that, so by then it has stopped.
#[derive(Debug)]
pub struct Watch {
    name: String,
    life: u64,
    lease: Duration,
    joined: bool,
    /// The last beat that was tried. It goes on across removals: a member that was removed and
    /// joins again must not repeat a heartbeat that others have seen long ago.
    last: u64,
    seen: HashMap<String, (Heartbeat, Duration)>,
}

/// This member's next heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// It was a member before, and goes on.
    GoOn(Heartbeat),
    /// It joins. What an earlier process of its name owned is to be released first, so that it
    /// gets a new epoch.
    Join(Heartbeat),
}

/// Another process joined under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Displaced;

impl Watch {
    /// Watches for the member `name`. `life` is random for each process.
    pub fn new(name: &str, life: u64, lease: Duration) -> Self {
        Watch { name: name.to_owned(), life, lease, joined: false, last: 0, seen: HashMap::new() }
    }

    /// The heartbeat to write next, given the one of this name in the store.
    ///
    /// # Errors
    /// [`Displaced`] where another process has taken the name since this one joined. It must not
    /// go on: each would take the other's partitions for its own.
    pub fn beat(&mut self, stored: Option<Heartbeat>) -> Result<Beat, Displaced> {
        self.last += 1;
        let next = Heartbeat { life: self.life, beat: self.last };
        match stored {
            Some(stored) if stored.life == self.life => Ok(Beat::GoOn(next)),
            Some(_) if self.joined => Err(Displaced),
            _ => Ok(Beat::Join(next)),
        }
    }

    /// The heartbeat has been written.
    pub fn written(&mut self) {
        self.joined = true;
    }

    /// Whether the entry of this name in the store is this process's own.
    pub fn is_own(&self, stored: Heartbeat) -> bool {
        stored.life == self.life
    }

    /// The members whose lease has run out.
    pub fn expired<'a>(
        &mut self,
        members: impl Iterator<Item = (&'a str, Heartbeat)>,
        now: Duration,
    ) -> Vec<&'a str> {
        let mut seen = HashMap::new();
        let mut expired = Vec::new();
        for (name, heartbeat) in members {
            let since = match self.seen.get(name) {
                Some((known, since)) if *known == heartbeat => *since,
                _ => now,
            };
            if name != self.name && now.saturating_sub(since) > self.lease {
                expired.push(name);
            }
            seen.insert(name.to_owned(), (heartbeat, since));
        }
        self.seen = seen;
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);
    const A: Heartbeat = Heartbeat { life: 1, beat: 7 };

    #[test]
    fn a_member_expires_after_a_lease_without_a_new_heartbeat() {
        let mut watch = Watch::new("b", 2, LEASE);
        let mut expired = |beat, at| {
            let members = [("a", Heartbeat { beat, ..A }), ("b", A)];
            watch.expired(members.into_iter(), Duration::from_secs(at)).len()
        };
        assert_eq!((expired(7, 10), expired(7, 13), expired(7, 14)), (0, 0, 1));
        assert_eq!((expired(8, 15), expired(8, 18), expired(8, 19)), (0, 0, 1));
    }

    #[test]
    fn a_second_process_of_a_name_displaces_the_first() {
        let (mut first, mut second) = (Watch::new("a", 1, LEASE), Watch::new("a", 2, LEASE));
        assert_eq!(first.beat(None), Ok(Beat::Join(Heartbeat { life: 1, beat: 1 })));
        first.written();
        assert_eq!(first.beat(Some(A)), Ok(Beat::GoOn(Heartbeat { life: 1, beat: 2 })));
        let Ok(Beat::Join(joined)) = second.beat(Some(A)) else { panic!("it joins") };
        assert_eq!(first.beat(Some(joined)), Err(Displaced));
    }

    #[test]
    fn a_member_that_was_removed_joins_again_with_a_new_heartbeat() {
        let (mut member, mut other) = (Watch::new("a", 1, LEASE), Watch::new("b", 2, LEASE));
        let Ok(Beat::Join(first)) = member.beat(None) else { panic!("it joins") };
        assert!(other.expired([("a", first)].into_iter(), Duration::ZERO).is_empty());
        // A third member removes it while `b` does not look.
        let Ok(Beat::Join(second)) = member.beat(None) else { panic!("it joins again") };
        assert!(other.expired([("a", second)].into_iter(), LEASE * 2).is_empty());
    }
}
