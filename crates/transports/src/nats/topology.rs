//! Streams, subjects and partitions.
//!
//! A service domain has a stream. The messages of a topic are in it under `TOPIC.pK`, where K is the
//! partition of the message's key, or the tenant's own partition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{Context, GetStreamErrorKind};
use async_nats::jetstream::stream::{self, RetentionPolicy, StorageType};
use chapar_core::port::{Outgoing, TransportError};
use sha2::{Digest, Sha256};
use tracing::info;

use super::{NatsOptions, setup, unavailable};

/// Partitions are numbered below this within a stream.
pub(super) const MOST: u32 = 1 << 12;
pub(super) const PARTITIONS: &str = "chapar-partitions";
pub(super) const OWN: &str = "chapar-own-partitions";
/// The metadata key with the system that a stream belongs to.
pub(super) const SYSTEM: &str = "chapar-system";

/// A stream and the part of the subject space that it holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Domain {
    pub(super) stream: String,
    pub(super) subjects: String,
}

/// The domain of a topic: its first segment, or the second one after the system's prefix.
pub(super) fn domain(topic: &str, prefix: Option<&str>) -> Result<Domain, TransportError> {
    let refused = |what: &str| TransportError::Refused(format!("the topic {topic:?} {what}"));
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '*' || c == '>';
    if topic.contains(odd) || topic.split('.').any(str::is_empty) {
        return Err(refused("is not a NATS subject"));
    }
    let inner = prefix.and_then(|prefix| topic.strip_prefix(prefix)?.strip_prefix('.'));
    let name = inner.unwrap_or(topic).split('.').next().unwrap_or_default();
    let root = &topic[..topic.len() - inner.unwrap_or(topic).len() + name.len()];
    Ok(Domain { stream: capitals(name), subjects: format!("{root}.>") })
}

fn capitals(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(letter).collect()
}

/// The partition of a message within its stream.
pub(super) fn partition(message: &Outgoing, options: &NatsOptions) -> u32 {
    if let Some(own) = options.own_partitions.get(&message.tenant) {
        return *own;
    }
    // The same hash as in the SQL transport, so that a key has the same partition in both.
    let hash = match &message.key {
        Some(key) => Sha256::digest(key.as_bytes()),
        None => Sha256::digest(message.id.to_string().as_bytes()),
    };
    u32::from(hash[0] % 64) % options.partitions
}

pub(super) fn subject(topic: &str, partition: u32) -> String {
    format!("{topic}.p{partition}")
}

/// The topic and partition of a subject.
pub(super) fn parse(subject: &str) -> Option<(&str, u32)> {
    let (topic, partition) = subject.rsplit_once(".p")?;
    Some((topic, partition.parse().ok()?))
}

/// The number of a stream's partition among all streams: a hash of the stream's name, and the
/// partition. A subscription refuses two streams with the same hash. It fits into the signed column
/// in which dead letters store it.
pub(super) fn code(stream: &str, partition: u32) -> u32 {
    let hash = Sha256::digest(stream.as_bytes());
    let hash = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    ((hash >> 1) / MOST * MOST) | partition
}

/// Ensures that a stream exists as specified; returns its partitions.
///
/// Only changes that lose no message are made: subjects and partitions are added, retention is
/// extended. Anything else is left to the operator.
pub(super) async fn ensure(
    context: &Context,
    domain: &Domain,
    retention: Option<Duration>,
    options: &NatsOptions,
) -> Result<BTreeSet<u32>, TransportError> {
    if options.service.is_some() {
        let found = existing(context, &domain.stream).await?;
        return partitions_of(&found, options);
    }
    let wanted = config(domain, retention.unwrap_or(options.retention), options);
    let found = context.get_or_create_stream(wanted.clone()).await;
    let found = found.map_err(|error| unavailable(&error))?.cached_info().config.clone();
    let mut merged = check(&found, options)?;
    let partitions = own_of(&found);
    let own: BTreeSet<u32> = partitions.union(&options.own()).copied().collect();
    merged.metadata.extend(metadata(options.partitions, &own));
    if !merged.subjects.contains(&domain.subjects) {
        merged.subjects.push(domain.subjects.clone());
    }
    // The default applies only to new streams.
    if retention.is_some() {
        merged.max_age = longer(found.max_age, wanted.max_age);
    }
    let window = wanted.duplicate_window;
    merged.duplicate_window = found.duplicate_window.max(window).min(nonzero(merged.max_age));
    if merged != found {
        let stream = &domain.stream;
        info!(stream, "stream extended: subjects, partitions or retention");
        context
            .update_stream(&merged)
            .await
            .map_err(|error| setup(format!("the stream {stream} cannot be changed: {error}")))?;
    }
    Ok((0..options.partitions).chain(own).collect())
}

