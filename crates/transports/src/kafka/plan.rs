//! How a cluster differs from what a catalog asks for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use chapar_core::port::{
    Action, Difference, How, LETTERS_KEPT, Retained, Setting, TopicSpec, Topology, TransportError,
    span,
};
use rdkafka::admin::{
    AlterConfig, ConfigResource, ConfigSource, OwnedResourceSpecifier, ResourceSpecifier,
};
use rdkafka::producer::Producer as _;

use super::seek::SEEKS;
use super::topology::{Cluster, admin, not_made, replicas, within};
use super::{Kafka, gone, lock, setup, unavailable};

const PARTITIONS: &str = "partitions";
const REPLICATION: &str = "replication factor";
const RETENTION: &str = "retention.ms";
const CLEANUP: &str = "cleanup.policy";
const COMPRESSION: &str = "compression.type";
const IN_SYNC: &str = "min.insync.replicas";

/// A topic on the cluster.
#[derive(Debug, Default)]
struct Found {
    partitions: usize,
    replication: usize,
    messages: i64,
}

impl Kafka {
    /// The topics that are missing, differ, or are not declared.
    pub(super) async fn differences(
        &self,
        wanted: &Topology,
    ) -> Result<Vec<Difference>, TransportError> {
        let wanted = &self.with_letters(wanted);
        let found = self.found(wanted).await?;
        let there = wanted.topics.iter().map(|topic| topic.name.as_str());
        let there: Vec<&str> = there.filter(|topic| found.contains_key(*topic)).collect();
        let configs = self.configs_of(&there).await?;
        let mut differences = Vec::new();
        for topic in &wanted.topics {
            let (replication, in_sync) = self.replicas();
            let known = found.get(&topic.name).zip(configs.get(&topic.name));
            let Some((found, config)) = known else {
                let settings = BTreeMap::from([
                    (PARTITIONS, topic.partitions.to_string()),
                    (REPLICATION, replication.to_string()),
                    (IN_SYNC, in_sync),
                    (RETENTION, span(topic.retention)),
                    (CLEANUP, "delete".into()),
                    (COMPRESSION, "producer".into()),
                ]);
                let action = Action::Create { settings };
                differences.push(Difference { kind: "topic", name: topic.name.clone(), action });
                continue;
            };
            let settings = settings(topic, found, config, replication, &in_sync);
            if !settings.is_empty() {
                let action = Action::Change { settings };
                differences.push(Difference { kind: "topic", name: topic.name.clone(), action });
            }
        }
        if !lock(&self.0.topics).contains_key(SEEKS) {
            let (replication, in_sync) = self.replicas();
            let settings = BTreeMap::from([
                (PARTITIONS, "1".to_owned()),
                (REPLICATION, replication.to_string()),
                (IN_SYNC, in_sync),
                (CLEANUP, "compact".into()),
            ]);
            let action = Action::Create { settings };
            differences.push(Difference { kind: "topic", name: SEEKS.into(), action });
        }
        let mut extra: Vec<_> =
            found.into_iter().filter(|(topic, _)| !wanted.declares(topic)).collect();
        extra.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, found) in extra {
            let holds = format!("{} messages", found.messages);
            differences.push(Difference { kind: "topic", name, action: Action::Extra { holds } });
        }
        Ok(differences)
    }

    /// The declared topics and those that dead letters are copied to: the service that copies them
    /// may lack the right to create topics.
    fn with_letters(&self, wanted: &Topology) -> Topology {
        let letters = wanted.subscriptions.iter().map(|reader| reader.dead_letter_topic.as_str());
        let letters: BTreeSet<&str> = letters.filter(|topic| !wanted.declares(topic)).collect();
        let spec = |name: &str| TopicSpec {
            name: name.to_owned(),
            partitions: self.0.options.partitions,
            retention: LETTERS_KEPT,
        };
        let mut all = wanted.clone();
        all.topics.extend(letters.into_iter().map(spec));
        all
    }

    /// Carries out a difference.
    pub(super) async fn settle(
        &self,
        wanted: &Topology,
        difference: &Difference,
    ) -> Result<(), TransportError> {
        let (wanted, name) = (self.with_letters(wanted), &difference.name);
        let spec = wanted.topics.iter().find(|topic| topic.name == *name);
        match (&difference.action, spec) {
            (Action::Create { .. }, None) if name == SEEKS => self.make_seeks().await,
            (Action::Create { .. }, Some(spec)) => {
                self.apply_topics(std::slice::from_ref(spec)).await
            }
            (Action::Change { settings }, Some(spec)) => {
                let (_, in_sync) = self.replicas();
                let retention = spec.retention.as_millis().to_string();
                let value = |setting: &Setting| match setting.setting {
                    RETENTION if spec.retention.is_zero() => Some((RETENTION, "-1")),
                    RETENTION => Some((RETENTION, retention.as_str())),
                    COMPRESSION => Some((COMPRESSION, "producer")),
                    IN_SYNC => Some((IN_SYNC, in_sync.as_str())),
                    _ => None,
                };
                let changes: Vec<_> = settings.iter().filter_map(value).collect();
                self.set(name, &changes).await
            }
            (Action::Extra { .. }, None) => self.delete(name).await,
            _ => Err(setup(format!("the plan for the topic {name} is out of date; make it again"))),
        }
    }

    /// Changes some settings of a topic and leaves the others.
    pub(super) async fn set(
        &self,
        topic: &str,
        changes: &[(&str, &str)],
    ) -> Result<(), TransportError> {
        // The call replaces every setting of the topic, so the others are sent again.
        let found = self.config_of(topic).await?;
        let mut change = AlterConfig::new(ResourceSpecifier::Topic(topic));
        for entry in &found.entries {
            if entry.source == ConfigSource::DynamicTopic
                && !changes.iter().any(|(name, _)| *name == entry.name)
                && let Some(value) = &entry.value
            {
                change = change.set(&entry.name, value);
            }
        }
        for (name, value) in changes {
            change = change.set(name, value);
        }
        let admin = admin(&self.0.servers, &self.0.options)?;
        let changed = admin.alter_configs(&[change], &within(self.0.options.timeout)).await;
        for result in changed.map_err(|error| unavailable(&error))? {
            result.map_err(|(_, code)| not_made(topic, code))?;
        }
        Ok(())
    }

    pub(super) async fn config_of(&self, topic: &str) -> Result<ConfigResource, TransportError> {
        let found = self.configs_of(&[topic]).await?.remove(topic);
        let unknown = || {
            TransportError::Unavailable(format!("the broker did not describe the topic {topic}"))
        };
        found.ok_or_else(unknown)
    }

    async fn configs_of(
        &self,
        topics: &[&str],
    ) -> Result<HashMap<String, ConfigResource>, TransportError> {
        let mut configs = HashMap::new();
        if topics.is_empty() {
            return Ok(configs);
        }
        let admin = admin(&self.0.servers, &self.0.options)?;
        let resources: Vec<_> = topics.iter().map(|t| ResourceSpecifier::Topic(t)).collect();
        let found = admin.describe_configs(&resources, &within(self.0.options.timeout)).await;
        for found in found.map_err(|error| unavailable(&error))? {
            let found = found.map_err(|code| not_made(&topics.join(", "), code))?;
            if let OwnedResourceSpecifier::Topic(topic) = &found.specifier {
                configs.insert(topic.clone(), found);
            }
        }
        Ok(configs)
    }

    pub(super) fn replicas(&self) -> (u32, String) {
        let brokers = u32::try_from(self.0.brokers).unwrap_or(u32::MAX);
        replicas(self.0.options.replication, brokers)
    }

    /// The topics of the system on the cluster.
    async fn found(&self, wanted: &Topology) -> Result<HashMap<String, Found>, TransportError> {
        let (kafka, wanted) = (self.clone(), wanted.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let (producer, timeout) = (kafka.producer()?, kafka.0.options.timeout);
            let client = producer.inner.client();
            let failed = |error| producer.ears.explain(&error);
            let metadata = client.fetch_metadata(None, timeout).map_err(failed)?;
            lock(&kafka.0.topics).clone_from(&Cluster::of(&metadata).topics);
            let mut found: HashMap<String, Found> = HashMap::new();
            for topic in metadata.topics().iter().filter(|topic| wanted.owns(topic.name())) {
                let entry = found.entry(topic.name().to_owned()).or_default();
                entry.partitions = topic.partitions().len();
                for partition in topic.partitions() {
                    entry.replication = partition.replicas().len();
                    if !wanted.declares(topic.name()) {
                        let marks = client.fetch_watermarks(topic.name(), partition.id(), timeout);
                        let (low, high) = marks.map_err(failed)?;
                        entry.messages += high - low;
                    }
                }
            }
            Ok(found)
        });
        asked.await.map_err(gone)?
    }

    /// Deletes a topic that no group reads.
    async fn delete(&self, topic: &str) -> Result<(), TransportError> {
        let (kafka, name) = (self.clone(), topic.to_owned());
        let asked = tokio::task::spawn_blocking(move || {
            let (producer, timeout) = (kafka.producer()?, kafka.0.options.timeout);
            let groups = producer.inner.client().fetch_group_list(None, timeout);
            let groups = groups.map_err(|error| producer.ears.explain(&error))?;
            let reads = |group: &&rdkafka::groups::GroupInfo| {
                let metadata = group.members().iter().filter_map(|member| member.metadata());
                metadata.into_iter().any(|bytes| subscribed(bytes).contains(&name))
            };
            match groups.groups().iter().find(reads) {
                Some(group) => {
                    let group = group.name();
                    Err(setup(format!("{group} still reads {name}; stop its processes first")))
                }
                None => Ok(()),
            }
        });
        asked.await.map_err(gone)??;
        lock(&self.0.topics).remove(topic);
        let admin = admin(&self.0.servers, &self.0.options)?;
        let deleted = admin.delete_topics(&[topic], &within(self.0.options.timeout)).await;
        for result in deleted.map_err(|error| unavailable(&error))? {
            match result {
                Ok(_) | Err((_, rdkafka::error::RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
                Err((_, code)) => return Err(not_made(topic, code)),
            }
        }
        Ok(())
    }
}

/// What differs between a topic and the one that is asked for.
fn settings(
    wanted: &TopicSpec,
    found: &Found,
    config: &ConfigResource,
    replication: u32,
    in_sync: &str,
) -> Vec<Setting> {
    let value = |name: &str| config.get(name).and_then(|entry| entry.value.clone());
    let text = |name: &str| value(name).unwrap_or_else(|| "none".into());
    // -1 means unlimited, and does not parse as a number of milliseconds.
    let kept = value(RETENTION).and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
    let kept = kept.map_or(Retained::Forever, Retained::For);
    let by_hand = |what: &str| How::ByHand(what.to_owned());
    let settings = [
        Setting::differs(
            PARTITIONS,
            found.partitions,
            wanted.partitions,
            by_hand(
                "another number moves keys to other partitions: publish a new version of the event, or \
                 let its consumers catch up, add partitions, and go on",
            ),
        ),
        Setting::differs(
            REPLICATION,
            found.replication,
            replication,
            by_hand("move it with kafka-reassign-partitions.sh"),
        ),
        Setting::kept(RETENTION, kept, Retained::For(wanted.retention)),
        Setting::differs(
            CLEANUP,
            text(CLEANUP),
            "delete",
            by_hand("change the policy with kafka-configs.sh, or use another topic"),
        ),
        Setting::differs(COMPRESSION, text(COMPRESSION), "producer", How::InPlace),
        Setting::differs(IN_SYNC, text(IN_SYNC), in_sync, How::InPlace),
    ];
    settings.into_iter().flatten().collect()
}

/// The topics in a member's metadata: a version, and a list of strings, each after its length.
fn subscribed(metadata: &[u8]) -> Vec<String> {
    fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = bytes.split_at_checked(count)?;
        *bytes = rest;
        Some(taken)
    }
    fn number(bytes: &mut &[u8], size: usize) -> Option<usize> {
        let digits = take(bytes, size)?;
        Some(digits.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }
    let mut rest = metadata;
    let mut topics = Vec::new();
    let count = number(&mut rest, 2).and_then(|_version| number(&mut rest, 4)).unwrap_or_default();
    while topics.len() < count {
        let Some(length) = number(&mut rest, 2) else { break };
        let Some(topic) = take(&mut rest, length) else { break };
        topics.push(String::from_utf8_lossy(topic).into_owned());
    }
    topics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topics_of_a_member_are_in_its_metadata() {
        let metadata = b"\0\x03\0\0\0\x02\0\x03a.b\0\x01c\xff\xff\xff\xff";
        assert_eq!(subscribed(metadata), ["a.b", "c"]);
        assert_eq!(subscribed(b"\0\x03\0\0\xff\xff\0\x01c\0\x09c"), ["c"]);
        assert!(subscribed(b"").is_empty());
    }
}
