use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use chapar_core::port::Position;
use chapar_core::{Cause, Envelope, IntoDraft, Tenant};
use chapar_sql::{Append, Arrival, FromRow, NewEffect, Tables, Tx, Value};
use jiff::Timestamp;
use serde::Serialize;

use crate::chapar::{Chapar, Sealed};
use crate::effects::{Effect, NewCall};
use crate::failure::{Failure, Handled};
use crate::statement::bind;

/// What a handler works with: the transaction it runs in, and the ways to hand work on.
///
/// Everything done through it commits together with the claim of the event, or not at all.
pub struct Cx {
    tx: Tx,
    chapar: Chapar,
    cause: Cause,
    event: Option<Arc<Envelope>>,
    /// All events of a set, for a handler that gets one.
    set: Vec<Arc<Envelope>>,
    /// The topic and the place that the event came from.
    came_from: Option<(String, Position)>,
    states: Arc<States>,
    emitted: Vec<Append>,
    started: Vec<(String, String)>,
    /// What runs this: a consumer, a timer, an effect or a command.
    origin: String,
    /// What came before its saga is being applied now.
    unstashing: bool,
    noop: bool,
}

/// What handlers share, by type.
#[derive(Default)]
pub(crate) struct States(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl States {
    pub(crate) fn insert<T: Any + Send + Sync>(&mut self, state: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(state));
    }
}

impl Cx {
    pub(crate) fn new(
        tx: Tx,
        chapar: Chapar,
        cause: Cause,
        states: Arc<States>,
        origin: impl Into<String>,
    ) -> Self {
        Cx {
            tx,
            chapar,
            cause,
            event: None,
            set: Vec::new(),
            came_from: None,
            states,
            emitted: Vec::new(),
            started: Vec::new(),
            origin: origin.into(),
            unstashing: false,
            noop: false,
        }
    }

    /// Executes a statement; says how many rows it changed.
    ///
    /// `:tenant` stands for the tenant on whose behalf this runs, `:now` for [`Cx::now`]; `$1`,
    /// `$2`, … for the [parameters](crate::params).
    pub async fn execute(&mut self, sql: &'static str, params: Vec<Value>) -> Result<u64, Failure> {
        self.serve().await?;
        let (sql, params) = bind(sql, params, &self.cause.tenant, self.now());
        Ok(self.tx.execute(sql, params).await?)
    }

    /// All rows of a query, each as a `T`: a column's type, a tuple, or a struct that derives
    /// [`FromRow`].
    pub async fn fetch_all<T: FromRow>(
        &mut self,
        sql: &'static str,
        params: Vec<Value>,
    ) -> Result<Vec<T>, Failure> {
        self.serve().await?;
        let (sql, params) = bind(sql, params, &self.cause.tenant, self.now());
        let rows = self.tx.fetch(sql, params).await?;
        Ok(rows.iter().map(T::from_row).collect::<Result<_, _>>()?)
    }

    /// The first row of a query, if there is one.
    pub async fn fetch_optional<T: FromRow>(
        &mut self,
        sql: &'static str,
        params: Vec<Value>,
    ) -> Result<Option<T>, Failure> {
        Ok(self.fetch_all(sql, params).await?.into_iter().next())
    }

    /// The first row of a query; none is a terminal failure.
    pub async fn fetch_one<T: FromRow>(
        &mut self,
        sql: &'static str,
        params: Vec<Value>,
    ) -> Result<T, Failure> {
        let row = self.fetch_optional(sql, params).await?;
        row.ok_or_else(|| Failure::terminal(format!("no row: {sql}")))
    }

    /// The transaction itself, for what the methods here do not offer: the native `sqlx`
    /// transaction, or functions that take one.
    pub fn tx(&mut self) -> &mut Tx {
        &mut self.tx
    }

    /// The transaction in the engine's role, for our own tables, which services may not write. User
    /// code must not run in it: see [`Cx::serve`].
    pub(crate) async fn engine(&mut self) -> Result<&mut Tx, Failure> {
        self.tx.become_engine().await?;
        Ok(&mut self.tx)
    }

    /// Puts the transaction into the role of the service, on behalf of the tenant, for user code.
    pub(crate) async fn serve(&mut self) -> Result<(), Failure> {
        Ok(self.tx.become_service(self.cause.tenant.as_str()).await?)
    }

    /// The tenant on whose behalf this runs.
    pub fn tenant(&self) -> &Tenant {
        &self.cause.tenant
    }

    /// The event that is being applied; none when a timer fired or an effect came back.
    pub fn event(&self) -> Option<&Envelope> {
        self.event.as_deref()
    }

