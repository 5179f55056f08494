//! Which member of a subscription owns which partition.
//!
//! The processes that read a subscription are its *members*. They share the partitions: each
//! partition has at most one owner, which alone delivers from it. Ownership is a lease with an
//! *epoch*: every change of owner, and every restart by the same owner, raises the epoch of the
//! partition, and whatever was delivered in an earlier epoch can no longer be acknowledged.
//!
//! A store (rows in a database, a document in a key-value bucket, memory) holds the [`Roster`]:
//! the members with their leases, and the partitions with owner and epoch. A member takes a *turn*
//! every third of a lease:
//!
//! 1. it reads the roster,
//! 2. [`Member::plan`] decides what to change, without I/O,
//! 3. the adapter writes its renewal and the [`Plan`], each change only if the store still holds
//!    what the plan was made from (a row's epoch, a document's revision),
//! 4. [`Member::renewed`] learns what the store says now, and reports what begins and what ends.
//!
//! # Why there is at most one owner
//! - An owner acts on its partitions only for one lease from the moment at which it *asked* for
//!   its last successful renewal ([`Member::is_certain`]). The store counts from when it *wrote*
//!   the renewal, and another member from when it *saw* it ([`Watch`]); both are later. So the
//!   owner has stopped before another member may take over. No clock is compared with another;
//!   clocks only have to run at about the same pace.
//! - A process that was frozen between that check and its effect is stopped by the epoch: the
//!   store accepts an acknowledgement only in the current epoch of the partition.
//!
//! # How partitions are shared
//! [`Roster::shares`] computes who should own what. Every member computes the same from the same
//! roster. Owners stay as they are unless another member that can read the partition would own at
//! least two fewer. A partition that is to move is *drained* first: its owner delivers nothing new
//! from it, and gives it back when nothing of it is in flight, so that no message is delivered
//! twice only because a process joined. A member owns only partitions that it [can
//! read](Reads).
//!
//! # Kafka
//! A Kafka broker decides by itself which member of a consumer group owns which partition, so
//! there is no roster, plan or turn. What is shared is the owner's side: [`Holdings`] with an epoch
//! for each assignment (counted within the process, since Kafka's own generation is not visible to
//! the client), draining before a partition is revoked, ending at once what was lost, and
//! [`Pulse`], which says whether the process is certainly still in the group.

mod holdings;
mod pulse;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use holdings::{Holding, Holdings, NotOwner, Phase};
pub use pulse::Pulse;
pub use watch::{Beat, Displaced, Heartbeat, Watch};

/// What a store holds of a subscription: its members, and who owns its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roster<P: Ord> {
    /// By name.
    pub members: BTreeMap<String, Standing<P>>,
    /// Every partition of the subscription.
    pub partitions: BTreeMap<P, Claim>,
}

/// A member, as the store sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing<P: Ord> {
    /// Whether its lease has run out.
    pub lease: LeaseState,
    /// The partitions that it may own.
    pub reads: Reads<P>,
}

/// Whether a lease has run out, by the clock of the store or of the member that watches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// The member counts.
    Valid,
    /// What the member owns is free for others.
    Expired,
}

/// Which partitions a member is able to read. One that lacks a topic of a partition must not own
/// it: it would pass over the messages of that topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reads<P: Ord> {
    /// Every partition of the subscription.
    All,
    /// These partitions.
    Only(BTreeSet<P>),
}

/// A partition, as the store sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// The member that owns it. None where it was given back, was moved by a seek, or the lease on
    /// it has run out.
    pub owner: Option<String>,
    /// Raised whenever a member takes the partition.
    pub epoch: u64,
}

/// What a member should change in the store, besides renewing its own lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan<P> {
    /// Members whose lease has run out. They are removed, and what they own is free.
    pub remove: Vec<String>,
    /// Partitions to give back, with the epoch in which they are owned.
    pub give_back: Vec<(P, u64)>,
    /// Partitions to take, with the epoch that begins.
    pub take: Vec<(P, u64)>,
}

/// What a renewal changed for the member.
#[derive(Debug)]
pub struct Renewed<P, T> {
    /// Partitions that it owns from now on, with their epochs. The adapter opens them and calls
    /// [`Holdings::begin`].
    pub begun: Vec<(P, u64)>,
    /// Partitions that it does not own any more, in that epoch. What was in flight is dropped.
    pub ended: Vec<(P, Holding<T>)>,
}

impl<P: Ord> Default for Roster<P> {
    fn default() -> Self {
        Roster { members: BTreeMap::new(), partitions: BTreeMap::new() }
    }
}

impl<P: Ord> Reads<P> {
    fn includes(&self, partition: &P) -> bool {
        match self {
            Reads::All => true,
            Reads::Only(partitions) => partitions.contains(partition),
        }
    }
}

