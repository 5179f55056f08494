//! The rules for every event, each with a stable code and a page in `docs/errors/`.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::envelope::{Envelope, Payload, Tenant};
use crate::profile::{IdempotencyRule, Profile, matches_any};
use crate::subject::{Subject, SubjectError};

/// The most bytes of free metadata, as JSON.
pub const MAX_METADATA: usize = 4 * 1024;

/// The most bytes of a payload that is not declared thin.
pub const MAX_PAYLOAD: usize = 256 * 1024;

/// The most bytes of a subject, a tenant or a kind of aggregate.
pub const MAX_NAME: usize = 256;

/// The most bytes of an ordering key, an aggregate's id or an idempotency key. Databases and brokers
/// index them.
pub const MAX_KEY: usize = 1024;

/// The code of a rule. A code never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// CH1001: the subject does not fit the system's grammar.
    SubjectMalformed,
    /// CH1002: the system requires an idempotency key.
    IdempotencyKeyMissing,
    /// CH1003: no tenant, and not on the allow-list for the platform.
    TenantMissing,
    /// CH1004: the payload names another tenant than the envelope.
    TenantMismatch,
    /// CH1005: an AI event without provenance.
    AiProvenanceMissing,
    /// CH1006: more than 4 KiB of metadata.
    MetadataTooLarge,
    /// CH1007: more than 256 KiB of payload, and not thin.
    PayloadTooLarge,
    /// CH1008: an unknown retention class.
    RetentionUnknown,
    /// CH1009: the envelope has another type or version than the topic it came on.
    VersionMismatch,
    /// CH1010: a cross-tenant topic that is not registered for this service.
    CrossTenant,
    /// CH1011: an unknown region.
    ResidencyUnknown,
    /// CH1012: the payload cannot be written as JSON.
    PayloadUnwritable,
    /// CH1013: the registry has no contract for the subject.
    Unregistered,
    /// CH1014: a service publishes an event of another service.
    NotOwner,
    /// CH1015: the payload does not match its schema.
    SchemaInvalid,
    /// CH1016: the event cannot be published in its older version.
    NotConvertible,
    /// CH1017: a subject, a tenant, a key or an id is too long.
    TooLong,
    /// CH1018: the envelope or the ordering key is of another tenant than the event was written for.
    ForeignTenant,
}

impl Code {
    /// Every rule.
    pub const ALL: [Code; 18] = [
        Code::SubjectMalformed,
        Code::IdempotencyKeyMissing,
        Code::TenantMissing,
        Code::TenantMismatch,
        Code::AiProvenanceMissing,
        Code::MetadataTooLarge,
        Code::PayloadTooLarge,
        Code::RetentionUnknown,
        Code::VersionMismatch,
        Code::CrossTenant,
        Code::ResidencyUnknown,
        Code::PayloadUnwritable,
        Code::Unregistered,
        Code::NotOwner,
        Code::SchemaInvalid,
        Code::NotConvertible,
        Code::TooLong,
        Code::ForeignTenant,
    ];

    /// The stable code, such as `CH1002`.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::SubjectMalformed => "CH1001",
            Code::IdempotencyKeyMissing => "CH1002",
            Code::TenantMissing => "CH1003",
            Code::TenantMismatch => "CH1004",
            Code::AiProvenanceMissing => "CH1005",
            Code::MetadataTooLarge => "CH1006",
            Code::PayloadTooLarge => "CH1007",
            Code::RetentionUnknown => "CH1008",
            Code::VersionMismatch => "CH1009",
            Code::CrossTenant => "CH1010",
            Code::ResidencyUnknown => "CH1011",
            Code::PayloadUnwritable => "CH1012",
            Code::Unregistered => "CH1013",
            Code::NotOwner => "CH1014",
            Code::SchemaInvalid => "CH1015",
            Code::NotConvertible => "CH1016",
            Code::TooLong => "CH1017",
            Code::ForeignTenant => "CH1018",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct Violation {
    /// Which rule.
    pub code: Code,
    /// How it was broken, and what to do.
    pub reason: String,
}

/// All rules that one event breaks; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// The broken rules, in the order of their codes.
    pub fn iter(&self) -> impl Iterator<Item = &Violation> {
        self.0.iter()
    }

    /// One broken rule.
    pub fn one(code: Code, reason: String) -> Self {
        Violations(vec![Violation { code, reason }])
    }

