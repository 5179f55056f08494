use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use prost_reflect::prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};

use super::{AGGREGATE_TYPE, AGGREGATE_VERSION, NAME, PROTOBUF, is_json, short, take_text, wire};
use crate::dialect::{DecodeError, EncodeError, invalid};
use crate::envelope::{Aggregate, Envelope, Payload};
use crate::profile::ProtoMessage;

/// Why the messages of a profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InlineProtobufError {
    /// The message is missing from the descriptors.
    #[error("the profile names the message {0}, which the Protobuf files do not describe")]
    Unknown(String),
    /// The message lacks a field of the envelope.
    #[error("the message {message} needs a field {field} of type {expected}")]
    Field {
        /// The message's full name.
        message: String,
        /// The field.
        field: String,
        /// Its type in Protobuf.
        expected: &'static str,
    },
}

/// The message of one event type, and the positions of the envelope's fields in it.
#[derive(Debug, Clone)]
pub(super) struct Contract {
    message: MessageDescriptor,
    pub(super) kind: String,
    pub(super) aggregate: FieldDescriptor,
    pub(super) event_id: u32,
    pub(super) timestamp: u32,
    pub(super) version: u32,
    pub(super) correlation_id: u32,
    pub(super) causation_id: u32,
    pub(super) idempotency_key: u32,
    pub(super) metadata: u32,
}

/// The fields of a message: the envelope's, all others, and those of the others that its descriptor
/// knows.
#[derive(Default)]
struct Divided {
    head: Vec<u8>,
    payload: Vec<u8>,
    described: Vec<u8>,
}

impl Contract {
    pub(super) fn new(
        pool: &DescriptorPool,
        proto: &ProtoMessage,
    ) -> Result<Self, InlineProtobufError> {
        let message = pool.get_message_by_name(&proto.message);
        let message = message.ok_or_else(|| InlineProtobufError::Unknown(proto.message.clone()))?;
        let field = |name: &str, expected, fits: fn(&FieldDescriptor) -> bool| {
            let found = message.get_field_by_name(name).filter(fits);
            found.ok_or_else(|| InlineProtobufError::Field {
                message: proto.message.clone(),
                field: name.into(),
                expected,
            })
        };
        let text = |name| field(name, "string", is_text);
        Ok(Contract {
            kind: proto.aggregate.clone(),
            aggregate: text(&proto.aggregate_field)?,
            event_id: text("event_id")?.number(),
            timestamp: field("timestamp", "google.protobuf.Timestamp", is_timestamp)?.number(),
            version: field("version", "int64", is_int64)?.number(),
            correlation_id: text("correlation_id")?.number(),
            causation_id: text("causation_id")?.number(),
            idempotency_key: text("idempotency_key")?.number(),
            metadata: field("metadata", "map<string, string>", is_text_map)?.number(),
            message,
        })
    }

    pub(super) fn name(&self) -> &str {
        self.message.full_name()
    }

    pub(super) fn decode(&self, bytes: &[u8]) -> Result<DynamicMessage, DecodeError> {
        let message = DynamicMessage::decode(self.message.clone(), bytes);
        message.map_err(|error| self.broken(error))
    }

    /// Splits a message into the envelope's fields and the bytes of all others.
    pub(super) fn split(&self, body: &Bytes) -> Result<(DynamicMessage, Bytes), DecodeError> {
        let divided = self.divide(body).map_err(|reason| self.broken(reason))?;
        // The payload is not rebuilt, but it must be decodable by a consumer.
        self.decode(&divided.described)?;
        Ok((self.decode(&divided.head)?, divided.payload.into()))
    }

    /// The bytes of an envelope's payload, without the envelope's fields.
    pub(super) fn payload(&self, envelope: &Envelope) -> Result<Bytes, EncodeError> {
        let content_type = envelope.content_type.as_deref();
        match &envelope.payload {
            Payload::Bytes(bytes) if content_type == Some(PROTOBUF) => {
                let divided = self.divide(bytes).map_err(|reason| self.misfit(reason))?;
                if !divided.head.is_empty() {
                    return Err(self.misfit("it holds fields that belong to the envelope"));
                }
                let message = DynamicMessage::decode(self.message.clone(), &*divided.described);
                message.map_err(|error| self.misfit(error))?;
                Ok(bytes.clone())
            }
            Payload::Json(raw) if content_type.is_none_or(is_json) => {
                self.transcode(raw.get(), envelope)
            }
            _ => Err(EncodeError::PayloadKind {
                dialect: NAME,
                carries: "application/protobuf and JSON",
                found: short(content_type.unwrap_or("bytes")),
                advice: "encode it by the message of the event type",
            }),
        }
    }

    pub(super) fn text(&self, head: &DynamicMessage, number: u32) -> String {
        let value = head.get_field_by_number(number);
        value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }

