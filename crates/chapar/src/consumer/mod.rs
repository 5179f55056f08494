//! Consumers: who handles which events, and how.

mod admission;
mod batch;
mod failed;
mod gap;
mod item;
mod order;
mod outside;
mod release;
mod runner;

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chapar_core::machine::breaker::Breaker;
use chapar_core::machine::failure::{FailureKind, FailurePolicy};
use chapar_core::machine::retry::RetryPolicy;
use chapar_core::port::BoxFuture;
use chapar_core::{Envelope, Event};
use serde::de::DeserializeOwned;

use crate::cx::Cx;
use crate::failure::Failure;
use crate::push::Endpoint;

pub use gap::{Gap, Missing};
#[cfg(feature = "sqlite")]
pub(crate) use item::Item;
pub(crate) use item::{NAMELESS, fact};
#[cfg(feature = "sqlite")]
pub(crate) use runner::Later;
pub(crate) use runner::Runner;

/// A consumer: a name, the events it handles, and what to do when that fails.
///
/// Per consumer and event, the handler's database effects commit exactly once, and events of
/// one ordering key are applied in order, unless it is [unordered](Consumer::unordered).
pub struct Consumer {
    pub(crate) name: String,
    /// The service's name is not put in front.
    exact: bool,
    /// Topics that were given a handler twice, which is refused at start.
    pub(crate) handled_twice: Vec<String>,
    pub(crate) handlers: HashMap<String, Handling>,
    /// Topics whose events a service outside applies.
    pub(crate) outside: HashMap<String, Endpoint>,
    pub(crate) ordered: bool,
    pub(crate) lanes: usize,
    pub(crate) batch: usize,
    pub(crate) max_in_flight: usize,
    pub(crate) retry: RetryPolicy,
    pub(crate) on_failure: FailurePolicy,
    pub(crate) timeout: Duration,
    pub(crate) stash_for: Duration,
    pub(crate) gap: Gap,
    /// A gap was spoken of, so the versions of aggregates are looked at too.
    pub(crate) by_version: bool,
    pub(crate) by_intent: bool,
    pub(crate) append_only: bool,
    pub(crate) max_bytes_in_flight: usize,
    pub(crate) breaker: Option<(String, Mutex<Breaker>)>,
    pub(crate) serialize_by: Option<Arc<SerializeBy>>,
}

pub(crate) type Handler =
    dyn for<'a> Fn(Arc<Envelope>, &'a mut Cx) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync;

pub(crate) type SetHandler = dyn for<'a> Fn(Vec<Arc<Envelope>>, &'a mut Cx) -> BoxFuture<'a, Result<(), Failure>>
    + Send
    + Sync;

pub(crate) type SerializeBy = dyn Fn(&Envelope) -> Option<String> + Send + Sync;

/// How the events of a topic are handled.
#[derive(Clone)]
pub(crate) enum Handling {
    Each(Arc<Handler>),
    Set(Arc<SetHandler>),
    /// By a handler of the engine, which works on our own tables.
    Own(Arc<Handler>),
}

/// An async function or closure over an event and a [`Cx`] that returns [`Handled`](crate::Handled).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of `{E}`",
    label = "expected `async fn(event: {E}, cx: &mut Cx) -> Handled`",
    note = "a handler takes the event by value and `&mut Cx`, is async, and returns `Handled`"
)]
pub trait HandlerFn<'a, E>: Send + Sync {
    /// What it returns.
    type Future: Future<Output = Result<(), Failure>> + Send + 'a;

    /// Calls it.
    fn call(&self, event: E, cx: &'a mut Cx) -> Self::Future;
}

