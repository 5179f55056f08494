//! Context attributes, independent of the binding.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

use super::spec;
use crate::dialect::free::{self, Field, Names, plain_json_goes_unsaid};
use crate::dialect::{DecodeError, EncodeError, invalid, object_in, split_version};
use crate::envelope::{Envelope, Payload, Tenant};

/// The attributes of an envelope: the mandatory ones first, the others by name.
pub(super) struct Attributes {
    pub(super) first: Vec<(&'static str, String)>,
    pub(super) more: BTreeMap<String, Value>,
    /// The names among `more` that are foreign extensions.
    pub(super) foreign: Vec<String>,
}

const NAMES: Names = Names(&[
    (Field::Schema, "dataschema"),
    (Field::Correlation, "correlationid"),
    (Field::Causation, "causationid"),
    (Field::ActorType, "actortype"),
    (Field::ActorId, "actorid"),
    (Field::IngestedAt, "ingestedat"),
    (Field::WrittenAt, "dbwritets"),
    (Field::Instance, "producerinstance"),
    (Field::Commit, "producercommit"),
    (Field::Region, "producerregion"),
    (Field::IdempotencyKey, "idempotencykey"),
    (Field::OrderingKey, "partitionkey"),
    (Field::AggregateType, "aggregatetype"),
    (Field::AggregateId, "subject"),
    (Field::AggregateVersion, "aggregateversion"),
    (Field::Retention, "retentionclass"),
    (Field::Residency, "dataresidency"),
    (Field::OfflineReplay, "offlinereplay"),
    (Field::AiProvenance, "aiprovenance"),
    (Field::OutboxId, "outboxid"),
    (Field::Traceparent, "traceparent"),
    (Field::Tracestate, "tracestate"),
]);

/// Holds, as JSON text, fields whose values the specification forbids in the attribute of their
/// name: a relative schema, a text with control characters.
const UNFIT: &str = "unfitfields";

/// Reserved names, which cannot be free extensions.
const TAKEN: &[&str] = &[
    "specversion",
    "id",
    "type",
    "source",
    "time",
    "datacontenttype",
    "data",
    "tenantid",
    "producerservice",
    "typedextensions",
];

pub(super) fn write(envelope: &Envelope) -> Result<Attributes, EncodeError> {
    let mut more = NAMES.write(envelope);
    for value in more.values_mut() {
        flatten(value);
    }
    let versioned = envelope.subject();
    let as_it_came =
        matches!(envelope.extensions.get("type"), Some(Value::String(t)) if *t == versioned);
    let unclear = split_version(&envelope.event_type).is_some();
    if !as_it_came && (envelope.version != 1 || unclear) {
        more.insert("eventversion".into(), integer(envelope.version.into()));
    }
    if !envelope.tenant.is_platform() {
        more.insert("tenantid".into(), envelope.tenant.as_str().into());
    }
    let source = match &envelope.source {
        None => service_source(&envelope.producer.service),
        Some(source) if source.is_empty() => {
            let reason = "is empty; leave it out or give a URI reference";
            return Err(EncodeError::Invalid { field: "source", reason });
        }
        Some(source) => {
            if !envelope.producer.service.is_empty() || service_of(source).is_some() {
                more.insert("producerservice".into(), envelope.producer.service.as_str().into());
            }
            source.clone()
        }
    };
    if !envelope.metadata.is_empty() {
        more.insert("metadata".into(), spec::json_text(&envelope.metadata).into());
    }
    let mut first = vec![
        ("specversion", "1.0".to_owned()),
        ("id", envelope.id.to_string()),
        ("type", if as_it_came { versioned } else { envelope.event_type.clone() }),
        ("source", source),
    ];
    if envelope.occurred_at != Timestamp::UNIX_EPOCH {
        first.push(("time", envelope.occurred_at.to_string()));
    }
    set_apart(envelope, &mut first, &mut more)?;

    let mut foreign = Vec::new();
    let mut packed = BTreeMap::new();
    for (name, value) in &envelope.extensions {
        if name == "type" && as_it_came {
            continue;
        }
        if is_attribute(name, value) && !more.contains_key(name) {
            foreign.push(name.clone());
            more.insert(name.clone(), value.clone());
        } else {
            packed.insert(name, value);
        }
    }
    if !packed.is_empty() {
        // A foreign extension with this name is packed as well, so that there is one `extensions`.
        let other =
            foreign.iter().position(|name| name == "extensions").map(|at| foreign.remove(at));
        if let Some((name, value)) = other.and_then(|name| envelope.extensions.get_key_value(&name))
        {
            packed.insert(name, value);
        }
        more.insert("extensions".into(), spec::json_text(&packed).into());
    }
    Ok(Attributes { first, more, foreign })
}

/// Moves the values that the specification forbids into an attribute of their own.
fn set_apart(
    envelope: &Envelope,
    first: &mut Vec<(&'static str, String)>,
    more: &mut BTreeMap<String, Value>,
) -> Result<(), EncodeError> {
    let mut unfit = BTreeMap::new();
    let mut kept = Vec::new();
    for (name, text) in first.drain(..) {
        let value = Value::String(text.clone());
        match (name, spec::broken(name, &value)) {
            (_, None) => kept.push((name, text)),
            ("time", Some(_)) => {
                unfit.insert(name.to_owned(), value);
            }
            ("source", Some(_)) => {
                unfit.insert(name.to_owned(), value);
                kept.push((name, service_source(&envelope.producer.service)));
            }
            // An event cannot do without these.
            (_, Some(_)) => {
                let field = if name == "id" { "id" } else { "event_type" };
                let reason = "holds characters that no CloudEvent may hold";
                return Err(EncodeError::Invalid { field, reason });
            }
        }
    }
    *first = kept;
    more.retain(|name, value| {
        let fits = spec::broken(name, value).is_none();
        if !fits {
            unfit.insert(name.clone(), value.take());
        }
        fits
    });
    if !unfit.is_empty() {
        more.insert(UNFIT.into(), spec::json_text(&unfit).into());
    }
    Ok(())
}

/// Puts back what [`set_apart`] moved; all of it, or nothing where it is not ours.
fn put_back(attributes: &mut BTreeMap<String, Value>) {
    let Some(unfit) = attributes.get(UNFIT).and_then(Value::as_str).and_then(object_in) else {
        return;
    };
    let ours = |(name, value): (&String, &Value)| {
        let replaced = name == "source" || !attributes.contains_key(name);
        let known = NAMES.0.iter().any(|(_, known)| known == name)
            || matches!(name.as_str(), "source" | "time" | "tenantid" | "producerservice");
        replaced && known && spec::broken(name, value).is_some()
    };
    if !unfit.is_empty() && unfit.iter().all(ours) {
        attributes.remove(UNFIT);
        attributes.extend(unfit);
    }
}

/// Reads an envelope; a `strict` reader refuses what the specification forbids.
pub(super) fn read(
    mut attributes: BTreeMap<String, Value>,
    content_type: Option<String>,
    payload: Payload,
    strict: bool,
) -> Result<Envelope, DecodeError> {
    if strict {
        spec::check(&attributes, content_type.as_deref())?;
    }
    put_back(&mut attributes);
    let spec = required(&mut attributes, "specversion")?;
    if spec != "1.0" {
        return Err(invalid("specversion", &spec, "version 1.0 is read"));
    }
    let id = required(&mut attributes, "id")?;
    let id = id.parse().map_err(|error| invalid("id", &id, format!("{error}")))?;
    let mut event_type = required(&mut attributes, "type")?;
    let source = required(&mut attributes, "source")?;
    let occurred_at = match text(&mut attributes, "time")? {
        Some(time) => time.parse().map_err(|error| invalid("time", &time, format!("{error}")))?,
        None => Timestamp::UNIX_EPOCH,
    };
    let tenant = match text(&mut attributes, "tenantid")? {
        Some(tenant) => {
            tenant.parse().map_err(|error| invalid("tenantid", &tenant, format!("{error}")))?
        }
        None => Tenant::platform(),
    };
    let mut version = 1;
    let mut as_it_came = None;
    if let Some(number) = attributes.get("eventversion").and_then(event_version) {
        attributes.remove("eventversion");
        version = number;
    } else if let Some((bare, number)) = split_version(&event_type) {
        let bare = bare.to_owned();
        version = number;
        as_it_came = Some(std::mem::replace(&mut event_type, bare));
    }

    let mut e = free::envelope(id, event_type, version, tenant, occurred_at, payload);
    e.content_type = content_type;
    plain_json_goes_unsaid(&mut e);
    match (text(&mut attributes, "producerservice")?, service_of(&source)) {
        (Some(service), _) => {
            e.producer.service = service;
            e.source = Some(source);
        }
        (None, Some(service)) => e.producer.service = service,
        (None, None) => e.source = Some(source),
    }
    NAMES.read(&mut attributes, &mut e);
    if let Some(metadata) = take_object(&mut attributes, "metadata") {
        e.metadata = metadata;
    }
    let packed = take_object(&mut attributes, "extensions").unwrap_or_default();
    e.extensions = attributes;
    for (name, value) in packed {
        e.extensions.entry(name).or_insert(value);
    }
    if let Some(as_it_came) = as_it_came {
        e.extensions.insert("type".into(), as_it_came.into());
    }
    Ok(e)
}

/// Whether an extension can be an attribute of its own without being read as something else.
fn is_attribute(name: &str, value: &Value) -> bool {
    let ours = match name {
        "eventversion" => event_version(value).is_some(),
        "metadata" | "extensions" | UNFIT => {
            value.as_str().is_some_and(|text| object_in(text).is_some())
        }
        _ => TAKEN.contains(&name) || NAMES.reads(name, value),
    };
    spec::is_name(name) && spec::broken(name, value).is_none() && !ours
}

fn required(
    attributes: &mut BTreeMap<String, Value>,
    name: &'static str,
) -> Result<String, DecodeError> {
    let value = text(attributes, name)?.filter(|text| !text.is_empty());
    value.ok_or_else(|| DecodeError::Missing(name.into()))
}

fn text(
    attributes: &mut BTreeMap<String, Value>,
    name: &'static str,
) -> Result<Option<String>, DecodeError> {
    match attributes.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(invalid(name, &other.to_string(), "a string is expected")),
    }
}

fn take_object(
    attributes: &mut BTreeMap<String, Value>,
    name: &str,
) -> Option<BTreeMap<String, Value>> {
    let object = object_in(attributes.get(name)?.as_str()?)?;
    attributes.remove(name);
    Some(object)
}

fn event_version(value: &Value) -> Option<u32> {
    let number = match value {
        Value::String(text) => text.parse().ok()?,
        other => u32::try_from(other.as_u64()?).ok()?,
    };
    (number > 0).then_some(number)
}

/// Integers of CloudEvents have 32 bits; a larger one is written as text.
fn integer(number: i64) -> Value {
    match i32::try_from(number) {
        Ok(number) => Value::from(number),
        Err(_) => Value::from(number.to_string()),
    }
}

fn flatten(value: &mut Value) {
    match value {
        Value::Object(_) => *value = Value::from(spec::json_text(value)),
        Value::Number(number) => {
            if let Some(number) = number.as_i64() {
                *value = integer(number);
            }
        }
        _ => {}
    }
}

const SERVICES: &str = "/services/";

/// Characters that must be escaped in a path segment.
const SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

fn service_source(service: &str) -> String {
    format!("{SERVICES}{}", utf8_percent_encode(service, SEGMENT))
}

/// The service in a source, if the source is spelled exactly as we write it.
fn service_of(source: &str) -> Option<String> {
    let service = percent_decode_str(source.strip_prefix(SERVICES)?).decode_utf8().ok()?;
    (service_source(&service) == source).then(|| Cow::into_owned(service))
}
