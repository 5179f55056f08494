//! Publishing. A request has one ordering key: messages of different keys go in separate requests at
//! the same time, and messages without a key go together.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use chapar_core::port::{Outgoing, Position, Receipt, TransportError};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use sha2::{Digest, Sha256};
use tonic::{Code, Status};
use tracing::debug;

use super::grpc::Message;
use super::{PubSub, fingerprint, lock, topology, wire};

/// The limits of Pub/Sub for a message, everything included, and for a request.
const MOST_BYTES: usize = 10_000_000;
const MOST_MESSAGES: usize = 1000;
/// Connections for publishing: each takes a hundred calls at a time.
pub(super) const LINES: usize = 4;
/// The pause before a call is repeated.
const PAUSE: Duration = Duration::from_millis(50);

type Published = Result<Receipt, TransportError>;

/// A message that can be sent.
struct Ready {
    /// Its place in the batch.
    index: usize,
    print: u128,
    size: usize,
    message: Message,
}

impl PubSub {
    /// One request of a key is in progress at a time, and a failure stops those after it.
    pub(super) async fn publish_all(&self, batch: Vec<Outgoing>) -> Vec<Published> {
        let mut results: Vec<Option<Published>> = batch.iter().map(|_| None).collect();
        let mut lots: HashMap<(String, String), Vec<Ready>> = HashMap::new();
        let mut numbers: HashMap<String, u32> = HashMap::new();
        for (index, message) in batch.into_iter().enumerate() {
            let topic = message.topic.clone();
            let print = fingerprint(&topic, &message.id.to_string());
            let known = lock(&self.0.published).get(&print).copied();
            if let Some(position) = known {
                results[index] = Some(Ok(Receipt { position, duplicate: true }));
                continue;
            }
            match self.prepare(message).await {
                Ok((message, size)) => {
                    let lot = lots.entry((topic, message.ordering_key.clone())).or_default();
                    lot.push(Ready { index, print, size, message });
                }
                Err(error) => results[index] = Some(Err(error)),
            }
        }
        let mut calls = FuturesUnordered::new();
        for ((topic, key), lot) in lots {
            let number = match numbers.get(&topic) {
                Some(number) => *number,
                None => *numbers.entry(topic.clone()).or_insert(topology::number(&topic)),
            };
            calls.push(self.publish_lot(topic, number, key, lot));
        }
        while let Some(lot) = calls.next().await {
            lot.into_iter().for_each(|(index, published)| results[index] = Some(published));
        }
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(behind()))).collect()
    }

    /// The message as it goes over the wire, and how large it is there.
    async fn prepare(&self, message: Outgoing) -> Result<(Message, usize), TransportError> {
        self.ensure_topic(&message.topic, None).await?;
        let (id, key) = (message.id.to_string(), message.key.as_deref());
        let (attributes, ordering_key) = wire::encode(&id, &message.tenant, key, &message.headers)?;
        let around: usize = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
        let size = message.body.len() + around + ordering_key.len();
        if size > MOST_BYTES {
            return Err(TransportError::Refused(format!(
                "its body and headers have {size} bytes where Pub/Sub takes {MOST_BYTES}; \
                 keep the body elsewhere and send where it is"
            )));
        }
        Ok((Message { data: message.body, attributes, ordering_key, ..Message::default() }, size))
    }

    /// Publishes messages of one topic and key, in requests one after the other.
    async fn publish_lot(
        &self,
        topic: String,
        number: u32,
        key: String,
        lot: Vec<Ready>,
    ) -> Vec<(usize, Published)> {
        let (mut results, mut failed) = (Vec::with_capacity(lot.len()), false);
        for request in requests(lot) {
            if failed {
                results.extend(request.iter().map(|ready| (ready.index, Err(behind()))));
                continue;
            }
            let answer = self.send(&topic, &key, &request).await;
            match answer {
                Ok(ids) => {
                    let mut published = lock(&self.0.published);
                    for (ready, id) in request.iter().zip(ids) {
                        let position = position(number, &id);
                        published.put(ready.print, position);
                        results.push((ready.index, Ok(Receipt { position, duplicate: false })));
                    }
                }
                Err(status)
                    if key.is_empty()
                        && request.len() > 1
                        && status.code() == Code::InvalidArgument =>
                {
                    // The service does not say which message it refuses.
                    for ready in request {
                        let (topic, key) = (topic.clone(), key.clone());
                        let alone = self.publish_lot(topic, number, key, vec![ready]);
                        results.extend(Box::pin(alone).await);
                    }
                }
                Err(status) => {
                    failed = !key.is_empty();
                    let error = || self.publish_error(&topic, &status);
                    results.extend(request.iter().map(|ready| (ready.index, Err(error()))));
                }
            }
        }
        results
    }

    /// Makes one request, and repeats it while the service is unavailable; returns the message ids.
    async fn send(&self, topic: &str, key: &str, request: &[Ready]) -> Result<Vec<String>, Status> {
        // A key always uses the same connection, so that its requests stay in order.
        let line = &self.0.lines[fingerprint(topic, key) as usize % LINES];
        let (path, until) = (self.topic_path(topic), Instant::now() + self.0.options.timeout);
        let mut pause = PAUSE;
        loop {
            let messages = request.iter().map(|ready| ready.message.clone()).collect();
            let left = until.saturating_duration_since(Instant::now());
            let answer = line.publish(&path, messages, left).await;
            match answer {
                Err(status) if status.code() == Code::Unavailable && pause < left => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Ok(ids) if ids.len() != request.len() => {
                    let (ids, messages) = (ids.len(), request.len());
                    return Err(Status::internal(format!("{ids} ids for {messages} messages")));
                }
                answer => return answer,
            }
        }
    }

    /// Only an error of the message itself is permanent: a missing right or topic can be fixed while
    /// the message waits.
    fn publish_error(&self, topic: &str, status: &Status) -> TransportError {
        debug!(topic, %status, "publish failed");
        let said = self.0.explain_status(status.code(), status.message());
        match status.code() {
            Code::InvalidArgument => TransportError::Refused(said.to_string()),
            code => {
                if code == Code::NotFound {
                    lock(&self.0.topics).remove(topic);
                }
                match said {
                    TransportError::Setup(what) => TransportError::Unavailable(what),
                    other => other,
                }
            }
        }
    }
}

