//! Wire dialects: the encoding of an [`Envelope`] as a message of one system.
//!
//! Every dialect carries every field of the canonical envelope: those its system defines in the
//! place the system chose, the others in the free part of the message. Unknown fields are kept in
//! [`Envelope::extensions`] or [`Envelope::metadata`] and written again.

mod cloudevents;
mod flat_json;
mod free;
mod inline_protobuf;
mod json;
mod metadata_json;

use bytes::Bytes;
use serde_json::Value;

use crate::envelope::{Envelope, Payload, Tenant};
use crate::headers::Headers;

pub use cloudevents::{Binding, CloudEvents, LenientCloudEvents};
pub use flat_json::FlatJson;
pub use inline_protobuf::{InlineProtobuf, InlineProtobufError};
pub use metadata_json::MetadataJson;

/// An encoding of envelopes as messages.
///
/// # Contract
/// - `decode(encode(e)) == e` for every envelope that `encode` accepts. Only a dialect that
///   says so turns a JSON payload into another media type on the way.
/// - `encode` is deterministic: equal envelopes give equal bytes.
/// - `decode` never panics and allocates in proportion to the message, whatever it holds.
pub trait Dialect: Send + Sync {
    /// The name, as it is written in configuration.
    fn name(&self) -> &'static str;

    /// Writes an envelope.
    fn encode(&self, envelope: &Envelope) -> Result<Message, EncodeError>;

    /// Reads an envelope.
    fn decode(&self, message: &Message) -> Result<Envelope, DecodeError>;

    /// Reads the tenant alone, which is what [`Dialect::decode`] would give where that succeeds.
    fn tenant(&self, message: &Message) -> Result<Tenant, DecodeError> {
        Ok(self.decode(message)?.tenant)
    }
}

/// The dialect that a profile names; none for Protobuf, which takes descriptors.
pub(crate) fn of(profile: &crate::profile::Profile) -> Option<std::sync::Arc<dyn Dialect>> {
    use crate::profile::DialectName;
    match profile.dialect {
        DialectName::MetadataJson => Some(std::sync::Arc::new(MetadataJson)),
        DialectName::FlatJson => Some(std::sync::Arc::new(FlatJson)),
        DialectName::CloudEvents if profile.lenient_reading => {
            Some(std::sync::Arc::new(CloudEvents::Structured.lenient()))
        }
        DialectName::CloudEvents => Some(std::sync::Arc::new(CloudEvents::Structured)),
        DialectName::InlineProtobuf => None,
    }
}

/// A message as a broker or an HTTP request carries it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The topic it is published to or came on, where the dialect derives the event's type from it.
    pub topic: Option<String>,
    /// Headers in the order they are written. Names compare without case.
    pub headers: Headers,
    /// The body.
    pub body: Bytes,
}

impl Message {
    /// A message without headers.
    pub fn from_body(body: impl Into<Bytes>) -> Self {
        Message { topic: None, headers: Headers::new(), body: body.into() }
    }

    /// The first header of this name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}

/// Why an envelope cannot be written in a dialect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The dialect cannot carry the payload's media type.
    #[error("the {dialect} dialect carries {carries} only, the payload is {found}; {advice}")]
    PayloadKind {
        /// The dialect.
        dialect: &'static str,
        /// What it carries.
        carries: &'static str,
        /// What it was given.
        found: String,
        /// What to do instead.
        advice: &'static str,
    },
    /// A mandatory field of the dialect is not set.
    #[error("the {dialect} dialect needs {field}, and the envelope has none")]
    Missing {
        /// The dialect.
        dialect: &'static str,
        /// The field, by its name on the wire.
        field: &'static str,
    },
    /// The Protobuf message is unknown.
    #[error(
        "no Protobuf message is registered for event type {0:?}; add it to the profile's [messages]"
    )]
    UnknownMessage(String),
    /// The payload does not match the registered message.
    #[error("the payload does not fit the message {message}: {reason}")]
    Message {
        /// The message's full name.
        message: String,
        /// The mismatch.
        reason: String,
    },
    /// A field holds a value that no message may hold.
    #[error("{field} {reason}")]
    Invalid {
        /// The field, by its name in the envelope.
        field: &'static str,
        /// What is wrong, and what to do.
        reason: &'static str,
    },
    /// A free field has the name of a field that the dialect writes itself.
    #[error("the {dialect} dialect writes {name:?} itself; rename the free field")]
    Reserved {
        /// The dialect.
        dialect: &'static str,
        /// The name.
        name: String,
    },
}

