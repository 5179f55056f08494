use super::free::{self, Field, Names};
use super::json::{self, Object, Writer};
use super::{DecodeError, Dialect, EncodeError, Message, check_canonical, check_size};
use crate::envelope::{Envelope, Tenant};

/// JSON with all common fields at the top level.
///
/// The producer's region is inside `source`. The others are keys of an additive `metadata` object, next to the caller's own; a free
/// key that would be read as one of them is refused when encoding. Unknown fields of `actor`,
/// `source` and `outbox` are kept in their object.
///
/// ```
/// use chapar_core::dialect::{Dialect, FlatJson, Message};
/// let body = r#"{"eventId": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "eventType": "sync.push.applied",
///   "eventVersion": 1, "correlationId": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "tenantId": "acme",
///   "occurredAt": "2026-03-01T08:00:00Z", "source": {"service": "sync"}, "payload": {}}"#;
/// let event = FlatJson.decode(&Message::from_body(body))?;
/// assert_eq!(event.producer.service, "sync");
/// # Ok::<(), chapar_core::dialect::DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct FlatJson;

const NAME: &str = "flat-json";

const METADATA: Names = Names(&[
    (Field::IdempotencyKey, "idempotencyKey"),
    (Field::AggregateType, "aggregateType"),
    (Field::AggregateId, "aggregateId"),
    (Field::AggregateVersion, "aggregateVersion"),
    (Field::Traceparent, "traceparent"),
    (Field::Tracestate, "tracestate"),
    (Field::Source, "source"),
    (Field::ContentType, "contentType"),
    (Field::OfflineReplay, "fromOfflineReplay"),
    (Field::AiProvenance, "aiProvenance"),
]);

const KNOWN: &[&str] = &[
    "eventId",
    "eventType",
    "eventVersion",
    "schemaUri",
    "source",
    "occurredAt",
    "ingestedAt",
    "causationId",
    "correlationId",
    "tenantId",
    "actor",
    "payload",
    "partitionKey",
    "outbox",
    "retentionClass",
    "dataResidency",
    "metadata",
];

impl Dialect for FlatJson {
    fn name(&self) -> &'static str {
        NAME
    }

    fn encode(&self, envelope: &Envelope) -> Result<Message, EncodeError> {
        check_canonical(envelope)?;
        let payload = json::payload(NAME, envelope)?;
        let mut nested = vec!["source"];
        let mut body = Writer::new();
        body.put("eventId", &envelope.id);
        body.put("eventType", &envelope.event_type);
        body.put("eventVersion", &envelope.version);
        body.put_some("schemaUri", &envelope.schema);
        body.put_producer(NAME, "source", envelope)?;
        body.put("occurredAt", &envelope.occurred_at);
        body.put_some("ingestedAt", &envelope.ingested_at);
        body.put_some("causationId", &envelope.causation);
        body.put("correlationId", &envelope.correlation);
        body.put("tenantId", &envelope.tenant);
        if let Some(actor) = &envelope.actor {
            body.put_actor(NAME, "actor", envelope, actor)?;
            nested.push("actor");
        }
        body.put("payload", payload);
        body.put_some("partitionKey", &envelope.ordering_key);
        let through_outbox = envelope.written_at.is_some() || envelope.outbox_id.is_some();
        if through_outbox || envelope.extensions.contains_key("outbox") {
            let mut outbox = Writer::new();
            outbox.put_some("dbWriteTs", &envelope.written_at);
            outbox.put_some("outboxId", &envelope.outbox_id);
            body.nest(NAME, "outbox", &["dbWriteTs", "outboxId"], envelope, outbox)?;
            nested.push("outbox");
        }
        body.put_some("retentionClass", &envelope.retention);
        body.put_some("dataResidency", &envelope.residency);
        let metadata = METADATA.join(NAME, envelope, &envelope.metadata)?;
        if !metadata.is_empty() {
            body.put("metadata", &metadata);
        }
        body.extend(NAME, KNOWN, &nested, envelope)?;
        Ok(json::message(envelope, body))
    }

    fn tenant(&self, message: &Message) -> Result<Tenant, DecodeError> {
        json::skim_tenant(self, message, "tenantId")
    }

    fn decode(&self, message: &Message) -> Result<Envelope, DecodeError> {
        check_size(message)?;
        let mut body = Object::parse(NAME, &message.body)?;
        let id = body.required("eventId")?;
        let (event_type, version) = body.event_type()?;
        let tenant = body.required("tenantId")?;
        let correlation = body.required("correlationId")?;
        let occurred_at = body.required("occurredAt")?;
        let payload = body.payload()?;
        let mut e = free::envelope(id, event_type, version, tenant, occurred_at, payload);
        e.correlation = correlation;
        e.schema = body.optional("schemaUri")?;
        e.causation = body.optional("causationId")?;
        e.ingested_at = body.optional("ingestedAt")?;
        e.ordering_key = body.optional("partitionKey")?;
        e.retention = body.optional("retentionClass")?;
        e.residency = body.optional("dataResidency")?;
        let mut extensions = Default::default();
        e.actor = body.actor("actor", &mut extensions)?;
        e.producer = body.producer("source", &mut extensions)?;
        if let Some(mut outbox) = body.object("outbox")? {
            e.written_at = outbox.optional("dbWriteTs")?;
            e.outbox_id = outbox.optional("outboxId")?;
            outbox.rest_into(&mut extensions)?;
        }
        if let Some(metadata) = body.object("metadata")? {
            let mut free = metadata.rest()?;
            METADATA.read(&mut free, &mut e);
            e.metadata = free;
        }
        extensions.extend(body.rest()?);
        e.extensions = extensions;
        Ok(e)
    }
}
