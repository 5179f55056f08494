//! Kinds of failure, and what each one leads to.

use serde::{Deserialize, Serialize};

/// Why an event could not be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The bytes are not an envelope, or the payload is not what the handler expects.
    Undecodable,
    /// The payload breaks its schema.
    SchemaInvalid,
    /// A business rule or a rule of the backbone is broken.
    RuleViolation,
    /// A dependency was unavailable; a retry may succeed.
    Transient,
    /// The handler exceeded its timeout.
    Timeout,
    /// A later event of its line was applied before it arrived.
    Late,
}

impl FailureKind {
    /// Whether a retry of the same event can succeed without any change.
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
            FailureKind::Late => "late",
        }
    }
}

impl FailureKind {
    /// The class that follows from the kind alone; the others are set by an operator.
    pub fn class(self) -> Option<FailureClass> {
        match self {
            FailureKind::SchemaInvalid => Some(FailureClass::SchemaDrift),
            FailureKind::Transient | FailureKind::Timeout => Some(FailureClass::VendorOutage),
            FailureKind::Undecodable | FailureKind::RuleViolation | FailureKind::Late => None,
        }
    }
}

/// The cause of a dead letter, as classified by an operator. It decides whether the letter may be
/// replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Producer and consumer disagree about the contract: no replay before one of them is fixed.
    SchemaDrift,
    /// A dependency was unavailable: a replay is always allowed.
    VendorOutage,
    /// The event states something impossible: it is never replayed.
    Poison,
    /// The handler has a bug: no replay before it is fixed.
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

    /// The class of this name; hyphens are accepted too.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.replace('-', "_");
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// Whether a replay needs a recorded fix.
    pub fn needs_fix(self) -> bool {
        matches!(self, FailureClass::SchemaDrift | FailureClass::ConsumerBug)
    }
}

/// What a subscription does with an event that failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailurePolicy {
    /// The event becomes a dead letter, and the followers of its key are parked behind it.
    ParkKey,
    /// The event becomes a dead letter, and its followers go on.
    SkipToDlq,
    /// The event becomes a dead letter, and its followers go on and are flagged.
    PassAndFlag,
    /// The subscription stops.
    Stop,
}
