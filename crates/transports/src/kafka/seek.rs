//! Moving a subscription while its processes run.
//!
//! Kafka does not allow changing the offsets of a group that has members. A seek is therefore a
//! message in a topic of ours, which every process with subscriptions reads. The owner of a
//! partition moves it, and commits the new offset with the id of the seek as metadata, so that the
//! next owner knows that it was carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use chapar_core::port::{ReadFrom, SeekTo, TransportError};
use rdkafka::Message;
use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::FutureRecord;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tracing::{debug, warn};

use super::client::Ears;
use super::options::Groups;
use super::reader::{reading, start};
use super::topology::{admin, code, not_made, within};
use super::{Kafka, Shared, gone, lock, setup, unavailable};

/// The compacted topic with the last seek of each subscription.
pub(super) const SEEKS: &str = "chapar.seeks";
const GLANCE: Duration = Duration::from_millis(200);

/// A seek: the offsets from which partitions are to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seek {
    pub(super) id: String,
    pub(super) starts: BTreeMap<(String, i32), i64>,
}

impl Seek {
    /// The id, and a line for each partition.
    fn encode(&self) -> String {
        let line = |((topic, partition), start): (&(String, i32), &i64)| {
            format!("\n{topic} {partition} {start}")
        };
        self.id.clone() + &self.starts.iter().map(line).collect::<String>()
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let id = lines.next()?.to_owned();
        let place = |line: &str| {
            let mut words = line.split(' ');
            let topic = words.next()?.to_owned();
            Some(((topic, words.next()?.parse().ok()?), words.next()?.parse().ok()?))
        };
        Some(Seek { id, starts: lines.map(place).collect::<Option<_>>()? })
    }
}

impl Kafka {
    /// Follows seeks from now on. Where the topic cannot be read, the subscription works without.
    pub(super) async fn watch_seeks(&self) {
        let watch = || async {
            if let Err(error) = self.start_watching().await {
                warn!(%error, topic = SEEKS, "cannot read the topic of seeks: this process ignores seeks of other processes");
            }
        };
        self.0.watching.get_or_init(watch).await;
    }

    async fn start_watching(&self) -> Result<(), TransportError> {
        self.make_seeks().await?;
        let consumer = reading(self)?;
        let mut all = TopicPartitionList::new();
        all.add_partition_offset(SEEKS, 0, Offset::Beginning).map_err(|e| unavailable(&e))?;
        consumer.assign(&all).map_err(|error| unavailable(&error))?;
        let shared = Arc::downgrade(&self.0);
        let thread = std::thread::Builder::new().name("kafka seeks".into());
        let thread = thread.spawn(move || watch(&shared, &consumer));
        thread.map(drop).map_err(|error| TransportError::Unavailable(error.to_string()))
    }

