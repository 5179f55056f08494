//! The free part of a message: canonical fields for which a system has no field of its own.
//!
//! The free part is open to every producer, so a value under one of our names counts as ours only
//! if it can be parsed as ours; anything else stays free and is written unchanged.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::reserved;
use super::{EncodeError, JSON, object_in};
use crate::envelope::{Actor, Aggregate, Envelope, Payload, Producer, Tenant, TraceContext};
use crate::id::Id;

/// A canonical field that a dialect may keep in its free part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Schema,
    Correlation,
    Causation,
    ActorType,
    ActorId,
    IngestedAt,
    WrittenAt,
    Service,
    Instance,
    Commit,
    Region,
    Source,
    ContentType,
    IdempotencyKey,
    OrderingKey,
    AggregateType,
    AggregateId,
    AggregateVersion,
    Retention,
    Residency,
    OfflineReplay,
    AiProvenance,
    OutboxId,
    Traceparent,
    Tracestate,
}

/// The fields that are in a dialect's free part, and their names there. An actor's type must come
/// before its id.
pub(super) struct Names(pub(super) &'static [(Field, &'static str)]);

impl Names {
    /// The fields that are set.
    pub(super) fn write(&self, envelope: &Envelope) -> BTreeMap<String, Value> {
        let set = |&(field, name): &(Field, &str)| Some((name.to_owned(), get(envelope, field)?));
        self.0.iter().filter_map(set).collect()
    }

    /// Takes the fields that can be parsed out of the free part.
    pub(super) fn read(&self, free: &mut BTreeMap<String, Value>, envelope: &mut Envelope) {
        for &(field, name) in self.0 {
            if let Some(value) = free.get(name)
                && set(envelope, field, value)
            {
                free.remove(name);
            }
        }
    }

    /// Whether a free value would be parsed as one of the fields.
    pub(super) fn reads(&self, name: &str, value: &Value) -> bool {
        let field = self.0.iter().find(|(_, known)| *known == name);
        field.is_some_and(|&(field, _)| set(&mut blank(), field, value))
    }

    /// The whole free part: the fields that are set, and the free values.
    pub(super) fn join(
        &self,
        dialect: &'static str,
        envelope: &Envelope,
        free: &BTreeMap<String, Value>,
    ) -> Result<BTreeMap<String, Value>, EncodeError> {
        let mut all = self.write(envelope);
        for (name, value) in free {
            if all.contains_key(name) || self.reads(name, value) {
                return Err(reserved(dialect, name));
            }
            all.insert(name.clone(), value.clone());
        }
        Ok(all)
    }
}

/// The fields that every message has; all others are unset.
pub(super) fn envelope(
    id: Id,
    event_type: String,
    version: u32,
    tenant: Tenant,
    occurred_at: Timestamp,
    payload: Payload,
) -> Envelope {
    Envelope {
        correlation: id.clone(),
        id,
        event_type,
        version,
        tenant,
        occurred_at,
        payload,
        schema: None,
        causation: None,
        actor: None,
        ingested_at: None,
        written_at: None,
        producer: Producer::default(),
        source: None,
        content_type: None,
        idempotency_key: None,
        ordering_key: None,
        aggregate: None,
        retention: None,
        residency: None,
        offline_replay: false,
        ai_provenance: None,
        outbox_id: None,
        trace: None,
        metadata: BTreeMap::new(),
        extensions: BTreeMap::new(),
    }
}

fn blank() -> Envelope {
    let payload = Payload::Json(RawValue::NULL.to_owned());
    let id = Id::Uuid(uuid::Uuid::nil());
    envelope(id, String::new(), 1, Tenant::platform(), Timestamp::UNIX_EPOCH, payload)
}

