//! One process's part of a subscription.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::Subject;
use async_nats::jetstream::message::Message;
use chapar_core::machine::flight::{Flight, Stale, Taken};
use chapar_core::machine::ownership::{Displaced, Member, NotOwner, Phase, Roster, Watch};
use chapar_core::port::{
    AckToken, BoxFuture, Delivery, Subscription, SubscriptionSpec, Tracking, TransportError,
};
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{debug, error};

use super::bucket::Part;
use super::group::{Partition, Share, StreamOf};
use super::topology::code;
use super::{Nats, durable, lock, setup, unavailable};

/// One process's part of a subscription.
pub(super) struct NatsSubscription {
    inner: Arc<Inner>,
    keeper: JoinHandle<()>,
}

pub(super) struct Inner {
    pub(super) nats: Nats,
    pub(super) spec: SubscriptionSpec,
    /// The partitions of the subscription, by number; and their names in the document.
    parts: BTreeMap<u32, Part>,
    names: BTreeMap<u32, Partition>,
    /// A tenant has, or had, a partition of its own.
    spreads_keys: bool,
    started: Instant,
    /// Held during a turn.
    watch: tokio::sync::Mutex<Watch>,
    pub(super) state: Mutex<State>,
    pub(super) arrived: Notify,
    pub(super) room: Notify,
}

pub(super) struct State {
    pub(super) member: Member<u32, Owned>,
    /// Another process joined under our name.
    displaced: bool,
    /// How often the client had connected when everything was last known to arrive.
    connects: u64,
    /// Acknowledgements that the server has not confirmed.
    unconfirmed: Vec<Subject>,
    turn: usize,
}

/// What is kept for a partition that this process owns.
pub(super) struct Owned {
    pub(super) flight: Flight<Arc<Message>>,
    /// Of the acknowledged messages, the last before each open one, with its reply subject.
    acked: BTreeMap<u64, Subject>,
    /// The bytes of what is in flight or waits.
    pub(super) bytes: usize,
    pump: JoinHandle<()>,
}

impl Owned {
    /// Notes that a message is acknowledged.
    fn settle(&mut self, offset: u64, reply: Subject) {
        let before = self.acked.range(..offset).next_back().map(|(before, _)| *before);
        if let Some(before) = before.filter(|before| !self.flight.is_open(*before..offset)) {
            self.acked.remove(&before);
        }
        let after = self.acked.range(offset..).next().map(|(after, _)| *after);
        if after.is_none_or(|after| self.flight.is_open(offset..after)) {
            self.acked.insert(offset, reply);
        }
    }

