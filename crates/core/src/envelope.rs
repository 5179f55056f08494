//! The canonical envelope: one type in memory for every system and dialect.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::id::Id;

/// One event with all its fields.
///
/// It is the union of the envelope fields of all supported systems; a [dialect](crate::dialect)
/// maps it to and from the bytes of one of them. A new one is made from a [`Draft`](crate::Draft),
/// which enforces the mandatory fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// Globally unique; the inbox claims events by it.
    pub id: Id,
    /// The subject without its version, such as `melmastoon.reservation.booking.confirmed`.
    pub event_type: String,
    /// The version of the event's contract, from 1.
    pub version: u32,
    /// The address of the payload's schema, with its content hash.
    pub schema: Option<String>,
    /// The tenant that owns the event.
    pub tenant: Tenant,
    /// Shared by everything that one request set in motion.
    pub correlation: Id,
    /// The event or command that caused this one.
    pub causation: Option<Id>,
    /// The actor that set it in motion.
    pub actor: Option<Actor>,
    /// When the fact occurred, by the producer's clock.
    pub occurred_at: Timestamp,
    /// When the backbone received it.
    pub ingested_at: Option<Timestamp>,
    /// When the row was written, by the database's clock.
    pub written_at: Option<Timestamp>,
    /// The program that produced it.
    pub producer: Producer,
    /// The CloudEvents source, if it is not the producing service.
    pub source: Option<String>,
    /// The payload's media type, if it is not JSON.
    pub content_type: Option<String>,
    /// The idempotency key: a deterministic key of the business intent.
    pub idempotency_key: Option<String>,
    /// Events of one key are applied in commit order.
    pub ordering_key: Option<String>,
    /// The aggregate that changed.
    pub aggregate: Option<Aggregate>,
    /// The retention class declared for the event.
    pub retention: Option<String>,
    /// The region that the data must stay in.
    pub residency: Option<String>,
    /// Emitted offline by a device and replayed on sync.
    pub offline_replay: bool,
    /// The provenance of an AI result, mandatory for AI events. A JSON object.
    pub ai_provenance: Option<Value>,
    /// The row of the outbox it came through.
    pub outbox_id: Option<Id>,
    /// The distributed trace it belongs to.
    pub trace: Option<TraceContext>,
    /// Free metadata that is not used for routing, bounded by the [rules](crate::rules).
    pub metadata: BTreeMap<String, Value>,
    /// Unknown fields from the wire, kept so that they can be written again.
    pub extensions: BTreeMap<String, Value>,
    /// The payload.
    pub payload: Payload,
}

impl Envelope {
    /// The versioned subject: `event_type` and `.v<version>`.
    pub fn subject(&self) -> String {
        // Called for every event, so it avoids `format!`.
        let mut subject = String::with_capacity(self.event_type.len() + 4);
        subject.push_str(&self.event_type);
        subject.push_str(".v");
        match char::from_digit(self.version, 10) {
            Some(digit) => subject.push(digit),
            None => subject.push_str(&self.version.to_string()),
        }
        subject
    }

    /// The causation data for events that it causes.
    pub fn cause(&self) -> Cause {
        Cause {
            tenant: self.tenant.clone(),
            correlation: self.correlation.clone(),
            causation: Some(self.id.clone()),
            actor: self.actor.clone(),
            trace: self.trace.clone(),
        }
    }
}

/// What an event passes on to the events it causes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The tenant.
    pub tenant: Tenant,
    /// The correlation it belongs to.
    pub correlation: Id,
    /// The id of the event itself.
    pub causation: Option<Id>,
    /// The actor that set the first of them in motion.
    pub actor: Option<Actor>,
    /// The distributed trace.
    pub trace: Option<TraceContext>,
}

/// The tenant that owns an event's data, or the platform itself.
///
/// ```
/// use chapar_core::Tenant;
/// let tenant: Tenant = "acme".parse()?;
/// assert!(!tenant.is_platform() && Tenant::platform().is_platform());
/// # Ok::<(), chapar_core::envelope::TenantError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Box<str>);

/// Why a text is not a tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a tenant: 1 to 128 visible characters without spaces and colons are expected"
)]
pub struct TenantError(String);

impl Tenant {
    const PLATFORM: &'static str = "platform";

    /// The platform itself, for the few events that belong to no tenant.
    pub fn platform() -> Self {
        Tenant(Self::PLATFORM.into())
    }

