use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chapar_core::dialect::Dialect;
use chapar_core::machine::retry::RetryPolicy;
use chapar_core::port::{Transport, TransportError};
use chapar_core::profile::ProfileError;
use chapar_core::{Producer, Profile, Violations, rules};
use chapar_sql::{
    DeclaredTimer, Keep, Migration, SqlTransport, Store, StoreError, StoreOptions, Tables,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::chapar::Chapar;
use crate::consumer::{Consumer, Runner};
use crate::cx::States;
use crate::effects::{EffectWorker, Task};
use crate::metrics::Metrics;
use crate::projection::Folds;
#[cfg(feature = "contracts")]
use crate::registry::{BundleSource, FetchError, Registry, RegistryError};
use crate::running::{RunError, Running};
use crate::saga::SagaTimers;
use crate::service::Service;
use crate::supervisor::Patience;
use crate::timers::Timers;

/// Services in one process: their consumers, sagas and effects, with the relay beside them.
///
/// ```no_run
/// use chapar::prelude::*;
/// # fn inventory() -> Service { Service::new("inventory") }
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// App::connect("postgres://localhost/hotel", "nats://localhost:4222")
///     .profile("hotel.toml")
///     .service(inventory())
///     .run_until(ctrl_c())
///     .await?;
/// # Ok(()) }
/// ```
pub struct App {
    place: Place,
    profile: ProfileSource,
    dialect: Option<Arc<dyn Dialect>>,
    #[cfg(feature = "contracts")]
    contracts: Option<Contracts>,
    migrations: Option<Vec<Migration>>,
    pub(crate) owner: String,
    consumers: Vec<(String, Consumer)>,
    timers: Vec<(String, SagaTimers)>,
    pub(crate) projections: Vec<Folds>,
    effects: Vec<Task>,
    states: States,
    pub(crate) retry: RetryPolicy,
    pub(crate) stamped: HashSet<String>,
    pub(crate) keep: Keep,
    pub(crate) relays: bool,
    pub(crate) copies: bool,
    pub(crate) patience: Patience,
}

/// Where the app lives: yet to be opened, or open.
enum Place {
    Urls { store: String, transport: String },
    Open { chapar: Chapar, transport: Arc<dyn Transport> },
}

/// Where the system's profile comes from.
pub enum ProfileSource {
    /// CloudEvents, with any text as a subject; enough to begin with.
    Default,
    /// A TOML file.
    File(PathBuf),
    /// A profile that was read already.
    Ready(Box<Profile>),
}

#[cfg(feature = "contracts")]
enum Contracts {
    Source(String),
    Ready(Registry),
}

impl From<&str> for ProfileSource {
    fn from(path: &str) -> Self {
        ProfileSource::File(path.into())
    }
}

impl From<&Path> for ProfileSource {
    fn from(path: &Path) -> Self {
        ProfileSource::File(path.into())
    }
}

impl From<Profile> for ProfileSource {
    fn from(profile: Profile) -> Self {
        ProfileSource::Ready(Box::new(profile))
    }
}

/// Why an [`App`] does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store is not ready; a missing or a newer schema is among the reasons.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Chapar's tables are not in the store yet.
    #[error(
        "the store {url} lacks {missing} migration(s) of Chapar's tables; run \
         `chapar migrate apply --store {url}`, or have the app do it with App::migrate"
    )]
    Migrate {
        /// The store, without secrets.
        url: String,
        /// How many.
        missing: usize,
    },
    /// The profile cannot be read.
    #[error("the profile {path} cannot be read: {source}")]
    ProfileFile {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The profile is wrong.
    #[error("profile: {0}")]
    Profile(#[from] ProfileError),
    /// The profile's dialect needs more than a name.
    #[error("the dialect of profile {0} needs its Protobuf descriptors; give it with App::dialect")]
    Dialect(String),
    /// A consumer may not read what it subscribes to.
    #[error(transparent)]
    Rules(#[from] Violations),
    /// A schema of the registry cannot be used.
    #[cfg(feature = "contracts")]
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The contracts cannot be fetched.
    #[cfg(feature = "contracts")]
    #[error("contracts: {0}")]
    Contracts(#[from] FetchError),
    /// The broker cannot be reached, or the subscriptions cannot be made.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Two parts have the same name.
    #[error("{0} is registered twice")]
    Twice(String),
    /// The app was made of an open [`Chapar`], which has this already.
    #[error(
        "App::{0} has no effect on an app made by App::new, whose Chapar is open: give it to \
         Chapar::builder, or make the app with App::connect"
    )]
    Open(&'static str),
}

/// What runs of an [`App`], the relay aside.
pub(crate) struct Parts {
    pub(crate) runners: Vec<Runner>,
    pub(crate) timers: Timers,
    pub(crate) effects: EffectWorker,
}

impl App {
    /// An app on a store (`sqlite:FILE`, `postgres://…`) and a transport (`sql:` for the log in
    /// the store itself, `nats://…`, `kafka://…`, `pubsub://project`), each opened when it starts.
    /// A scheme needs the cargo feature of its name.
    pub fn connect(store: impl Into<String>, transport: impl Into<String>) -> Self {
        let place = Place::Urls { store: store.into(), transport: transport.into() };
        Self::at(place, process_name())
    }

    /// An app on a backbone and a transport that are open. `owner` names this process among
    /// others. Profile, dialect and contracts are those of the backbone: setting them here is an
    /// error at the start.
    pub fn new(chapar: Chapar, transport: Arc<dyn Transport>, owner: impl Into<String>) -> Self {
        Self::at(Place::Open { chapar, transport }, owner.into())
    }

    fn at(place: Place, owner: String) -> Self {
        App {
            place,
            profile: ProfileSource::Default,
            dialect: None,
            #[cfg(feature = "contracts")]
            contracts: None,
            migrations: None,
            owner,
            consumers: Vec::new(),
            timers: Vec::new(),
            projections: Vec::new(),
            effects: Vec::new(),
            states: States::default(),
            retry: RetryPolicy::outbox(),
            stamped: HashSet::new(),
            keep: Keep::default(),
            relays: true,
            copies: false,
            patience: Patience::default(),
        }
    }

    /// The system's profile: the path of a TOML file, or a [`Profile`]. Default: CloudEvents, with
    /// any text as a subject.
    pub fn profile(mut self, profile: impl Into<ProfileSource>) -> Self {
        self.profile = profile.into();
        self
    }

    /// The dialect, where the profile's name for it is not enough: Protobuf needs descriptors.
    pub fn dialect(mut self, dialect: Arc<dyn Dialect>) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// The system's released contracts, from a file, `https://`, `gs://` or `s3://`: events that
    /// are not among them are refused, and payloads are checked.
    #[cfg(feature = "contracts")]
    pub fn contracts(mut self, source: impl Into<String>) -> Self {
        self.contracts = Some(Contracts::Source(source.into()));
        self
    }

    /// The system's contracts as a registry that is open.
    #[cfg(feature = "contracts")]
    pub fn registry(mut self, registry: Registry) -> Self {
        self.contracts = Some(Contracts::Ready(registry));
        self
    }

    /// Brings Chapar's tables, and these of yours, up to date when the app starts. Without it, a
    /// store that lacks them is refused with the command that makes them.
    pub fn migrate(mut self, migrations: impl IntoIterator<Item = Migration>) -> Self {
        self.migrations.get_or_insert_default().extend(migrations);
        self
    }

    /// Adds a service.
    pub fn service(mut self, service: Service) -> Self {
        let Service { name, consumers, timers, effects, projections } = service;
        self.consumers.extend(consumers.into_iter().map(|consumer| (name.clone(), consumer)));
        self.timers.extend(timers.into_iter().map(|timer| (name.clone(), timer)));
        self.effects.extend(effects);
        self.projections.extend(projections);
        self
    }

    /// Shares a value with all handlers, which get it by [`Cx::state`](crate::Cx::state).
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
    /// a consumer of several of them keeps the order. With contracts, and a transport that does
    /// not keep the order between topics, those that need it are stamped without this.
    pub fn stamp(mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.stamped.extend(topics.into_iter().map(Into::into));
        self
    }

    /// How long finished rows are kept.
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// Publishes a copy of every new dead letter, for readers on a broker: on the topic that the
    /// profile's `dlq_template` says. Only the letter in the store is ever replayed.
    pub fn copy_dead_letters(mut self) -> Self {
        self.copies = true;
        self
    }

    /// Leaves it to other processes to publish what is committed here.
    pub fn without_relay(mut self) -> Self {
        self.relays = false;
        self
    }

    /// How often in a row a part may break before the app gives up, which is the error of
    /// [`App::run_until`] and [`Running::wait`]. Default: 10, which takes about half a minute.
    pub fn give_up_after(mut self, failures: u32) -> Self {
        self.patience.failures = failures;
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

    /// Starts everything: opens store and transport, checks the set-up, makes the subscriptions.
    pub async fn start(mut self) -> Result<Running, StartError> {
        let (chapar, transport) = self.open().await?;
        Running::start(self, chapar, transport).await
    }

    /// Starts everything and runs until `signal` is done, then stops cleanly. An error if a part
    /// of it keeps failing.
    pub async fn run_until(self, signal: impl Future<Output = ()>) -> Result<(), RunError> {
        self.start().await?.run_until(signal).await
    }

    /// The backbone and the transport, opened if they are not open yet.
    pub(crate) async fn open(&mut self) -> Result<(Chapar, Arc<dyn Transport>), StartError> {
        let (url, to) = match &self.place {
            Place::Open { chapar, transport } => {
                let open = (chapar.clone(), transport.clone());
                self.check_open()?;
                self.bring_up_to_date(open.0.store(), &open.0.profile().name).await?;
                return Ok(open);
            }
            Place::Urls { store, transport } => (store.clone(), transport.clone()),
        };
        let profile = std::mem::replace(&mut self.profile, ProfileSource::Default).read()?;
        let dialect = match self.dialect.take() {
            Some(dialect) => dialect,
            None => profile.dialect().ok_or_else(|| StartError::Dialect(profile.name.clone()))?,
        };
        let store = Store::open(&url, &StoreOptions::default()).await?;
        self.bring_up_to_date(&store, &profile.name).await?;
        let system = profile.name.clone();
        let producer = Producer { service: system.clone(), ..Producer::default() };
        let builder = Chapar::builder(store.clone(), profile, dialect).producer(producer);
        #[cfg(feature = "contracts")]
        let mut builder = builder;
        #[cfg(feature = "contracts")]
        if let Some(contracts) = self.contracts.take() {
            builder = builder.registry(contracts.open().await?);
        }
        let transport: Arc<dyn Transport> = match to.as_str() {
            "sql:" => Arc::new(SqlTransport::new(store, &self.owner)),
            url => open_broker(url, &self.owner, system).await?,
        };
        let chapar = builder.build();
        self.place = Place::Open { chapar: chapar.clone(), transport: transport.clone() };
        Ok((chapar, transport))
    }

    /// Refuses settings that an open backbone has already.
    fn check_open(&self) -> Result<(), StartError> {
        if !matches!(self.profile, ProfileSource::Default) {
            return Err(StartError::Open("profile"));
        }
        if self.dialect.is_some() {
            return Err(StartError::Open("dialect"));
        }
        #[cfg(feature = "contracts")]
        match self.contracts {
            Some(Contracts::Source(_)) => return Err(StartError::Open("contracts")),
            Some(Contracts::Ready(_)) => return Err(StartError::Open("registry")),
            None => {}
        }
        Ok(())
    }

    async fn bring_up_to_date(&mut self, store: &Store, system: &str) -> Result<(), StoreError> {
        if let Some(migrations) = self.migrations.take() {
            store.migrate().await?;
            store.migrate_system(system, &migrations).await?;
        }
        Ok(())
    }

    /// Checks the set-up.
    pub(crate) async fn check(&self, chapar: &Chapar) -> Result<(), StartError> {
        #[cfg(feature = "contracts")]
        if let Some(registry) = chapar.registry() {
            registry.compile()?;
        }
        self.check_names()?;
        self.keep.check()?;
        let store = chapar.store();
        store.check_connection().await?;
        store.check_schema().await.map_err(|error| match error {
            StoreError::MissingMigrations(missing) => {
                StartError::Migrate { url: store.url().to_owned(), missing }
            }
            error => error.into(),
        })?;
        store.check_outbox().await?;
        let catalog = chapar.registry().map(|registry| registry.known());
        store.set_rules(chapar.profile(), catalog.as_deref()).await?;
        for (service, consumer) in &self.consumers {
            for topic in consumer.topics() {
                rules::check_reader(chapar.profile(), &topic, service)?;
                let Some(registry) = chapar.registry() else { continue };
                let consumer = consumer.name();
                let entry = registry.entry(&topic);
                match entry.as_ref().map(|entry| &entry.contract.deprecated) {
                    None => warn!(consumer, topic, "topic is not in the registry"),
                    Some(Some(why)) => warn!(consumer, topic, why, "handles a deprecated event"),
                    Some(None) => {}
                }
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), StartError> {
        let mut seen = HashSet::new();
        for (_, consumer) in &self.consumers {
            if let Some(topic) = consumer.handled_twice.first() {
                let name = consumer.name();
                return Err(StartError::Twice(format!("a handler of {topic} in consumer {name}")));
            }
        }
        let consumers = self.consumers.iter().map(|(_, c)| format!("consumer {}", c.name()));
        let effects = self.effects.iter().map(|task| format!("effect {}", task.kind));
        let timers =
            self.timers.iter().map(|(_, timer)| format!("timer {} {}", timer.saga, timer.name));
        match consumers.chain(effects).chain(timers).find(|name| !seen.insert(name.clone())) {
            Some(name) => Err(StartError::Twice(name)),
            None => Ok(()),
        }
    }

    /// Writes down what runs here, for operators and for other processes.
    pub(crate) async fn declare(&self, chapar: &Chapar) -> Result<(), StoreError> {
        let mut tx = chapar.store().begin_engine().await?;
        for (service, consumer) in &self.consumers {
            let (name, topics) = (consumer.name(), consumer.topics());
            tx.consumers().note_reader(name, service, &topics).await?;
            tx.consumers().declare(name, service, consumer.append_only).await?;
        }
        for folds in &self.projections {
            tx.projections().declare(&folds.name, folds.snapshot_every as i64).await?;
        }
        let timers: Vec<DeclaredTimer> = self.timers.iter().map(declared).collect();
        tx.timers().declare(&timers).await?;
        tx.commit().await
    }

    /// What runs of it, the relay aside.
    pub(crate) fn parts(
        self,
        chapar: &Chapar,
        transport: &Arc<dyn Transport>,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Parts {
        let states = Arc::new(self.states);
        let runners: Vec<Runner> = self
            .consumers
            .into_iter()
            .map(|(service, consumer)| Runner {
                chapar: chapar.for_service(&service),
                metrics: metrics.consumer(&consumer.name),
                consumer: Arc::new(consumer),
                states: states.clone(),
                transport: transport.clone(),
                // Its own, so that a consumer can stop by its failure policy.
                stop: stop.child_token(),
                copies: self.copies,
                warned: Default::default(),
                retired: Default::default(),
                floors: Default::default(),
            })
            .collect();
        let handlers = self.timers.into_iter().map(|(service, timer)| {
            let at = (timer.saga.to_owned(), timer.name.to_owned());
            (at, (chapar.for_service(&service), timer.handler))
        });
        let timers = Timers {
            chapar: chapar.clone(),
            handlers: Arc::new(handlers.collect()),
            states: states.clone(),
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        let tasks: HashMap<String, Task> =
            self.effects.into_iter().map(|task| (task.kind.to_owned(), task)).collect();
        let effects = EffectWorker {
            chapar: chapar.clone(),
            tasks: Arc::new(tasks),
            states,
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        Parts { runners, timers, effects }
    }
}

impl ProfileSource {
    fn read(self) -> Result<Profile, StartError> {
        match self {
            ProfileSource::Default => Ok(Profile::default()),
            ProfileSource::Ready(profile) => Ok(*profile),
            ProfileSource::File(path) => {
                let text = std::fs::read_to_string(&path).map_err(|source| {
                    StartError::ProfileFile { path: path.display().to_string(), source }
                })?;
                Ok(Profile::from_toml(&text)?)
            }
        }
    }
}

#[cfg(feature = "contracts")]
impl Contracts {
    async fn open(self) -> Result<Registry, StartError> {
        match self {
            Contracts::Ready(registry) => Ok(registry),
            Contracts::Source(place) => {
                let source: BundleSource = place.parse()?;
                Ok(Registry::open(source.token_from_env()).await?)
            }
        }
    }
}

fn declared((service, timer): &(String, SagaTimers)) -> DeclaredTimer {
    DeclaredTimer {
        saga: timer.saga.to_owned(),
        name: timer.name.to_owned(),
        service: service.clone(),
        does: timer.does.to_owned(),
    }
}

#[cfg(any(feature = "nats", feature = "kafka", feature = "pubsub"))]
async fn open_broker(
    url: &str,
    owner: &str,
    system: String,
) -> Result<Arc<dyn Transport>, TransportError> {
    let owner = owner.to_owned();
    let options = chapar_transports::OpenOptions { owner, system, ..Default::default() };
    chapar_transports::open(url, options).await
}

#[cfg(not(any(feature = "nats", feature = "kafka", feature = "pubsub")))]
async fn open_broker(_: &str, _: &str, _: String) -> Result<Arc<dyn Transport>, TransportError> {
    let message = "this program was built with `sql:` alone; add a cargo feature of chapar: nats, \
                   kafka or pubsub";
    Err(TransportError::Setup(message.to_owned()))
}

/// A name that no other process has, now or after a restart.
fn process_name() -> String {
    format!("{}-{:016x}", std::process::id(), fastrand::u64(..))
}
