//! Makes the calls that are due, and brings their outcomes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chapar_core::Cause;
use chapar_core::machine::retry::Next;
use chapar_sql::{DueEffect, Tables, Unrecorded};
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::{Answered, Attempt, Task};
use crate::chapar::Chapar;
use crate::cx::{Cx, States};
use crate::execution::{Execution, guarded};
use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::saga::mark_stuck;
use crate::supervisor::{Ended, Part};

#[derive(Clone)]
pub(crate) struct EffectWorker {
    pub(crate) chapar: Chapar,
    pub(crate) tasks: Arc<HashMap<String, Task>>,
    pub(crate) states: Arc<States>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

const AT_ONCE: usize = 64;
/// How many transactions record outcomes at the same time: a slow one does not stop the others.
const RECORDING: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long outcomes stay in memory after the store could not be reached.
const STORE_AWAY: Duration = Duration::from_millis(500);

/// A call that has ended, one way or the other, and whose outcome is to be recorded.
struct Finished {
    due: DueEffect,
    answered: Answered,
    /// Whether the store has the outcome.
    kept: bool,
}

impl EffectWorker {
    pub(crate) async fn run(self) -> Part {
        let (mut calls, mut recording) = (JoinSet::new(), JoinSet::new());
        let hold = self.hold();
        let mut nudges = self.chapar.store().nudges();
        let mut finished: Vec<Finished> = Vec::new();
        while !self.stop.is_cancelled() {
            while let Some(call) = calls.try_join_next() {
                add(&mut finished, call.ok().flatten());
            }
            while let Some(left) = recording.try_join_next() {
                add(&mut finished, left.into_iter().flatten());
            }
            if !finished.is_empty() && recording.len() < RECORDING {
                let (worker, finished) = (self.clone(), std::mem::take(&mut finished));
                recording.spawn(async move { worker.record(finished).await });
            }
            // Their holds may expire before a place is free to record them.
            self.keep_answers(&mut finished).await;
            let room = AT_ONCE.saturating_sub(calls.len() + finished.len());
            let due = match room {
                0 => Vec::new(),
                room => self.take(hold, room as i64).await.unwrap_or_else(|failure| {
                    warn!(%failure, "cannot read due effects; retrying");
                    Vec::new()
                }),
            };
            let idle = due.is_empty();
            for effect in due {
                let worker = self.clone();
                calls.spawn(async move { worker.call(effect).await });
            }
            if idle {
                tokio::select! {
                    Some(call) = calls.join_next() => add(&mut finished, call.ok().flatten()),
                    Some(left) = recording.join_next(), if !recording.is_empty() => {
                        add(&mut finished, left.into_iter().flatten());
                    }
                    _ = nudges.wait(LOOK_EVERY) => {}
                    () = self.stop.cancelled() => {}
                }
            }
        }
        while let Some(call) = calls.join_next().await {
            finished.extend(call.ok().flatten());
        }
        self.complete_all(finished).await;
        while recording.join_next().await.is_some() {}
        Ok(Ended::Stopped)
    }

    /// Longer than any attempt may take, so that no call is made twice at a time.
    fn hold(&self) -> Duration {
        let longest = self.tasks.values().map(|task| task.timeout).max().unwrap_or_default();
        longest + Duration::from_secs(5)
    }

    /// Makes the calls that are due, one after the other; says how many.
    #[cfg(feature = "sqlite")]
    pub(crate) async fn run_due(&self) -> Result<usize, Failure> {
        let due = self.take(self.hold(), AT_ONCE as i64).await?;
        let count = due.len();
        for effect in due {
            let finished = self.call(effect).await;
            self.complete_all(finished.into_iter().collect()).await;
        }
        Ok(count)
    }

    async fn take(&self, hold: Duration, limit: i64) -> Result<Vec<DueEffect>, Failure> {
        let now = self.chapar.clock().now();
        // Reading is cheap; taking is a write, and SQLite has one writer.
        let mut tx = self.chapar.store().begin_read().await?;
        let kinds: Vec<String> = self.tasks.keys().cloned().collect();
        let waiting = tx.effects().waiting(kinds.clone(), now).await?;
        tx.rollback().await?;
        if !waiting {
            return Ok(Vec::new());
        }
        let mut tx = self.chapar.store().begin_engine().await?;
        let due = tx.effects().take(kinds, now, hold, limit).await?;
        tx.commit().await?;
        Ok(due)
    }

