//! The loop of a consumer: fetch, apply in lanes, acknowledge.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use chapar_core::machine::breaker::Breaker;
use chapar_core::machine::lanes::Lanes;
use chapar_core::port::{
    AckToken, Delivery, Subscription, SubscriptionSpec, Transport, TransportError,
};
use chapar_sql::{InboxFloor, StoreError};
use jiff::Timestamp;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::chapar::{Chapar, DEPRECATED};
use crate::consumer::Consumer;
use crate::consumer::batch::{Applied, Item};
use crate::consumer::boxes::Verdict;
use crate::consumer::order::arrange;
use crate::cx::States;
use crate::metrics::ConsumerMetrics;
use crate::supervisor::{Ended, Part};

#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) chapar: Chapar,
    pub(crate) consumer: Arc<Consumer>,
    pub(crate) states: Arc<States>,
    pub(crate) metrics: Arc<ConsumerMetrics>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) stop: CancellationToken,
    /// The broker gets copies of dead letters.
    pub(crate) copies: bool,
    /// The deprecated topics that were warned of.
    pub(crate) warned: Arc<Mutex<HashSet<String>>>,
    /// Its failure policy has stopped it.
    pub(crate) retired: Arc<Mutex<bool>>,
    /// Where the consumer came in on its topics.
    pub(crate) floors: Arc<Mutex<HashMap<String, InboxFloor>>>,
}

const ACK_DEADLINE: Duration = Duration::from_secs(60);
const HEARTBEAT: Duration = Duration::from_secs(1);
const RELEASE_EVERY: Duration = Duration::from_millis(250);
/// How long a consumer that waits for an event asks the broker alone for it.
const STUCK: Duration = Duration::from_millis(50);
/// What a message is taken to weigh before any was seen.
const UNKNOWN_SIZE: usize = 64 << 10;
/// How often the store is told that the subscription is attached. Whether a topic was silent is
/// asked by the day.
const NOTE_EVERY: Duration = Duration::from_secs(60);

impl Runner {
    pub(crate) fn spec(&self) -> SubscriptionSpec {
        SubscriptionSpec {
            name: self.consumer.name.clone(),
            topics: self.consumer.topics(),
            ack_deadline: ACK_DEADLINE,
            max_in_flight: self.consumer.max_in_flight,
        }
    }

    pub(crate) async fn run(self) -> Part {
        while !self.stop.is_cancelled() {
            match self.transport.subscribe(&self.spec()).await {
                Ok(subscription) => self.consume(subscription.into()).await,
                Err(error) => {
                    warn!(consumer = self.consumer.name, %error, "cannot subscribe");
                    self.pause(Duration::from_millis(500)).await;
                }
            }
        }
        Ok(match *self.retired.lock().unwrap_or_else(|p| p.into_inner()) {
            true => Ended::Retired("its failure policy stopped it".into()),
            false => Ended::Stopped,
        })
    }

    async fn consume(&self, subscription: Arc<dyn Subscription>) {
        let heartbeat = tokio::spawn(beat(subscription.clone()));
        let mut round = Round {
            lanes: Lanes::new(self.consumer.max_in_flight),
            working: JoinSet::new(),
            delayed: BinaryHeap::new(),
            fetching: None,
            bytes: 0,
            largest: UNKNOWN_SIZE,
            paused: false,
            looked: None,
            releasing: None,
            noted: None,
        };
        while !self.stop.is_cancelled() {
            if let Err(error) = self.turn(&mut round, &subscription).await {
                // Whatever is held here is delivered again.
                warn!(consumer = self.consumer.name, %error, "subscription failed; subscribing again");
                break;
            }
        }
        // What has begun is finished; what has not is delivered again next time.
        while let Some(done) = round.working.join_next().await {
            if let Ok(done) = done {
                let _ = subscription.ack(&done.tokens()).await;
            }
        }
        if let Some(fetching) = round.fetching {
            fetching.abort();
        }
        if let Some(releasing) = round.releasing {
            releasing.abort();
        }
        heartbeat.abort();
        if let Err(error) = subscription.close().await {
            warn!(consumer = self.consumer.name, %error, "cannot leave the subscription; its lease has to expire");
        }
    }

