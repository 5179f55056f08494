//! Streams, subjects and partitions.
//!
//! A service domain has a stream; a topic's messages lie in it under `TOPIC.pK`, where K is the
//! partition of the message's key, or the partition that its tenant has for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::{self, RetentionPolicy, StorageType};
use chapar_core::port::{Outgoing, TransportError};
use sha2::{Digest, Sha256};
use tracing::info;

use super::{NatsOptions, setup, unavailable};

/// Partitions are numbered below this within a stream.
pub(super) const MOST: u32 = 1 << 12;
const PARTITIONS: &str = "chapar-partitions";
const OWN: &str = "chapar-own-partitions";

/// A stream and the part of the subject space that it holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Domain {
    pub(super) stream: String,
    pub(super) subjects: String,
}

/// The domain of a topic: its first segment, or the second behind the system's prefix.
pub(super) fn domain(topic: &str, prefix: Option<&str>) -> Result<Domain, TransportError> {
    let refused = |what: &str| TransportError::Refused(format!("the topic {topic:?} {what}"));
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '*' || c == '>';
    if topic.contains(odd) || topic.split('.').any(str::is_empty) {
        return Err(refused("is no NATS subject"));
    }
    let inner = prefix.and_then(|prefix| topic.strip_prefix(prefix)?.strip_prefix('.'));
    let name = inner.unwrap_or(topic).split('.').next().unwrap_or_default();
    let root = &topic[..topic.len() - inner.unwrap_or(topic).len() + name.len()];
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    Ok(Domain { stream: name.chars().map(letter).collect(), subjects: format!("{root}.>") })
}

/// The partition of a message within its stream.
pub(super) fn partition(message: &Outgoing, options: &NatsOptions) -> u32 {
    if let Some(own) = options.own_partitions.get(&message.tenant) {
        return *own;
    }
    let id = message.id.to_string();
    let key = message.key.as_deref().unwrap_or(&id);
    // The hash of `sql:`, so that a key has one home whichever transport carries it.
    u32::from(Sha256::digest(key.as_bytes())[0] % 64) % options.partitions
}

pub(super) fn subject(topic: &str, partition: u32) -> String {
    format!("{topic}.p{partition}")
}

/// The topic and partition of a subject.
pub(super) fn parse(subject: &str) -> Option<(&str, u32)> {
    let (topic, partition) = subject.rsplit_once(".p")?;
    Some((topic, partition.parse().ok()?))
}

/// The number of a stream's partition among all streams. Streams are told apart by a hash of
/// their names; a subscription refuses two that have the same. It fits into a signed column,
/// where dead letters keep it.
pub(super) fn code(stream: &str, partition: u32) -> u32 {
    let hash = Sha256::digest(stream.as_bytes());
    let hash = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    ((hash >> 1) / MOST * MOST) | partition
}

/// A stream is there, holds what it should, and these are its partitions.
///
/// What can be changed without losing a message is changed: subjects and partitions are added,
/// times are made longer. Anything else is somebody's decision.
pub(super) async fn ensure(
    context: &Context,
    domain: &Domain,
    max_age: Duration,
    options: &NatsOptions,
) -> Result<BTreeSet<u32>, TransportError> {
    let wanted = stream::Config {
        name: domain.stream.clone(),
        subjects: vec![domain.subjects.clone()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: options.replicas,
        max_age,
        duplicate_window: options.duplicate_window.min(max_age),
        allow_direct: true,
        metadata: metadata(options.partitions, &options.own()).into_iter().collect(),
        ..Default::default()
    };
    let found = context.get_or_create_stream(wanted.clone()).await;
    let found = found.map_err(|error| unavailable(&error))?.cached_info().config.clone();
    let mut merged = check(&found, options)?;
    let partitions = own_of(&found);
    let own: BTreeSet<u32> = partitions.union(&options.own()).copied().collect();
    merged.metadata.extend(metadata(options.partitions, &own));
    if !merged.subjects.contains(&domain.subjects) {
        merged.subjects.push(domain.subjects.clone());
    }
    merged.max_age = longer(found.max_age, wanted.max_age);
    merged.duplicate_window = found.duplicate_window.max(wanted.duplicate_window);
    if merged != found {
        let stream = &domain.stream;
        info!(stream, "the stream gets more subjects, partitions or time");
        context
            .update_stream(&merged)
            .await
            .map_err(|error| setup(format!("the stream {stream} cannot be changed: {error}")))?;
    }
    Ok((0..options.partitions).chain(own).collect())
}

/// A stream that is there must agree in what cannot be changed afterwards.
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

/// Zero stands for ever.
fn longer(a: Duration, b: Duration) -> Duration {
    if a.is_zero() || b.is_zero() { Duration::ZERO } else { a.max(b) }
}

fn metadata(partitions: u32, own: &BTreeSet<u32>) -> BTreeMap<String, String> {
    let own: Vec<String> = own.iter().map(u32::to_string).collect();
    [(PARTITIONS.to_owned(), partitions.to_string()), (OWN.to_owned(), own.join(","))].into()
}

fn own_of(found: &stream::Config) -> BTreeSet<u32> {
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
