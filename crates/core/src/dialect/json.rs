//! Reading and writing JSON objects whose payload stays text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{DecodeError, EncodeError, Message, invalid, short, split_version};
use crate::envelope::{Actor, Envelope, Payload, Producer, Tenant};
use crate::headers::Headers;

/// The fields of an object that have not been taken yet.
///
/// A duplicate field is an error: readers would disagree about which one counts.
pub(super) struct Object<'a> {
    dialect: &'static str,
    path: &'static str,
    fields: Fields<'a>,
}

impl<'a> Object<'a> {
    pub(super) fn parse(dialect: &'static str, body: &'a [u8]) -> Result<Self, DecodeError> {
        let fields = if body.trim_ascii_start().starts_with(b"{") {
            serde_json::from_slice(body)
        } else {
            // Without a limit the parser's message would repeat the whole input.
            Err(serde_json::Error::custom("an object is expected"))
        };
        let fields = fields.map_err(|source| DecodeError::Json { dialect, source })?;
        Ok(Object { dialect, path: "", fields })
    }

    /// Takes a field as it is written, `null` included.
    pub(super) fn raw(&mut self, name: &str) -> Option<&'a RawValue> {
        self.fields.0.remove(name)
    }

    /// Takes a field that may be missing; `null` counts as missing.
    pub(super) fn optional<T: DeserializeOwned>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, DecodeError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        serde_json::from_str(raw.get())
            .map_err(|error| invalid(self.name(name), raw.get(), reason(&error)))
    }

    /// Takes a mandatory field.
    pub(super) fn required<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, DecodeError> {
        self.optional(name)?.ok_or_else(|| DecodeError::Missing(self.name(name)))
    }

    /// Takes a field that is an object.
    pub(super) fn object(&mut self, name: &'static str) -> Result<Option<Object<'a>>, DecodeError> {
        let Some(raw) = self.raw(name).filter(|raw| raw.get() != "null") else { return Ok(None) };
        let fields = serde_json::from_str(raw.get())
            .map_err(|error| invalid(name, raw.get(), reason(&error)))?;
        Ok(Some(Object { dialect: self.dialect, path: name, fields }))
    }

    /// Takes the payload.
    pub(super) fn payload(&mut self) -> Result<Payload, DecodeError> {
        let raw = self.raw("payload").ok_or_else(|| DecodeError::Missing("payload".into()))?;
        Ok(Payload::Json(raw.to_owned()))
    }

    /// Takes type and version, which go into separate fields.
    pub(super) fn event_type(&mut self) -> Result<(String, u32), DecodeError> {
        let event_type: String = self.required("eventType")?;
        let version = self.required("eventVersion")?;
        if event_type.is_empty() {
            return Err(DecodeError::Missing("eventType".into()));
        }
        if split_version(&event_type).is_some() {
            return Err(invalid("eventType", &event_type, VERSION_APART));
        }
        if version == 0 {
            return Err(invalid("eventVersion", "0", "versions count from 1"));
        }
        Ok((event_type, version))
    }

    /// Takes an actor, and puts the unknown fields of its object into `extensions`.
    pub(super) fn actor(
        &mut self,
        name: &'static str,
        extensions: &mut BTreeMap<String, Value>,
    ) -> Result<Option<Actor>, DecodeError> {
        let Some(mut object) = self.object(name)? else { return Ok(None) };
        let actor = Actor { kind: object.required("type")?, id: object.required("id")? };
        object.rest_into(extensions)?;
        Ok(Some(actor))
    }

    /// Takes the producer, and puts the unknown fields of its object into `extensions`.
    pub(super) fn producer(
        &mut self,
        name: &'static str,
        extensions: &mut BTreeMap<String, Value>,
    ) -> Result<Producer, DecodeError> {
        let object = self.object(name)?;
        let mut object = object.ok_or_else(|| DecodeError::Missing(name.into()))?;
        let producer = Producer {
            service: object.required("service")?,
            instance: object.optional("instance")?.unwrap_or_default(),
            commit: object.optional("commit")?.unwrap_or_default(),
            region: object.optional("region")?,
        };
        object.rest_into(extensions)?;
        Ok(producer)
    }

    /// Everything that was not taken.
    pub(super) fn rest(self) -> Result<BTreeMap<String, Value>, DecodeError> {
        let dialect = self.dialect;
        let value = |(name, raw): (Cow<'a, str>, &RawValue)| match serde_json::from_str(raw.get()) {
            Ok(value) => Ok((name.into_owned(), value)),
            Err(source) => Err(DecodeError::Json { dialect, source }),
        };
        self.fields.0.into_iter().map(value).collect()
    }

    /// Puts everything that was not taken under the object's own name.
    pub(super) fn rest_into(
        self,
        extensions: &mut BTreeMap<String, Value>,
    ) -> Result<(), DecodeError> {
        let path = self.path;
        let rest = self.rest()?;
        if !rest.is_empty() {
            extensions.insert(path.into(), Value::Object(rest.into_iter().collect()));
        }
        Ok(())
    }

    fn name(&self, field: &str) -> String {
        if self.path.is_empty() { field.into() } else { format!("{}.{field}", self.path) }
    }
}

