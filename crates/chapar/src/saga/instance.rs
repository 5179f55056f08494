//! A saga as the store keeps it: loaded and locked, moved on, ended, with its history.

use std::collections::BTreeMap;
use std::time::Duration;

use chapar_core::Id;
use chapar_sql::{DueTimer, HistoryEntry, SagaRow, Tables, Tx};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::UndoFn;
use super::step::{Action, Outcome, Start, Step};
use super::{SagaData, SagaState, SagaTimer, SagaUndo};
use crate::cx::Cx;
use crate::failure::Failure;

const STUCK: &str = "stuck";

/// An undo step in the store, recorded in the transaction of the step that it undoes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compensation {
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// What there is of a saga.
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub(super) enum Found<S> {
    /// It is under way, and locked until the transaction ends.
    Active(Instance<S>),
    /// It has ended; the row is kept so that late events are recognised.
    Ended(Instance<S>),
    /// There is none yet.
    Missing,
}

/// A saga, locked by the transaction that loaded it.
pub(super) struct Instance<S> {
    pub(super) data: S,
    row: SagaRow,
    compensations: Vec<Compensation>,
    timers: BTreeMap<String, i64>,
}

impl<S: SagaData> Instance<S> {
    /// Writes a new saga with its first timers; one that exists is a failure.
    pub(super) async fn start(cx: &mut Cx, start: Start<S>) -> Result<(), Failure> {
        let Start { saga, step } = start;
        let key = saga.key();
        let state = step.outcome.state().map_or("", SagaState::as_str);
        let mut instance = Instance {
            row: SagaRow {
                saga: S::NAME.to_owned(),
                key: key.clone(),
                tenant: cx.tenant().as_str().to_owned(),
                definition: i64::from(S::VERSION),
                state: state.to_owned(),
                data: serde_json::to_string(&saga)?,
                compensations: String::new(),
                timers: String::new(),
                version: 1,
                correlation_id: cx.cause().correlation.to_string(),
                outcome: None,
                stashed: false,
            },
            data: saga,
            compensations: Vec::new(),
            timers: BTreeMap::new(),
        };
        let timers = instance.set_timers(cx, &step.arm, &[], 1);
        instance.record_undo(&step.undo)?;
        instance.row.compensations = serde_json::to_string(&instance.compensations)?;
        instance.row.timers = serde_json::to_string(&instance.timers)?;
        if !cx.engine().await?.sagas().insert(&instance.row).await? {
            return Err(Failure::terminal(format!("saga {} {key} exists already", S::NAME)));
        }
        for timer in timers {
            cx.engine().await?.timers().arm(&timer).await?;
        }
        instance.remember(cx, None, "started").await?;
        carry_out(cx, step.actions).await?;
        cx.note_started(S::NAME, &key);
        Ok(())
    }

    /// Loads a saga and locks it until the transaction ends.
    pub(super) async fn load(cx: &mut Cx, key: &str) -> Result<Found<S>, Failure> {
        let (origin, tenant) = (cx.origin().to_owned(), cx.tenant().clone());
        let row = cx.engine().await?.sagas().load(S::NAME, key, tenant.as_str(), &origin).await?;
        let Some(row) = row else {
            return Ok(Found::Missing);
        };
        if row.definition > i64::from(S::VERSION) {
            let (found, known) = (row.definition, S::VERSION);
            return Err(Failure::released(format!(
                "saga {} {key} was started by version {found} of its code, this process has \
                 version {known}",
                S::NAME
            )));
        }
        // A stuck saga can still be brought to its end, when its event is replayed.
        let ended = row.outcome.as_deref().is_some_and(|outcome| outcome != STUCK);
        if !ended && row.stashed && cx.waits_for_stash() {
            return Err(Failure::released(format!(
                "events that came before saga {} {key} are applied first",
                S::NAME
            )));
        }
        let instance = Instance {
            data: serde_json::from_str(&row.data)?,
            compensations: serde_json::from_str(&row.compensations)?,
            timers: serde_json::from_str(&row.timers)?,
            row,
        };
        Ok(if ended { Found::Ended(instance) } else { Found::Active(instance) })
    }

