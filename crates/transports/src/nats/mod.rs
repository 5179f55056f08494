//! NATS JetStream.
//!
//! * A stream per service domain. A message has the subject `TOPIC.pK`, where K is the partition of
//!   its key (12 by default) or the tenant's own partition.
//! * A durable pull consumer per subscription and partition, with a filter for each of the
//!   subscription's topics, and one owner at a time; see `group.rs`. Its acknowledgement floor is
//!   the cursor: a new owner creates its own durable consumer, which starts after it.
//! * JetStream does not keep the order when it redelivers, so it never redelivers: a message that
//!   is handed back or late is delivered again from memory, and the followers of its key after it.
//! * Duplicates are recognised by `Nats-Msg-Id`, within the stream's duplicate window.
//!
//! JetStream acknowledges a message before it is on the disk unless the server has
//! `sync_interval: always`: after a power cut the last two minutes may be gone from a stream with
//! one replica. [`Nats::connect`] warns unless [`NatsOptions::monitor`] proves otherwise.

mod acks;
mod bucket;
mod durable;
mod group;
mod plan;
mod publish;
mod reader;
mod secure;
mod subscription;
mod sync;
mod topology;
mod users;
mod wire;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::context::{Context, ContextBuilder};
use async_nats::{Client, Event, ServerError};
use chapar_core::port::{
    BoxFuture, Difference, Features, Outgoing, ReadFrom, Reader, Receipt, SeekTo, Subscription,
    SubscriptionSpec, TopicSpec, Topology, Transport, TransportError,
};
use tokio::sync::{OnceCell, Semaphore};
use tracing::warn;

use self::acks::Acks;
pub use self::secure::NatsLogin;
pub use self::sync::Syncing;
use self::topology::Domain;
pub use self::users::setup_files;

/// How to use a NATS server.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Names this process; must differ between processes that run at the same time. Default
    /// random.
    pub owner: String,
    /// The first segment that all topics of a system share, if they do: the service is then the
    /// second. Default none.
    pub prefix: Option<String>,
    /// Partitions per stream; cannot be changed later. Default 12.
    pub partitions: u32,
    /// Tenants with a partition of their own, numbered from `partitions` upwards. Default none.
    pub own_partitions: BTreeMap<String, u32>,
    /// Replicas of streams. Default 1.
    pub replicas: usize,
    /// Retention of streams that declare none. Default 30 days.
    pub retention: Duration,
    /// How long the server remembers ids for deduplication. Default 2 min.
    pub duplicate_window: Duration,
    /// The lease: how long a crashed process keeps its partitions. Default 4 s.
    pub lease: Duration,
    /// The most publishes that wait for their acknowledgement, over all batches. Default 8192.
    pub max_ack_inflight: usize,
    /// How long to wait for the server's answer. Default 5 s.
    pub timeout: Duration,
    /// The key-value bucket with the ownership of partitions. Default `chapar`.
    pub bucket: String,
    /// The server's monitoring address, `host:port`, to check whether it syncs. Default none.
    pub monitor: Option<String>,
    /// The service that this process belongs to, on a server where each service has its own
    /// rights: it then creates nothing, and reads from the service's own stream. Default none.
    pub service: Option<String>,
    /// Whether [`Transport::plan`] asks for what such services need: a stream and a bucket for
    /// each that reads something. Default false.
    pub isolated: bool,
    /// Certificates and secrets in files. Default none.
    pub login: NatsLogin,
}

impl Default for NatsOptions {
    fn default() -> Self {
        NatsOptions {
            owner: format!("{:016x}", fastrand::u64(..)),
            prefix: None,
            partitions: 12,
            own_partitions: BTreeMap::new(),
            replicas: 1,
            retention: Duration::from_secs(30 * 24 * 3600),
            duplicate_window: Duration::from_secs(120),
            lease: Duration::from_secs(4),
            max_ack_inflight: 8192,
            timeout: Duration::from_secs(5),
            bucket: "chapar".into(),
            monitor: None,
            service: None,
            isolated: false,
            login: NatsLogin::default(),
        }
    }
}

impl NatsOptions {
    fn own(&self) -> BTreeSet<u32> {
        self.own_partitions.values().copied().collect()
    }