/// As few requests as the service's limits allow.
fn requests(lot: Vec<Ready>) -> Vec<Vec<Ready>> {
    let (mut requests, mut bytes) = (Vec::<Vec<Ready>>::new(), 0);
    for ready in lot {
        bytes += ready.size;
        match requests.last_mut() {
            Some(last) if last.len() < MOST_MESSAGES && bytes <= MOST_BYTES => last.push(ready),
            _ => {
                bytes = ready.size;
                requests.push(vec![ready]);
            }
        }
    }
    requests
}

fn behind() -> TransportError {
    TransportError::Unavailable("an earlier message of its key was not published".into())
}

/// The position of a message. Its id is a number in practice; any other id is hashed.
pub(super) fn position(partition: u32, id: &str) -> Position {
    let offset = id.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
    let hashed = || {
        let hash = Sha256::digest(id.as_bytes());
        hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)) >> 1
    };
    Position { partition, offset: offset.unwrap_or_else(hashed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_fits_where_dead_letters_keep_it() {
        assert_eq!(position(7, "19917247034").offset, 19_917_247_034);
        for id in ["projects/x", "18446744073709551615", ""] {
            assert!(i64::try_from(position(7, id).offset).is_ok(), "{id}");
        }
        assert!(i32::try_from(topology::number("melmastoon.reservation.booking.held.v1")).is_ok());
    }

    #[test]
    fn a_request_stays_within_the_limits_of_the_service_and_in_order() {
        let ready = |index, size| Ready { index, print: 0, size, message: Message::default() };
        let sizes = |lot| -> Vec<usize> { requests(lot).iter().map(Vec::len).collect() };
        assert_eq!(sizes((0..2001).map(|index| ready(index, 1)).collect()), [1000, 1000, 1]);
        let large = [6_000_000, 4_000_000, 1, MOST_BYTES, 5];
        let lot: Vec<Ready> = large.into_iter().enumerate().map(|(i, n)| ready(i, n)).collect();
        let indices: Vec<Vec<usize>> =
            requests(lot).iter().map(|r| r.iter().map(|ready| ready.index).collect()).collect();
        assert_eq!(indices, [vec![0, 1], vec![2], vec![3], vec![4]]);
        assert!(requests(vec![]).is_empty());
    }
}
