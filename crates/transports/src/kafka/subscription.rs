//! One process's part of a subscription.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use chapar_core::Id;
use chapar_core::machine::flight::{Flight, Key, Stale, Taken};
use chapar_core::port::{
    BoxFuture, Delivery, Position, Subscription, SubscriptionSpec, Token, TransportError,
};
use tokio::sync::Notify;

use super::member::Member;
use super::options::Groups;
use super::topology::Topic;
use super::wire::{Decoder, Kept, Run};
use super::{Kafka, gone, lock, setup};
use crate::HEAVY;
use crate::recent::Recent;

/// How many ids of a partition are remembered, at most.
const WINDOW: usize = 2048;
/// So many messages are read ahead for a consumer that takes fewer at once.
const PLENTY: usize = 500;

/// One process's part of a subscription.
pub(super) struct KafkaSubscription {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) struct Inner {
    pub(super) kafka: Kafka,
    pub(super) spec: SubscriptionSpec,
    started: Instant,
    state: Mutex<State>,
    /// Taken after the state, where both are.
    inbox: Mutex<Inbox>,
    arrived: Notify,
    /// The last epoch that was begun.
    epoch: AtomicU64,
    /// Something was acknowledged, or the subscription closes.
    changed: Condvar,
}

/// What members have read and nobody has put in its place yet. Whoever delivers does: a member's
/// thread has enough to do, and would wait for the state as often as it brings something.
#[derive(Default)]
struct Inbox {
    /// Each with the last epoch that was begun when it was read.
    runs: Vec<Run>,
    /// How many messages they have, and their bytes.
    messages: usize,
    bytes: usize,
    /// What was in its place at the last look.
    placed: Ahead,
}

/// How far reading is ahead of what is dealt with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Messages that wait to be delivered.
    pub(super) waiting: usize,
    /// The bytes of all that are not acknowledged.
    pub(super) bytes: usize,
}

impl Ahead {
    /// Whether it is far enough. See [`Inner::plenty`].
    pub(super) fn is_enough(self, plenty: usize) -> bool {
        self.waiting >= 2 * plenty || self.is_heavy()
    }

    /// Whether it is far enough for the memory that it takes, however few messages there are.
    pub(super) fn is_heavy(self) -> bool {
        self.bytes >= HEAVY
    }
}

pub(super) struct State {
    pub(super) closing: bool,
    /// By the epoch, which no two times of owning have in common.
    pub(super) owned: BTreeMap<u64, Owned>,
    /// The epochs, by topic and partition.
    places: HashMap<String, BTreeMap<i32, u64>>,
    pub(super) pulses: Vec<Pulse>,
    /// Why the broker gives us nothing.
    pub(super) refusal: Option<String>,
    turn: usize,
}

/// Whether a member of a group is certainly still in it.
pub(super) struct Pulse {
    /// When its thread last ran: a process that was frozen finds this long ago.
    pub(super) at: Instant,
    /// It was frozen, and has to hear from the group before it goes on.
    pub(super) doubtful: bool,
    /// Commits that the group has not answered.
    pub(super) asked: usize,
    /// Those among them from before it was frozen: their answers say nothing about now.
    pub(super) old: usize,
}

/// A partition that this process owns.
pub(super) struct Owned {
    pub(super) member: usize,
    pub(super) topic: Topic,
    pub(super) partition: i32,
    /// Offsets in it are one higher than Kafka's, which begin with 0.
    pub(super) flight: Flight<Kept>,
    /// The bytes of what is in it.
    pub(super) bytes: usize,
    recent: Recent<Id, i64>,
    /// What the group was last told; none if that has to be told again.
    pub(super) committed: Option<u64>,
    /// The last order to move that it followed.
    pub(super) seek: String,
    /// It moves on: nothing new is delivered from it.
    pub(super) leaving: bool,
    pub(super) paused: bool,
}

/// What is taken from one partition at once.
struct Batch {
    epoch: u64,
    topic: Topic,
    partition: i32,
    taken: Vec<Taken<Kept>>,
}

impl Batch {
    fn deliveries(self) -> impl Iterator<Item = Delivery> {
        let epoch = i64::try_from(self.epoch).unwrap_or(i64::MAX);
        let partition = self.topic.code(u32::try_from(self.partition).unwrap_or_default());
        self.taken.into_iter().map(move |Taken { offset, attempt, item }| {
            let position = Position { partition, offset: offset - 1 };
            item.delivery(&self.topic.name, Token::of(position, epoch, attempt), attempt)
        })
    }
}

