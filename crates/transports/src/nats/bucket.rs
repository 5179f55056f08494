//! The document of a subscription in its bucket: reading, changing, seeking.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use async_nats::jetstream::kv;
use chapar_core::port::{SeekTo, SubscriptionSpec, TransportError};

use super::group::{Group, Start};
use super::topology::{self, Domain, code, inbound};
use super::{Nats, safe, setup, unavailable};

/// A partition of a subscription.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) stream: String,
    pub(super) number: u32,
    pub(super) topics: Vec<String>,
}

impl Nats {
    /// The partitions of some topics, by their name in the document.
    pub(super) async fn parts(
        &self,
        topics: &[String],
    ) -> Result<BTreeMap<String, Part>, TransportError> {
        if let Some(service) = &self.0.options.service {
            return self.inbound_parts(service, topics).await;
        }
        let mut domains: BTreeMap<Domain, Vec<String>> = BTreeMap::new();
        for topic in topics {
            domains.entry(self.domain(topic)?).or_default().push(topic.clone());
        }
        let mut parts: BTreeMap<String, Part> = BTreeMap::new();
        for (domain, topics) in domains {
            let stream = domain.stream.clone();
            for number in self.ensure(&domain, None).await? {
                let fresh = || Part { stream: stream.clone(), number, topics: Vec::new() };
                let name = format!("{stream}/{number:04}");
                parts.entry(name).or_insert_with(fresh).topics.extend(topics.clone());
            }
        }
        let codes: BTreeMap<u32, &str> =
            parts.values().map(|part| (code(&part.stream, part.number), &*part.stream)).collect();
        if codes.len() < parts.len() {
            return Err(setup("two of the subscription's streams have the same number".into()));
        }
        Ok(parts)
    }

    /// The partitions of the stream with everything that one service may read.
    async fn inbound_parts(
        &self,
        service: &str,
        topics: &[String],
    ) -> Result<BTreeMap<String, Part>, TransportError> {
        let stream = inbound(service);
        let found = topology::existing(&self.0.context, &stream).await?;
        let brought = topology::brought(&found);
        if let Some(topic) = topics.iter().find(|topic| !brought.contains(*topic)) {
            return Err(setup(format!(
                "the stream {stream} does not get {topic}; declare {service} as its consumer in \
                 the catalog, and run `chapar topology apply`"
            )));
        }
        let part = |number| {
            let part = Part { stream: stream.clone(), number, topics: topics.to_vec() };
            (format!("{stream}/{number:04}"), part)
        };
        Ok(topology::partitions_of(&found, &self.0.options)?.into_iter().map(part).collect())
    }

