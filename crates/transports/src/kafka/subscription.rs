//! One process's part of a subscription.
//!
//! The broker assigns partitions to the members of a consumer group; see [`super::member`]. What
//! is in flight of an assigned partition is kept here, under an epoch of its own. Partition
//! ownership is described in [`chapar_core::machine::ownership`].

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use chapar_core::Id;
use chapar_core::machine::flight::{Flight, Key, Stale, Taken};
use chapar_core::machine::ownership::{Holding, Holdings, NotOwner, Pulse};
use chapar_core::port::{
    AckToken, BoxFuture, Delivery, Position, Subscription, SubscriptionSpec, Tracking,
    TransportError,
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
/// At least this many messages are read ahead.
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
    /// Lock order: `state` before `inbox`.
    inbox: Mutex<Inbox>,
    arrived: Notify,
    /// The last epoch that began.
    epoch: AtomicU64,
    /// Signals that something was acknowledged, or that the subscription closes.
    changed: Condvar,
}

/// What members have read and is not yet sorted into its partitions. The consumer sorts it when it
/// fetches: a member's thread would have to wait for the state with every portion.
#[derive(Default)]
struct Inbox {
    /// Each with the last epoch that had begun when it was read.
    runs: Vec<Run>,
    /// The number of their messages, and their bytes.
    messages: usize,
    bytes: usize,
    /// What was sorted into partitions, when last counted.
    placed: Ahead,
}

/// How far reading is ahead of acknowledging.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Messages that wait to be delivered.
    pub(super) waiting: usize,
    /// The bytes of all that are not acknowledged.
    pub(super) bytes: usize,
}

impl Ahead {
    /// Whether reading should wait. See [`Inner::plenty`].
    pub(super) fn is_enough(self, plenty: usize) -> bool {
        self.waiting >= 2 * plenty || self.is_heavy()
    }

    /// Whether reading should wait because of the memory in use, however few messages there are.
    pub(super) fn is_heavy(self) -> bool {
        self.bytes >= HEAVY
    }
}

pub(super) struct State {
    pub(super) closing: bool,
    /// By epoch: each assignment of a partition has its own, which no other has.
    pub(super) owned: Holdings<u64, Owned>,
    /// The epochs, by topic and partition.
    places: HashMap<String, BTreeMap<i32, u64>>,
    /// Whether the process is certainly in its groups, by member.
    pub(super) pulses: Vec<Pulse>,
    /// Why the broker gives us no messages.
    pub(super) refusal: Option<String>,
    turn: usize,
}

/// A partition that this process owns.
pub(super) struct Owned {
    pub(super) member: usize,
    pub(super) topic: Topic,
    pub(super) partition: i32,
    /// Numbers in it are one higher than Kafka's offsets, which begin with 0.
    pub(super) flight: Flight<Kept>,
    /// The bytes of what is in it.
    pub(super) bytes: usize,
    recent: Recent<Id, i64>,
    /// The offset that was last committed; none if it has to be committed again.
    pub(super) committed: Option<u64>,
    /// The id of the last seek that it followed, or empty.
    pub(super) seek: String,
    pub(super) paused: bool,
}

/// Messages taken from one partition.
struct Batch {
    epoch: u64,
    topic: Topic,
    partition: i32,
    taken: Vec<Taken<Kept>>,
}

