use std::sync::Arc;

use chapar_core::bundle::Contract;
use chapar_core::convert::DUAL_PUBLISH_OF;
use chapar_core::dialect::{Dialect, EncodeError, Message};
use chapar_core::port::{Clock, Ids, OutboxDraft, OutboxRow, SystemClock, SystemIds};
use chapar_core::{
    Actor, Aggregate, Cause, Code, Draft, Envelope, Id, IntoDraft, Payload, Producer, Profile,
    Subject, Tenant, Violations, rules,
};
use chapar_sql::{Append, Appended, Conn, Store, StoreError, Tables, Tx};
use serde::Deserialize;
use tracing::warn;

use crate::command::Command;
use crate::metrics::Blocked;
use crate::registry::Registry;

/// The backbone as one service sees it. Cheap to clone.
#[derive(Clone)]
pub struct Chapar(Arc<Inner>);

struct Inner {
    store: Store,
    profile: Profile,
    dialect: Arc<dyn Dialect>,
    producer: Producer,
    registry: Option<Arc<Registry>>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    blocked: Blocked,
}

/// Why an event was not appended. Nothing was written, and the transaction can only be rolled
/// back if it was the database that refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The event breaks a rule.
    #[error(transparent)]
    Rules(#[from] Violations),
    /// The event cannot be written in the system's dialect.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The store refused; an idempotency key used for another payload is among the reasons.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An event that may be appended, and the same fact in the version before where both travel.
pub(crate) struct Sealed {
    pub(crate) event: Append,
    pub(crate) older: Option<Append>,
}

/// What a [`Chapar`] is made of.
pub struct ChaparBuilder {
    store: Store,
    profile: Profile,
    dialect: Arc<dyn Dialect>,
    producer: Producer,
    registry: Option<Arc<Registry>>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Chapar {
    /// A backbone on a store, for a system and its dialect.
    pub fn builder(store: Store, profile: Profile, dialect: Arc<dyn Dialect>) -> ChaparBuilder {
        ChaparBuilder {
            store,
            profile,
            dialect,
            producer: Producer::default(),
            registry: None,
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
        }
    }

    /// The same backbone for another service in the same process.
    pub fn for_service(&self, service: &str) -> Chapar {
        let producer = Producer { service: service.to_owned(), ..self.0.producer.clone() };
        Chapar(Arc::new(Inner {
            store: self.0.store.clone(),
            profile: self.0.profile.clone(),
            dialect: self.0.dialect.clone(),
            producer,
            registry: self.0.registry.clone(),
            clock: self.0.clock.clone(),
            ids: self.0.ids.clone(),
            blocked: self.0.blocked.clone(),
        }))
    }

    /// A command of a tenant: work in one transaction that a request sets off, not an event.
    ///
    /// ```
    /// use chapar::prelude::*;
    /// # #[derive(Event, Serialize, Deserialize)]
    /// # #[event("shop.order.placed.v1", id = order)]
    /// # struct OrderPlaced { order: String }
    ///
    /// async fn place(chapar: &Chapar, tenant: &Tenant, order: &str) -> Handled {
    ///     let command = chapar.command(tenant);
    ///     command.run(async |cx| cx.emit(OrderPlaced { order: order.to_owned() }).await).await
    /// }
    /// ```
    pub fn command(&self, tenant: &Tenant) -> Command {
        Command::new(self.clone(), tenant)
    }

    /// The same backbone by another clock, for tests that turn it.
    pub fn with_clock(&self, clock: Arc<dyn Clock>) -> Chapar {
        Chapar(Arc::new(Inner {
            store: self.0.store.clone(),
            profile: self.0.profile.clone(),
            dialect: self.0.dialect.clone(),
            producer: self.0.producer.clone(),
            registry: self.0.registry.clone(),
            clock,
            ids: self.0.ids.clone(),
            blocked: self.0.blocked.clone(),
        }))
    }

    /// Appends an event of a tenant in the caller's transaction: ours, or one of `sqlx`.
    ///
    /// Once the transaction commits the event is published at least once; if it rolls back,
    /// never. The same idempotency key and payload appended again give the first event's id.
    ///
    /// While a contract is published in two versions, an event of the new one is appended in the
    /// old one as well, or not at all. The answer is about the new one.
    pub async fn append<'t>(
        &self,
        tx: impl Into<Conn<'t>>,
        tenant: &Tenant,
        event: impl IntoDraft,
    ) -> Result<Appended, AppendError> {
        let Sealed { event, older } = self.seal(tenant, event.into_draft())?;
        let events: Vec<Append> = std::iter::once(event).chain(older).collect();
        let appended = tx.into().outbox_rows().append(&events).await?;
        Ok(appended.into_iter().next().expect("one event gives one answer"))
    }

    /// Checks and completes an event for a transaction of another driver, such as
    /// `tokio-postgres`. Run [`Append::CALL`] in it for each of the answers, which are sorted by
    /// key so that no two transactions wait for each other:
    ///
    /// ```text
    /// for event in chapar.prepare(&tenant, events)? {
    ///     tx.query_one(Append::CALL, &[&event.event_id, &event.tenant, /* … */]).await?;
    /// }
    /// ```
    pub fn prepare(
        &self,
        tenant: &Tenant,
        given: impl IntoIterator<Item = impl IntoDraft>,
    ) -> Result<Vec<Append>, AppendError> {
        let mut events = Vec::new();
        for event in given {
            let Sealed { event, older } = self.seal(tenant, event.into_draft())?;
            events.extend(std::iter::once(event).chain(older));
        }
        Append::sort(&mut events);
        Ok(events)
    }

    /// Appends several events of a tenant in the caller's transaction, all or nothing.
    ///
    /// Cheaper than one by one, and free of deadlocks: every caller locks the keys in the same
    /// order. The answers are in the order of the events.
    pub async fn append_batch<'t>(
        &self,
        tx: impl Into<Conn<'t>>,
        tenant: &Tenant,
        batch: impl IntoIterator<Item = impl IntoDraft>,
    ) -> Result<Vec<Appended>, AppendError> {
        let mut events = Vec::new();
        // Whether each event is one that was given, or its older version that goes beside it.
        let mut given = Vec::new();
        for event in batch {
            let Sealed { event, older } = self.seal(tenant, event.into_draft())?;
            given.push(true);
            given.extend(older.iter().map(|_| false));
            events.extend(std::iter::once(event).chain(older));
        }
        let appended = tx.into().outbox_rows().append(&events).await?;
        let answers = appended.into_iter().zip(given).filter(|(_, given)| *given);
        Ok(answers.map(|(answer, _)| answer).collect())
    }

    /// Begins a transaction on behalf of a tenant.
    pub async fn begin(&self, tenant: &Tenant) -> Result<Tx, StoreError> {
        self.0.store.begin(tenant.as_str()).await
    }

    /// Commits, and wakes the relay of this process.
    pub async fn commit(&self, tx: Tx) -> Result<(), StoreError> {
        tx.commit().await?;
        self.0.store.nudge();
        Ok(())
    }

    /// What a consumer [answered](crate::Cx::respond) to an intent of a tenant, as JSON; none if
    /// it has not carried it out, or did not answer.
    pub async fn response(
        &self,
        consumer: &str,
        tenant: &Tenant,
        idempotency_key: &str,
    ) -> Result<Option<String>, StoreError> {
        let mut tx = self.store().begin(tenant.as_str()).await?;
        let response = tx.inbox().response(consumer, tenant.as_str(), idempotency_key).await?;
        tx.rollback().await?;
        Ok(response)
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The system's profile.
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// The events that a rule kept from being published, over all services of this process.
    pub fn blocked(&self) -> &Blocked {
        &self.0.blocked
    }

    /// The service on whose behalf this backbone works.
    pub(crate) fn service(&self) -> &str {
        &self.0.producer.service
    }

    pub(crate) fn registry(&self) -> Option<&Registry> {
        self.0.registry.as_deref()
    }

    pub(crate) fn dialect(&self) -> &dyn Dialect {
        &*self.0.dialect
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.0.clock
    }

    pub(crate) fn new_correlation(&self) -> Id {
        self.0.ids.next(self.0.profile.correlation_ids, self.0.clock.now())
    }

    /// A new id, of the kind that the system's events have.
    pub fn new_id(&self) -> Id {
        self.0.ids.next(self.0.profile.event_ids, self.0.clock.now())
    }

    pub(crate) fn seal_caused(
        &self,
        event: impl IntoDraft,
        cause: &Cause,
    ) -> Result<Sealed, AppendError> {
        self.seal(&cause.tenant, event.into_draft().in_chain(cause))
    }

    fn seal(&self, tenant: &Tenant, draft: Draft) -> Result<Sealed, AppendError> {
        let sealed = self.sealed(tenant, draft);
        if let Err(AppendError::Rules(violations)) = &sealed {
            self.0.blocked.add(violations, &self.0.producer.service);
        }
        sealed
    }

    fn sealed(&self, tenant: &Tenant, mut draft: Draft) -> Result<Sealed, AppendError> {
        let inner = &self.0;
        let subject = draft.subject().to_owned();
        let Some(registry) = &inner.registry else {
            let envelope = self.complete_draft(tenant, draft)?;
            return Ok(Sealed { event: self.encoded(&envelope, None)?, older: None });
        };
        let entry = registry.may_publish(&subject, Some(&inner.producer.service))?;
        let contract = &entry.contract;
        self.warn_of_deprecation(contract);
        draft = draft.schema(contract.uri.as_str());
        if contract.thin {
            draft = draft.thin();
        }
        let envelope = self.complete_draft(tenant, draft)?;
        registry.check_written(&subject, &envelope.payload)?;
        let event = self.encoded(&envelope, Some(contract))?;
        let older = match registry.older(contract, &envelope.payload)? {
            Some((older, payload)) => Some(self.beside(envelope, &older.contract, payload)?),
            None => None,
        };
        Ok(Sealed { event, older })
    }

    fn complete_draft(&self, tenant: &Tenant, draft: Draft) -> Result<Envelope, Violations> {
        let inner = &self.0;
        draft.seal(tenant, &inner.profile, &inner.producer, &*inner.clock, &*inner.ids)
    }

    /// The same fact in the version before: an event of its own, caused by the newer one and
    /// marked as its twin, under the same keys.
    fn beside(
        &self,
        newer: Envelope,
        older: &Contract,
        payload: Payload,
    ) -> Result<Append, AppendError> {
        let profile = &self.0.profile;
        let subject = profile.subject(&older.subject).map_err(Violations::from)?;
        let mut metadata = newer.metadata.clone();
        metadata.insert(DUAL_PUBLISH_OF.to_owned(), newer.id.to_string().into());
        let envelope = Envelope {
            id: self.new_id(),
            event_type: subject.event_type().to_owned(),
            version: subject.version(),
            schema: Some(older.uri.clone()),
            causation: Some(newer.id.clone()),
            retention: profile.retention_of(&older.subject).map(str::to_owned).or(newer.retention),
            // Where the profile takes the event id, the older one goes by the newer one's.
            idempotency_key: newer.idempotency_key,
            metadata,
            payload,
            ..newer
        };
        rules::check(&envelope, profile, older.thin)?;
        self.encoded(&envelope, Some(older))
    }

    fn encoded(
        &self,
        envelope: &Envelope,
        contract: Option<&Contract>,
    ) -> Result<Append, AppendError> {
        let mut message = self.0.dialect.encode(envelope)?;
        if let (Some(registry), Some(contract)) = (&self.0.registry, contract) {
            registry
                .check_message(&contract.subject, &message.body)
                .map_err(|reason| Violations::one(Code::SchemaInvalid, reason))?;
        }
        message.headers.extend(deprecation(contract));
        let (aggregate_type, aggregate_id) = match &envelope.aggregate {
            Some(aggregate) => (aggregate.kind.clone(), aggregate.id.clone()),
            None => Default::default(),
        };
        Ok(Append {
            event_id: envelope.id.to_string(),
            tenant: envelope.tenant.as_str().to_owned(),
            topic: topic(&self.0.profile, envelope),
            ordering_key: envelope.ordering_key.clone(),
            aggregate_type,
            aggregate_id,
            idempotency_key: envelope.idempotency_key.clone(),
            payload_hash: Append::hash(envelope.payload.as_bytes()),
            correlation_id: envelope.correlation.to_string(),
            causation_id: envelope.causation.as_ref().map(Id::to_string),
            headers: serde_json::to_string(&message.headers).unwrap_or_else(|_| "[]".into()),
            body: message.body,
        })
    }

    fn warn_of_deprecation(&self, contract: &Contract) {
        if let Some(why) = &contract.deprecated {
            warn!(topic = contract.subject, service = self.0.producer.service, why, "deprecated");
        }
    }

    /// Checks that a message is of the tenant that it was written for: in its envelope, in its headers
    /// and in its ordering key. Where the database only knows who wrote it, another tenant's event
    /// could be in the body.
    pub(crate) fn check_tenant(
        &self,
        written_for: Option<&str>,
        tenant: &str,
        message: &Message,
        key: Option<&str>,
    ) -> Result<(), Violations> {
        let header = message.header(TENANT_HEADER).filter(|header| *header != tenant);
        let other = written_for.filter(|other| *other != tenant).or(header);
        // What comes from producers outside may have a key that names no tenant at all.
        let key = key.filter(|key| written_for.is_some() || key.contains(':'));
        rules::check_tenant(other.unwrap_or(tenant), tenant, key, &self.0.profile)
    }

    /// Checks a row that was sealed by the library, or by a program that says so.
    fn check_sealed(&self, row: &mut OutboxRow) -> Result<(), String> {
        let headers = std::mem::take(&mut row.headers);
        let message = Message { topic: Some(row.topic.clone()), headers, body: row.body.clone() };
        let checked =
            self.0.dialect.tenant(&message).map_err(|e| e.to_string()).and_then(|inside| {
                let (row_tenant, key) = (Some(row.tenant.as_str()), row.key.as_deref());
                self.check_tenant(row_tenant, inside.as_str(), &message, key).map_err(
                    |violations| {
                        self.0.blocked.add(&violations, &self.0.producer.service);
                        violations.to_string()
                    },
                )
            });
        row.headers = message.headers;
        checked
    }

    /// Completes an event that came in by SQL, and checks it like any other.
    pub(crate) fn complete(&self, row: &mut OutboxRow) -> Result<(), String> {
        let Some(draft) = row.draft.take().map(|draft| *draft) else {
            return self.check_sealed(row);
        };
        let inner = &self.0;
        let refused = |violations: Violations| {
            inner.blocked.add(&violations, &inner.producer.service);
            violations.to_string()
        };
        let facts: Facts = serde_json::from_str(&draft.facts)
            .map_err(|e| format!("the facts given to chapar.emit are malformed: {e}"))?;
        let subject = inner.profile.subject(&row.topic).map_err(|e| refused(e.into()))?;
        let mut registered_as = None;
        if let Some(registry) = &inner.registry {
            // Where the service is not named, the database's grants say who may.
            let producer = facts.producer.as_deref();
            let registered = registry.may_publish(&row.topic, producer).map_err(refused)?;
            self.warn_of_deprecation(&registered.contract);
            if let Some(dual) = &registered.contract.dual_publish {
                // The other version would have to be in the transaction that is long over.
                let (topic, beside) = (&row.topic, &dual.subject);
                warn!(topic, beside, "chapar.emit writes one version; emit the other beside it");
            }
            registered_as = Some(registered);
        }
        let contract = registered_as.as_ref().map(|entry| &entry.contract);
        let envelope = self.emitted(row, draft, facts, &subject, contract)?;
        let thin = contract.is_some_and(|contract| contract.thin);
        rules::check(&envelope, &inner.profile, thin).map_err(refused)?;
        let key = row.key.as_deref();
        rules::check_tenant(&row.tenant, &row.tenant, key, &inner.profile).map_err(refused)?;
        if let Some(registry) = &inner.registry {
            registry.check_written(&row.topic, &envelope.payload).map_err(refused)?;
        }
        let message = inner.dialect.encode(&envelope).map_err(|e| e.to_string())?;
        if let Some(registry) = &inner.registry {
            registry.check_message(&row.topic, &message.body)?;
        }
        row.headers = message.headers;
        row.headers.extend(deprecation(contract));
        row.body = message.body;
        Ok(())
    }

    /// The envelope of what was given to `chapar.emit`.
    fn emitted(
        &self,
        row: &OutboxRow,
        draft: OutboxDraft,
        facts: Facts,
        subject: &Subject,
        contract: Option<&Contract>,
    ) -> Result<Envelope, String> {
        let profile = &self.0.profile;
        let payload = std::str::from_utf8(&row.body).map_err(|e| e.to_string())?;
        let parse = |id: &str| id.parse::<Id>().map_err(|e| e.to_string());
        Ok(Envelope {
            id: row.event_id.clone(),
            event_type: subject.event_type().to_owned(),
            version: subject.version(),
            schema: contract.map(|contract| contract.uri.clone()),
            tenant: row
                .tenant
                .parse()
                .map_err(|e: chapar_core::envelope::TenantError| e.to_string())?,
            correlation: parse(&draft.correlation_id)?,
            causation: draft.causation_id.as_deref().map(parse).transpose()?,
            actor: facts.actor,
            occurred_at: row.written_at,
            ingested_at: None,
            written_at: Some(row.written_at),
            producer: match facts.producer {
                Some(service) => Producer { service, ..Producer::default() },
                None => self.0.producer.clone(),
            },
            source: None,
            content_type: None,
            idempotency_key: draft.idempotency_key,
            ordering_key: row.key.clone(),
            aggregate: Some(Aggregate {
                kind: draft.aggregate_type,
                id: draft.aggregate_id,
                version: None,
            }),
            retention: profile.retention_of(&row.topic).map(str::to_owned),
            residency: profile.default_residency.clone(),
            offline_replay: false,
            ai_provenance: facts.ai_provenance,
            outbox_id: None,
            trace: None,
            metadata: facts.metadata.unwrap_or_default(),
            extensions: Default::default(),
            payload: Payload::from_json_text(payload).map_err(|e| e.to_string())?,
        })
    }
}

/// What `chapar.emit` writes in place of headers.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Facts {
    actor: Option<Actor>,
    metadata: Option<std::collections::BTreeMap<String, serde_json::Value>>,
    ai_provenance: Option<serde_json::Value>,
    producer: Option<String>,
}

