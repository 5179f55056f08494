//! The relay: from the outbox to the transport, in commit order per key.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar_core::machine::lease::{Holder, Tenure};
use chapar_core::machine::retry::{Next, RetryPolicy};
use chapar_core::port::{
    Outbox, OutboxError, OutboxRow, Outcome, Outgoing, Receipt, ShardLease, Transport,
    TransportError,
};
use chapar_sql::Nudges;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::chapar::Chapar;
use crate::metrics::Metrics;

pub(crate) struct Relay {
    pub(crate) chapar: Chapar,
    pub(crate) outbox: Arc<dyn Outbox>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) owner: String,
    pub(crate) retry: RetryPolicy,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

/// A relay that has died is replaced within this and a third of it.
const LEASE: Duration = Duration::from_secs(3);
const SHARDS: usize = 64;
const BATCH: usize = 512;
const IDLE: Duration = Duration::from_millis(50);

impl Relay {
    pub(crate) async fn run(self) {
        let mut held = Held::default();
        let started = Instant::now();
        let mut nudges = self.chapar.store().nudges();
        while !self.stop.is_cancelled() {
            match self.round(&mut held, started).await {
                Ok(0) => self.idle(&mut nudges, IDLE).await,
                Ok(_) => {}
                Err(OutboxError::LeaseLost(lost)) => {
                    debug!(%lost, "another relay took a shard");
                    held = Held::default();
                }
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "the outbox did not answer");
                    self.idle(&mut nudges, Duration::from_millis(500)).await;
                }
            }
        }
        if let Err(error) = self.outbox.release(&self.owner, &held.leases).await {
            debug!(%error, "leases are left to expire");
        }
    }

    async fn idle(&self, nudges: &mut Nudges, limit: Duration) {
        tokio::select! {
            () = nudges.wait(limit) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Reads, publishes and marks once; returns how many rows it got through.
    async fn round(&self, held: &mut Held, started: Instant) -> Result<usize, OutboxError> {
        let now = || started.elapsed();
        let state = held.tenure.map_or(Holder::Stop, |tenure| tenure.at(now()));
        if !matches!(state, Holder::Work(_)) {
            let asked_at = now();
            held.leases = self.outbox.lease(&self.owner, SHARDS, LEASE).await?;
            held.tenure = Some(Tenure::new(asked_at, LEASE));
        }
        if held.leases.is_empty() {
            return Ok(0);
        }
        let mut rows = self.outbox.read(&held.leases, BATCH).await?;
        if !self.transport.features().ordered_in_flight {
            keep_first_of_each_key(&mut rows);
        }
        if rows.is_empty() {
            return Ok(0);
        }
        let outcomes = self.publish(rows).await;
        self.outbox.mark(&held.leases, &outcomes).await?;
        Ok(outcomes.len())
    }

    async fn publish(&self, rows: Vec<OutboxRow>) -> Vec<(i64, Outcome)> {
        let mut outcomes = Vec::with_capacity(rows.len());
        let mut batch = Vec::with_capacity(rows.len());
        let mut sent = Vec::with_capacity(rows.len());
        let mut refused_keys = HashSet::new();
        for mut row in rows {
            // A follower of a refused event keeps its place behind it.
            if row.key.as_ref().is_some_and(|key| refused_keys.contains(key)) {
                continue;
            }
            if let Err(error) = self.chapar.complete(&mut row) {
                warn!(event_id = %row.event_id, topic = row.topic, error, "quarantined");
                self.metrics.add_quarantined(1);
                refused_keys.extend(row.key.clone());
                outcomes.push((row.seq, Outcome::Quarantine { error }));
                continue;
            }
            batch.push(Outgoing {
                id: row.event_id.clone(),
                topic: std::mem::take(&mut row.topic),
                tenant: std::mem::take(&mut row.tenant),
                key: row.key.clone(),
                headers: std::mem::take(&mut row.headers),
                body: row.body.clone(),
            });
            sent.push(row);
        }
        if batch.is_empty() {
            return outcomes;
        }
        let receipts = self.transport.publish(batch).await;
        let mut failed_keys = HashSet::new();
        for (row, receipt) in sent.into_iter().zip(receipts) {
            if row.key.as_ref().is_some_and(|key| failed_keys.contains(key)) {
                continue;
            }
            let outcome = self.outcome(&row, receipt);
            if outcome != Outcome::Published {
                failed_keys.extend(row.key);
            }
            outcomes.push((row.seq, outcome));
        }
        outcomes
    }

    fn outcome(&self, row: &OutboxRow, receipt: Result<Receipt, TransportError>) -> Outcome {
        let error = match receipt {
            Ok(_) => {
                self.metrics.add_published(1);
                return Outcome::Published;
            }
            Err(error) => error,
        };
        self.metrics.add_publish_errors(1);
        let now = self.chapar.clock().now();
        let first = row.first_failed_at.unwrap_or(now);
        match self.retry.after(row.attempts + 1, first, now, fastrand::f64()) {
            Next::RetryAt(at) => Outcome::Retry { at, error: error.to_string() },
            Next::GiveUp => {
                self.metrics.add_quarantined(1);
                Outcome::Quarantine { error: error.to_string() }
            }
        }
    }
}

#[derive(Default)]
struct Held {
    leases: Vec<ShardLease>,
    tenure: Option<Tenure>,
}

fn keep_first_of_each_key(rows: &mut Vec<OutboxRow>) {
    let mut seen = HashSet::new();
    rows.retain(|row| row.key.as_ref().is_none_or(|key| seen.insert(key.clone())));
}
