//! Protobuf events with the envelope inside the message.

mod contract;
mod wire;

use std::collections::BTreeMap;

use prost_reflect::DescriptorPool;
use serde_json::Value;

use self::contract::Contract;
pub use self::contract::InlineProtobufError;
use super::free::{self, Field, Names};
use super::{
    DecodeError, Dialect, EncodeError, Message, check_canonical, check_size, invalid, is_json,
    object_in, short, split_version,
};
use crate::envelope::{Aggregate, Envelope, Payload, Tenant};
use crate::headers::Headers;
use crate::profile::{KeyTemplate, Profile};

/// Protobuf in which the envelope is part of each event's own message.
///
/// The profile names the message of every event type and the field that holds the aggregate's
/// id. `event_id`, `timestamp`, `version` (of the aggregate), `correlation_id`, `causation_id`,
/// `idempotency_key` and that field are the envelope; the payload is what remains of the
/// message, byte for byte, unknown fields included. Canonical fields that the message has no
/// place for are keys of its `metadata` that start with `chapar-`; free metadata that is not
/// text is the JSON in `chapar-metadata`.
///
/// Type and contract version are not in the message: they are its topic. A missing tenant is the
/// profile's fixed one, a missing correlation the event's own id, and a missing ordering key
/// follows the profile's template.
///
/// A JSON payload is accepted as well and written by the JSON mapping of Protobuf; it is decoded as
/// a message, and [`InlineProtobuf::payload_to_json`] converts that to JSON again.
#[derive(Debug, Clone)]
pub struct InlineProtobuf {
    contracts: BTreeMap<String, Contract>,
    tenant: Tenant,
    key_template: KeyTemplate,
}

/// The media type of a payload in Protobuf.
const PROTOBUF: &str = "application/protobuf";

const NAME: &str = "inline-protobuf";

const METADATA: Names = Names(&[
    (Field::Schema, "chapar-schema"),
    (Field::ActorType, "chapar-actor-type"),
    (Field::ActorId, "chapar-actor-id"),
    (Field::IngestedAt, "chapar-ingested-at"),
    (Field::WrittenAt, "chapar-db-write-ts"),
    (Field::Service, "chapar-producer-service"),
    (Field::Instance, "chapar-producer-instance"),
    (Field::Commit, "chapar-producer-commit"),
    (Field::Region, "chapar-producer-region"),
    (Field::Source, "chapar-source"),
    (Field::Retention, "chapar-retention-class"),
    (Field::Residency, "chapar-data-residency"),
    (Field::OfflineReplay, "chapar-offline-replay"),
    (Field::AiProvenance, "chapar-ai-provenance"),
    (Field::OutboxId, "chapar-outbox-id"),
    (Field::Traceparent, "chapar-traceparent"),
    (Field::Tracestate, "chapar-tracestate"),
]);

const TENANT: &str = "chapar-tenant";
const ORDERING_KEY: &str = "chapar-ordering-key";
const NO_ORDERING_KEY: &str = "chapar-no-ordering-key";
const EMPTY_IDEMPOTENCY_KEY: &str = "chapar-empty-idempotency-key";
const AGGREGATE_TYPE: &str = "chapar-aggregate-type";
const AGGREGATE_VERSION: &str = "chapar-aggregate-version";
const FREE: &str = "chapar-metadata";
const EXTENSIONS: &str = "chapar-extensions";

impl InlineProtobuf {
    /// The dialect of a profile, with the descriptors of its messages in the pool.
    pub fn new(pool: DescriptorPool, profile: &Profile) -> Result<Self, InlineProtobufError> {
        let mut contracts = BTreeMap::new();
        for (event_type, message) in &profile.messages {
            contracts.insert(event_type.clone(), Contract::new(&pool, message)?);
        }
        Ok(InlineProtobuf {
            contracts,
            tenant: profile.fixed_tenant.clone().unwrap_or_else(Tenant::platform),
            key_template: profile.key_template.clone(),
        })
    }

