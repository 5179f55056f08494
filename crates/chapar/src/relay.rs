//! The relay: publishes the outbox to the transport, in commit order per key.
//!
//! [`machine::relay`](chapar_core::machine::relay) decides what to do; this module carries it out,
//! each call in a task of its own.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chapar_core::machine::relay::{
    Asked, Do, Happened, Plan, PublishError, Reading, Relay as Machine, Sending,
};
use chapar_core::machine::stamps::{self, Stamper};
use chapar_core::port::{
    Chunk, Fate, Lease, Outbox, OutboxError, Outgoing, Settled, Transport, TransportError,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::chapar::Chapar;
use crate::metrics::Metrics;
use crate::supervisor::{Broke, Ended, Part};

#[derive(Clone)]
pub(crate) struct Relay {
    pub(crate) chapar: Chapar,
    pub(crate) outbox: Arc<dyn Outbox>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) owner: String,
    pub(crate) plan: Plan,
    /// The topics whose events get an order stamp.
    pub(crate) stamped: Vec<String>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

/// The capacity of a generation in the cache of marks, in keys.
const STAMPED_KEYS: usize = 20_000;
/// A relay that takes over computes the marks of about this long from the rows.
const MARK_EVERY: Duration = Duration::from_secs(2);
const DUE_ROWS: usize = 500;
/// The timeout of a publish.
const PUBLISH_PATIENCE: Duration = Duration::from_secs(30);

impl Relay {
    pub(crate) async fn run(self) -> Part {
        let started = Instant::now();
        let mut plan = self.plan.clone();
        plan.ordered_in_flight = self.transport.features().ordered_in_flight;
        plan.mark_every = (!self.stamped.is_empty()).then_some(MARK_EVERY);
        let mut machine = Machine::new(plan);
        let mut nudges = self.chapar.store().nudges();
        let hands = Arc::new(Hands {
            stamper: Mutex::new(Stamper::new(&self.stamped, STAMPED_KEYS)),
            lease: self.plan.lease,
            relay: self,
        });
        let stop = hands.relay.stop.clone();
        let mut work = JoinSet::new();
        let mut happened = Happened::Tick;
        let mut stopping = false;
        loop {
            let wall = hands.relay.chapar.clock().now();
            for what in machine.step(started.elapsed(), wall, fastrand::f64(), happened) {
                if matches!(what, Do::Leave) {
                    return Ok(Ended::Stopped);
                }
                let hands = hands.clone();
                work.spawn(async move { hands.carry_out(what).await });
            }
            let pause = machine.wake_at().saturating_sub(started.elapsed());
            happened = tokio::select! {
                biased;
                Some(answer) = work.join_next(), if !work.is_empty() => match answer {
                    Ok(answer) => answer,
                    // The lease expires by itself; this relay after its restart, or another one, goes on
                    // from the last checkpoint.
                    Err(error) => return Err(Broke(error.to_string())),
                },
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    Happened::Stop
                }
                nudged = nudges.wait(pause) => match nudged {
                    true => Happened::Nudge,
                    false => Happened::Tick,
                },
            };
        }
    }
}

/// Carries out what the machine decides.
struct Hands {
    relay: Relay,
    stamper: Mutex<Stamper>,
    lease: Duration,
}

