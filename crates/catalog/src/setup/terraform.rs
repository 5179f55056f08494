//! Terraform for Google Pub/Sub: a module that reads the catalog's generated lists, so that a
//! change of the catalog changes only a list.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Files, SetupError};
use crate::Loaded;
use crate::inventory;

/// What `main.tf` reads of a subscription.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Subscription<'a> {
    name: &'a str,
    topic: &'a str,
    service: &'a str,
    account: String,
    dead_letter_topic: &'a str,
    /// The subscription for the service's own dead letters.
    dead_letter_name: String,
    /// The push path on its service; none if the service pulls.
    push_path: Option<String>,
}

/// Rights on a topic.
#[derive(Default, Serialize)]
struct Access {
    publishers: BTreeSet<String>,
    subscribers: BTreeSet<String>,
}

/// A Terraform module; the services of `push` get their events over HTTP instead of pulling.
///
/// The settings are those of the platform: retry from 10 s to 600 s, everything kept 7 days even
/// when acknowledged, 60 s to acknowledge a push and 600 s a pull, and a dead-letter topic. Google
/// refuses exactly-once delivery on pushes, where the inbox provides it. Ordering is always
/// enabled: it cannot be enabled later, and has no effect on a message without a key.
pub fn terraform(loaded: &Loaded, push: &[String]) -> Result<Files, SetupError> {
    let catalog = &loaded.catalog;
    let subscriptions = inventory::subscriptions(catalog);
    let readers: BTreeSet<&str> = subscriptions.iter().map(|s| s.consumer.as_str()).collect();
    if let Some(service) = push.iter().find(|service| !readers.contains(service.as_str())) {
        let readers = readers.into_iter().collect::<Vec<_>>().join(", ");
        return Err(SetupError::ReadsNothing { service: service.clone(), readers });
    }
    let grants = inventory::grants(catalog);
    let account = |service: &str| {
        let grant = grants.iter().find(|grant| grant.service == service);
        let declared = grant.and_then(|grant| grant.subscriber.as_deref());
        member(declared.unwrap_or(&format!("{service}-subscriber")))
    };
    let of = |subscription: &'_ inventory::Subscription| {
        let short = catalog.short(&subscription.topic);
        let pushed = push.contains(&subscription.consumer);
        (account(&subscription.consumer), pushed.then(|| format!("/internal/events/{short}")))
    };
    let subscriptions: Vec<Subscription<'_>> = subscriptions
        .iter()
        .map(|subscription| {
            let (account, push_path) = of(subscription);
            Subscription {
                name: &subscription.name,
                topic: &subscription.topic,
                service: &subscription.consumer,
                account,
                dead_letter_topic: &subscription.dead_letter_topic,
                dead_letter_name: format!("{}.dlq.sub", subscription.name.trim_end_matches(".sub")),
                push_path,
            }
        })
        .collect();

    // Only readers without a subscription of the catalog may subscribe to the topic itself.
    let mut access: BTreeMap<&str, Access> = BTreeMap::new();
    for grant in &grants {
        let of_all = catalog.system.readers_of_all.contains(&grant.service);
        let is_sink = catalog.system.sinks.iter().any(|sink| sink.name == grant.service);
        for topic in &grant.publish {
            let name = format!("{}-publisher", grant.service);
            let publisher = member(grant.publisher.as_deref().unwrap_or(&name));
            access.entry(topic).or_default().publishers.insert(publisher);
        }
        for topic in grant.read.iter().filter(|_| of_all || is_sink) {
            let name = format!("{}-subscriber", grant.service);
            let subscriber = member(grant.subscriber.as_deref().unwrap_or(&name));
            access.entry(topic).or_default().subscribers.insert(subscriber);
        }
    }
    let json = |value: serde_json::Result<String>| value.map(|text| format!("{text}\n"));
    Ok(BTreeMap::from([
        ("topics.json".into(), json(serde_json::to_string_pretty(&inventory::topics(loaded)))?),
        ("subscriptions.json".into(), json(serde_json::to_string_pretty(&subscriptions))?),
        ("access.json".into(), json(serde_json::to_string_pretty(&access))?),
        ("main.tf".into(), include_str!("main.tf").to_owned()),
        ("variables.tf".into(), include_str!("variables.tf").to_owned()),
    ]))
}

/// An account in Google's form. One without a domain belongs to the project, which `main.tf` adds.
fn member(account: &str) -> String {
    match account.ends_with(".iam") {
        true => format!("serviceAccount:{account}.gserviceaccount.com"),
        false if account.contains('@') => format!("serviceAccount:{account}"),
        false => account.to_owned(),
    }
}
