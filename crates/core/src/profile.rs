//! Profiles: the differences between systems, as data.
//!
//! One engine serves every system. A difference between them (ids, keys, names, retention) is a
//! field of a [`Profile`], never a fork of the code. A system's profile is a TOML file beside its
//! catalog.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::envelope::Tenant;
use crate::id::IdKind;
use crate::subject::{Grammar, MAX_SUBJECT, Subject, SubjectError};

/// Everything that one system decides for itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The system's name.
    pub name: String,
    /// The dialect of its events on the wire.
    pub dialect: DialectName,
    /// Whether CloudEvents that break the specification's rules about attributes are read. What is
    /// written keeps them. Default false.
    #[serde(default)]
    pub lenient_reading: bool,
    /// The grammar of its subjects.
    pub grammar: Grammar,
    /// The kind of id that its events get.
    pub event_ids: IdKind,
    /// The kind of id that a new correlation gets.
    pub correlation_ids: IdKind,
    /// Whether an event must carry an idempotency key.
    pub idempotency: IdempotencyRule,
    /// The template of ordering keys.
    pub key_template: KeyTemplate,
    /// The only tenant of a system without tenants.
    #[serde(default)]
    pub fixed_tenant: Option<Tenant>,
    /// The template of the topics that copies of dead letters go to.
    pub dlq_template: NameTemplate,
    /// Payload fields that hold a tenant and must agree with the envelope.
    #[serde(default)]
    pub payload_tenant_fields: Vec<String>,
    /// Subjects that may belong to the platform instead of a tenant.
    #[serde(default)]
    pub platform_subjects: Vec<Pattern>,
    /// Subjects that must carry AI provenance.
    #[serde(default)]
    pub ai_subjects: Vec<Pattern>,
    /// The spaces that cross-tenant topics must be in.
    #[serde(default)]
    pub cross_tenant_spaces: Vec<Pattern>,
    /// The registered cross-tenant topics.
    #[serde(default)]
    pub cross_tenant: Vec<CrossTenant>,
    /// The regions data may be bound to; empty allows any.
    #[serde(default)]
    pub residencies: Vec<String>,
    /// The region of an event that does not name one.
    #[serde(default)]
    pub default_residency: Option<String>,
    /// The retention classes by name.
    #[serde(default)]
    pub retention: BTreeMap<String, Retention>,
    /// Which subjects are in which class; the first match counts.
    #[serde(default)]
    pub retention_rules: Vec<RetentionRule>,
    /// Service directory to the token in its subjects.
    #[serde(default)]
    pub services: BTreeMap<String, String>,
    /// Subjects that break the grammar and are accepted by name, each with its reason.
    #[serde(default)]
    pub exceptions: BTreeMap<String, String>,
    /// The exported names of instruments for which the system has its own.
    #[serde(default)]
    pub metrics: BTreeMap<Instrument, String>,
    /// Protobuf messages by event type, for dialects whose envelope lies inside the message.
    #[serde(default)]
    pub messages: BTreeMap<String, ProtoMessage>,
}

/// The wire dialects, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DialectName {
    /// JSON whose less common fields are in `metadata`.
    MetadataJson,
    /// JSON with all its fields at the top level.
    FlatJson,
    /// CloudEvents 1.0.
    #[serde(rename = "cloudevents")]
    CloudEvents,
    /// Protobuf with the envelope's fields inside the message.
    InlineProtobuf,
}

/// Whether an event must carry an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdempotencyRule {
    /// Every event must; one without is refused.
    Required,
    /// It may.
    Optional,
    /// The event id serves where none is given.
    EventId,
}

/// A template over `{tenant}` and `{aggregate_id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyTemplate(String);

/// A template over `{topic}` and `{stream}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameTemplate(String);

/// A subject, or the beginning of one followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern(String);

/// A topic whose readers legitimately span tenants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossTenant {
    /// The topic.
    pub subject: String,
    /// The only service that may publish it.
    pub publisher: String,
    /// The services that may read it across tenants.
    pub readers: Vec<String>,
}

/// How long a class of events is kept, in days, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// In the broker.
    pub hot_days: u32,
    /// In the warehouse.
    #[serde(default)]
    pub warm_days: u32,
    /// In cold storage.
    #[serde(default)]
    pub cold_days: u32,
}

/// Puts subjects into a retention class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionRule {
    /// The class.
    pub class: String,
    /// Its subjects.
    pub subjects: Vec<Pattern>,
}

