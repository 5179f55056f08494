//! How a server differs from what a catalog asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_nats::jetstream::context::{DeleteStreamError, DeleteStreamErrorKind};
use async_nats::jetstream::stream::{self, RetentionPolicy, StorageType};
use async_nats::jetstream::{ErrorCode, kv};
use chapar_core::port::{
    Action, Difference, How, Retained, Setting, Topology, TransportError, span,
};
use futures_util::TryStreamExt;

use super::group::Group;
use super::topology::{self, Domain, OWN, PARTITIONS, SYSTEM};
use super::{Nats, NatsOptions, lock, safe, setup, unavailable};

/// The streams that a catalog asks for, by name.
pub(super) fn streams(
    wanted: &Topology,
    options: &NatsOptions,
) -> Result<BTreeMap<String, stream::Config>, TransportError> {
    let prefix = options.prefix.as_deref();
    let mut domains: BTreeMap<Domain, Duration> = BTreeMap::new();
    for topic in &wanted.topics {
        let retention = domains.entry(topology::domain(&topic.name, prefix)?).or_default();
        *retention = topic.retention.max(*retention);
    }
    let mut streams: BTreeMap<String, stream::Config> = BTreeMap::new();
    for (domain, max_age) in &domains {
        let config = topology::config(domain, *max_age, options);
        match streams.get_mut(&domain.stream) {
            Some(stream) => {
                stream.subjects.extend(config.subjects);
                stream.max_age = stream.max_age.max(*max_age);
            }
            None => drop(streams.insert(domain.stream.clone(), config)),
        }
    }
    if options.isolated {
        for (service, topics) in wanted.readers() {
            let mut sources: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            let mut max_age = Duration::ZERO;
            for topic in topics {
                let domain = topology::domain(topic, prefix)?;
                max_age = max_age.max(domains.get(&domain).copied().unwrap_or_default());
                sources.entry(domain.stream).or_default().insert(topic.to_owned());
            }
            let config = topology::inbound_config(service, &sources, max_age, options);
            streams.insert(config.name.clone(), config);
        }
    }
    Ok(streams)
}

/// The buckets that a catalog asks for.
pub(super) fn buckets(wanted: &Topology, options: &NatsOptions) -> Vec<String> {
    match options.isolated {
        true => wanted.readers().keys().map(|service| options.bucket_of(Some(service))).collect(),
        false => vec![options.bucket_of(None)],
    }
}

impl Nats {
    /// Everything that differs: buckets, streams, topics within them, subscriptions.
    pub(super) async fn differences(
        &self,
        wanted: &Topology,
    ) -> Result<Vec<Difference>, TransportError> {
        let options = &self.0.options;
        let found: Vec<stream::Info> =
            self.0.context.streams().try_collect().await.map_err(|error| unavailable(&error))?;
        let mut found: BTreeMap<String, stream::Config> =
            found.into_iter().map(|info| (info.config.name.clone(), info.config)).collect();
        let mut differences = Vec::new();
        let mut groups = BTreeMap::new();
        for bucket in buckets(wanted, options) {
            match found.remove(&format!("KV_{bucket}")) {
                Some(config) => {
                    differences.extend(change("bucket", &bucket, replicas(&config, options)));
                    groups.extend(self.groups(&bucket).await?);
                }
                None => {
                    let settings = [("num_replicas", options.replicas.to_string())].into();
                    let action = Action::Create { settings };
                    differences.push(Difference { kind: "bucket", name: bucket, action });
                }
            }
        }
        for (name, config) in streams(wanted, options)? {
            match found.remove(&name) {
                Some(found) => {
                    differences.extend(change("stream", &name, settings(&found, &config)));
                    differences.extend(self.undeclared(&name, wanted).await?);
                }
                None => {
                    let action = Action::Create { settings: describe(&config) };
                    differences.push(Difference { kind: "stream", name, action });
                }
            }
        }
        for (name, config) in found {
            if config.metadata.get(SYSTEM) == Some(&wanted.system) {
                let action = Action::Extra { holds: format!("what is under {}", held(&config)) };
                differences.push(Difference { kind: "stream", name, action });
            }
        }
        let judged = groups.values().filter_map(|group| wanted.judge(&group.name, &group.topics));
        differences.extend(judged);
        Ok(differences)
    }

