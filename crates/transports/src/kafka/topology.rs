//! Topics and partitions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar_core::port::{TopicSpec, TransportError};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::metadata::Metadata;
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::client::{Ears, config, creation};
use super::options::KafkaOptions;
use super::{Kafka, code_of, gone, is_too_old, lock, setup, too_old, unavailable};

/// Partitions are numbered below this within a topic.
const MOST: u32 = 1 << 10;

/// A topic, and the base of its partition numbers. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    code: u32,
}

impl Topic {
    pub(super) fn new(name: &str) -> Self {
        let hash = Sha256::digest(name.as_bytes());
        let hash = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
        Topic { name: name.into(), code: (hash >> 1) / MOST * MOST }
    }

    /// The number of a partition among those of all topics: a hash of the topic's name, and the
    /// partition. It fits into the signed column in which dead letters store it.
    pub(super) fn code(&self, partition: u32) -> u32 {
        self.code | (partition % MOST)
    }
}

/// See [`Topic::code`].
pub(super) fn code(topic: &str, partition: u32) -> u32 {
    Topic::new(topic).code(partition)
}

/// Interns topics, so that they are not allocated for every message.
#[derive(Debug, Default)]
pub(super) struct Topics {
    known: HashMap<Arc<str>, Topic>,
    /// Messages of one topic mostly follow each other.
    last: Option<Topic>,
}

impl Topics {
    pub(super) fn get(&mut self, name: &str) -> Topic {
        match &self.last {
            Some(last) if *last.name == *name => last.clone(),
            _ => {
                let known = self.known.get(name).cloned();
                let topic = known.unwrap_or_else(|| Topic::new(name));
                self.known.insert(topic.name.clone(), topic.clone());
                self.last.insert(topic).clone()
            }
        }
    }
}

/// The brokers of a cluster, and its topics with the number of their partitions.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) brokers: Vec<i32>,
    pub(super) topics: HashMap<String, u32>,
}

impl Cluster {
    /// Topics without a leader count as missing.
    pub(super) fn of(metadata: &Metadata) -> Self {
        let led = |topic: &&rdkafka::metadata::MetadataTopic| {
            !topic.partitions().is_empty()
                && topic.partitions().iter().all(|partition| partition.leader() >= 0)
        };
        let topics = metadata.topics().iter().filter(led);
        Cluster {
            brokers: metadata.brokers().iter().map(|broker| broker.id()).collect(),
            topics: topics
                .map(|topic| (topic.name().to_owned(), topic.partitions().len() as u32))
                .collect(),
        }
    }
}

/// Whether the broker says that it accepts a message of 1 MiB with headers. A broker that does not
/// know this request is too old for us.
pub(super) async fn takes_mebibyte(
    servers: &str,
    options: &KafkaOptions,
    cluster: &Cluster,
) -> Result<bool, TransportError> {
    let Some(broker) = cluster.brokers.first() else { return Ok(false) };
    let admin = admin(servers, options)?;
    let resource = [ResourceSpecifier::Broker(*broker)];
    let asked = admin.describe_configs(&resource, &within(options.timeout)).await;
    let found = match asked {
        Ok(found) => found,
        Err(error) if code_of(&error).is_some_and(is_too_old) => return Err(unavailable(&error)),
        Err(_) => return Ok(false),
    };
    if let Some(code) = found.iter().find_map(|found| found.as_ref().err())
        && is_too_old(*code)
    {
        return Err(too_old(&code.to_string()));
    }
    let limit = found
        .into_iter()
        .flatten()
        .find_map(|found| found.get("message.max.bytes")?.value.as_ref()?.parse::<u64>().ok());
    Ok(limit.is_some_and(|limit| limit > (1 << 20) + (64 << 10)))
}