impl KafkaSubscription {
    pub(super) fn join(kafka: &Kafka, spec: &SubscriptionSpec) -> Result<Self, TransportError> {
        let groups: Vec<(String, Vec<String>)> = match kafka.0.options.groups {
            Groups::Service => vec![(spec.name.clone(), spec.topics.clone())],
            Groups::Topic => {
                let group = |topic: &String| format!("{}.{topic}", spec.name);
                spec.topics.iter().map(|topic| (group(topic), vec![topic.clone()])).collect()
            }
        };
        let pulse = || Pulse { at: Instant::now(), doubtful: false, asked: 0, old: 0 };
        let inner = Arc::new(Inner {
            kafka: kafka.clone(),
            spec: spec.clone(),
            started: Instant::now(),
            state: Mutex::new(State {
                closing: false,
                owned: BTreeMap::new(),
                places: HashMap::new(),
                pulses: groups.iter().map(|_| pulse()).collect(),
                refusal: None,
                turn: 0,
            }),
            inbox: Mutex::default(),
            arrived: Notify::new(),
            epoch: AtomicU64::new(0),
            changed: Condvar::new(),
        });
        // Made before the threads, so that one that could not be made leaves none behind.
        let members = groups
            .into_iter()
            .enumerate()
            .map(|(number, (group, topics))| Member::open(inner.clone(), number, group, topics));
        let members: Vec<_> = members.collect::<Result<_, _>>()?;
        let subscription = KafkaSubscription { inner, threads: Mutex::default() };
        for (member, consumer) in members {
            let thread = std::thread::Builder::new()
                .name(format!("kafka {}", subscription.inner.spec.name))
                .spawn(move || member.run(consumer))
                .map_err(|error| TransportError::Unavailable(error.to_string()))?;
            lock(&subscription.threads).push(thread);
        }
        Ok(subscription)
    }
}

impl Inner {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A partition is ours from now on. `seek` is the last order to move that it followed, and
    /// `start` where that has just brought it.
    pub(super) fn take(
        &self,
        member: usize,
        (topic, partition): (&str, i32),
        seek: &str,
        start: Option<i64>,
    ) {
        let mut state = self.state();
        state.give_up(topic, partition);
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        state.places.entry(topic.to_owned()).or_default().insert(partition, epoch);
        let start = start.map(|start| u64::try_from(start).unwrap_or_default());
        let owned = Owned {
            member,
            topic: Topic::new(topic),
            partition,
            flight: Flight::new(start.unwrap_or(0), self.spec.ack_deadline),
            bytes: 0,
            recent: Recent::new(WINDOW, None),
            committed: if start.is_some() { None } else { Some(0) },
            seek: seek.to_owned(),
            leaving: false,
            // Whatever it was when it was ours before, it is resumed.
            paused: true,
        };
        state.owned.insert(epoch, owned);
        state.refusal = None;
    }

    /// The last epoch that was begun.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// How many messages of a partition may wait: as many as the consumer takes at once, or more.
    pub(super) fn plenty(&self) -> usize {
        self.spec.max_in_flight.max(PLENTY)
    }

    /// Adds what has been read; returns whether it is enough for now.
    pub(super) fn push(&self, read: &mut Decoder) -> bool {
        {
            let mut inbox = lock(&self.inbox);
            let (messages, bytes) = read.read();
            inbox.messages += messages;
            inbox.bytes += bytes;
            inbox.runs.append(&mut read.take());
        }
        self.arrived.notify_waiters();
        self.ahead().is_enough(self.plenty())
    }

    /// How far reading is ahead, as far as can be told without looking into the state.
    pub(super) fn ahead(&self) -> Ahead {
        let inbox = lock(&self.inbox);
        let waiting = inbox.placed.waiting + inbox.messages;
        Ahead { waiting, bytes: inbox.placed.bytes + inbox.bytes }
    }

