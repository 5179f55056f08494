//! Durable timers of sagas: each fires once, in the transaction of the step it leads to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use chapar_core::Cause;
use chapar_core::machine::retry::{Next, RetryPolicy};
use chapar_core::port::BoxFuture;
use chapar_sql::{DueTimer, Tables};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::chapar::Chapar;
use crate::cx::{Cx, States};
use crate::execution::Execution;
use crate::failure::{Failure, Handled};
use crate::metrics::Metrics;
use crate::saga::{mark_stuck, note_stale_timer};
use crate::supervisor::{Ended, Part};

pub(crate) type TimerHandler =
    dyn for<'a> Fn(String, &'a mut Cx) -> BoxFuture<'a, Handled> + Send + Sync;

/// By saga and timer, with the backbone of the service whose saga it is.
pub(crate) type TimerHandlers = HashMap<(String, String), (Chapar, Arc<TimerHandler>)>;

#[derive(Clone)]
pub(crate) struct Timers {
    pub(crate) chapar: Chapar,
    pub(crate) handlers: Arc<TimerHandlers>,
    pub(crate) states: Arc<States>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

const AT_ONCE: i64 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const STEP_WITHIN: Duration = Duration::from_secs(30);
/// How often a step may fail before its saga counts as stuck.
const ATTEMPTS: u32 = 7;
/// A stuck saga's timer is tried again after this long: a deploy may have mended it.
const STUCK_FOR: Duration = Duration::from_secs(300);

impl Timers {
    pub(crate) async fn run(self) -> Part {
        while !self.stop.is_cancelled() {
            match self.fire_due().await {
                Ok(fired) if fired == AT_ONCE as usize => continue,
                Ok(_) => {}
                Err(failure) => warn!(%failure, "cannot read due timers; retrying"),
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.stop.cancelled() => {}
            }
        }
        Ok(Ended::Stopped)
    }

    pub(crate) async fn fire_due(&self) -> Result<usize, Failure> {
        let now = self.chapar.clock().now();
        let mut tx = self.chapar.store().begin_read().await?;
        let handled = self.handlers.keys().map(|(saga, timer)| format!("{saga}/{timer}")).collect();
        let due = tx.timers().due(handled, now, AT_ONCE).await?;
        tx.rollback().await?;
        for timer in &due {
            if let Err(failure) = self.fire(timer, now).await {
                self.put_off(timer, &failure, now).await?;
            }
        }
        Ok(due.len())
    }

    async fn fire(&self, timer: &DueTimer, now: Timestamp) -> Result<(), Failure> {
        let mut tx = self.chapar.store().begin_engine().await?;
        let saga = tx.sagas().load(&timer.saga, &timer.key, &timer.tenant, "").await?;
        if !tx.timers().take(timer).await? {
            return Ok(());
        }
        let Some(saga) = saga else {
            tx.commit().await?;
            return Ok(());
        };
        let armed: BTreeMap<String, i64> = serde_json::from_str(&saga.timers)?;
        if armed.get(&timer.name) != Some(&timer.generation) {
            note_stale_timer(&mut tx, saga, timer, now).await?;
            tx.commit().await?;
            return Ok(());
        }
        let at = (timer.saga.clone(), timer.name.clone());
        let Some((chapar, handler)) = self.handlers.get(&at).cloned() else {
            return Err(Failure::released("no handler for this timer"));
        };
        let cause = Cause {
            tenant: timer.tenant.parse()?,
            correlation: saga.correlation_id.parse()?,
            causation: None,
            actor: None,
            trace: None,
        };
        let execution = Execution { chapar, states: self.states.clone(), timeout: STEP_WITHIN };
        let (origin, key) = (format!("timer {}", timer.name), timer.key.clone());
        let tx = execution
            .run(tx, cause, origin, move |cx: &mut Cx| {
                Box::pin(async move { handler(key, cx).await })
            })
            .await?;
        tx.commit().await?;
        self.chapar.store().nudge();
        self.metrics.add_timers_fired(1);
        Ok(())
    }

    /// Tries again later; a saga whose timer keeps failing is stuck, for operators to see.
    async fn put_off(
        &self,
        timer: &DueTimer,
        failure: &Failure,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let (saga, key, tenant_id) = (&timer.saga, &timer.key, &timer.tenant);
        let attempts = timer.attempts + i64::from(failure.is_counted());
        let tried = u32::try_from(attempts).unwrap_or(u32::MAX).max(1);
        let retry = RetryPolicy::attempts(ATTEMPTS)
            .backoff(Duration::from_secs(1), Duration::from_secs(60));
        let next = match failure.is_retryable() {
            true => retry.after(tried, now, now, fastrand::f64()),
            false => Next::GiveUp,
        };
        let mut tx = self.chapar.store().begin_engine().await?;
        let at = match next {
            Next::RetryAt(at) => {
                warn!(saga, key, timer = timer.name, tenant_id, %failure, attempts, "timer failed; retrying");
                at
            }
            Next::GiveUp => {
                error!(saga, key, timer = timer.name, tenant_id, %failure, attempts, "saga is stuck: its timer keeps failing");
                let of = (&**saga, &**key, &**tenant_id);
                mark_stuck(&mut tx, of, failure.message(), now).await?;
                now.saturating_add(STUCK_FOR).unwrap_or(Timestamp::MAX)
            }
        };
        tx.timers().postpone(timer, at, attempts).await?;
        tx.commit().await?;
        Ok(())
    }
}
