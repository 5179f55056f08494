//! The network between us and the broker breaks, and the broker goes: nothing is lost, and the
//! order holds.

use std::time::{Duration, Instant};

use bytes::Bytes;
use chapar_core::port::{Outgoing, Subscription, Transport};
use chapar_testkit::need;
use chapar_testkit::proxy::Proxy;
use chapar_testkit::servers::{Instance, Kind, Launch, ServerError, free_port};
use chapar_transports::kafka::{Kafka, KafkaOptions};

use crate::specifics::{message, options, spec, topic};

/// A broker whose clients are told to come through a proxy.
fn behind_a_proxy() -> Result<(Instance, Proxy, String), ServerError> {
    let port = free_port().unwrap();
    let proxy = Proxy::to(&format!("127.0.0.1:{port}")).unwrap();
    let listener = format!("PROXIED PLAINTEXT {port} {}", proxy.address().port());
    let server = Launch::of(Kind::Kafka).setting("+listener", listener).start()?;
    let url = format!("kafka://{}", proxy.address());
    Ok((server, proxy, url))
}

/// Publishes one message after the other, as a relay does: the next when the one before has its
/// receipt, however often it takes.
struct Writer {
    kafka: Kafka,
    topic: String,
    sent: Vec<Bytes>,
    failures: usize,
}

impl Writer {
    async fn write(&mut self, count: usize) {
        for _ in 0..count {
            let message = message(&self.topic, "one key");
            self.sent.push(message.body.clone());
            self.insist(message).await;
        }
    }

    async fn insist(&mut self, message: Outgoing) {
        let limit = Instant::now() + Duration::from_secs(60);
        while let Err(error) = self.kafka.publish(vec![message.clone()]).await.remove(0) {
            assert!(error.is_retryable(), "{error}");
            assert!(Instant::now() < limit, "publishing does not recover: {error}");
            self.failures += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Reads until `wanted` have been seen; a message counts where it was first delivered.
async fn read(reader: &dyn Subscription, seen: &mut Vec<Bytes>, wanted: usize) {
    let limit = Instant::now() + Duration::from_secs(60);
    while seen.len() < wanted {
        assert!(Instant::now() < limit, "{} of {wanted} arrived", seen.len());
        let got = reader.fetch(64, Duration::from_millis(100)).await.unwrap_or_default();
        for delivery in &got {
            if !seen.contains(&delivery.body) {
                seen.push(delivery.body.clone());
            }
        }
        // One that is not ours any more comes again.
        let tokens: Vec<_> = got.into_iter().map(|delivery| delivery.token).collect();
        let _ = reader.ack(&tokens).await;
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Cut,
    HalfOpen,
    AnswersLost,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_network_loses_nothing_and_keeps_the_order() {
    let (_server, proxy, url) = need!(behind_a_proxy());
    let topic = topic();
    let options = KafkaOptions { timeout: Duration::from_secs(1), ..options("a") };
    let kafka = Kafka::connect(&url, options).await.unwrap();
    let reader = kafka.subscribe(&spec("desk", &[&topic])).await.unwrap();
    let mut writer = Writer { kafka: kafka.clone(), topic, sent: Vec::new(), failures: 0 };
    let mut seen = Vec::new();
    for fault in [Fault::Cut, Fault::HalfOpen, Fault::AnswersLost, Fault::Cut, Fault::AnswersLost] {
        writer.write(10).await;
        let broken = match fault {
            Fault::Cut => proxy.cut(),
            Fault::HalfOpen => proxy.half_open(),
            Fault::AnswersLost => proxy.lose_answers(),
        };
        assert!(broken > 0, "{fault:?} meets no connection");
        // Longer than a session, while the writer keeps trying and the reader sees nothing.
        let heal = async {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            proxy.heal();
        };
        tokio::join!(writer.write(10), heal);
        let wanted = writer.sent.len();
        read(&*reader, &mut seen, wanted).await;
        assert_eq!(seen, writer.sent, "after {fault:?}: first deliveries in order");
    }
    assert!(writer.failures > 0, "the faults were felt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_loses_nothing_and_keeps_the_order() {
    let mut server = need!(Launch::of(Kind::Kafka).start());
    let topic = topic();
    let kafka = Kafka::connect(&format!("kafka://{}", server.url()), options("a")).await.unwrap();
    let reader = kafka.subscribe(&spec("desk", &[&topic])).await.unwrap();
    let mut writer = Writer { kafka: kafka.clone(), topic, sent: Vec::new(), failures: 0 };
    let mut seen = Vec::new();
    for _ in 0..2 {
        writer.write(20).await;
        // Killed in the middle of the next messages.
        let (killed, ()) = tokio::join!(
            tokio::task::spawn_blocking(move || {
                server.kill();
                server.restart().unwrap();
                server
            }),
            writer.write(20),
        );
        server = killed.unwrap();
        let wanted = writer.sent.len();
        read(&*reader, &mut seen, wanted).await;
        assert_eq!(seen, writer.sent, "first deliveries in order");
    }
}