    /// Whether this is [`Tenant::platform`].
    pub fn is_platform(&self) -> bool {
        &*self.0 == Self::PLATFORM
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tenant {
    type Err = TenantError;

    fn from_str(text: &str) -> Result<Self, TenantError> {
        // A colon ends the tenant in an ordering key: `a:b` and `c` must not have the key of `a` and
        // `b:c`. `chapar.emit` refuses the same.
        let odd = |c: char| c.is_control() || c.is_whitespace() || c == ':';
        if text.is_empty() || text.len() > 128 || text.contains(odd) {
            return Err(TenantError(text.chars().take(140).collect()));
        }
        Ok(Tenant(text.into()))
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Tenant {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Tenant {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The actor that set an event in motion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The kind of principal.
    #[serde(rename = "type")]
    pub kind: ActorKind,
    /// Its id in its own directory.
    pub id: String,
}

/// The kinds of principals of all supported systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// A person.
    User,
    /// The platform itself.
    System,
    /// Another service.
    Service,
    /// A holder of an API key.
    ApiKey,
    /// A service account.
    ServiceAccount,
}

/// The program that produced an event, for forensics and lineage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// The service, such as `reservation-service`.
    pub service: String,
    /// The running instance.
    #[serde(default)]
    pub instance: String,
    /// The revision it was built from.
    #[serde(default)]
    pub commit: String,
    /// The region it ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// The aggregate that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// Its kind, such as `booking`; empty if the wire does not carry it.
    pub kind: String,
    /// Its id, unique within tenant and kind.
    pub id: String,
    /// Its version after the change, for consumers that detect gaps.
    pub version: Option<i64>,
}

/// A W3C trace context, passed through unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// `00-<trace id>-<parent id>-<flags>`.
    pub traceparent: String,
    /// The vendor-specific part.
    pub tracestate: Option<String>,
}

/// The payload of an event, kept unchanged.
///
/// JSON stays text: numbers keep their digits and keys their order, and a payload that only passes
/// through is never rebuilt.
#[derive(Clone)]
pub enum Payload {
    /// A JSON value.
    Json(Box<RawValue>),
    /// Bytes of the envelope's content type, Protobuf among them.
    Bytes(Bytes),
}

/// Why a payload could not be created or read.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// It is not the expected JSON.
    #[error("the payload is not the expected JSON")]
    Json(#[from] serde_json::Error),
    /// It is bytes where JSON was expected.
    #[error("the payload is {0} bytes of another media type, not JSON; read them as bytes")]
    NotJson(usize),
}

impl Payload {
    /// The JSON of a value.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, PayloadError> {
        Ok(Payload::Json(serde_json::value::to_raw_value(value)?))
    }

    /// The JSON in a text, checked to be exactly one value.
    pub fn from_json_text(text: &str) -> Result<Self, PayloadError> {
        Ok(Payload::Json(RawValue::from_string(text.to_owned())?))
    }

    /// The value that the JSON holds. An error names the field and does not quote its value: it
    /// goes to logs, where personal data does not belong.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        match self {
            Payload::Json(raw) => Ok(serde_json::from_str(raw.get()).map_err(without_value)?),
            Payload::Bytes(bytes) => Err(PayloadError::NotJson(bytes.len())),
        }
    }

    /// The bytes, JSON text included.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Payload::Json(raw) => raw.get().as_bytes(),
            Payload::Bytes(bytes) => bytes,
        }
    }
}

/// The same error without the value that it quotes.
fn without_value(error: serde_json::Error) -> serde_json::Error {
    let text = error.to_string();
    let masked =
        ["invalid type: ", "invalid value: ", "unknown variant "].iter().find_map(|kind| {
            let quoted = text.strip_prefix(kind)?;
            // The last one: the value may hold these words, too.
            let expected = quoted.rfind(", expected ")?;
            let noun = quoted.split([' ', '`', '"']).next().unwrap_or_default();
            let noun = if noun.is_empty() { "…" } else { noun };
            Some(format!("{kind}{noun}{}", &quoted[expected..]))
        });
    // It reads the position from the text.
    masked.map_or(error, serde::de::Error::custom)
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Payload::Json(a), Payload::Json(b)) => a.get() == b.get(),
            (Payload::Bytes(a), Payload::Bytes(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::Json(raw) => write!(f, "Json({})", raw.get()),
            Payload::Bytes(bytes) => write!(f, "Bytes({bytes:?})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[allow(dead_code, reason = "only read")]
    enum Board {
        Half,
        Full,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only read")]
    struct Booking {
        nights: u32,
        board: Option<Board>,
    }

    #[test]
    fn an_error_of_a_payload_does_not_quote_its_values() {
        for (text, says) in [
            (r#"{"nights": "Ahmad, expected at 9"}"#, "invalid type: string, expected u32"),
            (r#"{"nights": -4711}"#, "invalid value: integer, expected u32"),
            (r#"{"nights": 1, "board": "Ahmad"}"#, "unknown variant …, expected `half` or `full`"),
            (r#"{"board": "half"}"#, "missing field `nights`"),
        ] {
            let payload = Payload::from_json_text(text).unwrap();
            let Err(PayloadError::Json(error)) = payload.parse::<Booking>() else {
                panic!("{text} is refused");
            };
            let said = error.to_string();
            assert!(said.starts_with(says) && error.line() == 1, "{said}");
            assert!(!said.contains("Ahmad") && !said.contains("4711"), "{said}");
        }
    }
}
