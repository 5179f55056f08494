//! Google Pub/Sub.
//!
//! * A topic per subject, with the subject as its name; the key of a message is its ordering key.
//! * A subscription per consumer and topic, with ordering, exactly-once delivery, retained
//!   messages, a retry policy, and a dead-letter topic as a backstop: a message that the service
//!   gives up is read from there and consumed like any other.
//! * The service gives a key to one process at a time, under leases that this process extends
//!   and watches; see `feeds.rs`. A message that is handed back or late is delivered again from
//!   memory, and the followers of its key after it.
//! * Pub/Sub does not deduplicate by event id. A publishing process remembers what it has
//!   published, and a reading process what it has seen, for [`PubSubOptions::duplicate_window`];
//!   beyond that the inbox removes duplicates.
//!
//! Administration uses Google's client. Its subscriber acknowledges and extends by itself and does
//! not report whether a lease still holds, and its publisher halves the throughput with many keys.
//! So publishing and the three calls of a subscriber are made here, with the same credentials.

mod credentials;
mod feeds;
mod grpc;
mod held;
mod publish;
mod pushed;
mod subscription;
mod topology;
mod url;
mod window;
mod wire;

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use chapar_core::port::{
    BoxFuture, Features, Outgoing, Position, Receipt, SeekTo, Subscription, SubscriptionSpec,
    TopicSpec, Transport, TransportError,
};
use google_cloud_auth::credentials::Credentials;
use google_cloud_gax::error::rpc::Code;
use google_cloud_gax::retry_policy::RetryPolicyExt as _;
use google_cloud_pubsub::client::{SubscriptionAdmin, TopicAdmin};
use google_cloud_pubsub::retry_policy::RetryableErrors;
use tonic::transport::{ClientTlsConfig, Endpoint};
use tracing::warn;

use self::grpc::Line;
pub use self::pushed::{Handed, Pushed};
use self::url::Address;
use crate::recent::Recent;

/// The most events to remember, whatever the window.
const MOST_KNOWN: usize = 16_384;
/// The HTTP/2 flow-control window.
const WINDOW: u32 = 8 << 20;

/// How to use Pub/Sub.
#[derive(Debug, Clone)]
pub struct PubSubOptions {
    /// Names this process. Default random.
    pub owner: String,
    /// The first segment that all topics of a system share, if they do: names of subscriptions
    /// leave it out. Default none.
    pub prefix: Option<String>,
    /// How long topics and subscriptions keep messages: up to 31 and 7 days. Default 7 days.
    pub retention: Duration,
    /// The lease: how long a crashed process keeps its messages, in whole seconds: 1 to 600.
    /// Default 30 s.
    pub lease: Duration,
    /// After how many deliveries the service dead-letters a message: 5 to 100. Default 100.
    pub max_delivery_attempts: i32,
    /// How often to read the service's dead-letter topics. Default 30 s.
    pub drain_every: Duration,
    /// How long published and seen events are remembered for deduplication. Default 2 min.
    pub duplicate_window: Duration,
    /// How long to wait for the service's answer. Default 5 s.
    pub timeout: Duration,
    /// Whether the emulator can seek: Google's cannot, `pstest` can. Default no.
    pub emulator_seeks: bool,
}

impl Default for PubSubOptions {
    fn default() -> Self {
        PubSubOptions {
            owner: format!("{:016x}", fastrand::u64(..)),
            prefix: None,
            retention: Duration::from_secs(7 * 24 * 3600),
            lease: Duration::from_secs(30),
            max_delivery_attempts: 100,
            drain_every: Duration::from_secs(30),
            duplicate_window: Duration::from_secs(120),
            timeout: Duration::from_secs(5),
            emulator_seeks: false,
        }
    }
}

impl PubSubOptions {
    fn check(&self) -> Result<(), TransportError> {
        if !(1..=600).contains(&self.lease.as_secs()) {
            return Err(setup(format!(
                "a lease of {:?} is not allowed; give 1 s to 600 s",
                self.lease
            )));
        }
        if !(5..=100).contains(&self.max_delivery_attempts) {
            let attempts = self.max_delivery_attempts;
            return Err(setup(format!("max_delivery_attempts is {attempts}; give 5 to 100")));
        }
        Ok(())
    }
}

/// Google Pub/Sub as a transport. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PubSub(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    address: Address,
    options: PubSubOptions,
    credentials: Credentials,
    /// The identity of the credentials, without secrets.
    identity: String,
    topic_admin: TopicAdmin,
    subscription_admin: SubscriptionAdmin,
    endpoint: Endpoint,
    seeks: bool,
    /// Topics that are known to exist.
    topics: Mutex<HashSet<String>>,
    /// The connections for publishing.
    lines: Vec<Line>,
    published: Mutex<Recent<u128, Position>>,
}