    async fn turn(
        &self,
        round: &mut Round,
        subscription: &Arc<dyn Subscription>,
    ) -> Result<(), TransportError> {
        let releasing = round.releasing.as_ref().is_some_and(|task| !task.is_finished());
        if !releasing && round.looked.is_none_or(|at| at.elapsed() >= RELEASE_EVERY) {
            round.looked = Some(Instant::now());
            match self.asked_to_pause().await {
                Ok(paused) => round.paused = paused,
                Err(error) => {
                    warn!(consumer = self.consumer.name, %error, "cannot read pauses")
                }
            }
            if !self.rests(round) {
                let runner = self.clone();
                let release = async move {
                    if let Err(failure) = runner.release().await {
                        warn!(consumer = runner.consumer.name, %failure, "cannot read stash, replays or parked keys; retrying");
                    }
                };
                // A hundred thousand letters, or a service outside, take their time, and the
                // other keys do not wait for them.
                round.releasing = Some(tokio::spawn(release));
            }
        }
        if round.noted.is_none_or(|at| at.elapsed() >= NOTE_EVERY) {
            round.noted = Some(Instant::now());
            if let Err(error) = self.note_reading().await {
                warn!(consumer = self.consumer.name, %error, "cannot record that topics are read");
            }
        }
        round.wake(Instant::now());
        self.start(round);
        let room = round.room(self.consumer.max_bytes_in_flight);
        let wanted = room > 0 || round.is_stuck();
        if round.fetching.is_none() && wanted && !self.rests(round) {
            // A task of its own: dropped half-way, a fetch would lose what it had taken.
            let (runner, subscription) = (self.clone(), subscription.clone());
            let fetch = async move { runner.fetch(&*subscription, room).await };
            round.fetching = Some(tokio::spawn(fetch));
        }
        let until_wake = round.until_wake(RELEASE_EVERY);
        tokio::select! {
            Some(done) = round.working.join_next() => match done {
                Ok(done) => self.finish(round, done, &**subscription).await?,
                Err(error) => {
                    error!(consumer = self.consumer.name, %error, "a handler panicked");
                    return Err(TransportError::Unavailable("a handler panicked".into()));
                }
            },
            fetched = fetched(&mut round.fetching) => {
                let fetched = fetched?;
                if !fetched.is_empty() {
                    round.largest /= 2;
                }
                for item in fetched {
                    let key = item.arrival.ordering_key.clone().filter(|_| self.consumer.ordered);
                    let tenant = item.arrival.tenant.clone();
                    round.bytes += item.arrival.body.len();
                    round.largest = round.largest.max(item.arrival.body.len());
                    round.lanes.push(&tenant, key, item);
                }
            }
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(until_wake) => {}
        }
        Ok(())
    }

    /// Fetches and reads messages, beside the transactions that are under way.
    async fn fetch(
        &self,
        subscription: &dyn Subscription,
        room: usize,
    ) -> Result<Vec<Item>, TransportError> {
        let fetched = match room {
            0 => subscription.fetch_oldest(STUCK).await?,
            _ => subscription.fetch(room, RELEASE_EVERY).await?,
        };
        let mut items = Vec::with_capacity(fetched.len());
        for delivery in fetched {
            self.warn_of_deprecation(&delivery);
            items.push(self.item(delivery).await);
        }
        if let Err(error) = self.note_floors(&items).await {
            warn!(consumer = self.consumer.name, %error, "cannot record where the subscription began");
        }
        Ok(items)
    }

    /// Notes that the topics are still read, without which a version would seem silent.
    async fn note_reading(&self) -> Result<(), StoreError> {
        let mut tx = self.chapar.store().begin_engine().await?;
        let (name, service) = (&self.consumer.name, self.chapar.service());
        tx.conn().note_reader(name, service, &self.consumer.topics()).await?;
        tx.commit().await
    }

    /// Warns of a deprecated event, once for each topic.
    fn warn_of_deprecation(&self, delivery: &Delivery) {
        let registry = self.chapar.registry();
        let entry = registry.and_then(|registry| registry.entry(&delivery.topic));
        let declared = entry.as_ref().and_then(|entry| entry.contract.deprecated.as_ref());
        let Some(why) = declared.map(String::as_str).or_else(|| delivery.headers.get(DEPRECATED))
        else {
            return;
        };
        self.metrics.add_deprecated(1);
        let mut warned = self.warned.lock().unwrap_or_else(|p| p.into_inner());
        if warned.insert(delivery.topic.clone()) {
            let (consumer, topic) = (&self.consumer.name, &delivery.topic);
            warn!(consumer, topic, why, "reads a deprecated event");
        }
    }

    async fn asked_to_pause(&self) -> Result<bool, StoreError> {
        let mut tx = self.chapar.store().begin_read().await?;
        let paused = tx.conn().is_paused(&self.consumer.name).await?;
        tx.rollback().await?;
        Ok(paused)
    }

    /// Whether nothing new may begin: an operator has paused the consumer, or its circuit breaker
    /// is open.
    fn rests(&self, round: &Round) -> bool {
        let now = self.chapar.clock().now();
        round.paused || self.breaker().is_some_and(|breaker| breaker.rests_until(now).is_some())
    }

    /// Whether what is begun now is a trial of the downstream, of which there is one at a time.
    fn on_trial(&self) -> bool {
        self.breaker().is_some_and(|breaker| breaker.is_trial())
    }

