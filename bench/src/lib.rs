//! Side-by-side benchmarks, and the torture runner.
//!
//! A figure by itself says more about the machine than about the program. Every benchmark here
//! runs its contestants in turns, and says how far they are apart; [`measure`] holds what all of
//! them need. [`torture`] runs real processes on real servers, breaks them on purpose, and judges
//! from outside what came of it.

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