impl Kafka {
    /// Ensures that topics exist; missing ones are created with the default options.
    pub(super) async fn ensure(
        &self,
        topics: impl Iterator<Item = &str> + Send,
    ) -> Result<(), TransportError> {
        let missing: Vec<TopicSpec> = {
            let known = lock(&self.0.topics);
            let new = topics.filter(|topic| !known.contains_key(*topic));
            let new: std::collections::BTreeSet<&str> = new.collect();
            let (partitions, retention) = (self.0.options.partitions, self.0.options.retention);
            new.into_iter()
                .map(|name| TopicSpec { name: name.into(), partitions, retention })
                .collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        self.look_again().await?;
        self.create(&missing).await
    }

    /// Ensures that topics exist as specified.
    ///
    /// Only changes that lose no message and no order are made: retention is extended. Anything
    /// else is left to the operator.
    pub(super) async fn apply_topics(&self, topics: &[TopicSpec]) -> Result<(), TransportError> {
        if topics.is_empty() {
            return Ok(());
        }
        self.look_again().await?;
        let there: BTreeMap<&str, u32> = {
            let known = lock(&self.0.topics);
            let find = |topic: &TopicSpec| known.get(&topic.name).copied();
            topics.iter().filter_map(|topic| Some((topic.name.as_str(), find(topic)?))).collect()
        };
        self.create(topics).await?;
        let old = topics.iter().filter_map(|topic| Some((topic, there.get(topic.name.as_str())?)));
        for (topic, partitions) in old {
            if *partitions != topic.partitions {
                let (name, asked) = (&topic.name, topic.partitions);
                warn!(
                    topic = name,
                    partitions,
                    asked,
                    "number of partitions not changed: it would move keys to other partitions"
                );
            }
            self.adapt(topic).await?;
        }
        Ok(())
    }

    /// Asks the cluster what topics it has.
    pub(super) async fn look_again(&self) -> Result<Cluster, TransportError> {
        let kafka = self.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let producer = kafka.producer()?;
            producer.survey(kafka.0.options.timeout)
        });
        let cluster = asked.await.map_err(gone)??;
        lock(&self.0.topics).clone_from(&cluster.topics);
        Ok(cluster)
    }

    async fn create(&self, topics: &[TopicSpec]) -> Result<(), TransportError> {
        let options = &self.0.options;
        let missing: Vec<&TopicSpec> = {
            let known = lock(&self.0.topics);
            topics.iter().filter(|topic| !known.contains_key(&topic.name)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let (brokers, (replication, in_sync)) = (self.0.brokers, self.replicas());
        if replication < options.replication {
            warn!(
                brokers,
                replication,
                "fewer brokers than the replication factor: a message is lost with its last broker"
            );
        }
        let admin = admin(&self.0.servers, options)?;
        let retentions: Vec<String> =
            missing.iter().map(|topic| topic.retention.as_millis().to_string()).collect();
        let new = missing.iter().zip(&retentions).map(|(topic, retention)| {
            let replication = TopicReplication::Fixed(replication as i32);
            NewTopic::new(&topic.name, topic.partitions as i32, replication)
                .set("retention.ms", retention)
                .set("cleanup.policy", "delete")
                .set("compression.type", "producer")
                .set("min.insync.replicas", &in_sync)
        });
        let new: Vec<NewTopic<'_>> = new.collect();
        let created = admin.create_topics(&new, &within(options.timeout)).await;
        for result in created.map_err(|error| unavailable(&error))? {
            match result {
                Ok(topic) => info!(topic, "topic created"),
                Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, code)) => return Err(not_made(&topic, code)),
            }
        }
        // A topic is usable once its partitions have leaders.
        let limit = Instant::now() + options.timeout;
        loop {
            let cluster = self.look_again().await?;
            let unled = missing.iter().find(|topic| !cluster.topics.contains_key(&topic.name));
            let Some(unled) = unled else { return Ok(()) };
            if Instant::now() > limit {
                let name = &unled.name;
                return Err(TransportError::Unavailable(format!("the topic {name} has no leader")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Extends the retention of a topic if it is too short.
    async fn adapt(&self, topic: &TopicSpec) -> Result<(), TransportError> {
        let found = self.config_of(&topic.name).await?;
        let value = |name: &str| found.get(name).and_then(|entry| entry.value.clone());
        if let Some(policy) = value("cleanup.policy").filter(|policy| policy != "delete") {
            let name = &topic.name;
            return Err(setup(format!(
                "the topic {name} has cleanup.policy {policy} where delete is asked for; change \
                 the one or the other, nothing was touched"
            )));
        }
        // -1 means unlimited.
        let kept: i64 = value("retention.ms").and_then(|ms| ms.parse().ok()).unwrap_or(-1);
        let asked = i64::try_from(topic.retention.as_millis()).unwrap_or(i64::MAX);
        if kept < 0 || kept >= asked {
            return Ok(());
        }
        let asked = asked.to_string();
        self.set(&topic.name, &[("retention.ms", &asked)]).await?;
        info!(topic = topic.name, retention_ms = asked, "retention of the topic extended");
        Ok(())
    }
}

/// The number of replicas of a topic, and of in-sync replicas that a message needs: one may be down.
pub(super) fn replicas(wanted: u32, brokers: u32) -> (u32, String) {
    let replication = wanted.clamp(1, brokers.max(1));
    let in_sync = if replication >= 3 { replication - 1 } else { 1 };
    (replication, in_sync.to_string())
}

pub(super) fn not_made(topic: &str, code: RDKafkaErrorCode) -> TransportError {
    match code {
        RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed => setup(format!(
            "the topic {topic} is not as it should be, and the user of the address may not change \
             that; have it made with `chapar topology apply`, or give the right"
        )),
        RDKafkaErrorCode::InvalidTopic
        | RDKafkaErrorCode::InvalidConfig
        | RDKafkaErrorCode::InvalidPartitions
        | RDKafkaErrorCode::InvalidReplicationFactor
        | RDKafkaErrorCode::PolicyViolation => {
            setup(format!("the broker refuses to create the topic {topic}: {code}"))
        }
        code => TransportError::Unavailable(format!("cannot create the topic {topic}: {code}")),
    }
}

pub(super) fn admin(
    servers: &str,
    options: &KafkaOptions,
) -> Result<AdminClient<Ears>, TransportError> {
    let config = config(servers, options)?;
    config.create_with_context(Ears::new(options)).map_err(|error| creation(&error))
}

pub(super) fn within(timeout: Duration) -> AdminOptions {
    AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_as_many_as_there_are_brokers_for() {
        assert_eq!(replicas(3, 5), (3, "2".into()));
        assert_eq!(replicas(3, 3), (3, "2".into()));
        assert_eq!(replicas(3, 2), (2, "1".into()));
        assert_eq!(replicas(3, 1), (1, "1".into()));
        assert_eq!(replicas(1, 3), (1, "1".into()));
    }

    #[test]
    fn a_partition_has_a_number_among_all_topics() {
        assert_eq!(code("orders.v1", 5) - code("orders.v1", 0), 5);
        assert_ne!(code("orders.v1", 0), code("billing.v1", 0));
        for topic in ["orders.v1", "billing.v1", "a", "b"] {
            assert!(i32::try_from(code(topic, MOST - 1)).is_ok(), "{topic}");
        }
    }
}
