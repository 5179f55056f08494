//! What only Pub/Sub has: its settings, its dead letters, its leases.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chapar_core::Id;
use chapar_core::port::{
    Delivery, Outgoing, SeekTo, Subscription, SubscriptionSpec, Transport, TransportError,
};
use chapar_testkit::need;
use chapar_testkit::proxy::Proxy;
use chapar_testkit::servers;
use chapar_transports::pubsub::{Handed, PubSub, PubSubOptions, Pushed};
use google_cloud_auth::credentials::anonymous;
use google_cloud_pubsub::client::{Publisher, SubscriptionAdmin};
use google_cloud_pubsub::model::Message;

pub(crate) const PROJECT: &str = "specifics";
const LEASE: Duration = Duration::from_secs(2);

fn options() -> PubSubOptions {
    PubSubOptions {
        prefix: Some("melmastoon".into()),
        lease: LEASE,
        drain_every: Duration::from_millis(300),
        timeout: Duration::from_secs(3),
        ..PubSubOptions::default()
    }
}

pub(crate) async fn connect(host: &str) -> PubSub {
    connect_for(host, LEASE).await
}

async fn connect_for(host: &str, lease: Duration) -> PubSub {
    let url = format!("pubsub://{PROJECT}?emulator={host}");
    PubSub::connect(&url, PubSubOptions { lease, ..options() }).await.unwrap()
}

/// A topic that no other test has.
pub(crate) fn topic() -> String {
    format!("melmastoon.t{}.booking.held.v1", fastrand::u64(..))
}

pub(crate) fn spec(topic: &str) -> SubscriptionSpec {
    SubscriptionSpec {
        name: "inventory.holds".into(),
        topics: vec![topic.to_owned()],
        ack_deadline: Duration::from_secs(30),
        max_in_flight: 100,
    }
}

pub(crate) fn subscription_of(topic: &str) -> String {
    format!("inventory.holds.{}.sub", topic.strip_prefix("melmastoon.").unwrap())
}

pub(crate) fn message(topic: &str, key: &str, number: u32) -> Outgoing {
    Outgoing {
        id: Id::uuid_v4(fastrand::u128(..)),
        topic: topic.into(),
        tenant: "acme".into(),
        key: Some(key.into()),
        headers: Default::default(),
        body: Bytes::from(format!("{key}:{number}")),
    }
}

async fn publish(transport: &dyn Transport, message: Outgoing) {
    transport.publish(vec![message]).await.remove(0).unwrap();
}

pub(crate) async fn fetch(reader: &dyn Subscription, count: usize) -> Vec<Delivery> {
    let (mut got, limit) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    while got.len() < count {
        got.extend(reader.fetch(count - got.len(), Duration::from_millis(300)).await.unwrap());
        assert!(Instant::now() < limit, "{} of {count} came", got.len());
    }
    got
}

fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|d| String::from_utf8(d.body.to_vec()).unwrap()).collect()
}

pub(crate) async fn admin(host: &str) -> SubscriptionAdmin {
    let builder = SubscriptionAdmin::builder().with_endpoint(format!("http://{host}"));
    builder.with_credentials(anonymous::Builder::new().build()).build().await.unwrap()
}

#[tokio::test]
async fn a_subscription_has_the_settings_of_the_system() {
    let host = need!(servers::pubsub()).url().to_owned();
    let (pubsub, topic) = (connect(&host).await, topic());
    pubsub.apply(&[], &[spec(&topic)]).await.unwrap();
    let name = format!("projects/{PROJECT}/subscriptions/{}", subscription_of(&topic));
    let found = admin(&host).await.get_subscription().set_subscription(&name).send().await.unwrap();
    assert!(found.enable_message_ordering && found.enable_exactly_once_delivery);
    assert!(found.retain_acked_messages);
    assert_eq!(found.message_retention_duration.unwrap().seconds(), 7 * 24 * 3600);
    let retry = found.retry_policy.unwrap();
    assert_eq!(retry.minimum_backoff.unwrap().seconds(), 10);
    assert_eq!(retry.maximum_backoff.unwrap().seconds(), 600);
    let dead = found.dead_letter_policy.unwrap();
    assert_eq!(dead.dead_letter_topic, format!("projects/{PROJECT}/topics/{topic}.dlq"));
    assert_eq!(dead.max_delivery_attempts, 100);
}

