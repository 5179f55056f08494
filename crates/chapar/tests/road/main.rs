//! The road of an event, end to end, on every store.

mod consume;
mod effects;
mod emit;
mod harness;
mod sagas;
