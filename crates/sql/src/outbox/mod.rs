//! The outbox as the relay sees it: leases, cursors, and the rows that could not be published.

mod cursor;
mod keep;
mod lease;
mod marks;
mod parked;
mod read;
mod triage;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chapar_core::Headers;
use chapar_core::port::{
    BoxFuture, Checkpoint, Chunk, KeyMarks, Lease, LeaseLost, Outbox, OutboxError, OutboxRow,
    Renewed, Settled, Track,
};

pub use keep::{Keep, Kept};
pub use triage::{ParkedRow, RelayCard};

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::Store;

/// The outbox of a store, as the relay sees it.
#[derive(Debug, Clone)]
pub struct SqlOutbox {
    store: Store,
    /// The checkpoint of each track that is in the table, to be replaced by its exact key.
    written: Arc<Mutex<HashMap<i64, i64>>>,
}

impl SqlOutbox {
    /// The outbox of this store.
    pub fn new(store: Store) -> Self {
        SqlOutbox { store, written: Arc::default() }
    }

    /// A connection that has gone silent is left behind: somebody waits for the answer.
    async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, OutboxError>>,
    ) -> Result<T, OutboxError> {
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(answer) => answer,
            Err(_) => {
                self.store.reconnect_relay();
                Err(store(StoreError::Unavailable(sqlx::Error::PoolTimedOut)))
            }
        }
    }
}

/// How long the database may take for one call of the relay.
const PATIENCE: Duration = Duration::from_secs(10);

impl Outbox for SqlOutbox {
    fn lease<'a>(
        &'a self,
        owner: &'a str,
        epoch: Option<i64>,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Lease, OutboxError>> {
        Box::pin(self.within(async move {
            let mut tx = self.store.begin_relay().await.map_err(store)?;
            let lease = lease::lease(&mut tx.conn(), owner, epoch, ttl).await.map_err(store)?;
            tx.commit().await.map_err(store)?;
            let versions = lease.tracks.iter().map(|track| (track.id, track.version));
            *lock(&self.written) = versions.collect();
            Ok(lease)
        }))
    }

    fn renew(&self, epoch: i64, ttl: Duration) -> BoxFuture<'_, Result<Renewed, OutboxError>> {
        Box::pin(self.within(async move {
            let mut tx = self.store.begin_relay().await.map_err(store)?;
            let renewed = lease::renew(&mut tx.conn(), epoch, ttl).await.map_err(store)?;
            tx.commit().await.map_err(store)?;
            renewed.ok_or(LeaseLost { epoch }.into())
        }))
    }

    fn release(&self, epoch: i64) -> BoxFuture<'_, Result<(), OutboxError>> {
        Box::pin(self.within(async move {
            let mut tx = self.store.begin_relay().await.map_err(store)?;
            lease::bury(&mut tx.conn(), vec![epoch]).await.map_err(store)?;
            tx.commit().await.map_err(store)
        }))
    }

    fn read<'a>(
        &'a self,
        tracks: &'a [Track],
        limit: usize,
    ) -> BoxFuture<'a, Result<Chunk, OutboxError>> {
        Box::pin(
            self.within(async move { read::read(&self.store, tracks, limit).await.map_err(store) }),
        )
    }

    fn checkpoint<'a>(
        &'a self,
        epoch: i64,
        checkpoint: &'a Checkpoint,
    ) -> BoxFuture<'a, Result<(), OutboxError>> {
        Box::pin(self.within(async move {
            let mut tx = self.store.begin_relay().await.map_err(store)?;
            guard(&mut tx.conn(), epoch).await?;
            let written = lock(&self.written).clone();
            for track in &checkpoint.tracks {
                write_track(&mut tx.conn(), track, written.get(&track.id).copied())
                    .await
                    .map_err(store)?;
            }
            parked::park(&mut tx.conn(), &checkpoint.parks).await.map_err(store)?;
            tx.commit().await.map_err(store)?;
            let versions = checkpoint.tracks.iter().map(|track| (track.id, track.version));
            *lock(&self.written) = versions.collect();
            Ok(())
        }))
    }

    fn due<'a>(
        &'a self,
        epoch: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OutboxRow>, OutboxError>> {
        Box::pin(self.within(async move {
            let mut tx = self.store.begin_read().await.map_err(store)?;
            let rows = parked::due(&mut tx.conn(), epoch, limit).await.map_err(store)?;
            tx.rollback().await.map_err(store)?;
            Ok(rows)
        }))
    }

    fn settle<'a>(
        &'a self,
        epoch: i64,
        settled: &'a [(i64, Settled)],
    ) -> BoxFuture<'a, Result<(), OutboxError>> {
        Box::pin(self.within(async move {
            let mut tx = self.store.begin_relay().await.map_err(store)?;
            guard(&mut tx.conn(), epoch).await?;
            parked::settle(&mut tx.conn(), settled).await.map_err(store)?;
            tx.commit().await.map_err(store)
        }))
    }

    fn mark<'a>(
        &'a self,
        epoch: i64,
        tracks: &'a [Track],
        topics: &'a [String],
    ) -> BoxFuture<'a, Result<(), OutboxError>> {
        Box::pin(self.within(async move {
            let mut tx = self.store.begin_relay().await.map_err(store)?;
            // The guard comes last: a renewal waits for it, and gathering takes a while.
            marks::mark(&mut tx.conn(), tracks, topics).await.map_err(store)?;
            guard(&mut tx.conn(), epoch).await?;
            tx.commit().await.map_err(store)
        }))
    }

    fn marks<'a>(
        &'a self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<KeyMarks>, OutboxError>> {
        Box::pin(self.within(async move {
            let mut tx = self.store.begin_read().await.map_err(store)?;
            let marks = marks::marks(&mut tx.conn(), keys).await.map_err(store)?;
            tx.rollback().await.map_err(store)?;
            Ok(marks)
        }))
    }
}

