//! Message brokers as transports of Chapar: one module and one cargo feature each.
//!
//! Each keeps the contract of [`Transport`](chapar_core::port::Transport) and passes the
//! conformance suite in `chapar-testkit`.

#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "pubsub")]
pub mod pubsub;
#[cfg(any(feature = "kafka", feature = "pubsub"))]
mod recent;
#[cfg(any(feature = "kafka", feature = "nats"))]
mod waves;

/// The memory bound of a subscription. With this many unacknowledged bytes in memory, it reads only
/// from partitions in which nothing waits, because the message that its consumer needs next may be
/// there.
#[cfg(any(feature = "kafka", feature = "nats"))]
pub(crate) const HEAVY: usize = 64 << 20;
