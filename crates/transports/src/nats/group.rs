//! Ownership of partitions, stored in a key-value bucket: one document for each subscription,
//! changed by compare-and-set.
//!
//! What to do is decided by [`chapar_core::machine::ownership`]; here are the document and one turn
//! of a member on it. The bucket has no clock, so members raise a heartbeat, and the others watch
//! it. A process that sleeps past its lease does no harm: its partitions have a new epoch, each
//! epoch has a durable consumer of its own, and the old one is deleted together with the messages
//! and acknowledgements that were on their way through it.

use std::collections::{BTreeMap, BTreeSet};
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

/// The heartbeat of a member, and what it can handle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) life: u64,
    pub(super) beat: u64,
    #[serde(default)]
    pub(super) topics: BTreeSet<String>,
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
    /// The topics that the durable consumer with the cursor reads.
    #[serde(default)]
    pub(super) read: BTreeSet<String>,
    /// Topics that it does not read, and the last sequence number up to which they were read: a
    /// process that reads one of them starts behind it.
    #[serde(default)]
    pub(super) left: BTreeMap<String, u64>,
}

impl Share {
    /// Whether a topic was never read here.
    pub(super) fn is_new(&self, topic: &str) -> bool {
        !self.read.contains(topic) && !self.left.contains_key(topic)
    }

