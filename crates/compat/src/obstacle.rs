//! Why a proof stopped, and where.

use serde_json::Value;

use crate::facts::{Case, Facts, Types};
use crate::formats;

/// A place: in the schema, and in an instance of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct At {
    pub(crate) pointer: String,
    pub(crate) path: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Member(String),
    /// A member under some name that a pattern matches.
    Matching(String),
    Item(usize),
}

/// What of the right side does not follow from the left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    Type,
    Enum,
    Range,
    Pattern,
    Format,
    Unique,
    Required(String),
    /// The left side leaves the name open and the right side says what it holds.
    OpenName,
    /// The right side refuses or restricts names that the left side lets through.
    Extra,
    Alternatives,
    /// Nothing is accepted any more.
    Never,
    Undecided(&'static str),
    Recursive,
    Budget,
}

#[derive(Debug)]
pub(crate) struct Obstacle<'a> {
    pub(crate) at: At,
    pub(crate) cause: Cause,
    /// The pairs of sides at this place, one per alternative of the left side.
    pub(crate) cases: Vec<(Case<'a>, &'a Value)>,
    /// Values that are known to be refused.
    pub(crate) hints: Vec<Value>,
}

impl<'a> Obstacle<'a> {
    pub(crate) fn new(left: Case<'a>, right: &'a Value, at: At, cause: Cause) -> Obstacle<'a> {
        Obstacle { at, cause, cases: vec![(left, right)], hints: Vec::new() }
    }
}

/// Which keyword refuses a value.
pub(crate) fn cause_of(value: &Value, right: &Facts<'_>) -> Cause {
    let declared = right.parts.iter().filter_map(|part| part.get("type")).map(Types::keyword);
    if declared.fold(Types::ANY, Types::and).0 & Types::of(value).0 == 0 {
        Cause::Type
    } else if right.parts.iter().any(|part| part.contains_key("enum") || part.contains_key("const"))
    {
        Cause::Enum
    } else if !right.patterns.is_empty() {
        Cause::Pattern
    } else if right.formats.iter().any(|format| !formats::fits(format, value)) {
        Cause::Format
    } else if !right.splits.is_empty() || value.is_object() || value.is_array() {
        Cause::Alternatives
    } else {
        Cause::Range
    }
}
