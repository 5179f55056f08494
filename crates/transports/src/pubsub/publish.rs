//! Publishing, through the official client: it keeps the order of a key, and after an error holds
//! the key until it is told to go on.

use chapar_core::port::{Outgoing, Position, Receipt, TransportError};
use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::client::Publisher;
use google_cloud_pubsub::error::PublishError;
use google_cloud_pubsub::model::Message;
use google_cloud_pubsub::publisher::PublishFuture;
use tracing::debug;

use super::recent::fingerprint;
use super::{PubSub, lock, topology, wire};

/// What Pub/Sub takes of a message, everything included.
const MOST_BYTES: usize = 10_000_000;
/// The client keeps a task for every key it has seen, for ever. So it is replaced now and then.
const MOST_USES: u32 = 10_000;

type Published = Result<Receipt, TransportError>;

/// The client's publisher of a topic, and how much it has been used.
#[derive(Debug)]
pub(super) struct Used {
    publisher: Publisher,
    uses: u32,
}

/// A message on its way.
enum Sent {
    Waiting { future: PublishFuture, publisher: Publisher, message: Box<Message>, print: u128 },
    Over(Published),
}

impl PubSub {
    /// Sends one message after the other and then collects the answers. Of a key the client
    /// sends one batch at a time, and nothing more once one has failed.
    pub(super) async fn publish_all(&self, batch: Vec<Outgoing>) -> Vec<Published> {
        let mut sent = Vec::with_capacity(batch.len());
        for message in batch {
            let topic = message.topic.clone();
            sent.push((topic, self.send(message).await.unwrap_or_else(|e| Sent::Over(Err(e)))));
        }
        let (mut results, mut paused) = (Vec::with_capacity(sent.len()), Vec::new());
        for (topic, sent) in sent {
            let (future, publisher, message, print) = match sent {
                Sent::Waiting { future, publisher, message, print } => {
                    (future, publisher, message, print)
                }
                Sent::Over(published) => {
                    results.push(published);
                    continue;
                }
            };
            let mut answer = future.await;
            let key = message.ordering_key.clone();
            if key.is_empty() && is_invalid(&answer) {
                // It went with others, any of which may be the one that is refused.
                answer = publisher.publish(*message).await;
            }
            results.push(match answer {
                Ok(id) => {
                    let position = position(&topic, &id);
                    let now = self.0.started.elapsed();
                    lock(&self.0.published).put(print, position, now);
                    Ok(Receipt { position, duplicate: false })
                }
                Err(error) => {
                    if !key.is_empty() {
                        paused.push((publisher, key));
                    }
                    Err(self.publish_error(&topic, &error))
                }
            });
        }
        // Only now: a follower in this batch must fail with the one before it.
        for (publisher, key) in paused {
            publisher.resume_publish(key);
        }
        results
    }

    async fn send(&self, message: Outgoing) -> Result<Sent, TransportError> {
        let id = message.id.to_string();
        let print = fingerprint([&message.topic, &id]);
        let known = lock(&self.0.published).get(print, self.0.started.elapsed()).copied();
        if let Some(position) = known {
            return Ok(Sent::Over(Ok(Receipt { position, duplicate: true })));
        }
        self.ensure_topic(&message.topic, None).await?;
        let (attributes, ordering) =
            wire::encode(&id, &message.tenant, message.key.as_deref(), &message.headers)?;
        let around: usize = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
        let size = message.body.len() + around + ordering.len();
        if size > MOST_BYTES {
            return Err(TransportError::Refused(format!(
                "its body and headers have {size} bytes where Pub/Sub takes {MOST_BYTES}; \
                 keep the body elsewhere and send where it is"
            )));
        }
        let outgoing = Message::new()
            .set_data(message.body)
            .set_attributes(attributes)
            .set_ordering_key(ordering);
        let publisher = self.publisher(&message.topic);
        let future = publisher.publish(outgoing.clone());
        Ok(Sent::Waiting { future, publisher, message: Box::new(outgoing), print })
    }

    fn publisher(&self, topic: &str) -> Publisher {
        let mut publishers = lock(&self.0.publishers);
        let fresh = || {
            let builder = self.0.base.publisher(self.topic_path(topic));
            let wait = std::time::Duration::from_millis(1);
            Used { publisher: builder.set_delay_threshold(wait).build(), uses: 0 }
        };
        let used = publishers.entry(topic.to_owned()).or_insert_with(fresh);
        if used.uses >= MOST_USES {
            *used = fresh();
        }
        used.uses += 1;
        used.publisher.clone()
    }

    /// Only what is wrong with the message itself is refused for good: a missing right or topic
    /// can be mended while the message waits.
    fn publish_error(&self, topic: &str, error: &PublishError) -> TransportError {
        let unavailable = |what: String| TransportError::Unavailable(what);
        match error {
            PublishError::OrderingKeyPaused => {
                unavailable("an earlier message of its key was not published".into())
            }
            PublishError::Rpc(error) => {
                debug!(topic, %error, "publishing has failed");
                match (topology::code(error), self.explain(error)) {
                    (Some(Code::InvalidArgument), refused) => {
                        TransportError::Refused(refused.to_string())
                    }
                    (Some(Code::NotFound), missing) => {
                        lock(&self.0.topics).remove(topic);
                        unavailable(missing.to_string())
                    }
                    (_, TransportError::Setup(what)) => unavailable(what),
                    (_, other) => other,
                }
            }
            other => unavailable(other.to_string()),
        }
    }
}

fn is_invalid(answer: &Result<String, PublishError>) -> bool {
    matches!(answer, Err(PublishError::Rpc(error))
        if topology::code(error) == Some(Code::InvalidArgument))
}

/// Where a message lies. Its id is a number in practice; one that is none has a hash for it.
pub(super) fn position(topic: &str, id: &str) -> Position {
    let offset = id.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
    let hashed = || (fingerprint([topic, id]) >> 65) as u64;
    Position { partition: topology::number(topic), offset: offset.unwrap_or_else(hashed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_fits_where_dead_letters_keep_it() {
        assert_eq!(position("t", "19917247034").offset, 19_917_247_034);
        for id in ["projects/x", "18446744073709551615", ""] {
            assert!(i64::try_from(position("t", id).offset).is_ok(), "{id}");
        }
        assert!(i32::try_from(topology::number("melmastoon.reservation.booking.held.v1")).is_ok());
    }
}
