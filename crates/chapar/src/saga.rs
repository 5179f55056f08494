//! Sagas: plain code over persisted state.
//!
//! A saga is not a framework's flow. Its handlers are ordinary consumer handlers that
//! [load](Saga::load) the saga, look at its state, act, and [move it on](Saga::go); each does so
//! in the one transaction it runs in. What Chapar adds is what everybody gets subtly wrong by
//! hand: the row lock and version, durable timers that fire once, compensations that are
//! recorded before the step they undo, a history of every transition, and a tombstone that
//! tells a late event that it is late.
//!
//! ```
//! use std::time::Duration;
//! use chapar::saga::{Found, Outcome, Saga, SagaKind};
//! use chapar::{Cx, Failure};
//! # use serde::{Deserialize, Serialize};
//!
//! const BOOKING: SagaKind = SagaKind::new("booking", 1);
//!
//! #[derive(Serialize, Deserialize)]
//! struct Booking { room: String }
//!
//! async fn hold(reservation: &str, cx: &mut Cx) -> Result<(), Failure> {
//!     let booking = Booking { room: "101".into() };
//!     let mut saga = Saga::start(cx, BOOKING, reservation, "held", booking).await?;
//!     saga.arm(cx, "allocation_deadline", Duration::from_secs(30)).await
//! }
//!
//! async fn captured(reservation: &str, cx: &mut Cx) -> Result<(), Failure> {
//!     let Found::Active(mut saga) = Saga::<Booking>::load(cx, BOOKING, reservation).await? else {
//!         cx.noop();
//!         return Ok(());
//!     };
//!     saga.disarm(cx, "allocation_deadline").await?;
//!     saga.end(cx, "confirmed", Outcome::Completed, "payment captured").await
//! }
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use chapar_core::Id;
use chapar_sql::{DueTimer, HistoryEntry, SagaRow, Tx};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cx::Cx;
use crate::failure::Failure;

/// A kind of saga: its name and the version of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SagaKind {
    name: &'static str,
    definition: u32,
}

impl SagaKind {
    /// A kind of saga. Raise the definition when in-flight sagas of the old code would not
    /// make sense to the new one, and keep reading both.
    pub const fn new(name: &'static str, definition: u32) -> Self {
        SagaKind { name, definition }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.name
    }
}

/// How a saga ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was for.
    Completed,
    /// It failed, and what it had done is undone.
    Compensated,
    /// It did some of it, and people must see to the rest.
    Partial,
}

impl Outcome {
    /// The name in tables, metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Compensated => "compensated",
            Outcome::Partial => "partial",
        }
    }
}

const STUCK: &str = "stuck";

/// What there is of a saga.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub enum Found<D> {
    /// It is under way, and locked until the transaction ends.
    Active(Saga<D>),
    /// It has ended in this state: the event is late.
    Ended(String),
    /// There is none yet: the event is early, or not meant for a saga.
    Missing,
}

/// A saga that is under way, locked by the transaction that loaded it.
#[derive(Debug)]
pub struct Saga<D> {
    /// The saga's own data; written with the next transition.
    pub data: D,
    row: SagaRow,
    compensations: Vec<Compensation>,
    timers: BTreeMap<String, i64>,
}

/// A step back, recorded before the step forward.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compensation {
    /// What to do.
    pub name: String,
    /// What it needs to know.
    pub data: Value,
}