    /// Puts what has been read in its place. A partition that was given up and taken anew since
    /// starts behind what is committed: what was read before does not belong in it, and comes
    /// again.
    pub(super) fn place(&self, state: &mut State) {
        let runs = {
            let mut inbox = lock(&self.inbox);
            (inbox.messages, inbox.bytes) = (0, 0);
            std::mem::take(&mut inbox.runs)
        };
        for run in runs {
            let epoch = state.epoch_of(&run.topic.name, run.partition);
            let owned = epoch.filter(|epoch| *epoch <= run.epoch);
            let Some(owned) = owned.and_then(|epoch| state.owned.get_mut(&epoch)) else { continue };
            for (offset, kept) in run.messages() {
                owned.place(offset, kept);
            }
        }
        self.note(state);
    }

    /// Notes how far reading is ahead in all places.
    fn note(&self, state: &State) {
        lock(&self.inbox).placed = state.ahead(|_| true);
    }

    /// Waits until something is acknowledged or `limit` is there.
    pub(super) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        limit: Duration,
    ) -> MutexGuard<'a, State> {
        match self.changed.wait_timeout(state, limit) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }

    /// Whether a member is certainly in its group.
    fn holds(&self, state: &State, member: usize) -> bool {
        let pulse = state.pulses.get(member);
        pulse.is_some_and(|p| !p.doubtful && p.at.elapsed() < self.kafka.0.options.session / 2)
    }

    fn poll(&self, max: usize) -> Result<(Vec<Delivery>, Option<Duration>), TransportError> {
        let mut state = self.state();
        if state.closing {
            return Err(TransportError::Unavailable("the subscription is closed".into()));
        }
        self.place(&mut state);
        let now = self.started.elapsed();
        let held: usize = state.owned.values().map(|owned| owned.flight.in_flight()).sum();
        let mut room = max.min(self.spec.max_in_flight.saturating_sub(held));
        let mut all: Vec<Batch> = Vec::new();
        // Another partition comes first each time, so that none starves the others.
        state.turn = state.turn.wrapping_add(1);
        let skip = state.turn % state.owned.len().max(1);
        let epochs: Vec<u64> = state.owned.keys().copied().collect();
        let sure: Vec<bool> =
            (0..state.pulses.len()).map(|member| self.holds(&state, member)).collect();
        for epoch in epochs.iter().cycle().skip(skip).take(epochs.len()) {
            let usable = |owned: &&mut Owned| !owned.leaving && sure[owned.member];
            let Some(owned) = state.owned.get_mut(epoch).filter(usable) else { continue };
            let taken: Vec<_> = match max {
                0 => owned.flight.take_oldest(now).into_iter().collect(),
                _ => owned.flight.take(room, now),
            };
            room = room.saturating_sub(taken.len());
            if !taken.is_empty() {
                let (topic, partition) = (owned.topic.clone(), owned.partition);
                all.push(Batch { epoch: *epoch, topic, partition, taken });
            }
        }
        self.note(&state);
        if all.is_empty() {
            let due = state.owned.values().filter_map(|owned| owned.flight.due()).min();
            return state.refusal.as_ref().map_or(Ok((vec![], due)), |why| Err(setup(why.clone())));
        }
        // Copied while the member's thread may go on.
        drop(state);
        let mut deliveries = Vec::with_capacity(all.iter().map(|batch| batch.taken.len()).sum());
        all.into_iter().for_each(|batch| deliveries.extend(batch.deliveries()));
        Ok((deliveries, None))
    }

    /// Does something with the partition that a token belongs to.
    fn with<T>(
        &self,
        state: &mut State,
        token: &Token,
        act: impl FnOnce(&mut Owned, u64, u32) -> Result<T, Stale>,
    ) -> Result<T, TransportError> {
        let (epoch, attempt) = token.delivery().ok_or(TransportError::Expired)?;
        let epoch = u64::try_from(epoch).map_err(|_| TransportError::Expired)?;
        let member = state.owned.get(&epoch).map(|owned| owned.member);
        if !member.is_some_and(|member| self.holds(state, member)) {
            return Err(TransportError::Expired);
        }
        let owned = state.owned.get_mut(&epoch).ok_or(TransportError::Expired)?;
        let place = token.position.offset + 1;
        act(owned, place, attempt).map_err(|Stale| TransportError::Expired)
    }

    fn close(&self) {
        self.state().closing = true;
        self.changed.notify_all();
    }
}