/// The header in which JSON dialects repeat the tenant.
const TENANT_HEADER: &str = "tenantId";

/// The header of an event that should not be used any more.
pub(crate) const DEPRECATED: &str = "chapar-deprecated";

fn deprecation(contract: Option<&Contract>) -> Option<(&str, &str)> {
    let why = contract?.deprecated.as_ref()?;
    Some((DEPRECATED, why))
}

pub(crate) fn topic(profile: &Profile, envelope: &Envelope) -> String {
    match profile.grammar {
        chapar_core::Grammar::Plain | chapar_core::Grammar::Free => envelope.event_type.clone(),
        _ => envelope.subject(),
    }
}

impl ChaparBuilder {
    /// Names the producing service, its instance, revision and region.
    pub fn producer(mut self, producer: Producer) -> Self {
        self.producer = producer;
        self
    }

    /// The contracts of the system: what is not in it is refused, and payloads are checked.
    #[cfg(feature = "contracts")]
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = Some(Arc::new(registry));
        self
    }

    /// Another clock, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Another source of ids, for tests.
    pub fn ids(mut self, ids: Arc<dyn Ids>) -> Self {
        self.ids = ids;
        self
    }

    /// Makes it.
    pub fn build(self) -> Chapar {
        Chapar(Arc::new(Inner {
            store: self.store,
            profile: self.profile,
            dialect: self.dialect,
            producer: self.producer,
            registry: self.registry,
            clock: self.clock,
            ids: self.ids,
            blocked: Blocked::default(),
        }))
    }
}

impl std::fmt::Debug for Chapar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chapar")
            .field("store", &self.0.store.url())
            .field("system", &self.0.profile.name)
            .field("service", &self.0.producer.service)
            .finish()
    }
}