    /// Topics with messages in a stream that are not declared.
    async fn undeclared(
        &self,
        stream: &str,
        wanted: &Topology,
    ) -> Result<Vec<Difference>, TransportError> {
        let stream = self.0.context.get_stream_no_info(stream).await;
        let stream = stream.map_err(|error| unavailable(&error))?;
        let subjects = stream.info_with_subjects(">").await.map_err(|error| unavailable(&error))?;
        let mut topics: BTreeMap<String, usize> = BTreeMap::new();
        let counts: Vec<(String, usize)> =
            subjects.try_collect().await.map_err(|error| unavailable(&error))?;
        for (subject, count) in counts {
            if let Some((topic, _)) = topology::parse(&subject)
                && wanted.owns(topic)
                && !wanted.declares(topic)
            {
                *topics.entry(topic.to_owned()).or_default() += count;
            }
        }
        let extra = |(name, count)| {
            let action = Action::Extra { holds: format!("{count} messages") };
            Difference { kind: "topic", name, action }
        };
        Ok(topics.into_iter().map(extra).collect())
    }

    /// The documents of a bucket with the name of their subscription, by key.
    async fn groups(&self, bucket: &str) -> Result<BTreeMap<String, Group>, TransportError> {
        let store = self.0.context.get_key_value(bucket).await;
        let store = store.map_err(|error| unavailable(&error))?;
        let keys = store.keys().await.map_err(|error| unavailable(&error))?;
        let keys: Vec<String> = keys.try_collect().await.map_err(|error| unavailable(&error))?;
        let mut groups = BTreeMap::new();
        for key in keys {
            let value = store.get(&key).await.map_err(|error| unavailable(&error))?;
            let group = value.and_then(|value| serde_json::from_slice::<Group>(&value).ok());
            groups.extend(group.filter(|group| !group.name.is_empty()).map(|group| (key, group)));
        }
        Ok(groups)
    }

    /// Carries out a difference.
    pub(super) async fn settle(
        &self,
        wanted: &Topology,
        difference: &Difference,
    ) -> Result<(), TransportError> {
        let (context, name) = (&self.0.context, &difference.name);
        lock(&self.0.streams).clear();
        match (difference.kind, &difference.action) {
            ("bucket", Action::Create { .. }) => self.create_bucket(name).await.map(drop),
            ("stream", Action::Create { .. }) => {
                let config = self.wanted_stream(wanted, name)?;
                let created = context.create_stream(config).await;
                created.map(drop).map_err(|error| unavailable(&error))
            }
            ("bucket", Action::Change { .. }) => {
                let mut config = topology::existing(context, &format!("KV_{name}")).await?;
                config.num_replicas = self.0.options.replicas;
                self.update(&config).await
            }
            ("stream", Action::Change { settings }) => {
                let to = self.wanted_stream(wanted, name)?;
                let mut config = topology::existing(context, name).await?;
                for setting in settings {
                    set(&mut config, &to, setting.setting);
                }
                self.update(&config).await
            }
            ("stream", Action::Extra { .. }) => {
                self.refuse_if_read(wanted, |group| {
                    group.shares.keys().any(|share| share.split('/').next() == Some(name))
                })
                .await?;
                let gone = |error: &DeleteStreamError| match error.kind() {
                    DeleteStreamErrorKind::JetStream(said) => {
                        said.error_code() == ErrorCode::STREAM_NOT_FOUND
                    }
                    _ => false,
                };
                match context.delete_stream(name).await {
                    Err(error) if !gone(&error) => Err(unavailable(&error)),
                    _ => Ok(()),
                }
            }
            ("topic", Action::Extra { .. }) => {
                self.refuse_if_read(wanted, |group| group.topics.contains(name)).await?;
                let stream = context.get_stream(&self.domain(name)?.stream).await;
                let stream = stream.map_err(|error| unavailable(&error))?;
                let purged = stream.purge().filter(format!("{name}.*")).await;
                purged.map(drop).map_err(|error| unavailable(&error))
            }
            ("subscription", Action::Extra { .. }) => self.forget(wanted, name).await,
            (kind, _) => Err(setup(format!("a {kind} cannot be changed here"))),
        }
    }