impl Hands {
    async fn carry_out(&self, what: Do) -> Happened {
        let outbox = &self.relay.outbox;
        match what {
            Do::Lease(epoch) => {
                let lease = outbox.lease(&self.relay.owner, epoch, self.lease).await;
                let republishes =
                    |lease: &Lease| lease.tracks.iter().any(|track| track.republishing.is_some());
                if lease.as_ref().is_ok_and(republishes) {
                    self.relay.transport.forget_published();
                }
                if let Ok(lease) = &lease {
                    self.stamper().begin_life(lease.life);
                }
                answer(Asked::Lease, lease, Happened::Leased)
            }
            Do::Renew(epoch) => {
                answer(Asked::Renew, outbox.renew(epoch, self.lease).await, Happened::Renewed)
            }
            Do::Read(reading) => {
                let read = self.read(&reading).await;
                answer(Asked::Read, read, |(chunk, full)| Happened::Read { chunk, full })
            }
            Do::Due(epoch) => answer(Asked::Due, outbox.due(epoch, DUE_ROWS).await, Happened::Due),
            Do::Publish(batch) => self.publish(batch).await,
            Do::Checkpoint(epoch, checkpoint) => {
                let written = outbox.checkpoint(epoch, &checkpoint).await;
                if written.is_ok() {
                    self.count_quarantined(checkpoint.parks.iter().map(|park| &park.fate));
                }
                answer(Asked::Checkpoint, written, |()| Happened::Checkpointed)
            }
            Do::Mark(epoch, tracks) => {
                let marked = outbox.mark(epoch, &tracks, &self.relay.stamped).await;
                answer(Asked::Mark, marked, |()| Happened::Marked)
            }
            Do::Settle(epoch, settled) => {
                let written = outbox.settle(epoch, &settled).await;
                if written.is_ok() {
                    self.count_quarantined(settled.iter().filter_map(
                        |(_, settled)| match settled {
                            Settled::Failed { fate, .. } => Some(fate),
                            Settled::Published => None,
                        },
                    ));
                }
                answer(Asked::Settle, written, |()| Happened::Settled)
            }
            Do::Release(epoch) => {
                answer(Asked::Release, outbox.release(epoch).await, |()| Happened::Released)
            }
            Do::Leave => Happened::Tick,
        }
    }

    async fn read(&self, reading: &Reading) -> Result<(Chunk, bool), OutboxError> {
        let outbox = &self.relay.outbox;
        if reading.fresh {
            self.stamper().forget();
            outbox.mark(reading.epoch, &reading.tracks, &self.relay.stamped).await?;
        }
        let mut chunk = outbox.read(reading.epoch, &reading.tracks, reading.limit).await?;
        self.stamper().marked(reading.marked);
        let unknown = self.stamper().unknown(&chunk.rows);
        if !unknown.is_empty() {
            let known = outbox.marks(&unknown).await?;
            self.stamper().learn(unknown, known);
        }
        let mut stamper = self.stamper();
        stamper.stamp(reading.number, &mut chunk.rows);
        Ok((chunk, stamper.is_full()))
    }

    fn stamper(&self) -> std::sync::MutexGuard<'_, Stamper> {
        self.stamper.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    async fn publish(&self, batch: Vec<Sending>) -> Happened {
        let mut results = Vec::with_capacity(batch.len());
        let mut messages = Vec::with_capacity(batch.len());
        let mut sent = Vec::with_capacity(batch.len());
        let mut refused = HashSet::new();
        for Sending { mut row, ticket } in batch {
            if row.key.as_ref().is_some_and(|key| refused.contains(key)) {
                results.push((ticket, Err(PublishError::Behind)));
                continue;
            }
            let complete = match row.unreadable.take() {
                Some(error) => Err(error),
                None => self.relay.chapar.complete(&mut row),
            };
            if let Err(error) = complete {
                warn!(event_id = %row.event_id, topic = row.topic, error, "event quarantined");
                refused.extend(row.key);
                results.push((ticket, Err(PublishError::Never(error))));
                continue;
            }
            if let Some(stamp) = row.stamp {
                row.headers.push(stamps::HEADER, stamp);
            }
            messages.push(Outgoing {
                id: row.event_id,
                topic: row.topic,
                tenant: row.tenant,
                key: row.key,
                headers: row.headers,
                body: row.body,
            });
            sent.push(ticket);
        }
        if messages.is_empty() {
            return Happened::Published(results);
        }
        let published = self.relay.transport.publish(messages);
        let metrics = &self.relay.metrics;
        match tokio::time::timeout(PUBLISH_PATIENCE, published).await {
            Ok(receipts) => {
                let taken = receipts.iter().filter(|receipt| receipt.is_ok()).count();
                metrics.add_published(taken as u64);
                metrics.add_publish_errors((sent.len() - taken) as u64);
                let receipts = receipts.into_iter().map(|receipt| receipt.map(|_| ()));
                let receipts = receipts.map(|receipt| receipt.map_err(refusal));
                results.extend(sent.into_iter().zip(receipts));
            }
            Err(_) => {
                metrics.add_publish_errors(sent.len() as u64);
                let silent = || Err(PublishError::Later("publishing timed out".into()));
                results.extend(sent.into_iter().map(|ticket| (ticket, silent())));
            }
        }
        Happened::Published(results)
    }