    /// The durable consumer of the current epoch has the cursor from now on. `floor` is where the
    /// one before it was.
    pub(super) fn opened(&mut self, topics: &[String], floor: u64) {
        (self.cursor, self.start) = (Some(self.epoch), None);
        let topics: BTreeSet<String> = topics.iter().cloned().collect();
        for topic in std::mem::take(&mut self.read).difference(&topics) {
            self.left.entry(topic.clone()).or_insert(floor);
        }
        self.left.retain(|topic, _| !topics.contains(topic));
        self.read = topics;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Start {
    Sequence(u64),
    Nanoseconds(i64),
}

impl From<&Member> for Heartbeat {
    fn from(member: &Member) -> Self {
        Heartbeat { life: member.life, beat: member.beat }
    }
}

/// The partitions of a subscription that a process knows, by number.
#[derive(Debug, Clone)]
pub(super) struct Partition {
    /// Its name in the document.
    pub(super) name: String,
    /// Which topics of others have messages in it.
    pub(super) stream: String,
}

/// Of which stream a topic is.
pub(super) type StreamOf<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

impl Group {
    /// Writes a member's heartbeat, then the plan that is made from what the document holds.
    /// `partitions` are those of the member's topics.
    pub(super) fn take_turn(
        &mut self,
        (name, topics): (&str, &[String]),
        watch: &mut Watch,
        (partitions, stream_of): (&BTreeMap<u32, Partition>, StreamOf<'_>),
        now: Duration,
        plan: impl FnOnce(&Roster<u32>) -> Plan<u32>,
    ) -> Result<(), Displaced> {
        let heartbeat = match watch.beat(self.members.get(name).map(Heartbeat::from))? {
            Beat::GoOn(heartbeat) => heartbeat,
            Beat::Join(heartbeat) => {
                self.leave(name);
                heartbeat
            }
        };
        let Heartbeat { life, beat } = heartbeat;
        let topics = topics.iter().cloned().collect();
        self.members.insert(name.to_owned(), Member { life, beat, topics });
        let plan = plan(&self.roster(watch, partitions, stream_of, now));
        for expired in &plan.remove {
            self.leave(expired);
        }
        // What no living process reads any more is not a topic of the subscription.
        let read = self.members.values().flat_map(|member| member.topics.iter().cloned());
        self.topics = read.collect::<BTreeSet<String>>().into_iter().collect();
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
        partitions: &BTreeMap<u32, Partition>,
    ) -> BTreeMap<u32, u64> {
        let epoch = |(number, partition): (&u32, &Partition)| {
            let share = self.shares.get(&partition.name)?;
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

    fn share(&mut self, partitions: &BTreeMap<u32, Partition>, number: u32) -> Option<&mut Share> {
        Some(self.shares.entry(partitions.get(&number)?.name.clone()).or_default())
    }

    fn roster(
        &self,
        watch: &mut Watch,
        partitions: &BTreeMap<u32, Partition>,
        stream_of: StreamOf<'_>,
        now: Duration,
    ) -> Roster<u32> {
        let heartbeats = self.members.iter().map(|(name, member)| (&**name, member.into()));
        let expired = watch.expired(heartbeats, now);
        let living = |name: &str| !expired.contains(&name);
        let standing = |(name, member): (&String, &Member)| {
            let lease = match living(name) {
                true => LeaseState::Valid,
                false => LeaseState::Expired,
            };
            let able = partitions.iter().filter(|(_, partition)| {
                let reads_all = |member: &Member| self.reads_all(member, partition, stream_of);
                let mut others = self.members.iter().filter(|(name, _)| living(name));
                // Where none reads everything, each reads what it can.
                reads_all(member) || !others.any(|(_, member)| reads_all(member))
            });
            let reads = Reads::Only(able.map(|(number, _)| *number).collect());
            (name.clone(), Standing { lease, reads })
        };
        let claim = |partition: &Partition| {
            let share = self.shares.get(&partition.name).cloned().unwrap_or_default();
            Claim { owner: share.owner, epoch: share.epoch }
        };
        Roster {
            members: self.members.iter().map(standing).collect(),
            partitions: partitions.iter().map(|(number, at)| (*number, claim(at))).collect(),
        }
    }

    /// Whether a member reads every topic of the subscription that has messages in a partition.
    fn reads_all(&self, member: &Member, partition: &Partition, stream_of: StreamOf<'_>) -> bool {
        let all = self.members.values().flat_map(|member| &member.topics).chain(&self.topics);
        all.filter(|topic| stream_of(topic).is_none_or(|stream| stream == partition.stream))
            .all(|topic| member.topics.contains(topic))
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
        topics: Vec<String>,
    }

    impl Process {
        fn new(name: &str, life: u64) -> Self {
            let member = ownership::Member::new(name, LEASE);
            let topics = vec!["placed".to_owned()];
            Process { watch: Watch::new(name, life, LEASE), member, topics }
        }

        fn reading(self, topics: &[&str]) -> Self {
            Process { topics: topics.iter().map(|topic| (*topic).to_owned()).collect(), ..self }
        }

        fn turn(&mut self, group: &mut Group, now: Duration) -> Result<usize, Displaced> {
            let (all, name) = (partitions(), self.member.name().to_owned());
            let member = &mut self.member;
            let plan = |roster: &Roster<u32>| member.plan(roster, |in_flight| *in_flight);
            let topics = self.topics.clone();
            let stream_of = |_: &str| Some("ORDERS".to_owned());
            group.take_turn((&name, &topics), &mut self.watch, (&all, &stream_of), now, plan)?;
            self.watch.written();
            for (partition, epoch) in self.member.renewed(now, &group.owned_by(&name, &all)).begun {
                self.member.held_mut().begin(partition, epoch, 0);
            }
            Ok(self.member.held().len())
        }
    }

    fn partitions() -> BTreeMap<u32, Partition> {
        let partition =
            |number| Partition { name: format!("ORDERS/{number:02}"), stream: "ORDERS".to_owned() };
        (0..12).map(|number| (number, partition(number))).collect()
    }

    #[test]
    fn a_process_that_lacks_a_topic_owns_nothing_while_another_reads_all() {
        let (mut group, start) = (Group::default(), Duration::ZERO);
        let mut old = Process::new("old", 1);
        let mut new = Process::new("new", 2).reading(&["placed", "paid"]);
        assert_eq!(old.turn(&mut group, start), Ok(12));
        assert_eq!(new.turn(&mut group, start), Ok(0));
        assert_eq!(old.turn(&mut group, start), Ok(0));
        assert_eq!(new.turn(&mut group, start), Ok(12));
        assert_eq!(group.topics, ["paid", "placed"]);
        // The new one is gone without a word: a lease after its last heartbeat was seen, the old one
        // goes on with what it knows.
        assert_eq!(old.turn(&mut group, start), Ok(0));
        let late = start + LEASE + Duration::from_millis(1);
        old.turn(&mut group, late).unwrap();
        assert_eq!(old.turn(&mut group, late), Ok(12));
        assert_eq!(group.topics, ["placed"]);
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
