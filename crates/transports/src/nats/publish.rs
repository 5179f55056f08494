//! Publishing: many keys at a time, one message of a key.

use std::collections::{HashMap, HashSet};

use async_nats::connection::State;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use chapar_core::port::{Outgoing, Position, Receipt, TransportError};
use futures_util::future::join_all;

use super::{Nats, lock, topology, unavailable, wire};

type Published = Result<Receipt, TransportError>;

/// Where the messages of a topic go, found out once for a batch.
struct Route {
    domain: topology::Domain,
    /// The number of the stream's first partition.
    code: u32,
}

impl Nats {
    /// Publishes in waves: a message whose key has one before it in the batch waits until that
    /// is acknowledged, and shares its failure.
    pub(super) async fn publish_all(&self, batch: Vec<Outgoing>) -> Vec<Published> {
        let mut routes = HashMap::new();
        for message in &batch {
            if !routes.contains_key(&message.topic)
                && let Ok(route) = self.route(&message.topic).await
            {
                routes.insert(message.topic.clone(), route);
            }
        }
        let one_per_key = {
            let mut keys = HashSet::with_capacity(batch.len());
            batch.iter().all(|m| m.key.as_ref().is_none_or(|key| keys.insert(key)))
        };
        match one_per_key {
            true => join_all(batch.into_iter().map(|m| self.publish_one(m, &routes))).await,
            false => self.publish_in_waves(batch, &routes).await,
        }
    }

    async fn publish_in_waves(
        &self,
        batch: Vec<Outgoing>,
        routes: &HashMap<String, Route>,
    ) -> Vec<Published> {
        let mut results: Vec<Option<Published>> = batch.iter().map(|_| None).collect();
        let mut rest: Vec<(usize, Outgoing)> = batch.into_iter().enumerate().collect();
        let mut failed: HashSet<String> = HashSet::new();
        while !rest.is_empty() {
            let mut keys = HashSet::new();
            let (wave, later): (Vec<_>, Vec<_>) = rest
                .into_iter()
                .partition(|(_, m)| m.key.as_ref().is_none_or(|key| keys.insert(key.clone())));
            rest = later;
            let publish = |(index, message): (usize, Outgoing)| {
                let behind = message.key.as_ref().is_some_and(|key| failed.contains(key));
                async move {
                    let key = message.key.clone();
                    match behind {
                        true => (index, key, Err(behind_another())),
                        false => (index, key, self.publish_one(message, routes).await),
                    }
                }
            };
            for (index, key, result) in join_all(wave.into_iter().map(publish)).await {
                if result.is_err() {
                    failed.extend(key);
                }
                results[index] = Some(result);
            }
        }
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(behind_another()))).collect()
    }

    async fn route(&self, topic: &str) -> Result<Route, TransportError> {
        let domain = self.domain(topic)?;
        // Without a connection the client would keep the message for later: whoever publishes
        // should know instead, and keep it where it is durable.
        if self.0.client.connection_state() != State::Connected {
            return Err(TransportError::Unavailable("there is no connection to NATS".into()));
        }
        self.ensure(&domain, None).await?;
        let code = topology::code(&domain.stream, 0);
        Ok(Route { domain, code })
    }

    async fn publish_one(&self, message: Outgoing, routes: &HashMap<String, Route>) -> Published {
        let found;
        let route = match routes.get(&message.topic) {
            Some(route) if self.0.client.connection_state() == State::Connected => route,
            _ => {
                found = self.route(&message.topic).await?;
                &found
            }
        };
        let partition = topology::partition(&message, &self.0.options);
        let subject = topology::subject(&message.topic, partition);
        let headers = wire::encode(&message.headers, &message.tenant, message.key.as_deref());
        let size = message.body.len();
        let publish = PublishMessage::build()
            .headers(headers)
            .message_id(message.id.to_string())
            .payload(message.body);
        let sent = match self.0.context.send_publish(subject, publish).await {
            Ok(acknowledged) => acknowledged.await,
            Err(error) => Err(error),
        };
        let ack = sent.map_err(|error| self.publish_error(&route.domain, size, &error))?;
        let position = Position { partition: route.code | partition, offset: ack.sequence };
        Ok(Receipt { position, duplicate: ack.duplicate })
    }

    fn publish_error(
        &self,
        domain: &topology::Domain,
        size: usize,
        error: &PublishError,
    ) -> TransportError {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => {
                let most = self.0.client.server_info().max_payload;
                TransportError::Refused(format!(
                    "a body of {size} bytes and its headers are over the server's max_payload \
                     of {most}; raise max_payload there"
                ))
            }
            PublishErrorKind::StreamNotFound => {
                // Gone, or not yet up after a restart: look again next time.
                lock(&self.0.streams).remove(domain);
                unavailable(error)
            }
            _ => unavailable(error),
        }
    }
}

fn behind_another() -> TransportError {
    TransportError::Unavailable("an earlier message of its key was not published".into())
}
