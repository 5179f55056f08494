//! The outbox as the relay sees it: leases, cursors, parked rows and republish requests.

mod cursor;
mod keep;
mod lease;
mod life;
mod marks;
mod parked;
mod read;
mod rebase;
mod republish;
mod requests;
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
pub use rebase::Rebased;
pub use requests::RepublishRequest;
pub use triage::{ParkedRow, QuarantineFilter, RelayCard};

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::{Backend, Store};
use crate::tables::Tables;

/// The outbox of a store, as the relay sees it.
#[derive(Debug, Clone)]
pub struct SqlOutbox {
    store: Store,
    /// The version of each track's checkpoint in the table, which the next one replaces.
    written: Arc<Mutex<HashMap<i64, i64>>>,
    /// The life of the store in which the lease was taken.
    life: Arc<Mutex<String>>,
}

impl SqlOutbox {
    /// The outbox of this store.
    pub fn new(store: Store) -> Self {
        SqlOutbox { store, written: Arc::default(), life: Arc::default() }
    }

    /// Gives up a call whose connection does not answer, and opens new connections.
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

impl SqlOutbox {
    async fn write_checkpoint(
        &self,
        epoch: i64,
        checkpoint: &Checkpoint,
        row_by_row: bool,
    ) -> Result<(), OutboxError> {
        let mut tx = self.store.begin_relay().await.map_err(store)?;
        self.guard(&mut tx.conn(), epoch).await?;
        let written = lock(&self.written).clone();
        for track in &checkpoint.tracks {
            write_track(&mut tx.conn(), track, written.get(&track.id).copied())
                .await
                .map_err(store)?;
        }
        let conn = &mut tx.conn();
        match row_by_row {
            true => parked::park_row_by_row(conn, &checkpoint.parks).await.map_err(store)?,
            false => parked::park(conn, &checkpoint.parks).await.map_err(store)?,
        }
        republish::count(&mut tx.conn(), &checkpoint.republished).await.map_err(store)?;
        tx.commit().await.map_err(store)?;
        let versions = checkpoint.tracks.iter().map(|track| (track.id, track.version));
        *lock(&self.written) = versions.collect();
        Ok(())
    }

    /// Checks the epoch and the life of the store, and locks the epoch until commit: a relay that
    /// removes an expired one deletes this row, so it either waits for this transaction or has
    /// left nothing to find.
    async fn guard(&self, conn: &mut Conn<'_>, epoch: i64) -> Result<(), OutboxError> {
        const POSTGRES: &str = "select epoch from chapar.relays where epoch = $1 \
             and exists (select from chapar.life where id = $2) for update";
        const SQLITE: &str = "select epoch from chapar_relays where epoch = $1";
        let rows = match conn.backend() {
            Backend::Postgres => {
                let life = lock(&self.life).clone();
                conn.fetch(POSTGRES, vec![epoch.into(), life.into()]).await
            }
            Backend::Sqlite => conn.fetch(SQLITE, vec![epoch.into()]).await,
        };
        if rows.map_err(store)?.is_empty() { Err(LeaseLost { epoch }.into()) } else { Ok(()) }
    }
}

/// The timeout of a call.
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
            let life = life::enter(&mut tx.conn()).await.map_err(store)?;
            let lease = lease::lease(&mut tx.conn(), owner, epoch, ttl, life.number)
                .await
                .map_err(store)?;
            tx.commit().await.map_err(store)?;
            *lock(&self.life) = life.id;
            let versions = lease.tracks.iter().map(|track| (track.id, track.version));
            *lock(&self.written) = versions.collect();
            Ok(lease)
        }))
    }

    fn renew(&self, epoch: i64, ttl: Duration) -> BoxFuture<'_, Result<Renewed, OutboxError>> {
        Box::pin(self.within(async move {
            let mut tx = self.store.begin_relay().await.map_err(store)?;
            let life = lock(&self.life).clone();
            life::check(&mut tx.conn(), &life).await.map_err(|error| named(error, epoch))?;
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
        epoch: i64,
        tracks: &'a [Track],
        limit: usize,
    ) -> BoxFuture<'a, Result<Chunk, OutboxError>> {
        Box::pin(self.within(async move {
            let life = lock(&self.life).clone();
            let read = read::read(&self.store, &life, tracks, limit).await;
            read.map_err(|error| named(error, epoch))
        }))
    }

    fn checkpoint<'a>(
        &'a self,
        epoch: i64,
        checkpoint: &'a Checkpoint,
    ) -> BoxFuture<'a, Result<(), OutboxError>> {
        Box::pin(self.within(async move {
            match self.write_checkpoint(epoch, checkpoint, false).await {
                // Some text in it cannot be stored. One such row must not stop all others.
                Err(OutboxError::Store(error)) if is_of_data(error.as_ref()) => {
                    self.write_checkpoint(epoch, checkpoint, true).await
                }
                written => written,
            }
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
            self.guard(&mut tx.conn(), epoch).await?;
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
            // The guard comes last: a renewal waits for its lock, and collecting marks is slow.
            marks::mark(&mut tx.conn(), tracks, topics).await.map_err(store)?;
            self.guard(&mut tx.conn(), epoch).await?;
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

fn is_of_data(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<StoreError>().is_some_and(StoreError::is_of_data)
}

fn store(error: StoreError) -> OutboxError {
    OutboxError::Store(Box::new(error))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// An error of the store, for the relay that holds this lease.
fn named(error: StoreError, epoch: i64) -> OutboxError {
    match error {
        StoreError::AnotherLife => LeaseLost { epoch }.into(),
        error => store(error),
    }
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
    // Tracks that have reached the same position continue as one.
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
        // A track without shards would keep the floor from rising.
        lease::forget_tracks(conn).await?;
    }
    Ok(())
}

pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Headers are stored as a JSON array of pairs: the headers of a broker may repeat.
pub(crate) fn to_json_pairs(headers: &Headers) -> String {
    serde_json::to_string(headers).unwrap_or_else(|_| "[]".to_owned())
}

pub(crate) fn from_json_pairs(headers: &str) -> Headers {
    serde_json::from_str(headers).unwrap_or_default()
}
