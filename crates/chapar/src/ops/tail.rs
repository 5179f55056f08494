//! Following what is published, without what is personal in it.

use std::sync::Arc;
use std::time::Duration;

use chapar_core::dialect::{Dialect, Message};
use chapar_core::port::{Kept, ReadFrom, Reader, Transport, TransportError};
use chapar_core::{Envelope, Payload};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::redact::Redaction;

/// Events as they are published, of some topics and tenants.
pub struct Tail {
    reader: Box<dyn Reader>,
    dialect: Arc<dyn Dialect>,
    redaction: Redaction,
    tenants: Vec<String>,
}

/// An event without personal data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    /// The event.
    pub event_id: String,
    /// When the transport took it.
    pub published_at: Timestamp,
    /// Its topic.
    pub topic: String,
    /// Whose it is.
    pub tenant: String,
    /// Its ordering key.
    pub key: Option<String>,
    /// The partition, where it lies.
    pub partition: u32,
    /// Its place in the partition.
    pub offset: u64,
    /// The story that it belongs to, as far as it can be read.
    pub correlation_id: Option<String>,
    /// Its payload without what is personal; none if no contract says what that is.
    pub payload: Option<Value>,
    /// Why it cannot be read.
    pub unreadable: Option<String>,
}

impl Tail {
    /// Begins to follow.
    pub async fn open(
        transport: &dyn Transport,
        dialect: Arc<dyn Dialect>,
        redaction: Redaction,
        topics: &[String],
        tenants: Vec<String>,
        from: ReadFrom,
    ) -> Result<Self, TransportError> {
        let reader = transport.read(topics, from).await?;
        Ok(Tail { reader, dialect, redaction, tenants })
    }

    /// The next events; none if there were none for as long as `wait`.
    pub async fn next(&mut self, max: usize, wait: Duration) -> Result<Vec<Shown>, TransportError> {
        let kept = self.reader.read(max, wait).await?;
        let wanted = |kept: &Kept| self.tenants.is_empty() || self.tenants.contains(&kept.tenant);
        Ok(kept.into_iter().filter(wanted).map(|kept| self.shown(kept)).collect())
    }

    fn shown(&self, kept: Kept) -> Shown {
        let Kept { id, tenant, delivery } = kept;
        let message = Message {
            topic: Some(delivery.topic.clone()),
            headers: delivery.headers,
            body: delivery.body,
        };
        let decoded = self.dialect.decode(&message).map_err(|error| error.to_string());
        let position = delivery.token.position;
        Shown {
            event_id: id,
            published_at: delivery.published_at,
            tenant,
            key: delivery.key,
            partition: position.partition,
            offset: position.offset,
            correlation_id: decoded.as_ref().ok().map(|envelope| envelope.correlation.to_string()),
            payload: decoded
                .as_ref()
                .ok()
                .and_then(|envelope| self.payload(&delivery.topic, envelope)),
            unreadable: decoded.err(),
            topic: delivery.topic,
        }
    }

    fn payload(&self, topic: &str, envelope: &Envelope) -> Option<Value> {
        let Payload::Json(raw) = &envelope.payload else { return None };
        let payload: Value = serde_json::from_str(raw.get()).ok()?;
        self.redaction.shown(topic, &payload)
    }
}
