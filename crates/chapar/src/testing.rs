//! Tests of your own consumers, sagas and effects: in memory, by a clock that you turn.
//!
//! A [`Harness`] runs an [`App`] without a relay, a broker, a file or a wait: what is due happens
//! when you say so, one after the other.
//!
//! ```
//! use std::time::Duration;
//! use chapar::prelude::*;
//! use chapar::testing::Harness;
//!
//! #[derive(Event, Serialize, Deserialize)]
//! #[event("hotel.reservation.booking.held.v1", id = reservation)]
//! struct BookingHeld { reservation: String }
//!
//! async fn allocate(held: BookingHeld, cx: &mut Cx) -> Handled {
//!     const ALLOCATE: &str = "insert into allocations (tenant, reservation) values (:tenant, $1)";
//!     cx.execute(ALLOCATE, params![held.reservation]).await?;
//!     applied()
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tables = "create table allocations (tenant text, reservation text)";
//! let app = App::connect("sqlite::memory:", "sql:")
//!     .migrate([Migration::new(1, "allocations", tables)])
//!     .service(Service::new("inventory").consumer(Consumer::new("held").on(allocate)));
//! let mut harness = Harness::of(app).await?;
//!
//! let acme: Tenant = "acme".parse()?;
//! let event = harness.append(&acme, BookingHeld { reservation: "res_1".into() }).await?;
//! harness.replay_contract("inventory.held", &event).await?;
//! harness.turn(Duration::from_secs(60)).await?;
//! assert!(harness.letters().await?.is_empty());
//! # Ok(()) }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chapar_core::dialect::Message;
use chapar_core::port::{AckToken, Clock, Delivery, ManualClock, Position};
use chapar_core::{Envelope, Headers, IntoDraft, Tenant};
use chapar_sql::{Backend, DeadLetter, SqlTransport, Store, StoreError, StoreOptions, Tables};
use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::app::{App, Parts, StartError};
use crate::chapar::{AppendError, Chapar, topic};
use crate::consumer::{Item, Later, Runner};
use crate::failure::Failure;
use crate::metrics::{ConsumerMetrics, Metrics};

/// A store in memory, with our tables. It is gone when its last copy is dropped.
pub async fn store() -> Result<Store, StoreError> {
    let store = Store::open("sqlite::memory:", &StoreOptions::default()).await?;
    store.migrate().await?;
    Ok(store)
}

/// An [`App`] that goes on only when it is told to.
pub struct Harness {
    chapar: Chapar,
    clock: Arc<ManualClock>,
    metrics: Metrics,
    parts: Parts,
    waiting: Vec<Waiting>,
    told: Vec<Arc<Envelope>>,
    read_to: i64,
    delivered: u64,
}

/// Items of a consumer that failed, with the followers of their key, until their next attempt.
struct Waiting {
    runner: usize,
    at: Timestamp,
    items: Vec<Item>,
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// The handler's work is committed.
    Applied,
    /// The event had been applied before, and nothing was done.
    Duplicate,
    /// It failed, and is tried again when the clock says so.
    Retried,
    /// It failed for good.
    DeadLettered,
    /// It waits: behind an earlier event of its key, or for its saga.
    Waits,
}

/// Why a harness does not go on, or a contract does not hold.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// The app does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store is a server's: it could not be looked at as a whole.
    #[error("the harness needs a SQLite store, such as that of `testing::store()`")]
    NotInMemory,
    /// No consumer has this name.
    #[error("there is no consumer {0:?}; there are {1}")]
    NoConsumer(String, String),
    /// The consumer does not handle the event.
    #[error("the consumer {consumer} does not handle {topic}")]
    NotHandled {
        /// The consumer.
        consumer: String,
        /// The topic.
        topic: String,
    },
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An event was not appended.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Something of the engine failed.
    #[error("{0}")]
    Failed(String),
    /// Events keep triggering more events.
    #[error("events keep triggering more events; the harness gave up")]
    Restless,
    /// The first delivery was not applied, so that there is nothing to compare with.
    #[error("{consumer} did not apply the first delivery: {outcome:?}{why}")]
    NotApplied {
        /// The consumer.
        consumer: String,
        /// What became of it.
        outcome: Delivered,
        /// The error of its dead letter, where there is one.
        why: String,
    },
    /// The second delivery was not taken for one.
    #[error("{consumer} took the second delivery for a new event: {outcome:?}")]
    NotDuplicate {
        /// The consumer.
        consumer: String,
        /// What became of it.
        outcome: Delivered,
    },
    /// The second delivery left something behind.
    #[error("{consumer} changed {table} at the second delivery")]
    Changed {
        /// The consumer.
        consumer: String,
        /// The table.
        table: String,
    },
}