    fn count_quarantined<'a>(&self, fates: impl Iterator<Item = &'a Fate>) {
        let quarantined = fates.filter(|fate| matches!(fate, Fate::Quarantine { .. })).count();
        self.relay.metrics.add_quarantined(quarantined as u64);
    }
}

fn refusal(error: TransportError) -> PublishError {
    match error {
        TransportError::Refused(_) => PublishError::Never(error.to_string()),
        error => PublishError::Later(error.to_string()),
    }
}

fn answer<T>(
    asked: Asked,
    result: Result<T, OutboxError>,
    happened: impl FnOnce(T) -> Happened,
) -> Happened {
    match result {
        Ok(answer) => happened(answer),
        Err(OutboxError::LeaseLost(lost)) => {
            debug!(%lost, "leasing again");
            Happened::LeaseLost(asked)
        }
        Err(error) => {
            warn!(
                error = &error as &dyn std::error::Error,
                ?asked,
                "outbox call failed; leasing again"
            );
            Happened::Failed(asked)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, StoreOptions};
    use chapar_core::dialect::MetadataJson;
    use chapar_core::port::{BoxFuture, Checkpoint, KeyMarks, OutboxRow, Renewed, Track};
    use chapar_sql::SqlTransport;

    /// An outbox with a defect.
    struct Broken;

    type Answer<'a, T> = BoxFuture<'a, Result<T, OutboxError>>;

    impl Outbox for Broken {
        fn lease<'a>(&'a self, _: &'a str, _: Option<i64>, _: Duration) -> Answer<'a, Lease> {
            Box::pin(async { panic!("a defect") })
        }

        fn renew(&self, _: i64, _: Duration) -> Answer<'_, Renewed> {
            unreachable!("there is no lease")
        }

        fn release(&self, _: i64) -> Answer<'_, ()> {
            unreachable!("there is no lease")
        }

        fn read<'a>(&'a self, _: i64, _: &'a [Track], _: usize) -> Answer<'a, Chunk> {
            unreachable!("there is no lease")
        }

        fn checkpoint<'a>(&'a self, _: i64, _: &'a Checkpoint) -> Answer<'a, ()> {
            unreachable!("there is no lease")
        }

        fn due(&self, _: i64, _: usize) -> Answer<'_, Vec<OutboxRow>> {
            unreachable!("there is no lease")
        }

        fn settle<'a>(&'a self, _: i64, _: &'a [(i64, Settled)]) -> Answer<'a, ()> {
            unreachable!("there is no lease")
        }

        fn mark<'a>(&'a self, _: i64, _: &'a [Track], _: &'a [String]) -> Answer<'a, ()> {
            unreachable!("there is no lease")
        }

        fn marks<'a>(&'a self, _: &'a [String]) -> Answer<'a, Vec<KeyMarks>> {
            unreachable!("there is no lease")
        }
    }

    #[tokio::test]
    async fn a_panic_in_a_task_is_returned_to_the_caller() {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let url = format!("sqlite:{}", folder.path().join("relay.db").display());
        let store = Store::open(&url, &StoreOptions::default()).await;
        let store = store.unwrap_or_else(|e| panic!("{e}"));
        let profile = chapar_testkit::profile("melmastoon");
        let relay = Relay {
            transport: Arc::new(SqlTransport::new(store.clone(), "a")),
            chapar: Chapar::builder(store, profile, Arc::new(MetadataJson)).build(),
            outbox: Arc::new(Broken),
            owner: "a".into(),
            plan: Plan::default(),
            stamped: Vec::new(),
            metrics: Metrics::default(),
            stop: CancellationToken::new(),
        };
        let Err(Broke(error)) = relay.run().await else { panic!("it cannot go on") };
        assert!(error.contains("panic"), "{error}");
    }
}