    /// The bucket of a service, or of all.
    fn bucket_of(&self, service: Option<&str>) -> String {
        match service {
            Some(service) => format!("{}_{}", self.bucket, safe(service)),
            None => self.bucket.clone(),
        }
    }

    fn check(&self) -> Result<(), TransportError> {
        let most = topology::MOST;
        if self.partitions == 0 || self.partitions >= most {
            return Err(setup(format!("partitions is {}; give 1 to {most}", self.partitions)));
        }
        for (tenant, own) in &self.own_partitions {
            if *own < self.partitions || *own >= most {
                let first = self.partitions;
                return Err(setup(format!(
                    "the own partition of tenant {tenant} is {own}; give {first} to {most}"
                )));
            }
        }
        if self.max_ack_inflight == 0 {
            return Err(setup("max_ack_inflight is 0; give at least 1".into()));
        }
        Ok(())
    }
}

/// NATS JetStream as a transport. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Nats(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    client: Client,
    context: Context,
    options: NatsOptions,
    /// Streams that were checked, and their partitions.
    streams: Mutex<HashMap<Domain, BTreeSet<u32>>>,
    /// The last permission error. The server reports it on the connection and does not answer the
    /// request.
    violation: Arc<Mutex<Option<String>>>,
    bucket: OnceCell<async_nats::jetstream::kv::Store>,
    /// Where acknowledgements arrive, once something is published.
    acks: OnceCell<Acks>,
    /// Limits the publishes that wait for acknowledgements.
    room: Semaphore,
}

impl Nats {
    /// Connects to `nats://[user:password@]host[:port]`, several of a cluster with commas between;
    /// `tls://` insists on TLS, and so does [`NatsOptions::login`] with certificates.
    ///
    /// Fails with [`TransportError::Setup`] where a retry cannot help: the address is malformed,
    /// the credentials or a certificate are refused, or the server has no JetStream.
    pub async fn connect(url: &str, options: NatsOptions) -> Result<Self, TransportError> {
        options.check()?;
        let connect = options
            .login
            .options(url)?
            .name(format!("chapar {}", options.owner))
            .connection_timeout(options.timeout)
            .request_timeout(Some(options.timeout))
            .reconnect_delay_callback(|tries| {
                Duration::from_millis(50 * tries as u64).min(Duration::from_secs(2))
            });
        let violation: Arc<Mutex<Option<String>>> = Arc::default();
        let heard = violation.clone();
        let connect = connect.event_callback(move |event| {
            if let Event::ServerError(ServerError::Other(error)) = &event
                && error.to_lowercase().contains("permissions violation")
            {
                warn!(error, "permission error from the NATS server");
                *lock(&heard) = Some(error.clone());
            }
            async {}
        });
        let connect = match &options.service {
            Some(service) => connect.custom_inbox_prefix(inbox_of(service)),
            None => connect,
        };
        // The client logs addresses at debug level; the credentials are in the options already.
        let connected = connect.connect(crate::open::shown(url)).await;
        let client = connected.map_err(|error| options.login.explain(url, &error))?;
        let context = ContextBuilder::new().timeout(options.timeout).build(client.clone());
        if !client.server_info().jetstream {
            return Err(setup("JetStream is disabled on the NATS server; enable it".into()));
        }
        let nats = Nats(Arc::new(Shared {
            client,
            context,
            room: Semaphore::new(options.max_ack_inflight),
            acks: OnceCell::new(),
            options,
            streams: Mutex::default(),
            violation,
            bucket: OnceCell::new(),
        }));
        nats.warn_unless_synced().await;
        Ok(nats)
    }

    /// Whether an acknowledged message survives a power cut of its server, as far as
    /// [`NatsOptions::monitor`] tells.
    pub async fn syncing(&self) -> Syncing {
        match &self.0.options.monitor {
            Some(monitor) => sync::ask(monitor, self.0.options.timeout).await,
            None => Syncing::Unknown("no monitoring address is given".into()),
        }
    }

    async fn warn_unless_synced(&self) {
        match self.syncing().await {
            Syncing::Always => {}
            Syncing::Every(interval) => warn!(
                ?interval,
                "the NATS server acknowledges before it syncs; set `sync_interval: always`"
            ),
            Syncing::Unknown(why) => {
                warn!(why, "cannot check whether the NATS server syncs before it acknowledges");
            }
        }
    }

