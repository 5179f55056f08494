//! The road of an event, end to end, on every store.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod admission;
mod app;
mod broken;
mod bundles;
mod consume;
mod contracts;
mod dual;
mod effects;
mod emit;
mod flow;
mod gaps;
mod harness;
mod inbox;
mod letters;
mod messages;
mod nats;
mod order;
mod processes;
mod projection;
mod push;
mod redelivered;
mod republish;
mod rollout;
mod sagas;
mod seek;
mod supervised;
mod testing;
mod triage;