impl<D: Serialize + DeserializeOwned> Saga<D> {
    /// Starts a saga; starting one that exists is a rule violation.
    pub async fn start(
        cx: &mut Cx,
        kind: SagaKind,
        key: &str,
        state: &str,
        data: D,
    ) -> Result<Self, Failure> {
        let row = SagaRow {
            saga: kind.name.to_owned(),
            key: key.to_owned(),
            tenant: cx.tenant().as_str().to_owned(),
            definition: i64::from(kind.definition),
            state: state.to_owned(),
            data: serde_json::to_string(&data)?,
            compensations: "[]".to_owned(),
            timers: "{}".to_owned(),
            version: 1,
            correlation_id: cx.cause().correlation.to_string(),
            outcome: None,
            stashed: false,
        };
        if !cx.tx().conn().insert_saga(&row).await? {
            return Err(Failure::rule(format!("saga {} {key} exists already", kind.name)));
        }
        let saga = Saga { data, row, compensations: Vec::new(), timers: BTreeMap::new() };
        saga.remember(cx, None, "started").await?;
        cx.note_started(kind.name, key);
        Ok(saga)
    }

    /// Loads a saga and locks it until the transaction ends.
    pub async fn load(cx: &mut Cx, kind: SagaKind, key: &str) -> Result<Found<D>, Failure> {
        let origin = cx.origin().to_owned();
        let Some(row) = cx.tx().conn().load_saga(kind.name, key, &origin).await? else {
            return Ok(Found::Missing);
        };
        // A stuck saga can still be brought to its end, when its event is replayed.
        if row.outcome.as_deref().is_some_and(|outcome| outcome != STUCK) {
            return Ok(Found::Ended(row.state));
        }
        if row.definition > i64::from(kind.definition) {
            let (found, known) = (row.definition, kind.definition);
            return Err(Failure::released(format!(
                "saga {} {key} was started by definition {found}, this program knows {known}",
                kind.name
            )));
        }
        if row.stashed && cx.waits_for_stash() {
            return Err(Failure::released(format!(
                "events that came before saga {} {key} are applied first",
                kind.name
            )));
        }
        Ok(Found::Active(Saga {
            data: serde_json::from_str(&row.data)?,
            compensations: serde_json::from_str(&row.compensations)?,
            timers: serde_json::from_str(&row.timers)?,
            row,
        }))
    }

    /// Like [`Saga::load`], but an event that comes before its saga is kept for it.
    pub async fn expect(cx: &mut Cx, kind: SagaKind, key: &str) -> Result<Found<D>, Failure> {
        match Self::load(cx, kind, key).await? {
            Found::Missing => Err(Failure::early(kind.name, key)),
            found => Ok(found),
        }
    }

    /// Its state.
    pub fn state(&self) -> &str {
        &self.row.state
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.row.key
    }

    /// The version of the code that started it.
    pub fn definition(&self) -> i64 {
        self.row.definition
    }

    /// Moves it on to another state; data, timers and compensations are written with it.
    pub async fn go(&mut self, cx: &mut Cx, state: &str, note: &str) -> Result<(), Failure> {
        let from = std::mem::replace(&mut self.row.state, state.to_owned());
        self.row.version += 1;
        self.row.data = serde_json::to_string(&self.data)?;
        self.row.compensations = serde_json::to_string(&self.compensations)?;
        self.row.timers = serde_json::to_string(&self.timers)?;
        if !cx.tx().conn().update_saga(&self.row).await? {
            let (saga, key) = (&self.row.saga, &self.row.key);
            return Err(Failure::transient(format!("saga {saga} {key} was changed meanwhile")));
        }
        self.remember(cx, Some(from), note).await
    }

    /// Ends it. The row stays as a tombstone, so that late events know that they are late.
    pub async fn end(
        mut self,
        cx: &mut Cx,
        state: &str,
        outcome: Outcome,
        note: &str,
    ) -> Result<(), Failure> {
        for name in std::mem::take(&mut self.timers).into_keys() {
            cx.tx().conn().disarm_timer(&self.row.saga, &self.row.key, &name).await?;
        }
        self.row.outcome = Some(outcome.as_str().to_owned());
        self.go(cx, state, note).await
    }