fn get(e: &Envelope, field: Field) -> Option<Value> {
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let word = |text: &str| (!text.is_empty()).then(|| Value::from(text));
    let time = |at: &Option<Timestamp>| at.map(|at| Value::from(at.to_string()));
    let id = |id: &Option<Id>| id.as_ref().map(|id| Value::from(id.to_string()));
    match field {
        Field::Schema => text(&e.schema),
        Field::Correlation => {
            (e.correlation != e.id).then(|| Value::from(e.correlation.to_string()))
        }
        Field::Causation => id(&e.causation),
        Field::ActorType => serde_json::to_value(e.actor.as_ref()?.kind).ok(),
        Field::ActorId => Some(Value::from(e.actor.as_ref()?.id.as_str())),
        Field::IngestedAt => time(&e.ingested_at),
        Field::WrittenAt => time(&e.written_at),
        Field::Service => word(&e.producer.service),
        Field::Instance => word(&e.producer.instance),
        Field::Commit => word(&e.producer.commit),
        Field::Region => text(&e.producer.region),
        Field::Source => text(&e.source),
        Field::ContentType => text(&e.content_type),
        Field::IdempotencyKey => text(&e.idempotency_key),
        Field::OrderingKey => text(&e.ordering_key),
        // An aggregate without known fields is still distinguished from no aggregate.
        Field::AggregateType => match e.aggregate.as_ref()? {
            Aggregate { kind, id, version: None } if kind.is_empty() && id.is_empty() => {
                Some(Value::from(""))
            }
            Aggregate { kind, .. } => word(kind),
        },
        Field::AggregateId => word(&e.aggregate.as_ref()?.id),
        Field::AggregateVersion => e.aggregate.as_ref()?.version.map(Value::from),
        Field::Retention => text(&e.retention),
        Field::Residency => text(&e.residency),
        Field::OfflineReplay => e.offline_replay.then_some(Value::Bool(true)),
        Field::AiProvenance => e.ai_provenance.clone(),
        Field::OutboxId => id(&e.outbox_id),
        // A trace state without a parent does not get an empty parent.
        Field::Traceparent => {
            let trace = e.trace.as_ref()?;
            let orphan = trace.traceparent.is_empty() && trace.tracestate.is_some();
            (!orphan).then(|| Value::from(trace.traceparent.as_str()))
        }
        Field::Tracestate => text(&e.trace.as_ref()?.tracestate),
    }
}

/// Sets a field from a value, which may also be its text. False if it cannot be parsed.
fn set(e: &mut Envelope, field: Field, value: &Value) -> bool {
    let text = || value.as_str().map(str::to_owned);
    let time = || value.as_str()?.parse::<Timestamp>().ok();
    let id = || value.as_str()?.parse::<Id>().ok();
    match field {
        Field::Schema => put(&mut e.schema, text()),
        Field::Correlation => id().map(|id| e.correlation = id).is_some(),
        Field::Causation => put(&mut e.causation, id()),
        Field::ActorType => {
            let kind = serde_json::from_value(value.clone()).ok();
            put(&mut e.actor, kind.map(|kind| Actor { kind, id: String::new() }))
        }
        Field::ActorId => match (&mut e.actor, text()) {
            (Some(actor), Some(id)) => {
                actor.id = id;
                true
            }
            _ => false,
        },
        Field::IngestedAt => put(&mut e.ingested_at, time()),
        Field::WrittenAt => put(&mut e.written_at, time()),
        Field::Service => text().map(|text| e.producer.service = text).is_some(),
        Field::Instance => text().map(|text| e.producer.instance = text).is_some(),
        Field::Commit => text().map(|text| e.producer.commit = text).is_some(),
        Field::Region => put(&mut e.producer.region, text()),
        Field::Source => put(&mut e.source, text()),
        Field::ContentType => {
            let read = put(&mut e.content_type, text());
            plain_json_goes_unsaid(e);
            read
        }
        Field::IdempotencyKey => put(&mut e.idempotency_key, text()),
        Field::OrderingKey => put(&mut e.ordering_key, text()),
        Field::AggregateType => text().map(|text| aggregate(e).kind = text).is_some(),
        Field::AggregateId => text().map(|text| aggregate(e).id = text).is_some(),
        Field::AggregateVersion => {
            let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
            number.map(|number| aggregate(e).version = Some(number)).is_some()
        }
        Field::Retention => put(&mut e.retention, text()),
        Field::Residency => put(&mut e.residency, text()),
        Field::OfflineReplay => {
            let flag = value.as_bool().or_else(|| value.as_str()?.parse().ok());
            flag.map(|flag| e.offline_replay = flag).is_some()
        }
        Field::AiProvenance => {
            let object = match value {
                Value::Object(_) => Some(value.clone()),
                Value::String(text) => {
                    object_in(text).map(|map| Value::Object(map.into_iter().collect()))
                }
                _ => None,
            };
            put(&mut e.ai_provenance, object)
        }
        Field::OutboxId => put(&mut e.outbox_id, id()),
        Field::Traceparent => text().map(|text| trace(e).traceparent = text).is_some(),
        Field::Tracestate => text().map(|text| trace(e).tracestate = Some(text)).is_some(),
    }
}

/// The media type of plain JSON is represented as unset.
pub(super) fn plain_json_goes_unsaid(e: &mut Envelope) {
    if matches!(e.payload, Payload::Json(_)) && e.content_type.as_deref() == Some(JSON) {
        e.content_type = None;
    }
}

fn put<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
    let read = value.is_some();
    if read {
        *slot = value;
    }
    read
}

fn aggregate(e: &mut Envelope) -> &mut Aggregate {
    let unknown = || Aggregate { kind: String::new(), id: String::new(), version: None };
    e.aggregate.get_or_insert_with(unknown)
}

fn trace(e: &mut Envelope) -> &mut TraceContext {
    let unknown = || TraceContext { traceparent: String::new(), tracestate: None };
    e.trace.get_or_insert_with(unknown)
}
