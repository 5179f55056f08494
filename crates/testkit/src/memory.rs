//! A transport in memory, for tests that need no broker. It passes the same
//! [conformance suite](mod@crate::conformance) as the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use chapar_core::machine::flight::{Flight, Key, Stale};
use chapar_core::machine::ownership::{Claim, LeaseState, Member, Reads, Roster, Standing};
use chapar_core::port::{
    AckToken, BoxFuture, Delivery, Features, Outgoing, Position, Receipt, SeekTo, Subscription,
    SubscriptionSpec, TopicSpec, Tracking, Transport, TransportError,
};
use jiff::Timestamp;
use tokio::sync::Notify;

const PARTITIONS: u32 = 8;

/// A broker in memory. Clones are the same broker, and each subscription made from one acts as a
/// process of its own.
///
/// ```
/// use std::sync::Arc;
/// use chapar_core::port::Transport;
/// use chapar_testkit::memory::MemoryTransport;
///
/// let transport: Arc<dyn Transport> = Arc::new(MemoryTransport::new());
/// assert!(transport.features().seek_time);
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryTransport(Arc<Broker>);

impl MemoryTransport {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }
}

#[derive(Debug)]
struct Broker {
    started: Instant,
    state: Mutex<State>,
    changed: Notify,
}

impl Default for Broker {
    fn default() -> Self {
        Broker { started: Instant::now(), state: Mutex::default(), changed: Notify::new() }
    }
}

impl Broker {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in one test must not fail the others.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

#[derive(Debug, Default)]
struct State {
    log: [Vec<Delivery>; PARTITIONS as usize],
    known: HashMap<String, Position>,
    groups: HashMap<String, Group>,
    members: u64,
}

/// A subscription: its members, and its partitions.
#[derive(Debug)]
struct Group {
    topics: Vec<String>,
    deadline: Duration,
    roster: Roster<u32>,
    members: HashMap<String, Member<u32, Flight<Delivery>>>,
    /// Up to where each partition is acknowledged.
    cursors: [u64; PARTITIONS as usize],
    turn: usize,
}

impl Group {
    fn new(spec: &SubscriptionSpec) -> Self {
        let claims = (0..PARTITIONS).map(|partition| (partition, Claim::default()));
        Group {
            topics: spec.topics.clone(),
            deadline: spec.ack_deadline,
            roster: Roster { members: BTreeMap::new(), partitions: claims.collect() },
            members: HashMap::new(),
            cursors: [0; PARTITIONS as usize],
            turn: 0,
        }
    }

    fn join(&mut self, name: &str) {
        let standing = Standing { lease: LeaseState::Valid, reads: Reads::All };
        self.roster.members.insert(name.to_owned(), standing);
        // Members are tasks of one process and are not frozen one by one: leases do not run out.
        self.members.insert(name.to_owned(), Member::new(name, Duration::MAX));
    }

    /// Takes a member's turn: renews, gives back what is more than a fair share, takes what is
    /// free.
    fn take_turn(&mut self, name: &str, now: Duration) {
        self.save_cursors(name);
        let Some(member) = self.members.get_mut(name) else { return };
        let plan = member.plan(&self.roster, Flight::in_flight);
        self.roster.apply(name, &plan);
        for (partition, epoch) in member.renewed(now, &self.roster.owned_by(name)).begun {
            let flight = Flight::new(self.cursors[partition as usize], self.deadline);
            member.held_mut().begin(partition, epoch, flight);
        }
    }

    fn leave(&mut self, name: &str) {
        self.save_cursors(name);
        self.members.remove(name);
        self.roster.remove(name);
    }

    /// Notes how far a member has come with the partitions that it still owns.
    fn save_cursors(&mut self, name: &str) {
        let Some(member) = self.members.get(name) else { return };
        for (partition, held) in member.held().iter() {
            if self.roster.partitions.get(partition).map(|claim| claim.epoch) == Some(held.epoch) {
                self.cursors[*partition as usize] = held.item.acked();
            }
        }
    }

