//! Processes that share a subscription, driven by dice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chapar_core::machine::ownership::{Holding, Member, Phase, Reads, Watch};

use crate::store::{Kind, LEASE, Store, View};

const STEPS: usize = 1500;
const TICK: u64 = 40;

/// What has happened, so that a run in which nothing did is noticed.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) takeovers: u64,
    pub(crate) hand_overs: u64,
    pub(crate) retaken: u64,
    pub(crate) zombie_acks: u64,
    pub(crate) refused_here: u64,
    pub(crate) lost_answers: u64,
    pub(crate) acked: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Seen) {
        self.takeovers += other.takeovers;
        self.hand_overs += other.hand_overs;
        self.retaken += other.retaken;
        self.zombie_acks += other.zombie_acks;
        self.refused_here += other.refused_here;
        self.lost_answers += other.lost_answers;
        self.acked += other.acked;
    }
}

/// What a process keeps for a partition: the messages in flight, and the next one.
#[derive(Debug)]
struct Flying {
    in_flight: BTreeSet<u64>,
    next: u64,
}

#[derive(Debug)]
enum Turn {
    Idle,
    Asked { at: Duration },
    Read { at: Duration, view: Box<View> },
    Answered { at: Duration, owned: BTreeMap<u32, u64> },
}

/// An acknowledgement on its way to the store.
#[derive(Debug)]
struct Ack {
    partition: u32,
    epoch: u64,
    message: u64,
}

struct Process {
    name: String,
    /// Its monotonic clock began at this time of the world.
    born: Duration,
    reads: Reads<u32>,
    watch: Watch,
    member: Member<u32, Flying>,
    turn: Turn,
    acks: Vec<Ack>,
    frozen_until: Duration,
}

pub(crate) struct World {
    kind: Kind,
    dice: fastrand::Rng,
    now: Duration,
    partitions: u32,
    store: Store,
    processes: Vec<Process>,
    born: u64,
    calm: bool,
    seen: Seen,
}

