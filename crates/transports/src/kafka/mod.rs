//! Apache Kafka.
//!
//! * A topic per event; the key of a message is its ordering key, so a key has one partition of a
//!   topic. Keys are spread as Java's clients do it (murmur2).
//! * A consumer group per subscription, or one per subscription and topic ([`Groups`]). Partitions
//!   move between processes by cooperative rebalancing. One that is to move is drained first: what
//!   is in flight is waited for, for [`KafkaOptions::drain`] at most.
//! * Only the contiguous prefix of acknowledged messages is committed. A message that is handed
//!   back or late is delivered again from memory, and the followers of its key after it.
//! * The producer is idempotent and waits for all in-sync replicas. Kafka does not deduplicate by
//!   id: a repeated publish is recognised by the process that published before, and by a
//!   subscription that has both in its window; see `../recent.rs`.
//!
//! The order of a key holds within a topic. Between topics the relay's stamps keep it.

mod client;
mod member;
mod options;
mod plan;
mod publish;
mod reader;
mod seek;
mod subscription;
mod topology;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use chapar_core::Id;
use chapar_core::port::{
    BoxFuture, Difference, Features, Outgoing, ReadFrom, Reader, Receipt, SeekTo, Subscription,
    SubscriptionSpec, TopicSpec, Topology, Transport, TransportError,
};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

pub use self::options::{Address, Groups, KafkaOptions, Mechanism, Sasl, Secret, Security};
use self::publish::Producer;
use crate::recent::Recent;

/// Apache Kafka as a transport. Cheap to clone.
#[derive(Clone)]
pub struct Kafka(Arc<Shared>);

struct Shared {
    /// `host:port`, with commas between.
    servers: String,
    options: KafkaOptions,
    producer: Mutex<Producer>,
    /// Topics that are known to exist, with the number of their partitions.
    topics: Mutex<HashMap<String, u32>>,
    /// Recently published ids and their positions.
    published: Mutex<Recent<Id, Receipt>>,
    brokers: usize,
    mebibyte: bool,
    /// The topics that subscriptions of this process read.
    subscriptions: Mutex<HashMap<String, Vec<String>>>,
    /// The last seek of each subscription, once seeks are followed.
    seeks: Mutex<HashMap<String, Arc<seek::Seek>>>,
    watching: tokio::sync::OnceCell<()>,
}

impl Kafka {
    /// Connects to `kafka://[user:password@]host[:port][,host[:port]…][?option=value&…]`; see
    /// [`Address`] for the options, which win over those given here.
    ///
    /// Fails with [`TransportError::Setup`] where a retry cannot help: the address is malformed,
    /// the credentials are refused, the certificate is not trusted, or the broker is too old.
    pub async fn connect(url: &str, options: KafkaOptions) -> Result<Self, TransportError> {
        let Address { servers, options } = Address::parse(url, options)?;
        let opened = tokio::task::spawn_blocking(move || {
            let producer = Producer::open(&servers, &options)?;
            let cluster = producer.survey(options.timeout);
            let cluster = cluster.map_err(|e| client::unanswered(e, &options.security))?;
            Ok::<_, TransportError>((servers, options, producer, cluster))
        });
        let (servers, options, producer, cluster) = opened.await.map_err(gone)??;
        let mebibyte = topology::takes_mebibyte(&servers, &options, &cluster).await?;
        let published = Mutex::new(Recent::new(options.duplicate_window, None));
        Ok(Kafka(Arc::new(Shared {
            servers,
            options,
            producer: Mutex::new(producer),
            topics: Mutex::new(cluster.topics),
            published,
            brokers: cluster.brokers.len(),
            mebibyte,
            subscriptions: Mutex::default(),
            seeks: Mutex::default(),
            watching: tokio::sync::OnceCell::new(),
        })))
    }
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kafka")
            .field("servers", &self.0.servers)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

impl Transport for Kafka {
    fn forget_published(&self) {
        lock(&self.0.published).clear();
    }

    fn features(&self) -> Features {
        Features {
            ordered_in_flight: false,
            // Each topic has partitions of its own, which different processes may own.
            ordered_topics: false,
            seek_time: true,
            seek_position: true,
            delayed_nack: true,
            mebibyte: self.0.mebibyte,
            in_store: false,
        }
    }

    fn apply<'a>(
        &'a self,
        topics: &'a [TopicSpec],
        subscriptions: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            self.apply_topics(topics).await?;
            let read = subscriptions.iter().flat_map(|spec| &spec.topics);
            self.ensure(read.map(String::as_str)).await
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
            self.ensure(spec.topics.iter().map(String::as_str)).await?;
            self.watch_seeks().await;
            lock(&self.0.subscriptions).insert(spec.name.clone(), spec.topics.clone());
            let subscription = subscription::KafkaSubscription::join(self, spec)?;
            Ok(Box::new(subscription) as Box<dyn Subscription>)
        })
    }

    fn seek<'a>(
        &'a self,
        subscription: &'a str,
        to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.seek_all(subscription, to))
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

    fn read<'a>(
        &'a self,
        topics: &'a [String],
        from: ReadFrom,
    ) -> BoxFuture<'a, Result<Box<dyn Reader>, TransportError>> {
        Box::pin(async move {
            let reader = reader::KafkaReader::open(self, topics, from).await?;
            Ok(Box::new(reader) as Box<dyn Reader>)
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No code under these locks can panic in the middle of a change.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn setup(what: String) -> TransportError {
    TransportError::Setup(what)
}

fn unavailable(error: &KafkaError) -> TransportError {
    match code_of(error) {
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed,
        ) => setup(format!("the user of the address has no right to this: {error}")),
        Some(code) if is_too_old(code) => too_old(&error.to_string()),
        _ => TransportError::Unavailable(error.to_string()),
    }
}

/// The code of an error. The client's own function leaves out the errors of admin requests.
fn code_of(error: &KafkaError) -> Option<RDKafkaErrorCode> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    }
}

/// Whether the broker does not know a request that was made.
fn is_too_old(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::UnsupportedFeature | RDKafkaErrorCode::UnsupportedVersion)
}

fn too_old(why: &str) -> TransportError {
    setup(format!(
        "the Kafka broker is too old; name one of 2.4 or newer in the address, or upgrade it: {why}"
    ))
}

/// A blocking task was cancelled: the runtime is shutting down.
fn gone(error: tokio::task::JoinError) -> TransportError {
    TransportError::Unavailable(error.to_string())
}
