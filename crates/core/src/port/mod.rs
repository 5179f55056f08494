//! Ports: what the engine needs from the world, with the contract written on each trait.
//!
//! The engine owns no socket, file, clock or dice. Adapters in `sql` and `transports` bring
//! them, and so does the test harness, with a clock to turn and dice to load.

mod clock;
mod effects;
mod outbox;
mod topology;
mod transport;

use std::future::Future;
use std::pin::Pin;

pub use clock::{Clock, Ids, ManualClock, SeededIds, SystemClock, SystemIds};
pub use effects::{Effect, EffectError, Effects};
pub use outbox::{
    Checkpoint, Chunk, Cursor, Fate, KeyMarks, Lease, LeaseLost, Outbox, OutboxDraft, OutboxError,
    OutboxRow, Park, Renewed, Republished, Settled, Shard, Track, Tried,
};
pub use topology::{
    Action, DeclaredSubscription, Difference, How, LETTERS_KEPT, Setting, Topology, span,
};
pub use transport::{
    Delivery, Features, Handle, Kept, Outgoing, Position, ReadFrom, Reader, Receipt, SeekTo,
    Subscription, SubscriptionSpec, Token, TopicSpec, Transport, TransportError,
};

/// A future that a port returns, boxed so that ports can be chosen at run time by URL.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
