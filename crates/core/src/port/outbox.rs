use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::headers::Headers;
use crate::id::Id;
use crate::port::BoxFuture;

/// A part of the key space. All events of one key are in one shard.
pub type Shard = u16;

/// A position in an outbox. Only the store that wrote it can interpret the text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor(pub String);

/// A group of shards that share one cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// Identifies the track in its store.
    pub id: i64,
    /// The number of the checkpoint.
    pub version: i64,
    /// The shards.
    pub shards: Vec<Shard>,
    /// How far they were read.
    pub cursor: Cursor,
    /// The republish request that the cursor is working through. Until it is done, reading the
    /// track gives rows that were published before, and no new ones.
    pub republishing: Option<i64>,
}

/// What a relay may publish until the lease expires and another relay takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The fencing token: never given twice, and named by every write of the holder.
    pub epoch: i64,
    /// The shards, at their last checkpoint.
    pub tracks: Vec<Track>,
    /// The life of the store, which stamps name: it rises when numbers may be given out a second
    /// time, after a crash, a failover or a restore. 0 is the first.
    pub life: u32,
}

/// The result of one read.
#[derive(Debug, Clone, Default)]
pub struct Chunk {
    /// The rows, in order of `seq` within a key.
    pub rows: Vec<OutboxRow>,
    /// The tracks, behind the rows.
    pub tracks: Vec<Track>,
}

/// A committed event, as the relay publishes it.
#[derive(Debug, Clone)]
pub struct OutboxRow {
    /// Ascending in commit order within a key.
    pub seq: i64,
    /// The event.
    pub event_id: Id,
    /// The topic it goes to.
    pub topic: String,
    /// The tenant it belongs to.
    pub tenant: String,
    /// Its ordering key; `None` for an event that is declared unordered.
    pub key: Option<String>,
    /// The headers of the message.
    pub headers: Headers,
    /// The body of the message.
    pub body: Bytes,
    /// Earlier rows of its key are parked: it has to wait behind them.
    pub behind: bool,
    /// The failed attempts so far, if it was parked.
    pub tried: Tried,
    /// Its order stamp, for topics whose order across topics is stamped. Parked and republished
    /// rows come with the stamp of their first publication; new rows are stamped after the read.
    pub stamp: Option<String>,
    /// The republish request that asks for it; `None` for a row that was not published yet.
    pub republish: Option<i64>,
    /// Set for an event that was written by `chapar.emit`: the body is the bare payload, and the
    /// relay completes the envelope from the system's profile. Boxed because rows are moved often
    /// and drafts are rare.
    pub draft: Option<Box<OutboxDraft>>,
    /// Why the row cannot be read. It is quarantined like one that the transport refuses: a row
    /// that anyone may write must not stop its shard.
    pub unreadable: Option<String>,
    /// When it was written, by the database's clock.
    pub written_at: Timestamp,
}

impl OutboxRow {
    /// About how much memory it takes.
    pub fn size(&self) -> usize {
        let draft = self.draft.as_ref().map_or(0, |draft| draft.facts.len());
        self.body.len() + self.headers.size() + draft + 256
    }
}

/// What an event written by `chapar.emit` carries besides its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxDraft {
    /// The kind of aggregate.
    pub aggregate_type: String,
    /// The aggregate.
    pub aggregate_id: String,
    /// The key of the business intent.
    pub idempotency_key: Option<String>,
    /// The correlation it belongs to.
    pub correlation_id: String,
    /// What caused it.
    pub causation_id: Option<String>,
    /// Actor and metadata, as JSON.
    pub facts: String,
}

/// The failed attempts to publish a parked row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tried {
    /// How many there were.
    pub attempts: u32,
    /// When the first one failed.
    pub first_failed_at: Option<Timestamp>,
}

/// What happens to a row that could not be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It waits behind an earlier row of its key.
    Behind,
    /// It failed and will be retried.
    Retry {
        /// The time of the next attempt.
        at: Timestamp,
        /// What went wrong.
        error: String,
    },
    /// It failed permanently and waits for an operator.
    Quarantine {
        /// What went wrong.
        error: String,
    },
}

/// A row that the cursor passes without its being published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Park {
    /// The row.
    pub seq: i64,
    /// Why it is parked.
    pub fate: Fate,
    /// Its order stamp, kept for the time when it is published.
    pub stamp: Option<String>,
}

/// The outcome of an attempt to publish a parked row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The transport has it durably.
    Published,
    /// It failed again. `counts` is false during an outage of the transport, which says nothing
    /// about the row.
    Failed {
        /// What happens to it.
        fate: Fate,
        /// Whether the attempt is counted.
        counts: bool,
    },
}

