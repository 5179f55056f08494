//! Examples of whole messages: the envelope of the event itself around an example of its payload.

use chapar_core::catalog::Event;
use chapar_core::dialect::Message;
use chapar_core::id::IdKind;
use chapar_core::{Aggregate, Envelope, Id, Payload, Tenant};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Loaded;

/// The message of an event. What no catalog knows (times, regions, who acted) is taken from the
/// example of the envelope's schema; without such a schema the payload is the message.
pub(super) fn message(loaded: &Loaded, event: &Event, number: usize, payload: &Value) -> Value {
    let sample = loaded.envelope.as_ref().and_then(|envelope| envelope.examples().first());
    let Some(sample) = sample else { return payload.clone() };
    written(loaded, event, number, payload, sample).unwrap_or_else(|| payload.clone())
}

fn written(
    loaded: &Loaded,
    event: &Event,
    number: usize,
    payload: &Value,
    sample: &Value,
) -> Option<Value> {
    let profile = &loaded.catalog.profile;
    let dialect = profile.dialect()?;
    let sample = dialect.decode(&Message::from_body(sample.to_string())).ok()?;
    let subject = event.subject.as_str();
    let seed = |what: &str| {
        let digest = Sha256::digest(format!("{subject} {number} {what}").as_bytes());
        let bytes: [u8; 16] = digest[..16].try_into().unwrap_or_default();
        u128::from_be_bytes(bytes)
    };
    let millis = u64::try_from(sample.occurred_at.as_millisecond()).unwrap_or(0);
    let made = |kind: IdKind, what: &str| match kind {
        IdKind::Uuidv7 => Id::uuid_v7(millis, seed(what)),
        IdKind::Uuidv4 => Id::uuid_v4(seed(what)),
        IdKind::Ulid => Id::ulid(millis, seed(what)),
    };
    let id = |what: &str| made(profile.event_ids, what);
    let tenant = tenant(loaded, event, payload, &sample);
    let key = event.key.as_ref().and_then(|field| payload.get(field)).and_then(text);
    let aggregate = key.unwrap_or_else(|| id("aggregate").to_string());
    let action = event.subject.event_type().rsplit('.').next().unwrap_or_default();
    let envelope = Envelope {
        id: id("event"),
        event_type: event.subject.event_type().to_owned(),
        version: event.subject.version(),
        schema: loaded.schema_uri(subject).or(sample.schema),
        correlation: made(profile.correlation_ids, "correlation"),
        causation: sample.causation.map(|_| id("causation")),
        actor: sample.actor.map(|actor| chapar_core::Actor { id: event.owner.clone(), ..actor }),
        producer: chapar_core::Producer { service: event.owner.clone(), ..sample.producer },
        idempotency_key: Some(format!("{aggregate}:{action}")),
        ordering_key: Some(profile.key_template.fill(&tenant, &aggregate)),
        aggregate: sample.aggregate.map(|_| Aggregate {
            kind: event.subject.aggregate_type().to_owned(),
            id: aggregate.clone(),
            version: Some(1),
        }),
        retention: Some(event.retention.clone()),
        residency: event.residency.clone().or(sample.residency),
        ai_provenance: event
            .provenance
            .then(|| json!({ "model": "example-model", "run": "run-1" })),
        outbox_id: sample.outbox_id.map(|_| id("outbox")),
        payload: Payload::json(payload).ok()?,
        tenant,
        ..sample
    };
    let message = dialect.encode(&envelope).ok()?;
    serde_json::from_slice(&message.body).ok()
}

/// The tenant that the payload names, or the platform for its own events.
fn tenant(loaded: &Loaded, event: &Event, payload: &Value, sample: &Envelope) -> Tenant {
    let profile = &loaded.catalog.profile;
    let fields = profile.payload_tenant_fields.iter();
    let named = fields.filter_map(|field| payload.get(field)?.as_str()?.parse().ok()).next();
    match (named, &profile.fixed_tenant) {
        (Some(tenant), _) => tenant,
        (None, _) if event.untenanted => Tenant::platform(),
        (None, Some(tenant)) => tenant.clone(),
        (None, None) => sample.tenant.clone(),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