    /// Makes one attempt; none comes back of one that is to be made again. A call that was made
    /// before is not made again: only its outcome is still to be recorded.
    async fn call(&self, due: DueEffect) -> Option<Finished> {
        if let Some(kept) = &due.answer {
            let result = serde_json::from_str(kept).unwrap_or_else(|error| {
                Err(format!("the outcome that was kept cannot be read: {error}"))
            });
            let answered = Answered { request: due.request.clone(), result };
            return Some(Finished { due, answered, kept: true });
        }
        match self.attempt(&due).await {
            Ok(Some(answered)) => Some(Finished { due, answered, kept: false }),
            Ok(None) => None,
            Err(failure) => {
                warn!(
                    effect = due.id, kind = due.kind, tenant_id = due.tenant, %failure,
                    "cannot postpone an effect; it is called again when its hold expires"
                );
                None
            }
        }
    }

    async fn attempt(&self, due: &DueEffect) -> Result<Option<Answered>, Failure> {
        let Some(task) = self.tasks.get(&due.kind) else {
            return Err(Failure::released(format!("no task for effects of kind {}", due.kind)));
        };
        let attempt = Attempt {
            number: due.attempts.max(1) as u32,
            idempotency_key: due.idempotency_key.clone(),
            tenant: due.tenant.parse()?,
        };
        let number = attempt.number;
        let call = async { (task.call)(due.request.clone(), attempt).await };
        let result = guarded(task.timeout, call).await;
        let now = self.chapar.clock().now();
        let result = match result {
            Ok(answer) => Ok(answer),
            Err(failure) if !failure.is_retryable() => Err(failure.message().to_owned()),
            Err(failure) => {
                let first = due.first_failed_at.unwrap_or(now);
                match task.retry.after(number, first, now, fastrand::f64()) {
                    Next::GiveUp => Err(failure.message().to_owned()),
                    Next::RetryAt(at) => {
                        let mut tx = self.chapar.store().begin_engine().await?;
                        tx.effects().postpone(due, at, now, failure.message()).await?;
                        tx.commit().await?;
                        return Ok(None);
                    }
                }
            }
        };
        Ok(Some(Answered { request: due.request.clone(), result }))
    }

    /// Records outcomes; returns those that neither could be recorded nor kept, after a pause.
    async fn record(&self, finished: Vec<Finished>) -> Vec<Finished> {
        let left = self.complete_all(finished).await;
        if !left.is_empty() {
            tokio::select! {
                () = tokio::time::sleep(STORE_AWAY) => {}
                () = self.stop.cancelled() => {}
            }
        }
        left
    }

    /// Records outcomes in one transaction; if one of them fails, each in its own. Returns those
    /// of which the store has heard nothing.
    async fn complete_all(&self, mut finished: Vec<Finished>) -> Vec<Finished> {
        finished.sort_by(|a, b| (&a.due.tenant, a.due.id).cmp(&(&b.due.tenant, b.due.id)));
        if finished.len() > 1 {
            if self.complete(&finished).await.is_ok() {
                return Vec::new();
            }
            // One by one takes longer than they may be held.
            self.keep_answers(&mut finished).await;
        }
        let mut left = Vec::new();
        for one in finished {
            let Err(failure) = self.complete(std::slice::from_ref(&one)).await else { continue };
            if let Err(away) = self.put_off(&one, &failure).await {
                warn!(
                    effect = one.due.id, kind = one.due.kind, tenant_id = one.due.tenant,
                    %failure, %away, "cannot record the outcome of an effect; it stays in memory"
                );
                left.push(one);
            }
        }
        left
    }

    /// Writes outcomes to their rows that could not be recorded yet, and holds the rows longer:
    /// no worker makes these calls again. If that fails, their present holds still stand.
    async fn keep_answers(&self, finished: &mut Vec<Finished>) {
        if finished.iter().all(|one| self.is_kept(one)) {
            return;
        }
        if let Err(failure) = self.try_to_keep(finished).await {
            warn!(%failure, "cannot keep the outcomes of effects; retrying");
        }
    }

    /// Whether the store has an outcome, and its hold is far from over.
    fn is_kept(&self, one: &Finished) -> bool {
        let soon = self.chapar.clock().now().saturating_add(self.hold() / 2);
        one.kept && soon.is_ok_and(|soon| one.due.held_until > soon)
    }