/// Builds a JSON object, fields in the order they are added.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        Writer(vec![b'{'])
    }

    pub(super) fn put<T: serde::Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.name(name);
        write(&mut self.0, value);
    }

    pub(super) fn put_some<T: serde::Serialize>(&mut self, name: &str, value: &Option<T>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    pub(super) fn put_actor(
        &mut self,
        dialect: &'static str,
        name: &str,
        envelope: &Envelope,
        actor: &Actor,
    ) -> Result<(), EncodeError> {
        let mut object = Writer::new();
        object.put("type", &actor.kind);
        object.put("id", &actor.id);
        self.nest(dialect, name, &["type", "id"], envelope, object)
    }

    pub(super) fn put_producer(
        &mut self,
        dialect: &'static str,
        name: &str,
        envelope: &Envelope,
    ) -> Result<(), EncodeError> {
        let producer = &envelope.producer;
        let mut object = Writer::new();
        object.put("service", &producer.service);
        object.put("instance", &producer.instance);
        object.put("commit", &producer.commit);
        object.put_some("region", &producer.region);
        let known = ["service", "instance", "commit", "region"];
        self.nest(dialect, name, &known, envelope, object)
    }

    /// Adds an object, with the unknown fields that it was read with.
    pub(super) fn nest(
        &mut self,
        dialect: &'static str,
        name: &str,
        known: &[&str],
        envelope: &Envelope,
        mut object: Writer,
    ) -> Result<(), EncodeError> {
        match envelope.extensions.get(name) {
            None => {}
            Some(Value::Object(more)) if !more.is_empty() => {
                for (field, value) in more {
                    if known.contains(&field.as_str()) {
                        return Err(reserved(dialect, &format!("{name}.{field}")));
                    }
                    object.put(field, value);
                }
            }
            Some(_) => return Err(reserved(dialect, name)),
        }
        self.name(name);
        self.0.extend(object.finish());
        Ok(())
    }

    /// Adds the unknown fields of the top level; `known` are the names the dialect writes, and
    /// `nested` the objects added with [`Writer::nest`].
    pub(super) fn extend(
        &mut self,
        dialect: &'static str,
        known: &[&str],
        nested: &[&str],
        envelope: &Envelope,
    ) -> Result<(), EncodeError> {
        for (name, value) in &envelope.extensions {
            if nested.contains(&name.as_str()) {
                continue;
            }
            if known.contains(&name.as_str()) {
                return Err(reserved(dialect, name));
            }
            self.put(name, value);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        write(&mut self.0, name);
        self.0.push(b':');
    }
}

/// The tenant in a field of the outermost object, found without keeping the rest. What is unusual, such
/// as a name that comes twice, is left to the dialect's own reading.
pub(super) fn skim_tenant(
    dialect: &dyn super::Dialect,
    message: &Message,
    field: &'static str,
) -> Result<Tenant, DecodeError> {
    struct Skim(&'static str);

    impl<'de> Visitor<'de> for Skim {
        type Value = Option<Tenant>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                if name != self.0 {
                    map.next_value::<IgnoredAny>()?;
                } else if found.replace(map.next_value::<Tenant>()?).is_some() {
                    return Ok(None);
                }
            }
            Ok(found)
        }
    }

    let mut body = serde_json::Deserializer::from_slice(&message.body);
    match Deserializer::deserialize_map(&mut body, Skim(field)) {
        Ok(Some(tenant)) if body.end().is_ok() => Ok(tenant),
        _ => Ok(dialect.decode(message)?.tenant),
    }
}

/// The message of a JSON dialect: the attributes that its relays set, and the body.
pub(super) fn message(envelope: &Envelope, body: Writer) -> Message {
    let (id, version) = (envelope.id.to_string(), envelope.version.to_string());
    let mut headers = Headers::from([
        ("eventId", id.as_str()),
        ("eventType", &envelope.event_type),
        ("eventVersion", &version),
        ("tenantId", envelope.tenant.as_str()),
    ]);
    if let Some(key) = &envelope.idempotency_key {
        headers.push("idempotencyKey", key);
    }
    Message { topic: None, headers, body: body.finish().into() }
}

/// The payload of an envelope, for dialects that carry only JSON.
pub(super) fn payload<'e>(
    dialect: &'static str,
    envelope: &'e Envelope,
) -> Result<&'e RawValue, EncodeError> {
    if split_version(&envelope.event_type).is_some() {
        return Err(EncodeError::Invalid { field: "event_type", reason: VERSION_APART });
    }
    match &envelope.payload {
        Payload::Json(raw) => Ok(raw),
        Payload::Bytes(_) => Err(EncodeError::PayloadKind {
            dialect,
            carries: "JSON",
            found: short(envelope.content_type.as_deref().unwrap_or("bytes")),
            advice: "convert it to JSON first, or speak a dialect that carries bytes",
        }),
    }
}

pub(super) fn reserved(dialect: &'static str, name: &str) -> EncodeError {
    EncodeError::Reserved { dialect, name: short(name) }
}

const VERSION_APART: &str = "ends in a version, which goes into a field of its own";

struct Fields<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Unique;

        impl<'de> Visitor<'de> for Unique {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some(Name(name)) = map.next_key()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!("{:?} is there twice", short(&name))));
                    }
                    fields.insert(name, map.next_value()?);
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(Unique)
    }
}

/// A key, borrowed if it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }

        from.deserialize_str(Text)
    }
}

fn write<T: serde::Serialize + ?Sized>(to: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(to, value).expect("memory takes every JSON value");
}

/// The parser's message without line and column, which mean nothing inside a single value.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}
