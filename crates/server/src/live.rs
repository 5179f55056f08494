use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chapar::ops::{Overview, overview};
use chapar::{Metrics, Store, StoreError};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tracing::warn;

use crate::pulse::Pulse;
use crate::snapshot::Snapshot;

const SECOND: Duration = Duration::from_secs(1);
/// The timeout for reading the store.
const PATIENCE: Duration = Duration::from_secs(5);
/// Reading may take one part in this many of a store's time: a large or busy store is read less
/// often.
const SHARE: u32 = 20;
/// The longest pause between two reads, however slow the store is.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const LETTERS: i64 = 20;
const SAGAS: i64 = 12;

/// The data of the pages, read once for all viewers.
///
/// Counters are sampled from memory every second; the store is read only while there are viewers.
#[derive(Debug)]
pub(crate) struct Live {
    store: Store,
    metrics: Metrics,
    started_at: Timestamp,
    pulse: Mutex<Pulse>,
    reading: tokio::sync::Mutex<Reading>,
    latest: watch::Sender<Option<Arc<str>>>,
}

/// The last data read from the store.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) overview: Overview,
    /// The last read failed; the data is older.
    pub(crate) failed: bool,
    next: Option<Instant>,
}

impl Live {
    pub(crate) fn new(store: Store, metrics: Metrics, started_at: Timestamp) -> Self {
        let pulse = Mutex::new(Pulse::new(&metrics, Instant::now()));
        let (latest, _) = watch::channel(None);
        Live { store, metrics, started_at, pulse, reading: Default::default(), latest }
    }

    /// The current state.
    pub(crate) async fn snapshot(&self) -> Snapshot {
        let mut reading = self.reading.lock().await;
        let asked = Instant::now();
        if reading.next.is_none_or(|next| next <= asked) {
            match timeout(PATIENCE, self.read()).await {
                Ok(Ok(fresh)) => *reading = fresh,
                Ok(Err(error)) => {
                    warn!(%error, "the console cannot read the store");
                    reading.failed = true;
                }
                Err(_) => {
                    warn!("the store did not answer the console within {PATIENCE:?}");
                    reading.failed = true;
                }
            }
            // A little less than a second, so that it has expired at the next tick.
            let pause = (asked.elapsed() * SHARE).clamp(SECOND * 9 / 10, LONGEST_PAUSE);
            reading.next = Some(asked + pause);
        }
        let pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        Snapshot::new(&reading, &pulse, &self.metrics, self.started_at)
    }

    /// Snapshots as JSON, one per second from now on, while [`Live::run`] runs.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.latest.subscribe()
    }

    /// Has the store read again for the next snapshot, because something changed.
    pub(crate) async fn expire(&self) {
        self.reading.lock().await.next = None;
    }

    /// Samples the counters and sends snapshots to viewers, without end.
    pub(crate) async fn run(&self) {
        let beat = async {
            let mut seconds = seconds();
            loop {
                seconds.tick().await;
                let mut pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
                pulse.beat(&self.metrics, Instant::now());
            }
        };
        let tell = async {
            let mut seconds = seconds();
            loop {
                seconds.tick().await;
                if self.latest.receiver_count() > 0 {
                    let json = self.snapshot().await.to_json();
                    self.latest.send_replace(Some(json.into()));
                }
            }
        };
        // In a task of its own, so that a slow store does not distort the chart's time axis.
        let ((), ()) = tokio::join!(beat, tell);
    }

    async fn read(&self) -> Result<Reading, StoreError> {
        let overview = overview(&self.store, LETTERS, SAGAS).await?;
        Ok(Reading { overview, failed: false, next: None })
    }
}

fn seconds() -> Interval {
    let mut seconds = interval(SECOND);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    seconds
}
