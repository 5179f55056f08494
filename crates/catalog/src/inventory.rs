//! Topics, subscriptions and grants for setting up a broker.

use std::collections::BTreeMap;
use std::time::Duration;

use chapar_core::catalog::{Catalog, Encoding, Event, Volume};
use chapar_core::port::{DeclaredSubscription, TopicSpec, Topology};
use serde::Serialize;

use crate::Loaded;

/// Every topic of a system, for `topics.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// The system.
    pub system: String,
    /// Its topics, by name.
    pub topics: Vec<Topic>,
}

/// A topic and its settings.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topic {
    /// The topic: its subject.
    pub topic: String,
    /// The only service that publishes to it.
    pub owner: String,
    /// Domain or integration.
    pub kind: &'static str,
    /// The topic of its dead letters.
    pub dead_letter_topic: String,
    /// The template of its ordering key; none if order does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    /// The retention class.
    pub retention: String,
    /// Its retention in days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<Days>,
    /// Its region, or `tenant`.
    pub residency: String,
    /// The expected rate.
    pub volume: &'static str,
    /// The number of partitions for that rate.
    pub partitions: u32,
    /// The encoding of its payload.
    pub encoding: &'static str,
    /// Whether its readers may span tenants.
    pub cross_tenant: bool,
    /// The address of its schema with the content hash, or the Protobuf message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Whether it is deprecated.
    pub deprecated: bool,
}

/// The retention of an event in days.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Days {
    /// The broker.
    pub hot: u32,
    /// The warehouse.
    pub warm: u32,
    /// Cold storage.
    pub cold: u32,
}

/// A consumer's subscription to a topic.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    /// `<consumer-service>.<topic-short>.sub`.
    pub name: String,
    /// What it reads.
    pub topic: String,
    /// The consuming service.
    pub consumer: String,
    /// Whether it must get the events of a key in order.
    pub ordered: bool,
    /// The versions of the event that the consumer accepts.
    pub accepts: Vec<u32>,
    /// Its purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// The topic of its dead letters.
    pub dead_letter_topic: String,
}

/// The rights of one service, or of another reader.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The service.
    pub service: String,
    /// The account that publishes for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
    /// The topics it may publish to: only its own.
    pub publish: Vec<String>,
    /// The account that subscribes for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriber: Option<String>,
    /// The topics it may read.
    pub read: Vec<String>,
    /// The subscriptions it reads them by: only its own.
    pub subscriptions: Vec<String>,
}

/// The topics of a system.
pub fn topics(loaded: &Loaded) -> Inventory {
    let catalog = &loaded.catalog;
    let mut topics: Vec<Topic> = catalog.events().map(|event| topic(loaded, event)).collect();
    topics.sort_by(|a, b| a.topic.cmp(&b.topic));
    Inventory { system: catalog.profile.name.clone(), topics }
}

/// The subscriptions of a system, by name.
pub fn subscriptions(catalog: &Catalog) -> Vec<Subscription> {
    let mut subscriptions = Vec::new();
    for event in catalog.events() {
        for reader in catalog.readers(event) {
            let consumer = event.consumers.iter().find(|consumer| consumer.service == reader);
            let version = event.subject.version();
            subscriptions.push(Subscription {
                name: subscription_name(catalog, reader, event),
                topic: event.subject.to_string(),
                consumer: reader.to_owned(),
                ordered: event.key.is_some(),
                accepts: consumer.map_or_else(|| vec![version], |c| c.accepts.clone()),
                purpose: consumer.and_then(|consumer| consumer.purpose.clone()),
                dead_letter_topic: dead_letter(catalog, event),
            });
        }
    }
    subscriptions.sort_by(|a, b| a.name.cmp(&b.name));
    subscriptions
}

/// The topology that a transport is compared with.
pub fn topology(loaded: &Loaded) -> Topology {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let Inventory { system, topics } = topics(loaded);
    let mut publishers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for topic in &topics {
        publishers.entry(topic.owner.clone()).or_default().push(topic.topic.clone());
    }
    let topics = topics.into_iter().map(|topic| TopicSpec {
        name: topic.topic,
        partitions: topic.partitions,
        retention: DAY * topic.retention_days.map_or(7, |days| days.hot),
    });
    let subscriptions = subscriptions(&loaded.catalog).into_iter();
    let subscriptions = subscriptions.map(|subscription| DeclaredSubscription {
        name: subscription.name,
        service: subscription.consumer,
        topic: subscription.topic,
        ordered: subscription.ordered,
        dead_letter_topic: subscription.dead_letter_topic,
    });
    Topology {
        system,
        topics: topics.collect(),
        publishers,
        subscriptions: subscriptions.collect(),
    }
}

