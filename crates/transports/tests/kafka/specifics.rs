//! What is Kafka's own: topics, groups, settings, limits and errors.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chapar_core::Id;
use chapar_core::port::{
    Action, DeclaredSubscription, Delivery, Difference, Outgoing, Pruning, ReadFrom, SeekTo,
    Subscription, SubscriptionSpec, TopicSpec, Topology, Transport, TransportError,
};
use chapar_testkit::need;
use chapar_testkit::servers::{self, Endpoint};
use chapar_transports::kafka::{Groups, Kafka, KafkaOptions};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::cloudevents::PACKAGES;
use super::large;
use super::python::Python;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A topic of its own for each test: they share a broker.
pub(crate) fn topic() -> String {
    format!("t{:012x}.booking.held.v1", fastrand::u64(..1 << 48))
}

pub(crate) fn options(owner: &str) -> KafkaOptions {
    KafkaOptions {
        owner: owner.into(),
        session: Duration::from_millis(1500),
        timeout: Duration::from_secs(3),
        ..KafkaOptions::default()
    }
}

pub(crate) fn spec(name: &str, topics: &[&str]) -> SubscriptionSpec {
    SubscriptionSpec {
        name: name.into(),
        topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        ack_deadline: Duration::from_secs(30),
        max_in_flight: 64,
    }
}

pub(crate) fn message(topic: &str, key: &str) -> Outgoing {
    let id = Id::uuid_v4(fastrand::u128(..));
    Outgoing {
        topic: topic.into(),
        tenant: "inn".into(),
        key: Some(key.into()),
        headers: Default::default(),
        body: Bytes::from(id.to_string()),
        id,
    }
}

pub(crate) async fn fetch(reader: &dyn Subscription, count: usize) -> Vec<Delivery> {
    let (mut got, limit) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    while got.len() < count {
        got.extend(reader.fetch(count, Duration::from_millis(200)).await.unwrap());
        assert!(Instant::now() < limit, "{} of {count} arrived in time", got.len());
    }
    got
}

async fn connect(server: &Endpoint, options: KafkaOptions) -> Kafka {
    Kafka::connect(&format!("kafka://{}", server.url()), options).await.unwrap()
}

/// What the broker says of a topic, asked by a client of its own.
async fn setting(server: &Endpoint, topic: &str, name: &str) -> String {
    let found = admin(server)
        .describe_configs(&[ResourceSpecifier::Topic(topic)], &AdminOptions::new())
        .await
        .unwrap();
    let found = found.into_iter().next().unwrap().unwrap();
    found.get(name).unwrap().value.clone().unwrap()
}

fn admin(server: &Endpoint) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", server.url()).create().unwrap()
}