impl<P: Ord + Clone> Roster<P> {
    /// The owner of a partition, if it is a member with a valid lease.
    fn owner(&self, partition: &P) -> Option<&str> {
        let owner = self.partitions.get(partition)?.owner.as_deref()?;
        self.is_live(owner).then_some(owner)
    }

    fn is_live(&self, member: &str) -> bool {
        self.members.get(member).is_some_and(|standing| standing.lease == LeaseState::Valid)
    }

    /// Which partitions each live member should own.
    ///
    /// Partitions stay where they are while the shares differ by at most one. A partition that no
    /// live member can read belongs to none.
    pub fn shares(&self) -> BTreeMap<&str, BTreeSet<P>> {
        let live = self.members.keys().filter(|name| self.is_live(name));
        let mut shares: BTreeMap<&str, BTreeSet<P>> =
            live.map(|name| (name.as_str(), BTreeSet::new())).collect();
        let mut free = Vec::new();
        for partition in self.partitions.keys() {
            let owner = self.owner(partition).and_then(|owner| shares.get_key_value(owner));
            let owner = owner.map(|(name, _)| *name).filter(|name| self.can_read(name, partition));
            match owner.and_then(|owner| shares.get_mut(owner)) {
                Some(share) => drop(share.insert(partition.clone())),
                None => free.push(partition),
            }
        }
        // Those with the fewest possible owners first: the others can go elsewhere.
        free.sort_by_key(|partition| self.readers(partition));
        for partition in free {
            if let Some(name) = self.least_loaded(&shares, partition)
                && let Some(share) = shares.get_mut(name)
            {
                share.insert(partition.clone());
            }
        }
        while let Some((from, to, partition)) = self.imbalance(&shares) {
            if let Some(share) = shares.get_mut(from) {
                share.remove(&partition);
            }
            if let Some(share) = shares.get_mut(to) {
                share.insert(partition);
            }
        }
        shares
    }

    /// Makes the changes of a member's plan, as a store does that changes everything at once.
    pub fn apply(&mut self, member: &str, plan: &Plan<P>) {
        for name in &plan.remove {
            self.remove(name);
        }
        for (partition, epoch) in &plan.give_back {
            if let Some(claim) = self.partitions.get_mut(partition)
                && claim.epoch == *epoch
            {
                claim.owner = None;
            }
        }
        for (partition, epoch) in &plan.take {
            if let Some(claim) = self.partitions.get_mut(partition) {
                *claim = Claim { owner: Some(member.to_owned()), epoch: *epoch };
            }
        }
    }

    /// A member leaves, or is removed: what it owns is free.
    pub fn remove(&mut self, member: &str) {
        self.members.remove(member);
        for claim in self.partitions.values_mut() {
            claim.owner.take_if(|owner| owner == member);
        }
    }

    /// The partitions that a member owns, with their epochs.
    pub fn owned_by(&self, member: &str) -> BTreeMap<P, u64> {
        let ours = |(_, claim): &(&P, &Claim)| claim.owner.as_deref() == Some(member);
        let owned = self.partitions.iter().filter(ours);
        owned.map(|(partition, claim)| (partition.clone(), claim.epoch)).collect()
    }

    fn can_read(&self, member: &str, partition: &P) -> bool {
        self.members.get(member).is_some_and(|standing| standing.reads.includes(partition))
    }

    fn readers(&self, partition: &P) -> usize {
        let reads = |name: &&String| self.is_live(name) && self.can_read(name, partition);
        self.members.keys().filter(reads).count()
    }

    /// The member that can read a partition and owns the fewest.
    fn least_loaded<'r>(
        &'r self,
        shares: &BTreeMap<&'r str, BTreeSet<P>>,
        partition: &P,
    ) -> Option<&'r str> {
        let able = shares.iter().filter(|(name, _)| self.can_read(name, partition));
        able.min_by_key(|(_, share)| share.len()).map(|(name, _)| *name)
    }

    /// A partition that should move, from which member to which.
    fn imbalance<'r>(
        &'r self,
        shares: &BTreeMap<&'r str, BTreeSet<P>>,
    ) -> Option<(&'r str, &'r str, P)> {
        let least = shares.values().map(BTreeSet::len).min()?;
        let mut owners: Vec<_> = shares.iter().filter(|(_, s)| s.len() > least + 1).collect();
        owners.sort_by_key(|(_, share)| std::cmp::Reverse(share.len()));
        for (from, share) in owners {
            for partition in share.iter().rev() {
                let to = self.least_loaded(shares, partition)?;
                if shares.get(to).is_some_and(|other| other.len() + 1 < share.len()) {
                    return Some((from, to, partition.clone()));
                }
            }
        }
        None
    }
}