    async fn try_to_keep(&self, finished: &mut Vec<Finished>) -> Result<(), Failure> {
        let until = self.chapar.clock().now().saturating_add(self.hold()).unwrap_or(Timestamp::MAX);
        let mut tx = self.chapar.store().begin_engine().await?;
        let mut held = Vec::with_capacity(finished.len());
        for one in finished.iter() {
            held.push(match self.is_kept(one) {
                true => Some(one.due.held_until),
                false => tx.effects().keep_answer(&one.due, &one.answered.kept()?, until).await?,
            });
        }
        tx.commit().await?;
        let mut held = held.into_iter();
        finished.retain_mut(|one| match held.next().flatten() {
            Some(until) => {
                (one.due.held_until, one.kept) = (until, true);
                true
            }
            // Another worker has it.
            None => false,
        });
        Ok(())
    }

    /// Keeps an outcome whose recording failed: to be recorded later, or for an operator to look at.
    async fn put_off(&self, one: &Finished, failure: &Failure) -> Result<(), Failure> {
        let due = &one.due;
        let now = self.chapar.clock().now();
        let tried = due.recordings + i64::from(failure.is_counted());
        let next = match self.tasks.get(&due.kind) {
            Some(task) if failure.is_retryable() => {
                let tried = u32::try_from(tried).unwrap_or(u32::MAX).max(1);
                let first = due.first_failed_at.unwrap_or(now);
                task.retry.after(tried, first, now, fastrand::f64())
            }
            _ => Next::GiveUp,
        };
        let retry_at = match next {
            Next::RetryAt(at) => Some(at),
            Next::GiveUp => None,
        };
        let unrecorded = Unrecorded {
            answer: &one.answered.kept()?,
            counts: failure.is_counted(),
            retry_at,
            failed_at: now,
            error: failure.message(),
        };
        let mut tx = self.chapar.store().begin_engine().await?;
        tx.effects().not_recorded(due, unrecorded).await?;
        if let (Some((saga, key)), None) = (failure.stuck_saga(), retry_at) {
            let of = (saga.as_str(), key.as_str(), due.tenant.as_str());
            mark_stuck(&mut tx, of, failure.message(), now).await?;
        }
        tx.commit().await?;
        let (effect, kind, tenant_id) = (due.id, &due.kind, &due.tenant);
        match retry_at {
            Some(_) => warn!(
                effect, kind, tenant_id, %failure, tried,
                "cannot record the outcome of an effect; retrying without another call"
            ),
            None => error!(
                effect, kind, tenant_id, %failure, tried,
                "effect is stuck: its outcome cannot be recorded; mend the cause, then \
                 `chapar effects retry`"
            ),
        }
        Ok(())
    }

    /// Records outcomes of effects that the worker still has: from here their rows are locked, so
    /// that no hold expires however long this takes.
    async fn complete(&self, finished: &[Finished]) -> Result<(), Failure> {
        let mut tx = self.chapar.store().begin_engine().await?;
        let held: Vec<&DueEffect> = finished.iter().map(|one| &one.due).collect();
        let held = tx.effects().lock_held(&held).await?;
        let finished: Vec<&Finished> =
            finished.iter().filter(|one| held.contains(&one.due.id)).collect();
        let done = finished.iter().filter(|one| one.answered.result.is_ok());
        let done = done.map(|one| one.due.id).collect();
        tx.effects().finish(done, None).await?;
        for one in &finished {
            if let Err(reason) = &one.answered.result {
                tx.effects().finish(vec![one.due.id], Some(reason)).await?;
            }
        }
        for Finished { due, answered, .. } in &finished {
            let Some(task) = self.tasks.get(&due.kind) else { continue };
            let Some(complete) = task.complete.clone() else { continue };
            let by_saga = task.by_saga;
            let execution = Execution {
                chapar: self.chapar.for_service(&task.service),
                states: self.states.clone(),
                timeout: task.timeout,
            };
            let cause: Cause = serde_json::from_slice(&due.cause)?;
            let (origin, answered) = (format!("effect {}", task.kind), answered.clone());
            tx = execution
                .run(tx, cause, origin, move |cx: &mut Cx| {
                    Box::pin(async move {
                        if !by_saga {
                            cx.serve().await?;
                        }
                        complete(answered, cx).await
                    })
                })
                .await?;
        }
        tx.commit().await?;
        self.chapar.store().nudge();
        self.metrics.add_effects_done(finished.len() as u64);
        Ok(())
    }
}

/// Adds outcomes that are to be recorded. One that was taken again, because its hold expired in the
/// meantime, replaces the earlier one.
fn add(finished: &mut Vec<Finished>, more: impl IntoIterator<Item = Finished>) {
    for one in more {
        finished.retain(|known| known.due.id != one.due.id);
        finished.push(one);
    }
}