#[tokio::test]
async fn a_subscription_without_order_is_refused_by_name() {
    let host = need!(servers::pubsub()).url().to_owned();
    let (pubsub, topic) = (connect(&host).await, topic());
    publish(&pubsub, message(&topic, "a", 1)).await;
    let made = admin(&host)
        .await
        .create_subscription()
        .set_name(format!("projects/{PROJECT}/subscriptions/{}", subscription_of(&topic)))
        .set_topic(format!("projects/{PROJECT}/topics/{topic}"));
    made.send().await.unwrap();
    let said = pubsub.subscribe(&spec(&topic)).await.err().unwrap();
    assert!(matches!(said, TransportError::Setup(_)), "{said}");
    let said = said.to_string();
    assert!(said.contains("enable_message_ordering false where true"), "{said}");
    assert!(said.contains(&subscription_of(&topic)), "{said}");
}

/// Put there as the service does it: the emulator fails where it should.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_service_gives_up_takes_the_usual_road_once_more() {
    let host = need!(servers::pubsub()).url().to_owned();
    let (pubsub, topic) = (connect(&host).await, topic());
    let reader = pubsub.subscribe(&spec(&topic)).await.unwrap();
    let dead = Publisher::builder(format!("projects/{PROJECT}/topics/{topic}.dlq"))
        .with_endpoint(format!("http://{host}"))
        .with_credentials(anonymous::Builder::new().build())
        .build()
        .await
        .unwrap();
    for (source, body) in [("another.consumer.sub", "theirs"), (&*subscription_of(&topic), "ours")]
    {
        let source = ("CloudPubSubDeadLetterSourceSubscription", source);
        let letter = Message::new()
            .set_data(body.to_owned())
            .set_attributes(HashMap::from([source, ("ce-id", "7")]))
            .set_ordering_key("a");
        dead.publish(letter).await.unwrap();
    }
    let got = fetch(&*reader, 1).await;
    assert_eq!((bodies(&got), &got[0].topic), (vec!["ours".to_owned()], &topic));
    assert_eq!(got[0].headers, [("ce-id", "7")].into());
    reader.ack(&[got[0].token]).await.unwrap();
    assert!(reader.fetch(9, Duration::from_secs(1)).await.unwrap().is_empty());
}

/// The relay repeats what it has had no answer to; the service has it twice by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_whose_answer_was_lost_is_repeated_and_delivered_once() {
    let host = need!(servers::pubsub()).url().to_owned();
    let network = Proxy::to(&host).unwrap();
    let (relay, direct) = (connect(&network.address().to_string()).await, connect(&host).await);
    let topic = topic();
    let reader = direct.subscribe(&spec(&topic)).await.unwrap();
    publish(&relay, message(&topic, "a", 1)).await;
    assert!(network.lose_answers() > 0);
    let second = message(&topic, "a", 2);
    let lost = relay.publish(vec![second.clone()]).await.remove(0);
    assert!(lost.is_err_and(|error| error.is_retryable()));
    assert!(network.lost_bytes() > 0, "the service has answered");
    network.heal();
    let limit = Instant::now() + Duration::from_secs(20);
    while relay.publish(vec![second.clone()]).await.remove(0).is_err() {
        assert!(Instant::now() < limit, "publishing does not recover");
    }
    publish(&relay, message(&topic, "a", 3)).await;
    let mut got = Vec::new();
    while got.len() < 3 {
        let next = fetch(&*reader, 1).await;
        reader.ack(&[next[0].token]).await.unwrap();
        got.extend(bodies(&next));
    }
    assert_eq!(got, ["a:1", "a:2", "a:3"]);
    assert!(reader.fetch(9, Duration::from_millis(500)).await.unwrap().is_empty());
}

/// Cut off in silence, a process stops before the service gives its messages away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_half_open_connection_a_process_lets_go_before_another_begins() {
    let host = need!(servers::pubsub()).url().to_owned();
    lets_go_in_time(&host, LEASE).await;
}

/// So long that it is the service's own deadline, and nothing is extended before it is delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_has_never_extended_lets_go_before_another_begins() {
    let host = need!(servers::pubsub()).url().to_owned();
    lets_go_in_time(&host, Duration::from_secs(10)).await;
}

