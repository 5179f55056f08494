//! Helpers of the cases: unique names, messages, and waiting for deliveries.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chapar_core::Id;
use chapar_core::port::{
    Delivery, Outgoing, Receipt, Subscription, SubscriptionSpec, TopicSpec, Transport,
};

use super::Bench;
use super::worker::Worker;

/// How long a case waits for a message.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A bench, with names that no other test uses.
#[derive(Debug)]
pub struct Desk<B> {
    pub(super) bench: B,
    prefix: String,
}

impl<B: Bench> Desk<B> {
    pub(super) fn new(bench: B) -> Self {
        let prefix = format!("t{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        Desk { bench, prefix }
    }

    pub(super) async fn transport(&self, owner: &str) -> Arc<dyn Transport> {
        B::connect(&self.bench.address(), owner).await
    }

    /// A transport with one topic and one subscription on it.
    pub(super) async fn open(&self) -> (Arc<dyn Transport>, Box<dyn Subscription>) {
        let transport = self.transport("one").await;
        self.apply(&*transport).await;
        let subscription = transport.subscribe(&self.spec("reader")).await.expect("a subscription");
        (transport, subscription)
    }

    pub(super) async fn apply(&self, transport: &dyn Transport) {
        let specs = [self.spec("reader")];
        transport.apply(&self.topics(), &specs).await.expect("the topology is applied");
    }

    pub(super) fn topics(&self) -> [TopicSpec; 1] {
        [TopicSpec { name: self.topic(), partitions: 12, retention: DAY }]
    }

    pub(super) fn topic(&self) -> String {
        format!("{}.order.placed.v1", self.prefix)
    }

    pub(super) fn spec(&self, name: &str) -> SubscriptionSpec {
        SubscriptionSpec {
            name: format!("{}-{name}", self.prefix),
            topics: vec![self.topic()],
            ack_deadline: Duration::from_secs(30),
            max_in_flight: 256,
        }
    }

    /// A message whose body says its key and number.
    pub(super) fn message(&self, key: &str, number: u32) -> Outgoing {
        Outgoing {
            id: Id::Uuid(uuid::Uuid::now_v7()),
            topic: self.topic(),
            tenant: "acme".into(),
            key: Some(key.into()),
            headers: [("content-type", "text/plain")].into(),
            body: Bytes::from(format!("{key}:{number}")),
        }
    }

    /// `count` messages of each key, interleaved.
    pub(super) fn messages(&self, keys: &[&str], count: u32) -> Vec<Outgoing> {
        (1..=count)
            .flat_map(|number| keys.iter().map(move |key| self.message(key, number)))
            .collect()
    }

    pub(super) async fn worker(&self, owner: &str, spec: &SubscriptionSpec) -> Worker {
        Worker::start::<B>(&self.bench.address(), owner, spec).await
    }
}

/// Publishes as a relay does: one message of a key at a time where the transport requires it.
pub(super) async fn publish(transport: &dyn Transport, messages: Vec<Outgoing>) -> Vec<Receipt> {
    let mut receipts = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while !rest.is_empty() {
        let mut keys = HashSet::new();
        let end = match transport.features().ordered_in_flight {
            true => rest.len(),
            false => rest
                .iter()
                .position(|m| m.key.as_ref().is_some_and(|key| !keys.insert(key.clone())))
                .unwrap_or(rest.len()),
        };
        let later = rest.split_off(end);
        for receipt in transport.publish(rest).await {
            receipts.push(receipt.expect("the message is published"));
        }
        rest = later;
    }
    receipts
}

/// Fetches `count` deliveries without acknowledging any.
pub(super) async fn fetch(subscription: &dyn Subscription, count: usize) -> Vec<Delivery> {
    let mut got = Vec::new();
    while got.len() < count {
        got.extend(fetch_some(subscription, count - got.len(), &got).await);
    }
    got
}

/// Fetches at least one and at most `max` deliveries; `before` are those fetched so far.
async fn fetch_some(
    subscription: &dyn Subscription,
    max: usize,
    before: &[Delivery],
) -> Vec<Delivery> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let got = subscription.fetch(max, Duration::from_millis(500)).await.expect("a fetch");
        if !got.is_empty() {
            return got;
        }
        let (here, count, bodies) = (before.len(), before.len() + max, bodies(before));
        assert!(Instant::now() < deadline, "{here} of {count} arrived in time: {bodies:?}");
    }
}

/// Fetches `count` deliveries and acknowledges each as it arrives: a broker may hold back the
/// followers of a key until then.
pub(super) async fn consume(subscription: &dyn Subscription, count: usize) -> Vec<Delivery> {
    let mut got = Vec::new();
    while got.len() < count {
        let next = fetch_some(subscription, count - got.len(), &got).await;
        ack(subscription, &next).await;
        got.extend(next);
    }
    got
}

pub(super) async fn ack(subscription: &dyn Subscription, deliveries: &[Delivery]) {
    let tokens: Vec<_> = deliveries.iter().map(|delivery| delivery.token).collect();
    subscription.ack(&tokens).await.expect("the acknowledgement is taken");
}

/// Checks that nothing is delivered for a short time.
pub(super) async fn nothing(subscription: &dyn Subscription) {
    let got = subscription.fetch(16, Duration::from_millis(400)).await.expect("a fetch");
    assert!(got.is_empty(), "nothing should be delivered, but {:?} was", bodies(&got));
}

pub(super) fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    let text = |delivery: &Delivery| String::from_utf8_lossy(&delivery.body).into_owned();
    deliveries.iter().map(text).collect()
}

/// The bodies of one key, in the order of delivery.
pub(super) fn of_key(deliveries: &[Delivery], key: &str) -> Vec<String> {
    let ours = deliveries.iter().filter(|delivery| delivery.key.as_deref() == Some(key));
    bodies(&ours.cloned().collect::<Vec<_>>())
}

pub(super) fn numbered(key: &str, numbers: std::ops::RangeInclusive<u32>) -> Vec<String> {
    numbers.map(|number| format!("{key}:{number}")).collect()
}