/// The Protobuf message of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtoMessage {
    /// The full name of the message.
    pub message: String,
    /// The field that holds the aggregate's id.
    pub aggregate_field: String,
    /// The kind of aggregate.
    pub aggregate: String,
}

/// The instruments of the engine. A profile gives each the name that its dashboards use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Instrument {
    EventsPublished,
    PublishErrors,
    PublishDuration,
    PublishRate,
    PublishBlocked,
    OutboxUnpublished,
    OutboxOldestUnpublished,
    EventsConsumed,
    ConsumeErrors,
    ConsumeRate,
    ProcessingDuration,
    ConsumerLag,
    InboxDuplicates,
    DeadLettered,
    DeadLetterDepth,
    SchemaFailures,
    SagasInFlight,
    SagasCompleted,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML of the expected shape.
    #[error("the profile is not valid TOML of the expected shape: {0}")]
    Toml(#[from] toml::de::Error),
    /// A rule names a retention class that is not declared.
    #[error("a retention rule names the class {0:?}, which [retention] does not declare")]
    RetentionClass(String),
    /// A cross-tenant topic lies outside the spaces for them.
    #[error("the cross-tenant topic {0:?} is outside cross_tenant_spaces")]
    CrossTenant(String),
    /// The default residency is not one of the residencies.
    #[error("default_residency {0:?} is not one of residencies")]
    Residency(String),
    /// An exception is not a valid subject.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// A template names something that does not exist.
    #[error("the template {0:?} names a placeholder other than {1}")]
    Template(String, &'static str),
    /// The keys of two tenants could be the same.
    #[error(
        "the key_template {0:?} has the tenant elsewhere than in front of a colon: write {{tenant}}:…"
    )]
    AmbiguousKey(String),
}

impl Profile {
    /// Reads and checks a profile.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        let profile: Profile = toml::from_str(text)?;
        for rule in &profile.retention_rules {
            if !profile.retention.contains_key(&rule.class) {
                return Err(ProfileError::RetentionClass(rule.class.clone()));
            }
        }
        for topic in &profile.cross_tenant {
            if !matches_any(&profile.cross_tenant_spaces, &topic.subject) {
                return Err(ProfileError::CrossTenant(topic.subject.clone()));
            }
        }
        if let Some(region) = &profile.default_residency
            && !profile.residencies.contains(region)
        {
            return Err(ProfileError::Residency(region.clone()));
        }
        for subject in profile.exceptions.keys() {
            Subject::exception(profile.prefix(), subject)?;
        }
        profile.key_template.check()?;
        check_template(&profile.dlq_template.0, "{topic}", "{stream}")
            .map_err(|t| ProfileError::Template(t, "{topic} and {stream}"))?;
        Ok(profile)
    }

    /// Parses a subject by the system's grammar, services and named exceptions.
    pub fn subject(&self, text: &str) -> Result<Subject, SubjectError> {
        if self.exceptions.contains_key(text) {
            return Subject::exception(self.prefix(), text);
        }
        let known = |service: &str| {
            self.services.is_empty() || self.services.values().any(|token| token == service)
        };
        Subject::parse_among(self.grammar, &self.name, &known, text)
    }

    /// The first segment of its subjects, if the grammar has one.
    fn prefix(&self) -> Option<&str> {
        (self.grammar == Grammar::Prefixed).then_some(self.name.as_str())
    }

    /// A regular expression of PostgreSQL for the subjects that [`Profile::subject`] accepts, save
    /// versions beyond 32 bits.
    pub fn subject_pattern(&self) -> String {
        let mut services: Vec<&str> = self.services.values().map(String::as_str).collect();
        services.sort_unstable();
        services.dedup();
        let escaped = |text: &str| text.replace('.', "\\.");
        let exceptions = self.exceptions.keys().map(|subject| escaped(subject));
        let forms: Vec<String> = std::iter::once(self.grammar.pattern(&self.name, &services))
            .chain(exceptions)
            .collect();
        format!("^(?=.{{1,{MAX_SUBJECT}}}$)(?:{})$", forms.join("|"))
    }

    /// A subject without the system's name as prefix, if the grammar has one.
    pub fn short<'s>(&self, subject: &'s str) -> &'s str {
        let rest = subject.strip_prefix(self.name.as_str());
        rest.and_then(|rest| rest.strip_prefix('.')).unwrap_or(subject)
    }

    /// The retention class of a subject.
    pub fn retention_of(&self, subject: &str) -> Option<&str> {
        let rule = self.retention_rules.iter().find(|rule| matches_any(&rule.subjects, subject));
        rule.map(|rule| rule.class.as_str())
    }

    /// The exported name of an instrument.
    pub fn metric(&self, instrument: Instrument) -> Option<&str> {
        self.metrics.get(&instrument).map(String::as_str)
    }
}