    /// Moves a partition. The new epoch ends what was delivered of it.
    fn seek(&mut self, partition: u32, acked: u64) {
        self.cursors[partition as usize] = acked;
        if let Some(claim) = self.roster.partitions.get_mut(&partition) {
            *claim = Claim { owner: None, epoch: claim.epoch + 1 };
        }
    }
}

impl Transport for MemoryTransport {
    fn features(&self) -> Features {
        Features {
            ordered_in_flight: true,
            ordered_topics: true,
            seek_time: true,
            seek_position: true,
            delayed_nack: true,
            mebibyte: true,
            in_store: false,
        }
    }

    fn apply<'a>(
        &'a self,
        _topics: &'a [TopicSpec],
        subscriptions: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.0.state();
            for spec in subscriptions {
                let group =
                    state.groups.entry(spec.name.clone()).or_insert_with(|| Group::new(spec));
                group.topics.clone_from(&spec.topics);
                group.deadline = spec.ack_deadline;
            }
            Ok(())
        })
    }

    fn publish(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>> {
        Box::pin(async move {
            let receipts = {
                let mut state = self.0.state();
                batch.into_iter().map(|message| Ok(state.append(message))).collect()
            };
            self.0.changed.notify_waiters();
            receipts
        })
    }

    fn subscribe<'a>(
        &'a self,
        spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        Box::pin(async move {
            self.apply(&[], std::slice::from_ref(spec)).await?;
            let mut state = self.0.state();
            state.members += 1;
            let member = format!("member-{}", state.members);
            if let Some(group) = state.groups.get_mut(&spec.name) {
                group.join(&member);
            }
            let part = Part { broker: self.0.clone(), spec: spec.clone(), member };
            Ok(Box::new(part) as Box<dyn Subscription>)
        })
    }

    fn seek<'a>(
        &'a self,
        subscription: &'a str,
        to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.0.state();
            let State { log, groups, .. } = &mut *state;
            let group = groups.get_mut(subscription).ok_or_else(|| {
                TransportError::Setup(format!("there is no subscription {subscription}"))
            })?;
            for (partition, log) in (0..).zip(log.iter()) {
                let before = match to {
                    SeekTo::Beginning => 0,
                    SeekTo::End => log.len() as u64,
                    SeekTo::Time(at) => {
                        log.iter().take_while(|d| d.published_at < at).count() as u64
                    }
                    SeekTo::Position(to) if to.partition == partition => to.offset.max(1) - 1,
                    SeekTo::Position(_) => continue,
                };
                group.seek(partition, before);
            }
            self.0.changed.notify_waiters();
            Ok(())
        })
    }
}

impl State {
    fn append(&mut self, message: Outgoing) -> Receipt {
        let id = message.id.to_string();
        if let Some(&position) = self.known.get(&id) {
            return Receipt { position, duplicate: true };
        }
        let key = message.key.as_deref().unwrap_or(&id);
        let hash = key.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31) ^ u32::from(byte));
        let partition = hash % PARTITIONS;
        let log = &mut self.log[partition as usize];
        let position = Position { partition, offset: log.len() as u64 + 1 };
        log.push(Delivery {
            token: AckToken::unacknowledgeable(position),
            topic: message.topic,
            key: message.key,
            headers: message.headers,
            body: message.body,
            attempt: 0,
            published_at: Timestamp::now(),
        });
        self.known.insert(id, position);
        Receipt { position, duplicate: false }
    }
}

/// One process's part of a subscription.
struct Part {
    broker: Arc<Broker>,
    spec: SubscriptionSpec,
    member: String,
}

