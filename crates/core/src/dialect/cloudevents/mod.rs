//! CloudEvents 1.0, structured and binary.

mod attributes;
mod binary;
mod spec;
mod structured;

use super::{
    DecodeError, Dialect, EncodeError, Message, check_canonical, check_size, essence, json,
};
use crate::envelope::{Envelope, Tenant};

/// CloudEvents 1.0.
///
/// # Attributes
/// `id`, `type`, `time`, `datacontenttype` and `dataschema` hold what their names say, and
/// `subject` the aggregate's id. `source` is `/services/<service>` of the producer unless the
/// envelope has a source of its own; then the service is in `producerservice`. Every other
/// canonical field is an extension (`tenantid`, `correlationid`, `causationid`, `partitionkey`,
/// `traceparent`, …); free metadata is the JSON text in `metadata`.
///
/// # Foreign events
/// An attribute that is absent on the wire is not added when the event is written again. So an
/// absent attribute has a canonical value that stands for it:
///
/// | absent | read as |
/// | --- | --- |
/// | `tenantid` | the platform |
/// | `correlationid` | the event's own id |
/// | `time` | the Unix epoch |
/// | `eventversion` | the `.v<n>` at the end of the type, which is then cut off and remembered in the extension `type`; otherwise 1 |
/// | `data` | an empty payload of bytes |
/// | `datacontenttype` | JSON in structured mode, as the specification says; unknown in binary mode |
///
/// Foreign extensions keep their names and, in structured mode, their JSON types. A header has no
/// types: names of booleans and integers are listed in `typedextensions`. A value that no attribute
/// can hold (objects, invalid names) is JSON text in `extensions`; a canonical field that its own
/// attribute cannot hold (a relative schema, control characters) is JSON text in `unfitfields`.
///
/// # The specification
/// What is written keeps every rule of the specification about attributes. What is read must keep
/// them too; [`lenient`](CloudEvents::lenient) reads the events of producers that do not.
///
/// Text of a media type other than JSON is a payload of bytes. A structured message is recognised
/// by its content type in binary mode too, as the bindings require.
///
/// ```
/// use chapar_core::dialect::{CloudEvents, Dialect, Message};
/// let body = r#"{"specversion": "1.0", "id": "42", "type": "invoicing.invoice.created",
///   "source": "/services/invoice-api", "tenantid": "acme", "data": {"total": 10.50}}"#;
/// let event = CloudEvents::Structured.decode(&Message::from_body(body))?;
/// assert_eq!(event.producer.service, "invoice-api");
/// assert_eq!(event.payload.as_bytes(), br#"{"total": 10.50}"#);
/// # Ok::<(), chapar_core::dialect::DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudEvents {
    /// Everything in one JSON object.
    Structured,
    /// Attributes in headers, data as the body.
    Binary(Binding),
}

/// How a protocol spells attributes in its headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// `ce-` headers, percent-encoded, and `Content-Type`.
    Http,
    /// `ce_` headers in UTF-8 and `content-type`.
    Kafka,
    /// `ce-` headers, percent-encoded as in HTTP, and `content-type`.
    Nats,
    /// `ce-` attributes in UTF-8 and `content-type`.
    PubSub,
}

impl Dialect for CloudEvents {
    fn name(&self) -> &'static str {
        NAME
    }

    fn encode(&self, envelope: &Envelope) -> Result<Message, EncodeError> {
        check_canonical(envelope)?;
        if envelope.content_type.as_deref().is_some_and(|text| !spec::is_media_type(text)) {
            let reason = "is not a media type such as application/xml";
            return Err(EncodeError::Invalid { field: "content_type", reason });
        }
        match self {
            CloudEvents::Structured => structured::encode(envelope),
            CloudEvents::Binary(binding) => binary::encode(*binding, envelope),
        }
    }

    fn decode(&self, message: &Message) -> Result<Envelope, DecodeError> {
        self.read(message, true)
    }

    fn tenant(&self, message: &Message) -> Result<Tenant, DecodeError> {
        match self {
            CloudEvents::Structured => json::skim_tenant(self, message, "tenantid"),
            CloudEvents::Binary(_) => Ok(self.decode(message)?.tenant),
        }
    }
}

impl CloudEvents {
    /// The same form, read without asking whether the specification allows each attribute.
    pub fn lenient(self) -> LenientCloudEvents {
        LenientCloudEvents(self)
    }

    fn read(self, message: &Message, strict: bool) -> Result<Envelope, DecodeError> {
        check_size(message)?;
        match self {
            CloudEvents::Binary(binding) if !is_structured(message.header("content-type")) => {
                binary::decode(binding, message, strict)
            }
            _ => structured::decode(message, strict),
        }
    }
}

/// [`CloudEvents`] of producers that do not keep the specification: relative `dataschema`, names
/// with capitals, objects as extensions, times without seconds and the like are read and kept.
/// What it writes keeps the specification.
///
/// ```
/// use chapar_core::dialect::{CloudEvents, Dialect, Message};
/// let body = r#"{"specversion": "1.0", "id": "42", "type": "a", "source": "/a", "myTag": "x"}"#;
/// let message = Message::from_body(body);
/// assert!(CloudEvents::Structured.decode(&message).is_err());
/// let event = CloudEvents::Structured.lenient().decode(&message)?;
/// assert_eq!(event.extensions["myTag"], "x");
/// # Ok::<(), chapar_core::dialect::DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LenientCloudEvents(CloudEvents);

impl Dialect for LenientCloudEvents {
    fn name(&self) -> &'static str {
        NAME
    }

    fn encode(&self, envelope: &Envelope) -> Result<Message, EncodeError> {
        self.0.encode(envelope)
    }

    fn decode(&self, message: &Message) -> Result<Envelope, DecodeError> {
        self.0.read(message, false)
    }

    fn tenant(&self, message: &Message) -> Result<Tenant, DecodeError> {
        match self.0 {
            CloudEvents::Structured => json::skim_tenant(self, message, "tenantid"),
            CloudEvents::Binary(_) => Ok(self.decode(message)?.tenant),
        }
    }
}

const NAME: &str = "cloudevents";

const STRUCTURED: &str = "application/cloudevents+json";

fn is_structured(content_type: Option<&str>) -> bool {
    content_type.is_some_and(|media_type| essence(media_type) == STRUCTURED)
}
