//! Reading topics without a group: partitions are assigned by hand, and nothing is committed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar_core::port::{AckToken, BoxFuture, Kept, Position, ReadFrom, Reader, TransportError};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::client::{Ears, config, creation};
use super::topology::code;
use super::wire::{self, Decoder, Run};
use super::{Kafka, gone, lock, unavailable};

/// Reads the partitions of some topics.
pub(super) struct KafkaReader {
    consumer: Arc<BaseConsumer<Ears>>,
    /// The partitions not yet read to the end that they had at first, with that end.
    ends: HashMap<(String, i32), i64>,
}

impl KafkaReader {
    pub(super) async fn open(
        kafka: &Kafka,
        topics: &[String],
        from: ReadFrom,
    ) -> Result<Self, TransportError> {
        kafka.look_again().await?;
        let there: Vec<(String, u32)> = {
            let known = lock(&kafka.0.topics);
            let partitions = |topic: &String| Some((topic.clone(), *known.get(topic)?));
            topics.iter().filter_map(partitions).collect()
        };
        let kafka = kafka.clone();
        let opened = tokio::task::spawn_blocking(move || Self::assign(&kafka, &there, &from));
        opened.await.map_err(gone)?
    }

    /// Blocks.
    fn assign(
        kafka: &Kafka,
        topics: &[(String, u32)],
        from: &ReadFrom,
    ) -> Result<Self, TransportError> {
        let (consumer, timeout) = (reading(kafka)?, kafka.0.options.timeout);
        let failed = |error: KafkaError| consumer.context().explain(&error);
        let mut starts = TopicPartitionList::new();
        let mut ends = HashMap::new();
        for (topic, partitions) in topics {
            for partition in 0..*partitions {
                let number = i32::try_from(partition).unwrap_or(i32::MAX);
                let (start, high) = start(&consumer, topic, partition, from, timeout)?;
                let offset = Offset::Offset(start);
                starts.add_partition_offset(topic, number, offset).map_err(failed)?;
                if start < high {
                    ends.insert((topic.clone(), number), high);
                }
            }
        }
        consumer.assign(&starts).map_err(failed)?;
        Ok(KafkaReader { consumer: Arc::new(consumer), ends })
    }

    fn take(&mut self, run: Run) -> Vec<Kept> {
        let (topic, partition) = (run.topic.clone(), run.partition);
        let code = topic.code(u32::try_from(partition).unwrap_or_default());
        let place = ((*topic.name).to_owned(), partition);
        let message = |(offset, kept): (i64, wire::Kept)| {
            if self.ends.get(&place).is_some_and(|end| offset + 1 >= *end) {
                self.ends.remove(&place);
            }
            // A message without our headers was not published by Chapar.
            let (id, tenant) = (kept.id()?.to_string(), kept.tenant()?.into_owned());
            let offset = u64::try_from(offset).unwrap_or_default();
            let token = AckToken::unacknowledgeable(Position { partition: code, offset });
            let delivery = kept.delivery(&topic.name, token, 0);
            Some(Kept { id, tenant, delivery })
        };
        run.messages().filter_map(message).collect()
    }
}

/// A client for partitions that are assigned by hand. librdkafka requires a group id; the group is
/// never joined, and nothing is committed to it.
pub(super) fn reading(kafka: &Kafka) -> Result<BaseConsumer<Ears>, TransportError> {
    let options = &kafka.0.options;
    let mut config = config(&kafka.0.servers, options)?;
    config
        .set("group.id", format!("chapar-reader-{:016x}", fastrand::u64(..)))
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.error.backoff.ms", "100");
    config.create_with_context(Ears::new(options)).map_err(|error| creation(&error))
}

/// The offset to read a partition from, and its end. Blocks.
pub(super) fn start(
    consumer: &BaseConsumer<Ears>,
    topic: &str,
    partition: u32,
    from: &ReadFrom,
    timeout: Duration,
) -> Result<(i64, i64), TransportError> {
    let failed = |error: KafkaError| consumer.context().explain(&error);
    let number = i32::try_from(partition).unwrap_or(i32::MAX);
    let (low, high) = consumer.fetch_watermarks(topic, number, timeout).map_err(failed)?;
    let start = match from {
        ReadFrom::Beginning => low,
        ReadFrom::End => high,
        ReadFrom::Time(at) => {
            let mut asked = TopicPartitionList::new();
            let at = Offset::Offset(at.as_millisecond());
            asked.add_partition_offset(topic, number, at).map_err(failed)?;
            let found = consumer.offsets_for_times(asked, timeout).map_err(failed)?;
            match found.elements().first().map(|found| found.offset()) {
                Some(Offset::Offset(offset)) => offset,
                _ => high,
            }
        }
        ReadFrom::Behind(offsets) => {
            let behind = offsets.get(&code(topic, partition));
            let behind = behind.and_then(|offset| i64::try_from(*offset).ok());
            behind.map_or(low, |offset| offset + 1).max(low)
        }
    };
    Ok((start, high))
}

impl Reader for KafkaReader {
    fn read(
        &mut self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Kept>, TransportError>> {
        Box::pin(async move {
            let deadline = Instant::now() + wait;
            let mut kept = Vec::new();
            while kept.is_empty() {
                let consumer = self.consumer.clone();
                let polled = tokio::task::spawn_blocking(move || poll(&consumer, max, deadline));
                let arrived = polled.await.map_err(gone)??;
                if arrived.is_empty() {
                    break;
                }
                kept.extend(arrived.into_iter().flat_map(|run| self.take(run)));
            }
            Ok(kept)
        })
    }

    fn is_caught_up(&self) -> bool {
        self.ends.is_empty()
    }
}

/// Waits for a message and takes those that are available with it. Blocks.
fn poll(
    consumer: &BaseConsumer<Ears>,
    max: usize,
    deadline: Instant,
) -> Result<Vec<Run>, TransportError> {
    let mut decoder = Decoder::default();
    while decoder.read().0 < max {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = if decoder.read().0 == 0 { left } else { Duration::ZERO };
        match consumer.poll(left) {
            Some(Ok(message)) => decoder.add(&message, 0),
            // No right to the group is needed.
            Some(Err(error))
                if error.rdkafka_error_code()
                    == Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {}
            Some(Err(error)) => match unavailable(&error) {
                // The client reconnects by itself.
                TransportError::Unavailable(_) => {}
                error => return Err(error),
            },
            None if left.is_zero() => break,
            None => {}
        }
    }
    Ok(decoder.take())
}
