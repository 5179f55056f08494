//! Side-by-side benchmarks, and the torture runner.
//!
//! An absolute figure says more about the machine than about the program. Every benchmark here interleaves its
//! contestants and reports their ratio; [`measure`] holds what all of them need. [`torture`] runs real processes on
//! real servers, injects faults, and checks the result from outside.

pub mod append;
pub mod consume;
pub mod latency;
pub mod letters;
pub mod measure;
mod naive;
mod place;
pub mod relay;
pub mod seek;
pub mod torture;
pub mod transport;
pub mod validate;
