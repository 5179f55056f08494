//! Kinds of failure, and what each one leads to.

use serde::{Deserialize, Serialize};

/// Why an event could not be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The bytes are no envelope, or the payload is not what the handler expects.
    Undecodable,
    /// The payload breaks its schema.
    SchemaInvalid,
    /// A rule of the business or of the backbone is broken.
    RuleViolation,
    /// Something outside was not there; later it may be.
    Transient,
    /// The handler took longer than it may.
    Timeout,
}

impl FailureKind {
    /// Whether the same event can succeed without anybody changing anything.
    pub fn is_retryable(self) -> bool {
        matches!(self, FailureKind::Transient | FailureKind::Timeout)
    }

    /// The name in tables, metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::Undecodable => "undecodable",
            FailureKind::SchemaInvalid => "schema_invalid",
            FailureKind::RuleViolation => "rule_violation",
            FailureKind::Transient => "transient",
            FailureKind::Timeout => "timeout",
        }
    }
}

/// What a subscription does with an event that has failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailurePolicy {
    /// The event goes to the dead letters and the followers of its key wait behind it.
    ParkKey,
    /// The event goes to the dead letters and its followers go on.
    SkipToDlq,
    /// The event goes to the dead letters, its followers go on and are flagged.
    PassAndFlag,
    /// The subscription stops.
    Stop,
}