    /// Carries out a step: undo steps if it compensates, then its own actions, then the saga's row.
    pub(super) async fn take(
        mut self,
        cx: &mut Cx,
        step: Step<S>,
        undo: Option<&UndoFn<S>>,
    ) -> Result<(), Failure> {
        if !self.may_take(&step)? {
            return cx.noop();
        }
        let compensates = matches!(step.outcome, Outcome::Compensated(_));
        let (saga, key) = (self.row.saga.clone(), self.row.key.clone());
        let taken = self.do_take(cx, step, undo).await;
        taken.map_err(|failure| match compensates {
            true => failure.in_compensation(&saga, &key),
            false => failure,
        })
    }

    async fn do_take(
        &mut self,
        cx: &mut Cx,
        mut step: Step<S>,
        undo: Option<&UndoFn<S>>,
    ) -> Result<(), Failure> {
        if matches!(step.outcome, Outcome::Compensated(_)) {
            self.compensate(cx, undo).await?;
        }
        if let Some(update) = step.update.take() {
            update(&mut self.data);
            step.update = Some(Box::new(|_| {}));
        }
        let touched = step.touches_saga();
        carry_out(cx, std::mem::take(&mut step.actions)).await?;
        if !touched {
            return Ok(());
        }
        self.move_on(cx, &step).await
    }

    /// Takes a step of a saga that has ended, which can no longer move it.
    pub(super) async fn take_after_end(cx: &mut Cx, step: Step<S>) -> Result<(), Failure> {
        let (outcome, only_from) = (step.outcome, &step.only_from);
        if outcome != Outcome::Stays || only_from.is_some() {
            return cx.noop();
        }
        carry_out(cx, step.actions).await
    }

    /// Whether the step is meant for the state that the saga is in.
    fn may_take(&self, step: &Step<S>) -> Result<bool, Failure> {
        let Some(states) = &step.only_from else { return Ok(true) };
        let Some(state) = S::State::from_name(&self.row.state) else {
            return Err(Failure::terminal(format!(
                "saga {} {} is in state {:?}, which this program does not know",
                S::NAME,
                self.row.key,
                self.row.state
            )));
        };
        Ok(states.contains(&state))
    }

    /// Runs the recorded undo steps, the newest first.
    async fn compensate(&mut self, cx: &mut Cx, undo: Option<&UndoFn<S>>) -> Result<(), Failure> {
        for recorded in std::mem::take(&mut self.compensations).into_iter().rev() {
            let name = recorded.name;
            let Some(undo) = undo else {
                let message = format!("no function undoes {name}; give one to Saga::undo");
                return Err(Failure::terminal(message));
            };
            let step = undo(serde_json::from_value(recorded.data)?, &self.data);
            if step.outcome != Outcome::Stays {
                return Err(Failure::terminal(format!("undoing {name} must not move the saga")));
            }
            carry_out(cx, step.actions).await?;
        }
        Ok(())
    }

