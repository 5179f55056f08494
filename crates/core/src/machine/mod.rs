//! Pure state machines: what happened and what time it is go in, what to do next comes out.
//!
//! None of them waits, spawns or reads a clock, so a test can run thousands of schedules in a
//! second. The engine drives them with thin adapters.

pub mod admission;
pub mod breaker;
pub mod failure;
pub mod fingerprint;
pub mod flight;
pub mod lanes;
pub mod lease;
pub mod order;
pub mod ownership;
pub mod relay;
pub mod retry;
pub mod stamps;
