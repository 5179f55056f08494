//! Keeps the parts of a process running: what ends unexpectedly starts again, with back-off, and
//! what keeps dying ends the process with words.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::execution::said;

/// Why a part of the process ended although it was not asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broke(pub(crate) String);

/// How a part ends by itself.
pub(crate) enum Ended {
    /// It was asked to stop.
    Stopped,
    /// It has decided to stop, as it was configured to; it is not started again.
    Retired(String),
}

/// What a part's task returns.
pub(crate) type Part = Result<Ended, Broke>;

/// How the parts of a process are. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<BTreeMap<String, PartHealth>>>);

/// How one part of a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartHealth {
    /// It runs.
    Running,
    /// It broke and starts again soon.
    Restarting {
        /// Why it broke.
        error: String,
        /// How often in a row.
        failures: u32,
    },
    /// It stopped by its own failure policy.
    Retired(String),
    /// It kept breaking; the process ends.
    Dead(String),
}

impl Health {
    /// Every part by name.
    pub fn parts(&self) -> Vec<(String, PartHealth)> {
        self.lock().iter().map(|(name, health)| (name.clone(), health.clone())).collect()
    }

    /// The parts that do not run, each with the reason; empty where all is well.
    pub fn problems(&self) -> Vec<String> {
        let problem = |(name, health): (&String, &PartHealth)| match health {
            PartHealth::Running => None,
            PartHealth::Restarting { error, failures } => {
                Some(format!("{name} restarts after failure {failures}: {error}"))
            }
            PartHealth::Retired(why) => Some(format!("{name} stopped: {why}")),
            PartHealth::Dead(error) => Some(format!("{name} keeps failing: {error}")),
        };
        self.lock().iter().filter_map(problem).collect()
    }

    fn set(&self, name: &str, health: PartHealth) {
        self.lock().insert(name.to_owned(), health);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PartHealth>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How patient the supervisor is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// The pause before the first restart; it doubles with every failure in a row.
    pub(crate) first_pause: Duration,
    /// The longest pause.
    pub(crate) longest_pause: Duration,
    /// So many failures in a row end the process.
    pub(crate) failures: u32,
    /// A part that ran for so long starts counting from zero.
    pub(crate) healthy_after: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            failures: 10,
            healthy_after: Duration::from_secs(60),
        }
    }
}

/// The tasks of a process.
pub(crate) struct Supervisor {
    health: Health,
    stop: CancellationToken,
    patience: Patience,
    tasks: JoinSet<Result<(), String>>,
}

impl Supervisor {
    pub(crate) fn new(stop: CancellationToken, patience: Patience) -> Self {
        Supervisor { health: Health::default(), stop, patience, tasks: JoinSet::new() }
    }

    pub(crate) fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs a part, made by `start`, again and again until it is asked to stop.
    pub(crate) fn keep<F, Fut>(&mut self, name: impl Into<String>, mut start: F)
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Part> + Send + 'static,
    {
        let name = name.into();
        let (health, stop, patience) = (self.health.clone(), self.stop.clone(), self.patience);
        health.set(&name, PartHealth::Running);
        self.tasks.spawn(async move {
            let mut failures = 0;
            loop {
                let began = Instant::now();
                let ended = AssertUnwindSafe(async { start().await }).catch_unwind().await;
                let broke = match ended {
                    Ok(Ok(Ended::Stopped)) if stop.is_cancelled() => return Ok(()),
                    Ok(Ok(Ended::Stopped)) => Broke("ended without being asked to".into()),
                    Ok(Ok(Ended::Retired(why))) => {
                        health.set(&name, PartHealth::Retired(why));
                        return Ok(());
                    }
                    Ok(Err(broke)) => broke,
                    Err(panic) => Broke(format!("panicked: {}", said(&*panic))),
                };
                if stop.is_cancelled() {
                    return Ok(());
                }
                failures = if began.elapsed() >= patience.healthy_after { 1 } else { failures + 1 };
                if failures >= patience.failures {
                    error!(part = name, error = %broke, failures, "failed for good");
                    health.set(&name, PartHealth::Dead(broke.0.clone()));
                    return Err(format!("{name} failed {failures} times in a row: {broke}"));
                }
                let pause = patience.first_pause.saturating_mul(1 << (failures - 1).min(16));
                let pause = pause.min(patience.longest_pause);
                warn!(part = name, error = %broke, failures, ?pause, "restarting");
                health.set(&name, PartHealth::Restarting { error: broke.0, failures });
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stop.cancelled() => return Ok(()),
                }
                health.set(&name, PartHealth::Running);
            }
        });
    }

    /// Waits until every part was stopped, or one has failed for good.
    pub(crate) async fn wait(&mut self) -> Result<(), String> {
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(died)) => return Err(died),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// Asks every part to stop and waits for them, at most until `deadline`. Says whether all have.
    pub(crate) async fn stop(&mut self, deadline: Duration) -> bool {
        self.stop.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(deadline, all).await.is_err() {
            warn!(parts = self.tasks.len(), "stop deadline passed; dropping unfinished work");
            self.tasks.abort_all();
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    fn quick(failures: u32) -> Patience {
        Patience {
            first_pause: Duration::from_millis(1),
            longest_pause: Duration::from_millis(4),
            failures,
            healthy_after: Duration::from_secs(60),
        }
    }

    #[tokio::test]
    async fn a_part_that_panics_or_ends_starts_again() {
        let stop = CancellationToken::new();
        let mut supervisor = Supervisor::new(stop.clone(), quick(10));
        let starts = Arc::new(AtomicU32::new(0));
        let (counted, stopped) = (starts.clone(), stop.clone());
        supervisor.keep("part", move || {
            let (n, stop) = (counted.fetch_add(1, SeqCst), stopped.clone());
            async move {
                match n {
                    0 => panic!("first"),
                    1 => Ok(Ended::Stopped),
                    2 => Err(Broke("third".into())),
                    _ => {
                        stop.cancelled().await;
                        Ok(Ended::Stopped)
                    }
                }
            }
        });
        let health = supervisor.health();
        while starts.load(SeqCst) < 4 {
            tokio::task::yield_now().await;
        }
        assert!(health.problems().is_empty(), "{:?}", health.parts());
        assert!(supervisor.stop(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn a_part_that_keeps_dying_ends_the_process_with_words() {
        let mut supervisor = Supervisor::new(CancellationToken::new(), quick(3));
        supervisor.keep("relay", || async { Err(Broke("no luck".into())) });
        let health = supervisor.health();
        let died = supervisor.wait().await.unwrap_err();
        assert_eq!(died, "relay failed 3 times in a row: no luck");
        assert_eq!(health.problems(), ["relay keeps failing: no luck"]);
    }

    #[tokio::test]
    async fn a_part_that_retires_is_reported_and_left_alone() {
        let stop = CancellationToken::new();
        let mut supervisor = Supervisor::new(stop, quick(3));
        supervisor.keep("consumer a", || async { Ok(Ended::Retired("its policy says so".into())) });
        let health = supervisor.health();
        supervisor.wait().await.unwrap();
        assert_eq!(health.problems(), ["consumer a stopped: its policy says so"]);
    }
}
