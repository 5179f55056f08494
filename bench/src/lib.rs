//! Side-by-side benchmarks: what Chapar costs over doing without.
//!
//! A figure by itself says more about the machine than about the program. Every benchmark here
//! runs its contestants in turns, and says how far they are apart; [`measure`] holds what all of
//! them need.

pub mod measure;
pub mod validate;
