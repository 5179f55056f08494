//! Making a new event.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::envelope::{Actor, Aggregate, Cause, Envelope, Payload, Producer, Tenant, TraceContext};
use crate::id::Id;
use crate::port::{Clock, Ids};
use crate::profile::{IdempotencyRule, Profile};
use crate::rules::{self, Violations};

/// A typed event: a payload with its subject and its aggregate.
///
/// `#[derive(Event)]` of the crate `chapar` implements it; by hand it looks like this:
///
/// ```
/// use chapar_core::Event;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct BookingConfirmed { reservation: String, version: u32 }
///
/// impl Event for BookingConfirmed {
///     const SUBJECT: &'static str = "melmastoon.reservation.booking.confirmed.v1";
///     const AGGREGATE: &'static str = "booking";
///     fn aggregate_id(&self) -> String { self.reservation.clone() }
///     fn intent(&self) -> Option<String> {
///         Some(format!("{}:confirmed:{}", self.reservation, self.version))
///     }
/// }
///
/// let draft = BookingConfirmed { reservation: "res_1".into(), version: 2 }.draft();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    label = "does not implement `Event`",
    note = "add `#[derive(Event, Serialize, Deserialize)]` and `#[event(\"subject\", id = field)]` to `{Self}`"
)]
pub trait Event: Serialize {
    /// The versioned subject.
    const SUBJECT: &'static str;
    /// The kind of aggregate it is about.
    const AGGREGATE: &'static str;

    /// The aggregate it is about.
    fn aggregate_id(&self) -> String;

    /// The idempotency key: the same text whenever the same business intent is repeated.
    ///
    /// A system whose profile requires idempotency keys refuses an event without one.
    fn intent(&self) -> Option<String> {
        None
    }

    /// A draft of this event, for facts that the payload does not hold.
    ///
    /// A payload that cannot be written as JSON is reported when the draft is sealed.
    fn draft(&self) -> Draft {
        let aggregate =
            Aggregate { kind: Self::AGGREGATE.into(), id: self.aggregate_id(), version: None };
        let empty = Payload::Bytes(Default::default());
        let mut draft = Draft::new(Self::SUBJECT, aggregate, empty);
        draft.payload = Payload::json(self).map_err(|error| error.to_string());
        draft.idempotency_key = self.intent();
        draft
    }
}

/// What can be appended or emitted: a typed [`Event`], or a [`Draft`] that says more.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    label = "neither an `Event` nor a `Draft`",
    note = "add `#[derive(Event, Serialize, Deserialize)]` and `#[event(\"subject\", id = field)]` to `{Self}`"
)]
pub trait IntoDraft {
    /// The draft.
    fn into_draft(self) -> Draft;
}

#[diagnostic::do_not_recommend]
impl<E: Event> IntoDraft for E {
    fn into_draft(self) -> Draft {
        self.draft()
    }
}

impl IntoDraft for Draft {
    fn into_draft(self) -> Draft {
        self
    }
}

/// An event that is not sealed yet.
///
/// Mandatory fields are arguments of [`Draft::new`]; all others have a default or come from the
/// [`Profile`] and the producing service when the draft is [sealed](Draft::seal).
#[derive(Debug, Clone)]
#[must_use = "a draft does nothing until it is appended"]
pub struct Draft {
    subject: String,
    aggregate: Aggregate,
    payload: Result<Payload, String>,
    content_type: Option<String>,
    schema: Option<String>,
    correlation: Option<Id>,
    causation: Option<Id>,
    actor: Option<Actor>,
    occurred_at: Option<Timestamp>,
    idempotency_key: Option<String>,
    ordering_key: Option<String>,
    unordered: bool,
    retention: Option<String>,
    residency: Option<String>,
    offline_replay: bool,
    thin: bool,
    ai_provenance: Option<Value>,
    trace: Option<TraceContext>,
    metadata: std::collections::BTreeMap<String, Value>,
}

impl Draft {
    /// A draft with everything that no event can do without.
    pub fn new(subject: impl Into<String>, aggregate: Aggregate, payload: Payload) -> Self {
        Draft {
            subject: subject.into(),
            aggregate,
            payload: Ok(payload),
            content_type: None,
            schema: None,
            correlation: None,
            causation: None,
            actor: None,
            occurred_at: None,
            idempotency_key: None,
            ordering_key: None,
            unordered: false,
            retention: None,
            residency: None,
            offline_replay: false,
            thin: false,
            ai_provenance: None,
            trace: None,
            metadata: Default::default(),
        }
    }

    /// The subject it was made for.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Joins the causation chain of `parent`: same correlation, trace and actor, caused by it.
    pub fn caused_by(self, parent: &Envelope) -> Self {
        self.in_chain(&parent.cause())
    }