async fn lets_go_in_time(host: &str, lease: Duration) {
    let network = Proxy::to(host).unwrap();
    let far = connect_for(&network.address().to_string(), lease).await;
    let near = connect_for(host, lease).await;
    let topic = topic();
    let cut_off = far.subscribe(&spec(&topic)).await.unwrap();
    for number in 1..=4 {
        publish(&near, message(&topic, "a", number)).await;
    }
    let held = fetch(&*cut_off, 2).await;
    assert!(network.half_open() > 0);
    let heir = near.subscribe(&spec(&topic)).await.unwrap();
    // What it still has in memory may be delivered for as long as the lease is certain.
    let limit = Instant::now() + lease + Duration::from_secs(20);
    let first = loop {
        let got = heir.fetch(9, Duration::from_millis(10)).await.unwrap();
        if !got.is_empty() {
            break got;
        }
        assert!(Instant::now() < limit, "no process takes over");
    };
    assert_eq!(bodies(&first)[0], "a:1");
    let late = cut_off.ack(&[held[0].token]).await;
    assert!(matches!(late, Err(TransportError::Expired)), "{late:?}");
    assert!(cut_off.fetch(9, Duration::from_millis(50)).await.unwrap().is_empty());
    heir.ack(&first.into_iter().map(|delivery| delivery.token).collect::<Vec<_>>()).await.unwrap();
    network.heal();
    heir.close().await.unwrap();
    publish(&near, message(&topic, "a", 5)).await;
    let got = fetch(&*cut_off, 1).await;
    assert_eq!(bodies(&got), ["a:5"], "the old process goes on");
}

#[tokio::test]
async fn what_pubsub_cannot_take_is_refused_with_its_limit() {
    let host = need!(servers::pubsub()).url().to_owned();
    let (pubsub, topic) = (connect(&host).await, topic());
    let large = Outgoing { body: vec![0; 10_000_001].into(), ..message(&topic, "a", 1) };
    let odd = message("no topic", "a", 1);
    let answers = pubsub.publish(vec![large, odd, message(&topic, "b", 1)]).await;
    for (answer, text) in answers.iter().zip(["10000000", "no topic"]) {
        let said = answer.as_ref().unwrap_err();
        assert!(matches!(said, TransportError::Refused(_)), "{said}");
        assert!(said.to_string().contains(text), "{said}");
    }
    assert!(answers[2].is_ok(), "its neighbour is published");
    let seek = pubsub.seek("inventory.holds", SeekTo::Beginning).await;
    assert!(matches!(seek, Err(TransportError::Unsupported(_))), "{seek:?}");
}

fn push_body(topic: &str, id: &str) -> Vec<u8> {
    let subscription = format!("projects/{PROJECT}/subscriptions/{}", subscription_of(topic));
    format!(
        r#"{{"message": {{"messageId": "{id}", "data": "aGk=", "orderingKey": "a"}},
            "subscription": "{subscription}"}}"#
    )
    .into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pushed_message_is_answered_when_it_is_dealt_with() {
    let host = need!(servers::pubsub()).url().to_owned();
    let (pubsub, topic) = (connect(&host).await, topic());
    let patience = Duration::from_millis(500);
    let pushed = Pushed::over(std::sync::Arc::new(pubsub), Some("melmastoon"), patience);
    let short = topic.strip_prefix("melmastoon.").unwrap().to_owned();
    let push = |id: &str| {
        let (pushed, short, body) = (pushed.clone(), short.clone(), push_body(&topic, id));
        tokio::spawn(async move { pushed.deliver(&short, &body).await })
    };
    assert_eq!(push("1").await.unwrap(), Handed::Unknown, "no consumer has subscribed");
    let reader = pushed.subscribe(&spec(&topic)).await.unwrap();

    let answer = push("2");
    let got = fetch(&*reader, 1).await;
    assert_eq!((bodies(&got), got[0].key.as_deref()), (vec!["hi".to_owned()], Some("a")));
    assert!(!answer.is_finished(), "no answer before it is applied");
    reader.ack(&[got[0].token]).await.unwrap();
    assert_eq!(answer.await.unwrap(), Handed::Done);

    let answer = push("3");
    let got = fetch(&*reader, 1).await;
    reader.nack(&got[0].token, Duration::ZERO).await.unwrap();
    assert_eq!(answer.await.unwrap(), Handed::Again);

    let answer = push("4");
    let got = fetch(&*reader, 1).await;
    assert_eq!(answer.await.unwrap(), Handed::Again, "patience has an end");
    let late = reader.ack(&[got[0].token]).await;
    assert!(matches!(late, Err(TransportError::Expired)), "{late:?}");

    let answer = push("5");
    fetch(&*reader, 1).await;
    drop(reader);
    assert_eq!(answer.await.unwrap(), Handed::Again, "the consumer has gone");
    assert!(matches!(pushed.deliver(&short, b"{}").await, Handed::Malformed(_)));
}
