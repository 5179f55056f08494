//! Messages that Pub/Sub pushes over HTTP, as subscriptions.
//!
//! The HTTP endpoint passes each request to [`Pushed::deliver`] and responds when that returns: with
//! success only once the message is applied or stored as a dead letter or in the stash. Until then
//! the service treats it as outstanding, and pushes nothing more of its key. A request without
//! success is repeated after the subscription's back-off, so nothing is stored here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chapar_core::port::{
    AckToken, BoxFuture, Delivery, Features, Outgoing, Receipt, SeekTo, Subscription,
    SubscriptionSpec, TopicSpec, Tracking, Transport, TransportError,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use super::publish::position;
use super::{lock, topology, wire};

/// The result for a pushed message, with the HTTP status to respond with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handed {
    /// It is applied, or stored as a dead letter or in the stash: 204.
    Done,
    /// It must be delivered again: 503.
    Again,
    /// No consumer of this process has the subscription: 404.
    Unknown,
    /// It is not a message of Pub/Sub, and why: 400.
    Malformed(String),
}

/// A transport whose subscriptions receive pushed messages; everything else goes to another
/// transport.
///
/// ```no_run
/// # async fn example(pubsub: chapar_transports::pubsub::PubSub) {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use chapar_transports::pubsub::Pushed;
///
/// let pushed = Pushed::over(Arc::new(pubsub), Some("melmastoon"), Duration::from_secs(55));
/// // In the handler of `POST /internal/events/{topic}`:
/// let answer = pushed.deliver("reservation.booking.held.v1", b"{}").await;
/// # }
/// ```
#[derive(Clone)]
pub struct Pushed(Arc<Shared>);

struct Shared {
    others: Arc<dyn Transport>,
    prefix: Option<String>,
    patience: Duration,
    consumers: Mutex<Vec<Arc<Consumer>>>,
}

/// One subscription of this process.
struct Consumer {
    spec: SubscriptionSpec,
    state: Mutex<State>,
    arrived: Notify,
}

/// What the consumer did with a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Acked,
    Nacked,
}

#[derive(Default)]
struct State {
    last: u64,
    waiting: VecDeque<(u64, Delivery)>,
    /// Requests without a response, by number; none once the consumer has acknowledged.
    open: BTreeMap<u64, Option<oneshot::Sender<Outcome>>>,
    closed: bool,
}

impl Pushed {
    /// Subscriptions receive what [`Pushed::deliver`] is given; publishing goes to `others`. `prefix`
    /// is the first segment of the system's topics, which addresses leave out. A request gets its
    /// response within `patience`, which should be less than the subscription's acknowledgement
    /// deadline.
    pub fn over(others: Arc<dyn Transport>, prefix: Option<&str>, patience: Duration) -> Self {
        let (prefix, consumers) = (prefix.map(str::to_owned), Mutex::default());
        Pushed(Arc::new(Shared { others, prefix, patience, consumers }))
    }

    /// Delivers the body of a request to `/internal/events/TOPIC`, and waits for the result. If the
    /// future is dropped, the delivery expires.
    pub async fn deliver(&self, topic: &str, body: &[u8]) -> Handed {
        let pushed = match read(body) {
            Ok(pushed) => pushed,
            Err(why) => return Handed::Malformed(why),
        };
        let Some((consumer, full)) = self.consumer(topic, &pushed.subscription) else {
            return Handed::Unknown;
        };
        let (number, answer) = {
            let mut state = lock(&consumer.state);
            if state.closed || state.open.len() >= consumer.spec.max_in_flight {
                return Handed::Again;
            }
            state.last += 1;
            let number = state.last;
            let delivery = pushed.delivery(&full, number);
            let (tell, answer) = oneshot::channel();
            state.waiting.push_back((number, delivery));
            state.open.insert(number, Some(tell));
            (number, answer)
        };
        // When this call ends, so does the delivery: a late acknowledgement is refused.
        let _end = End { consumer: &consumer, number };
        consumer.arrived.notify_waiters();
        match tokio::time::timeout(self.0.patience, answer).await {
            Ok(Ok(Outcome::Acked)) => Handed::Done,
            _ => Handed::Again,
        }
    }

    /// The consumer that a subscription belongs to, `CONSUMER.TOPIC-SHORT.sub`, and the topic.
    fn consumer(&self, topic: &str, subscription: &str) -> Option<(Arc<Consumer>, String)> {
        let prefix = self.0.prefix.as_deref();
        let name = topology::last_segment(subscription);
        let consumers = lock(&self.0.consumers);
        consumers.iter().find_map(|consumer| {
            let spec = &consumer.spec;
            let full = spec.topics.iter().find(|full| topology::short(full, prefix) == topic)?;
            let expected = topology::subscription_name(&spec.name, full, prefix);
            (expected == name).then(|| (consumer.clone(), full.clone()))
        })
    }
}

struct End<'a> {
    consumer: &'a Consumer,
    number: u64,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.consumer.state);
        state.open.remove(&self.number);
        state.waiting.retain(|(number, _)| *number != self.number);
    }
}

/// A message as it is pushed.
struct Message {
    subscription: String,
    id: String,
    ordering_key: String,
    attributes: std::collections::HashMap<String, String>,
    data: Vec<u8>,
    published_at: Timestamp,
    attempt: u32,
}