fn plain(server: &Endpoint, group: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", server.url()).set("group.id", group).create().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_made_as_the_system_wants_it() {
    let server = need!(servers::kafka());
    let kafka = connect(&server, options("a")).await;
    let (busy, quiet) = (topic(), topic());
    let topics = [TopicSpec { name: busy.clone(), partitions: 12, retention: 30 * DAY }];
    kafka.apply(&topics, &[spec("desk", &[&quiet])]).await.unwrap();
    let consumer = plain(&server, "looker");
    for (topic, partitions, retention) in [(&busy, 12, 30 * DAY), (&quiet, 3, 7 * DAY)] {
        let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(5)).unwrap();
        assert_eq!(metadata.topics()[0].partitions().len(), partitions, "{topic}");
        let kept = setting(&server, topic, "retention.ms").await;
        assert_eq!(kept, retention.as_millis().to_string());
        assert_eq!(setting(&server, topic, "cleanup.policy").await, "delete");
        assert_eq!(setting(&server, topic, "compression.type").await, "producer");
        // One broker: as many as there are.
        assert_eq!(setting(&server, topic, "min.insync.replicas").await, "1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_settings_are_named_or_mended_without_losing_a_message() {
    let server = need!(servers::kafka());
    let (compacted, kept) = (topic(), topic());
    let one = || TopicReplication::Fixed(1);
    let new = NewTopic::new(&compacted, 1, one()).set("cleanup.policy", "compact");
    let other = NewTopic::new(&kept, 2, one())
        .set("retention.ms", "1000000")
        .set("max.message.bytes", "123456");
    for made in admin(&server).create_topics(&[new, other], &AdminOptions::new()).await.unwrap() {
        made.unwrap();
    }
    let kafka = connect(&server, options("a")).await;
    let wanted = |name: &str, retention| TopicSpec { name: name.into(), partitions: 3, retention };
    let error = kafka.apply(&[wanted(&compacted, DAY)], &[]).await.unwrap_err();
    assert!(
        matches!(&error, TransportError::Setup(what) if what.contains("cleanup.policy compact")),
        "{error}"
    );
    kafka.apply(&[wanted(&kept, DAY)], &[]).await.unwrap();
    let retention = async || setting(&server, &kept, "retention.ms").await;
    assert_eq!(retention().await, DAY.as_millis().to_string());
    assert_eq!(setting(&server, &kept, "max.message.bytes").await, "123456", "left as it was");
    kafka.apply(&[wanted(&kept, DAY / 2)], &[]).await.unwrap();
    assert_eq!(retention().await, DAY.as_millis().to_string(), "applying deletes no message");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contiguous_prefix_is_committed_and_nothing_else() {
    let server = need!(servers::kafka());
    let (topic, name) = (topic(), format!("desk-{:x}", fastrand::u64(..)));
    let kafka = connect(&server, KafkaOptions { partitions: 1, ..options("a") }).await;
    let reader = kafka.subscribe(&spec(&name, &[&topic])).await.unwrap();
    for key in ["a", "b", "c"] {
        kafka.publish(vec![message(&topic, key)]).await.remove(0).unwrap();
    }
    let got = fetch(&*reader, 3).await;
    let committed = || {
        let mut asked = rdkafka::TopicPartitionList::new();
        asked.add_partition(&topic, 0);
        let consumer = plain(&server, &name);
        let answer = consumer.committed_offsets(asked, Duration::from_secs(5)).unwrap();
        answer.elements()[0].offset().to_raw()
    };
    reader.ack(&[got[0].token, got[2].token]).await.unwrap();
    let limit = Instant::now() + Duration::from_secs(10);
    while committed() != Some(1) {
        assert!(Instant::now() < limit, "committed is {:?}", committed());
    }
    reader.ack(&[got[1].token]).await.unwrap();
    reader.close().await.unwrap();
    assert_eq!(committed(), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_may_be_of_a_service_or_of_a_service_and_a_topic() {
    let server = need!(servers::kafka());
    let (one, other) = (topic(), topic());
    let name = format!("desk-{:x}", fastrand::u64(..));
    let groups = |prefix: String| -> BTreeSet<String> {
        let list = plain(&server, "looker").fetch_group_list(None, Duration::from_secs(5)).unwrap();
        let names = list.groups().iter().map(|group| group.name().to_owned());
        names.filter(|name| name.starts_with(&prefix)).collect()
    };
    for (kind, expected) in [
        (Groups::Service, BTreeSet::from([format!("s-{name}")])),
        (Groups::Topic, [&one, &other].map(|topic| format!("t-{name}.{topic}")).into()),
    ] {
        let prefix = if kind == Groups::Service { "s" } else { "t" };
        let kafka = connect(&server, KafkaOptions { groups: kind, ..options("a") }).await;
        let spec = spec(&format!("{prefix}-{name}"), &[&one, &other]);
        let reader = kafka.subscribe(&spec).await.unwrap();
        kafka.publish(vec![message(&one, "a"), message(&other, "b")]).await;
        let got = fetch(&*reader, 2).await;
        let tokens: Vec<_> = got.into_iter().map(|delivery| delivery.token).collect();
        reader.ack(&tokens).await.unwrap();
        assert_eq!(groups(format!("{prefix}-{name}")), expected);
        reader.close().await.unwrap();
    }
}

/// Kafka keeps both copies; a subscription that has seen the first leaves the second out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_processes_published_is_delivered_once() {
    let server = need!(servers::kafka());
    let topic = topic();
    let relays = [connect(&server, options("a")).await, connect(&server, options("b")).await];
    let twice = message(&topic, "a");
    let mut places = Vec::new();
    for relay in &relays {
        places.push(relay.publish(vec![twice.clone()]).await.remove(0).unwrap().position);
    }
    assert_ne!(places[0], places[1], "the broker has it twice");
    let last = message(&topic, "a");
    relays[0].publish(vec![last.clone()]).await.remove(0).unwrap();
    let name = format!("desk-{:x}", fastrand::u64(..));
    let reader = relays[0].subscribe(&spec(&name, &[&topic])).await.unwrap();
    let bodies: Vec<_> = fetch(&*reader, 2).await.into_iter().map(|got| got.body).collect();
    assert_eq!(bodies, [twice.body, last.body]);
}

/// A process joins while everything is in flight: partitions that move are drained first, so
/// nothing comes a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_moves_waits_for_what_is_in_flight() {
    let server = need!(servers::kafka());
    let (topic, name) = (topic(), format!("desk-{:x}", fastrand::u64(..)));
    let drain = Duration::from_secs(20);
    let first = connect(&server, KafkaOptions { partitions: 6, drain, ..options("a") }).await;
    let second = connect(&server, KafkaOptions { drain, ..options("b") }).await;
    let spec = spec(&name, &[&topic]);
    let old = first.subscribe(&spec).await.unwrap();
    let batch: Vec<Outgoing> = (0..30).map(|key| message(&topic, &format!("k{key}"))).collect();
    for receipt in first.publish(batch.clone()).await {
        receipt.unwrap();
    }
    let held = fetch(&*old, 30).await;
    let new = second.subscribe(&spec).await.unwrap();
    // The group has both, and the first has been asked for a part of its partitions.
    let looker = plain(&server, "looker");
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let list = looker.fetch_group_list(Some(&name), Duration::from_secs(5)).unwrap();
        if list.groups().iter().any(|group| group.members().len() == 2 && group.state() == "Stable")
        {
            break;
        }
        assert!(Instant::now() < limit, "the second does not join");
    }
    let early = new.fetch(30, Duration::from_secs(1)).await.unwrap();
    assert!(early.is_empty(), "what is being worked on is not given to another");
    let tokens: Vec<_> = held.into_iter().map(|delivery| delivery.token).collect();
    old.ack(&tokens).await.unwrap();
    // From now on both have a share, and nothing of the first batch comes again.
    let mut shares = [0, 0];
    while shares.contains(&0) {
        assert!(Instant::now() < limit, "one of them gets nothing: {shares:?}");
        let more = (0..30).map(|key| message(&topic, &format!("k{key}"))).collect();
        first.publish(more).await;
        for (share, reader) in shares.iter_mut().zip([&old, &new]) {
            let got = reader.fetch(64, Duration::from_millis(200)).await.unwrap();
            *share += got.len();
            for delivery in &got {
                let again = batch.iter().any(|message| message.body == delivery.body);
                assert!(!again, "{:?} comes a second time", delivery.key);
            }
            let tokens: Vec<_> = got.into_iter().map(|delivery| delivery.token).collect();
            // A partition may just be on its way.
            let _ = reader.ack(&tokens).await;
        }
    }
}

/// A process outside of the subscription seeks, once while the group has no members and once while
/// it has; a member that joins later does not follow the seek again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_is_moved_from_outside_once() {
    let server = need!(servers::kafka());
    let (topic, name) = (topic(), format!("desk-{:x}", fastrand::u64(..)));
    let spec = spec(&name, &[&topic]);
    let outside = connect(&server, options("operator")).await;
    for key in ["a", "b", "c", "d"] {
        outside.publish(vec![message(&topic, key)]).await.remove(0).unwrap();
    }
    let consume = async |reader: &dyn Subscription| {
        let got = fetch(reader, 4).await;
        let tokens: Vec<_> = got.into_iter().map(|delivery| delivery.token).collect();
        reader.ack(&tokens).await.unwrap();
    };
    let nothing = async |reader: &dyn Subscription| {
        let got = reader.fetch(4, Duration::from_secs(1)).await.unwrap();
        assert!(got.is_empty(), "{} delivered again", got.len());
    };
    let first = connect(&server, options("a")).await.subscribe(&spec).await.unwrap();
    consume(&*first).await;
    first.close().await.unwrap();
    outside.seek(&name, SeekTo::Beginning).await.unwrap();
    let second = connect(&server, options("b")).await.subscribe(&spec).await.unwrap();
    consume(&*second).await;
    outside.seek(&name, SeekTo::Beginning).await.unwrap();
    consume(&*second).await;
    nothing(&*second).await;
    second.close().await.unwrap();
    let third = connect(&server, options("c")).await.subscribe(&spec).await.unwrap();
    nothing(&*third).await;
}

