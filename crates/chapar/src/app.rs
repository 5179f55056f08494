use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar_core::machine::relay::Plan;
use chapar_core::machine::retry::RetryPolicy;
use chapar_core::port::{BoxFuture, SubscriptionSpec, Transport, TransportError};
use chapar_core::{Violations, rules};
use chapar_sql::{DeclaredTimer, Keep, SqlOutbox, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::chapar::Chapar;
use crate::consumer::{Consumer, HandlerFn, Runner};
use crate::cx::{Cx, States};
use crate::effects::{EffectTask, EffectWorker};
use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::projection::{Builder, Folds, Projection};
use crate::registry::RegistryError;
use crate::saga::SagaKind;
use crate::timers::{TimerHandler, Timers};
use crate::triage::{CANCEL, Copier};

/// Services in one process: their consumers, timers and effects, with the relay beside them.
pub struct App {
    chapar: Chapar,
    transport: Arc<dyn Transport>,
    consumers: Vec<(String, Consumer)>,
    timers: HashMap<(String, String), (Chapar, Arc<TimerHandler>)>,
    /// What is told to whoever looks at sagas from outside.
    declared_timers: Vec<DeclaredTimer>,
    projections: Vec<Folds>,
    effects: HashMap<String, EffectTask>,
    states: States,
    owner: String,
    retry: RetryPolicy,
    stamped: HashSet<String>,
    keep: Keep,
    relays: bool,
    copies: bool,
}

/// Why an [`App`] does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store is not ready; a missing or a newer schema is among the reasons.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A consumer may not read what it subscribes to.
    #[error(transparent)]
    Rules(#[from] Violations),
    /// A schema of the registry cannot be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The subscriptions cannot be made.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// What an [`App`] is made of.
pub(crate) struct Parts {
    pub(crate) runners: Vec<Runner>,
    pub(crate) timers: Timers,
    pub(crate) effects: EffectWorker,
}

/// An [`App`] that runs.
pub struct Running {
    metrics: Metrics,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl App {
    /// An app on a backbone and a transport. `owner` names this process among others.
    pub fn new(chapar: Chapar, transport: Arc<dyn Transport>, owner: impl Into<String>) -> Self {
        App {
            chapar,
            transport,
            consumers: Vec::new(),
            timers: HashMap::new(),
            declared_timers: Vec::new(),
            projections: Vec::new(),
            effects: HashMap::new(),
            states: States::default(),
            owner: owner.into(),
            retry: RetryPolicy::outbox(),
            stamped: HashSet::new(),
            keep: Keep::default(),
            relays: true,
            copies: false,
        }
    }

    /// Adds a consumer of a service; what it emits is the service's.
    pub fn consumer(mut self, service: &str, consumer: Consumer) -> Self {
        self.consumers.push((service.to_owned(), consumer));
        self
    }

    /// Keeps a read model of a service.
    pub fn projection<D>(self, service: &str, projection: Projection<D>) -> Self
    where
        D: Serialize + DeserializeOwned + 'static,
    {
        self.projection_with(service, projection, |consumer| consumer)
    }

    /// As [`App::projection`], with other settings for its consumer.
    pub fn projection_with<D>(
        mut self,
        service: &str,
        projection: Projection<D>,
        settings: impl FnOnce(Consumer) -> Consumer,
    ) -> Self
    where
        D: Serialize + DeserializeOwned + 'static,
    {
        let folds = projection.into_folds();
        self.consumers.push((service.to_owned(), settings(folds.consumer())));
        self.projections.push(folds);
        self
    }

    /// Handles a timer of a saga; the handler gets the saga's key.
    pub fn timer<F>(self, service: &str, saga: SagaKind, timer: &str, handler: F) -> Self
    where
        F: for<'a> HandlerFn<'a, String> + 'static,
    {
        self.timer_that(service, saga, timer, "", handler)
    }

    /// As [`App::timer`], and says what happens when it fires, for whoever looks at a saga from
    /// outside.
    pub fn timer_that<F>(
        mut self,
        service: &str,
        saga: SagaKind,
        timer: &str,
        does: &str,
        handler: F,
    ) -> Self
    where
        F: for<'a> HandlerFn<'a, String> + 'static,
    {
        self.declared_timers.push(DeclaredTimer {
            saga: saga.name().to_owned(),
            name: timer.to_owned(),
            service: service.to_owned(),
            does: does.to_owned(),
        });
        let handler: Arc<TimerHandler> =
            Arc::new(move |key, cx: &mut Cx| -> BoxFuture<'_, Result<(), Failure>> {
                Box::pin(handler.call(key, cx))
            });
        let at = (saga.name().to_owned(), timer.to_owned());
        self.timers.insert(at, (self.chapar.for_service(service), handler));
        self
    }

    /// Handles the wish of an operator to cancel a saga: the handler gets the saga's key, undoes
    /// what was done, and ends it. `chapar sagas cancel` asks for it.
    pub fn on_cancel<F>(self, service: &str, saga: SagaKind, handler: F) -> Self
    where
        F: for<'a> HandlerFn<'a, String> + 'static,
    {
        self.timer_that(service, saga, CANCEL, "an operator has cancelled it", handler)
    }

    /// Adds a kind of call to the outside.
    pub fn effect(mut self, task: EffectTask) -> Self {
        self.effects.insert(task.kind.clone(), task);
        self
    }

    /// Shares a value with all handlers, which get it by [`Cx::state`].
    pub fn state<T: std::any::Any + Send + Sync>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// How often the relay tries an event before it is put into quarantine. Default: 50 times,
    /// over at least six hours.
    pub fn relay_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Stamps the events of these topics with their place among the events of their key, so that
    /// a consumer of several of them keeps the order. With a registry, and a transport that does
    /// not keep the order between topics, those that need it are stamped by themselves.
    pub fn stamp(mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.stamped.extend(topics.into_iter().map(Into::into));
        self
    }

    /// How long things are kept that are done.
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// Publishes a copy of every new dead letter, for whoever reads them on a broker: on the
    /// topic that the profile's `dlq_template` says. What is in the store stays the truth.
    pub fn copy_dead_letters(mut self) -> Self {
        self.copies = true;
        self
    }

    /// Leaves it to other processes to publish what is committed here.
    pub fn without_relay(mut self) -> Self {
        self.relays = false;
        self
    }

    /// Every consumer with each of its topics.
    pub fn subscriptions(&self) -> Vec<(String, String)> {
        let of = |consumer: &Consumer| {
            let name = consumer.name().to_owned();
            consumer.topics().into_iter().map(move |topic| (name.clone(), topic))
        };
        self.consumers.iter().flat_map(|(_, consumer)| of(consumer)).collect()
    }

    /// Checks the set-up, creates the subscriptions and starts everything.
    pub async fn start(self) -> Result<Running, StartError> {
        self.check().await?;
        let metrics = Metrics::default();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (chapar, transport) = (self.chapar.clone(), self.transport.clone());
        let mut stamped = self.stamped.clone();
        if let Some(registry) = chapar.registry()
            && !transport.features().ordered_topics
        {
            stamped.extend(registry.stamped());
        }
        let relay = crate::relay::Relay {
            outbox: Arc::new(SqlOutbox::new(chapar.store().clone())),
            transport: transport.clone(),
            owner: self.owner.clone(),
            plan: Plan { retry: self.retry, ..Plan::default() },
            stamped: stamped.into_iter().collect(),
            metrics: metrics.clone(),
            stop: stop.clone(),
            chapar: chapar.clone(),
        };
        self.declare().await?;
        let (relays, keep) = (self.relays, self.keep);
        for folds in &self.projections {
            let builder = Builder {
                chapar: chapar.clone(),
                transport: transport.clone(),
                folds: folds.clone(),
                owner: self.owner.clone(),
                stop: stop.clone(),
            };
            tasks.spawn(builder.run());
        }
        let copier =
            Copier { chapar: chapar.clone(), transport: transport.clone(), stop: stop.clone() };
        let copies = self.copies;
        let Parts { runners, timers, effects } = self.parts(&metrics, &stop);
        let specs: Vec<SubscriptionSpec> = runners.iter().map(Runner::spec).collect();
        transport.apply(&[], &specs).await?;
        for runner in runners {
            tasks.spawn(runner.run());
        }
        if relays {
            tasks.spawn(async move {
                if let Err(error) = relay.run().await {
                    warn!(error = &error as &dyn std::error::Error, "the relay has stopped");
                }
            });
            tasks.spawn(keep_house(chapar, keep, stop.clone()));
        }
        if copies {
            tasks.spawn(copier.run());
        }
        // What this process has no handlers for is left to those that have.
        if !timers.handlers.is_empty() {
            tasks.spawn(timers.run());
        }
        if !effects.tasks.is_empty() {
            tasks.spawn(effects.run());
        }
        Ok(Running { metrics, stop, tasks })
    }

    /// Writes down what others may know of what runs here.
    pub(crate) async fn declare(&self) -> Result<(), StoreError> {
        let mut tx = self.chapar.store().begin_engine().await?;
        for (service, consumer) in &self.consumers {
            let (name, topics) = (consumer.name(), consumer.topics());
            tx.conn().note_reader(name, service, &topics).await?;
            tx.conn().declare_consumer(name, service, consumer.append_only).await?;
        }
        for folds in &self.projections {
            tx.conn().declare_projection(&folds.name, folds.snapshot_every as i64).await?;
        }
        tx.conn().declare_timers(&self.declared_timers).await?;
        tx.commit().await
    }

    /// Checks the set-up.
    pub(crate) async fn check(&self) -> Result<(), StartError> {
        if let Some(registry) = self.chapar.registry() {
            registry.compile()?;
        }
        self.keep.check()?;
        let store = self.chapar.store();
        store.check_connection().await?;
        store.check_schema().await?;
        store.set_key_template(self.chapar.profile().key_template.as_str()).await?;
        for (service, consumer) in &self.consumers {
            for topic in consumer.topics() {
                rules::check_reader(self.chapar.profile(), &topic, service)?;
                let Some(registry) = self.chapar.registry() else { continue };
                let consumer = consumer.name();
                let entry = registry.entry(&topic);
                match entry.as_ref().map(|entry| &entry.contract.deprecated) {
                    None => warn!(consumer, topic, "a topic that the registry does not know"),
                    Some(Some(why)) => warn!(consumer, topic, why, "a deprecated event is handled"),
                    Some(None) => {}
                }
            }
        }
        Ok(())
    }

    /// What runs of it, the relay aside.
    pub(crate) fn parts(self, metrics: &Metrics, stop: &CancellationToken) -> Parts {
        let states = Arc::new(self.states);
        let runners: Vec<Runner> = self
            .consumers
            .into_iter()
            .map(|(service, consumer)| Runner {
                chapar: self.chapar.for_service(&service),
                metrics: metrics.consumer(&consumer.name),
                consumer: Arc::new(consumer),
                states: states.clone(),
                transport: self.transport.clone(),
                // Its own, so that a consumer can stop by itself.
                stop: stop.child_token(),
                copies: self.copies,
                warned: Default::default(),
                floors: Default::default(),
            })
            .collect();
        let timers = Timers {
            chapar: self.chapar.clone(),
            handlers: self.timers,
            states: states.clone(),
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        let effects = EffectWorker {
            chapar: self.chapar,
            tasks: Arc::new(self.effects),
            states,
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        Parts { runners, timers, effects }
    }
}

/// Tidies the store from time to time; whoever is in the way is met again the next time.
async fn keep_house(chapar: Chapar, keep: Keep, stop: CancellationToken) {
    const EVERY: Duration = Duration::from_secs(30);
    loop {
        match chapar.store().keep_house(&keep).await {
            Ok(kept) => debug!(?kept, "kept house"),
            Err(error) => debug!(%error, "the house is kept another time"),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}

impl Running {
    /// What it has done so far.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Stops fetching, finishes what has begun, and gives leases back; at most until
    /// `deadline`, after which what is left is dropped and done again at the next start.
    pub async fn stop(mut self, deadline: Duration) {
        self.stop.cancel();
        let until = Instant::now() + deadline;
        while !self.tasks.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.tasks.join_next()).await {
                Ok(_) => {}
                Err(_) => {
                    warn!(tasks = self.tasks.len(), "the deadline is over; the rest is dropped");
                    self.tasks.abort_all();
                    return;
                }
            }
        }
    }
}
