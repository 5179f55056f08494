use super::free::{self, Field, Names};
use super::json::{self, Object, Writer};
use super::{DecodeError, Dialect, EncodeError, Message, check_canonical, check_size};
use crate::envelope::{Envelope, Tenant};

/// JSON whose common fields are at the top level, and the others in `metadata`.
///
/// The others (aggregate, trace,
/// ingestion and write time, source, media type) are additive keys of `metadata`, next to the
/// caller's own; a free key that would be read as one of them is refused when encoding. Unknown
/// fields of `actorId` and `producedBy` are kept in their object.
///
/// ```
/// use chapar_core::dialect::{Dialect, MetadataJson, Message};
/// let body = r#"{"eventId": "0190163d-8694-739b-aea5-966c26f8ad91",
///   "eventType": "melmastoon.tenant.tenant.created", "eventVersion": 1, "tenantId": "platform",
///   "correlationId": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "occurredAt": "2026-03-01T08:00:00Z",
///   "producedBy": {"service": "tenant-service"}, "payload": {}}"#;
/// let event = MetadataJson.decode(&Message::from_body(body))?;
/// assert_eq!(event.subject(), "melmastoon.tenant.tenant.created.v1");
/// # Ok::<(), chapar_core::dialect::DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct MetadataJson;

const NAME: &str = "metadata-json";

const METADATA: Names = Names(&[
    (Field::Retention, "retentionClass"),
    (Field::Residency, "dataResidency"),
    (Field::OfflineReplay, "fromOfflineReplay"),
    (Field::AiProvenance, "aiProvenance"),
    (Field::OrderingKey, "orderingKey"),
    (Field::OutboxId, "outboxId"),
    (Field::AggregateType, "aggregateType"),
    (Field::AggregateId, "aggregateId"),
    (Field::AggregateVersion, "aggregateVersion"),
    (Field::Traceparent, "traceparent"),
    (Field::Tracestate, "tracestate"),
    (Field::IngestedAt, "ingestedAt"),
    (Field::WrittenAt, "dbWriteTs"),
    (Field::Source, "source"),
    (Field::ContentType, "contentType"),
]);

const KNOWN: &[&str] = &[
    "eventId",
    "eventType",
    "eventVersion",
    "schemaUri",
    "tenantId",
    "correlationId",
    "causationId",
    "actorId",
    "occurredAt",
    "producedBy",
    "idempotencyKey",
    "payload",
    "metadata",
];

impl Dialect for MetadataJson {
    fn name(&self) -> &'static str {
        NAME
    }

    fn encode(&self, envelope: &Envelope) -> Result<Message, EncodeError> {
        check_canonical(envelope)?;
        let payload = json::payload(NAME, envelope)?;
        let mut nested = vec!["producedBy"];
        let mut body = Writer::new();
        body.put("eventId", &envelope.id);
        body.put("eventType", &envelope.event_type);
        body.put("eventVersion", &envelope.version);
        body.put_some("schemaUri", &envelope.schema);
        body.put("tenantId", &envelope.tenant);
        body.put("correlationId", &envelope.correlation);
        body.put_some("causationId", &envelope.causation);
        if let Some(actor) = &envelope.actor {
            body.put_actor(NAME, "actorId", envelope, actor)?;
            nested.push("actorId");
        }
        body.put("occurredAt", &envelope.occurred_at);
        body.put_producer(NAME, "producedBy", envelope)?;
        body.put_some("idempotencyKey", &envelope.idempotency_key);
        body.put("payload", payload);
        body.put("metadata", &METADATA.join(NAME, envelope, &envelope.metadata)?);
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
        e.idempotency_key = body.optional("idempotencyKey")?;
        let mut extensions = Default::default();
        e.actor = body.actor("actorId", &mut extensions)?;
        e.producer = body.producer("producedBy", &mut extensions)?;
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