impl From<Failure> for HarnessError {
    fn from(failure: Failure) -> Self {
        HarnessError::Failed(failure.to_string())
    }
}

/// More rounds than any flow of events takes.
const MOST_ROUNDS: usize = 10_000;

impl Harness {
    /// A harness for an app on a SQLite store, such as `App::connect("sqlite::memory:", "sql:")`
    /// with [`App::migrate`]. Its clock shows the present and stands.
    pub async fn of(mut app: App) -> Result<Self, HarnessError> {
        // Nothing is published: the harness hands the outbox to the consumers itself.
        let (chapar, transport) = app.open().await?;
        if chapar.store().backend() != Backend::Sqlite {
            return Err(HarnessError::NotInMemory);
        }
        let clock = Arc::new(ManualClock::new(Timestamp::now()));
        let chapar = chapar.with_clock(clock.clone());
        app.check(&chapar).await?;
        app.declare(&chapar).await?;
        let metrics = Metrics::default();
        let parts = app.parts(&chapar, &transport, &metrics, &CancellationToken::new());
        let (waiting, told) = (Vec::new(), Vec::new());
        Ok(Harness { chapar, clock, metrics, parts, waiting, told, read_to: 0, delivered: 0 })
    }

    /// A harness for a backbone that is open, and what `register` adds to its app.
    pub async fn new(
        chapar: Chapar,
        register: impl FnOnce(App) -> App,
    ) -> Result<Self, HarnessError> {
        let transport = Arc::new(SqlTransport::new(chapar.store().clone(), "harness"));
        Self::of(register(App::new(chapar, transport, "harness"))).await
    }

    /// The backbone by the harness's clock; use it for whatever appends.
    pub fn chapar(&self) -> &Chapar {
        &self.chapar
    }

    /// What the clock shows.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Appends an event in a transaction of its own, as a service would, and nothing more: see
    /// [`Harness::settle`].
    pub async fn append(
        &mut self,
        tenant: &Tenant,
        event: impl IntoDraft,
    ) -> Result<Arc<Envelope>, HarnessError> {
        let mut tx = self.chapar.begin(tenant).await?;
        let id = self.chapar.append(&mut tx, tenant, event).await?.event_id;
        tx.commit().await?;
        let mut tx = self.chapar.store().begin_read().await?;
        let events = tx.outbox_rows().appended_after(self.read_to).await?;
        tx.rollback().await?;
        for event in events {
            let envelope = self.decode(event.topic, event.headers, event.body)?;
            if envelope.id.to_string() == id {
                return Ok(Arc::new(envelope));
            }
        }
        let before = self.told.iter().find(|told| told.id.to_string() == id);
        before.cloned().ok_or_else(|| HarnessError::Failed(format!("{id} is not in the outbox")))
    }

    /// Delivers an event to every consumer that handles it, whether they had it before or not; says what
    /// became of it, by consumer.
    pub async fn deliver(
        &mut self,
        envelope: &Envelope,
    ) -> Result<BTreeMap<String, Delivered>, HarnessError> {
        let mut outcomes = BTreeMap::new();
        for runner in 0..self.parts.runners.len() {
            if self.handles(runner, envelope) {
                let outcome = self.deliver_to(runner, envelope).await?;
                outcomes.insert(self.parts.runners[runner].consumer.name.clone(), outcome);
            }
        }
        Ok(outcomes)
    }

    /// Does everything that is due, until nothing is: events to consumers, attempts, timers,
    /// calls to the outside, replays. The clock stands meanwhile.
    pub async fn settle(&mut self) -> Result<(), HarnessError> {
        for _ in 0..MOST_ROUNDS {
            let mut moved = self.hand_on().await?;
            moved |= self.try_again().await?;
            for runner in &self.parts.runners {
                let before = counts(&runner.metrics);
                runner.release().await?;
                moved |= before != counts(&runner.metrics);
            }
            moved |= self.parts.timers.fire_due().await? > 0;
            moved |= self.parts.effects.run_due().await? > 0;
            if !moved {
                return Ok(());
            }
        }
        Err(HarnessError::Restless)
    }