impl Batch {
    fn deliveries(self) -> impl Iterator<Item = Delivery> {
        let partition = self.topic.code(u32::try_from(self.partition).unwrap_or_default());
        self.taken.into_iter().map(move |Taken { offset, attempt, item }| {
            let position = Position { partition, offset: offset - 1 };
            let tracking = Tracking { epoch: self.epoch, number: offset, attempt };
            item.delivery(&self.topic.name, AckToken::of(position, tracking), attempt)
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
        let pulse = || Pulse::new(kafka.0.options.session, Duration::ZERO);
        let inner = Arc::new(Inner {
            kafka: kafka.clone(),
            spec: spec.clone(),
            started: Instant::now(),
            state: Mutex::new(State {
                closing: false,
                owned: Holdings::default(),
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
        // Create all clients before any thread, so that a failure leaves no thread behind.
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
    /// The time by this process's monotonic clock.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The process owns a partition from now on, in a new epoch. `seek` is the id of the last seek
    /// that it followed, and `start` the offset if it has just followed it.
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
            // It may be paused since an earlier assignment; this makes the member resume it.
            paused: true,
        };
        state.owned.begin(epoch, epoch, owned);
        state.refusal = None;
    }

    /// The last epoch that began.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// How many messages of a partition may wait: as many as the consumer takes at once, or more.
    pub(super) fn plenty(&self) -> usize {
        self.spec.max_in_flight.max(PLENTY)
    }

    /// Adds what has been read; returns whether reading should wait.
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

    /// How far reading is ahead, estimated without locking the state.
    pub(super) fn ahead(&self) -> Ahead {
        let inbox = lock(&self.inbox);
        let waiting = inbox.placed.waiting + inbox.messages;
        Ahead { waiting, bytes: inbox.placed.bytes + inbox.bytes }
    }

    /// Sorts what has been read into its partitions. Messages that were read in an earlier epoch
    /// are dropped: the new epoch starts after the committed offset and reads them again.
    pub(super) fn place(&self, state: &mut State) {
        let runs = {
            let mut inbox = lock(&self.inbox);
            (inbox.messages, inbox.bytes) = (0, 0);
            std::mem::take(&mut inbox.runs)
        };
        for run in runs {
            let epoch = state.epoch_of(&run.topic.name, run.partition);
            let owned = epoch.filter(|epoch| *epoch <= run.epoch);
            let Some(Ok(owned)) = owned.map(|epoch| state.owned.admit(&epoch, epoch)) else {
                continue;
            };
            for (offset, kept) in run.messages() {
                owned.place(offset, kept);
            }
        }
        self.note(state);
    }

    /// Counts how far reading is ahead in all partitions.
    fn note(&self, state: &State) {
        lock(&self.inbox).placed = state.ahead(|_| true);
    }

    /// Waits until something is acknowledged or `limit` is over.
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

    /// Takes what can be delivered now: by `take`, from each partition, given how many more there
    /// may be. Returns also when more may be due.
    fn poll(
        &self,
        max: usize,
        take: impl Fn(&mut Flight<Kept>, usize, Duration) -> Vec<Taken<Kept>>,
    ) -> Result<(Vec<Delivery>, Option<Duration>), TransportError> {
        let mut state = self.state();
        if state.closing {
            return Err(TransportError::Unavailable("the subscription is closed".into()));
        }
        self.place(&mut state);
        let now = self.now();
        state.turn = state.turn.wrapping_add(1);
        let State { owned: holdings, pulses, turn, .. } = &mut *state;
        let in_flight: usize = holdings.items().map(|owned| owned.flight.in_flight()).sum();
        let mut room = max.min(self.spec.max_in_flight.saturating_sub(in_flight));
        let mut all: Vec<Batch> = Vec::new();
        for epoch in holdings.deliverable(*turn) {
            let Ok(owned) = holdings.admit(&epoch, epoch) else { continue };
            if !pulses[owned.member].is_certain(now) {
                continue;
            }
            let taken = take(&mut owned.flight, room, now);
            room = room.saturating_sub(taken.len());
            if !taken.is_empty() {
                let (topic, partition) = (owned.topic.clone(), owned.partition);
                all.push(Batch { epoch, topic, partition, taken });
            }
        }
        self.note(&state);
        if all.is_empty() {
            let due = state.owned.items().filter_map(|owned| owned.flight.due()).min();
            return state.refusal.as_ref().map_or(Ok((vec![], due)), |why| Err(setup(why.clone())));
        }
        // Copy the messages without the lock, so that the member's thread can go on.
        drop(state);
        let mut deliveries = Vec::with_capacity(all.iter().map(|batch| batch.taken.len()).sum());
        all.into_iter().for_each(|batch| deliveries.extend(batch.deliveries()));
        Ok((deliveries, None))
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
        let (now, tracking) = (self.now(), token.tracking()?);
        let State { owned, pulses, .. } = state;
        let owned = owned.admit(&tracking.epoch, tracking.epoch);
        let owned = owned.map_err(|NotOwner| TransportError::Expired)?;
        if !pulses[owned.member].is_certain(now) {
            return Err(TransportError::Expired);
        }
        act(owned, tracking).map_err(|Stale| TransportError::Expired)
    }

    fn close(&self) {
        self.state().closing = true;
        self.changed.notify_all();
    }
}

impl Owned {
    /// Adds a message that has been read, unless its id was seen in the window.
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

    /// Acknowledges a message, and returns it.
    fn ack(&mut self, of: Tracking) -> Result<Option<Kept>, Stale> {
        let kept = self.flight.ack(of.number, of.attempt)?;
        self.bytes = self.bytes.saturating_sub(kept.as_ref().map_or(0, Kept::len));
        Ok(kept)
    }
}

impl State {
    /// How far reading is ahead in some partitions.
    pub(super) fn ahead(&self, of: impl Fn(&Owned) -> bool) -> Ahead {
        let mut ahead = Ahead::default();
        for owned in self.owned.items().filter(|owned| of(owned)) {
            ahead.waiting += owned.flight.waiting();
            ahead.bytes += owned.bytes;
        }
        ahead
    }

    fn epoch_of(&self, topic: &str, partition: i32) -> Option<u64> {
        self.places.get(topic)?.get(&partition).copied()
    }

    pub(super) fn find(&mut self, topic: &str, partition: i32) -> Option<&mut Holding<Owned>> {
        let epoch = self.epoch_of(topic, partition)?;
        self.owned.get_mut(&epoch)
    }

    /// The process does not own a partition any more, and what is in flight of it is dropped.
    pub(super) fn give_up(&mut self, topic: &str, partition: i32) {
        let epoch = self.places.get_mut(topic).and_then(|places| places.remove(&partition));
        if let Some(epoch) = epoch {
            self.owned.end(&epoch);
        }
    }

    /// The process does not own any partition of a member any more.
    pub(super) fn give_up_all(&mut self, member: usize) {
        let of_member = self.owned.items().filter(|owned| owned.member == member);
        let gone: Vec<(String, i32)> =
            of_member.map(|owned| ((*owned.topic.name).to_owned(), owned.partition)).collect();
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
        Box::pin(self.inner.wait_for(wait, move || self.inner.poll(max, Flight::take)))
    }

    fn fetch_oldest(&self, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        let oldest = |flight: &mut Flight<_>, _, now| flight.take_oldest(now).into_iter().collect();
        Box::pin(self.inner.wait_for(wait, move || self.inner.poll(0, oldest)))
    }

    fn ack<'a>(&'a self, tokens: &'a [AckToken]) -> BoxFuture<'a, Result<(), TransportError>> {
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
            // Free the messages without the lock.
            drop(done);
            // The member's thread commits what this makes the contiguous prefix. After a crash
            // before that, the messages are delivered again.
            self.inner.changed.notify_all();
            result
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a AckToken,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let not_before = self.inner.now() + delay;
            let mut state = self.inner.state();
            let nack = |owned: &mut Owned, of: Tracking| {
                owned.flight.nack(of.number, of.attempt, not_before)
            };
            let done = self.inner.with(&mut state, token, nack);
            self.inner.changed.notify_all();
            done
        })
    }

    fn keep_alive(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            // The client's own thread sends the heartbeats of the group.
            let now = self.inner.now();
            let mut state = self.inner.state();
            state.owned.items_mut().for_each(|owned| owned.flight.extend_all(now));
            Ok(())
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            self.inner.close();
            let threads = std::mem::take(&mut *lock(&self.threads));
            let ended = tokio::task::spawn_blocking(move || {
                threads.into_iter().for_each(|thread| drop(thread.join()));
            });
            // Without a broker the group cannot be left: the session times out.
            match tokio::time::timeout(self.inner.kafka.0.options.timeout * 2, ended).await {
                Ok(ended) => ended.map_err(gone),
                Err(_) => {
                    Err(TransportError::Unavailable("the consumer group does not answer".into()))
                }
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
