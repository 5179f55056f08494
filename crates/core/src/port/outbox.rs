use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::id::Id;
use crate::port::BoxFuture;

/// A part of the key space. All events of one key are in one shard.
pub type Shard = u16;

/// The right to publish one shard, until it expires or somebody else takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardLease {
    /// The shard.
    pub shard: Shard,
    /// Grows by one whenever the shard changes hands; guards every write of its holder.
    pub epoch: i64,
}

/// A committed event that waits to be published.
#[derive(Debug, Clone)]
pub struct OutboxRow {
    /// Ascending in commit order within a key.
    pub seq: i64,
    /// The shard of its key.
    pub shard: Shard,
    /// The event.
    pub event_id: Id,
    /// The topic it goes to.
    pub topic: String,
    /// Whose it is.
    pub tenant: String,
    /// Its ordering key; `None` for an event that is declared unordered.
    pub key: Option<String>,
    /// The headers of the message.
    pub headers: Vec<(String, String)>,
    /// The body of the message.
    pub body: Bytes,
    /// How often publishing it has failed.
    pub attempts: u32,
    /// When publishing it failed first.
    pub first_failed_at: Option<Timestamp>,
    /// Set for an event that came in by SQL: the body is the bare payload, and the relay
    /// completes the envelope by the system's profile.
    pub draft: Option<OutboxDraft>,
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

/// What became of a row that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The transport has it durably.
    Published,
    /// It failed; it and the followers of its key wait until then.
    Retry {
        /// When to try again.
        at: Timestamp,
        /// What went wrong.
        error: String,
    },
    /// It failed for good; it and the followers of its key wait for an operator.
    Quarantine {
        /// What went wrong.
        error: String,
    },
}

/// The lease was taken by somebody else: nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease of shard {shard} in epoch {epoch} was lost to another relay")]
pub struct LeaseLost {
    /// The shard.
    pub shard: Shard,
    /// The epoch that is over.
    pub epoch: i64,
}

/// Why the outbox did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The lease is gone; stop publishing the shard.
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
    /// The store failed; the call may be repeated.
    #[error("the outbox's store failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The relay's view of the store: committed events, shard by shard.
///
/// # Contract
/// - A row appears once its transaction has committed, and it does not matter how late that is:
///   no row is skipped because others with a higher `seq` were read before it.
/// - Within a key, rows appear in the order in which their transactions committed.
/// - A lease is granted by the store's own clock to one owner at a time. Every write names the
///   lease's epoch and changes nothing if the epoch is over.
/// - No transaction stays open between two calls.
pub trait Outbox: Send + Sync {
    /// Takes or renews the share of `owner` of `shards` shards until `ttl` from now.
    ///
    /// All owners that have asked within their `ttl` share alike: who has more than its share
    /// gives the surplus back, who has less takes what is free or has expired. Nothing of
    /// `owner` may be in flight during the call. Returns all leases it holds afterwards.
    fn lease<'a>(
        &'a self,
        owner: &'a str,
        shards: usize,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<ShardLease>, OutboxError>>;

    /// Gives leases back at once, so that another relay need not wait for them to expire.
    fn release<'a>(
        &'a self,
        owner: &'a str,
        leases: &'a [ShardLease],
    ) -> BoxFuture<'a, Result<(), OutboxError>>;

    /// The next rows of the leased shards that are due, at most `limit`, in order of `seq`.
    ///
    /// Leaves out rows of a key behind one of its rows that is not due yet.
    fn read<'a>(
        &'a self,
        leases: &'a [ShardLease],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OutboxRow>, OutboxError>>;

    /// Records what became of rows of the leased shards, all or nothing: if one of the leases
    /// is lost, nothing is written.
    fn mark<'a>(
        &'a self,
        leases: &'a [ShardLease],
        outcomes: &'a [(i64, Outcome)],
    ) -> BoxFuture<'a, Result<(), OutboxError>>;
}