impl Part {
    fn poll(&self, max: usize) -> (Vec<Delivery>, Option<Duration>) {
        let mut state = self.broker.state();
        let State { log, groups, .. } = &mut *state;
        let Some(group) = groups.get_mut(&self.spec.name) else { return (vec![], None) };
        let now = self.broker.now();
        group.take_turn(&self.member, now);
        group.turn = group.turn.wrapping_add(1);
        let Group { topics, members, turn, .. } = group;
        let Some(member) = members.get_mut(&self.member) else { return (vec![], None) };
        let in_flight: usize = member.held().items().map(Flight::in_flight).sum();
        let mut room = max.min(self.spec.max_in_flight.saturating_sub(in_flight));
        let (mut deliveries, mut due) = (Vec::new(), None::<Duration>);
        for partition in member.held().deliverable(*turn) {
            let Some(held) = member.held_mut().get_mut(&partition) else { continue };
            let (epoch, flight) = (held.epoch, &mut held.item);
            let fresh = log[partition as usize].iter().skip(flight.read_to() as usize);
            let space = self.spec.max_in_flight.saturating_sub(flight.waiting());
            for delivery in fresh.take(space) {
                let offset = delivery.token.position.offset;
                let key = delivery.key.as_deref().map(Key::of);
                match topics.contains(&delivery.topic) {
                    true => flight.push(offset, key, delivery.clone()),
                    false => flight.skip_to(offset),
                }
            }
            for taken in flight.take(room, now) {
                let (number, attempt) = (taken.offset, taken.attempt);
                let tracking = Tracking { epoch, number, attempt };
                let token = AckToken::of(taken.item.token.position, tracking);
                deliveries.push(Delivery { token, attempt, ..taken.item });
                room -= 1;
            }
            due = due.into_iter().chain(flight.due()).min();
        }
        (deliveries, due)
    }

    /// Applies `act` to the partition of a delivery, if this member still owns it.
    fn with<T>(
        &self,
        token: &AckToken,
        act: impl FnOnce(&mut Flight<Delivery>, Tracking, Duration) -> Result<T, Stale>,
    ) -> Result<T, TransportError> {
        let now = self.broker.now();
        let mut state = self.broker.state();
        let group = state.groups.get_mut(&self.spec.name).ok_or(TransportError::Expired)?;
        let (tracking, partition) = (token.tracking()?, token.position.partition);
        let claim = group.roster.partitions.get(&partition);
        let member = group.members.get_mut(&self.member);
        let member = member.filter(|_| claim.is_some_and(|claim| claim.epoch == tracking.epoch));
        let flight = member.and_then(|m| m.admit(&partition, tracking.epoch, now).ok());
        let flight = flight.ok_or(TransportError::Expired)?;
        act(flight, tracking, now).map_err(|Stale| TransportError::Expired)
    }

    fn leave(&self) {
        if let Some(group) = self.broker.state().groups.get_mut(&self.spec.name) {
            group.leave(&self.member);
        }
        self.broker.changed.notify_waiters();
    }
}

impl Subscription for Part {
    fn fetch(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(async move {
            let deadline = Instant::now() + wait;
            loop {
                let changed = self.broker.changed.notified();
                let (deliveries, due) = self.poll(max);
                let left = deadline.saturating_duration_since(Instant::now());
                if !deliveries.is_empty() || left.is_zero() {
                    return Ok(deliveries);
                }
                let due = due.map_or(left, |due| due.saturating_sub(self.broker.now()));
                let pause = left.min(due.max(Duration::from_millis(5)));
                let _ = tokio::time::timeout(pause, changed).await;
            }
        })
    }

    fn fetch_oldest(&self, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        // All messages of a key are in one partition and come in their order, so none waits for
        // one that is not delivered yet.
        self.fetch(0, wait)
    }

    fn ack<'a>(&'a self, tokens: &'a [AckToken]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let ack = |token: &AckToken| {
                self.with(token, |flight, of, _| flight.ack(of.number, of.attempt).map(drop))
            };
            // Each is acknowledged by itself, whether or not the others are accepted.
            let results: Vec<_> = tokens.iter().map(ack).collect();
            self.broker.changed.notify_waiters();
            results.into_iter().collect()
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a AckToken,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            self.with(token, |flight, of, now| flight.nack(of.number, of.attempt, now + delay))
        })
    }

    fn keep_alive(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            let now = self.broker.now();
            let mut state = self.broker.state();
            let group = state.groups.get_mut(&self.spec.name);
            if let Some(member) = group.and_then(|group| group.members.get_mut(&self.member)) {
                member.held_mut().items_mut().for_each(|flight| flight.extend_all(now));
            }
            Ok(())
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            self.leave();
            Ok(())
        })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.leave();
    }
}