    pub(crate) fn breaker(&self) -> Option<MutexGuard<'_, Breaker>> {
        let (_, breaker) = self.consumer.breaker.as_ref()?;
        Some(breaker.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Starts as many transactions as there are lanes.
    fn start(&self, round: &mut Round) {
        while round.working.len() < self.consumer.lanes && !self.rests(round) {
            if self.on_trial() && !round.working.is_empty() {
                return;
            }
            let taken = round.lanes.take_runs(self.consumer.together());
            if taken.is_empty() {
                return;
            }
            let items = taken.into_iter().map(|taken| taken.item).collect();
            let runner = self.clone();
            round.working.spawn(async move { runner.work(items).await });
        }
    }

    /// Applies a batch and deals with what failed of it.
    pub(crate) async fn work(self, mut items: Vec<Item>) -> Done {
        let keys = Done::count_keys(&items, self.consumer.ordered);
        // Neighbours of one tenant share one switch of tenants; a stable sort keeps each
        // key's order, since a key belongs to one tenant.
        items.sort_by(|a, b| a.arrival.tenant.cmp(&b.arrival.tenant));
        if self.consumer.ordered {
            let same_key = |a: &Item, b: &Item| a.arrival.ordering_key == b.arrival.ordering_key;
            items.chunk_by_mut(same_key).for_each(arrange);
        }
        let mut done = Done { keys, dealt: Vec::new(), later: Vec::new(), stop: false };
        let mut pending = items;
        while !pending.is_empty() {
            let batch = std::mem::take(&mut pending);
            let all: Vec<Item> = batch.clone();
            let (mut applied, mut failed) = (Applied::default(), Vec::new());
            self.apply(batch, &mut applied, &mut failed).await;
            self.metrics.add_applied(applied.applied);
            self.metrics.add_duplicates(applied.duplicates);
            self.metrics.add_parked(applied.parked);
            if applied.applied > 0
                && let Some(mut breaker) = self.breaker()
            {
                breaker.succeeded();
            }
            self.metrics.add_late(applied.late);
            let held = applied.held;
            let unsettled: HashSet<(u32, u64)> = held
                .iter()
                .chain(failed.iter().flat_map(|f| std::iter::once(&f.item).chain(&f.followers)))
                .map(at)
                .collect();
            done.dealt.extend(all.into_iter().filter(|item| !unsettled.contains(&at(item))));
            self.hold(held, &mut done);
            for failed in failed {
                let copy: Vec<Item> = std::iter::once(failed.item.clone())
                    .chain(failed.followers.iter().cloned())
                    .collect();
                match self.judge(failed).await {
                    Ok(Verdict::GoOn { dealt, rest }) => {
                        done.dealt.extend(dealt);
                        pending.extend(rest);
                    }
                    Ok(Verdict::Retry { items, at }) => done.later.push((at, items)),
                    Ok(Verdict::Stop(items)) => {
                        done.stop = true;
                        let never = Timestamp::MAX;
                        done.later.push((never, items));
                    }
                    Err(failure) => {
                        // The boxes could not be written; nothing is acknowledged.
                        warn!(consumer = self.consumer.name, %failure, "cannot write dead letter or stash; retrying in 500 ms");
                        let soon = self.chapar.clock().now();
                        let soon = soon.saturating_add(Duration::from_millis(500));
                        done.later.push((soon.unwrap_or(Timestamp::MAX), copy));
                    }
                }
            }
        }
        done
    }

    /// Puts items aside that wait for others, each key by itself.
    fn hold(&self, mut held: Vec<Item>, done: &mut Done) {
        let now = self.chapar.clock().now();
        held.sort_by(|a, b| a.arrival.ordering_key.cmp(&b.arrival.ordering_key));
        for run in held.chunk_by_mut(|a, b| a.arrival.ordering_key == b.arrival.ordering_key) {
            run[0].held_since.get_or_insert(now);
            done.later.push((self.look_again(&run[0], now), run.to_vec()));
        }
    }

    async fn finish(
        &self,
        round: &mut Round,
        done: Done,
        subscription: &dyn Subscription,
    ) -> Result<(), TransportError> {
        if done.stop {
            error!(consumer = self.consumer.name, "stopped by its failure policy");
            *self.retired.lock().unwrap_or_else(|p| p.into_inner()) = true;
            self.stop.cancel();
        }
        let dealt: usize = done.dealt.iter().map(|item| item.arrival.body.len()).sum();
        round.bytes = round.bytes.saturating_sub(dealt);
        let tokens = done.tokens();
        let now = self.chapar.clock().now();
        let mut waiting: Vec<(Option<String>, usize)> = done.keys;
        for (at, items) in done.later {
            let key = items[0].arrival.ordering_key.clone().filter(|_| self.consumer.ordered);
            if let Some(place) = waiting.iter_mut().find(|(known, _)| *known == key) {
                place.1 = place.1.saturating_sub(items.len());
            }
            let pause = at.duration_since(now).unsigned_abs().min(Duration::from_secs(3600));
            round.delayed.push(Delayed { at: Instant::now() + pause, key, items });
        }
        let delayed: HashSet<&str> =
            round.delayed.iter().filter_map(|later| later.key.as_deref()).collect();
        for (key, settled) in waiting {
            match key.as_deref() {
                Some(key) if delayed.contains(key) => round.lanes.settle(settled),
                key => round.lanes.done(key, settled),
            }
        }
        // The next transactions need not wait for the acknowledgement: what is lost of it comes
        // again, and is found in the inbox.
        if !self.stop.is_cancelled() {
            self.start(round);
        }
        match subscription.ack(&tokens).await {
            // Another process has the partition now; the inbox keeps it from applying twice.
            Ok(()) | Err(TransportError::Expired) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.stop.cancelled() => {}
        }
    }
}

/// Keeps a subscription alive while handlers run.
async fn beat(subscription: Arc<dyn Subscription>) {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        if let Err(error) = subscription.keep_alive().await {
            warn!(%error, "heartbeat of the subscription failed");
        }
    }
}

