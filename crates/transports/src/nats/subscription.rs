//! One process's part of a subscription.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::Subject;
use async_nats::jetstream::message::Message;
use chapar_core::machine::flight::{Flight, Stale};
use chapar_core::port::{
    BoxFuture, Delivery, Subscription, SubscriptionSpec, Token, TransportError,
};
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{debug, error};

use super::bucket::Part;
use super::group::{Displaced, Me, Share};
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
    parts: BTreeMap<String, Part>,
    started: Instant,
    me: tokio::sync::Mutex<Me>,
    pub(super) state: Mutex<State>,
    pub(super) arrived: Notify,
    pub(super) room: Notify,
}

#[derive(Default)]
pub(super) struct State {
    /// When the write was asked for that keeps what we own; none before the first.
    asked_at: Option<Instant>,
    displaced: bool,
    /// How often the client had connected when everything was last known to arrive.
    connects: u64,
    pub(super) owned: BTreeMap<u32, Owned>,
    /// Acknowledgements that the server has not confirmed.
    unconfirmed: Vec<Subject>,
    turn: usize,
}

/// A partition that this process owns.
pub(super) struct Owned {
    pub(super) epoch: u64,
    pub(super) flight: Flight<Arc<Message>>,
    /// Of the acknowledged, the last before each open one, and how the server is told of it.
    acked: BTreeMap<u64, Subject>,
    /// The bytes of what is in flight or waits.
    pub(super) bytes: usize,
    /// More than a fair share: nothing new is delivered from it.
    leaving: bool,
    /// Something that the server has sent may not have arrived.
    distrusted: bool,
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

    /// What tells the server how far everything is acknowledged, if it is further than before.
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
        let parts = nats.parts(&spec.topics).await?;
        let options = &nats.0.options;
        let me = Me::new(&options.owner, fastrand::u64(..), options.lease);
        let inner = Arc::new(Inner {
            spec: spec.clone(),
            parts,
            started: Instant::now(),
            me: tokio::sync::Mutex::new(me),
            state: Mutex::default(),
            arrived: Notify::new(),
            room: Notify::new(),
            nats,
        });
        inner.keep().await?;
        let keeper = tokio::spawn(keeper(inner.clone()));
        Ok(NatsSubscription { inner, keeper })
    }
}

/// Renews the lease for as long as the subscription lives, whatever its user does meanwhile.
async fn keeper(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(inner.nats.0.options.lease / 3).await;
        if let Err(error) = inner.keep().await {
            debug!(subscription = inner.spec.name, %error, "the lease is not renewed");
        }
        inner.confirm().await;
    }
}