/// Why a message is not an envelope of a dialect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The body is larger than any event may be.
    #[error("the message has {0} bytes, at most {MAX_MESSAGE} are read")]
    TooLarge(usize),
    /// The body is not JSON of the expected shape.
    #[error("the message is not {dialect}: {source}")]
    Json {
        /// The dialect.
        dialect: &'static str,
        /// What the parser found, with line and column.
        source: serde_json::Error,
    },
    /// The body is not the expected Protobuf message.
    #[error("the message is not the Protobuf message {message}: {reason}")]
    Protobuf {
        /// The message's full name.
        message: String,
        /// What the parser found.
        reason: String,
    },
    /// A mandatory field is missing.
    #[error("the message has no {0}, which is mandatory")]
    Missing(String),
    /// A field has a wrong value.
    #[error("{field} is {value}: {reason}")]
    Invalid {
        /// The field, by its name on the wire.
        field: String,
        /// The value, shortened.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The type of the event cannot be derived from the message.
    #[error("the message does not say its event type; give the topic it came on")]
    UnknownType,
    /// The Protobuf message of the event type is unknown.
    #[error(
        "no Protobuf message is registered for event type {0:?}; add it to the profile's [messages]"
    )]
    UnknownMessage(String),
}

/// The largest body that a dialect decodes, in bytes: well above the size of an event, and small
/// enough to be harmless.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

const JSON: &str = "application/json";

/// Values that every dialect refuses, because they would not survive a round trip.
fn check_canonical(envelope: &Envelope) -> Result<(), EncodeError> {
    let invalid = |field, reason| Err(EncodeError::Invalid { field, reason });
    if envelope.event_type.is_empty() {
        return invalid("event_type", "is empty; give the subject without its version");
    }
    if envelope.version == 0 {
        return invalid("version", "is 0; versions count from 1");
    }
    if matches!(&envelope.ai_provenance, Some(value) if !value.is_object()) {
        return invalid("ai_provenance", "is not a JSON object");
    }
    if matches!(envelope.payload, Payload::Json(_))
        && envelope.content_type.as_deref() == Some(JSON)
    {
        return invalid("content_type", "is left out where the payload is plain JSON");
    }
    Ok(())
}

fn check_size(message: &Message) -> Result<(), DecodeError> {
    match message.body.len() {
        size if size > MAX_MESSAGE => Err(DecodeError::TooLarge(size)),
        _ => Ok(()),
    }
}

/// Splits `a.b.v2` into `a.b` and 2.
fn split_version(text: &str) -> Option<(&str, u32)> {
    let (event_type, version) = text.rsplit_once(".v")?;
    let plain = !version.starts_with('0') && version.bytes().all(|b| b.is_ascii_digit());
    if event_type.is_empty() || !plain {
        return None;
    }
    Some((event_type, version.parse().ok()?))
}

fn invalid(field: impl Into<String>, value: &str, reason: impl Into<String>) -> DecodeError {
    let reason = reason.into();
    DecodeError::Invalid { field: field.into(), value: short(value), reason: short(&reason) }
}

/// A text shortened to fit into a log line.
fn short(text: &str) -> String {
    const MOST: usize = 160;
    let mut shown: String = text.chars().take(MOST).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Whether a media type is JSON.
fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence == JSON || essence == "text/json" || essence.ends_with("+json")
}

fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The object in a JSON text. Its values are parsed one by one, so that the object itself does not
/// count towards their depth.
fn object_in(text: &str) -> Option<std::collections::BTreeMap<String, Value>> {
    json::Object::parse("JSON", text.as_bytes()).ok()?.rest().ok()
}