    /// Writes the saga's row, its timers and its history.
    async fn move_on(&mut self, cx: &mut Cx, step: &Step<S>) -> Result<(), Failure> {
        let from = self.row.state.clone();
        if let Some(state) = step.outcome.state() {
            self.row.state = state.as_str().to_owned();
        }
        self.row.version += 1;
        let disarm: Vec<String> = match step.outcome.ended() {
            Some(outcome) => {
                self.row.outcome = Some(outcome.to_owned());
                self.timers.keys().cloned().collect()
            }
            None => {
                // A stuck saga that moves again is under way again.
                self.row.outcome = None;
                step.disarm.iter().map(|timer| timer.as_str().to_owned()).collect()
            }
        };
        let arm: &[_] = if step.outcome.ended().is_some() { &[] } else { &step.arm };
        let armed = self.set_timers(cx, arm, &disarm, self.row.version);
        for name in &disarm {
            let SagaRow { saga, key, tenant, .. } = &self.row;
            cx.engine().await?.timers().disarm(saga, key, tenant, name).await?;
        }
        for timer in armed {
            cx.engine().await?.timers().arm(&timer).await?;
        }
        self.record_undo(&step.undo)?;
        self.row.data = serde_json::to_string(&self.data)?;
        self.row.compensations = serde_json::to_string(&self.compensations)?;
        self.row.timers = serde_json::to_string(&self.timers)?;
        if !cx.engine().await?.sagas().update(&self.row).await? {
            let (saga, key) = (&self.row.saga, &self.row.key);
            return Err(Failure::retry(format!("saga {saga} {key} was changed meanwhile")));
        }
        self.remember(cx, Some(from), &step.note).await
    }

    /// Changes the timers in memory; says which are to be written.
    fn set_timers(
        &mut self,
        cx: &Cx,
        arm: &[(S::Timer, Option<Duration>)],
        disarm: &[String],
        generation: i64,
    ) -> Vec<DueTimer> {
        for name in disarm {
            self.timers.remove(name);
        }
        let armed = arm.iter().map(|(timer, after)| {
            let after = after.unwrap_or_else(|| timer.after());
            self.timers.insert(timer.as_str().to_owned(), generation);
            DueTimer {
                saga: self.row.saga.clone(),
                key: self.row.key.clone(),
                name: timer.as_str().to_owned(),
                tenant: self.row.tenant.clone(),
                generation,
                due_at: cx.now().saturating_add(after).unwrap_or(Timestamp::MAX),
                attempts: 0,
            }
        });
        armed.collect()
    }

    fn record_undo(&mut self, undo: &[S::Undo]) -> Result<(), Failure> {
        for undo in undo {
            let data = serde_json::to_value(undo)?;
            self.compensations.push(Compensation { name: undo.name().to_owned(), data });
        }
        Ok(())
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
        cx.engine().await?.sagas().add_history(&self.row, &entry).await?;
        Ok(())
    }
}

async fn carry_out(cx: &mut Cx, actions: Vec<Action>) -> Result<(), Failure> {
    for action in actions {
        match action {
            Action::Execute(sql, params) => {
                cx.execute(sql, params).await?;
            }
            Action::Emit(event) => cx.emit(event.into_draft()).await?,
            Action::Call(call) => cx.request(call.request()?).await?,
        }
    }
    Ok(())
}

/// Marks a saga one of whose undo steps, or whose timer, failed for good.
pub(crate) async fn mark_stuck(
    tx: &mut Tx,
    (saga, key, tenant): (&str, &str, &str),
    error: &str,
    now: Timestamp,
) -> Result<(), Failure> {
    let Some(mut row) = tx.sagas().load(saga, key, tenant, "").await? else { return Ok(()) };
    row.version += 1;
    row.outcome = Some(STUCK.to_owned());
    tx.sagas().update(&row).await?;
    note(tx, &row, "failed for good".to_owned(), error.to_owned(), now).await
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
    tx.sagas().update(&row).await?;
    let text = format!("stale timer of generation {} ignored", timer.generation);
    note(tx, &row, format!("timer {}", timer.name), text, now).await
}

/// Adds a line to the history that is no transition.
async fn note(
    tx: &mut Tx,
    row: &SagaRow,
    cause: String,
    note: String,
    at: Timestamp,
) -> Result<(), Failure> {
    let entry = HistoryEntry {
        version: row.version,
        at,
        from_state: Some(row.state.clone()),
        to_state: row.state.clone(),
        cause,
        event_id: None,
        note,
    };
    tx.sagas().add_history(row, &entry).await?;
    Ok(())
}
