//! The processes of a subscription and who owns which partition: one document in a key-value
//! bucket, changed by compare-and-set.
//!
//! # Why one owner at a time
//! A member counts up its beat in the document every third of a lease. It goes on delivering
//! only for one lease from the moment at which it *asked* for its last successful write. Another
//! removes it when it has *seen* the same beat for more than one lease. Seeing comes after
//! asking, so by clocks of equal pace the first has stopped when the second begins; no clock is
//! compared with another. A process that sleeps through all that still does no harm: its
//! partitions have a new epoch, each epoch has a durable of its own, and the old one is deleted
//! with the messages and acknowledgements that were on their way through it.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    /// The subscription; the key of the document has room for less.
    #[serde(default)]
    pub(super) name: String,
    pub(super) topics: Vec<String>,
    pub(super) members: BTreeMap<String, Member>,
    /// By `STREAM/K`.
    pub(super) shares: BTreeMap<String, Share>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    /// Tells two lives of one name apart.
    pub(super) life: u64,
    pub(super) beat: u64,
}

/// A partition of the subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) owner: Option<String>,
    pub(super) epoch: u64,
    /// The epoch whose durable has the cursor.
    pub(super) cursor: Option<u64>,
    /// Where to go instead of the cursor.
    pub(super) start: Option<Start>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Start {
    Sequence(u64),
    Nanoseconds(i64),
}

/// This process as a member.
#[derive(Debug)]
pub(super) struct Me {
    pub(super) owner: String,
    pub(super) life: u64,
    pub(super) lease: Duration,
    joined: bool,
    seen: HashMap<String, (Member, Instant)>,
}

/// Somebody joined under our name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Displaced;

impl Me {
    pub(super) fn new(owner: &str, life: u64, lease: Duration) -> Self {
        Me { owner: owner.to_owned(), life, lease, joined: false, seen: HashMap::new() }
    }

    /// Joins or stays, buries the dead, and moves towards a fair share. `idle` says whether a
    /// partition of ours has nothing in flight; the answer lists those we should stop reading.
    pub(super) fn turn(
        &mut self,
        group: &mut Group,
        partitions: &[String],
        now: Instant,
        idle: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, Displaced> {
        self.beat(group)?;
        self.bury(group, now);
        for partition in partitions {
            group.shares.entry(partition.clone()).or_default();
        }
        let fair = partitions.len().div_ceil(group.members.len().max(1));
        let mine = group.owned_by(Some(&self.owner), partitions);
        let surplus = mine.iter().skip(fair).cloned().collect::<Vec<_>>();
        let mut leaving = Vec::new();
        for partition in surplus {
            match (idle(&partition), group.shares.get_mut(&partition)) {
                (true, Some(share)) => share.owner = None,
                _ => leaving.push(partition),
            }
        }
        let room = fair.saturating_sub(mine.len());
        for partition in group.owned_by(None, partitions).iter().take(room) {
            let share = group.shares.entry(partition.clone()).or_default();
            share.owner = Some(self.owner.clone());
            share.epoch += 1;
        }
        Ok(leaving)
    }

    fn beat(&mut self, group: &mut Group) -> Result<(), Displaced> {
        let known = group.members.get(&self.owner).copied();
        let beat = match known {
            Some(member) if member.life == self.life => member.beat + 1,
            Some(_) if self.joined => return Err(Displaced),
            // An earlier life of ours, or none: what it owned is not ours without a new epoch.
            _ => {
                group.leave(&self.owner);
                1
            }
        };
        group.members.insert(self.owner.clone(), Member { life: self.life, beat });
        Ok(())
    }

    /// The document with our beat in it has been written.
    pub(super) fn written(&mut self) {
        self.joined = true;
    }

    fn bury(&mut self, group: &mut Group, now: Instant) {
        self.seen.retain(|owner, _| group.members.contains_key(owner));
        let mut dead = Vec::new();
        for (owner, member) in &group.members {
            let (last, since) = self.seen.entry(owner.clone()).or_insert((*member, now));
            if last != member {
                (*last, *since) = (*member, now);
            } else if *owner != self.owner && now.duration_since(*since) > self.lease {
                dead.push(owner.clone());
            }
        }
        for owner in dead {
            group.leave(&owner);
        }
    }
}

impl Group {
    /// A member goes, and its partitions are free.
    pub(super) fn leave(&mut self, owner: &str) {
        self.members.remove(owner);
        for share in self.shares.values_mut() {
            if share.owner.as_deref() == Some(owner) {
                share.owner = None;
            }
        }
    }