/// The stream of a domain as it is created.
pub(super) fn config(domain: &Domain, max_age: Duration, options: &NatsOptions) -> stream::Config {
    let mut metadata = metadata(options.partitions, &options.own());
    metadata.extend(options.prefix.clone().map(|system| (SYSTEM.to_owned(), system)));
    stream::Config {
        name: domain.stream.clone(),
        subjects: vec![domain.subjects.clone()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: options.replicas,
        max_age,
        duplicate_window: options.duplicate_window.min(max_age),
        allow_direct: true,
        metadata: metadata.into_iter().collect(),
        ..Default::default()
    }
}

/// The stream with everything that one service may read, and nothing else: a NATS server grants
/// rights by stream and not by consumer.
pub(super) fn inbound(service: &str) -> String {
    format!("IN_{}", capitals(service))
}

/// That stream as it is created: the server copies it from the streams of the topics and keeps the
/// order of each.
pub(super) fn inbound_config(
    service: &str,
    topics: &BTreeMap<String, BTreeSet<String>>,
    max_age: Duration,
    options: &NatsOptions,
) -> stream::Config {
    let of = |topic: &String| stream::SubjectTransform {
        source: format!("{topic}.*"),
        destination: format!("{topic}.{{{{wildcard(1)}}}}"),
    };
    let sources = topics.iter().map(|(stream, topics)| stream::Source {
        name: stream.clone(),
        subject_transforms: topics.iter().map(of).collect(),
        ..Default::default()
    });
    let domain = Domain { stream: inbound(service), subjects: String::new() };
    stream::Config {
        subjects: vec![],
        sources: Some(sources.collect()),
        ..config(&domain, max_age, options)
    }
}

/// The topics that a stream copies from others.
pub(super) fn brought(found: &stream::Config) -> BTreeSet<String> {
    let sources = found.sources.iter().flatten();
    let transforms = sources.flat_map(|source| &source.subject_transforms);
    let topic = |transform: &stream::SubjectTransform| {
        transform.source.strip_suffix(".*").unwrap_or(&transform.source).to_owned()
    };
    transforms.map(topic).collect()
}

/// A stream that must exist.
pub(super) async fn existing(
    context: &Context,
    stream: &str,
) -> Result<stream::Config, TransportError> {
    let found = context.get_stream(stream).await.map_err(|error| match error.kind() {
        GetStreamErrorKind::JetStream(said) if said.error_code() == ErrorCode::STREAM_NOT_FOUND => {
            setup(format!("there is no stream {stream}; run `chapar topology apply`"))
        }
        _ => unavailable(&error),
    })?;
    Ok(found.cached_info().config.clone())
}

/// The partitions of a stream, which must match the options.
pub(super) fn partitions_of(
    found: &stream::Config,
    options: &NatsOptions,
) -> Result<BTreeSet<u32>, TransportError> {
    check(found, options)?;
    Ok((0..options.partitions).chain(own_of(found)).collect())
}

/// Checks the settings of an existing stream that cannot be changed.
fn check(found: &stream::Config, options: &NatsOptions) -> Result<stream::Config, TransportError> {
    let partitions = found.metadata.get(PARTITIONS).map_or("none", String::as_str).to_owned();
    let settings = [
        ("retention", format!("{:?}", found.retention), format!("{:?}", RetentionPolicy::Limits)),
        ("storage", format!("{:?}", found.storage), format!("{:?}", StorageType::File)),
        ("num_replicas", found.num_replicas.to_string(), options.replicas.to_string()),
        ("no_ack", found.no_ack.to_string(), false.to_string()),
        (PARTITIONS, partitions, options.partitions.to_string()),
    ];
    for (setting, is, should) in settings {
        if is != should {
            let name = &found.name;
            return Err(setup(format!(
                "the stream {name} has {setting} {is} where {should} is asked for; \
                 change the one or the other, nothing was touched"
            )));
        }
    }
    Ok(found.clone())
}

fn nonzero(time: Duration) -> Duration {
    if time.is_zero() { Duration::MAX } else { time }
}

/// The longer of two retentions, where zero means unlimited.
fn longer(a: Duration, b: Duration) -> Duration {
    if a.is_zero() || b.is_zero() { Duration::ZERO } else { a.max(b) }
}

fn metadata(partitions: u32, own: &BTreeSet<u32>) -> BTreeMap<String, String> {
    let mut metadata: BTreeMap<String, String> = own_partitions(own).into();
    metadata.insert(PARTITIONS.to_owned(), partitions.to_string());
    metadata
}

pub(super) fn own_partitions(own: &BTreeSet<u32>) -> [(String, String); 1] {
    let own: Vec<String> = own.iter().map(u32::to_string).collect();
    [(OWN.to_owned(), own.join(","))]
}

/// The partitions of an existing stream.
pub(super) fn partitions_found(found: &stream::Info) -> BTreeSet<u32> {
    let count = found.config.metadata.get(PARTITIONS).and_then(|count| count.parse().ok());
    (0..count.unwrap_or(0)).chain(own_of(&found.config)).collect()
}

pub(super) fn own_of(found: &stream::Config) -> BTreeSet<u32> {
    let list = found.metadata.get(OWN).map_or("", String::as_str);
    list.split(',').filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_lies_in_the_stream_of_its_service() {
        let of = |topic, prefix| {
            domain(topic, prefix).map(|domain| (domain.stream, domain.subjects)).unwrap()
        };
        let plain = of("ai-gateway.prompt.sent.v1", Some("melmastoon"));
        assert_eq!(plain, ("AI_GATEWAY".into(), "ai-gateway.>".into()));
        let inner = of("melmastoon.reservation.booking.held.v1", Some("melmastoon"));
        assert_eq!(inner, ("RESERVATION".into(), "melmastoon.reservation.>".into()));
        assert_eq!(of("melmastoon.a.b", None).0, "MELMASTOON");
        assert!(domain("a..b", None).is_err() && domain("a.>", None).is_err());
    }

    #[test]
    fn a_subject_names_its_topic_and_partition() {
        assert_eq!(parse(&subject("a.b.v1", 11)), Some(("a.b.v1", 11)));
        assert_eq!(code("ORDERS", 5) - code("ORDERS", 0), 5);
        assert_ne!(code("ORDERS", 0), code("BILLING", 0));
        for stream in ["ORDERS", "BILLING", "RESERVATION", "PAYMENT"] {
            assert!(i32::try_from(code(stream, MOST - 1)).is_ok(), "{stream}");
        }
    }
}
