//! What is NATS's own: streams, partitions, settings, limits and errors.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, stream};
use bytes::Bytes;
use chapar_core::Id;
use chapar_core::port::{
    Delivery, Outgoing, SeekTo, Subscription, SubscriptionSpec, TopicSpec, Transport,
    TransportError,
};
use chapar_testkit::need;
use chapar_testkit::proxy::Proxy;
use chapar_testkit::servers::{Instance, Kind, Launch, ServerError};
use chapar_transports::nats::{Nats, NatsOptions, Syncing};
use futures_util::TryStreamExt;

use super::large;

const TOPIC: &str = "melmastoon.reservation.booking.held.v1";
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) fn server() -> Result<Instance, ServerError> {
    Launch::of(Kind::Nats).start()
}

pub(super) fn options(owner: &str) -> NatsOptions {
    NatsOptions {
        owner: owner.into(),
        prefix: Some("melmastoon".into()),
        lease: Duration::from_millis(900),
        ..NatsOptions::default()
    }
}

pub(super) fn spec(topics: &[&str]) -> SubscriptionSpec {
    SubscriptionSpec {
        name: "front desk".into(),
        topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        ack_deadline: Duration::from_secs(30),
        max_in_flight: 64,
    }
}

pub(super) fn message(topic: &str, tenant: &str, key: &str) -> Outgoing {
    Outgoing {
        id: Id::uuid_v4(fastrand::u128(..)),
        topic: topic.into(),
        tenant: tenant.into(),
        key: Some(key.into()),
        headers: Default::default(),
        body: Bytes::from_static(b"{}"),
    }
}

pub(super) async fn jetstream_of(server: &Instance) -> jetstream::Context {
    jetstream::new(async_nats::connect(server.url()).await.unwrap())
}

pub(super) async fn fetch(reader: &dyn Subscription, count: usize) -> Vec<Delivery> {
    let (mut got, limit) = (Vec::new(), Instant::now() + Duration::from_secs(10));
    while got.len() < count {
        got.extend(reader.fetch(count, Duration::from_millis(200)).await.unwrap());
        assert!(Instant::now() < limit, "{} of {count} arrived in time", got.len());
    }
    got
}

async fn durables(jetstream: &jetstream::Context, stream: &str) -> Vec<String> {
    let stream = jetstream.get_stream(stream).await.unwrap();
    let mut names: Vec<String> = stream.consumer_names().try_collect().await.unwrap();
    names.sort();
    names
}