    pub(crate) fn unwritable(error: String) -> Self {
        let reason = format!("the payload cannot be written as JSON: {error}");
        Self::one(Code::PayloadUnwritable, reason)
    }

    /// Whether this rule is among them.
    pub fn contains(&self, code: Code) -> bool {
        self.0.iter().any(|violation| violation.code == code)
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, violation) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("; ")?;
            }
            violation.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Violations {}

impl From<SubjectError> for Violations {
    fn from(error: SubjectError) -> Self {
        Self::one(Code::SubjectMalformed, error.to_string())
    }
}

/// Checks a single event. `thin` says whether its contract declares it thin.
pub fn check(envelope: &Envelope, profile: &Profile, thin: bool) -> Result<(), Violations> {
    let mut found = Found::default();
    let subject = envelope.subject();
    // A grammar without versions uses the bare type as subject.
    let parsed = profile.subject(&subject).or_else(|error| {
        if envelope.version == 1 {
            profile.subject(&envelope.event_type).map_err(|_| error)
        } else {
            Err(error)
        }
    });
    if let Err(error) = &parsed {
        found.add(Code::SubjectMalformed, error.to_string());
    }
    let subject = parsed.as_ref().map_or(subject.as_str(), Subject::as_str);

    if profile.idempotency == IdempotencyRule::Required
        && envelope.idempotency_key.as_deref().is_none_or(str::is_empty)
    {
        found.add(
            Code::IdempotencyKeyMissing,
            format!("{subject} has no idempotency key; derive one from the business intent"),
        );
    }
    if envelope.tenant.is_platform()
        && profile.fixed_tenant.is_none()
        && !matches_any(&profile.platform_subjects, subject)
    {
        found.add(
            Code::TenantMissing,
            format!("{subject} belongs to no tenant, and platform_subjects does not list it"),
        );
    }
    if let Some(other) = other_payload_tenant(envelope, profile) {
        found.add(
            Code::TenantMismatch,
            format!(
                "the payload names tenant {other}, the envelope {:?}",
                envelope.tenant.as_str()
            ),
        );
    }
    let explained = matches!(&envelope.ai_provenance, Some(Value::Object(p)) if !p.is_empty());
    if matches_any(&profile.ai_subjects, subject) && !explained {
        found.add(
            Code::AiProvenanceMissing,
            format!("{subject} is an AI event and carries no provenance object"),
        );
    }
    let metadata = json_len(&envelope.metadata);
    if metadata > MAX_METADATA {
        found.add(
            Code::MetadataTooLarge,
            format!("the metadata has {metadata} bytes, at most {MAX_METADATA} are allowed"),
        );
    }
    let payload = envelope.payload.as_bytes().len();
    if payload > MAX_PAYLOAD && !thin {
        found.add(
            Code::PayloadTooLarge,
            format!(
                "the payload has {payload} bytes, at most {MAX_PAYLOAD} are allowed; \
                 declare the event thin and send a reference"
            ),
        );
    }
    check_profile(envelope, profile, subject, &mut found);
    check_lengths(envelope, subject, &mut found);
    found.into_result()
}

/// What an event names has to be in the profile: its retention class, its region, the publisher of a
/// cross-tenant topic.
fn check_profile(envelope: &Envelope, profile: &Profile, subject: &str, found: &mut Found) {
    if let Some(class) = &envelope.retention
        && !profile.retention.contains_key(class)
    {
        let known: Vec<_> = profile.retention.keys().map(String::as_str).collect();
        found.add(
            Code::RetentionUnknown,
            format!("retention class {class:?} is not one of {}", known.join(", ")),
        );
    }
    if let Some(topic) = profile.cross_tenant.iter().find(|topic| topic.subject == subject)
        && topic.publisher != envelope.producer.service
    {
        found.add(
            Code::CrossTenant,
            format!("{subject} is cross-tenant and may be published by {} only", topic.publisher),
        );
    }
    if let Some(region) = &envelope.residency
        && !profile.residencies.is_empty()
        && !profile.residencies.contains(region)
    {
        found.add(
            Code::ResidencyUnknown,
            format!("residency {region:?} is not one of {}", profile.residencies.join(", ")),
        );
    }
}

