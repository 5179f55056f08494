//! Effects: calls to the outside, made after the transaction that asked for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chapar_core::Cause;
use chapar_core::machine::retry::{Next, RetryPolicy};
use chapar_core::port::{BoxFuture, Effect, EffectError, Effects};
use chapar_sql::DueEffect;
use jiff::Timestamp;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::chapar::Chapar;
use crate::consumer::HandlerFn;
use crate::cx::{Cx, States};
use crate::failure::Failure;
use crate::metrics::Metrics;

/// How a call to the outside ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectOutcome {
    /// What was asked for.
    pub request: Value,
    /// The key under which it was asked for.
    pub idempotency_key: String,
    /// The answer, or why there is none and never will be.
    pub result: Result<Value, String>,
}

/// A kind of call to the outside: how to make it, and what its outcome changes here.
pub struct EffectTask {
    pub(crate) kind: String,
    pub(crate) service: String,
    vendor: Arc<dyn Effects>,
    complete: Arc<Complete>,
    retry: RetryPolicy,
    timeout: Duration,
}

type Complete =
    dyn for<'a> Fn(EffectOutcome, &'a mut Cx) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync;

impl EffectTask {
    /// Calls of this kind, made by a service through `vendor`; `complete` runs in a transaction
    /// of its own once a call has ended, and emits what came of it.
    pub fn new<F>(service: &str, kind: &str, vendor: impl Effects + 'static, complete: F) -> Self
    where
        F: for<'a> HandlerFn<'a, EffectOutcome> + 'static,
    {
        EffectTask {
            kind: kind.to_owned(),
            service: service.to_owned(),
            vendor: Arc::new(vendor),
            complete: Arc::new(move |outcome, cx: &mut Cx| -> BoxFuture<'_, _> {
                Box::pin(complete.call(outcome, cx))
            }),
            retry: RetryPolicy::attempts(5)
                .backoff(Duration::from_secs(1), Duration::from_secs(60)),
            timeout: Duration::from_secs(30),
        }
    }