type Fetching = JoinHandle<Result<Vec<Item>, TransportError>>;

/// Waits for the fetch under way; for ever, if there is none.
async fn fetched(fetching: &mut Option<Fetching>) -> Result<Vec<Item>, TransportError> {
    let Some(task) = fetching else { return std::future::pending().await };
    let fetched = task.await;
    *fetching = None;
    fetched.unwrap_or_else(|error| Err(TransportError::Unavailable(error.to_string())))
}

fn at(item: &Item) -> (u32, u64) {
    (item.arrival.partition, item.arrival.offset)
}

struct Round {
    lanes: Lanes<Item>,
    working: JoinSet<Done>,
    delayed: BinaryHeap<Delayed>,
    fetching: Option<Fetching>,
    /// The bytes of all that is held here.
    bytes: usize,
    /// How large a message may well be: the largest of the last fetches, the older the less.
    largest: usize,
    /// An operator has paused the consumer.
    paused: bool,
    looked: Option<Instant>,
    releasing: Option<JoinHandle<()>>,
    noted: Option<Instant>,
}

impl Round {
    /// How many more messages may be fetched, within the bounds of messages and of bytes.
    fn room(&self, max_bytes: usize) -> usize {
        let left = max_bytes.saturating_sub(self.bytes);
        if left == 0 {
            return 0;
        }
        self.lanes.room().min((left / self.largest.max(1)).max(1))
    }

    /// Whether everything that is held waits: for its next try, or for an event before it. That
    /// one may still be with the broker, so there has to be room for it.
    fn is_stuck(&self) -> bool {
        self.working.is_empty() && !self.delayed.is_empty()
    }

    /// Puts items whose pause is over back in front of their lanes.
    fn wake(&mut self, now: Instant) {
        while self.delayed.peek().is_some_and(|later| later.at <= now) {
            let Some(Delayed { key, items, .. }) = self.delayed.pop() else { return };
            match key {
                Some(key) => self.lanes.put_back_and(&key, items, arrange),
                None => {
                    self.lanes.settle(items.len());
                    for item in items {
                        let tenant = item.arrival.tenant.clone();
                        self.lanes.push(&tenant, None, item);
                    }
                }
            }
        }
    }

    fn until_wake(&self, limit: Duration) -> Duration {
        let next = self.delayed.peek().map(|later| later.at);
        next.map_or(limit, |at| {
            at.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), limit)
        })
    }
}

/// Items that are tried again later. Their key stays busy until then.
struct Delayed {
    at: Instant,
    key: Option<String>,
    items: Vec<Item>,
}

impl Ord for Delayed {
    // The heap gives its greatest: the one that is due first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Delayed {}

/// How a batch ended.
pub(crate) struct Done {
    /// The keys of the batch, and how many items each had.
    keys: Vec<(Option<String>, usize)>,
    dealt: Vec<Item>,
    pub(crate) later: Vec<(Timestamp, Vec<Item>)>,
    stop: bool,
}

impl Done {
    fn count_keys(items: &[Item], ordered: bool) -> Vec<(Option<String>, usize)> {
        let mut counts: std::collections::HashMap<Option<String>, usize> = Default::default();
        for item in items {
            *counts.entry(item.arrival.ordering_key.clone().filter(|_| ordered)).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    fn tokens(&self) -> Vec<AckToken> {
        self.dealt.iter().filter_map(|item| item.token).collect()
    }
}