    /// The reply subject that acknowledges everything up to the cursor, if the cursor has moved.
    fn news(&mut self) -> Option<Subject> {
        let rest = self.acked.split_off(&(self.flight.acked() + 1));
        let done = std::mem::replace(&mut self.acked, rest);
        done.into_values().next_back()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

impl NatsSubscription {
    pub(super) async fn join(nats: Nats, spec: &SubscriptionSpec) -> Result<Self, TransportError> {
        nats.apply_subscription(spec).await?;
        let (mut parts, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (name, part) in nats.parts(&spec.topics).await? {
            let number = code(&part.stream, part.number);
            names.insert(number, Partition { name, stream: part.stream.clone() });
            parts.insert(number, part);
        }
        let options = &nats.0.options;
        let spreads_keys = parts.values().any(|part: &Part| part.number >= options.partitions);
        let watch = Watch::new(&options.owner, fastrand::u64(..), options.lease);
        let state = State {
            member: Member::new(&options.owner, options.lease),
            displaced: false,
            connects: 0,
            unconfirmed: Vec::new(),
            turn: 0,
        };
        let inner = Arc::new(Inner {
            spec: spec.clone(),
            parts,
            names,
            spreads_keys,
            started: Instant::now(),
            watch: tokio::sync::Mutex::new(watch),
            state: Mutex::new(state),
            arrived: Notify::new(),
            room: Notify::new(),
            nats,
        });
        inner.take_turn().await?;
        let keeper = tokio::spawn(keeper(inner.clone()));
        Ok(NatsSubscription { inner, keeper })
    }
}

/// Takes turns for as long as the subscription lives, whatever its user does meanwhile.
async fn keeper(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(inner.nats.0.options.lease / 3).await;
        if let Err(error) = inner.take_turn().await {
            debug!(subscription = inner.spec.name, %error, "lease not renewed; trying again");
        }
        inner.confirm().await;
    }
}

impl Inner {
    /// The time by this process's monotonic clock.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes a turn in the group: renews the lease, and opens and closes partitions so that they
    /// are those that the document says.
    async fn take_turn(self: &Arc<Self>) -> Result<(), TransportError> {
        let mut watch = self.watch.lock().await;
        let (owner, asked_at) = (&self.nats.0.options.owner, self.now());
        self.notice_reconnect();
        let stream_of: StreamOf<'_> = &|topic| self.nats.stream_of(topic);
        let turn = self.nats.change(&self.spec.name, |group| {
            let mut state = lock(&self.state);
            let State { member, displaced, .. } = &mut *state;
            let plan = |roster: &Roster<u32>| member.plan(roster, |o| o.flight.in_flight());
            let (ours, known) = ((&**owner, &*self.spec.topics), (&self.names, stream_of));
            let turn = group.take_turn(ours, &mut watch, known, self.now(), plan);
            turn.map_err(|Displaced| {
                *displaced = true;
                self.displaced()
            })
        });
        let (group, ()) = turn.await?;
        watch.written();
        let owned = group.owned_by(owner, &self.names);
        let begun = lock(&self.state).member.renewed(asked_at, &owned).begun;
        let share = |(number, _): (u32, u64)| {
            let name = &self.names.get(&number)?.name;
            Some((number, name, self.parts.get(&number)?, group.shares.get(name)?))
        };
        let fresh: Vec<_> = begun.into_iter().filter_map(share).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let opening = fresh.iter().map(|(number, _, part, share)| self.open(*number, part, share));
        let opened = join_all(opening).await;
        let opened: Vec<_> =
            fresh.iter().zip(opened).filter_map(|(at, floor)| Some((at, floor.ok()?))).collect();
        // From now on these durable consumers have the cursor, unless the partition has moved on.
        let commit = self.nats.change(&self.spec.name, |group| {
            for ((_, name, part, share), floor) in &opened {
                let now = group.shares.entry((*name).clone()).or_default();
                if (now.epoch, &now.owner) == (share.epoch, &share.owner) {
                    now.opened(&part.topics, *floor);
                }
            }
            Ok(())
        });
        commit.await?;
        for ((_, _, part, share), _) in opened {
            let earlier = share.cursor.unwrap_or(share.epoch.saturating_sub(1))..share.epoch;
            self.nats.delete_durables(&self.spec.name, part, earlier).await;
        }
        Ok(())
    }

    /// Opens a partition that this process owns from now on.
    async fn open(
        self: &Arc<Self>,
        number: u32,
        part: &Part,
        share: &Share,
    ) -> Result<u64, TransportError> {
        let consumer = self.nats.open_durable(&self.spec.name, part, share).await;
        let (consumer, floor) = consumer.inspect_err(|error| {
            let (stream, partition) = (&part.stream, part.number);
            debug!(stream, partition, %error, "durable consumer not created; trying again");
        })?;
        let mut state = lock(&self.state);
        let pump = tokio::spawn(durable::pump(self.clone(), number, share.epoch, consumer));
        let flight = Flight::new(0, self.spec.ack_deadline);
        let owned = Owned { flight, acked: BTreeMap::new(), bytes: 0, pump };
        state.member.held_mut().begin(number, share.epoch, owned);
        Ok(floor)
    }

    /// Messages of a partition may be missing: it is taken again in a new epoch at the next turn.
    pub(super) fn distrust(&self, number: u32, epoch: u64) {
        let mut state = lock(&self.state);
        let held = state.member.held_mut().get_mut(&number);
        if let Some(held) = held.filter(|held| held.epoch == epoch) {
            held.phase = Phase::Broken;
        }
    }

    /// After a reconnection, messages of every partition may be missing.
    fn notice_reconnect(&self) {
        let connects = self.nats.0.client.statistics().connects.load(Ordering::Relaxed);
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.connects, connects) != connects {
            state.member.held_mut().iter_mut().for_each(|(_, held)| held.phase = Phase::Broken);
        }
    }

    fn displaced(&self) -> TransportError {
        setup(format!("another process has joined as {}", self.nats.0.options.owner))
    }

    /// Sends unconfirmed acknowledgements again. If they are lost, the next owner delivers the
    /// messages again.
    async fn confirm(&self) {
        let unconfirmed = std::mem::take(&mut lock(&self.state).unconfirmed);
        for reply in unconfirmed {
            if self.nats.0.client.publish(reply, "+ACK".into()).await.is_err() {
                return;
            }
        }
    }

    /// Takes what can be delivered now: by `take`, from each partition, given how many more there
    /// may be. Returns also when more may be due.
    fn poll(
        &self,
        max: usize,
        take: impl Fn(&mut Flight<Arc<Message>>, usize, Duration) -> Vec<Taken<Arc<Message>>>,
    ) -> Result<(Vec<Delivery>, Option<Duration>), TransportError> {
        let mut state = lock(&self.state);
        if state.displaced {
            return Err(self.displaced());
        }
        let now = self.now();
        if !state.member.is_certain(now) {
            return Ok((vec![], None));
        }
        state.turn = state.turn.wrapping_add(1);
        let State { member, turn, .. } = &mut *state;
        let in_flight: usize = member.held().items().map(|owned| owned.flight.in_flight()).sum();
        let mut room = max.min(self.spec.max_in_flight.saturating_sub(in_flight));
        let (mut deliveries, mut due) = (Vec::new(), None::<Duration>);
        for number in member.held().deliverable(*turn) {
            let Some(held) = member.held_mut().get_mut(&number) else { continue };
            for taken in take(&mut held.item.flight, room, now) {
                let Some(item) = durable::read(number, &taken.item) else { continue };
                let (offset, attempt) = (taken.offset, taken.attempt);
                let tracking = Tracking { epoch: held.epoch, number: offset, attempt };
                let token = AckToken::of(item.token.position, tracking);
                deliveries.push(Delivery { token, attempt, ..item });
                room = room.saturating_sub(1);
            }
        }
        if deliveries.is_empty() {
            due = member.held().items().filter_map(|owned| owned.flight.due()).min();
        } else {
            self.room.notify_waiters();
        }
        Ok((deliveries, due))
    }

    /// Polls until there is something or `wait` is over.
    async fn wait_for(
        &self,
        wait: Duration,
        poll: impl Fn() -> Result<(Vec<Delivery>, Option<Duration>), TransportError>,
    ) -> Result<Vec<Delivery>, TransportError> {
        let deadline = Instant::now() + wait;
        loop {
            let arrived = self.arrived.notified();
            let (deliveries, due) = poll()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !deliveries.is_empty() || left.is_zero() {
                return Ok(deliveries);
            }
            let due = due.map_or(left, |due| due.saturating_sub(self.now()));
            let pause = due.clamp(Duration::from_millis(5), Duration::from_millis(100));
            let _ = tokio::time::timeout(left.min(pause), arrived).await;
        }
    }

    /// Applies `act` to the partition of a delivery, if this process still owns it.
    fn with<T>(
        &self,
        state: &mut State,
        token: &AckToken,
        act: impl FnOnce(&mut Owned, Tracking) -> Result<T, Stale>,
    ) -> Result<T, TransportError> {
        let tracking = token.tracking()?;
        let owned = state.member.admit(&token.position.partition, tracking.epoch, self.now());
        let owned = owned.map_err(|NotOwner| TransportError::Expired)?;
        act(owned, tracking).map_err(|Stale| TransportError::Expired)
    }

    /// Sends acknowledgements and waits until the server confirms them.
    async fn send_acks(&self, acks: Vec<Subject>) -> Result<(), TransportError> {
        let client = &self.nats.0.client;
        let send = |reply: Subject| async move {
            let answer = client.request(reply.clone(), "+ACK".into()).await;
            answer.err().map(|error| (unavailable(&error), reply))
        };
        let failed = join_all(acks.into_iter().map(send)).await;
        let mut result = Ok(());
        for (error, reply) in failed.into_iter().flatten() {
            lock(&self.state).unconfirmed.push(reply);
            result = Err(error);
        }
        result
    }

    async fn leave(&self) -> Result<(), TransportError> {
        let watch = self.watch.lock().await;
        lock(&self.state).member.leave();
        let owner = &self.nats.0.options.owner;
        let left = self.nats.change(&self.spec.name, |group| {
            if group.members.get(owner).is_some_and(|member| watch.is_own(member.into())) {
                group.leave(owner);
            }
            Ok(())
        });
        left.await.map(drop)
    }
}

impl Subscription for NatsSubscription {
    fn fetch(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(self.inner.wait_for(wait, move || self.inner.poll(max, Flight::take)))
    }