    /// The same envelope with its payload as JSON, for dialects that carry only JSON.
    ///
    /// The JSON holds the aggregate's id too, as it is part of the event's own message. Fields
    /// unknown to the descriptor have no names and are omitted.
    pub fn payload_to_json(&self, envelope: &Envelope) -> Result<Envelope, DecodeError> {
        let Payload::Bytes(bytes) = &envelope.payload else { return Ok(envelope.clone()) };
        let contract = self.contracts.get(&envelope.event_type);
        let contract =
            contract.ok_or_else(|| DecodeError::UnknownMessage(short(&envelope.event_type)))?;
        let mut message = contract.decode(bytes)?;
        if let Some(aggregate) = &envelope.aggregate {
            let id = prost_reflect::Value::String(aggregate.id.clone());
            message.set_field(&contract.aggregate, id);
        }
        let wrong = |error: serde_json::Error| DecodeError::Protobuf {
            message: contract.name().into(),
            reason: error.to_string(),
        };
        // `Value` sorts maps, which have no order in a message.
        let json = serde_json::to_value(&message).map_err(wrong)?;
        let payload = serde_json::value::to_raw_value(&json).map_err(wrong)?;
        Ok(Envelope { payload: Payload::Json(payload), content_type: None, ..envelope.clone() })
    }
}

impl Dialect for InlineProtobuf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn encode(&self, envelope: &Envelope) -> Result<Message, EncodeError> {
        check_canonical(envelope)?;
        let contract = self.contracts.get(&envelope.event_type);
        let contract =
            contract.ok_or_else(|| EncodeError::UnknownMessage(short(&envelope.event_type)))?;
        let payload = contract.payload(envelope)?;
        let aggregate = envelope.aggregate.as_ref();

        let mut body = Vec::with_capacity(payload.len() + 256);
        wire::put_text(&mut body, contract.event_id, &envelope.id.to_string());
        wire::put_text(
            &mut body,
            contract.aggregate.number(),
            aggregate.map_or("", |aggregate| aggregate.id.as_str()),
        );
        let nanos = envelope.occurred_at.as_nanosecond();
        wire::put_timestamp(&mut body, contract.timestamp, nanos);
        let version = aggregate.and_then(|aggregate| aggregate.version).unwrap_or_default();
        wire::put_int64(&mut body, contract.version, version);
        if envelope.correlation != envelope.id {
            wire::put_text(&mut body, contract.correlation_id, &envelope.correlation.to_string());
        }
        let causation = envelope.causation.as_ref().map(ToString::to_string);
        wire::put_text(&mut body, contract.causation_id, causation.as_deref().unwrap_or(""));
        let key = envelope.idempotency_key.as_deref().unwrap_or("");
        wire::put_text(&mut body, contract.idempotency_key, key);
        for (name, value) in self.metadata(contract, envelope) {
            wire::put_entry(&mut body, contract.metadata, &name, &value);
        }
        body.extend_from_slice(&payload);

        let mut headers = Headers::from([("correlation_id", envelope.correlation.to_string())]);
        headers.extend(causation.map(|causation| ("causation_id", causation)));
        Ok(Message { topic: Some(envelope.subject()), headers, body: body.into() })
    }

    fn decode(&self, message: &Message) -> Result<Envelope, DecodeError> {
        check_size(message)?;
        let topic = message.topic.as_deref().and_then(split_version);
        let (event_type, version) = topic.ok_or(DecodeError::UnknownType)?;
        let contract = self.contracts.get(event_type);
        let contract = contract.ok_or_else(|| DecodeError::UnknownMessage(short(event_type)))?;
        let (head, payload) = contract.split(&message.body)?;

        let id = contract.text(&head, contract.event_id);
        if id.is_empty() {
            return Err(DecodeError::Missing("event_id".into()));
        }
        let id = id.parse().map_err(|error| invalid("event_id", &id, format!("{error}")))?;
        let mut free = contract.metadata(&head);
        let tenant = free.get(TENANT).and_then(|tenant| tenant.as_str()?.parse().ok());
        let tenant = match tenant {
            Some(tenant) => {
                free.remove(TENANT);
                tenant
            }
            None => self.tenant.clone(),
        };
        let occurred_at = contract.occurred_at(&head)?;
        let payload = Payload::Bytes(payload);
        let event_type = event_type.to_owned();
        let mut e = free::envelope(id, event_type, version, tenant, occurred_at, payload);
        e.content_type = Some(PROTOBUF.into());
        let parse = |field: &str, text: &str| {
            text.parse().map_err(|error| invalid(field, text, format!("{error}")))
        };
        let correlation = contract.text(&head, contract.correlation_id);
        if !correlation.is_empty() {
            e.correlation = parse("correlation_id", &correlation)?;
        }
        let causation = contract.text(&head, contract.causation_id);
        if !causation.is_empty() {
            e.causation = Some(parse("causation_id", &causation)?);
        }
        let key = contract.text(&head, contract.idempotency_key);
        let set = flag(&mut free, EMPTY_IDEMPOTENCY_KEY) || !key.is_empty();
        e.idempotency_key = set.then_some(key);
        METADATA.read(&mut free, &mut e);
        e.aggregate = contract.aggregate(&head, &mut free);
        e.ordering_key = match take_text(&mut free, ORDERING_KEY) {
            Some(key) => Some(key),
            None if flag(&mut free, NO_ORDERING_KEY) => None,
            None => self.usual_key(&e),
        };
        e.extensions = take_object(&mut free, EXTENSIONS).unwrap_or_default();
        for (name, value) in take_object(&mut free, FREE).unwrap_or_default() {
            free.entry(name).or_insert(value);
        }
        e.metadata = free;
        Ok(e)
    }
}