impl World {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let partitions = dice.u32(1..12);
        World {
            kind,
            now: Duration::from_secs(1000),
            partitions,
            store: Store::new(kind, partitions),
            processes: Vec::new(),
            born: 0,
            calm: false,
            seen: Seen::default(),
            dice,
        }
    }

    pub(crate) fn run(mut self) -> Seen {
        for _ in 0..STEPS {
            self.disturb();
            self.step();
        }
        self.calm = true;
        if self.processes.is_empty() {
            self.join();
        }
        self.processes.iter_mut().for_each(|process| process.frozen_until = Duration::ZERO);
        // Leases of the dead run out, partitions are drained and taken.
        let calm_until = self.now + LEASE * 8;
        while self.now < calm_until {
            self.step();
        }
        self.check_shares();
        self.seen
    }

    fn chance(&mut self, of_thousand: u32) -> bool {
        self.dice.u32(0..1000) < of_thousand
    }

    fn join(&mut self) {
        self.born += 1;
        let name = format!("p{}", self.born);
        let reads = match self.dice.u32(0..4) {
            0 => {
                let able = (0..self.partitions).filter(|_| self.dice.bool()).collect();
                Reads::Only(able)
            }
            _ => Reads::All,
        };
        self.processes.push(Process {
            born: self.now - Duration::from_millis(self.dice.u64(0..900_000)),
            reads,
            watch: Watch::new(&name, self.born, LEASE),
            member: Member::new(&name, LEASE),
            turn: Turn::Idle,
            acks: Vec::new(),
            frozen_until: Duration::ZERO,
            name,
        });
    }

    fn disturb(&mut self) {
        if self.processes.len() < 5 && self.chance(15) {
            self.join();
        }
        if self.processes.is_empty() {
            return;
        }
        let at = self.dice.usize(0..self.processes.len());
        let frozen = self.processes[at].frozen_until > self.now;
        match self.dice.u32(0..1000) {
            // A crash: its answers and acknowledgements may still be under way, or not.
            0..3 => drop(self.processes.swap_remove(at)),
            3..7 if !frozen => {
                let mut process = self.processes.swap_remove(at);
                process.member.leave();
                self.store.leave(&process.name);
            }
            7..25 => {
                let long = LEASE.mul_f64(self.dice.f64() * 2.5);
                self.processes[at].frozen_until = self.now + long;
            }
            // Messages may be missing, as after a reconnection.
            25..35 if !frozen => {
                let held = self.processes[at].member.held_mut();
                held.iter_mut().for_each(|(_, held)| held.phase = Phase::Broken);
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.dice.u64(0..TICK));
        for at in 0..self.processes.len() {
            if self.processes[at].frozen_until > self.now || (!self.calm && self.chance(300)) {
                continue;
            }
            // Once it is calm, each process gets to everything in time.
            let (all, action) = (self.calm, self.dice.u32(0..4));
            if all || action == 0 {
                self.turn(at);
                self.check();
            }
            if all || action == 1 {
                self.deliver(at);
            }
            if all || action == 2 {
                self.finish_one(at);
            }
            if all || action == 3 {
                self.send_ack(at);
            }
        }
    }

    /// Makes the next step of a process's turn.
    fn turn(&mut self, at: usize) {
        let lost = !self.calm && self.chance(60);
        let Self { processes, store, now, kind, seen, .. } = self;
        let Process { name, born, reads, watch, member, turn, .. } = &mut processes[at];
        let clock = *now - *born;
        *turn = match std::mem::replace(turn, Turn::Idle) {
            Turn::Idle if member.is_due(clock) => Turn::Asked { at: clock },
            Turn::Idle => Turn::Idle,
            Turn::Asked { at } => Turn::Read { at, view: Box::new(store.read(name, reads, *now)) },
            Turn::Read { at, mut view } => {
                let roster = view.roster(*kind, name, reads, watch, clock);
                let plan = member.plan(&roster, |flying| flying.in_flight.len());
                for (partition, _) in &plan.take {
                    let claim = &roster.partitions[partition];
                    match claim.owner.as_deref() {
                        Some(owner) if owner == name => seen.retaken += 1,
                        Some(_) => seen.takeovers += 1,
                        None => seen.takeovers += u64::from(*kind == Kind::Rows),
                    }
                }
                seen.hand_overs += plan.give_back.len() as u64;
                match store.write(name, *view, &plan, *now) {
                    Some(_) if lost => {
                        seen.lost_answers += 1;
                        Turn::Idle
                    }
                    Some(owned) => Turn::Answered { at, owned },
                    None => Turn::Asked { at },
                }
            }
            Turn::Answered { at, owned } => {
                watch.written();
                for (partition, epoch) in member.renewed(at, &owned).begun {
                    let next = store.cursor(partition) + 1;
                    let flying = Flying { in_flight: BTreeSet::new(), next };
                    member.held_mut().begin(partition, epoch, flying);
                }
                Turn::Idle
            }
        };
    }

    /// Delivers a message, if the process is certain that it may.
    fn deliver(&mut self, at: usize) {
        let turn = self.dice.usize(..);
        let clock = self.now - self.processes[at].born;
        let process = &mut self.processes[at];
        if !process.member.is_certain(clock) {
            return;
        }
        let Some(partition) = process.member.held().deliverable(turn).first().copied() else {
            return;
        };
        let flying = &mut process.member.held_mut().get_mut(&partition).unwrap().item;
        if flying.in_flight.len() < 3 {
            flying.in_flight.insert(flying.next);
            flying.next += 1;
        }
    }

    /// A handler is done: its message is acknowledged, first here.
    fn finish_one(&mut self, at: usize) {
        let pick = self.dice.usize(..);
        let clock = self.now - self.processes[at].born;
        let Process { name, member, acks, .. } = &mut self.processes[at];
        let busy = |(partition, held): (&u32, &Holding<Flying>)| {
            Some((*partition, held.epoch, *held.item.in_flight.first()?))
        };
        let busy: Vec<_> = member.held().iter().filter_map(busy).collect();
        let Some((partition, epoch, message)) = busy.get(pick % busy.len().max(1)).copied() else {
            return;
        };
        match member.admit(&partition, epoch, clock) {
            Ok(flying) => {
                flying.in_flight.remove(&message);
                acks.push(Ack { partition, epoch, message });
                let name = name.clone();
                self.check_alone(&name, partition, epoch);
            }
            Err(_) => self.seen.refused_here += 1,
        }
    }

    /// An acknowledgement reaches the store, after whatever happened since it was decided.
    fn send_ack(&mut self, at: usize) {
        let process = &mut self.processes[at];
        if process.acks.is_empty() {
            return;
        }
        let Ack { partition, epoch, message } = process.acks.remove(0);
        let claim = self.store.claim(partition);
        let zombie = claim.epoch != epoch;
        let accepted = self.store.ack(partition, epoch, message);
        assert!(!(zombie && accepted), "the acknowledgement of an earlier epoch is accepted");
        self.seen.zombie_acks += u64::from(zombie);
        self.seen.acked += u64::from(accepted);
    }

    /// While a process is certain that it owns a partition, no other owns it in a later epoch.
    fn check_alone(&self, name: &str, partition: u32, epoch: u64) {
        for other in self.processes.iter().filter(|other| other.name != name) {
            let later = other.member.held().get(&partition).filter(|held| held.epoch > epoch);
            assert!(later.is_none(), "{} owns {partition} while {name} acknowledges", other.name);
        }
    }

    /// At any time, a partition has at most one owner that delivers from it, and at most one whose
    /// epoch is current; no process owns what it cannot read.
    fn check(&self) {
        for partition in 0..self.partitions {
            let (mut current, mut delivering) = (0, 0);
            for process in &self.processes {
                let Some(held) = process.member.held().get(&partition) else { continue };
                let certain = process.member.is_certain(self.now - process.born);
                current += u64::from(held.epoch == self.store.claim(partition).epoch);
                delivering += u64::from(certain && held.phase == Phase::Delivering);
                if let Reads::Only(able) = &process.reads {
                    assert!(able.contains(&partition), "{} owns what it lacks", process.name);
                }
            }
            assert!(current <= 1, "{current} owners of {partition} in the current epoch");
            assert!(delivering <= 1, "{delivering} processes deliver from {partition}");
        }
    }

    /// In the end every partition that a process can read has an owner again, and those that all
    /// can read are shared evenly.
    fn check_shares(&self) {
        let reads = |process: &Process, partition: u32| match &process.reads {
            Reads::All => true,
            Reads::Only(able) => able.contains(&partition),
        };
        for partition in 0..self.partitions {
            let able = self.processes.iter().any(|process| reads(process, partition));
            let owns = |process: &&Process| {
                let held = process.member.held().get(&partition);
                held.is_some_and(|held| held.epoch == self.store.claim(partition).epoch)
            };
            let owners = self.processes.iter().filter(owns).count();
            assert_eq!(owners, usize::from(able), "owners of partition {partition} in the end");
        }
        if self.processes.iter().all(|process| process.reads == Reads::All) {
            let shares = self.processes.iter().map(|process| process.member.held().len());
            let (least, most) = (shares.clone().min().unwrap(), shares.max().unwrap());
            assert!(most <= least + 1, "shares from {least} to {most}");
        }
    }
}
