//! The outbox: what goes in, what a relay reads from it, and what may happen to it meanwhile.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod append;
mod cursor;
mod hostile;
mod house;
mod life;
mod republish;