    fn wanted_stream(
        &self,
        wanted: &Topology,
        name: &str,
    ) -> Result<stream::Config, TransportError> {
        let config = streams(wanted, &self.0.options)?.remove(name);
        config.ok_or_else(|| setup(format!("the catalog asks for no stream {name}")))
    }

    async fn update(&self, config: &stream::Config) -> Result<(), TransportError> {
        let name = &config.name;
        self.0.context.update_stream(config).await.map(drop).map_err(|error| {
            setup(format!("the stream {name} cannot be changed: {error}; nothing was touched"))
        })
    }

    /// Deletes a subscription without members, with its cursors.
    async fn forget(&self, wanted: &Topology, name: &str) -> Result<(), TransportError> {
        self.refuse_if_read(wanted, |group| group.name == *name).await?;
        let context = &self.0.context;
        for bucket in buckets(wanted, &self.0.options) {
            let Some(group) = self.groups(&bucket).await?.remove(&safe(name)) else { continue };
            for (part, share) in &group.shares {
                let Some((stream, number)) = part.split_once('/') else { continue };
                let durables = share.epoch.saturating_sub(16)..=share.epoch;
                for epoch in durables {
                    let number: u32 = number.parse().unwrap_or_default();
                    let durable = format!("{}_p{number}_e{epoch}", safe(name));
                    // Most of them were deleted before.
                    let _ = context.delete_consumer_from_stream(&durable, stream).await;
                }
            }
            let store: kv::Store =
                context.get_key_value(&bucket).await.map_err(|error| unavailable(&error))?;
            store.purge(safe(name)).await.map_err(|error| unavailable(&error))?;
        }
        Ok(())
    }

    /// Refuses while a member still raises its heartbeat.
    async fn refuse_if_read(
        &self,
        wanted: &Topology,
        concerned: impl Fn(&Group) -> bool,
    ) -> Result<(), TransportError> {
        let mut before: Option<BTreeMap<String, Group>> = None;
        loop {
            let mut now = BTreeMap::new();
            for bucket in buckets(wanted, &self.0.options) {
                if self.0.context.get_key_value(&bucket).await.is_ok() {
                    now.extend(self.groups(&bucket).await?);
                }
            }
            now.retain(|_, group| concerned(group) && !group.members.is_empty());
            let Some(before) = before.replace(now.clone()) else {
                if now.is_empty() {
                    return Ok(());
                }
                tokio::time::sleep(self.0.options.lease).await;
                continue;
            };
            let alive = now.iter().find(|(key, group)| {
                before.get(*key).is_some_and(|earlier| earlier.members != group.members)
            });
            return match alive {
                Some((_, group)) => {
                    let name = &group.name;
                    Err(setup(format!("{name} still reads it; stop its processes first")))
                }
                None => Ok(()),
            };
        }
    }
}

fn change(
    kind: &'static str,
    name: &str,
    settings: impl IntoIterator<Item = Setting>,
) -> Option<Difference> {
    let settings: Vec<Setting> = settings.into_iter().collect();
    let action = Action::Change { settings: settings.clone() };
    (!settings.is_empty()).then(|| Difference { kind, name: name.to_owned(), action })
}

fn replicas(found: &stream::Config, options: &NatsOptions) -> Option<Setting> {
    Setting::differs("num_replicas", found.num_replicas, options.replicas, How::InPlace)
}

