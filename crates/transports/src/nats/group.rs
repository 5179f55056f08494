//! Ownership of partitions, stored in a key-value bucket: one document for each subscription,
//! changed by compare-and-set.
//!
//! What to do is decided by [`chapar_core::machine::ownership`]; here are the document and one turn
//! of a member on it. The bucket has no clock, so members raise a heartbeat, and the others watch
//! it. A process that sleeps past its lease does no harm: its partitions have a new epoch, each
//! epoch has a durable consumer of its own, and the old one is deleted together with the messages
//! and acknowledgements that were on their way through it.

use std::collections::BTreeMap;
use std::time::Duration;

use chapar_core::machine::ownership::{
    Beat, Claim, Displaced, Heartbeat, LeaseState, Plan, Reads, Roster, Standing, Watch,
};
use serde::{Deserialize, Serialize};

/// The document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    /// The name of the subscription, which the key of the document may hold only in part.
    #[serde(default)]
    pub(super) name: String,
    pub(super) topics: Vec<String>,
    pub(super) members: BTreeMap<String, Member>,
    /// By `STREAM/K`.
    pub(super) shares: BTreeMap<String, Share>,
}

/// The heartbeat of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) life: u64,
    pub(super) beat: u64,
}

/// A partition of the subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) owner: Option<String>,
    pub(super) epoch: u64,
    /// The epoch whose durable consumer has the cursor.
    pub(super) cursor: Option<u64>,
    /// Where to start instead of the cursor.
    pub(super) start: Option<Start>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Start {
    Sequence(u64),
    Nanoseconds(i64),
}

impl From<Member> for Heartbeat {
    fn from(Member { life, beat }: Member) -> Self {
        Heartbeat { life, beat }
    }
}

impl Group {
    /// Writes a member's heartbeat, then the plan that is made from what the document holds.
    /// `partitions` are those of the subscription, by number.
    pub(super) fn take_turn(
        &mut self,
        name: &str,
        watch: &mut Watch,
        partitions: &BTreeMap<u32, String>,
        now: Duration,
        plan: impl FnOnce(&Roster<u32>) -> Plan<u32>,
    ) -> Result<(), Displaced> {
        let heartbeat = match watch.beat(self.members.get(name).copied().map(Heartbeat::from))? {
            Beat::GoOn(heartbeat) => heartbeat,
            Beat::Join(heartbeat) => {
                self.leave(name);
                heartbeat
            }
        };
        let Heartbeat { life, beat } = heartbeat;
        self.members.insert(name.to_owned(), Member { life, beat });
        let plan = plan(&self.roster(watch, partitions, now));
        for expired in &plan.remove {
            self.leave(expired);
        }
        for (partition, epoch) in &plan.give_back {
            if let Some(share) = self.share(partitions, *partition).filter(|s| s.epoch == *epoch) {
                share.owner = None;
            }
        }
        for (partition, epoch) in &plan.take {
            if let Some(share) = self.share(partitions, *partition) {
                (share.owner, share.epoch) = (Some(name.to_owned()), *epoch);
            }
        }
        Ok(())
    }

    /// The partitions that a member owns, with their epochs.
    pub(super) fn owned_by(
        &self,
        name: &str,
        partitions: &BTreeMap<u32, String>,
    ) -> BTreeMap<u32, u64> {
        let epoch = |(number, partition): (&u32, &String)| {
            let share = self.shares.get(partition)?;
            (share.owner.as_deref() == Some(name)).then_some((*number, share.epoch))
        };
        partitions.iter().filter_map(epoch).collect()
    }

    /// A member leaves or is removed, and its partitions are free.
    pub(super) fn leave(&mut self, name: &str) {
        self.members.remove(name);
        for share in self.shares.values_mut() {
            share.owner.take_if(|owner| owner == name);
        }
    }

    fn share(&mut self, partitions: &BTreeMap<u32, String>, number: u32) -> Option<&mut Share> {
        Some(self.shares.entry(partitions.get(&number)?.clone()).or_default())
    }

