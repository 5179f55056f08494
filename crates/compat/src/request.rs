//! The request for a comparison.

use crate::load::Schema;
use crate::rules::Policy;

/// Which inclusion must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// New readers read old events: old ⊆ new.
    Backward,
    /// Old readers read new events: new ⊆ old.
    Forward,
    /// Both.
    Full,
}

/// What a writer may put into an event beside what its schema declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Writers {
    /// Nothing: producers are checked against the closed copy of their schema (`unevaluatedProperties: false` wherever
    /// an object declares its members), and readers validate open, so `additionalProperties: false` and
    /// `unevaluatedProperties: false` do not make a reader refuse a field that it does not know.
    /// Under `oneOf`, `not` and `if` both sides are read as they are written.
    #[default]
    Declared,
    /// Anything that the schema as it is written accepts: plain set inclusion.
    Any,
}

/// What kind of event the schema describes; it decides the default direction and the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A fact inside one context, whose readers are deployed by the same team: after a deployment every reader is
    /// new, and what must stay readable is the past. Backward by default; an added enum value is only noted.
    #[default]
    Domain,
    /// A contract between contexts whose readers upgrade when they like: old readers meet new events and new readers
    /// replay old ones. Full by default; an added enum value breaks readers that list the values, unless the schema
    /// they hold says `"x-extensible-enum": true`.
    Integration,
    /// No evolution rules: only the inclusion. Full by default.
    Bare,
}

impl Kind {
    /// The direction where none is given.
    pub fn direction(self) -> Direction {
        match self {
            Kind::Domain => Direction::Backward,
            Kind::Integration | Kind::Bare => Direction::Full,
        }
    }
}

/// One comparison.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The schema that is released.
    pub old: &'a Schema,
    /// The schema that is to replace it.
    pub new: &'a Schema,
    /// The inclusion that must hold; the kind's own where none is given.
    pub direction: Option<Direction>,
    /// What writers may send.
    pub writers: Writers,
    /// The kind of event.
    pub kind: Kind,
    /// What each rule means for this kind.
    pub policy: Policy,
    /// An audit of the last 30 days found no event outside the tightened ranges and patterns.
    pub audited: bool,
    /// An enum may get values within a version, also where old readers list them.
    pub widened_enums: bool,
}

impl<'a> Request<'a> {
    /// Compares `new` with `old` as domain events, with declared writers and no audit.
    pub fn new(old: &'a Schema, new: &'a Schema) -> Request<'a> {
        Request {
            old,
            new,
            direction: None,
            writers: Writers::default(),
            kind: Kind::default(),
            policy: Policy::default(),
            audited: false,
            widened_enums: false,
        }
    }

    /// For events of this kind.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// With enums that may grow within a version: readers were told to ignore unknown values.
    pub fn widened_enums(mut self, allowed: bool) -> Self {
        self.widened_enums = allowed;
        self
    }

    /// In this direction, whatever the kind says.
    pub fn direction(mut self, direction: Direction) -> Self {
        self.direction = Some(direction);
        self
    }

    /// With these writers.
    pub fn writers(mut self, writers: Writers) -> Self {
        self.writers = writers;
        self
    }

    /// With an audit of the last 30 days at hand.
    pub fn audited(mut self, audited: bool) -> Self {
        self.audited = audited;
        self
    }
}