    pub(super) fn metadata(&self, head: &DynamicMessage) -> BTreeMap<String, serde_json::Value> {
        let value = head.get_field_by_number(self.metadata);
        let entry = |(key, value): (&MapKey, &Value)| {
            Some((key.as_str()?.to_owned(), value.as_str()?.into()))
        };
        let map = value.as_ref().and_then(|value| value.as_map());
        map.map(|map| map.iter().filter_map(entry).collect()).unwrap_or_default()
    }

    pub(super) fn occurred_at(&self, head: &DynamicMessage) -> Result<Timestamp, DecodeError> {
        if !head.has_field_by_number(self.timestamp) {
            return Err(DecodeError::Missing("timestamp".into()));
        }
        let value = head.get_field_by_number(self.timestamp);
        let part = |number| {
            let part = value.as_ref()?.as_message()?.get_field_by_number(number)?;
            part.as_i64().or_else(|| part.as_i32().map(i64::from))
        };
        let (seconds, nanos) = (part(1).unwrap_or(0), part(2).unwrap_or(0));
        let at = i32::try_from(nanos).ok().and_then(|nanos| Timestamp::new(seconds, nanos).ok());
        at.ok_or_else(|| invalid("timestamp", &format!("{seconds} s {nanos} ns"), "out of range"))
    }

    pub(super) fn aggregate(
        &self,
        head: &DynamicMessage,
        free: &mut BTreeMap<String, serde_json::Value>,
    ) -> Option<Aggregate> {
        let id = self.text(head, self.aggregate.number());
        let version = head.get_field_by_number(self.version).and_then(|version| version.as_i64());
        let version = match version.unwrap_or(0) {
            0 => take_text(free, AGGREGATE_VERSION).map(|_| 0),
            version => Some(version),
        };
        let kind = take_text(free, AGGREGATE_TYPE);
        if id.is_empty() && version.is_none() && kind.is_none() {
            return None;
        }
        Some(Aggregate { kind: kind.unwrap_or_else(|| self.kind.clone()), id, version })
    }

    fn transcode(&self, json: &str, envelope: &Envelope) -> Result<Bytes, EncodeError> {
        let mut from = serde_json::Deserializer::from_str(json);
        let message = DynamicMessage::deserialize(self.message.clone(), &mut from);
        let mut message = message.map_err(|error| self.misfit(error))?;
        // The aggregate's id is part of the payload and of the envelope; both must agree.
        let id = message.get_field(&self.aggregate).as_str().unwrap_or_default().to_owned();
        if !id.is_empty() && envelope.aggregate.as_ref().is_none_or(|known| known.id != id) {
            let field = self.aggregate.json_name();
            return Err(self.misfit(format!("{field} is not the envelope's aggregate")));
        }
        message.clear_field(&self.aggregate);
        if let Some((field, _)) = message.fields().find(|(f, _)| self.is_envelope(f.number())) {
            return Err(self.misfit(format!("{} belongs to the envelope", field.json_name())));
        }
        let sorted = wire::sort_maps(&self.message, &message.encode_to_vec());
        sorted.map(Bytes::from).map_err(|reason| self.misfit(reason))
    }

    fn divide(&self, body: &[u8]) -> Result<Divided, &'static str> {
        let mut divided = Divided::default();
        wire::fields(body, |number, field| {
            if self.is_envelope(number) {
                divided.head.extend_from_slice(field);
                return;
            }
            divided.payload.extend_from_slice(field);
            if self.message.get_field(number).is_some() {
                divided.described.extend_from_slice(field);
            }
        })?;
        Ok(divided)
    }

    fn is_envelope(&self, number: u32) -> bool {
        let fields = [
            self.event_id,
            self.timestamp,
            self.version,
            self.correlation_id,
            self.causation_id,
            self.idempotency_key,
            self.metadata,
            self.aggregate.number(),
        ];
        fields.contains(&number)
    }

    fn broken(&self, reason: impl ToString) -> DecodeError {
        let reason = short(&reason.to_string());
        DecodeError::Protobuf { message: self.name().into(), reason }
    }

    fn misfit(&self, reason: impl ToString) -> EncodeError {
        let reason = short(&reason.to_string());
        EncodeError::Message { message: self.name().into(), reason }
    }
}

fn is_text(field: &FieldDescriptor) -> bool {
    field.kind() == Kind::String && !field.is_list()
}

fn is_int64(field: &FieldDescriptor) -> bool {
    field.kind() == Kind::Int64 && !field.is_list()
}

fn is_timestamp(field: &FieldDescriptor) -> bool {
    let Kind::Message(message) = field.kind() else { return false };
    message.full_name() == "google.protobuf.Timestamp" && !field.is_list()
}

fn is_text_map(field: &FieldDescriptor) -> bool {
    let Kind::Message(entry) = field.kind() else { return false };
    field.is_map()
        && entry.map_entry_key_field().kind() == Kind::String
        && entry.map_entry_value_field().kind() == Kind::String
}
