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

impl FailureKind {
    /// The class that follows from the kind alone; the others are for somebody to judge.
    pub fn class(self) -> Option<FailureClass> {
        match self {
            FailureKind::SchemaInvalid => Some(FailureClass::SchemaDrift),
            FailureKind::Transient | FailureKind::Timeout => Some(FailureClass::VendorOutage),
            FailureKind::Undecodable | FailureKind::RuleViolation => None,
        }
    }
}

/// What is behind a dead letter, as somebody has judged it. It decides on a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Producer and consumer disagree about the contract: no replay before one of them is mended.
    SchemaDrift,
    /// Something outside was away: a replay is safe at any time.
    VendorOutage,
    /// The event states what cannot be: it is never replayed.
    Poison,
    /// The handler is wrong: no replay before it is mended.
    ConsumerBug,
}

impl FailureClass {
    /// All of them.
    pub const ALL: [FailureClass; 4] = [
        FailureClass::SchemaDrift,
        FailureClass::VendorOutage,
        FailureClass::Poison,
        FailureClass::ConsumerBug,
    ];

    /// The name in tables and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureClass::SchemaDrift => "schema_drift",
            FailureClass::VendorOutage => "vendor_outage",
            FailureClass::Poison => "poison",
            FailureClass::ConsumerBug => "consumer_bug",
        }
    }

    /// The class of this name, also with a hyphen.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.replace('-', "_");
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// Whether it is replayed only after a fix was recorded.
    pub fn needs_fix(self) -> bool {
        matches!(self, FailureClass::SchemaDrift | FailureClass::ConsumerBug)
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
