//! The inputs and outputs of the relay.

use std::time::Duration;

use jiff::Timestamp;

use crate::machine::retry::RetryPolicy;
use crate::port::{Checkpoint, Chunk, Lease, OutboxRow, Renewed, Settled, Track};

/// The settings of a relay.
#[derive(Debug, Clone)]
pub struct Plan {
    /// When to retry a row, and when to quarantine it.
    pub retry: RetryPolicy,
    /// The transport keeps the order of a key within a batch, also when a publish fails.
    pub ordered_in_flight: bool,
    /// The most rows of a chunk.
    pub chunk_rows: usize,
    /// The most chunks in flight.
    pub chunks: usize,
    /// About the most bytes in flight.
    pub bytes: usize,
    /// The shortest and the longest pause between two polls of an outbox without new rows.
    pub poll: (Duration, Duration),
    /// How often a checkpoint is written under load.
    pub checkpoint_every: Duration,
    /// How often the marks of stamped keys are brought up to the last checkpoint; `None` where
    /// nothing is stamped.
    pub mark_every: Option<Duration>,
    /// How long a lease lasts.
    pub lease: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            retry: RetryPolicy::outbox(),
            ordered_in_flight: false,
            chunk_rows: 1000,
            chunks: 4,
            bytes: 8 << 20,
            poll: (Duration::from_millis(1), Duration::from_millis(50)),
            checkpoint_every: Duration::from_millis(200),
            mark_every: None,
            lease: Duration::from_secs(3),
        }
    }
}

/// A row on its way to the transport.
#[derive(Debug, Clone)]
pub struct Sending {
    /// The row.
    pub row: OutboxRow,
    /// Identifies it in the answer.
    pub ticket: Ticket,
}

/// Identifies a row that is in flight.
#[derive(Debug, Clone)]
pub struct Ticket {
    pub(super) seq: i64,
    pub(super) lane: Option<u64>,
    pub(super) home: Home,
    pub(super) stamp: Option<String>,
    pub(super) republish: Option<i64>,
    /// The number of successes when it was sent.
    pub(super) successes: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Home {
    /// The chunk it was read in.
    Chunk(u64),
    /// It was parked: the failed attempts so far, and the time of the first.
    Parked { attempts: u32, first: Option<Timestamp> },
}

/// Why a row was not published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishError {
    /// A later attempt may succeed.
    Later(String),
    /// No attempt can succeed.
    Never(String),
    /// It was not sent, because an earlier row of its key in the batch was refused.
    Behind,
}

/// An input of the relay.
#[derive(Debug)]
pub enum Happened {
    /// Time has passed.
    Tick,
    /// A transaction of this process committed events.
    Nudge,
    /// The relay has to finish and stop.
    Stop,
    /// The lease was granted.
    Leased(Lease),
    /// The lease was renewed.
    Renewed(Renewed),
    /// Rows were read.
    Read {
        /// The rows, and the position behind them.
        chunk: Chunk,
        /// The cache of marks is full: marks should be written soon, so that keys can be dropped
        /// from it.
        full: bool,
    },
    /// Parked rows were read.
    Due(Vec<OutboxRow>),
    /// The transport has answered for a batch.
    Published(Vec<(Ticket, Result<(), PublishError>)>),
    /// A checkpoint was written.
    Checkpointed,
    /// Marks were written.
    Marked,
    /// The outcome of parked rows was written.
    Settled,
    /// The lease was released.
    Released,
    /// The store refused this call because the lease is lost.
    LeaseLost(Asked),
    /// This call to the store failed.
    Failed(Asked),
}

/// A call to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the port")]
pub enum Asked {
    Lease,
    Renew,
    Read,
    Due,
    Checkpoint,
    Mark,
    Settle,
    Release,
}

/// An output of the relay. All of them may be carried out at the same time; each is answered by
/// something that [`Happened`].
#[derive(Debug)]
pub enum Do {
    /// Request a lease, under the current epoch if there is one.
    Lease(Option<i64>),
    /// Renew it.
    Renew(i64),
    /// Read on.
    Read(Reading),
    /// Read parked rows that are due.
    Due(i64),
    /// Publish.
    Publish(Vec<Sending>),
    /// Write a checkpoint.
    Checkpoint(i64, Checkpoint),
    /// Write the marks of the rows before these tracks.
    Mark(i64, Vec<Track>),
    /// Write the outcome of parked rows.
    Settle(i64, Vec<(i64, Settled)>),
    /// Release the lease.
    Release(i64),
    /// The relay has finished.
    Leave,
}

/// What to read.
#[derive(Debug)]
pub struct Reading {
    /// Under this epoch.
    pub epoch: i64,
    /// From where.
    pub tracks: Vec<Track>,
    /// At most this many rows.
    pub limit: usize,
    /// Reading restarts at the last checkpoint, and stamping with it.
    pub fresh: bool,
    /// The number of this read.
    pub number: u64,
    /// The marks of all that was read up to this number are written.
    pub marked: u64,
}
