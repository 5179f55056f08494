//! The loop of a consumer: fetch, apply in lanes, acknowledge.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use chapar_core::machine::breaker::Breaker;
use chapar_core::machine::failure::FailureKind;
use chapar_core::machine::lanes::Lanes;
use chapar_core::port::{
    AckToken, Delivery, Subscription, SubscriptionSpec, Transport, TransportError,
};
use chapar_sql::{InboxFloor, Pause, StoreError, Tables};
use jiff::Timestamp;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::chapar::{Chapar, DEPRECATED};
use crate::consumer::Consumer;
use crate::consumer::batch::{Applied, Failed};
use crate::consumer::failed::Fate;
use crate::consumer::item::Item;
use crate::consumer::order::arrange;
use crate::cx::States;
use crate::failure::Failure;
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
/// When a message that was handed back may be delivered again.
const HAND_BACK: Duration = Duration::from_secs(1);
/// How recently events must have been applied for the consumer to count as working.
const THRIVES: Duration = Duration::from_secs(10);
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
            // Read before the first fetch: what is fetched is at least as new as the epoch says.
            let epoch = match self.epoch().await {
                Ok(epoch) => epoch,
                Err(error) => {
                    warn!(consumer = self.consumer.name, %error, "cannot read the consumer's epoch");
                    self.pause(Duration::from_millis(500)).await;
                    continue;
                }
            };
            match self.transport.subscribe(&self.spec()).await {
                Ok(subscription) => self.consume(subscription.into(), epoch).await,
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

    pub(crate) async fn epoch(&self) -> Result<i64, StoreError> {
        let mut tx = self.chapar.store().begin_read().await?;
        let epoch = tx.consumers().epoch(&self.consumer.name).await?;
        tx.rollback().await?;
        Ok(epoch)
    }

    async fn consume(&self, subscription: Arc<dyn Subscription>, epoch: i64) {
        let heartbeat = tokio::spawn(beat(subscription.clone()));
        let mut round = Round {
            lanes: Lanes::new(self.consumer.max_in_flight),
            working: JoinSet::new(),
            delayed: BinaryHeap::new(),
            fetching: None,
            inside: HashMap::new(),
            bytes: 0,
            largest: UNKNOWN_SIZE,
            paused: false,
            looked: None,
            releasing: None,
            noted: None,
            epoch,
            moved: false,
            applied_at: None,
        };
        while !self.stop.is_cancelled() {
            if round.moved {
                let consumer = &self.consumer.name;
                info!(consumer, "moved by an operator; discards what was fetched before");
                break;
            }
            if let Err(error) = self.turn(&mut round, &subscription).await {
                // Whatever is held here is delivered again.
                warn!(consumer = self.consumer.name, %error, "subscription failed; subscribing again");
                break;
            }
        }
        // What has begun is finished; what has not is delivered again next time.
        while let Some(done) = round.working.join_next().await {
            if let Ok(done) = done {
                let _ = subscription.ack(&round.tokens(&done)).await;
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
            let (runner, subscription, epoch) = (self.clone(), subscription.clone(), round.epoch);
            let fetch = async move { runner.fetch(&*subscription, room, epoch).await };
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
                    if round.is_inside(&item) {
                        continue;
                    }
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
        epoch: i64,
    ) -> Result<Vec<Item>, TransportError> {
        let fetched = match room {
            0 => subscription.fetch_oldest(STUCK).await?,
            _ => subscription.fetch(room, RELEASE_EVERY).await?,
        };
        let mut items = Vec::with_capacity(fetched.len());
        for delivery in fetched {
            if !self.consumer.handlers.contains_key(&delivery.topic) {
                self.hand_back(subscription, &delivery).await?;
                continue;
            }
            self.warn_of_deprecation(&delivery);
            items.push(self.item(delivery, subscription.spreads_keys(), epoch).await);
        }
        if let Err(error) = self.note_floors(&items).await {
            warn!(consumer = self.consumer.name, %error, "cannot record where the subscription began");
        }
        Ok(items)
    }

    /// Hands a message back whose topic this process has no handler for: another version of the
    /// program, which reads the subscription too, has one.
    async fn hand_back(
        &self,
        subscription: &dyn Subscription,
        delivery: &Delivery,
    ) -> Result<(), TransportError> {
        let first = {
            let mut warned = self.warned.lock().unwrap_or_else(|p| p.into_inner());
            warned.insert(format!("no handler for {}", delivery.topic))
        };
        if first {
            let (consumer, topic) = (&self.consumer.name, &delivery.topic);
            warn!(
                consumer,
                topic, "no handler for this topic; leaves its events to other processes"
            );
        }
        match subscription.nack(&delivery.token, HAND_BACK).await {
            Ok(()) | Err(TransportError::Expired) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Notes that the topics are still read, without which a version would seem silent.
    async fn note_reading(&self) -> Result<(), StoreError> {
        let mut tx = self.chapar.store().begin_engine().await?;
        let (name, service) = (&self.consumer.name, self.chapar.service());
        tx.consumers().note_reader(name, service, &self.consumer.topics()).await?;
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
        let consumer = &self.consumer.name;
        let mut tx = self.chapar.store().begin_read().await?;
        let pause = tx.consumers().pause_of(consumer).await?;
        tx.rollback().await?;
        if pause == Pause::Abandoned {
            return self.end_abandoned_hold().await;
        }
        Ok(pause == Pause::InForce)
    }

    /// Resumes after a seek whose command died. It may have moved the cursors, so all processes
    /// discard what they fetched before.
    async fn end_abandoned_hold(&self) -> Result<bool, StoreError> {
        let consumer = &self.consumer.name;
        let mut tx = self.chapar.store().begin_engine().await?;
        tx.consumers().hold_batches(consumer).await?;
        // Another process may have been faster, or the seek goes on.
        if !tx.consumers().end_abandoned_hold(consumer).await? {
            let pause = tx.consumers().pause_of(consumer).await?;
            tx.rollback().await?;
            return Ok(pause != Pause::None);
        }
        tx.consumers().move_on(consumer).await?;
        tx.commit().await?;
        warn!(consumer, "a seek was abandoned; resuming");
        Ok(false)
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
        let mut done = Done::of(&items, self.consumer.ordered);
        together_by_tenant(&mut items);
        if self.consumer.ordered {
            let same_key = |a: &Item, b: &Item| a.arrival.ordering_key == b.arrival.ordering_key;
            items.chunk_by_mut(same_key).for_each(arrange);
        }
        let mut pending = items;
        while !pending.is_empty() {
            let batch = std::mem::take(&mut pending);
            let all: Vec<Item> = batch.clone();
            let (mut applied, mut failed) = (Applied::default(), Vec::new());
            self.apply(batch, &mut applied, &mut failed).await;
            self.count(&applied);
            done.applied += applied.applied;
            if applied.moved {
                done.moved = true;
                return done;
            }
            let failing = failed.iter().flat_map(|f| std::iter::once(&f.item).chain(&f.followers));
            let unsettled: HashSet<(u32, u64)> =
                applied.held.iter().chain(&applied.paused).chain(failing).map(at).collect();
            done.dealt.extend(all.into_iter().filter(|item| !unsettled.contains(&at(item))));
            self.hold(applied.held, &mut done);
            self.rest(applied.paused, &mut done);
            for failed in failed {
                pending.extend(self.judge(failed, &mut done).await);
            }
        }
        done
    }

    /// Counts what became of a batch, and reports its dead letters.
    pub(crate) fn count(&self, applied: &Applied) {
        self.metrics.add_applied(applied.applied);
        self.metrics.add_duplicates(applied.duplicates);
        self.metrics.add_parked(applied.parked);
        if applied.applied > 0
            && let Some(mut breaker) = self.breaker()
        {
            breaker.succeeded();
        }
        for (item, failure) in &applied.buried {
            if failure.kind() == FailureKind::Late {
                self.metrics.add_late(1);
            }
            self.report_buried(item, failure);
        }
    }

    /// Deals with an item that failed. Returns the followers of its key that go on now.
    async fn judge(&self, failed: Failed, done: &mut Done) -> Vec<Item> {
        let Failed { mut item, failure, followers } = failed;
        let stored = match self.fate(&mut item, &failure) {
            Fate::Stash => self.stash(&item, &failure).await,
            Fate::Bury => self.store_failed(&item, &failure, None).await,
            Fate::Retry(at) => {
                let items = std::iter::once(item).chain(followers).collect();
                done.later.push(Later { at, items, failure: Some(failure) });
                return Vec::new();
            }
            Fate::Stop => {
                done.stop = true;
                let items = std::iter::once(item).chain(followers).collect();
                done.later.push(Later { at: Timestamp::MAX, items, failure: Some(failure) });
                return Vec::new();
            }
        };
        if let Err(failure) = stored {
            // Nothing was stored, so nothing is acknowledged.
            warn!(consumer = self.consumer.name, %failure, "cannot write dead letter or stash; retrying in 500 ms");
            let soon = self.chapar.clock().now().saturating_add(Duration::from_millis(500));
            let items = std::iter::once(item).chain(followers).collect();
            done.later.push(Later { at: soon.unwrap_or(Timestamp::MAX), items, failure: None });
            return Vec::new();
        }
        // Where its key is blocked now, the followers find that out, and whether it is their turn.
        done.dealt.push(item);
        followers
    }

    /// Stores an item in back-off, so that it does not occupy the window any longer; it is tried
    /// again from there. Its followers are parked behind it.
    async fn spill(self, mut items: Vec<Item>, at: Timestamp, failure: Failure) -> Done {
        let mut done = Done::of(&items, self.consumer.ordered);
        let head = items.remove(0);
        match self.store_failed(&head, &failure, Some(at)).await {
            Ok(()) => {
                done.dealt.push(head);
                let rest = self.work(items).await;
                done.dealt.extend(rest.dealt);
                done.later.extend(rest.later);
                done.stop |= rest.stop;
                done.moved |= rest.moved;
            }
            Err(why) => {
                warn!(consumer = self.consumer.name, %why, "cannot store an event in back-off; it stays in memory");
                items.insert(0, head);
                done.later.push(Later { at, items, failure: None });
            }
        }
        done
    }

    /// Puts items aside that wait for others, each key by itself.
    fn hold(&self, held: Vec<Item>, done: &mut Done) {
        let now = self.chapar.clock().now();
        for mut items in by_key(held) {
            items[0].held_since.get_or_insert(now);
            let at = self.look_again(&items[0], now);
            done.later.push(Later { at, items, failure: None });
        }
    }

    /// Puts items aside while the consumer is paused.
    fn rest(&self, paused: Vec<Item>, done: &mut Done) {
        let at = self.chapar.clock().now().saturating_add(RELEASE_EVERY);
        let at = at.unwrap_or(Timestamp::MAX);
        let later = by_key(paused).into_iter().map(|items| Later { at, items, failure: None });
        done.later.extend(later);
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
        round.moved |= done.moved;
        if done.applied > 0 {
            round.applied_at = Some(Instant::now());
        }
        let dealt: usize = done.dealt.iter().map(|item| item.arrival.body.len()).sum();
        round.bytes = round.bytes.saturating_sub(dealt);
        let tokens = round.tokens(&done);
        let now = self.chapar.clock().now();
        let mut waiting: Vec<(Option<String>, usize)> = done.keys;
        let mut spilling: HashSet<String> = HashSet::new();
        for Later { at, items, failure } in done.later {
            let key = items[0].arrival.ordering_key.clone().filter(|_| self.consumer.ordered);
            if let Some(place) = waiting.iter_mut().find(|(known, _)| *known == key) {
                place.1 = place.1.saturating_sub(items.len());
            }
            if let Some(failure) = failure
                && self.crowds(round, key.as_deref(), items.len())
                && !done.stop
            {
                spilling.extend(key);
                let runner = self.clone();
                round.working.spawn(async move { runner.spill(items, at, failure).await });
                continue;
            }
            let pause = at.duration_since(now).unsigned_abs().min(Duration::from_secs(3600));
            round.delayed.push(Delayed { at: Instant::now() + pause, key, items });
        }
        let delayed: HashSet<&str> =
            round.delayed.iter().filter_map(|later| later.key.as_deref()).collect();
        for (key, settled) in waiting {
            match key.as_deref() {
                Some(key) if delayed.contains(key) || spilling.contains(key) => {
                    round.lanes.settle(settled)
                }
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

    /// Whether items in back-off take up so much of the window that other keys starve: a single key
    /// an eighth of it, or all of them half of it. Where nothing succeeds any more, the fault is
    /// not theirs, and the window is the limit of what is fetched.
    fn crowds(&self, round: &Round, key: Option<&str>, items: usize) -> bool {
        let window = self.consumer.max_in_flight;
        let of_key = items + key.map_or(0, |key| round.lanes.waiting(key));
        let delayed: usize = round.delayed.iter().map(|later| later.items.len()).sum();
        let thrives = round.applied_at.is_some_and(|at| at.elapsed() < THRIVES);
        of_key > window / 8 || (thrives && delayed + items > window / 2)
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

/// One message: a stream that was deleted and created gives its positions to other events.
fn name(item: &Item) -> (u32, u64, String) {
    let (partition, offset) = at(item);
    (partition, offset, item.arrival.event_id.clone())
}

fn at(item: &Item) -> (u32, u64) {
    (item.arrival.partition, item.arrival.offset)
}

struct Round {
    lanes: Lanes<Item>,
    working: JoinSet<Done>,
    delayed: BinaryHeap<Delayed>,
    fetching: Option<Fetching>,
    /// All that is held here, with what to acknowledge it by.
    inside: HashMap<(u32, u64, String), AckToken>,
    /// The bytes of all that is held here.
    bytes: usize,
    /// How large a message may well be: the largest of the last fetches, the older the less.
    largest: usize,
    /// An operator has paused the consumer.
    paused: bool,
    looked: Option<Instant>,
    releasing: Option<JoinHandle<()>>,
    noted: Option<Instant>,
    /// How often the consumer had been moved when it subscribed.
    epoch: i64,
    /// An operator has moved it since.
    moved: bool,
    /// When events were last applied.
    applied_at: Option<Instant>,
}

impl Round {
    /// Whether an item is held here already: then it was delivered again, because its lease was
    /// lost while it waits for its next try, and is acknowledged as delivered last.
    fn is_inside(&mut self, item: &Item) -> bool {
        let Some(token) = item.token else { return false };
        self.inside.insert(name(item), token).is_some()
    }

    /// What to acknowledge of a batch; it is not held any more.
    fn tokens(&mut self, done: &Done) -> Vec<AckToken> {
        let of = |item: &Item| self.inside.remove(&name(item)).or(item.token);
        done.dealt.iter().filter_map(of).collect()
    }

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
    pub(crate) later: Vec<Later>,
    applied: u64,
    stop: bool,
    moved: bool,
}

/// Items that are tried again at a time: one that failed or waits, and the rest of its key.
pub(crate) struct Later {
    pub(crate) at: Timestamp,
    pub(crate) items: Vec<Item>,
    /// Why the first one failed, if it did.
    failure: Option<Failure>,
}

impl Done {
    fn of(items: &[Item], ordered: bool) -> Self {
        let mut counts: HashMap<Option<String>, usize> = HashMap::new();
        for item in items {
            *counts.entry(item.arrival.ordering_key.clone().filter(|_| ordered)).or_default() += 1;
        }
        Done {
            keys: counts.into_iter().collect(),
            dealt: Vec::new(),
            later: Vec::new(),
            applied: 0,
            stop: false,
            moved: false,
        }
    }
}

/// Makes items of a tenant neighbours, who share one switch of tenants. A key's items stay
/// together, also one that cannot be read and whose tenant is therefore not known.
fn together_by_tenant(items: &mut [Item]) {
    let mut tenant_of: HashMap<String, String> = HashMap::new();
    for item in items.iter().filter(|item| item.envelope.is_ok()) {
        if let Some(key) = &item.arrival.ordering_key {
            tenant_of.entry(key.clone()).or_insert_with(|| item.arrival.tenant.clone());
        }
    }
    items.sort_by_cached_key(|item| {
        let key = item.arrival.ordering_key.as_ref();
        key.and_then(|key| tenant_of.get(key)).unwrap_or(&item.arrival.tenant).clone()
    });
}

fn by_key(mut items: Vec<Item>) -> Vec<Vec<Item>> {
    items.sort_by(|a, b| a.arrival.ordering_key.cmp(&b.arrival.ordering_key));
    let same = |a: &Item, b: &Item| a.arrival.ordering_key == b.arrival.ordering_key;
    items.chunk_by(same).map(<[Item]>::to_vec).collect()
}
