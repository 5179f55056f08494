//! Makes the calls that are due, and brings their outcomes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chapar_core::Cause;
use chapar_core::machine::retry::Next;
use chapar_sql::DueEffect;
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

/// A call that has ended, one way or the other.
struct Finished {
    due: DueEffect,
    answered: Answered,
}

impl EffectWorker {
    pub(crate) async fn run(self) -> Part {
        let (mut calls, mut recording) = (JoinSet::new(), JoinSet::new());
        let hold = self.hold();
        let mut nudges = self.chapar.store().nudges();
        let mut finished: Vec<Finished> = Vec::new();
        while !self.stop.is_cancelled() {
            while let Some(call) = calls.try_join_next() {
                finished.extend(call.ok().flatten());
            }
            while recording.try_join_next().is_some() {}
            if !finished.is_empty() && recording.len() < RECORDING {
                let (worker, finished) = (self.clone(), std::mem::take(&mut finished));
                recording.spawn(async move { worker.complete_all(finished).await });
            }
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
                    Some(call) = calls.join_next() => finished.extend(call.ok().flatten()),
                    Some(_) = recording.join_next(), if !recording.is_empty() => {}
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
        let waiting = tx.conn().effects_waiting(kinds.clone(), now).await?;
        tx.rollback().await?;
        if !waiting {
            return Ok(Vec::new());
        }
        let mut tx = self.chapar.store().begin_engine().await?;
        let due = tx.conn().take_effects(kinds, now, hold, limit).await?;
        tx.commit().await?;
        Ok(due)
    }

    /// Makes one attempt; none comes back of one that is to be made again.
    async fn call(&self, due: DueEffect) -> Option<Finished> {
        match self.attempt(&due).await {
            Ok(Some(answered)) => Some(Finished { due, answered }),
            Ok(None) => None,
            Err(failure) => {
                self.put_off(&due, &failure).await;
                None
            }
        }
    }

    /// The row is still pending: the call is made again, with the same key.
    async fn put_off(&self, due: &DueEffect, failure: &Failure) {
        error!(
            effect = due.id, kind = due.kind, tenant_id = due.tenant, %failure,
            "cannot record the outcome of an effect; retrying in 1 s"
        );
        let now = self.chapar.clock().now();
        let again = now.saturating_add(Duration::from_secs(1)).unwrap_or(now);
        if let Err(failure) = self.postpone(due, again, &failure.to_string()).await {
            warn!(effect = due.id, %failure, "cannot postpone an effect; its hold has to expire");
        }
    }

    async fn postpone(&self, due: &DueEffect, at: Timestamp, why: &str) -> Result<(), Failure> {
        let mut tx = self.chapar.store().begin(&due.tenant).await?;
        tx.conn().postpone_effect(due.id, at, self.chapar.clock().now(), why).await?;
        tx.commit().await?;
        Ok(())
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
                        self.postpone(due, at, failure.message()).await?;
                        return Ok(None);
                    }
                }
            }
        };
        Ok(Some(Answered { request: due.request.clone(), result }))
    }

    /// Records outcomes in one transaction; if one of them fails, each in its own.
    async fn complete_all(&self, mut finished: Vec<Finished>) {
        if finished.is_empty() {
            return;
        }
        finished.sort_by(|a, b| a.due.tenant.cmp(&b.due.tenant));
        if self.complete(&finished).await.is_ok() {
            return;
        }
        for one in finished {
            if let Err(failure) = self.complete(std::slice::from_ref(&one)).await {
                self.put_off(&one.due, &failure).await;
            }
        }
    }

    async fn complete(&self, finished: &[Finished]) -> Result<(), Failure> {
        let mut tx = self.chapar.store().begin_raw().await?;
        let mut tenant = None;
        let mut done = 0;
        for Finished { due, answered } in finished {
            if tenant != Some(&due.tenant) {
                tx.become_service(&due.tenant).await?;
                tenant = Some(&due.tenant);
            }
            let (status, error) = match &answered.result {
                Ok(_) => ("done", None),
                Err(reason) => ("failed", Some(reason.as_str())),
            };
            if !tx.conn().finish_effect(due.id, status, error).await? {
                continue;
            }
            done += 1;
            let Some(task) = self.tasks.get(&due.kind) else { continue };
            let Some(complete) = task.complete.clone() else { continue };
            let execution = Execution {
                chapar: self.chapar.for_service(&task.service),
                states: self.states.clone(),
                timeout: task.timeout,
            };
            let cause: Cause = serde_json::from_slice(&due.cause)?;
            let (origin, answered) = (format!("effect {}", task.kind), answered.clone());
            tx = execution
                .run(tx, cause, origin, move |cx: &mut Cx| {
                    Box::pin(async move { complete(answered, cx).await })
                })
                .await?;
        }
        tx.commit().await?;
        self.chapar.store().nudge();
        self.metrics.add_effects_done(done);
        Ok(())
    }
}