/// The marks of a key: the last sequence number of each subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMarks {
    /// The key.
    pub key: String,
    /// Subjects and the `seq` of their last event.
    pub marks: BTreeMap<String, i64>,
}

/// Progress of a relay, written in one transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The positions up to which every row is published or parked.
    pub tracks: Vec<Track>,
    /// The rows before those positions that could not be published.
    pub parks: Vec<Park>,
    /// What was republished since the last checkpoint, by request.
    pub republished: BTreeMap<i64, Republished>,
}

/// Progress of a republish request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Republished {
    /// Rows that the transport has taken again.
    pub published: u64,
    /// Rows that it did not take, and that are parked with their keys.
    pub parked: u64,
}

impl Republished {
    /// Adds what came later.
    pub fn add(&mut self, later: Republished) {
        self.published += later.published;
        self.parked += later.parked;
    }
}

/// The result of renewing a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// It holds.
    Held,
    /// It holds, but another [`Lease`] call is needed soon: the shards are not shared equally any
    /// more, or a republish request has to be started or dropped.
    Unbalanced,
}

/// The lease was taken by another relay, or the store has begun a new life: nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease of epoch {epoch} is lost")]
pub struct LeaseLost {
    /// The epoch that is over.
    pub epoch: i64,
}

/// Why a call to the outbox failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The lease is lost; stop publishing.
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
    /// The store failed; the call may be repeated.
    #[error("the outbox's store failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The relay's view of the store: committed events, by tracks of shards.
///
/// # Contract
/// - A row appears once its transaction has committed, however late that is: no row is skipped
///   because rows with a higher `seq` were read before it.
/// - Within a key, rows appear in the order in which their transactions committed.
/// - A lease is granted by the store's own clock, each shard to one relay at a time. Every write
///   names the lease's epoch and changes nothing if the epoch is over.
/// - A republish request is started by [`Outbox::lease`], when nothing of the holder is in flight.
///   From then on reading a track gives the requested rows of its shards in order of `seq`, and
///   new rows only after the last of them.
/// - Positions are valid within one life of the store. After a crash, a failover or a restore of
///   the database, every call that names an earlier lease or reads from its positions fails as
///   [`LeaseLost`], because transaction ids and numbers may have been given out again.
/// - No transaction stays open between two calls.
pub trait Outbox: Send + Sync {
    /// Takes the share of `owner` until `ttl` from now, under its `epoch` or a new one.
    ///
    /// All relays that called within their `ttl` share equally: a relay with more than its share
    /// returns the surplus, one with less takes shards that are free or belong to expired relays.
    /// Republish requests that its shards have not seen are started, and cancelled ones dropped.
    /// Nothing of the epoch may be in flight or not checkpointed during the call.
    fn lease<'a>(
        &'a self,
        owner: &'a str,
        epoch: Option<i64>,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Lease, OutboxError>>;

    /// Keeps the lease until `ttl` from now.
    fn renew(&self, epoch: i64, ttl: Duration) -> BoxFuture<'_, Result<Renewed, OutboxError>>;

    /// Returns all shards at once, so that other relays need not wait for the lease to expire.
    fn release(&self, epoch: i64) -> BoxFuture<'_, Result<(), OutboxError>>;

    /// The next rows of the tracks, at most `limit`.
    fn read<'a>(
        &'a self,
        epoch: i64,
        tracks: &'a [Track],
        limit: usize,
    ) -> BoxFuture<'a, Result<Chunk, OutboxError>>;

    /// Writes progress, all or nothing.
    fn checkpoint<'a>(
        &'a self,
        epoch: i64,
        checkpoint: &'a Checkpoint,
    ) -> BoxFuture<'a, Result<(), OutboxError>>;

    /// The parked rows that are due: the first of each key, and some of the rows right behind it.
    fn due<'a>(
        &'a self,
        epoch: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OutboxRow>, OutboxError>>;

    /// Records the outcome for parked rows, all or nothing. The next row of a key becomes its head.
    fn settle<'a>(
        &'a self,
        epoch: i64,
        settled: &'a [(i64, Settled)],
    ) -> BoxFuture<'a, Result<(), OutboxError>>;

    /// Writes the marks of all rows of `topics` that lie before `tracks`, as far as they are not
    /// written. The tracks are those of the last checkpoint. Marks begin here where no topics were
    /// stamped before.
    fn mark<'a>(
        &'a self,
        epoch: i64,
        tracks: &'a [Track],
        topics: &'a [String],
    ) -> BoxFuture<'a, Result<(), OutboxError>>;

    /// The marks of these keys, as far as any were written.
    fn marks<'a>(&'a self, keys: &'a [String])
    -> BoxFuture<'a, Result<Vec<KeyMarks>, OutboxError>>;
}