    /// Turns the clock forward, and does everything that has become due.
    pub async fn turn(&mut self, by: Duration) -> Result<(), HarnessError> {
        let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        self.clock.advance(by);
        self.settle().await
    }

    /// The events of a topic that have been handed on so far, in the order of their commits.
    pub fn told(&self, topic: &str) -> Vec<Arc<Envelope>> {
        let of_topic = |told: &&Arc<Envelope>| self.topic(told) == topic;
        self.told.iter().filter(of_topic).cloned().collect()
    }

    /// The open dead letters, newest first.
    pub async fn letters(&self) -> Result<Vec<DeadLetter>, HarnessError> {
        let mut tx = self.chapar.store().begin_read().await?;
        let letters = tx.letters().open(1000).await?;
        tx.rollback().await?;
        Ok(letters)
    }

    /// What has been done so far.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The contract that every consumer keeps: an event that comes again changes nothing.
    ///
    /// Delivers the event twice. The first must be applied, unless it was before; the second must
    /// be recorded as a duplicate, and no row of yours, no event, saga, timer or effect may
    /// differ from before.
    pub async fn replay_contract(
        &mut self,
        consumer: &str,
        envelope: &Envelope,
    ) -> Result<(), HarnessError> {
        let named = |runner: &Runner| runner.consumer.name == consumer;
        let Some(runner) = self.parts.runners.iter().position(named) else {
            let names = self.parts.runners.iter().map(|runner| runner.consumer.name.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(HarnessError::NoConsumer(consumer.to_owned(), names));
        };
        let consumer = consumer.to_owned();
        if !self.handles(runner, envelope) {
            return Err(HarnessError::NotHandled { consumer, topic: self.topic(envelope) });
        }
        let outcome = self.deliver_to(runner, envelope).await?;
        if !matches!(outcome, Delivered::Applied | Delivered::Duplicate) {
            let letters = self.letters().await?;
            let id = envelope.id.to_string();
            let why = letters.iter().find(|letter| letter.arrival.event_id == id);
            let why = why.map(|letter| format!(": {}", letter.error)).unwrap_or_default();
            return Err(HarnessError::NotApplied { consumer, outcome, why });
        }
        let before = self.contents().await?;
        let outcome = self.deliver_to(runner, envelope).await?;
        let after = self.contents().await?;
        if let Some(table) = before.keys().find(|table| before.get(*table) != after.get(*table)) {
            return Err(HarnessError::Changed { consumer, table: table.clone() });
        }
        if outcome != Delivered::Duplicate {
            return Err(HarnessError::NotDuplicate { consumer, outcome });
        }
        Ok(())
    }

    async fn contents(&self) -> Result<BTreeMap<String, Vec<String>>, HarnessError> {
        let mut tx = self.chapar.store().begin_read().await?;
        let contents = tx.survey().contents().await?;
        tx.rollback().await?;
        Ok(contents)
    }

    fn topic(&self, envelope: &Envelope) -> String {
        topic(self.chapar.profile(), envelope)
    }

    fn handles(&self, runner: usize, envelope: &Envelope) -> bool {
        self.parts.runners[runner].consumer.handlers.contains_key(&self.topic(envelope))
    }

    fn decode(
        &self,
        topic: String,
        headers: Headers,
        body: Bytes,
    ) -> Result<Envelope, HarnessError> {
        let message = Message { topic: Some(topic), headers, body };
        let envelope = self.chapar.dialect().decode(&message);
        envelope.map_err(|error| HarnessError::Failed(error.to_string()))
    }

    /// Hands what was appended meanwhile to the consumers.
    async fn hand_on(&mut self) -> Result<bool, HarnessError> {
        let mut tx = self.chapar.store().begin_read().await?;
        let events = tx.outbox_rows().appended_after(self.read_to).await?;
        tx.rollback().await?;
        let moved = !events.is_empty();
        for event in events {
            self.read_to = event.seq;
            let headers = event.headers.clone();
            let told = self.decode(event.topic.clone(), headers, event.body.clone())?;
            self.told.push(Arc::new(told));
            for runner in 0..self.parts.runners.len() {
                if self.parts.runners[runner].consumer.handlers.contains_key(&event.topic) {
                    let key = event.ordering_key.clone();
                    let (topic, headers) = (event.topic.clone(), event.headers.clone());
                    let delivery = self.delivery(topic, key, headers, event.body.clone());
                    self.hand_to(runner, delivery).await;
                }
            }
        }
        Ok(moved)
    }

    async fn deliver_to(
        &mut self,
        runner: usize,
        envelope: &Envelope,
    ) -> Result<Delivered, HarnessError> {
        let encoded = self.chapar.dialect().encode(envelope);
        let message = encoded.map_err(|error| HarnessError::Failed(error.to_string()))?;
        // Not every dialect writes the key down.
        let known = self.told.iter().find(|told| told.id == envelope.id);
        let key = envelope.ordering_key.clone();
        let key = key.or_else(|| known.and_then(|told| told.ordering_key.clone()));
        let delivery = self.delivery(self.topic(envelope), key, message.headers, message.body);
        let metrics = self.parts.runners[runner].metrics.clone();
        let before = counts(&metrics);
        self.hand_to(runner, delivery).await;
        let after = counts(&metrics);
        let outcomes = [
            Delivered::Applied,
            Delivered::Duplicate,
            Delivered::Retried,
            Delivered::DeadLettered,
            Delivered::Waits,
        ];
        let changed = outcomes.into_iter().zip(before.into_iter().zip(after));
        let outcome = changed.into_iter().find(|(_, (before, after))| before != after);
        Ok(outcome.map_or(Delivered::Waits, |(outcome, _)| outcome))
    }

    fn delivery(
        &mut self,
        topic: String,
        key: Option<String>,
        headers: Headers,
        body: Bytes,
    ) -> Delivery {
        self.delivered += 1;
        let position = Position { partition: 0, offset: self.delivered };
        let token = AckToken::unacknowledgeable(position);
        let published_at = self.clock.now();
        Delivery { token, topic, key, headers, body, attempt: 1, published_at }
    }

    /// Gives a delivery to a consumer, unless an earlier one of its key waits there.
    async fn hand_to(&mut self, runner: usize, delivery: Delivery) {
        let consumer = &self.parts.runners[runner];
        let ordered = consumer.consumer.ordered;
        let epoch = consumer.epoch().await.unwrap_or(0);
        let item = consumer.item(delivery, false, epoch).await;
        let key = item.arrival.ordering_key.clone().filter(|_| ordered);
        let earlier = self.waiting.iter_mut().find(|waiting| {
            waiting.runner == runner
                && key.is_some()
                && waiting.items[0].arrival.ordering_key == key
        });
        match earlier {
            Some(waiting) => waiting.items.push(item),
            None => self.work(runner, vec![item]).await,
        }
    }

    /// Applies items of one key, as many in a transaction as the consumer takes.
    async fn work(&mut self, runner: usize, mut items: Vec<Item>) {
        let most = self.parts.runners[runner].consumer.together();
        while !items.is_empty() {
            let mut rest = items.split_off(items.len().min(most));
            let done = self.parts.runners[runner].clone().work(items).await;
            for Later { at, mut items, .. } in done.later {
                // What comes behind it in its key waits as well.
                items.append(&mut rest);
                self.waiting.push(Waiting { runner, at, items });
            }
            items = rest;
        }
    }

    /// Tries again what is due.
    async fn try_again(&mut self) -> Result<bool, HarnessError> {
        let now = self.clock.now();
        let waiting = std::mem::take(&mut self.waiting);
        let (due, later): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|waiting| waiting.at <= now);
        self.waiting = later;
        let moved = !due.is_empty();
        for Waiting { runner, items, .. } in due {
            self.work(runner, items).await;
        }
        Ok(moved)
    }
}

/// In the order of [`Delivered`].
fn counts(metrics: &ConsumerMetrics) -> [u64; 5] {
    [
        metrics.applied(),
        metrics.duplicates(),
        metrics.retries(),
        metrics.dead_letters(),
        metrics.parked(),
    ]
}
