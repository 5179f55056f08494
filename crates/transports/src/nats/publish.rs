//! Publishing: many keys at a time, one message of a key.

use std::borrow::Cow;
use std::collections::HashMap;

use async_nats::client::{PublishError, PublishErrorKind};
use async_nats::connection::State;
use chapar_core::port::{Outgoing, Position, Receipt, TransportError};

use super::acks::{Acks, Answer};
use super::{Nats, lock, topology, unavailable, wire};
use crate::waves::{Published, in_waves};

/// A message that was sent and is not acknowledged yet.
struct Sent<'r> {
    route: Cow<'r, Route>,
    partition: u32,
}

/// The stream of a topic, looked up once for a batch.
#[derive(Clone)]
struct Route {
    domain: topology::Domain,
    /// The number of the stream's first partition.
    code: u32,
}

impl Nats {
    /// Publishes a batch, one message of a key at a time.
    pub(super) async fn publish_all(&self, batch: Vec<Outgoing>) -> Vec<Published> {
        let acks = self.0.acks.get_or_try_init(|| Acks::subscribe(&self.0.client)).await;
        let acks = match acks {
            Ok(acks) => acks,
            Err(error) => {
                let again = || TransportError::Unavailable(error.to_string());
                return batch.iter().map(|_| Err(again())).collect();
            }
        };
        let mut routes = HashMap::new();
        for message in &batch {
            if !routes.contains_key(&message.topic)
                && let Ok(route) = self.route(&message.topic).await
            {
                routes.insert(message.topic.clone(), route);
            }
        }
        in_waves(batch, |wave| self.publish_wave(wave, acks, &routes)).await
    }

    /// Sends the messages one after the other and then collects their acknowledgements.
    async fn publish_wave(
        &self,
        wave: Vec<Outgoing>,
        acks: &Acks,
        routes: &HashMap<String, Route>,
    ) -> Vec<Published> {
        let mut results = Vec::with_capacity(wave.len());
        let mut wave = wave.into_iter().peekable();
        while wave.peek().is_some() {
            let some: Vec<_> = wave.by_ref().take(self.0.options.max_ack_inflight).collect();
            // The semaphore is never closed.
            let _room = self.0.room.acquire_many(some.len() as u32).await;
            let batch = acks.expect(some.len());
            let mut sent = Vec::with_capacity(some.len());
            for (n, message) in some.into_iter().enumerate() {
                let result = self.send(message, batch.reply(n), routes).await;
                if result.is_err() {
                    batch.forget(n);
                }
                sent.push(result);
            }
            let answers = batch.answers(self.0.options.timeout).await;
            let results_of = sent.into_iter().zip(answers);
            results.extend(results_of.map(|(sent, answer)| self.acknowledged(sent?, answer)));
        }
        results
    }

    async fn route(&self, topic: &str) -> Result<Route, TransportError> {
        let domain = self.domain(topic)?;
        // Without a connection the client would buffer the message in memory. Report an error
        // instead: the relay keeps the message in the outbox, where it is durable.
        if self.0.client.connection_state() != State::Connected {
            return Err(TransportError::Unavailable("there is no connection to NATS".into()));
        }
        let known = self.ensure(&domain, None).await;
        known.map_err(|error| self.explained(error, &format!(".{}\"", domain.stream)))?;
        let code = topology::code(&domain.stream, 0);
        Ok(Route { domain, code })
    }

    async fn send<'r>(
        &self,
        message: Outgoing,
        reply: String,
        routes: &'r HashMap<String, Route>,
    ) -> Result<Sent<'r>, TransportError> {
        let route = match routes.get(&message.topic) {
            Some(route) if self.0.client.connection_state() == State::Connected => {
                Cow::Borrowed(route)
            }
            _ => Cow::Owned(self.route(&message.topic).await?),
        };
        let partition = topology::partition(&message, &self.0.options);
        let subject = topology::subject(&message.topic, partition);
        let Outgoing { id, tenant, key, headers, body, .. } = message;
        let named = wire::Named { id: id.to_string(), tenant, key };
        let size = body.len();
        let headers = wire::encode(&headers, named);
        let client = &self.0.client;
        match client.publish_with_reply_and_headers(subject, reply, headers, body).await {
            Ok(()) => Ok(Sent { route, partition }),
            Err(error) => Err(self.not_sent(size, &error)),
        }
    }

    fn not_sent(&self, size: usize, error: &PublishError) -> TransportError {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => {
                let most = self.0.client.server_info().max_payload;
                TransportError::Refused(format!(
                    "a body of {size} bytes and its headers are over the server's max_payload \
                     of {most}; raise max_payload there"
                ))
            }
            _ => unavailable(error),
        }
    }

    fn acknowledged(&self, sent: Sent<'_>, answer: Option<Answer>) -> Published {
        let Sent { route, partition } = sent;
        match answer {
            Some(Answer::Stored { sequence, duplicate }) => {
                let position = Position { partition: route.code | partition, offset: sequence };
                Ok(Receipt { position, duplicate })
            }
            Some(Answer::NoStream) => {
                // Deleted, or not available yet after a restart: check again next time.
                lock(&self.0.streams).remove(&route.domain);
                Err(TransportError::Unavailable("no stream has the subject of the message".into()))
            }
            Some(Answer::Refused(why)) => Err(TransportError::Unavailable(why)),
            None => {
                let silent = "timed out: the server has not acknowledged the message";
                Err(TransportError::Unavailable(silent.into()))
            }
        }
    }
}