    pub(super) async fn apply_subscription(
        &self,
        spec: &SubscriptionSpec,
    ) -> Result<(), TransportError> {
        let parts = self.parts(&spec.topics).await?;
        let (known, ()) = self.change(&spec.name, |_| Ok(())).await?;
        // A topic that comes to a subscription is read from where the others are now, although its
        // partitions may belong to a process for a while that does not know it.
        let mut floors: BTreeMap<&String, u64> = BTreeMap::new();
        for (name, part) in &parts {
            if let Some(share) = known.shares.get(name)
                && part.topics.iter().any(|topic| share.is_new(topic))
                && let Some(epoch) = share.cursor
            {
                floors.insert(name, self.floor(&spec.name, part, epoch).await?.unwrap_or(0));
            }
        }
        self.change(&spec.name, |group| {
            for (name, floor) in &floors {
                let share = group.shares.entry((*name).clone()).or_default();
                for topic in &parts[*name].topics {
                    if share.is_new(topic) {
                        share.left.insert(topic.clone(), *floor);
                    }
                }
            }
            let topics = group.topics.iter().chain(&spec.topics).cloned();
            group.topics = topics.collect::<BTreeSet<String>>().into_iter().collect();
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Changes a subscription's document by compare-and-set; returns the result. `change` may run
    /// several times, each time on a newer document.
    pub(super) async fn change<T>(
        &self,
        subscription: &str,
        mut change: impl FnMut(&mut Group) -> Result<T, TransportError>,
    ) -> Result<(Group, T), TransportError> {
        const TRIES: u32 = 50;
        let (bucket, key) = (self.bucket().await?, safe(subscription));
        for attempt in 0..TRIES {
            let entry = bucket.entry(&key).await.map_err(|error| unavailable(&error))?;
            let revision = entry.as_ref().map_or(0, |entry| entry.revision);
            let before: Group = match &entry {
                Some(entry) if entry.operation == kv::Operation::Put => {
                    serde_json::from_slice(&entry.value).map_err(|error| {
                        setup(format!("the entry {key} of the bucket is malformed: {error}"))
                    })?
                }
                _ => Group::default(),
            };
            let mut group = before.clone();
            subscription.clone_into(&mut group.name);
            let done = change(&mut group)?;
            if group == before && entry.is_some() {
                return Ok((group, done));
            }
            let json = serde_json::to_vec(&group).map_err(|error| setup(error.to_string()))?;
            match bucket.update(&key, json.into(), revision).await {
                Ok(_) => return Ok((group, done)),
                Err(error) if error.kind() == kv::UpdateErrorKind::WrongLastRevision => {
                    let pause =
                        Duration::from_millis(fastrand::u64(0..=u64::from(attempt.min(20))));
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Err(TransportError::Unavailable(format!("{subscription} changes too often")))
    }

    /// Moves a subscription, and waits until each of its processes has taken a turn since.
    pub(super) async fn seek_group(
        &self,
        subscription: &str,
        to: SeekTo,
    ) -> Result<(), TransportError> {
        let (group, ()) = self.change(subscription, |_| Ok(())).await?;
        if group.topics.is_empty() {
            return Err(setup(format!("there is no subscription {subscription}")));
        }
        let mut starts = BTreeMap::new();
        for (name, part) in self.parts(&group.topics).await? {
            let start = match to {
                SeekTo::Beginning => Start::Sequence(1),
                SeekTo::End => Start::Sequence(self.last(&part.stream).await? + 1),
                SeekTo::Time(at) => {
                    Start::Nanoseconds(at.as_nanosecond().try_into().unwrap_or(i64::MAX))
                }
                SeekTo::Position(to) if to.partition == code(&part.stream, part.number) => {
                    Start::Sequence(to.offset.max(1))
                }
                SeekTo::Position(_) => continue,
            };
            starts.insert(name, start);
        }
        let moved = self.change(subscription, |group| {
            for (name, start) in &starts {
                let share = group.shares.entry(name.clone()).or_default();
                (share.owner, share.start) = (None, Some(*start));
                share.epoch += 1;
            }
            Ok(())
        });
        let (before, ()) = moved.await?;
        let limit = Instant::now() + self.0.options.lease * 2;
        while Instant::now() < limit {
            let (now, ()) = self.change(subscription, |_| Ok(())).await?;
            if before.members.iter().all(|(owner, member)| now.members.get(owner) != Some(member)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn last(&self, stream: &str) -> Result<u64, TransportError> {
        let stream =
            self.0.context.get_stream(stream).await.map_err(|error| unavailable(&error))?;
        Ok(stream.cached_info().state.last_sequence)
    }

    async fn bucket(&self) -> Result<&kv::Store, TransportError> {
        let open = || async {
            let options = &self.0.options;
            let bucket = options.bucket_of(options.service.as_deref());
            match self.0.context.get_key_value(&bucket).await {
                Ok(bucket) => Ok(bucket),
                Err(error) if options.service.is_some() => Err(setup(format!(
                    "the bucket {bucket} cannot be opened: {error}; run `chapar topology apply`"
                ))),
                Err(_) => self.create_bucket(&bucket).await,
            }
        };
        self.0.bucket.get_or_try_init(open).await
    }

    pub(super) async fn create_bucket(&self, bucket: &str) -> Result<kv::Store, TransportError> {
        let config = kv::Config {
            bucket: bucket.to_owned(),
            description: "who owns which partition of a subscription".into(),
            history: 1,
            num_replicas: self.0.options.replicas,
            ..Default::default()
        };
        let created = self.0.context.create_key_value(config).await;
        created.map_err(|error| unavailable(&error))
    }
}