    /// Ensures that the stream of a topic exists; returns its partitions.
    async fn ensure(
        &self,
        domain: &Domain,
        retention: Option<Duration>,
    ) -> Result<BTreeSet<u32>, TransportError> {
        let shared = &*self.0;
        let known = lock(&shared.streams).get(domain).cloned();
        if let (Some(partitions), None) = (known, retention) {
            return Ok(partitions);
        }
        let partitions =
            topology::ensure(&shared.context, domain, retention, &shared.options).await?;
        lock(&shared.streams).insert(domain.clone(), partitions.clone());
        Ok(partitions)
    }

    /// The permission error behind a missing answer, if there was one.
    fn explained(&self, error: TransportError, subject: &str) -> TransportError {
        match (error, lock(&self.0.violation).as_ref()) {
            (TransportError::Unavailable(_), Some(why)) if why.contains(subject) => {
                setup(format!("the NATS server refuses: {why}"))
            }
            (error, _) => error,
        }
    }

    fn domain(&self, topic: &str) -> Result<Domain, TransportError> {
        topology::domain(topic, self.0.options.prefix.as_deref())
    }

    /// The stream of a topic; none where a service reads everything from a stream of its own.
    fn stream_of(&self, topic: &str) -> Option<String> {
        match self.0.options.service {
            Some(_) => None,
            None => self.domain(topic).ok().map(|domain| domain.stream),
        }
    }
}

impl Transport for Nats {
    fn features(&self) -> Features {
        Features {
            ordered_in_flight: false,
            // The topics of a service are in one stream, and one durable consumer reads a partition.
            ordered_topics: true,
            seek_time: true,
            seek_position: true,
            delayed_nack: true,
            // 1 MiB and its headers.
            mebibyte: self.0.client.server_info().max_payload > (1 << 20) + (64 << 10),
            in_store: false,
        }
    }

    fn apply<'a>(
        &'a self,
        topics: &'a [TopicSpec],
        subscriptions: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut domains: BTreeMap<Domain, Duration> = BTreeMap::new();
            for topic in topics {
                let retention = domains.entry(self.domain(&topic.name)?).or_default();
                *retention = topic.retention.max(*retention);
            }
            for (domain, retention) in domains {
                self.ensure(&domain, Some(retention)).await?;
            }
            for spec in subscriptions {
                self.apply_subscription(spec).await?;
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
            let subscription = subscription::NatsSubscription::join(self.clone(), spec).await?;
            Ok(Box::new(subscription) as Box<dyn Subscription>)
        })
    }

    fn seek<'a>(
        &'a self,
        subscription: &'a str,
        to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.seek_group(subscription, to))
    }

    fn read<'a>(
        &'a self,
        topics: &'a [String],
        from: ReadFrom,
    ) -> BoxFuture<'a, Result<Box<dyn Reader>, TransportError>> {
        Box::pin(async move {
            let reader = reader::NatsReader::open(self, topics, from).await?;
            Ok(Box::new(reader) as Box<dyn Reader>)
        })
    }

    fn plan<'a>(
        &'a self,
        wanted: &'a Topology,
    ) -> BoxFuture<'a, Result<Vec<Difference>, TransportError>> {
        Box::pin(self.differences(wanted))
    }

    fn carry_out<'a>(
        &'a self,
        wanted: &'a Topology,
        difference: &'a Difference,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.settle(wanted, difference))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No code under these locks can panic in the middle of a change.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn setup(what: String) -> TransportError {
    TransportError::Setup(what)
}

/// A retryable error, with its sources: the kinds alone say little.
fn unavailable(error: &(dyn Error + 'static)) -> TransportError {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    let text: Vec<String> = chain.map(|error| error.to_string()).collect();
    TransportError::Unavailable(text.join(": "))
}

/// The inbox prefix of a service, to which only that service may subscribe.
fn inbox_of(service: &str) -> String {
    format!("_INBOX_{}", safe(service))
}

/// A name with the characters that durables, streams and buckets allow.
fn safe(name: &str) -> String {
    use sha2::{Digest, Sha256};
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.chars().all(plain) {
        return name.to_owned();
    }
    let hash = Sha256::digest(name.as_bytes());
    let letters: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    format!("{letters}-{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3])
}