/// This process as a member of a subscription: its lease, and the partitions that it owns. Times
/// are of the process's own monotonic clock.
#[derive(Debug)]
pub struct Member<P: Ord, T> {
    name: String,
    lease: Duration,
    /// When the last successful renewal was asked for; none before it has joined.
    renewed_at: Option<Duration>,
    /// A partition was lost since: the next turn is due at once.
    outdated: bool,
    held: Holdings<P, T>,
}

impl<P: Ord + Clone, T> Member<P, T> {
    /// A member that has not joined yet. `lease` is how long the others wait for it.
    pub fn new(name: &str, lease: Duration) -> Self {
        Member {
            name: name.to_owned(),
            lease,
            renewed_at: None,
            outdated: false,
            held: Holdings::default(),
        }
    }

    /// Its name, which must differ from those of all other members.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is time for a turn: it has not joined, a third of the lease is over, or a
    /// partition was lost.
    pub fn is_due(&self, now: Duration) -> bool {
        self.outdated || self.renewed_at.is_none_or(|at| now.saturating_sub(at) >= self.lease / 3)
    }

    /// Whether the lease certainly holds. Otherwise nothing may be delivered or acknowledged
    /// before the next successful turn.
    pub fn is_certain(&self, now: Duration) -> bool {
        self.renewed_at.is_some_and(|at| now.saturating_sub(at) < self.lease)
    }

    /// Decides what to change, given a roster in which this member is present.
    ///
    /// Partitions above the fair share are drained from here on: `in_flight` says how many
    /// messages of one are delivered and not acknowledged, and one with none is given back.
    pub fn plan(&mut self, roster: &Roster<P>, in_flight: impl Fn(&T) -> usize) -> Plan<P> {
        let share = roster.shares().remove(&*self.name).unwrap_or_default();
        let expired = |name: &&String| !roster.is_live(name) && **name != self.name;
        let remove = roster.members.keys().filter(expired).cloned().collect();
        let joined = self.renewed_at.is_some();
        let (mut give_back, mut take) = (Vec::new(), Vec::new());
        for (partition, claim) in &roster.partitions {
            let owner = roster.owner(partition);
            let ours = owner == Some(&*self.name);
            let held = self.held.get_mut(partition).filter(|held| held.epoch == claim.epoch);
            match (ours, share.contains(partition)) {
                (true, true) => {
                    let again = match held {
                        Some(held) => {
                            held.keep();
                            held.phase == Phase::Broken
                        }
                        // An earlier process of this name owned it.
                        None => !joined,
                    };
                    if again {
                        take.push((partition.clone(), claim.epoch + 1));
                    }
                }
                (true, false) => {
                    let idle = held.is_none_or(|held| {
                        held.drain();
                        in_flight(&held.item) == 0
                    });
                    if idle {
                        give_back.push((partition.clone(), claim.epoch));
                    }
                }
                (false, true) if owner.is_none() => take.push((partition.clone(), claim.epoch + 1)),
                (false, _) => {}
            }
        }
        Plan { remove, give_back, take }
    }

    /// The store accepted the renewal that was asked for at `asked_at`, and says that the member
    /// owns these partitions, with their epochs.
    pub fn renewed(&mut self, asked_at: Duration, owned: &BTreeMap<P, u64>) -> Renewed<P, T> {
        (self.renewed_at, self.outdated) = (Some(asked_at), false);
        let ended = self.held.retain(|partition, epoch| owned.get(partition) == Some(&epoch));
        let begun = owned.iter().filter(|(partition, _)| self.held.get(partition).is_none());
        let begun = begun.map(|(partition, epoch)| (partition.clone(), *epoch)).collect();
        Renewed { begun, ended }
    }

    /// A partition turned out to be owned in another epoch. Its next turn is due at once.
    pub fn lost(&mut self, partition: &P) -> Option<Holding<T>> {
        self.outdated = true;
        self.held.end(partition)
    }

    /// Leaves: nothing is owned any more, and nothing can be acknowledged.
    pub fn leave(&mut self) -> Vec<(P, Holding<T>)> {
        self.renewed_at = None;
        self.held.retain(|_, _| false)
    }

    /// What this process owns, whether or not the lease is certain.
    pub fn held(&self) -> &Holdings<P, T> {
        &self.held
    }

    /// See [`Member::held`].
    pub fn held_mut(&mut self) -> &mut Holdings<P, T> {
        &mut self.held
    }

    /// The partition of a delivery, if this member still owns it in the epoch of the delivery.
    ///
    /// # Errors
    /// [`NotOwner`] where the epoch has passed, or the lease may have run out.
    pub fn admit(&mut self, partition: &P, epoch: u64, now: Duration) -> Result<&mut T, NotOwner> {
        if !self.is_certain(now) {
            return Err(NotOwner);
        }
        self.held.admit(partition, epoch)
    }
}
