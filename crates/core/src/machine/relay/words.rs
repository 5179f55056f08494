//! What is said to the relay, and what it says.

use std::time::Duration;

use jiff::Timestamp;

use crate::machine::retry::RetryPolicy;
use crate::port::{Checkpoint, Chunk, Lease, OutboxRow, Renewed, Settled, Track};

/// How a relay works.
#[derive(Debug, Clone)]
pub struct Plan {
    /// When to try a row again, and when to give it up.
    pub retry: RetryPolicy,
    /// The transport keeps the order of a key within a batch also when a publish fails.
    pub ordered_in_flight: bool,
    /// The most rows of a chunk.
    pub chunk_rows: usize,
    /// The most chunks on the way.
    pub chunks: usize,
    /// About the most bytes on the way.
    pub bytes: usize,
    /// The shortest and the longest pause between two looks at an outbox with nothing new.
    pub poll: (Duration, Duration),
    /// How often progress is written down under load.
    pub checkpoint_every: Duration,
    /// How often the marks of stamped keys are brought up to the last checkpoint; never where
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
    /// Names it in the answer.
    pub ticket: Ticket,
}

/// Names a row that is in flight.
#[derive(Debug, Clone)]
pub struct Ticket {
    pub(super) seq: i64,
    pub(super) lane: Option<u64>,
    pub(super) home: Home,
    pub(super) stamp: Option<String>,
    /// How many had succeeded when it left.
    pub(super) successes: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Home {
    /// The chunk it was read in.
    Chunk(u64),
    /// It was parked before, this often tried, and first then.
    Parked { attempts: u32, first: Option<Timestamp> },
}

/// Why a row was not published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It may work later.
    Later(String),
    /// It never will.
    Never(String),
    /// It was not sent, because an earlier one of its key in the batch was refused.
    Behind,
}

/// What has happened.
#[derive(Debug)]
pub enum Happened {
    /// Time has passed.
    Tick,
    /// Somebody committed something.
    Nudge,
    /// The relay is to finish and leave.
    Stop,
    /// The lease was granted.
    Leased(Lease),
    /// The lease was renewed.
    Renewed(Renewed),
    /// Rows were read. `full`: so many keys are remembered that marks should be written soon.
    Read {
        /// The rows, and how far that is.
        chunk: Chunk,
        /// Some keys should be forgotten, which only those with written marks may.
        full: bool,
    },
    /// Parked rows were read.
    Due(Vec<OutboxRow>),
    /// A batch has come back.
    Published(Vec<(Ticket, Result<(), Refusal>)>),
    /// Progress was written.
    Checkpointed,
    /// Marks were written.
    Marked,
    /// The fate of parked rows was written.
    Settled,
    /// Everything was given back.
    Released,
    /// The store did not do this, because the lease is lost.
    LeaseLost(Asked),
    /// The store did not do this.
    Failed(Asked),
}

/// What the store was asked for.
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

/// What to do next. All of it may be done at once; each is answered by something that
/// [`Happened`].
#[derive(Debug)]
pub enum Do {
    /// Ask for a lease, under the epoch that is held.
    Lease(Option<i64>),
    /// Renew it.
    Renew(i64),
    /// Read on.
    Read(Reading),
    /// Read parked rows that are due.
    Due(i64),
    /// Publish.
    Publish(Vec<Sending>),
    /// Write progress.
    Checkpoint(i64, Checkpoint),
    /// Write the marks of what lies behind these tracks.
    Mark(i64, Vec<Track>),
    /// Write what became of parked rows.
    Settle(i64, Vec<(i64, Settled)>),
    /// Give everything back.
    Release(i64),
    /// It is over.
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
    /// Everything read since the last checkpoint was dropped: the stamps start again there.
    pub fresh: bool,
    /// The number of this read.
    pub number: u64,
    /// The marks of all that was read up to this number are written.
    pub marked: u64,
}