impl Owned {
    /// A message that has been read gets its place, unless it has been there before.
    fn place(&mut self, offset: i64, kept: Kept) {
        let id = kept.id();
        let place = u64::try_from(offset).unwrap_or_default() + 1;
        let before = id.as_ref().and_then(|id| self.recent.get(id)).copied();
        if before.is_some_and(|before| before < offset) {
            self.flight.skip_to(place);
            return;
        }
        if let Some(id) = id {
            self.recent.put(id, offset);
        }
        if place > self.flight.read_to() {
            self.bytes += kept.len();
            let key = kept.key().map(|key| Key::of(&key));
            self.flight.push(place, key, kept);
        }
    }

    /// A message is dealt with, and is returned.
    fn ack(&mut self, place: u64, attempt: u32) -> Result<Option<Kept>, Stale> {
        let kept = self.flight.ack(place, attempt)?;
        self.bytes = self.bytes.saturating_sub(kept.as_ref().map_or(0, Kept::len));
        Ok(kept)
    }
}

impl State {
    /// How far reading is ahead in some partitions.
    pub(super) fn ahead(&self, of: impl Fn(&Owned) -> bool) -> Ahead {
        let mut ahead = Ahead::default();
        for owned in self.owned.values().filter(|owned| of(owned)) {
            ahead.waiting += owned.flight.waiting();
            ahead.bytes += owned.bytes;
        }
        ahead
    }

    fn epoch_of(&self, topic: &str, partition: i32) -> Option<u64> {
        self.places.get(topic)?.get(&partition).copied()
    }

    pub(super) fn find(&mut self, topic: &str, partition: i32) -> Option<&mut Owned> {
        let epoch = self.epoch_of(topic, partition)?;
        self.owned.get_mut(&epoch)
    }

    /// A partition is not ours any more: what is in flight of it is somebody else's.
    pub(super) fn give_up(&mut self, topic: &str, partition: i32) {
        let epoch = self.places.get_mut(topic).and_then(|places| places.remove(&partition));
        if let Some(epoch) = epoch {
            self.owned.remove(&epoch);
        }
    }

    /// Nothing of a member is ours any more.
    pub(super) fn give_up_all(&mut self, member: usize) {
        let ours = |owned: &&Owned| owned.member == member;
        let gone: Vec<(String, i32)> = self
            .owned
            .values()
            .filter(ours)
            .map(|owned| ((*owned.topic.name).to_owned(), owned.partition))
            .collect();
        for (topic, partition) in gone {
            self.give_up(&topic, partition);
        }
    }
}

impl Subscription for KafkaSubscription {
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
            let (mut result, mut done) = (Ok(()), Vec::with_capacity(tokens.len()));
            {
                let mut state = self.inner.state();
                for token in tokens {
                    match self.inner.with(&mut state, token, Owned::ack) {
                        Ok(kept) => done.push(kept),
                        Err(error) => result = Err(error),
                    }
                }
            }
            // Not while others wait for the state.
            drop(done);
            // The member's thread commits what this makes the contiguous prefix; until then, a
            // crash means that it comes again.
            self.inner.changed.notify_all();
            result
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a Token,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let not_before = self.inner.started.elapsed() + delay;
            let mut state = self.inner.state();
            let nack = |owned: &mut Owned, place, n| owned.flight.nack(place, n, not_before);
            let done = self.inner.with(&mut state, token, nack);
            self.inner.changed.notify_all();
            done
        })
    }

    fn extend<'a>(&'a self, tokens: &'a [Token]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let now = self.inner.started.elapsed();
            let mut state = self.inner.state();
            if tokens.is_empty() {
                state.owned.values_mut().for_each(|owned| owned.flight.extend_all(now));
            }
            let mut result = Ok(());
            for token in tokens {
                let extend = |owned: &mut Owned, place, n| owned.flight.extend(place, n, now);
                result = result.and(self.inner.with(&mut state, token, extend));
            }
            result
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            self.inner.close();
            let threads = std::mem::take(&mut *lock(&self.threads));
            let ended = tokio::task::spawn_blocking(move || {
                threads.into_iter().for_each(|thread| drop(thread.join()));
            });
            // Without a broker there is nobody to say goodbye to: the session runs out.
            match tokio::time::timeout(self.inner.kafka.0.options.timeout * 2, ended).await {
                Ok(ended) => ended.map_err(gone),
                Err(_) => Err(TransportError::Unavailable("the group does not answer".into())),
            }
        })
    }
}

impl Drop for KafkaSubscription {
    fn drop(&mut self) {
        // The threads leave the group, so that others need not wait for the session to end.
        self.inner.close();
    }
}