impl Inner {
    /// Takes its turn in the group, and makes what we own what the group says.
    async fn keep(self: &Arc<Self>) -> Result<(), TransportError> {
        let mut me = self.me.lock().await;
        let asked_at = Instant::now();
        let names: Vec<String> = self.parts.keys().cloned().collect();
        let distrusted = self.distrusted();
        let turn = self.nats.change(&self.spec.name, |group| {
            for (name, epoch) in &distrusted {
                group.take_anew(name, &me.owner, *epoch);
            }
            let turn = me.turn(group, &names, Instant::now(), |name| self.stop_if_idle(name));
            turn.map_err(|Displaced| {
                lock(&self.state).displaced = true;
                setup(format!("another process has joined as {}", me.owner))
            })
        });
        let (group, leaving) = turn.await?;
        me.written();
        let mut fresh = Vec::new();
        {
            let mut state = lock(&self.state);
            let mut held = std::mem::take(&mut state.owned);
            for (name, part) in &self.parts {
                let Some(share) = group.shares.get(name) else { continue };
                if share.owner.as_deref() != Some(&me.owner) {
                    continue;
                }
                let code = code(&part.stream, part.number);
                match held.remove(&code) {
                    Some(mut owned) if owned.epoch == share.epoch => {
                        owned.leaving = leaving.contains(name);
                        state.owned.insert(code, owned);
                    }
                    _ => fresh.push((name, part, share)),
                }
            }
            state.asked_at = Some(asked_at);
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let opened = join_all(fresh.iter().map(|(_, part, share)| self.open(part, share))).await;
        let opened: Vec<_> =
            fresh.into_iter().zip(&opened).filter(|(_, opened)| opened.is_ok()).collect();
        // From now on these durables have the cursor, unless the partition has moved on.
        let commit = self.nats.change(&self.spec.name, |group| {
            for ((name, _, share), _) in &opened {
                let now = group.shares.entry((*name).clone()).or_default();
                if (now.epoch, &now.owner) == (share.epoch, &share.owner) {
                    (now.cursor, now.start) = (Some(share.epoch), None);
                }
            }
            Ok(())
        });
        commit.await?;
        for ((_, part, share), _) in opened {
            let earlier = share.cursor.unwrap_or(share.epoch.saturating_sub(1))..share.epoch;
            self.nats.delete_durables(&self.spec.name, part, earlier).await;
        }
        Ok(())
    }

    /// Opens a partition that is ours from now on.
    async fn open(self: &Arc<Self>, part: &Part, share: &Share) -> Result<(), TransportError> {
        let consumer = self.nats.open_durable(&self.spec.name, part, share).await;
        let consumer = consumer.inspect_err(|error| {
            debug!(stream = part.stream, partition = part.number, %error, "no durable yet");
        })?;
        let (code, epoch) = (code(&part.stream, part.number), share.epoch);
        let mut state = lock(&self.state);
        let pump = tokio::spawn(durable::pump(self.clone(), code, epoch, consumer));
        let (flight, acked) = (Flight::new(0, self.spec.ack_deadline), BTreeMap::new());
        let (bytes, leaving, distrusted) = (0, false, false);
        let owned = Owned { epoch, flight, acked, bytes, leaving, distrusted, pump };
        state.owned.insert(code, owned);
        Ok(())
    }

    /// A partition has to be taken anew: what was sent may not have arrived.
    pub(super) fn distrust(&self, code: u32, epoch: u64) {
        let mut state = lock(&self.state);
        if let Some(owned) = state.owned.get_mut(&code).filter(|owned| owned.epoch == epoch) {
            owned.distrusted = true;
        }
    }

    /// The partitions to be taken anew, with their epochs: all, if there is a new connection.
    fn distrusted(&self) -> Vec<(String, u64)> {
        let connects = self.nats.0.client.statistics().connects.load(Ordering::Relaxed);
        let mut state = lock(&self.state);
        let reconnected = std::mem::replace(&mut state.connects, connects) != connects;
        let mut names = Vec::new();
        for (name, part) in &self.parts {
            if let Some(owned) = state.owned.get_mut(&code(&part.stream, part.number)) {
                owned.distrusted |= reconnected;
                if owned.distrusted {
                    names.push((name.clone(), owned.epoch));
                }
            }
        }
        names
    }

    /// Whether nothing of a surplus partition is in flight; nothing will be from then on.
    fn stop_if_idle(&self, name: &str) -> bool {
        let Some(part) = self.parts.get(name) else { return true };
        let mut state = lock(&self.state);
        let Some(owned) = state.owned.get_mut(&code(&part.stream, part.number)) else {
            return true;
        };
        owned.leaving = true;
        owned.flight.in_flight() == 0
    }

    /// Sends once more what the server has not confirmed. Lost for good, an acknowledgement
    /// costs a redelivery to the next owner.
    async fn confirm(&self) {
        let unconfirmed = std::mem::take(&mut lock(&self.state).unconfirmed);
        for reply in unconfirmed {
            if self.nats.0.client.publish(reply, "+ACK".into()).await.is_err() {
                return;
            }
        }
    }

    /// Whether the lease certainly holds.
    fn holds(&self, state: &State) -> bool {
        state.asked_at.is_some_and(|at| at.elapsed() < self.nats.0.options.lease)
    }

    fn poll(&self, max: usize) -> Result<(Vec<Delivery>, Option<Duration>), TransportError> {
        let mut state = lock(&self.state);
        if state.displaced {
            let owner = &self.nats.0.options.owner;
            return Err(setup(format!("another process has joined as {owner}")));
        }
        if !self.holds(&state) {
            return Ok((vec![], None));
        }
        let now = self.started.elapsed();
        let held: usize = state.owned.values().map(|owned| owned.flight.in_flight()).sum();
        let mut room = max.min(self.spec.max_in_flight.saturating_sub(held));
        let (mut deliveries, mut due) = (Vec::new(), None::<Duration>);
        // Another partition comes first each time, so that none starves the others.
        state.turn = state.turn.wrapping_add(1);
        let skip = state.turn % state.owned.len().max(1);
        let codes: Vec<u32> = state.owned.keys().copied().collect();
        for code in codes.iter().cycle().skip(skip).take(codes.len()) {
            let usable = |owned: &&mut Owned| !owned.leaving && !owned.distrusted;
            let Some(owned) = state.owned.get_mut(code).filter(usable) else {
                continue;
            };
            let taken = match max {
                0 => owned.flight.take_oldest(now).into_iter().collect(),
                _ => owned.flight.take(room, now),
            };
            for taken in taken {
                let Some(item) = durable::read(*code, &taken.item) else { continue };
                let epoch = i64::try_from(owned.epoch).unwrap_or(i64::MAX);
                let token = Token::of(item.token.position, epoch, taken.attempt);
                deliveries.push(Delivery { token, attempt: taken.attempt, ..item });
                room = room.saturating_sub(1);
            }
        }
        if deliveries.is_empty() {
            due = state.owned.values().filter_map(|owned| owned.flight.due()).min();
        } else {
            self.room.notify_waiters();
        }
        Ok((deliveries, due))
    }

    /// Does something with the partition that a token belongs to.
    fn with<T>(
        &self,
        state: &mut State,
        token: &Token,
        act: impl FnOnce(&mut Owned, u32) -> Result<T, Stale>,
    ) -> Result<T, TransportError> {
        if !self.holds(state) {
            return Err(TransportError::Expired);
        }
        let (epoch, attempt) = token.delivery().ok_or(TransportError::Expired)?;
        let owned = state.owned.get_mut(&token.position.partition);
        let owned = owned.filter(|owned| i64::try_from(owned.epoch) == Ok(epoch));
        let owned = owned.ok_or(TransportError::Expired)?;
        act(owned, attempt).map_err(|Stale| TransportError::Expired)
    }

    /// Tells the server, and waits for its word.
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
        let me = self.me.lock().await;
        lock(&self.state).owned.clear();
        let left = self.nats.change(&self.spec.name, |group| {
            if group.members.get(&me.owner).is_some_and(|member| member.life == me.life) {
                group.leave(&me.owner);
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
        Box::pin(async move {
            let inner = &*self.inner;
            let deadline = Instant::now() + wait;
            loop {
                let arrived = inner.arrived.notified();
                let (deliveries, due) = inner.poll(max)?;
                let left = deadline.saturating_duration_since(Instant::now());
                if !deliveries.is_empty() || left.is_zero() {
                    return Ok(deliveries);
                }
                let due = due.map_or(left, |due| due.saturating_sub(inner.started.elapsed()));
                let pause = due.clamp(Duration::from_millis(5), Duration::from_millis(100));
                let _ = tokio::time::timeout(left.min(pause), arrived).await;
            }
        })
    }

    fn ack<'a>(&'a self, tokens: &'a [Token]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let (mut result, mut touched, mut acks) = (Ok(()), BTreeSet::new(), Vec::new());
            {
                let mut state = lock(&self.inner.state);
                for token in tokens {
                    let offset = token.position.offset;
                    let ack = |owned: &mut Owned, attempt| {
                        let Some(message) = owned.flight.ack(offset, attempt)? else {
                            return Ok(());
                        };
                        owned.bytes = owned.bytes.saturating_sub(message.length);
                        if let Some(reply) = message.reply.clone() {
                            owned.settle(offset, reply);
                        }
                        Ok(())
                    };
                    match self.inner.with(&mut state, token, ack) {
                        Ok(()) => drop(touched.insert(token.position.partition)),
                        Err(error) => result = Err(error),
                    }
                }
                for code in touched {
                    acks.extend(state.owned.get_mut(&code).and_then(Owned::news));
                }
            }
            self.inner.room.notify_waiters();
            self.inner.send_acks(acks).await.and(result)
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a Token,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let not_before = self.inner.started.elapsed() + delay;
            let offset = token.position.offset;
            let mut state = lock(&self.inner.state);
            self.inner.with(&mut state, token, |owned, n| owned.flight.nack(offset, n, not_before))
        })
    }

    fn extend<'a>(&'a self, tokens: &'a [Token]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let now = self.inner.started.elapsed();
            let mut state = lock(&self.inner.state);
            if tokens.is_empty() {
                state.owned.values_mut().for_each(|owned| owned.flight.extend_all(now));
            }
            let mut result = Ok(());
            for token in tokens {
                let offset = token.position.offset;
                let extend = |owned: &mut Owned, n| owned.flight.extend(offset, n, now);
                result = result.and(self.inner.with(&mut state, token, extend));
            }
            result
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
        lock(&self.inner.state).owned.clear();
        let inner = self.inner.clone();
        // Others need not wait for the lease, if there is still a runtime to say so.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = inner.leave().await {
                    error!(subscription = inner.spec.name, %error, "the lease is left to expire");
                }
            });
        }
    }
}
