//! Publishing: many keys at a time, one message of a key.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use chapar_core::Id;
use chapar_core::port::{Outgoing, Position, Receipt, TransportError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use tracing::info;

use super::client::{Ears, config, creation};
use super::options::KafkaOptions;
use super::topology::{Cluster, Topic, Topics};
use super::{Kafka, lock, wire};
use crate::waves::{Published, in_waves};

/// The most messages of a batch that wait for their acknowledgement.
const MOST_OPEN: usize = 4096;
/// How long a refused producer is kept, so that credentials are not tried in a tight loop.
const AT_LEAST: Duration = Duration::from_secs(1);

/// A producer with the errors that it reported. Cheap to clone.
#[derive(Clone)]
pub(super) struct Producer {
    pub(super) inner: FutureProducer<Ears>,
    pub(super) ears: Ears,
    made_at: Instant,
}

impl Producer {
    pub(super) fn open(servers: &str, options: &KafkaOptions) -> Result<Self, TransportError> {
        let ears = Ears::new(options);
        let mut config = config(servers, options)?;
        let timeout = options.timeout.as_millis().max(10);
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            // With more requests in flight, acknowledged messages can be lost (KAFKA-15591): a
            // broker that does not know a producer yet accepts any sequence number as its first.
            // If it rejects the first request, as it does while a topic is created or a leader
            // elected, and accepts the second, librdkafka believes that it has the first as well.
            .set("max.in.flight.requests.per.connection", "1")
            .set("partitioner", "murmur2_random")
            .set("compression.type", &options.compression)
            .set("linger.ms", options.linger.as_millis().to_string())
            .set("message.timeout.ms", timeout.to_string())
            .set("request.timeout.ms", (timeout / 2).to_string())
            // The broker limits the size of messages.
            .set("message.max.bytes", "100000000");
        let inner = config.create_with_context(ears.clone()).map_err(|error| creation(&error))?;
        Ok(Producer { inner, ears, made_at: Instant::now() })
    }

    /// The brokers and topics of the cluster. Blocks.
    pub(super) fn survey(&self, timeout: Duration) -> Result<Cluster, TransportError> {
        let limit = Instant::now() + timeout;
        loop {
            // Ask repeatedly with short timeouts, to notice refused credentials early.
            let left = limit.saturating_duration_since(Instant::now());
            let piece = left.clamp(Duration::from_millis(50), Duration::from_millis(500));
            match self.inner.client().fetch_metadata(None, piece) {
                Ok(metadata) => return Ok(Cluster::of(&metadata)),
                Err(error) if self.ears.is_refused() || left.is_zero() => {
                    return Err(self.ears.explain(&error));
                }
                Err(_) => {}
            }
        }
    }

    /// Whether it has failed for good.
    fn is_done_for(&self) -> bool {
        let broken = self.ears.is_refused() || self.inner.client().fatal_error().is_some();
        broken && self.made_at.elapsed() > AT_LEAST
    }
}

/// A message that was sent and is not acknowledged yet.
enum Sent {
    Before(Receipt),
    Open { id: Id, topic: Topic, size: usize, delivery: DeliveryFuture },
}

impl Kafka {
    /// The producer, created again if the broker refused the last one: its credentials may have
    /// changed.
    pub(super) fn producer(&self) -> Result<Producer, TransportError> {
        let mut producer = lock(&self.0.producer);
        if producer.is_done_for() {
            info!("Kafka producer was refused; creating another one");
            *producer = Producer::open(&self.0.servers, &self.0.options)?;
        }
        Ok(producer.clone())
    }

    /// Publishes a batch, one message of a key at a time.
    pub(super) async fn publish_all(&self, batch: Vec<Outgoing>) -> Vec<Published> {
        let missing = self.missing(&batch).await;
        in_waves(batch, |wave| self.publish_wave(wave, &missing)).await
    }

    /// Creates the missing topics of a batch; returns those that cannot be created, and why. One
    /// of them must not block the others.
    async fn missing(&self, batch: &[Outgoing]) -> HashMap<String, String> {
        let mut missing = HashMap::new();
        let all = batch.iter().map(|message| message.topic.as_str());
        let Err(error) = self.ensure(all.clone()).await else { return missing };
        let unknown: BTreeSet<&str> = {
            let known = lock(&self.0.topics);
            all.filter(|topic| !known.contains_key(*topic)).collect()
        };
        for topic in unknown {
            let made = match error.is_retryable() {
                true => Err(error.to_string()),
                false => self.ensure(std::iter::once(topic)).await.map_err(|e| e.to_string()),
            };
            if let Err(why) = made {
                missing.insert(topic.to_owned(), why);
            }
        }
        missing
    }

    /// Sends one message after the other and then collects the acknowledgements.
    async fn publish_wave(
        &self,
        batch: Vec<Outgoing>,
        missing: &HashMap<String, String>,
    ) -> Vec<Published> {
        let mut results = Vec::with_capacity(batch.len());
        let producer = match self.producer() {
            Ok(producer) => producer,
            Err(error) => {
                let again = || TransportError::Unavailable(error.to_string());
                return batch.iter().map(|_| Err(again())).collect();
            }
        };
        let mut topics = Topics::default();
        let mut open: VecDeque<Result<Sent, TransportError>> = VecDeque::new();
        for message in batch {
            if open.len() == MOST_OPEN
                && let Some(sent) = open.pop_front()
            {
                results.push(self.acknowledged(&producer, sent).await);
            }
            let topic = topics.get(&message.topic);
            open.push_back(match missing.get(&message.topic) {
                Some(why) => Err(TransportError::Unavailable(why.clone())),
                None => self.send(&producer, message, topic),
            });
        }
        for sent in open {
            results.push(self.acknowledged(&producer, sent).await);
        }
        results
    }

    fn send(
        &self,
        producer: &Producer,
        message: Outgoing,
        topic: Topic,
    ) -> Result<Sent, TransportError> {
        if let Some(receipt) = lock(&self.0.published).get(&message.id).copied() {
            return Ok(Sent::Before(Receipt { duplicate: true, ..receipt }));
        }
        let size = message.body.len();
        let mut record = FutureRecord::to(&topic.name)
            .headers(wire::encode(&message))
            .payload(&message.body[..]);
        record.key = message.key.as_deref();
        match producer.inner.send_result(record) {
            Ok(delivery) => Ok(Sent::Open { id: message.id, topic, size, delivery }),
            Err((error, _)) => Err(self.publish_error(producer, &topic.name, size, &error)),
        }
    }

    async fn acknowledged(
        &self,
        producer: &Producer,
        sent: Result<Sent, TransportError>,
    ) -> Published {
        let (id, topic, size, delivery) = match sent? {
            Sent::Before(receipt) => return Ok(receipt),
            Sent::Open { id, topic, size, delivery } => (id, topic, size, delivery),
        };
        let delivered = match delivery.await {
            Ok(Ok(delivered)) => delivered,
            Ok(Err((error, _))) => {
                return Err(self.publish_error(producer, &topic.name, size, &error));
            }
            Err(_) => return Err(TransportError::Unavailable("the producer is gone".into())),
        };
        let partition = u32::try_from(delivered.partition).unwrap_or_default();
        let offset = u64::try_from(delivered.offset).unwrap_or_default();
        let position = Position { partition: topic.code(partition), offset };
        let receipt = Receipt { position, duplicate: false };
        lock(&self.0.published).put(id, receipt);
        Ok(receipt)
    }

    fn publish_error(
        &self,
        producer: &Producer,
        topic: &str,
        size: usize,
        error: &KafkaError,
    ) -> TransportError {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize) => {
                TransportError::Refused(format!(
                    "a body of {size} bytes and its headers are over the broker's \
                     message.max.bytes, or max.message.bytes of {topic}; raise it there"
                ))
            }
            Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition) => {
                // Deleted, or not available yet after a restart: check again next time.
                lock(&self.0.topics).remove(topic);
                producer.ears.explain(error)
            }
            _ => match producer.ears.explain(error) {
                // A right that was lost may be granted again, so the message can be retried.
                TransportError::Setup(what) if producer.ears.is_refused() => {
                    TransportError::Unavailable(what)
                }
                error => error,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::ClientConfig;
    use rdkafka::consumer::{BaseConsumer, Consumer};
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::*;

    /// While it creates a topic or elects a leader, a broker may reject the first request and
    /// accept the second. A real broker cannot be made to do so, so this uses librdkafka's mock.
    #[tokio::test]
    async fn what_a_broker_turned_away_is_not_taken_for_acknowledged() {
        const TOPIC: &str = "a.b.v1";
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, 1, 1).unwrap();
        let servers = cluster.bootstrap_servers();
        let producer = Producer::open(&servers, &KafkaOptions::default()).unwrap();
        producer.survey(Duration::from_secs(5)).unwrap();
        // Long enough for all requests to be in flight at once, if that were allowed.
        cluster.broker_round_trip_time(-1, Duration::from_millis(200)).unwrap();
        let turned_away = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION];
        cluster.request_errors(RDKafkaApiKey::Produce, &turned_away);
        // Too large for two messages to share a request.
        let body = vec![b'x'; 600_000];
        let record = || FutureRecord::to(TOPIC).key("k").payload(&body);
        let sent: Vec<_> = (0..5).map(|_| producer.inner.send_result(record()).unwrap()).collect();
        for delivery in sent {
            delivery.await.unwrap().unwrap();
        }
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", servers).set("group.id", "counter");
        let consumer: BaseConsumer = config.create().unwrap();
        let (_, end) = consumer.fetch_watermarks(TOPIC, 0, Duration::from_secs(5)).unwrap();
        assert_eq!(end, 5);
    }
}
