use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::headers::Headers;
use crate::id::Id;
use crate::port::BoxFuture;

/// A part of the key space. All events of one key are in one shard.
pub type Shard = u16;

/// How far an outbox was read, in the words of the store that said it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor(pub String);

/// Shards that travel together: they are read by one cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// Names the track in its store.
    pub id: i64,
    /// Which of its checkpoints this is.
    pub version: i64,
    /// The shards.
    pub shards: Vec<Shard>,
    /// How far they were read.
    pub cursor: Cursor,
}

/// What a relay may publish, until the lease expires and somebody else takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its holder's number, never given twice; it guards every write of its holder.
    pub epoch: i64,
    /// The shards, from where they were last checkpointed.
    pub tracks: Vec<Track>,
}

/// What a relay has read.
#[derive(Debug, Clone, Default)]
pub struct Chunk {
    /// The rows, in order of `seq` within a key.
    pub rows: Vec<OutboxRow>,
    /// How far the tracks are read now.
    pub tracks: Vec<Track>,
}

/// A committed event that waits to be published.
#[derive(Debug, Clone)]
pub struct OutboxRow {
    /// Ascending in commit order within a key.
    pub seq: i64,
    /// The event.
    pub event_id: Id,
    /// The topic it goes to.
    pub topic: String,
    /// Whose it is.
    pub tenant: String,
    /// Its ordering key; `None` for an event that is declared unordered.
    pub key: Option<String>,
    /// The headers of the message.
    pub headers: Headers,
    /// The body of the message.
    pub body: Bytes,
    /// Rows of its key are parked: it waits behind them.
    pub behind: bool,
    /// What publishing it has come to so far, if it was parked.
    pub tried: Tried,
    /// Its place among the events of its key, where order over topics is stamped.
    pub stamp: Option<String>,
    /// Set for an event that came in by SQL: the body is the bare payload, and the relay
    /// completes the envelope by the system's profile. Boxed, because a row is moved often and
    /// this is seldom there.
    pub draft: Option<Box<OutboxDraft>>,
    /// When its transaction wrote it, by the database's clock.
    pub written_at: Timestamp,
}

/// What an event that came in by SQL says of itself beside its payload.
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

/// The attempts to publish a parked row so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tried {
    /// How many have failed.
    pub attempts: u32,
    /// When the first one did.
    pub first_failed_at: Option<Timestamp>,
}

/// What became of a row that could not be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It waits behind an earlier row of its key.
    Behind,
    /// It failed, and is tried again.
    Retry {
        /// When.
        at: Timestamp,
        /// What went wrong.
        error: String,
    },
    /// It failed for good, and waits for an operator.
    Quarantine {
        /// What went wrong.
        error: String,
    },
}

/// A row that the cursor passes although it is not published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Park {
    /// The row.
    pub seq: i64,
    /// Why it is parked.
    pub fate: Fate,
    /// Its stamp: it keeps its place in the order of its key.
    pub stamp: Option<String>,
}

/// What a parked row has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The transport has it durably.
    Published,
    /// It failed again. `counts` is false while the transport takes nothing at all: that says
    /// nothing about the row.
    Failed {
        /// What becomes of it.
        fate: Fate,
        /// Whether this was an attempt.
        counts: bool,
    },
}

/// The last numbers of a key, one for each subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMarks {
    /// The key.
    pub key: String,
    /// Subjects and the `seq` of their last event.
    pub marks: BTreeMap<String, i64>,
}

/// Progress of a relay, written at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// How far all is published or parked.
    pub tracks: Vec<Track>,
    /// The rows on the way that could not be published.
    pub parks: Vec<Park>,
}

/// How a lease stands after its renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// It holds.
    Held,
    /// It holds, and the shards are no longer shared alike: ask for a new [`Lease`] soon.
    Unbalanced,
}

/// The lease was taken by somebody else: nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease of epoch {epoch} was lost to another relay")]
pub struct LeaseLost {
    /// The epoch that is over.
    pub epoch: i64,
}

/// Why the outbox did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The lease is gone; stop publishing.
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
    /// The store failed; the call may be repeated.
    #[error("the outbox's store failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The relay's view of the store: committed events, by tracks of shards.
///
/// # Contract
/// - A row appears once its transaction has committed, and it does not matter how late that is:
///   no row is skipped because others with a higher `seq` were read before it.
/// - Within a key, rows appear in the order in which their transactions committed.
/// - A lease is granted by the store's own clock, a shard to one relay at a time. Every write
///   names the lease's epoch and changes nothing if the epoch is over.
/// - No transaction stays open between two calls.
pub trait Outbox: Send + Sync {
    /// Takes the share of `owner` until `ttl` from now, under the `epoch` it has or a new one.
    ///
    /// All relays that have asked within their `ttl` share alike: who has more than its share
    /// gives the surplus back, who has less takes what is free or of the dead. Nothing of the
    /// epoch may be in flight or not checkpointed during the call.
    fn lease<'a>(
        &'a self,
        owner: &'a str,
        epoch: Option<i64>,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Lease, OutboxError>>;

    /// Keeps the lease until `ttl` from now.
    fn renew(&self, epoch: i64, ttl: Duration) -> BoxFuture<'_, Result<Renewed, OutboxError>>;

    /// Gives everything back at once, so that another relay need not wait for it to expire.
    fn release(&self, epoch: i64) -> BoxFuture<'_, Result<(), OutboxError>>;

    /// The next rows of the tracks, at most about `limit`.
    fn read<'a>(
        &'a self,
        tracks: &'a [Track],
        limit: usize,
    ) -> BoxFuture<'a, Result<Chunk, OutboxError>>;

    /// Writes progress, all or nothing.
    fn checkpoint<'a>(
        &'a self,
        epoch: i64,
        checkpoint: &'a Checkpoint,
    ) -> BoxFuture<'a, Result<(), OutboxError>>;

    /// The parked rows that are due: the first of each key, and some of those right behind it.
    fn due<'a>(
        &'a self,
        epoch: i64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OutboxRow>, OutboxError>>;

    /// Records what became of parked rows, all or nothing. The next of a key moves up.
    fn settle<'a>(
        &'a self,
        epoch: i64,
        settled: &'a [(i64, Settled)],
    ) -> BoxFuture<'a, Result<(), OutboxError>>;

    /// Writes the marks of all rows of `topics` that lie behind `tracks`, as far as they are not
    /// written. The tracks are those of the last checkpoint. Where no topics were given so far,
    /// marks begin here.
    fn mark<'a>(
        &'a self,
        epoch: i64,
        tracks: &'a [Track],
        topics: &'a [String],
    ) -> BoxFuture<'a, Result<(), OutboxError>>;

    /// The marks of keys, where any were written.
    fn marks<'a>(&'a self, keys: &'a [String])
    -> BoxFuture<'a, Result<Vec<KeyMarks>, OutboxError>>;
}