#[tokio::test]
async fn a_service_has_a_stream_and_a_tenant_may_have_a_partition() {
    let server = need!(server());
    let mut options = options("a");
    options.own_partitions.insert("grand hotel".into(), 12);
    let nats = Nats::connect(server.url(), options).await.unwrap();
    let topics = [TopicSpec { name: TOPIC.into(), partitions: 12, retention: 180 * DAY }];
    nats.apply(&topics, &[]).await.unwrap();
    let batch = vec![message(TOPIC, "inn", "inn:1"), message(TOPIC, "grand hotel", "grand:1")];
    let ids = batch.iter().map(|message| message.id.to_string()).collect::<Vec<_>>();
    for receipt in nats.publish(batch).await {
        receipt.unwrap();
    }
    let stream = jetstream_of(&server).await.get_stream("RESERVATION").await.unwrap();
    let config = &stream.cached_info().config;
    assert_eq!(config.subjects, ["melmastoon.reservation.>"]);
    assert_eq!((config.max_age, config.duplicate_window), (180 * DAY, Duration::from_secs(120)));
    for id in ids {
        let of = |sequence| stream.get_raw_message(sequence);
        let (first, second) = (of(1).await.unwrap(), of(2).await.unwrap());
        let found = [first, second]
            .into_iter()
            .find(|raw| raw.headers.get("Nats-Msg-Id").map(|value| value.as_str()) == Some(&*id));
        let raw = found.unwrap();
        let own = raw.headers.get("Chapar-Tenant").unwrap().as_str() == "grand hotel";
        assert_eq!(raw.subject.ends_with(".p12"), own, "{}", raw.subject);
    }
    let reader = nats.subscribe(&spec(&[TOPIC])).await.unwrap();
    assert_eq!(fetch(&*reader, 2).await.len(), 2, "a tenant's own partition is read too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_are_not_all_read_ahead() {
    let server = need!(server());
    // The lease is not what is tried here.
    let options = NatsOptions { lease: Duration::from_secs(10), ..options("a") };
    let nats = Nats::connect(server.url(), options).await.unwrap();
    let spec = SubscriptionSpec { max_in_flight: 1000, ..spec(&[TOPIC]) };
    large::are_not_all_read_ahead(&nats, &spec, |key| message(TOPIC, "inn", key)).await;
}

#[tokio::test]
async fn a_partition_has_one_durable_however_often_it_changes_hands() {
    let server = need!(server());
    let other = "melmastoon.reservation.booking.cancelled.v1";
    let billing = "melmastoon.billing.invoice.issued.v1";
    let spec = spec(&[TOPIC, other, billing]);
    let first = Nats::connect(server.url(), options("a")).await.unwrap();
    let second = Nats::connect(server.url(), options("b")).await.unwrap();
    for (round, nats) in [&first, &second, &first, &second].into_iter().enumerate() {
        let batch = [TOPIC, other, billing].map(|topic| message(topic, "inn", "inn:1")).to_vec();
        for receipt in nats.publish(batch).await {
            receipt.unwrap();
        }
        let reader = nats.subscribe(&spec).await.unwrap();
        let got = fetch(&*reader, 3).await;
        assert_eq!(got.len(), 3, "round {round}");
        let of_one_stream: Vec<&str> =
            got.iter().map(|d| d.topic.as_str()).filter(|topic| *topic != billing).collect();
        assert_eq!(of_one_stream, [TOPIC, other], "a key keeps its order across topics");
        let tokens: Vec<_> = got.into_iter().map(|delivery| delivery.token).collect();
        reader.ack(&tokens).await.unwrap();
        reader.close().await.unwrap();
    }
    let jetstream = jetstream_of(&server).await;
    for stream in ["RESERVATION", "BILLING"] {
        let names = durables(&jetstream, stream).await;
        assert_eq!(names.len(), 12, "{names:?}");
    }
    let name = durables(&jetstream, "RESERVATION").await.remove(0);
    let stream = jetstream.get_stream("RESERVATION").await.unwrap();
    let filters = stream.consumer_info(&name).await.unwrap().config.filter_subjects;
    assert_eq!(filters.len(), 2, "one filter for each topic: {filters:?}");
}

#[tokio::test]
async fn a_second_process_of_the_same_name_displaces_the_first() {
    let server = need!(server());
    let first = Nats::connect(server.url(), options("a")).await.unwrap();
    let first = first.subscribe(&spec(&[TOPIC])).await.unwrap();
    let nats = Nats::connect(server.url(), options("a")).await.unwrap();
    let second = nats.subscribe(&spec(&[TOPIC])).await.unwrap();
    nats.publish(vec![message(TOPIC, "inn", "inn:1")]).await.remove(0).unwrap();
    let got = fetch(&*second, 1).await;
    let limit = Instant::now() + Duration::from_secs(5);
    let error = loop {
        match first.fetch(1, Duration::from_millis(50)).await {
            Ok(got) => assert!(got.is_empty(), "two owners at once"),
            Err(error) => break error,
        }
        assert!(Instant::now() < limit, "the first does not notice");
    };
    assert!(
        matches!(&error, TransportError::Setup(what) if what.contains("joined as a")),
        "{error}"
    );
    second.ack(&[got[0].token]).await.unwrap();
}

#[tokio::test]
async fn other_settings_are_named_and_left_alone() {
    let server = need!(server());
    let jetstream = jetstream_of(&server).await;
    let config = stream::Config {
        name: "RESERVATION".into(),
        subjects: vec!["melmastoon.reservation.>".into()],
        storage: stream::StorageType::Memory,
        ..Default::default()
    };
    jetstream.create_stream(config).await.unwrap();
    let nats = Nats::connect(server.url(), options("a")).await.unwrap();
    let topic = |name: &str, retention| TopicSpec { name: name.into(), partitions: 12, retention };
    let error = nats.apply(&[topic(TOPIC, DAY)], &[]).await.unwrap_err();
    assert!(matches!(&error, TransportError::Setup(what) if what.contains("storage")), "{error}");

    let billing = "melmastoon.billing.invoice.issued.v1";
    nats.apply(&[topic(billing, 7 * DAY)], &[]).await.unwrap();
    nats.apply(&[topic(billing, DAY)], &[]).await.unwrap();
    let max_age =
        || async { jetstream.get_stream("BILLING").await.unwrap().cached_info().config.max_age };
    assert_eq!(max_age().await, 7 * DAY, "messages are never deleted by applying a topology");
    nats.apply(&[topic(billing, 30 * DAY)], &[]).await.unwrap();
    assert_eq!(max_age().await, 30 * DAY);

    let fewer = NatsOptions { partitions: 6, ..options("b") };
    let fewer = Nats::connect(server.url(), fewer).await.unwrap();
    let error = fewer.publish(vec![message(billing, "inn", "a")]).await.remove(0).unwrap_err();
    assert!(
        matches!(&error, TransportError::Setup(what) if what.contains("partitions")),
        "{error}"
    );
}

#[tokio::test]
async fn too_large_a_message_is_refused_by_the_name_of_the_limit() {
    let server = need!(server());
    let nats = Nats::connect(server.url(), options("a")).await.unwrap();
    assert!(!nats.features().mebibyte);
    let mut large = message(TOPIC, "inn", "a");
    large.body = vec![0; 1 << 20].into();
    let mut results = nats.publish(vec![large, message(TOPIC, "inn", "b")]).await;
    results.remove(1).unwrap();
    let error = results.remove(0).unwrap_err();
    assert!(
        matches!(&error, TransportError::Refused(what) if what.contains("max_payload")),
        "{error}"
    );
}

#[tokio::test]
async fn a_wrong_address_or_password_is_said_plainly() {
    let server = need!(
        Launch::of(Kind::Nats)
            .setting("authorization", "{ user: clerk, password: \"sec@ret\" }")
            .start()
    );
    let refused = Nats::connect(server.url(), options("a")).await.unwrap_err();
    assert!(refused.to_string().contains("refuses the credentials"), "{refused}");
    let address = server.url().replace("nats://", "nats://clerk:sec%40ret@");
    Nats::connect(&address, options("a")).await.unwrap();
    let nonsense = Nats::connect("nats://a b", options("a")).await.unwrap_err();
    assert!(matches!(nonsense, TransportError::Setup(_)), "{nonsense}");
    let nobody = Nats::connect("nats://127.0.0.1:1", options("a")).await.unwrap_err();
    assert!(nobody.is_retryable(), "{nobody}");
    let mut wrong = options("a");
    wrong.own_partitions.insert("inn".into(), 3);
    let wrong = Nats::connect(&address, wrong).await.unwrap_err();
    assert!(wrong.to_string().contains("tenant inn is 3; give 12"), "{wrong}");
}

#[tokio::test]
async fn whether_the_server_syncs_is_asked_at_its_monitoring_port() {
    let monitor = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let ask = |server: Instance, monitor: String| async move {
        let options = NatsOptions { monitor: Some(monitor), ..options("a") };
        Nats::connect(server.url(), options).await.unwrap().syncing().await
    };
    let address = monitor();
    let lazy = need!(Launch::of(Kind::Nats).setting("http", &address).start());
    assert_eq!(ask(lazy, address).await, Syncing::Every(Duration::from_secs(120)));
    let address = monitor();
    let launch = Launch::of(Kind::Nats).setting("http", &address);
    let careful = need!(launch.setting("jetstream.sync_interval", "always").start());
    assert_eq!(ask(careful, address).await, Syncing::Always);
    let silent = need!(server());
    assert!(matches!(ask(silent, "127.0.0.1:1".into()).await, Syncing::Unknown(_)));
}

#[tokio::test]
async fn a_subscription_that_is_unknown_cannot_be_moved() {
    let server = need!(server());
    let nats = Nats::connect(server.url(), options("a")).await.unwrap();
    let error = nats.seek("nobody", SeekTo::Beginning).await.unwrap_err();
    assert!(error.to_string().contains("there is no subscription nobody"), "{error}");
}

/// What the server sends over a connection that breaks counts as delivered there: it must come again all the same, soon and
/// in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_over_a_broken_connection_comes_again_in_order() {
    let server = need!(server());
    let proxy = Proxy::to(server.url().trim_start_matches("nats://")).unwrap();
    let through = format!("nats://{}", proxy.address());
    let writer = Nats::connect(server.url(), options("writer")).await.unwrap();
    let reader = Nats::connect(&through, options("reader")).await.unwrap();
    let subscription = reader.subscribe(&spec(&[TOPIC])).await.unwrap();
    let mut sent = Vec::new();
    let mut got = Vec::new();
    for round in 0..3 {
        for step in 0..20 {
            // In the middle of each round answers are lost, and with them what is delivered; then the connection is.
            match step {
                5 => drop(proxy.lose_answers()),
                12 => proxy.heal(),
                _ => {}
            }
            let message = message(TOPIC, "acme", "one key");
            sent.push(message.id.to_string());
            let body = Bytes::from(message.id.to_string());
            let published = writer.publish(vec![Outgoing { body, ..message }]).await;
            assert!(published[0].is_ok(), "{published:?}");
        }
        let limit = Instant::now() + Duration::from_secs(20);
        while got.len() < sent.len() {
            assert!(Instant::now() < limit, "round {round}: {} of {}", got.len(), sent.len());
            let deliveries = subscription.fetch(64, Duration::from_millis(100)).await.unwrap();
            for delivery in &deliveries {
                let id = String::from_utf8(delivery.body.to_vec()).unwrap();
                if !got.contains(&id) {
                    got.push(id);
                }
            }
            // One that is not ours any more comes again.
            let tokens: Vec<_> = deliveries.into_iter().map(|delivery| delivery.token).collect();
            let _ = subscription.ack(&tokens).await;
        }
        assert_eq!(got, sent, "first deliveries in order");
    }
}