impl Profile {
    /// The default profile under the system's name.
    pub fn named(name: impl Into<String>) -> Self {
        Profile { name: name.into(), ..Self::default() }
    }

    /// The dialect of its events; none for Protobuf, which takes descriptors.
    pub fn dialect(&self) -> Option<std::sync::Arc<dyn crate::dialect::Dialect>> {
        crate::dialect::of(self)
    }

    /// Events are ordered by this template over `{tenant}` and `{aggregate_id}`.
    pub fn ordered_by(mut self, template: &str) -> Result<Self, ProfileError> {
        self.key_template = KeyTemplate(template.to_owned());
        self.key_template.check()?;
        Ok(self)
    }
}

impl Default for Profile {
    /// CloudEvents with plain subjects, ordered by the tenant's aggregates: enough to begin with.
    fn default() -> Self {
        Self::from_toml(include_str!("default_profile.toml"))
            .expect("the default is tested to be valid")
    }
}

impl KeyTemplate {
    /// The template itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn check(&self) -> Result<(), ProfileError> {
        check_template(&self.0, "{tenant}", "{aggregate_id}")
            .map_err(|t| ProfileError::Template(t, "{tenant} and {aggregate_id}"))?;
        // A tenant has no colon, so that what is before the first one is the tenant.
        match self.0.strip_prefix("{tenant}") {
            Some(rest) if rest.is_empty() || rest.starts_with(':') => Ok(()),
            None if !self.0.contains("{tenant}") => Ok(()),
            _ => Err(ProfileError::AmbiguousKey(self.0.clone())),
        }
    }

    /// Whether keys of different tenants are different.
    pub fn is_by_tenant(&self) -> bool {
        self.0.starts_with("{tenant}")
    }

    /// Whether a key is one of this tenant. Any key is where keys are not by tenant.
    pub fn is_key_of(&self, tenant: &str, key: &str) -> bool {
        !self.is_by_tenant()
            || key.strip_prefix(tenant).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    }

    /// The ordering key of a tenant by another value than the id of an aggregate.
    pub fn of(&self, tenant: &Tenant, value: &str) -> String {
        match self.0.contains("{aggregate_id}") {
            true => self.fill(tenant, value),
            false => format!("{}:{value}", self.fill(tenant, "")),
        }
    }

    /// The ordering key for an aggregate of a tenant.
    pub fn fill(&self, tenant: &Tenant, aggregate_id: &str) -> String {
        // The id is inserted last, so that a tenant's name cannot inject a placeholder.
        match self.0.split_once("{aggregate_id}") {
            Some((before, after)) => format!(
                "{}{aggregate_id}{}",
                before.replace("{tenant}", tenant.as_str()),
                after.replace("{tenant}", tenant.as_str())
            ),
            None => self.0.replace("{tenant}", tenant.as_str()),
        }
    }

    /// The aggregate id inside a key of this template, if the template has one and the key matches.
    pub fn aggregate_id<'k>(&self, tenant: &Tenant, key: &'k str) -> Option<&'k str> {
        let (before, after) = self.0.split_once("{aggregate_id}")?;
        let before = before.replace("{tenant}", tenant.as_str());
        let after = after.replace("{tenant}", tenant.as_str());
        key.strip_prefix(before.as_str())?.strip_suffix(after.as_str())
    }
}

impl NameTemplate {
    /// The name for a topic in a stream.
    pub fn fill(&self, topic: &str, stream: &str) -> String {
        self.0.replace("{topic}", topic).replace("{stream}", stream)
    }
}

impl Pattern {
    /// The pattern written as this text.
    pub fn new(text: impl Into<String>) -> Self {
        Pattern(text.into())
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a subject matches.
    pub fn matches(&self, subject: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => subject.starts_with(start),
            None => self.0 == subject,
        }
    }
}

pub(crate) fn matches_any(patterns: &[Pattern], subject: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(subject))
}

fn check_template(template: &str, one: &str, other: &str) -> Result<(), String> {
    let rest = template.replace(one, "").replace(other, "");
    if rest.contains(['{', '}']) { Err(template.to_owned()) } else { Ok(()) }
}