    pub(super) async fn make_seeks(&self) -> Result<(), TransportError> {
        if lock(&self.0.topics).contains_key(SEEKS) {
            return Ok(());
        }
        let (replication, in_sync) = self.replicas();
        let topic = NewTopic::new(SEEKS, 1, TopicReplication::Fixed(replication as i32))
            .set("cleanup.policy", "compact")
            .set("min.insync.replicas", &in_sync);
        let admin = admin(&self.0.servers, &self.0.options)?;
        let made = admin.create_topics([&topic], &within(self.0.options.timeout)).await;
        for result in made.map_err(|error| unavailable(&error))? {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => return Err(not_made(SEEKS, code)),
            }
        }
        Ok(())
    }

    /// Moves a subscription, and waits until every partition has moved.
    pub(super) async fn seek_all(
        &self,
        subscription: &str,
        to: SeekTo,
    ) -> Result<(), TransportError> {
        self.make_seeks().await?;
        self.look_again().await?;
        let (kafka, name) = (self.clone(), subscription.to_owned());
        let planned = tokio::task::spawn_blocking(move || kafka.order(&name, to));
        let seek = planned.await.map_err(gone)??;
        let text = seek.encode();
        let record = FutureRecord::to(SEEKS).key(subscription).payload(&text);
        let sent = self.producer()?.inner.send(record, self.0.options.timeout).await;
        sent.map_err(|(error, _)| match unavailable(&error) {
            TransportError::Setup(why) => {
                setup(format!("cannot write the seek to the topic {SEEKS}: {why}"))
            }
            error => error,
        })?;
        let (kafka, name) = (self.clone(), subscription.to_owned());
        let waited = tokio::task::spawn_blocking(move || kafka.await_order(&name, &seek));
        waited.await.map_err(gone)?
    }

    /// The groups of a subscription, each with the topics that it reads.
    fn groups(&self, subscription: &str) -> Result<Vec<(String, Vec<String>)>, TransportError> {
        let known = lock(&self.0.subscriptions).get(subscription).cloned();
        let topics: Vec<(String, u32)> = {
            let all = lock(&self.0.topics);
            all.iter().map(|(topic, partitions)| (topic.clone(), *partitions)).collect()
        };
        let by_topic = self.0.options.groups == Groups::Topic;
        let mut groups = Vec::new();
        if by_topic {
            for (topic, partitions) in topics {
                let group = format!("{subscription}.{topic}");
                let known = known.as_ref().is_some_and(|known| known.contains(&topic));
                if known || !self.committed(&group, &[(topic.clone(), partitions)])?.is_empty() {
                    groups.push((group, vec![topic]));
                }
            }
        } else {
            // If this process does not read the subscription, its topics are those in which the
            // group has committed offsets.
            let committed = || -> Result<BTreeSet<String>, TransportError> {
                let places = self.committed(subscription, &topics)?;
                Ok(places.into_keys().map(|(topic, _)| topic).collect())
            };
            let read = match known {
                Some(known) => known,
                None => committed()?.into_iter().collect(),
            };
            if !read.is_empty() {
                groups.push((subscription.to_owned(), read));
            }
        }
        match groups.is_empty() {
            true => Err(setup(format!("there is no subscription {subscription}"))),
            false => Ok(groups),
        }
    }

    /// The committed offsets of a group, each with the seek that set it. Blocks.
    fn committed(
        &self,
        group: &str,
        topics: &[(String, u32)],
    ) -> Result<BTreeMap<(String, i32), String>, TransportError> {
        let consumer = self.member_of(group)?;
        let mut asked = TopicPartitionList::new();
        for (topic, partitions) in topics {
            let last = i32::try_from(*partitions).unwrap_or(i32::MAX) - 1;
            asked.add_partition_range(topic, 0, last);
        }
        let answer = consumer.committed_offsets(asked, self.0.options.timeout);
        let answer = answer.map_err(|error| consumer.context().explain(&error))?;
        let placed = answer.elements().into_iter().filter_map(|place| match place.offset() {
            Offset::Offset(_) => {
                let at = (place.topic().to_owned(), place.partition());
                Some((at, place.metadata().to_owned()))
            }
            _ => None,
        });
        Ok(placed.collect())
    }

    /// A client that reads and commits offsets of a group without joining it.
    fn member_of(&self, group: &str) -> Result<BaseConsumer<Ears>, TransportError> {
        let mut config = super::client::config(&self.0.servers, &self.0.options)?;
        config.set("group.id", group).set("enable.auto.commit", "false");
        let created = config.create_with_context(Ears::new(&self.0.options));
        created.map_err(|error| super::client::creation(&error))
    }

    /// The offset for each partition. Blocks.
    fn order(&self, subscription: &str, to: SeekTo) -> Result<Seek, TransportError> {
        let consumer = reading(self)?;
        let mut starts = BTreeMap::new();
        for topic in self.groups(subscription)?.into_iter().flat_map(|(_, topics)| topics) {
            let partitions = lock(&self.0.topics).get(&topic).copied().unwrap_or_default();
            for partition in 0..partitions {
                let number = i32::try_from(partition).unwrap_or(i32::MAX);
                let from = match to {
                    SeekTo::Beginning => ReadFrom::Beginning,
                    SeekTo::End => ReadFrom::End,
                    SeekTo::Time(at) => ReadFrom::Time(at),
                    SeekTo::Position(at) if at.partition == code(&topic, partition) => {
                        let offset = i64::try_from(at.offset).unwrap_or(i64::MAX);
                        starts.insert((topic.clone(), number), offset);
                        continue;
                    }
                    SeekTo::Position(_) => continue,
                };
                let (at, _) = start(&consumer, &topic, partition, &from, self.0.options.timeout)?;
                starts.insert((topic.clone(), number), at);
            }
        }
        if starts.is_empty() {
            return Err(setup(format!("{subscription} reads no such partition")));
        }
        Ok(Seek { id: format!("seek-{:016x}", fastrand::u64(..)), starts })
    }

    /// Waits until the owners have moved their partitions, and moves those without an owner.
    /// Blocks.
    fn await_order(&self, subscription: &str, seek: &Seek) -> Result<(), TransportError> {
        let limit = Instant::now() + self.0.options.session * 2 + self.0.options.timeout;
        for (group, topics) in self.groups(subscription)? {
            let ours: Vec<_> =
                seek.starts.iter().filter(|((topic, _), _)| topics.contains(topic)).collect();
            let counted: Vec<(String, u32)> = {
                let all = lock(&self.0.topics);
                topics.iter().filter_map(|t| Some((t.clone(), *all.get(t)?))).collect()
            };
            loop {
                let places = self.committed(&group, &counted)?;
                let open = ours.iter().filter(|(at, _)| places.get(*at) != Some(&seek.id));
                let open: Vec<_> = open.collect();
                if open.is_empty() {
                    break;
                }
                if Instant::now() > limit {
                    let open = open.len();
                    return Err(TransportError::Unavailable(format!(
                        "{open} partitions of {subscription} have not moved yet"
                    )));
                }
                // Refused while the group has members; then the owner moves it.
                let mut list = TopicPartitionList::new();
                for ((topic, partition), start) in open.iter().map(|open| (open.0, open.1)) {
                    let mut place = list.add_partition(topic, *partition);
                    place.set_metadata(&seek.id);
                    place.set_offset(Offset::Offset(*start)).map_err(|e| unavailable(&e))?;
                }
                let empty = self.is_empty(&group)?;
                if empty && let Err(error) = self.member_of(&group)?.commit(&list, CommitMode::Sync)
                {
                    debug!(%error, group, "the group has members again; waiting for the owner");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    fn is_empty(&self, group: &str) -> Result<bool, TransportError> {
        let consumer = self.member_of("chapar-looker")?;
        let listed = consumer.fetch_group_list(Some(group), self.0.options.timeout);
        let listed = listed.map_err(|error| consumer.context().explain(&error))?;
        Ok(listed.groups().iter().all(|group| group.members().is_empty()))
    }
}

/// Reads seeks for as long as the transport exists.
fn watch(shared: &Weak<Shared>, consumer: &BaseConsumer<Ears>) {
    while let Some(shared) = shared.upgrade() {
        let message = match consumer.poll(GLANCE) {
            Some(Ok(message)) => message,
            Some(Err(error)) => {
                // The user may see the topic but lack the right to read it.
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed) {
                    warn!(%error, topic = SEEKS, "cannot read the topic of seeks: this process ignores seeks of other processes");
                }
                continue;
            }
            None => continue,
        };
        let text = |bytes: Option<&[u8]>| {
            bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
        };
        let (name, order) = (text(message.key()), text(message.payload()));
        match Seek::decode(&order) {
            Some(seek) => drop(lock(&shared.seeks).insert(name, Arc::new(seek))),
            None => warn!(subscription = name, topic = SEEKS, "malformed seek ignored"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let starts = [(("a.b".to_owned(), 0), 7), (("a.c".to_owned(), 11), 0)].into();
        let seek = Seek { id: "seek-1".into(), starts };
        assert_eq!(Seek::decode(&seek.encode()), Some(seek));
        assert_eq!(Seek::decode("seek-1\na.b zero 7"), None);
    }
}