    fn fetch_oldest(&self, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        let oldest = |flight: &mut Flight<_>, _, now| flight.take_oldest(now).into_iter().collect();
        Box::pin(self.inner.wait_for(wait, move || self.inner.poll(0, oldest)))
    }

    fn spreads_keys(&self) -> bool {
        self.inner.spreads_keys
    }

    fn ack<'a>(&'a self, tokens: &'a [AckToken]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let (mut result, mut touched, mut acks) = (Ok(()), BTreeSet::new(), Vec::new());
            {
                let mut state = lock(&self.inner.state);
                for token in tokens {
                    let ack = |owned: &mut Owned, of: Tracking| {
                        let Some(message) = owned.flight.ack(of.number, of.attempt)? else {
                            return Ok(());
                        };
                        owned.bytes = owned.bytes.saturating_sub(message.length);
                        if let Some(reply) = message.reply.clone() {
                            owned.settle(of.number, reply);
                        }
                        Ok(())
                    };
                    match self.inner.with(&mut state, token, ack) {
                        Ok(()) => drop(touched.insert(token.position.partition)),
                        Err(error) => result = Err(error),
                    }
                }
                for number in touched {
                    let held = state.member.held_mut().get_mut(&number);
                    acks.extend(held.and_then(|held| held.item.news()));
                }
            }
            self.inner.room.notify_waiters();
            self.inner.send_acks(acks).await.and(result)
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a AckToken,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let not_before = self.inner.now() + delay;
            let mut state = lock(&self.inner.state);
            self.inner.with(&mut state, token, |owned, of| {
                owned.flight.nack(of.number, of.attempt, not_before)
            })
        })
    }

    fn keep_alive(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            // The lease is renewed by the keeper.
            let now = self.inner.now();
            let mut state = lock(&self.inner.state);
            let owned = state.member.held_mut().items_mut();
            owned.for_each(|owned| owned.flight.extend_all(now));
            Ok(())
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            self.keeper.abort();
            self.inner.leave().await
        })
    }
}

impl Drop for NatsSubscription {
    fn drop(&mut self) {
        self.keeper.abort();
        lock(&self.inner.state).member.leave();
        let inner = self.inner.clone();
        // Leaves, so that others need not wait for the lease, if there is a runtime to do so.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = inner.leave().await {
                    error!(subscription = inner.spec.name, %error, "cannot leave the group; other processes wait until the lease expires");
                }
            });
        }
    }
}