/// What differs between a stream and the one that is asked for.
fn settings(found: &stream::Config, wanted: &stream::Config) -> Vec<Setting> {
    let recreate = |what: &str| {
        How::ByHand(format!(
            "JetStream cannot change {what}: back the stream up, delete it and apply again, or \
             give every process the setting that it has"
        ))
    };
    let value = |config: &stream::Config, key: &str| {
        config.metadata.get(key).map_or("none", String::as_str).to_owned()
    };
    let system = match found.metadata.get(SYSTEM) {
        Some(other) => How::ByHand(format!("the stream is of {other}; use another server")),
        None => How::InPlace,
    };
    let mut merged = found.clone();
    for setting in ["subjects", OWN] {
        set(&mut merged, wanted, setting);
    }
    let window = found.duplicate_window.max(wanted.duplicate_window);
    let settings = [
        Setting::differs("subjects", held(found), held(&merged), How::InPlace),
        Setting::differs(
            "retention",
            format!("{:?}", found.retention),
            format!("{:?}", RetentionPolicy::Limits),
            recreate("the retention policy"),
        ),
        Setting::differs(
            "storage",
            format!("{:?}", found.storage),
            format!("{:?}", StorageType::File),
            recreate("the storage"),
        ),
        Setting::differs("num_replicas", found.num_replicas, wanted.num_replicas, How::InPlace),
        Setting::kept(
            "max_age",
            Retained::unless_zero(found.max_age),
            Retained::unless_zero(wanted.max_age),
        ),
        Setting::differs(
            "duplicate_window",
            span(found.duplicate_window),
            span(window),
            How::InPlace,
        ),
        Setting::differs("no_ack", found.no_ack, wanted.no_ack, How::InPlace),
        Setting::differs("allow_direct", found.allow_direct, wanted.allow_direct, How::InPlace),
        Setting::differs(
            "sources",
            listed(topology::brought(found)),
            listed(topology::brought(wanted)),
            How::InPlace,
        ),
        Setting::differs(
            PARTITIONS,
            value(found, PARTITIONS),
            value(wanted, PARTITIONS),
            recreate("the number of partitions, because keys would move"),
        ),
        Setting::differs(OWN, value(found, OWN), value(&merged, OWN), How::InPlace),
        Setting::differs(SYSTEM, value(found, SYSTEM), value(wanted, SYSTEM), system),
    ];
    settings.into_iter().flatten().collect()
}

/// Copies one setting of the wanted stream.
fn set(config: &mut stream::Config, wanted: &stream::Config, setting: &str) {
    match setting {
        "subjects" => {
            let missing = wanted.subjects.iter().filter(|s| !config.subjects.contains(s));
            config.subjects.extend(missing.cloned().collect::<Vec<_>>());
        }
        "num_replicas" => config.num_replicas = wanted.num_replicas,
        "max_age" => {
            config.max_age = wanted.max_age;
            config.duplicate_window = config.duplicate_window.min(wanted.max_age);
        }
        "duplicate_window" => config.duplicate_window = wanted.duplicate_window,
        "no_ack" => config.no_ack = wanted.no_ack,
        "allow_direct" => config.allow_direct = wanted.allow_direct,
        "sources" => config.sources.clone_from(&wanted.sources),
        OWN => {
            let own = topology::own_of(config).union(&topology::own_of(wanted)).copied().collect();
            config.metadata.extend(topology::own_partitions(&own));
        }
        _ => {
            let value = wanted.metadata.get(setting).cloned();
            config.metadata.extend(value.map(|value| (setting.to_owned(), value)));
        }
    }
}

fn describe(config: &stream::Config) -> BTreeMap<&'static str, String> {
    let mut settings: BTreeMap<&'static str, String> = [
        ("max_age", Retained::unless_zero(config.max_age).to_string()),
        ("num_replicas", config.num_replicas.to_string()),
        ("duplicate_window", span(config.duplicate_window)),
        (PARTITIONS, config.metadata.get(PARTITIONS).cloned().unwrap_or_default()),
    ]
    .into();
    match config.sources {
        Some(_) => settings.insert("sources", listed(topology::brought(config))),
        None => settings.insert("subjects", held(config)),
    };
    settings
}

fn held(config: &stream::Config) -> String {
    match config.subjects.is_empty() {
        true => listed(topology::brought(config)),
        false => listed(config.subjects.iter().cloned()),
    }
}

fn listed(names: impl IntoIterator<Item = String>) -> String {
    let names: Vec<String> = names.into_iter().collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
