use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Binding, NAME, attributes, is_structured};
use crate::dialect::{DecodeError, EncodeError, JSON, Message, invalid, is_json, short};
use crate::envelope::{Envelope, Payload};
use crate::headers::Headers;

/// Lists the extensions whose text is a JSON boolean or integer.
const TYPED: &str = "typedextensions";

pub(super) fn encode(binding: Binding, envelope: &Envelope) -> Result<Message, EncodeError> {
    let content_type = content_type(envelope)?;
    let mut attributes = attributes::write(envelope)?;
    let typed = |name: &&String| !attributes.more[*name].is_string();
    let typed: Vec<&str> = attributes.foreign.iter().filter(typed).map(String::as_str).collect();
    if !typed.is_empty() {
        let typed = typed.join(",");
        attributes.more.insert(TYPED.into(), typed.into());
    }
    let mut headers = Headers::new();
    if let Some(media_type) = content_type {
        headers.push(binding.content_type(), media_type);
    }
    for (name, value) in attributes.first {
        headers.push(binding.name(name), binding.write(&value));
    }
    for (name, value) in attributes.more {
        let text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        headers.push(binding.name(&name), binding.write(&text));
    }
    let body = match &envelope.payload {
        Payload::Json(raw) => raw.get().to_owned().into(),
        Payload::Bytes(bytes) => bytes.clone(),
    };
    Ok(Message { topic: None, headers, body })
}

pub(super) fn decode(
    binding: Binding,
    message: &Message,
    strict: bool,
) -> Result<Envelope, DecodeError> {
    let mut attributes = BTreeMap::new();
    let mut content_type = None;
    for (header, value) in &message.headers {
        if header.eq_ignore_ascii_case("content-type") {
            if content_type.replace(value.to_owned()).is_some() {
                return Err(invalid(short(header), value, "the header is there twice"));
            }
            continue;
        }
        let Some(name) = binding.attribute(header) else { continue };
        let value = binding.read(header, value)?;
        if matches!(name.as_str(), "datacontenttype" | "data") {
            return Err(invalid(short(header), &value, "its place is not among the attributes"));
        }
        if attributes.contains_key(&name) {
            return Err(invalid(short(header), &value, "the header is there twice"));
        }
        attributes.insert(name, Value::String(value));
    }
    retype(&mut attributes);
    let payload = match &content_type {
        Some(media_type) if is_json(media_type) && !message.body.is_empty() => {
            let raw: &RawValue = serde_json::from_slice(&message.body)
                .map_err(|source| DecodeError::Json { dialect: NAME, source })?;
            Payload::Json(raw.to_owned())
        }
        _ => Payload::Bytes(message.body.clone()),
    };
    attributes::read(attributes, content_type, payload, strict)
}

impl Binding {
    fn prefix(self) -> &'static str {
        match self {
            Binding::Http | Binding::Nats | Binding::PubSub => "ce-",
            Binding::Kafka => "ce_",
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Binding::Http => "Content-Type",
            Binding::Kafka | Binding::Nats | Binding::PubSub => "content-type",
        }
    }

    fn name(self, attribute: &str) -> String {
        format!("{}{attribute}", self.prefix())
    }

    /// The attribute that a header holds, if any.
    fn attribute(self, header: &str) -> Option<String> {
        let (prefix, name) = header.split_at_checked(self.prefix().len())?;
        prefix.eq_ignore_ascii_case(self.prefix()).then(|| name.to_ascii_lowercase())
    }

    fn is_escaped(self) -> bool {
        matches!(self, Binding::Http | Binding::Nats)
    }

    fn write(self, value: &str) -> String {
        if self.is_escaped() {
            utf8_percent_encode(value, UNPRINTABLE).to_string()
        } else {
            value.to_owned()
        }
    }

    fn read(self, header: &str, value: &str) -> Result<String, DecodeError> {
        if !self.is_escaped() {
            return Ok(value.to_owned());
        }
        let wrong = |reason| invalid(short(header), value, reason);
        if !value.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            return Err(wrong("characters outside of printable ASCII must be percent-encoded"));
        }
        let value = unquote(value);
        let mut escapes = value.split('%');
        escapes.next();
        let hex = |escape: &str| {
            escape.len() >= 2 && escape.bytes().take(2).all(|b| b.is_ascii_hexdigit())
        };
        if !escapes.all(hex) {
            return Err(wrong("a % is not followed by two hex digits"));
        }
        let text = percent_decode_str(&value).decode_utf8();
        Ok(text.map_err(|_| wrong("the percent-encoded bytes are not UTF-8"))?.into_owned())
    }
}

/// Characters that the HTTP binding escapes, besides everything outside ASCII.
const UNPRINTABLE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The content of a quoted string, as older senders write it.
fn unquote(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        text.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    text
}

/// Restores the types of typed extensions. All or none are treated as ours.
fn retype(attributes: &mut BTreeMap<String, Value>) {
    let Some(Value::String(list)) = attributes.get(TYPED) else { return };
    let typed = |name: &str| {
        let value: Value = serde_json::from_str(attributes.get(name)?.as_str()?).ok()?;
        let scalar = value.is_boolean() || value.is_i64();
        scalar.then(|| (name.to_owned(), value))
    };
    let typed: Option<Vec<_>> = list.split(',').map(typed).collect();
    if let Some(typed) = typed {
        attributes.remove(TYPED);
        attributes.extend(typed);
    }
}

fn content_type(envelope: &Envelope) -> Result<Option<&str>, EncodeError> {
    let media_type = envelope.content_type.as_deref();
    let unprintable = |text: &str| !text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if media_type.is_some_and(unprintable) {
        let reason = "holds characters that no header can carry";
        return Err(EncodeError::Invalid { field: "content_type", reason });
    }
    let kind = |carries, advice| {
        let found = short(media_type.unwrap_or_default());
        Err(EncodeError::PayloadKind { dialect: NAME, carries, found, advice })
    };
    match &envelope.payload {
        _ if is_structured(media_type) => {
            kind("events other than itself", "forward the inner event instead")
        }
        Payload::Json(_) if media_type.is_none() => Ok(Some(JSON)),
        Payload::Json(_) if !media_type.is_none_or(is_json) => {
            kind("JSON of JSON media types", "correct the content type, or make it bytes")
        }
        Payload::Bytes(bytes) if !bytes.is_empty() && media_type.is_some_and(is_json) => {
            kind("bytes of other media types than JSON", "make it a JSON payload")
        }
        _ => Ok(media_type),
    }
}
