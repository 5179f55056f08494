//! The report of a run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::faults::Toll;

/// The report of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Makes the same schedule again.
    pub seed: u64,
    /// What carried the events.
    pub transport: String,
    /// The wrong relay that ran in place of ours, or the sabotage.
    pub mutant: Option<&'static str>,
    /// How long faults happened.
    pub seconds: f64,
    /// Writes whose commit was acknowledged.
    pub acknowledged: usize,
    /// The same per second, over the time in which faults happened.
    pub acknowledged_per_second: f64,
    /// Writes whose writer does not know their outcome; it is read from the database afterwards.
    pub unknown: usize,
    /// Of those, how many the database has.
    pub unknown_committed: usize,
    /// Acknowledged, and forgotten by the database where that is allowed: an asynchronous commit before a crash, or what a
    /// promoted standby had not received.
    pub forgotten: usize,
    /// Committed, but missing at the broker or at a consumer.
    pub lost: usize,
    /// Published or applied, but not committed.
    pub phantom: usize,
    /// Applications beyond the first that no seek explains.
    pub applied_twice: usize,
    /// Behind a later one of their key, at the broker or in a list.
    pub out_of_order: usize,
    /// Applied although an earlier event of their key is parked or a dead letter.
    pub unparked_followers: usize,
    /// Healthy events that were refused or became dead letters.
    pub wrongly_held: usize,
    /// Applied or published after an operator had given them up.
    pub resurrected: usize,
    /// Duplicates at the broker that consumers removed, and redeliveries.
    pub duplicates_removed: u64,
    /// Dead letters and parked writes of the consumer that cannot apply them.
    pub parked: usize,
    /// Processes that were started again.
    pub restarts: u32,
    /// Seconds until everything had arrived after the last fault; none if it had not within the limit.
    pub drained_after: Option<f64>,
    /// By name: how often, and what it interrupted.
    pub faults: BTreeMap<&'static str, Toll>,
    /// Faults that were asked for and cannot happen on servers that are not ours.
    pub left_out: Vec<&'static str>,
    /// `held`, `violated`, or `interrupted` before it was known.
    pub verdict: Verdict,
    /// The first violations in words.
    pub examples: Vec<String>,
}

/// Whether the guarantees held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every guarantee held.
    Held,
    /// One was broken.
    Violated,
    /// It was stopped before everything could arrive.
    Interrupted,
}