impl InlineProtobuf {
    fn usual_key(&self, envelope: &Envelope) -> Option<String> {
        let aggregate = envelope.aggregate.as_ref().filter(|aggregate| !aggregate.id.is_empty())?;
        Some(self.key_template.fill(&envelope.tenant, &aggregate.id))
    }

    /// The message's metadata: fields that the message lacks, and the free part.
    fn metadata(&self, contract: &Contract, e: &Envelope) -> BTreeMap<String, String> {
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let known = METADATA.write(e).into_iter();
        let mut all: BTreeMap<String, String> =
            known.map(|(name, value)| (name, text(value))).collect();
        let mut put = |name: &str, value: String| all.insert(name.to_owned(), value);
        if e.tenant != self.tenant {
            put(TENANT, e.tenant.to_string());
        }
        if e.idempotency_key.as_deref() == Some("") {
            put(EMPTY_IDEMPOTENCY_KEY, "true".into());
        }
        match &e.ordering_key {
            key if *key == self.usual_key(e) => {}
            Some(key) => drop(put(ORDERING_KEY, key.clone())),
            None => drop(put(NO_ORDERING_KEY, "true".into())),
        }
        if let Some(Aggregate { kind, id, version }) = &e.aggregate {
            if *kind != contract.kind || id.is_empty() {
                put(AGGREGATE_TYPE, kind.clone());
            }
            // In the message, version 0 and no version look the same.
            if *version == Some(0) {
                put(AGGREGATE_VERSION, "0".into());
            }
        }
        let json = |map: &BTreeMap<&String, &Value>| {
            serde_json::to_string(map).expect("memory takes every JSON value")
        };
        if !e.extensions.is_empty() {
            put(EXTENSIONS, json(&e.extensions.iter().collect()));
        }
        let mut packed = BTreeMap::new();
        for (name, value) in &e.metadata {
            match value {
                Value::String(text) if !is_ours(name) => {
                    all.insert(name.clone(), text.clone());
                }
                _ => {
                    packed.insert(name, value);
                }
            }
        }
        if !packed.is_empty() {
            all.insert(FREE.into(), json(&packed));
        }
        all
    }
}

fn is_ours(name: &str) -> bool {
    let special = [
        TENANT,
        ORDERING_KEY,
        NO_ORDERING_KEY,
        EMPTY_IDEMPOTENCY_KEY,
        AGGREGATE_TYPE,
        AGGREGATE_VERSION,
        FREE,
        EXTENSIONS,
    ];
    special.contains(&name) || METADATA.0.iter().any(|(_, known)| *known == name)
}

fn take_text(free: &mut BTreeMap<String, Value>, name: &str) -> Option<String> {
    match free.remove(name)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

fn flag(free: &mut BTreeMap<String, Value>, name: &str) -> bool {
    let set = free.get(name).is_some_and(|value| value == "true");
    if set {
        free.remove(name);
    }
    set
}

fn take_object(free: &mut BTreeMap<String, Value>, name: &str) -> Option<BTreeMap<String, Value>> {
    let object = object_in(free.get(name)?.as_str()?)?;
    free.remove(name);
    Some(object)
}