/// Publish and read rights, by service.
///
/// A service publishes its own topics and reads by its own subscriptions. A service that reads
/// everything may read every topic, including its own, to which it does not subscribe.
pub fn grants(catalog: &Catalog) -> Vec<Grant> {
    let mut grants: BTreeMap<&str, Grant> = BTreeMap::new();
    for event in catalog.events() {
        let topic = event.subject.as_str();
        grants.entry(&event.owner).or_default().publish.push(topic.to_owned());
        for reader in catalog.readers(event) {
            let grant = grants.entry(reader).or_default();
            grant.read.push(topic.to_owned());
            grant.subscriptions.push(subscription_name(catalog, reader, event));
        }
        for sink in &catalog.system.sinks {
            if sink.subjects.iter().any(|pattern| pattern.matches(topic)) {
                grants.entry(&sink.name).or_default().read.push(topic.to_owned());
            }
        }
    }
    for reader in &catalog.system.readers_of_all {
        let all = catalog.events().map(|event| event.subject.to_string());
        grants.entry(reader).or_default().read = all.collect();
    }
    let system = &catalog.system;
    let account = |template: &Option<String>, service: &str| {
        template.as_ref().map(|template| template.replace("{service}", service))
    };
    for (service, grant) in &mut grants {
        grant.service = (*service).to_owned();
        for list in [&mut grant.publish, &mut grant.read, &mut grant.subscriptions] {
            list.sort();
        }
        if system.sinks.iter().any(|sink| sink.name == *service) {
            grant.subscriber = Some((*service).to_owned());
            continue;
        }
        if !grant.publish.is_empty() {
            grant.publisher = account(&system.publisher, service);
        }
        if !grant.read.is_empty() {
            grant.subscriber = account(&system.subscriber, service);
        }
    }
    grants.into_values().collect()
}

/// `<consumer-service>.<topic-short>.sub`; includes the version, so that two versions do not
/// collide.
pub fn subscription_name(catalog: &Catalog, consumer: &str, event: &Event) -> String {
    format!("{consumer}.{}.sub", catalog.short(event.subject.as_str()))
}

/// The number of partitions for a volume.
pub fn partitions(volume: Volume) -> u32 {
    match volume {
        Volume::Low => 3,
        Volume::Medium => 6,
        Volume::High => 12,
    }
}

fn topic(loaded: &Loaded, event: &Event) -> Topic {
    let catalog = &loaded.catalog;
    let profile = &catalog.profile;
    let subject = event.subject.as_str();
    let message = match &event.encoding {
        Encoding::Protobuf(message) => Some(message.clone()),
        Encoding::Json => None,
    };
    let days = profile.retention.get(&event.retention);
    let days = days.map(|d| Days { hot: d.hot_days, warm: d.warm_days, cold: d.cold_days });
    Topic {
        topic: subject.to_owned(),
        owner: event.owner.clone(),
        kind: event.kind.as_str(),
        dead_letter_topic: dead_letter(catalog, event),
        ordering_key: ordering_key(catalog, event),
        retention: event.retention.clone(),
        retention_days: days,
        residency: event.residency.clone().unwrap_or_else(|| "tenant".to_owned()),
        volume: event.volume.as_str(),
        partitions: partitions(event.volume),
        encoding: event.encoding.as_str(),
        cross_tenant: profile.cross_tenant.iter().any(|topic| topic.subject == subject),
        schema: loaded.schema_uri(subject).or(message),
        deprecated: event.deprecated.is_some(),
    }
}

/// The system's key template with the event's own field in it, such as `{tenant}:{folioId}`.
pub(crate) fn ordering_key(catalog: &Catalog, event: &Event) -> Option<String> {
    let key = event.key.as_ref()?;
    let template = serde_json::to_value(&catalog.profile.key_template).ok()?;
    Some(template.as_str()?.replace("{aggregate_id}", &format!("{{{key}}}")))
}

/// Systems with one stream per service name it by the service in capitals.
pub(crate) fn dead_letter(catalog: &Catalog, event: &Event) -> String {
    let stream = event.subject.service().to_uppercase();
    catalog.profile.dlq_template.fill(event.subject.as_str(), &stream)
}
