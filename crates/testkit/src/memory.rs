//! A transport in memory, for tests that need no broker. It passes the same
//! [conformance suite](mod@crate::conformance) as the real ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use chapar_core::machine::flight::{Flight, Key};
use chapar_core::port::{
    BoxFuture, Delivery, Features, Outgoing, Position, Receipt, SeekTo, Subscription,
    SubscriptionSpec, Token, TopicSpec, Transport, TransportError,
};
use jiff::Timestamp;
use tokio::sync::Notify;

const PARTITIONS: u32 = 8;

/// A broker in memory. Clones are the same broker, and each subscription made from one counts as
/// a process of its own.
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
        // A panic of one test must not take the others with it.
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

/// The processes of a subscription and their shares.
#[derive(Debug)]
struct Group {
    topics: Vec<String>,
    deadline: Duration,
    members: Vec<u64>,
    shares: Vec<Share>,
    turn: usize,
}

#[derive(Debug)]
struct Share {
    owner: Option<u64>,
    epoch: i64,
    flight: Flight<Delivery>,
}

impl Group {
    fn new(spec: &SubscriptionSpec) -> Self {
        let share = |_| Share { owner: None, epoch: 0, flight: Flight::new(0, spec.ack_deadline) };
        Group {
            topics: spec.topics.clone(),
            deadline: spec.ack_deadline,
            members: Vec::new(),
            shares: (0..PARTITIONS).map(share).collect(),
            turn: 0,
        }
    }

    /// Gives back what is more than a fair share and has nothing in flight, takes what is less,
    /// and returns the shares to deliver from.
    fn balance(&mut self, member: u64) -> Vec<usize> {
        let fair = self.shares.len().div_ceil(self.members.len().max(1));
        let mut mine: Vec<usize> = (0..self.shares.len())
            .filter(|index| self.shares[*index].owner == Some(member))
            .collect();
        for index in mine.split_off(mine.len().min(fair)) {
            if self.shares[index].flight.in_flight() == 0 {
                self.assign(index, None);
            }
        }
        for index in 0..self.shares.len() {
            if mine.len() < fair && self.shares[index].owner.is_none() {
                self.assign(index, Some(member));
                mine.push(index);
            }
        }
        mine
    }

    fn leave(&mut self, member: u64) {
        self.members.retain(|other| *other != member);
        for index in 0..self.shares.len() {
            if self.shares[index].owner == Some(member) {
                self.assign(index, None);
            }
        }
    }

    fn assign(&mut self, index: usize, owner: Option<u64>) {
        self.shares[index].owner = owner;
        self.move_to(index, self.shares[index].flight.acked());
    }

    /// Starts a new epoch behind an offset; deliveries of the old one are over.
    fn move_to(&mut self, index: usize, acked: u64) {
        self.shares[index].epoch += 1;
        self.shares[index].flight = Flight::new(acked, self.deadline);
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
            let member = state.members;
            if let Some(group) = state.groups.get_mut(&spec.name) {
                group.members.push(member);
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
            for (index, log) in log.iter().enumerate() {
                let before = match to {
                    SeekTo::Beginning => 0,
                    SeekTo::End => log.len() as u64,
                    SeekTo::Time(at) => {
                        log.iter().take_while(|d| d.published_at < at).count() as u64
                    }
                    SeekTo::Position(to) if to.partition as usize == index => to.offset.max(1) - 1,
                    SeekTo::Position(_) => continue,
                };
                group.move_to(index, before);
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
            token: Token { position, handle: None },
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
    member: u64,
}

impl Part {
    fn poll(&self, max: usize) -> (Vec<Delivery>, Option<Duration>) {
        let mut state = self.broker.state();
        let State { log, groups, .. } = &mut *state;
        let Some(group) = groups.get_mut(&self.spec.name) else { return (vec![], None) };
        let now = self.broker.now();
        let mut mine = group.balance(self.member);
        // Another share comes first each time, so that a busy one does not starve the rest.
        group.turn = group.turn.wrapping_add(1);
        let first = group.turn % mine.len().max(1);
        mine.rotate_left(first);
        let ours = |share: &&Share| share.owner == Some(self.member);
        let held: usize = group.shares.iter().filter(ours).map(|s| s.flight.in_flight()).sum();
        let mut room = max.min(self.spec.max_in_flight.saturating_sub(held));
        let (mut deliveries, mut due) = (Vec::new(), None::<Duration>);
        for index in mine {
            let Share { epoch, flight, .. } = &mut group.shares[index];
            let fresh = log[index].iter().skip(flight.read_to() as usize);
            let space = self.spec.max_in_flight.saturating_sub(flight.waiting());
            for delivery in fresh.take(space) {
                let offset = delivery.token.position.offset;
                let key = delivery.key.as_deref().map(Key::of);
                match group.topics.contains(&delivery.topic) {
                    true => flight.push(offset, key, delivery.clone()),
                    false => flight.skip_to(offset),
                }
            }
            for taken in flight.take(room, now) {
                let token = Token::of(taken.item.token.position, *epoch, taken.attempt);
                deliveries.push(Delivery { token, attempt: taken.attempt, ..taken.item });
                room -= 1;
            }
            due = due.into_iter().chain(flight.due()).min();
        }
        (deliveries, due)
    }

    /// Does something with the flight that a token belongs to.
    fn with<T>(
        &self,
        token: &Token,
        act: impl FnOnce(&mut Flight<Delivery>, u32, Duration) -> Option<T>,
    ) -> Result<T, TransportError> {
        let now = self.broker.now();
        let mut state = self.broker.state();
        let group = state.groups.get_mut(&self.spec.name);
        let (epoch, attempt) = token.delivery().ok_or(TransportError::Expired)?;
        group
            .and_then(|group| group.shares.get_mut(token.position.partition as usize))
            .filter(|share| share.owner == Some(self.member) && share.epoch == epoch)
            .and_then(|share| act(&mut share.flight, attempt, now))
            .ok_or(TransportError::Expired)
    }

    fn leave(&self) {
        if let Some(group) = self.broker.state().groups.get_mut(&self.spec.name) {
            group.leave(self.member);
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

    fn ack<'a>(&'a self, tokens: &'a [Token]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let ack = |token: &Token| {
                let offset = token.position.offset;
                self.with(token, |flight, attempt, _| flight.ack(offset, attempt).ok().map(drop))
            };
            // All that can be are taken, whatever became of the others.
            let results: Vec<_> = tokens.iter().map(ack).collect();
            self.broker.changed.notify_waiters();
            results.into_iter().collect()
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a Token,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let offset = token.position.offset;
            self.with(token, |flight, attempt, now| flight.nack(offset, attempt, now + delay).ok())
        })
    }

    fn extend<'a>(&'a self, tokens: &'a [Token]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            if tokens.is_empty() {
                let now = self.broker.now();
                let mut state = self.broker.state();
                for group in state.groups.get_mut(&self.spec.name).into_iter() {
                    let ours = |share: &&mut Share| share.owner == Some(self.member);
                    group.shares.iter_mut().filter(ours).for_each(|s| s.flight.extend_all(now));
                }
            }
            let extend = |token: &Token| {
                let offset = token.position.offset;
                self.with(token, |flight, attempt, now| flight.extend(offset, attempt, now).ok())
            };
            tokens.iter().try_for_each(extend)
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
