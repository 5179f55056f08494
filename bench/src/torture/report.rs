//! What a run comes to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::faults::Toll;

/// What a run comes to.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Makes the same schedule again.
    pub seed: u64,
    /// The wrong relay that ran in place of ours.
    pub mutant: Option<&'static str>,
    /// How long faults happened.
    pub seconds: f64,
    /// Writes whose commit was acknowledged.
    pub acknowledged: usize,
    /// Writes whose writer never learned their fate; the database has told it afterwards.
    pub unknown: usize,
    /// Of those, how many the database has.
    pub unknown_committed: usize,
    /// Committed, and missing at the broker or at a consumer.
    pub lost: usize,
    /// Published or applied, and not committed.
    pub phantom: usize,
    /// Applications beyond the first.
    pub applied_twice: usize,
    /// Behind a later one of their key, at the broker or in a list.
    pub out_of_order: usize,
    /// Applied though an earlier one of their key lies in a box.
    pub unparked_followers: usize,
    /// Duplicates that the broker kept and consumers removed, and deliveries that came again.
    pub duplicates_removed: u64,
    /// Writes in the boxes of a consumer that cannot apply them.
    pub parked: usize,
    /// Processes that were started again.
    pub restarts: u32,
    /// Seconds until everything had arrived after the last fault; none if it had not within the limit.
    pub drained_after: Option<f64>,
    /// By name: how often, and what it interrupted.
    pub faults: BTreeMap<&'static str, Toll>,
    /// Faults that were asked for and cannot happen on servers that are not ours.
    pub left_out: Vec<&'static str>,
    /// `held`, `violated`, or `interrupted` before it could be told.
    pub verdict: Verdict,
    /// The first violations in words.
    pub examples: Vec<String>,
}

/// Whether the promises held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every promise held.
    Held,
    /// One was broken.
    Violated,
    /// Somebody stopped it before everything could arrive.
    Interrupted,
}