fn read(body: &[u8]) -> Result<Message, String> {
    let json: Value = serde_json::from_slice(body).map_err(|_| "the body is not JSON")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let message = &json["message"];
    let id = text(&message["messageId"]);
    if id.is_empty() {
        return Err("message.messageId is missing".into());
    }
    let data = STANDARD.decode(text(&message["data"])).map_err(|_| "message.data is not base64")?;
    let attributes = match &message["attributes"] {
        Value::Null => Default::default(),
        given => serde_json::from_value(given.clone())
            .map_err(|_| "message.attributes is not a map of strings")?,
    };
    Ok(Message {
        subscription: text(&json["subscription"]),
        id,
        ordering_key: text(&message["orderingKey"]),
        attributes,
        data,
        published_at: text(&message["publishTime"]).parse().unwrap_or(Timestamp::UNIX_EPOCH),
        attempt: json["deliveryAttempt"].as_u64().and_then(|n| n.try_into().ok()).unwrap_or(1),
    })
}

impl Message {
    fn delivery(self, topic: &str, number: u64) -> Delivery {
        let (headers, key) = wire::decode(self.attributes, &self.ordering_key);
        // A request is answered once and kept nowhere, so there is one epoch for all.
        let tracking = Tracking { epoch: 1, number, attempt: self.attempt };
        Delivery {
            token: AckToken::of(position(topology::number(topic), &self.id), tracking),
            topic: topic.to_owned(),
            key,
            headers,
            body: self.data.into(),
            attempt: self.attempt,
            published_at: self.published_at,
        }
    }
}

impl Transport for Pushed {
    fn features(&self) -> Features {
        Features { delayed_nack: false, ..self.0.others.features() }
    }

    fn apply<'a>(
        &'a self,
        topics: &'a [TopicSpec],
        _: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        // Push subscriptions need an endpoint and an identity; they are created by the operator.
        self.0.others.apply(topics, &[])
    }

    fn publish(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>> {
        self.0.others.publish(batch)
    }

    fn subscribe<'a>(
        &'a self,
        spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        Box::pin(async move {
            let state = Mutex::default();
            let consumer = Arc::new(Consumer { spec: spec.clone(), state, arrived: Notify::new() });
            let mut consumers = lock(&self.0.consumers);
            consumers.retain(|other| other.spec.name != spec.name);
            consumers.push(consumer.clone());
            Ok(Box::new(PushedSubscription(consumer)) as Box<dyn Subscription>)
        })
    }

    fn seek<'a>(
        &'a self,
        subscription: &'a str,
        to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        self.0.others.seek(subscription, to)
    }
}

struct PushedSubscription(Arc<Consumer>);

impl PushedSubscription {
    /// Answers the request that a delivery came with.
    fn answer(&self, token: &AckToken, outcome: Outcome) -> Result<(), TransportError> {
        let number = token.tracking()?.number;
        let mut state = lock(&self.0.state);
        match state.open.get_mut(&number).ok_or(TransportError::Expired)?.take() {
            Some(tell) => tell.send(outcome).map_err(|_| TransportError::Expired),
            // Acknowledged again before the request has ended.
            None => Ok(()),
        }
    }
}

impl Subscription for PushedSubscription {
    fn fetch(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(async move {
            let deadline = Instant::now() + wait;
            loop {
                let arrived = self.0.arrived.notified();
                let taken: Vec<Delivery> = {
                    let mut state = lock(&self.0.state);
                    let count = max.min(state.waiting.len());
                    state.waiting.drain(..count).map(|(_, delivery)| delivery).collect()
                };
                let left = deadline.saturating_duration_since(Instant::now());
                if !taken.is_empty() || left.is_zero() {
                    return Ok(taken);
                }
                let _ = tokio::time::timeout(left, arrived).await;
            }
        })
    }

    fn fetch_oldest(&self, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        // Each request waits for its own answer, so there is no partition with an oldest message.
        self.fetch(0, wait)
    }

    fn ack<'a>(&'a self, tokens: &'a [AckToken]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            tokens.iter().map(|token| self.answer(token, Outcome::Acked)).fold(Ok(()), Result::and)
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a AckToken,
        _: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move { self.answer(token, Outcome::Nacked) })
    }

    fn keep_alive(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        // A request is open until its patience is over; that cannot be extended.
        Box::pin(async { Ok(()) })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            self.end();
            Ok(())
        })
    }
}

impl PushedSubscription {
    fn end(&self) {
        let mut state = lock(&self.0.state);
        state.closed = true;
        state.waiting.clear();
        // The waiting requests end, and respond that the messages must be delivered again.
        state.open.clear();
    }
}

impl Drop for PushedSubscription {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pushed_message_is_read_or_refused_by_its_part() {
        let body = br#"{"message": {"data": "aGk=", "messageId": "7", "orderingKey": "acme:1",
            "publishTime": "2026-04-22T10:00:00Z", "attributes": {"ce-id": "x", "chapar-id": "y"}},
            "subscription": "projects/p/subscriptions/s", "deliveryAttempt": 3}"#;
        let delivery = read(body).unwrap().delivery("t", 1);
        assert_eq!((delivery.body.as_ref(), delivery.attempt), (&b"hi"[..], 3));
        assert_eq!(delivery.key.as_deref(), Some("acme:1"));
        assert_eq!(delivery.headers, [("ce-id", "x")].into());
        assert_eq!(delivery.published_at.to_string(), "2026-04-22T10:00:00Z");
        for (wrong, part) in [
            ("no", "JSON"),
            ("{}", "messageId"),
            (r#"{"message": {"messageId": "7", "data": "?"}}"#, "base64"),
            (r#"{"message": {"messageId": "7", "attributes": {"a": 1}}}"#, "attributes"),
        ] {
            let said = read(wrong.as_bytes()).err().unwrap();
            assert!(said.contains(part), "{wrong}: {said}");
        }
    }
}
