//! Three brokers, of which one is killed after the other under load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chapar_core::port::{Outgoing, ReadFrom, Subscription, TopicSpec, Transport};
use chapar_testkit::need;
use chapar_testkit::servers::{self, Instance};
use chapar_transports::kafka::{Kafka, KafkaOptions};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::specifics::{message, options, spec, topic};

const KEYS: usize = 12;
const GROUP: &str = "desk";

/// What came of each key, in the order in which it was first seen.
type Seen = Arc<Mutex<BTreeMap<String, Vec<u32>>>>;

/// Longer than new leaders take on a machine that has much else to do. The producer tries again by
/// itself until then, without doubling; what it gives up may or may not be in the log.
const PATIENCE: Duration = Duration::from_secs(60);

fn patient(owner: &str) -> KafkaOptions {
    KafkaOptions { timeout: PATIENCE, ..options(owner) }
}

fn numbered(topic: &str, key: usize, number: u32) -> Outgoing {
    let mut message = message(topic, &format!("k{key}"));
    message.body = Bytes::from(number.to_string());
    message
}

fn number(body: &[u8]) -> u32 {
    std::str::from_utf8(body).unwrap().parse().unwrap()
}

/// Publishes the next message of every key as soon as the ones before are acknowledged, until told to stop.
async fn publish(kafka: Kafka, topic: String, stop: Arc<AtomicBool>) -> u32 {
    for next in 0.. {
        if stop.load(Ordering::SeqCst) {
            return next;
        }
        let batch = (0..KEYS).map(|key| numbered(&topic, key, next)).collect();
        for receipt in kafka.publish(batch).await {
            assert!(!receipt.unwrap().duplicate);
        }
    }
    unreachable!("the numbers are used up")
}

/// Takes what comes, for as long as the subscription is open.
async fn consume(reader: Arc<dyn Subscription>, seen: Seen, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::SeqCst) {
        // An outage is over by itself.
        let got = reader.fetch(64, Duration::from_millis(100)).await.unwrap_or_default();
        for delivery in &got {
            let mut seen = seen.lock().unwrap();
            let numbers = seen.entry(delivery.key.clone().unwrap()).or_default();
            let number = number(&delivery.body);
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        let tokens: Vec<_> = got.into_iter().map(|delivery| delivery.token).collect();
        // Expired deliveries are delivered again, by the current owner.
        let _ = reader.ack(&tokens).await;
    }
    reader.close().await.unwrap();
}

/// An independent observer of the cluster.
struct Looker(BaseConsumer);

impl Looker {
    fn at(servers: &str) -> Self {
        let mut config = ClientConfig::new();
        Looker(config.set("bootstrap.servers", servers).set("group.id", "looker").create().unwrap())
    }

    /// The leader of each partition once all three brokers have it.
    fn leaders(&self, topic: &str) -> Vec<i32> {
        let limit = Instant::now() + 2 * PATIENCE;
        loop {
            if let Ok(found) = self.0.fetch_metadata(Some(topic), Duration::from_secs(5)) {
                let partitions = found.topics()[0].partitions();
                assert!(partitions.iter().all(|partition| partition.replicas().len() == 3));
                if partitions.iter().all(|partition| partition.isr().len() == 3) {
                    return partitions.iter().map(|partition| partition.leader()).collect();
                }
            }
            assert!(Instant::now() < limit, "{topic} is not in sync again");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + 2 * PATIENCE;
    while !holds() {
        assert!(Instant::now() < limit, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Everything of a topic, by key, as it lies in the log.
async fn log(kafka: &Kafka, topic: &str) -> BTreeMap<String, Vec<u32>> {
    let mut walk = kafka.read(&[topic.to_owned()], ReadFrom::Beginning).await.unwrap();
    let mut log: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    while !walk.is_caught_up() {
        for kept in walk.read(500, Duration::from_secs(10)).await.unwrap() {
            let key = kept.delivery.key.clone().unwrap();
            log.entry(key).or_default().push(number(&kept.delivery.body));
        }
    }
    log
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_broker_of_three_may_be_killed_under_load() {
    let mut cluster: Vec<Instance> = need!(servers::kafka_cluster(3));
    let servers: Vec<&str> = cluster.iter().map(Instance::url).collect();
    let servers = servers.join(",");
    let (url, topic) = (format!("kafka://{servers}"), topic());
    let kafka = Kafka::connect(&url, patient("writer")).await.unwrap();
    let retention = Duration::from_secs(7 * 24 * 3600);
    let wanted = TopicSpec { name: topic.clone(), partitions: 6, retention };
    kafka.apply(&[wanted], &[]).await.unwrap();
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &servers).create().unwrap();
    let of_topic = [ResourceSpecifier::Topic(&topic)];
    let config = admin.describe_configs(&of_topic, &AdminOptions::new()).await.unwrap().remove(0);
    let in_sync = config.unwrap().get("min.insync.replicas").unwrap().value.clone();
    assert_eq!(in_sync.as_deref(), Some("2"));
    let looker = Looker::at(&servers);
    looker.leaders(&topic);

    let (seen, stop, done): (Seen, Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
    let mut readers = Vec::new();
    for owner in ["a", "b"] {
        let kafka = Kafka::connect(&url, patient(owner)).await.unwrap();
        let reader: Arc<dyn Subscription> =
            kafka.subscribe(&spec(GROUP, &[&topic])).await.unwrap().into();
        readers.push(tokio::spawn(consume(reader, seen.clone(), done.clone())));
    }
    let writer = tokio::spawn(publish(kafka.clone(), topic.clone(), stop.clone()));
    let applied = || seen.lock().unwrap().values().map(Vec::len).sum::<usize>();
    for number in 1..=3 {
        let before = applied();
        until("everything flows", || applied() > before + 20 * KEYS).await;
        let leads = looker.leaders(&topic).iter().filter(|leader| **leader == number).count();
        assert!(leads > 0, "broker {number} leads nothing, so that killing it shows nothing");
        let node = &mut cluster[number as usize - 1];
        node.kill();
        let before = applied();
        // On two brokers, while the third is away.
        until("two brokers go on", || applied() > before + 20 * KEYS).await;
        node.restart().unwrap();
        looker.leaders(&topic);
    }
    stop.store(true, Ordering::SeqCst);
    let published = writer.await.unwrap();
    until("everything arrives", || applied() >= published as usize * KEYS).await;
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }

    let expected: Vec<u32> = (0..published).collect();
    let log = log(&kafka, &topic).await;
    assert_eq!((log.len(), seen.lock().unwrap().len()), (KEYS, KEYS));
    for (key, seen) in &*seen.lock().unwrap() {
        for (numbers, what) in [(&log[key], "in the log"), (seen, "delivered")] {
            let wrong = numbers.iter().zip(&expected).find(|(got, wanted)| got != wanted);
            let counts = (numbers.len(), expected.len());
            assert!(numbers == &expected, "{what} of {key}: {counts:?}, first {wrong:?}");
        }
    }
    // What was acknowledged is remembered by those that are left.
    let late = Kafka::connect(&url, patient("c")).await.unwrap();
    let reader = late.subscribe(&spec(GROUP, &[&topic])).await.unwrap();
    let again = reader.fetch(64, Duration::from_secs(3)).await.unwrap();
    assert!(again.is_empty(), "{} come again", again.len());
    reader.close().await.unwrap();
}