    /// How often and how patiently it is tried. Default: 5 attempts, 1 s to 1 min apart.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// How long one attempt may take. Default 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

#[derive(Clone)]
pub(crate) struct EffectWorker {
    pub(crate) chapar: Chapar,
    pub(crate) tasks: Arc<HashMap<String, EffectTask>>,
    pub(crate) states: Arc<States>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

const AT_ONCE: usize = 64;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A call that has ended, one way or the other.
struct Ended {
    due: DueEffect,
    outcome: EffectOutcome,
}

impl EffectWorker {
    pub(crate) async fn run(self) {
        let mut calls = JoinSet::new();
        let hold = self.hold();
        let mut nudges = self.chapar.store().nudges();
        while !self.stop.is_cancelled() {
            let mut ended = Vec::new();
            while let Some(call) = calls.try_join_next() {
                ended.extend(call.ok().flatten());
            }
            self.complete_all(ended).await;
            let room = AT_ONCE - calls.len().min(AT_ONCE);
            let due = match room {
                0 => Vec::new(),
                room => self.take(hold, room as i64).await.unwrap_or_else(|failure| {
                    warn!(%failure, "effects are out of reach");
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
                    Some(call) = calls.join_next() => {
                        self.complete_all(call.ok().flatten().into_iter().collect()).await;
                    }
                    _ = nudges.wait(LOOK_EVERY) => {}
                    () = self.stop.cancelled() => {}
                }
            }
        }
        while let Some(call) = calls.join_next().await {
            self.complete_all(call.ok().flatten().into_iter().collect()).await;
        }
    }

    /// Longer than any attempt may take, so that no call is made twice at a time.
    fn hold(&self) -> Duration {
        let longest = self.tasks.values().map(|task| task.timeout).max().unwrap_or_default();
        longest + Duration::from_secs(5)
    }

    /// Makes the calls that are due, one after the other; says how many.
    pub(crate) async fn run_due(&self) -> Result<usize, Failure> {
        let due = self.take(self.hold(), AT_ONCE as i64).await?;
        let count = due.len();
        for effect in due {
            let ended = self.call(effect).await;
            self.complete_all(ended.into_iter().collect()).await;
        }
        Ok(count)
    }

    async fn take(&self, hold: Duration, limit: i64) -> Result<Vec<DueEffect>, Failure> {
        let now = self.chapar.clock().now();
        // Looking costs nothing; taking is a write. On SQLite there is one writer.
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

    /// Makes one attempt; nothing comes of one that is to be made again.
    async fn call(&self, due: DueEffect) -> Option<Ended> {
        match self.attempt(&due).await {
            Ok(Some(outcome)) => Some(Ended { due, outcome }),
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
            "the outcome of an effect could not be recorded"
        );
        let now = self.chapar.clock().now();
        let again = now.saturating_add(Duration::from_secs(1)).unwrap_or(now);
        if let Err(failure) = self.postpone(due, again, &failure.to_string()).await {
            warn!(effect = due.id, %failure, "it comes up again when its hold is over");
        }
    }

    async fn postpone(&self, due: &DueEffect, at: Timestamp, why: &str) -> Result<(), Failure> {
        let mut tx = self.chapar.store().begin(&due.tenant).await?;
        tx.conn().postpone_effect(due.id, at, self.chapar.clock().now(), why).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn attempt(&self, due: &DueEffect) -> Result<Option<EffectOutcome>, Failure> {
        let Some(task) = self.tasks.get(&due.kind) else {
            return Err(Failure::rule(format!("no task for effects of kind {}", due.kind)));
        };
        let request: Value = serde_json::from_str(&due.request)?;
        let effect = Effect {
            kind: due.kind.clone(),
            idempotency_key: due.idempotency_key.clone(),
            tenant: due.tenant.parse()?,
            request,
            attempt: due.attempts.max(1) as u32,
        };
        let result = match tokio::time::timeout(task.timeout, task.vendor.run(&effect)).await {
            Ok(result) => result,
            Err(_) => Err(EffectError::Retryable(format!("no answer within {:?}", task.timeout))),
        };
        let now = self.chapar.clock().now();
        let result = match result {
            Ok(answer) => Ok(answer),
            Err(EffectError::Terminal(reason)) => Err(reason),
            Err(EffectError::Retryable(reason)) => {
                let first = due.first_failed_at.unwrap_or(now);
                match task.retry.after(effect.attempt, first, now, fastrand::f64()) {
                    Next::GiveUp => Err(reason),
                    Next::RetryAt(at) => {
                        self.postpone(due, at, &reason).await?;
                        return Ok(None);
                    }
                }
            }
        };
        let idempotency_key = due.idempotency_key.clone();
        Ok(Some(EffectOutcome { request: effect.request, idempotency_key, result }))
    }

    /// Records outcomes in one transaction; if one of them fails, each in its own.
    async fn complete_all(&self, mut ended: Vec<Ended>) {
        if ended.is_empty() {
            return;
        }
        ended.sort_by(|a, b| a.due.tenant.cmp(&b.due.tenant));
        if self.complete(&ended).await.is_ok() {
            return;
        }
        for one in ended {
            if let Err(failure) = self.complete(std::slice::from_ref(&one)).await {
                self.put_off(&one.due, &failure).await;
            }
        }
    }

    async fn complete(&self, ended: &[Ended]) -> Result<(), Failure> {
        let mut tx = self.chapar.store().begin_raw().await?;
        let mut tenant = None;
        let mut done = 0;
        for Ended { due, outcome } in ended {
            if tenant != Some(&due.tenant) {
                tx.become_service(&due.tenant).await?;
                tenant = Some(&due.tenant);
            }
            let (status, error) = match &outcome.result {
                Ok(_) => ("done", None),
                Err(reason) => ("failed", Some(reason.as_str())),
            };
            if !tx.conn().finish_effect(due.id, status, error).await? {
                continue;
            }
            let task = self.tasks.get(&due.kind).ok_or_else(|| Failure::rule("unknown kind"))?;
            let chapar = self.chapar.for_service(&task.service);
            let cause: Cause = serde_json::from_slice(&due.cause)?;
            let origin = format!("effect {}", task.kind);
            let mut cx = Cx::new(tx, chapar, cause, self.states.clone(), origin);
            (task.complete)(outcome.clone(), &mut cx).await?;
            cx.flush().await?;
            tx = cx.into_tx();
            done += 1;
        }
        tx.commit().await?;
        self.chapar.store().nudge();
        self.metrics.add_effects_done(done);
        Ok(())
    }
}