/// A slow consumer reads a long backlog: partitions are paused and resumed, and nothing is skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_read_in_order_by_a_slow_consumer() {
    let server = need!(servers::kafka());
    let topic = topic();
    let kafka = connect(&server, KafkaOptions { partitions: 2, ..options("a") }).await;
    let mut sent: Vec<Vec<Bytes>> = vec![Vec::new(); 4];
    for _ in 0..700 {
        let batch: Vec<Outgoing> = (0..4).map(|key| message(&topic, &format!("k{key}"))).collect();
        batch.iter().zip(&mut sent).for_each(|(message, sent)| sent.push(message.body.clone()));
        for receipt in kafka.publish(batch).await {
            receipt.unwrap();
        }
    }
    let name = format!("desk-{:x}", fastrand::u64(..));
    let reader = kafka.subscribe(&spec(&name, &[&topic])).await.unwrap();
    let mut got: Vec<Vec<Bytes>> = vec![Vec::new(); 4];
    let limit = Instant::now() + Duration::from_secs(60);
    while got.iter().map(Vec::len).sum::<usize>() < 2800 {
        assert!(Instant::now() < limit, "{:?}", got.iter().map(Vec::len).collect::<Vec<_>>());
        let deliveries = reader.fetch(16, Duration::from_millis(200)).await.unwrap();
        for delivery in &deliveries {
            let key: usize = delivery.key.as_ref().unwrap()[1..].parse().unwrap();
            got[key].push(delivery.body.clone());
        }
        let tokens: Vec<_> = deliveries.into_iter().map(|delivery| delivery.token).collect();
        reader.ack(&tokens).await.unwrap();
    }
    assert_eq!(got, sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_are_not_all_read_ahead() {
    let server = need!(servers::kafka());
    let topic = topic();
    let kafka = connect(&server, KafkaOptions { partitions: 2, ..options("a") }).await;
    let name = format!("desk-{:x}", fastrand::u64(..));
    large::are_not_all_read_ahead(&kafka, &spec(&name, &[&topic]), |key| message(&topic, key))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large_a_message_is_refused_by_the_name_of_the_limit() {
    let server = need!(servers::kafka());
    let topic = topic();
    let kafka = connect(&server, options("a")).await;
    assert!(!kafka.features().mebibyte);
    let mut large = message(&topic, "a");
    large.body = (0..2 << 20).map(|_| fastrand::u8(..)).collect();
    let mut results = kafka.publish(vec![large, message(&topic, "b")]).await;
    results.remove(1).unwrap();
    let error = results.remove(0).unwrap_err();
    assert!(
        matches!(&error, TransportError::Refused(what) if what.contains("message.max.bytes")),
        "{error}"
    );
    kafka.publish(vec![message(&topic, "a")]).await.remove(0).unwrap();
}

/// Our own client accepts only text, so another client writes it.
const NO_TEXT: &str = r#"
import sys
from kafka import KafkaProducer
class Name(str):
    def encode(self, *_): return b"\xff\xfe"
producer = KafkaProducer(bootstrap_servers=sys.argv[1], acks="all")
headers = [("before", b"1"), (Name(), b"2"), ("value", b"a\xff"), ("", b"3")]
producer.send(sys.argv[2], b"strange", key=b"\xfek", headers=headers, partition=0).get(20)
producer.send(sys.argv[2], b"last", headers=[(Name(), b"4")], partition=0).get(20)
producer.send(sys.argv[2], b"after", headers=[], partition=0).get(20)
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_write_that_is_no_text_is_read_as_well_as_it_can_be() {
    let server = need!(servers::kafka());
    const TEST: &str =
        "kafka specifics::what_others_write_that_is_no_text_is_read_as_well_as_it_can_be";
    let Some(python) = Python::with(TEST, PACKAGES) else { return };
    let (kafka, topic) = (connect(&server, options("a")).await, topic());
    let reader = kafka.subscribe(&spec("desk", &[&topic])).await.unwrap();
    python.run_lines(NO_TEXT, &[server.url(), &topic]);
    let got = fetch(&*reader, 3).await;
    let bodies: Vec<&[u8]> = got.iter().map(|delivery| &delivery.body[..]).collect();
    assert_eq!(bodies, [&b"strange"[..], b"last", b"after"]);
    let headers: Vec<(&str, &str)> = got[0].headers.iter().collect();
    // A name that is no text names nothing.
    assert_eq!(headers, [("before", "1"), ("value", "a\u{fffd}"), ("", "3")]);
    assert_eq!(got[0].key.as_deref(), Some("\u{fffd}k"));
    assert!(got[1].headers.is_empty() && got[2].headers.is_empty());
    let tokens: Vec<_> = got.iter().map(|delivery| delivery.token).collect();
    reader.ack(&tokens).await.unwrap();
    // A reader of retained messages finds none of Chapar's, and reads on to the end.
    let mut kept = kafka.read(&[topic], ReadFrom::Beginning).await.unwrap();
    while !kept.is_caught_up() {
        assert!(kept.read(10, Duration::from_secs(20)).await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_done_is_said_plainly() {
    let server = need!(servers::kafka());
    let kafka = connect(&server, options("a")).await;
    let error = kafka.seek("nobody", SeekTo::Beginning).await.unwrap_err();
    assert!(error.to_string().contains("there is no subscription"), "{error}");
    let odd = kafka.publish(vec![message("no topic at all", "a")]).await.remove(0).unwrap_err();
    assert!(odd.to_string().contains("no topic at all"), "{odd}");
    let nobody = Kafka::connect("kafka://127.0.0.1:1", options("a")).await.unwrap_err();
    assert!(nobody.is_retryable() && nobody.to_string().contains("refused"), "{nobody}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catalog_is_compared_with_the_cluster_and_carried_out() {
    let server = need!(servers::kafka());
    let kafka = connect(&server, options("a")).await;
    let system = format!("t{:012x}", fastrand::u64(..1 << 48));
    let [held, billed, stray] =
        ["booking.held.v1", "bill.paid.v1", "odd.v1"].map(|rest| format!("{system}.{rest}"));
    let letters = format!("{held}.dlq");
    let spec_of = |name: &str, retention| TopicSpec { name: name.into(), partitions: 6, retention };
    let wanted = Topology {
        system,
        topics: vec![spec_of(&held, 7 * DAY), spec_of(&billed, 7 * DAY)],
        publishers: Default::default(),
        subscriptions: vec![DeclaredSubscription {
            name: "desk.held.sub".into(),
            service: "desk".into(),
            topic: held.clone(),
            ordered: true,
            dead_letter_topic: letters.clone(),
        }],
    };
    // One exists with other settings, one is undeclared, one is missing.
    let other = NewTopic::new(&billed, 2, TopicReplication::Fixed(1))
        .set("retention.ms", "1000000")
        .set("compression.type", "gzip");
    let odd = NewTopic::new(&stray, 1, TopicReplication::Fixed(1));
    for made in admin(&server).create_topics(&[other, odd], &AdminOptions::new()).await.unwrap() {
        made.unwrap();
    }
    kafka.publish(vec![message(&stray, "a")]).await.remove(0).unwrap();
    // What orders to seek are written to is there from the first subscription on.
    kafka.subscribe(&spec("desk-of-plans", &[&stray])).await.unwrap().close().await.unwrap();
    let plan = kafka.plan(&wanted).await.unwrap();
    let of = |name: &str| {
        let found = plan.iter().find(|difference| difference.name == name);
        found.unwrap_or_else(|| panic!("{name}: {plan:?}")).clone()
    };
    assert_eq!(plan.len(), 4, "{plan:?}");
    assert!(
        matches!(&of(&letters).action, Action::Create { settings } if settings["retention.ms"] == "14 d")
    );
    assert!(
        matches!(&of(&held).action, Action::Create { settings } if settings["partitions"] == "6")
    );
    assert!(matches!(&of(&stray).action, Action::Extra { holds } if holds == "1 messages"));
    let Action::Change { settings } = of(&billed).action else { panic!("{plan:?}") };
    let names: Vec<_> = settings.iter().map(|setting| setting.setting).collect();
    assert_eq!(names, ["partitions", "retention.ms", "compression.type"]);

    // A topic that a group reads is not deleted.
    let name = format!("desk-{:x}", fastrand::u64(..));
    let reader = kafka.subscribe(&spec(&name, &[&stray])).await.unwrap();
    fetch(&*reader, 1).await;
    let error = kafka.carry_out(&wanted, &of(&stray)).await.unwrap_err();
    assert!(error.to_string().contains(&format!("{name} still reads")), "{error}");
    reader.close().await.unwrap();
    for difference in plan.iter().filter_map(|difference| difference.to_do(Pruning::Delete)) {
        kafka.carry_out(&wanted, &difference).await.unwrap();
    }
    assert_eq!(setting(&server, &billed, "retention.ms").await, (7 * DAY).as_millis().to_string());
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let left = kafka.plan(&wanted).await.unwrap();
        // The number of partitions is left to the operator.
        if let [Difference { name, action: Action::Change { settings }, .. }] = &left[..] {
            assert_eq!((name, settings[0].setting, settings.len()), (&billed, "partitions", 1));
            break;
        }
        assert!(Instant::now() < limit, "{left:?}");
    }
}
