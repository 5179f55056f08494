//! Ports: what the engine needs from the world, with the contract written on each trait.
//!
//! The engine owns no socket, file, clock or random generator. Adapters in `sql` and `transports`
//! provide them, and so does the test harness, with a manual clock and seeded randomness.

mod clock;
mod outbox;
mod topology;
mod transport;

use std::future::Future;
use std::pin::Pin;

pub use clock::{Clock, Ids, ManualClock, SeededIds, SystemClock, SystemIds};
pub use outbox::{
    Checkpoint, Chunk, Cursor, Fate, KeyMarks, Lease, LeaseLost, Outbox, OutboxDraft, OutboxError,
    OutboxRow, Park, Renewed, Republished, Settled, Shard, Track, Tried,
};
pub use topology::{
    Action, DeclaredSubscription, Difference, How, LETTERS_KEPT, Pruning, Retained, Setting,
    Topology, span,
};
pub use transport::{
    AckToken, Delivery, Features, Kept, Origin, Outgoing, Position, ReadFrom, Reader, Receipt,
    SeekTo, Subscription, SubscriptionSpec, TopicSpec, Tracking, Transport, TransportError,
};

/// A future that a port returns, boxed so that ports can be chosen at run time by URL.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