#[diagnostic::do_not_recommend]
impl<'a, E, F, Fut> HandlerFn<'a, E> for F
where
    F: Fn(E, &'a mut Cx) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), Failure>> + Send + 'a,
{
    type Future = Fut;

    fn call(&self, event: E, cx: &'a mut Cx) -> Fut {
        self(event, cx)
    }
}

impl Consumer {
    /// A consumer of this name. The name is its identity: what it has applied and how far it
    /// has read is kept under it. The service's name is put in front: `booking-held` of the
    /// service `inventory` is `inventory.booking-held`.
    pub fn new(name: impl Into<String>) -> Self {
        Consumer { exact: false, ..Self::named(name) }
    }

    /// A consumer of exactly this name, for one that another program has called so before.
    pub fn named(name: impl Into<String>) -> Self {
        Consumer {
            name: name.into(),
            exact: true,
            handled_twice: Vec::new(),
            handlers: HashMap::new(),
            outside: HashMap::new(),
            ordered: true,
            lanes: 1,
            batch: 100,
            max_in_flight: 1000,
            retry: RetryPolicy::attempts(7),
            on_failure: FailurePolicy::ParkKey,
            timeout: Duration::from_secs(30),
            stash_for: Duration::from_secs(600),
            gap: Gap::default(),
            by_version: false,
            by_intent: false,
            append_only: false,
            max_bytes_in_flight: 64 << 20,
            breaker: None,
            serialize_by: None,
        }
    }

    /// Handles a typed event.
    pub fn on<E, F>(self, handler: F) -> Self
    where
        E: Event + DeserializeOwned + Send + 'static,
        F: for<'a> HandlerFn<'a, E> + 'static,
    {
        let handler: Arc<Handler> =
            Arc::new(move |envelope: Arc<Envelope>, cx: &mut Cx| -> BoxFuture<'_, _> {
                match decoded::<E>(&envelope) {
                    Ok(event) => Box::pin(handler.call(event, cx)),
                    Err(failure) => Box::pin(std::future::ready(Err(failure))),
                }
            });
        self.handling(E::SUBJECT, handler)
    }

    /// Handles the events of one topic.
    pub(crate) fn handling(mut self, topic: &str, handler: Arc<Handler>) -> Self {
        self.handle(topic, Handling::Each(handler));
        self
    }

    /// Handles the events of one topic by a handler of the engine: it begins in the engine's role.
    pub(crate) fn handling_itself(mut self, topic: &str, handler: Arc<Handler>) -> Self {
        self.handle(topic, Handling::Own(handler));
        self
    }

    fn handle(&mut self, topic: &str, handling: Handling) {
        if self.handlers.insert(topic.to_owned(), handling).is_some() {
            self.handled_twice.push(topic.to_owned());
        }
    }

    /// Handles a typed event in sets: all neighbours of a tenant in a transaction at once, at
    /// most [`batch`](Consumer::batch) of them, in the order of each key.
    ///
    /// If it fails the set is halved until the event that fails stands alone. What is emitted
    /// is caused by the first event of the set, unless [`Cx::about`] says by which.
    pub fn on_batch<E, F>(mut self, handler: F) -> Self
    where
        E: Event + DeserializeOwned + Send + 'static,
        F: for<'a> HandlerFn<'a, Vec<E>> + 'static,
    {
        let handler: Arc<SetHandler> =
            Arc::new(move |envelopes: Vec<Arc<Envelope>>, cx: &mut Cx| -> BoxFuture<'_, _> {
                let events: Result<Vec<E>, _> =
                    envelopes.iter().map(|envelope| decoded(envelope)).collect();
                match events {
                    Ok(events) => Box::pin(handler.call(events, cx)),
                    Err(failure) => Box::pin(std::future::ready(Err(failure))),
                }
            });
        self.handle(E::SUBJECT, Handling::Set(handler));
        self
    }

    /// Handles the events of some topics as they are.
    pub fn on_any<F>(mut self, topics: &[&str], handler: F) -> Self
    where
        F: for<'a> HandlerFn<'a, Arc<Envelope>> + 'static,
    {
        let handler: Arc<Handler> =
            Arc::new(move |envelope: Arc<Envelope>, cx: &mut Cx| -> BoxFuture<'_, _> {
                Box::pin(handler.call(envelope, cx))
            });
        for topic in topics {
            self.handle(topic, Handling::Each(handler.clone()));
        }
        self
    }

    /// How many transactions run at once, each on keys of its own. Default 1.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes.max(1);
        self
    }

    /// The most events in one transaction. Default 100.
    pub fn batch(mut self, events: usize) -> Self {
        self.batch = events.max(1);
        self
    }

    /// The most events that are fetched and not yet applied. Default 1,000.
    pub fn max_in_flight(mut self, events: usize) -> Self {
        self.max_in_flight = events.max(1);
        self
    }

    /// The most bytes of events that are fetched and not yet applied, beside
    /// [`max_in_flight`](Consumer::max_in_flight). Default 64 MiB. It may be
    /// exceeded by one message, and by messages that are larger than those fetched before.
    pub fn max_bytes_in_flight(mut self, bytes: usize) -> Self {
        self.max_bytes_in_flight = bytes.max(1);
        self
    }

    /// Rests for `cool_down` when this many events in a row have failed for transient reasons: the downstream of this name, that all handlers need, is away. While it
    /// rests nothing is fetched and no attempt is spent; then one transaction at a time tries.
    pub fn breaker(
        mut self,
        downstream: impl Into<String>,
        failures: u32,
        cool_down: Duration,
    ) -> Self {
        self.breaker = Some((downstream.into(), Mutex::new(Breaker::new(failures, cool_down))));
        self
    }

    /// Gives up the order of keys.
    pub fn unordered(mut self) -> Self {
        self.ordered = false;
        self.on_failure = FailurePolicy::SkipToDlq;
        self
    }

    /// How many attempts an event gets, the first included. Default 7.
    pub fn retry(mut self, attempts: u32) -> Self {
        self.retry.attempts = attempts;
        self
    }

    /// The shortest and the longest pause between attempts. Default 10 s and 10 min.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.retry = self.retry.backoff(min, max);
        self
    }

    /// What happens to an event that failed for good. Default: its key is parked, or, where
    /// the consumer is unordered, it is skipped.
    pub fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.on_failure = policy;
        self
    }

    /// How long a handler may take. Default 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long an event that came before its saga is kept. Default 10 min.
    pub fn stash_for(mut self, time: Duration) -> Self {
        self.stash_for = time;
        self
    }

    /// What to do when an event comes before one that belongs in front of it. Default: wait
    /// for 30 s, then go on without.
    ///
    /// Events that the relay has stamped are looked at in any case. Declaring this has the
    /// versions of aggregates looked at as well, where events have them and no stamp, so it is
    /// for consumers of all events of an aggregate.
    pub fn on_gap(mut self, gap: Gap) -> Self {
        self.gap = gap;
        self.by_version = true;
        self
    }

    /// Applies each intent once: of several events of a tenant with one idempotency key, on
    /// whatever topics, the first is handled, and the others find what it
    /// [answered](Cx::respond). For as long as [`Keep::responses`](chapar_sql::Keep) says.
    pub fn dedupe_by_intent(mut self) -> Self {
        self.by_intent = true;
        self
    }

    /// Declares that this consumer writes what must not be written twice, such as an audit
    /// trail: a [seek](crate::ops::Seek) that would apply an event again is refused.
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// Lets only one transaction of this consumer at a time work on events of a tenant with the
    /// same value, in all processes: for rows that events of different keys share, such as a
    /// room. The values of a whole [`batch`](Consumer::batch) are held until it commits.
    pub fn serialize_by<F>(mut self, value: F) -> Self
    where
        F: Fn(&Envelope) -> Option<String> + Send + Sync + 'static,
    {
        self.serialize_by = Some(Arc::new(value));
        self
    }

    /// Puts the service's name in front, where the name does not have one.
    pub(crate) fn of_service(mut self, service: &str) -> Self {
        let prefix = format!("{service}.");
        if !self.exact && !self.name.starts_with(&prefix) {
            self.name.insert_str(0, &prefix);
        }
        self.exact = true;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The topics it handles.
    pub fn topics(&self) -> Vec<String> {
        let mut topics: Vec<String> = self.handlers.keys().cloned().collect();
        topics.sort();
        topics
    }
}

/// The typed payload; one that does not fit its type fails for good.
pub(crate) fn decoded<E: DeserializeOwned>(envelope: &Envelope) -> Result<E, Failure> {
    // A panic would be retried, and there is nothing to retry in reading the same bytes again. What
    // it says may quote the payload.
    match std::panic::catch_unwind(AssertUnwindSafe(|| envelope.payload.parse())) {
        Ok(parsed) => parsed.map_err(|error| undecodable(&error)),
        Err(_) => {
            let event = std::any::type_name::<E>();
            let message = format!("reading the payload as {event} panicked; see the log");
            Err(Failure::new(FailureKind::Undecodable, message))
        }
    }
}

fn undecodable(error: &chapar_core::PayloadError) -> Failure {
    let mut message = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        message = format!("{message}: {source}");
    }
    Failure::new(FailureKind::Undecodable, message)
}
