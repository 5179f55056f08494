//! Publishing again what a broker has lost.

use std::collections::HashSet;

use chapar_core::port::{Outgoing, Transport};
use jiff::Timestamp;

use crate::chapar::Chapar;
use crate::{AuditEntry, StoreError};

/// What a [`Chapar::republish`] came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Republished {
    /// Events that the transport has taken again.
    pub taken: u64,
    /// Of those, how many it still had.
    pub duplicates: u64,
    /// The last row that was published again; another run can go on behind it.
    pub last: i64,
}

/// Why a republication stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepublishError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The transport did not take an event.
    #[error(
        "row {seq} was not taken: {error}; {} were; go on with --after {}", .done.taken, .done.last
    )]
    Transport {
        /// The row.
        seq: i64,
        /// What the transport said.
        error: String,
        /// What was done before.
        done: Republished,
    },
}

const BATCH: usize = 500;

impl Chapar {
    /// Publishes everything again that was written since then and published, under the same ids:
    /// who has applied an event skips it. Rows that wait or are parked are left to the relay.
    ///
    /// `go_on` is told how far it is after every batch, and says whether to go on.
    pub async fn republish(
        &self,
        transport: &dyn Transport,
        since: Timestamp,
        after: i64,
        actor: &str,
        reason: &str,
        mut go_on: impl FnMut(&Republished) -> bool,
    ) -> Result<Republished, RepublishError> {
        let mut done = Republished { last: after, ..Republished::default() };
        loop {
            let mut tx = self.store().begin_read().await?;
            let rows = tx.conn().published_rows(since, done.last, BATCH).await?;
            tx.rollback().await?;
            let Some(last) = rows.last().map(|row| row.seq) else { break };
            let mut batch: Vec<(i64, Outgoing)> = Vec::with_capacity(rows.len());
            let mut keys = HashSet::new();
            for mut row in rows {
                let seq = row.seq;
                // What could not be completed was never published.
                if self.complete(&mut row).is_err() {
                    continue;
                }
                if row.key.as_ref().is_some_and(|key| !keys.insert(key.clone())) {
                    send(transport, std::mem::take(&mut batch), &mut done).await?;
                    keys.clear();
                    keys.extend(row.key.clone());
                }
                let message = Outgoing {
                    id: row.event_id,
                    topic: row.topic,
                    tenant: row.tenant,
                    key: row.key,
                    headers: row.headers,
                    body: row.body,
                };
                batch.push((seq, message));
            }
            send(transport, batch, &mut done).await?;
            done.last = last;
            if !go_on(&done) {
                break;
            }
        }
        let detail = format!("{{\"since\":\"{since}\",\"taken\":{}}}", done.taken);
        let mut tx = self.store().begin_engine().await?;
        let entry = AuditEntry {
            actor,
            action: "outbox.republish",
            target: "outbox",
            reason,
            detail: &detail,
        };
        tx.conn().audit(&entry).await?;
        tx.commit().await?;
        Ok(done)
    }
}

/// One batch, with one event of a key at most.
async fn send(
    transport: &dyn Transport,
    batch: Vec<(i64, Outgoing)>,
    done: &mut Republished,
) -> Result<(), RepublishError> {
    let (seqs, messages): (Vec<i64>, Vec<Outgoing>) = batch.into_iter().unzip();
    if messages.is_empty() {
        return Ok(());
    }
    for (seq, receipt) in seqs.into_iter().zip(transport.publish(messages).await) {
        match receipt {
            Ok(receipt) => {
                done.taken += 1;
                done.duplicates += u64::from(receipt.duplicate);
                done.last = done.last.max(seq);
            }
            Err(error) => {
                let error = error.to_string();
                return Err(RepublishError::Transport { seq, error, done: *done });
            }
        }
    }
    Ok(())
}