impl PubSub {
    /// Connects to `pubsub://PROJECT`. `?emulator=HOST:PORT` or `PUBSUB_EMULATOR_HOST` selects an
    /// emulator and `?credentials=FILE` the credentials, by default Google's default credentials;
    /// `lease`, `timeout_seconds`, `retention_days` and `max_delivery_attempts` override those of
    /// [`PubSubOptions`].
    ///
    /// Fails with [`TransportError::Setup`] where a retry cannot help: the address is malformed, or
    /// the credentials or the project are refused.
    pub async fn connect(url: &str, mut options: PubSubOptions) -> Result<Self, TransportError> {
        let variable = std::env::var(url::EMULATOR).ok();
        let address = url::read(url, variable.as_deref())?;
        options.lease = address.lease.unwrap_or(options.lease);
        options.timeout = address.timeout.unwrap_or(options.timeout);
        options.retention = address.retention.unwrap_or(options.retention);
        options.max_delivery_attempts =
            address.max_delivery_attempts.unwrap_or(options.max_delivery_attempts);
        options.check()?;
        // The client requires a crypto provider even without TLS. The error means that one is
        // installed already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (credentials, identity) = credentials::find(&address)?;
        let retry = || RetryableErrors.with_time_limit(options.timeout);
        let cannot = |error: google_cloud_gax::client_builder::Error| {
            setup(format!("{} cannot be used: {error}", address.endpoint))
        };
        let topic_admin = TopicAdmin::builder()
            .with_endpoint(&address.endpoint)
            .with_credentials(credentials.clone())
            .with_retry_policy(retry())
            .build()
            .await
            .map_err(cannot)?;
        let subscription_admin = SubscriptionAdmin::builder()
            .with_endpoint(&address.endpoint)
            .with_credentials(credentials.clone())
            .with_retry_policy(retry())
            .build()
            .await
            .map_err(cannot)?;
        let endpoint = endpoint(&address, options.timeout)?;
        let line = || Line::new(endpoint.clone(), credentials.clone(), options.timeout);
        let shared = Shared {
            lines: (0..publish::LINES).map(|_| line()).collect(),
            endpoint,
            seeks: !address.emulator || options.emulator_seeks,
            published: Mutex::new(Recent::new(MOST_KNOWN, Some(options.duplicate_window))),
            topics: Mutex::default(),
            address,
            options,
            credentials,
            identity,
            topic_admin,
            subscription_admin,
        };
        check(&shared).await?;
        Ok(PubSub(Arc::new(shared)))
    }

    /// The project.
    pub fn project(&self) -> &str {
        &self.0.address.project
    }

    /// The endpoint of the service, for calls outside of the transport.
    pub fn endpoint(&self) -> Endpoint {
        self.0.endpoint.clone()
    }

    /// The credentials for such calls.
    pub fn credentials(&self) -> Credentials {
        self.0.credentials.clone()
    }

    fn line(&self) -> Line {
        let shared = &*self.0;
        Line::new(shared.endpoint.clone(), shared.credentials.clone(), shared.options.timeout)
    }
}

impl Transport for PubSub {
    fn forget_published(&self) {
        lock(&self.0.published).clear();
    }

    fn features(&self) -> Features {
        Features {
            ordered_in_flight: false,
            // Pub/Sub does not order messages of different topics.
            ordered_topics: false,
            seek_time: self.0.seeks,
            seek_position: false,
            delayed_nack: true,
            mebibyte: true,
            in_store: false,
        }
    }

    fn apply<'a>(
        &'a self,
        topics: &'a [TopicSpec],
        subscriptions: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut calls = Vec::new();
            for topic in topics {
                calls.push(self.ensure_topic(&topic.name, Some(topic.retention)));
            }
            topology::side_by_side(calls).await?;
            for spec in subscriptions {
                self.ensure_consumer(spec).await?;
            }
            Ok(())
        })
    }

    fn publish(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>> {
        Box::pin(self.publish_all(batch))
    }

    fn subscribe<'a>(
        &'a self,
        spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        Box::pin(async move {
            let subscription = subscription::PubSubSubscription::join(self.clone(), spec).await?;
            Ok(Box::new(subscription) as Box<dyn Subscription>)
        })
    }

    fn seek<'a>(
        &'a self,
        subscription: &'a str,
        to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.seek_consumer(subscription, to))
    }
}

/// Checks that the service answers, knows the project and accepts the credentials.
async fn check(shared: &Shared) -> Result<(), TransportError> {
    let project = format!("projects/{}", shared.address.project);
    let listing = shared.topic_admin.list_topics().set_project(project).set_page_size(1);
    let answer = tokio::time::timeout(shared.options.timeout * 2, listing.send()).await;
    match answer {
        Ok(Ok(_)) => Ok(()),
        // A service that only publishes and reads may lack the right to list.
        Ok(Err(error)) if topology::code(&error) == Some(Code::PermissionDenied) => {
            warn!(
                identity = shared.identity,
                "no right to list topics; the project was not checked"
            );
            Ok(())
        }
        Ok(Err(error)) => Err(shared.explain(&error)),
        Err(_) => {
            Err(TransportError::Unavailable(format!("{} does not answer", shared.address.endpoint)))
        }
    }
}

/// The endpoint of the service. Pings detect a dead connection.
fn endpoint(address: &Address, timeout: Duration) -> Result<Endpoint, TransportError> {
    let odd = |error: tonic::transport::Error| {
        setup(format!("endpoint={} is not an address: {error}", address.endpoint))
    };
    let endpoint = Endpoint::from_shared(address.endpoint.clone())
        .map_err(odd)?
        .connect_timeout(timeout)
        // An answer with a thousand messages should not wait for window updates.
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(timeout)
        .keep_alive_while_idle(true);
    match address.endpoint.starts_with("https://") {
        true => endpoint.tls_config(ClientTlsConfig::new().with_native_roots()).map_err(odd),
        false => Ok(endpoint),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No code under these locks can panic in the middle of a change.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A short fingerprint of an event, with a seed that is random for each process.
fn fingerprint(topic: &str, id: &str) -> u128 {
    static SEEDS: OnceLock<[RandomState; 2]> = OnceLock::new();
    let seeds = SEEDS.get_or_init(Default::default);
    let [high, low] = seeds.each_ref().map(|seed| u128::from(seed.hash_one((topic, id))));
    high << 64 | low
}

fn setup(what: String) -> TransportError {
    TransportError::Setup(what)
}