    /// The owner of a partition gets a new epoch, and so a new durable, unless it has one already.
    pub(super) fn take_anew(&mut self, partition: &str, owner: &str, epoch: u64) {
        if let Some(share) = self.shares.get_mut(partition)
            && (share.owner.as_deref(), share.epoch) == (Some(owner), epoch)
        {
            share.epoch += 1;
        }
    }

    fn owned_by(&self, owner: Option<&str>, partitions: &[String]) -> Vec<String> {
        let owner_of = |partition: &String| self.shares.get(partition)?.owner.as_deref();
        partitions.iter().filter(|partition| owner_of(partition) == owner).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    fn partitions() -> Vec<String> {
        (0..12).map(|number| format!("ORDERS/{number:02}")).collect()
    }

    fn owned(group: &Group, owner: &str) -> usize {
        group.owned_by(Some(owner), &partitions()).len()
    }

    #[test]
    fn a_joiner_gets_its_share_when_the_others_are_done() {
        let (mut group, now, all) = (Group::default(), Instant::now(), partitions());
        let (mut a, mut b) = (Me::new("a", 1, LEASE), Me::new("b", 2, LEASE));
        a.turn(&mut group, &all, now, |_| true).unwrap();
        assert_eq!(owned(&group, "a"), 12);
        b.turn(&mut group, &all, now, |_| true).unwrap();
        assert_eq!(owned(&group, "b"), 0);
        let busy = a.turn(&mut group, &all, now, |partition| partition != "ORDERS/11").unwrap();
        assert_eq!(busy, ["ORDERS/11"]);
        b.turn(&mut group, &all, now, |_| true).unwrap();
        assert_eq!((owned(&group, "a"), owned(&group, "b")), (7, 5));
        a.turn(&mut group, &all, now, |_| true).unwrap();
        b.turn(&mut group, &all, now, |_| true).unwrap();
        assert_eq!((owned(&group, "a"), owned(&group, "b")), (6, 6));
        assert_eq!(group.shares["ORDERS/11"].epoch, 2);
    }

    #[test]
    fn the_dead_are_buried_after_a_lease_of_silence() {
        let (mut group, start, all) = (Group::default(), Instant::now(), partitions());
        let (mut a, mut b) = (Me::new("a", 1, LEASE), Me::new("b", 2, LEASE));
        a.turn(&mut group, &all, start, |_| true).unwrap();
        b.turn(&mut group, &all, start, |_| true).unwrap();
        b.turn(&mut group, &all, start + LEASE, |_| true).unwrap();
        assert_eq!(owned(&group, "a"), 12, "not before the lease is over");
        let later = start + LEASE + Duration::from_millis(1);
        b.turn(&mut group, &all, later, |_| true).unwrap();
        assert_eq!((owned(&group, "a"), owned(&group, "b")), (0, 12));
    }

    #[test]
    fn a_second_life_takes_over_from_the_first() {
        let (mut group, now, all) = (Group::default(), Instant::now(), partitions());
        let (mut first, mut second) = (Me::new("a", 1, LEASE), Me::new("a", 2, LEASE));
        first.turn(&mut group, &all, now, |_| true).unwrap();
        first.written();
        second.turn(&mut group, &all, now, |_| true).unwrap();
        assert_eq!(group.shares["ORDERS/00"].epoch, 2);
        assert_eq!(first.turn(&mut group, &all, now, |_| true), Err(Displaced));
    }
}
