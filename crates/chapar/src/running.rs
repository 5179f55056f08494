use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use chapar_core::machine::relay::Plan;
use chapar_core::port::{SubscriptionSpec, Transport};
use chapar_sql::{Keep, SqlOutbox};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::app::{App, Parts, StartError};
use crate::chapar::Chapar;
use crate::consumer::Runner;
use crate::metrics::Metrics;
use crate::ops::Copier;
use crate::projection::Builder;
use crate::relay::Relay;
use crate::supervisor::{Ended, Health, Part, Supervisor};

/// An [`App`] that runs. Its parts are supervised: one that breaks starts again, with back-off.
pub struct Running {
    chapar: Chapar,
    metrics: Metrics,
    supervisor: Supervisor,
}

/// Why an app does not run any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A part of it keeps failing, although it was started again and again.
    #[error("{0}")]
    Failed(String),
}

/// How long what is under way may take to finish when an app stops.
const STOP_WITHIN: Duration = Duration::from_secs(10);
const RETENTION_EVERY: Duration = Duration::from_secs(30);

impl Running {
    pub(crate) async fn start(
        app: App,
        chapar: Chapar,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, StartError> {
        app.check(&chapar).await?;
        app.declare(&chapar).await?;
        let metrics = Metrics::default();
        let stop = CancellationToken::new();
        let mut supervisor = Supervisor::new(stop.clone(), app.patience);
        for folds in &app.projections {
            let builder = Builder {
                chapar: chapar.clone(),
                transport: transport.clone(),
                folds: folds.clone(),
                owner: app.owner.clone(),
                stop: stop.clone(),
            };
            let name = format!("read model {}", folds.name);
            supervisor.keep(name, move || builder.clone().run());
        }
        if app.relays {
            let relay = relay(&app, &chapar, &transport, &metrics, &stop);
            supervisor.keep("relay", move || relay.clone().run());
            let retention =
                Retention { chapar: chapar.clone(), keep: app.keep, stop: stop.clone() };
            supervisor.keep("retention", move || retention.clone().run());
        }
        if app.copies {
            let copier =
                Copier { chapar: chapar.clone(), transport: transport.clone(), stop: stop.clone() };
            supervisor.keep("dead-letter copies", move || copier.clone().run());
        }
        let Parts { runners, timers, effects } = app.parts(&chapar, &transport, &metrics, &stop);
        let specs: Vec<SubscriptionSpec> = runners.iter().map(Runner::spec).collect();
        transport.apply(&[], &specs).await?;
        for runner in runners {
            let name = format!("consumer {}", runner.consumer.name);
            supervisor.keep(name, move || runner.clone().run());
        }
        // What this process has no handlers for is left to those that have.
        if !timers.handlers.is_empty() {
            supervisor.keep("timers", move || timers.clone().run());
        }
        if !effects.tasks.is_empty() {
            supervisor.keep("effects", move || effects.clone().run());
        }
        Ok(Running { chapar, metrics, supervisor })
    }

    /// The backbone as one of the services sees it, to append and to run commands.
    pub fn chapar(&self, service: &str) -> Chapar {
        self.chapar.for_service(service)
    }

    /// What it has done so far.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// How its parts are.
    pub fn health(&self) -> Health {
        self.supervisor.health()
    }

    /// Waits until a part of it fails for good, which is an error. Dropping the future loses
    /// nothing.
    pub async fn wait(&mut self) -> Result<(), RunError> {
        self.supervisor.wait().await.map_err(RunError::Failed)
    }

    /// Runs until `signal` is done, then stops cleanly. An error if a part of it fails for good.
    pub async fn run_until(mut self, signal: impl Future<Output = ()>) -> Result<(), RunError> {
        let ended = tokio::select! {
            () = signal => Ok(()),
            ended = self.wait() => ended,
        };
        self.stop(STOP_WITHIN).await;
        ended
    }

    /// Stops fetching, finishes what has begun, and gives leases back; at most until
    /// `deadline`, after which what is left is dropped and done again at the next start.
    pub async fn stop(mut self, deadline: Duration) {
        self.supervisor.stop(deadline).await;
    }
}

fn relay(
    app: &App,
    chapar: &Chapar,
    transport: &Arc<dyn Transport>,
    metrics: &Metrics,
    stop: &CancellationToken,
) -> Relay {
    let mut stamped = app.stamped.clone();
    if let Some(registry) = chapar.registry()
        && !transport.features().ordered_topics
    {
        stamped.extend(registry.stamped());
    }
    Relay {
        outbox: Arc::new(SqlOutbox::new(chapar.store().clone())),
        transport: transport.clone(),
        owner: app.owner.clone(),
        plan: Plan { retry: app.retry, ..Plan::default() },
        stamped: stamped.into_iter().collect(),
        metrics: metrics.clone(),
        stop: stop.clone(),
        chapar: chapar.clone(),
    }
}

/// Removes what may be forgotten, from time to time.
#[derive(Clone)]
struct Retention {
    chapar: Chapar,
    keep: Keep,
    stop: CancellationToken,
}

impl Retention {
    async fn run(self) -> Part {
        loop {
            match self.chapar.store().keep_house(&self.keep).await {
                Ok(kept) if kept.repaired > 0 => warn!(
                    keys = kept.repaired,
                    "parked keys had no first row and would never have been released; repaired"
                ),
                Ok(kept) => debug!(?kept, "retention run done"),
                // A lock that an operator or another process holds is the usual reason.
                Err(error) => warn!(%error, "retention run failed; retrying in 30 s"),
            }
            tokio::select! {
                () = tokio::time::sleep(RETENTION_EVERY) => {}
                () = self.stop.cancelled() => return Ok(Ended::Stopped),
            }
        }
    }
}

/// Done when the process is asked to stop: Ctrl-C, or SIGTERM.
pub async fn ctrl_c() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