fn store(error: StoreError) -> OutboxError {
    OutboxError::Store(Box::new(error))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Whoever buries a relay deletes its row: it waits for this transaction, or this one finds
/// nothing.
async fn guard(conn: &mut Conn<'_>, epoch: i64) -> Result<(), OutboxError> {
    static GUARD: Statement =
        Statement::new("select epoch from chapar.relays where epoch = $1 for update");
    let rows = conn.query(&GUARD, vec![epoch.into()]).await.map_err(store)?;
    if rows.is_empty() { Err(LeaseLost { epoch }.into()) } else { Ok(()) }
}

async fn write_track(
    conn: &mut Conn<'_>,
    track: &Track,
    written: Option<i64>,
) -> Result<(), StoreError> {
    static WRITE: Statement = Statement::new(
        "insert into chapar.tracks (track, version, cursor) values ($1, $2, $3) \
         on conflict (track, version) do nothing",
    );
    static REPLACE: Statement =
        Statement::new("delete from chapar.tracks where track = $1 and version = $2");
    // Tracks that have come to the same place go on as one.
    static JOIN: Statement =
        Statement::new("update chapar.shards set track = $1 where shard = any($2) and track <> $1");
    if written == Some(track.version) {
        return Ok(());
    }
    let args = vec![track.id.into(), track.version.into(), (&track.cursor.0).into()];
    conn.run(&WRITE, args).await?;
    if let Some(before) = written {
        conn.run(&REPLACE, vec![track.id.into(), before.into()]).await?;
    }
    let shards: Vec<i64> = track.shards.iter().map(|shard| i64::from(*shard)).collect();
    if conn.run(&JOIN, vec![track.id.into(), shards.into()]).await? > 0 {
        // What is left behind would hold the floor down.
        lease::forget_tracks(conn).await?;
    }
    Ok(())
}

/// Headers are kept as a JSON array of pairs: a broker's headers may repeat.
pub(crate) fn to_json_pairs(headers: &Headers) -> String {
    serde_json::to_string(headers).unwrap_or_else(|_| "[]".to_owned())
}

pub(crate) fn from_json_pairs(headers: &str) -> Headers {
    serde_json::from_str(headers).unwrap_or_default()
}