/// Names and keys are stored in indexes and written into headers, so their sizes are bounded.
fn check_lengths(envelope: &Envelope, subject: &str, found: &mut Found) {
    let aggregate = envelope.aggregate.as_ref();
    let tenant = envelope.tenant.as_str();
    let parts = [
        ("subject", subject, MAX_NAME),
        ("tenant", tenant, MAX_NAME),
        ("aggregate type", aggregate.map_or("", |aggregate| aggregate.kind.as_str()), MAX_NAME),
        ("aggregate id", aggregate.map_or("", |aggregate| aggregate.id.as_str()), MAX_KEY),
        ("ordering key", envelope.ordering_key.as_deref().unwrap_or_default(), MAX_KEY),
        ("idempotency key", envelope.idempotency_key.as_deref().unwrap_or_default(), MAX_KEY),
    ];
    for (part, text, most) in parts.iter().filter(|(_, text, most)| text.len() > *most) {
        found.add(
            Code::TooLong,
            format!("the {part} has {} bytes, at most {most} are allowed", text.len()),
        );
    }
}

/// Checks that an envelope matches the topic it came on.
pub fn check_topic(envelope: &Envelope, topic: &Subject) -> Result<(), Violations> {
    let mut found = Found::default();
    if envelope.event_type != topic.event_type() || envelope.version != topic.version() {
        found.add(
            Code::VersionMismatch,
            format!("the envelope is {}, but it came on {topic}", envelope.subject()),
        );
    }
    found.into_result()
}

/// Checks that an event belongs to the tenant that it was written for, or that its message names:
/// its envelope does, and its ordering key.
pub fn check_tenant(
    written_for: &str,
    envelope: &str,
    key: Option<&str>,
    profile: &Profile,
) -> Result<(), Violations> {
    let mut found = Found::default();
    if written_for != envelope {
        found.add(
            Code::ForeignTenant,
            format!("written for the tenant {written_for:?}, the envelope names {envelope:?}"),
        );
    }
    if let Some(key) = key.filter(|key| !profile.key_template.is_key_of(envelope, key)) {
        found.add(
            Code::ForeignTenant,
            format!("the ordering key {key:?} is not one of the tenant {envelope:?}"),
        );
    }
    found.into_result()
}

/// Checks that a service may read a topic across tenants.
pub fn check_reader(profile: &Profile, subject: &str, service: &str) -> Result<(), Violations> {
    let mut found = Found::default();
    if let Some(topic) = profile.cross_tenant.iter().find(|topic| topic.subject == subject)
        && topic.publisher != service
        && !topic.readers.iter().any(|reader| reader == service)
    {
        found.add(
            Code::CrossTenant,
            format!("{service} is not registered to read the cross-tenant topic {subject}"),
        );
    }
    found.into_result()
}

#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, code: Code, reason: String) {
        self.0.push(Violation { code, reason });
    }

    fn into_result(self) -> Result<(), Violations> {
        if self.0.is_empty() { Ok(()) } else { Err(Violations(self.0)) }
    }
}

fn other_payload_tenant(envelope: &Envelope, profile: &Profile) -> Option<String> {
    let Payload::Json(raw) = &envelope.payload else { return None };
    if profile.payload_tenant_fields.is_empty() {
        return None;
    }
    // Searching for the names is much cheaper than parsing. An escape sequence may hide one.
    let text = raw.get();
    let named = |field: &String| text.contains(field.as_str());
    if !text.contains('\\') && !profile.payload_tenant_fields.iter().any(named) {
        return None;
    }
    let visitor = OtherTenant { fields: &profile.payload_tenant_fields, tenant: &envelope.tenant };
    let mut json = serde_json::Deserializer::from_str(text);
    // A payload that is not an object has no tenant field; its shape is checked by the schema.
    serde::Deserializer::deserialize_any(&mut json, visitor).unwrap_or(None)
}

/// Reads the top level of a payload without building the rest.
struct OtherTenant<'a> {
    fields: &'a [String],
    tenant: &'a Tenant,
}

impl<'de> Visitor<'de> for OtherTenant<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut other = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if !self.fields.iter().any(|field| *field == key) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value::<Value>()?;
            if !value.is_null() && value.as_str() != Some(self.tenant.as_str()) {
                other = other.or(Some(value.to_string()));
            }
        }
        Ok(other)
    }
}

fn json_len<T: serde::Serialize>(value: &T) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Writing to a counter cannot fail, and a map of JSON values always serialises.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}