    /// Joins a causation chain, where the draft does not set these fields itself.
    pub fn in_chain(mut self, cause: &Cause) -> Self {
        self.correlation.get_or_insert_with(|| cause.correlation.clone());
        self.causation = self.causation.or_else(|| cause.causation.clone());
        self.trace = self.trace.or_else(|| cause.trace.clone());
        self.actor = self.actor.or_else(|| cause.actor.clone());
        self
    }

    /// Sets the correlation id that came with a request.
    pub fn correlated(mut self, correlation: Id) -> Self {
        self.correlation = Some(correlation);
        self
    }

    /// Sets the command or request that caused it.
    pub fn caused_by_id(mut self, causation: Id) -> Self {
        self.causation = Some(causation);
        self
    }

    /// Sets the actor that caused it.
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = Some(actor);
        self
    }

    /// Sets the aggregate's version after the change.
    pub fn aggregate_version(mut self, version: i64) -> Self {
        self.aggregate.version = Some(version);
        self
    }

    /// Sets when the fact occurred, if not now.
    pub fn occurred_at(mut self, at: Timestamp) -> Self {
        self.occurred_at = Some(at);
        self
    }

    /// Sets the idempotency key.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Orders by this instead of the aggregate's id. Where the profile orders by tenants, the tenant
    /// is put in front of it.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Makes the event unordered: it does not wait for other events of its key, and they do not
    /// wait for it.
    pub fn unordered(mut self) -> Self {
        self.unordered = true;
        self
    }

    /// Sets the retention class.
    pub fn retention(mut self, class: impl Into<String>) -> Self {
        self.retention = Some(class.into());
        self
    }

    /// Sets the region that the data must stay in.
    pub fn residency(mut self, region: impl Into<String>) -> Self {
        self.residency = Some(region.into());
        self
    }

    /// Sets the address of the payload's schema, with its content hash.
    pub fn schema(mut self, uri: impl Into<String>) -> Self {
        self.schema = Some(uri.into());
        self
    }

    /// Sets the payload's media type, if it is not JSON.
    pub fn content_type(mut self, media_type: impl Into<String>) -> Self {
        self.content_type = Some(media_type.into());
        self
    }

    /// Marks an event that a device recorded while offline.
    pub fn offline_replay(mut self) -> Self {
        self.offline_replay = true;
        self
    }

    /// Declares a thin event: an id, a change type and a reference instead of the facts.
    pub fn thin(mut self) -> Self {
        self.thin = true;
        self
    }

    /// Sets the provenance of an AI result.
    pub fn ai_provenance(mut self, provenance: Value) -> Self {
        self.ai_provenance = Some(provenance);
        self
    }

    /// Sets the trace context.
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Adds a metadata entry.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Completes the draft for a tenant by the system's profile and checks it against every rule.
    ///
    /// All broken rules are reported at once.
    pub fn seal(
        self,
        tenant: &Tenant,
        profile: &Profile,
        producer: &Producer,
        clock: &dyn Clock,
        ids: &dyn Ids,
    ) -> Result<Envelope, Violations> {
        let subject = profile.subject(&self.subject).map_err(Violations::from)?;
        let payload = self.payload.map_err(Violations::unwritable)?;
        let now = clock.now();
        let tenant = profile.fixed_tenant.as_ref().unwrap_or(tenant).clone();
        let id = ids.next(profile.event_ids, now);
        let idempotency_key = match (self.idempotency_key, profile.idempotency) {
            (None, IdempotencyRule::EventId) => Some(id.to_string()),
            (key, _) => key,
        };
        let key = match &self.ordering_key {
            Some(own) => profile.key_template.of(&tenant, own),
            None => profile.key_template.fill(&tenant, &self.aggregate.id),
        };
        let envelope = Envelope {
            id,
            event_type: subject.event_type().to_owned(),
            version: subject.version(),
            schema: self.schema,
            correlation: self.correlation.unwrap_or_else(|| ids.next(profile.correlation_ids, now)),
            causation: self.causation,
            actor: self.actor,
            occurred_at: self.occurred_at.unwrap_or(now),
            ingested_at: None,
            written_at: None,
            producer: producer.clone(),
            source: None,
            content_type: match &payload {
                Payload::Json(_) => self.content_type.filter(|given| given != "application/json"),
                Payload::Bytes(_) => self.content_type,
            },
            idempotency_key,
            ordering_key: (!self.unordered).then_some(key),
            aggregate: Some(self.aggregate),
            retention: self
                .retention
                .or_else(|| profile.retention_of(subject.as_str()).map(str::to_owned)),
            residency: self.residency.or_else(|| profile.default_residency.clone()),
            offline_replay: self.offline_replay,
            ai_provenance: self.ai_provenance,
            outbox_id: None,
            trace: self.trace,
            metadata: self.metadata,
            extensions: Default::default(),
            payload,
            tenant,
        };
        rules::check(&envelope, profile, self.thin)?;
        Ok(envelope)
    }
}
