use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{NAME, STRUCTURED, attributes};
use crate::dialect::json::{Object, Writer};
use crate::dialect::{DecodeError, EncodeError, JSON, Message, essence, invalid, is_json, short};
use crate::envelope::{Envelope, Payload};

pub(super) fn encode(envelope: &Envelope) -> Result<Message, EncodeError> {
    let attributes = attributes::write(envelope)?;
    let mut body = Writer::new();
    for (name, value) in &attributes.first {
        body.put(name, value);
    }
    let content_type = envelope.content_type.as_deref();
    match (&envelope.payload, content_type) {
        (Payload::Json(_), None) => body.put("datacontenttype", JSON),
        (_, Some(media_type)) => body.put("datacontenttype", media_type),
        (Payload::Bytes(_), None) => {}
    }
    for (name, value) in &attributes.more {
        body.put(name, value);
    }
    match &envelope.payload {
        Payload::Json(raw) => {
            // A string of another media type is that media type's text, not JSON.
            if !content_type.is_none_or(is_json) && raw.get().starts_with('"') {
                return Err(EncodeError::PayloadKind {
                    dialect: NAME,
                    carries: "text of other media types as bytes",
                    found: format!("a JSON string of {}", short(content_type.unwrap_or_default())),
                    advice: "make it a payload of bytes",
                });
            }
            body.put("data", raw);
        }
        Payload::Bytes(bytes) if bytes.is_empty() => {}
        Payload::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if content_type.is_some_and(is_text) => body.put("data", text),
            _ => body.put("data_base64", &BASE64.encode(bytes)),
        },
    }
    Ok(Message {
        topic: None,
        headers: [("content-type", STRUCTURED)].into(),
        body: body.finish().into(),
    })
}

pub(super) fn decode(message: &Message, strict: bool) -> Result<Envelope, DecodeError> {
    let mut body = Object::parse(NAME, &message.body)?;
    let content_type: Option<String> = body.optional("datacontenttype")?;
    let base64: Option<String> = body.optional("data_base64")?;
    let payload = match (body.raw("data"), base64) {
        (Some(data), Some(_)) => {
            return Err(invalid("data", data.get(), "data_base64 is there as well"));
        }
        (Some(data), None) => {
            let json = content_type.as_deref().is_none_or(is_json);
            if !json && data.get().starts_with('"') {
                let text: String = serde_json::from_str(data.get())
                    .map_err(|error| invalid("data", data.get(), error.to_string()))?;
                Payload::Bytes(text.into())
            } else {
                Payload::Json(data.to_owned())
            }
        }
        (None, Some(base64)) => {
            let bytes = BASE64.decode(&base64);
            let bytes = bytes.map_err(|e| invalid("data_base64", &base64, e.to_string()))?;
            // JSON is JSON, however it travelled, so that it can also travel as a body.
            let json = content_type.as_deref().is_some_and(is_json);
            match serde_json::from_slice::<&RawValue>(&bytes) {
                Ok(raw) if json => Payload::Json(raw.to_owned()),
                _ => Payload::Bytes(bytes.into()),
            }
        }
        (None, None) => Payload::Bytes(Bytes::new()),
    };
    let mut rest = body.rest()?;
    // The JSON format reads null as not set.
    rest.retain(|_, value| *value != Value::Null);
    attributes::read(rest, content_type, payload, strict)
}

fn is_text(media_type: &str) -> bool {
    let essence = essence(media_type);
    let xml = essence == "application/xml" || essence.ends_with("+xml");
    (essence.starts_with("text/") || xml) && !is_json(media_type)
}