    /// Arms a durable timer; armed again it starts anew. It is written at once, and the saga
    /// knows of it with the next transition, or with this call if there is none.
    pub async fn arm(&mut self, cx: &mut Cx, name: &str, after: Duration) -> Result<(), Failure> {
        let generation = self.row.version + 1;
        let due_at = cx.now().saturating_add(after).unwrap_or(Timestamp::MAX);
        self.timers.insert(name.to_owned(), generation);
        let timer = DueTimer {
            saga: self.row.saga.clone(),
            key: self.row.key.clone(),
            name: name.to_owned(),
            tenant: self.row.tenant.clone(),
            generation,
            due_at,
        };
        cx.tx().conn().arm_timer(&timer).await?;
        let state = self.row.state.clone();
        self.go(cx, &state, &format!("{name} armed for {due_at}")).await
    }

    /// Disarms a timer, with the next transition.
    pub async fn disarm(&mut self, cx: &mut Cx, name: &str) -> Result<(), Failure> {
        self.timers.remove(name);
        cx.tx().conn().disarm_timer(&self.row.saga, &self.row.key, name).await?;
        Ok(())
    }

    /// Records how to undo the step that comes next. Written with the next transition, which
    /// is the transaction of the step itself.
    pub fn undo_with(&mut self, name: &str, data: impl Into<Value>) {
        self.compensations.push(Compensation { name: name.to_owned(), data: data.into() });
    }

    /// Takes the recorded compensations, the newest first, to be carried out now.
    ///
    /// If carrying them out fails, give the failure to [`Saga::stuck`]: should the event fail
    /// for good, the saga is shown as stuck and can be replayed, never dropped.
    pub fn compensations(&mut self) -> Vec<Compensation> {
        let mut taken = std::mem::take(&mut self.compensations);
        taken.reverse();
        taken
    }

    /// Says that a failure happened while this saga was compensating.
    pub fn stuck(&self, failure: Failure) -> Failure {
        failure.in_compensation(&self.row.saga, &self.row.key)
    }

    /// Adds the transition to the history.
    async fn remember(&self, cx: &mut Cx, from: Option<String>, note: &str) -> Result<(), Failure> {
        let entry = HistoryEntry {
            version: self.row.version,
            at: cx.now(),
            from_state: from,
            to_state: self.row.state.clone(),
            cause: cx.trigger(),
            event_id: cx.cause().causation.as_ref().map(Id::to_string),
            note: note.to_owned(),
        };
        cx.tx().conn().add_history(&self.row, &entry).await?;
        Ok(())
    }
}

/// Marks a saga whose compensation failed for good.
pub(crate) async fn mark_stuck(
    tx: &mut Tx,
    saga: &str,
    key: &str,
    error: &str,
    now: Timestamp,
) -> Result<(), Failure> {
    let Some(mut row) = tx.conn().load_saga(saga, key, "").await? else { return Ok(()) };
    row.version += 1;
    row.outcome = Some(STUCK.to_owned());
    tx.conn().update_saga(&row).await?;
    let entry = HistoryEntry {
        version: row.version,
        at: now,
        from_state: Some(row.state.clone()),
        to_state: row.state.clone(),
        cause: "compensation failed".to_owned(),
        event_id: None,
        note: error.to_owned(),
    };
    tx.conn().add_history(&row, &entry).await?;
    Ok(())
}

/// Notes that a timer fired after its saga had moved on: a recorded no-op.
pub(crate) async fn note_stale_timer(
    tx: &mut Tx,
    mut row: SagaRow,
    timer: &DueTimer,
    now: Timestamp,
) -> Result<(), Failure> {
    if row.outcome.is_some() {
        return Ok(());
    }
    row.version += 1;
    tx.conn().update_saga(&row).await?;
    let entry = HistoryEntry {
        version: row.version,
        at: now,
        from_state: Some(row.state.clone()),
        to_state: row.state.clone(),
        cause: format!("timer {}", timer.name),
        event_id: None,
        note: format!("stale timer of generation {} ignored", timer.generation),
    };
    tx.conn().add_history(&row, &entry).await?;
    Ok(())
}