    fn roster(
        &self,
        watch: &mut Watch,
        partitions: &BTreeMap<u32, String>,
        now: Duration,
    ) -> Roster<u32> {
        let heartbeats = self.members.iter().map(|(name, member)| (&**name, (*member).into()));
        let expired = watch.expired(heartbeats, now);
        // The topics of a subscription are those of the process that joined last, so every member
        // reads every partition.
        let standing = |name: &String| match expired.contains(&&**name) {
            true => Standing { lease: LeaseState::Expired, reads: Reads::All },
            false => Standing { lease: LeaseState::Valid, reads: Reads::All },
        };
        let claim = |partition: &String| {
            let share = self.shares.get(partition).cloned().unwrap_or_default();
            Claim { owner: share.owner, epoch: share.epoch }
        };
        Roster {
            members: self.members.keys().map(|name| (name.clone(), standing(name))).collect(),
            partitions: partitions.iter().map(|(number, name)| (*number, claim(name))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use chapar_core::machine::ownership;

    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    /// A process. What it keeps for a partition is how many messages are in flight.
    struct Process {
        watch: Watch,
        member: ownership::Member<u32, usize>,
    }

    impl Process {
        fn new(name: &str, life: u64) -> Self {
            let member = ownership::Member::new(name, LEASE);
            Process { watch: Watch::new(name, life, LEASE), member }
        }

        fn turn(&mut self, group: &mut Group, now: Duration) -> Result<usize, Displaced> {
            let (all, name) = (partitions(), self.member.name().to_owned());
            let member = &mut self.member;
            let plan = |roster: &Roster<u32>| member.plan(roster, |in_flight| *in_flight);
            group.take_turn(&name, &mut self.watch, &all, now, plan)?;
            self.watch.written();
            for (partition, epoch) in self.member.renewed(now, &group.owned_by(&name, &all)).begun {
                self.member.held_mut().begin(partition, epoch, 0);
            }
            Ok(self.member.held().len())
        }
    }

    fn partitions() -> BTreeMap<u32, String> {
        (0..12).map(|number| (number, format!("ORDERS/{number:02}"))).collect()
    }

    #[test]
    fn a_joiner_gets_its_share_when_the_others_are_done() {
        let (mut group, now) = (Group::default(), Duration::ZERO);
        let (mut a, mut b) = (Process::new("a", 1), Process::new("b", 2));
        assert_eq!(a.turn(&mut group, now), Ok(12));
        assert_eq!(b.turn(&mut group, now), Ok(0));
        a.member.held_mut().get_mut(&11).unwrap().item = 1;
        assert_eq!(a.turn(&mut group, now), Ok(7), "the last has a message in flight");
        assert_eq!(b.turn(&mut group, now), Ok(5));
        a.member.held_mut().get_mut(&11).unwrap().item = 0;
        assert_eq!((a.turn(&mut group, now), b.turn(&mut group, now)), (Ok(6), Ok(6)));
        assert_eq!(group.shares["ORDERS/11"].epoch, 2);
    }

    #[test]
    fn a_member_is_removed_after_a_lease_without_a_heartbeat() {
        let (mut group, start) = (Group::default(), Duration::ZERO);
        let (mut a, mut b) = (Process::new("a", 1), Process::new("b", 2));
        a.turn(&mut group, start).unwrap();
        b.turn(&mut group, start).unwrap();
        assert_eq!(b.turn(&mut group, start + LEASE), Ok(0), "not before the lease is over");
        assert_eq!(b.turn(&mut group, start + LEASE + Duration::from_millis(1)), Ok(12));
        assert!(!group.members.contains_key("a"));
    }

    #[test]
    fn a_second_process_of_a_name_takes_over_in_a_new_epoch() {
        let (mut group, now) = (Group::default(), Duration::ZERO);
        let (mut first, mut second) = (Process::new("a", 1), Process::new("a", 2));
        first.turn(&mut group, now).unwrap();
        assert_eq!(second.turn(&mut group, now), Ok(12));
        assert_eq!(group.shares["ORDERS/00"].epoch, 2);
        assert_eq!(first.turn(&mut group, now), Err(Displaced));
    }
}