    /// What emitted events inherit: correlation, causation, actor and trace.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Now, by the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.chapar.clock().now()
    }

    /// The state of this type that the [`App`](crate::App) was given.
    pub fn state<T: Any + Send + Sync>(&self) -> Result<&T, Failure> {
        let found = self.states.0.get(&TypeId::of::<T>());
        found.and_then(|state| state.downcast_ref()).ok_or_else(|| {
            let name = std::any::type_name::<T>();
            Failure::terminal(format!("no state of type {name} was given to the app"))
        })
    }

    /// Emits an event, caused by the one being applied.
    ///
    /// It is checked now and written when the handler is done, so that the locks on its key
    /// are held as briefly as can be.
    pub async fn emit(&mut self, event: impl IntoDraft) -> Handled {
        let Sealed { event, older } = self.chapar.seal_caused(event, &self.cause)?;
        self.emitted.extend(std::iter::once(event).chain(older));
        Ok(())
    }

    /// Asks for a call to a vendor, made after this transaction has committed.
    ///
    /// The same idempotency key asked for again changes nothing. The outcome comes back through
    /// the [`EffectTask`](crate::EffectTask) of this kind.
    pub async fn effect<C: Effect>(&mut self, request: C) -> Handled {
        self.request(NewCall::of(&request)?).await
    }

    pub(crate) async fn request(&mut self, call: NewCall) -> Handled {
        let effect = NewEffect {
            kind: call.kind.to_owned(),
            idempotency_key: call.idempotency_key,
            tenant: self.cause.tenant.as_str().to_owned(),
            request: call.request,
            cause: serde_json::to_vec(&self.cause)?,
            due_at: self.now(),
        };
        self.tx.effects().request(&effect).await?;
        Ok(())
    }

    /// Turns to the `n`th event of a set: [`Cx::event`] is that one, and what is emitted is
    /// caused by it.
    pub fn about(&mut self, n: usize) -> Result<(), Failure> {
        let Some(envelope) = self.set.get(n).cloned() else {
            return Err(Failure::terminal(format!(
                "the set has {} events, no {n}",
                self.set.len()
            )));
        };
        self.cause = envelope.cause();
        self.event = Some(envelope);
        Ok(())
    }

    /// Keeps the answer to the intent of this event, for callers that
    /// [ask](crate::Chapar::response) or send it again. The consumer must be one that
    /// [dedupes by intent](crate::Consumer::dedupe_by_intent).
    pub async fn respond(&mut self, response: &impl Serialize) -> Result<(), Failure> {
        let response = serde_json::to_string(response)?;
        let intent = self.event.as_ref().and_then(|event| event.idempotency_key.clone());
        let Some(intent) = intent else {
            return Err(Failure::terminal("cx.respond needs an event with an idempotency key"));
        };
        let (consumer, tenant) = (self.origin.clone(), self.cause.tenant.as_str().to_owned());
        if !self.tx.inbox().set_response(&consumer, &tenant, &intent, &response).await? {
            return Err(Failure::terminal(
                "cx.respond needs a consumer that says Consumer::dedupe_by_intent()",
            ));
        }
        Ok(())
    }

    /// The event changed nothing here: recorded as a no-op. `return cx.noop();`
    pub fn noop(&mut self) -> Handled {
        self.noop = true;
        Ok(())
    }

    pub(crate) fn note_started(&mut self, saga: &str, key: &str) {
        self.started.push((saga.to_owned(), key.to_owned()));
    }

    pub(crate) fn take_started(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.started)
    }

    /// A description of the cause.
    pub(crate) fn trigger(&self) -> String {
        self.event.as_ref().map_or_else(|| self.origin.clone(), |event| event.subject())
    }

    /// Notes where the next event comes from.
    pub(crate) fn stand_at(&mut self, arrival: &Arrival) {
        let position = Position { partition: arrival.partition, offset: arrival.offset };
        self.came_from = Some((arrival.topic.clone(), position));
    }

    pub(crate) fn topic(&self) -> Option<String> {
        self.came_from.as_ref().map(|(topic, _)| topic.clone())
    }

    pub(crate) fn position(&self) -> Option<Position> {
        self.came_from.as_ref().map(|(_, position)| *position)
    }

    /// Who runs this.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Turns to the next event of a batch.
    pub(crate) fn turn_to(&mut self, envelope: Arc<Envelope>, unstashing: bool) {
        self.cause = envelope.cause();
        self.set = vec![envelope.clone()];
        self.event = Some(envelope);
        self.unstashing = unstashing;
        self.noop = false;
    }

    /// Turns to a set of events.
    pub(crate) fn turn_to_set(&mut self, envelopes: Vec<Arc<Envelope>>, unstashing: bool) {
        if let Some(first) = envelopes.first() {
            self.turn_to(first.clone(), unstashing);
            self.set = envelopes;
        }
    }

    /// Whether this event must wait for those that came before its saga.
    pub(crate) fn waits_for_stash(&self) -> bool {
        self.event.is_some() && !self.unstashing
    }

    pub(crate) fn was_noop(&self) -> bool {
        self.noop
    }

    /// Writes what was emitted.
    pub(crate) async fn flush(&mut self) -> Result<(), Failure> {
        let emitted = std::mem::take(&mut self.emitted);
        if !emitted.is_empty() {
            self.tx.outbox_rows().append(&emitted).await?;
        }
        Ok(())
    }

    pub(crate) fn into_tx(self) -> Tx {
        self.tx
    }
}
