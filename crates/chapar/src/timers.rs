//! Durable timers of sagas: each fires once, in the transaction of what it sets off.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use chapar_core::Cause;
use chapar_core::port::BoxFuture;
use chapar_sql::DueTimer;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::chapar::Chapar;
use crate::cx::{Cx, States};
use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::saga::note_stale_timer;

pub(crate) type TimerHandler =
    dyn for<'a> Fn(String, &'a mut Cx) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync;

pub(crate) struct Timers {
    pub(crate) chapar: Chapar,
    /// By saga and timer.
    pub(crate) handlers: HashMap<(String, String), (Chapar, Arc<TimerHandler>)>,
    pub(crate) states: Arc<States>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

const AT_ONCE: i64 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PUT_OFF: Duration = Duration::from_secs(5);

impl Timers {
    pub(crate) async fn run(self) {
        while !self.stop.is_cancelled() {
            match self.fire_due().await {
                Ok(fired) if fired == AT_ONCE as usize => continue,
                Ok(_) => {}
                Err(failure) => warn!(%failure, "timers are out of reach"),
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    pub(crate) async fn fire_due(&self) -> Result<usize, Failure> {
        let now = self.chapar.clock().now();
        let mut tx = self.chapar.store().begin_read().await?;
        let mut sagas: Vec<String> = self.handlers.keys().map(|(saga, _)| saga.clone()).collect();
        sagas.dedup();
        let due = tx.conn().due_timers(sagas, now, AT_ONCE).await?;
        tx.rollback().await?;
        for timer in &due {
            if let Err(failure) = self.fire(timer, now).await {
                error!(
                    saga = timer.saga, key = timer.key, timer = timer.name,
                    tenant_id = timer.tenant, %failure, "a timer is put off"
                );
                let later = now.saturating_add(PUT_OFF).unwrap_or(Timestamp::MAX);
                let mut tx = self.chapar.store().begin_engine().await?;
                tx.conn().postpone_timer(timer, later).await?;
                tx.commit().await?;
            }
        }
        Ok(due.len())
    }

    async fn fire(&self, timer: &DueTimer, now: Timestamp) -> Result<(), Failure> {
        let mut tx = self.chapar.store().begin(&timer.tenant).await?;
        let saga = tx.conn().load_saga(&timer.saga, &timer.key, "").await?;
        if !tx.conn().take_timer(timer).await? {
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
        let Some((chapar, handler)) = self.handlers.get(&at) else {
            return Err(Failure::rule("no handler is registered for this timer"));
        };
        let cause = Cause {
            tenant: timer.tenant.parse()?,
            correlation: saga.correlation_id.parse()?,
            causation: None,
            actor: None,
            trace: None,
        };
        let trigger = format!("timer {}", timer.name);
        let mut cx = Cx::new(tx, chapar.clone(), cause, self.states.clone(), trigger);
        handler(timer.key.clone(), &mut cx).await?;
        cx.flush().await?;
        cx.into_tx().commit().await?;
        self.chapar.store().nudge();
        self.metrics.add_timers_fired(1);
        Ok(())
    }
}
