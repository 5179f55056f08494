//! Publishing: many keys at a time, one message of a key.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use async_nats::connection::State;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use chapar_core::port::{Outgoing, Position, Receipt, TransportError};

use super::{Nats, lock, topology, unavailable, wire};
use crate::waves::{Published, in_waves};

/// A message whose acknowledgement is still to come.
struct Sent<'r> {
    ack: PublishAckFuture,
    route: Cow<'r, Route>,
    partition: u32,
    size: usize,
}

/// The most of a batch that wait for their acknowledgement.
const MOST_OPEN: usize = 1024;

/// Where the messages of a topic go, found out once for a batch.
#[derive(Clone)]
struct Route {
    domain: topology::Domain,
    /// The number of the stream's first partition.
    code: u32,
}

impl Nats {
    /// Publishes a batch, of a key one message at a time.
    pub(super) async fn publish_all(&self, batch: Vec<Outgoing>) -> Vec<Published> {
        let mut routes = HashMap::new();
        for message in &batch {
            if !routes.contains_key(&message.topic)
                && let Ok(route) = self.route(&message.topic).await
            {
                routes.insert(message.topic.clone(), route);
            }
        }
        in_waves(batch, |wave| self.publish_wave(wave, &routes)).await
    }

    /// Sends one message after the other and then collects the acknowledgements, which come in
    /// about the same order: that costs far less than a task for each message.
    async fn publish_wave(
        &self,
        batch: Vec<Outgoing>,
        routes: &HashMap<String, Route>,
    ) -> Vec<Published> {
        let mut results = Vec::with_capacity(batch.len());
        let mut open: VecDeque<Result<Sent<'_>, TransportError>> = VecDeque::new();
        for message in batch {
            if open.len() == MOST_OPEN
                && let Some(sent) = open.pop_front()
            {
                results.push(self.acknowledged(sent).await);
            }
            open.push_back(self.send(message, routes).await);
        }
        for sent in open {
            results.push(self.acknowledged(sent).await);
        }
        results
    }

    async fn route(&self, topic: &str) -> Result<Route, TransportError> {
        let domain = self.domain(topic)?;
        // Without a connection the client would keep the message for later: whoever publishes
        // should know instead, and keep it where it is durable.
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
        let headers = wire::encode(&message.headers, &message.tenant, message.key.as_deref());
        let size = message.body.len();
        let publish = PublishMessage::build()
            .headers(headers)
            .message_id(message.id.to_string())
            .payload(message.body);
        match self.0.context.send_publish(subject, publish).await {
            Ok(ack) => Ok(Sent { ack, route, partition, size }),
            Err(error) => Err(self.publish_error(&route.domain, size, &error)),
        }
    }

    async fn acknowledged(&self, sent: Result<Sent<'_>, TransportError>) -> Published {
        let Sent { ack, route, partition, size } = sent?;
        let ack = ack.await.map_err(|error| self.publish_error(&route.domain, size, &error))?;
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
