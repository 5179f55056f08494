//! Message brokers as transports of Chapar: one module and one cargo feature each.
//!
//! Each keeps the contract of [`Transport`](chapar_core::port::Transport) and passes the
//! conformance suite in `chapar-testkit`.

#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
mod open;
#[cfg(feature = "pubsub")]
pub mod pubsub;
#[cfg(any(feature = "kafka", feature = "pubsub"))]
mod recent;
#[cfg(any(feature = "kafka", feature = "nats"))]
mod waves;

pub use open::{OpenOptions, check, open, shown};

/// With so many bytes in memory that are not acknowledged, a subscription reads nothing but where
/// nothing waits: from there may come what its consumer needs next.
#[cfg(any(feature = "kafka", feature = "nats"))]
pub(crate) const HEAVY: usize = 64 << 20;
