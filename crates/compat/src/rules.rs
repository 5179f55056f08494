//! The rules of evolution by name, and what each of them means for each kind of event.

use std::collections::BTreeMap;

use crate::report::Severity;
use crate::request::Kind;

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident = $id:literal, $domain:ident, $integration:ident;)+) => {
        /// A rule of evolution. Its id is stable and appears in reports, waivers and annotations.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Rule] = &[$(Rule::$name),+];

            /// The id.
            pub fn id(self) -> &'static str {
                match self { $(Rule::$name => $id,)+ }
            }

            fn standard(self, kind: Kind) -> Severity {
                match (self, kind) {
                    $((Rule::$name, Kind::Domain) => Severity::$domain,
                      (Rule::$name, _) => Severity::$integration,)+
                }
            }
        }
    };
}

rules! {
    /// An optional field was added.
    FieldAdded = "field-added", Note, Note;
    /// A field that every event must have was added.
    RequiredFieldAdded = "required-field-added", Breaking, Breaking;
    /// A field that events may lack is required now.
    OptionalMadeRequired = "optional-made-required", Breaking, Breaking;
    /// A field that readers rely on may be missing now.
    RequiredMadeOptional = "required-made-optional", Breaking, Breaking;
    /// A field is gone.
    FieldRemoved = "field-removed", Breaking, Breaking;
    /// A field is gone and another one has its schema.
    FieldRenamed = "field-renamed", Breaking, Breaking;
    /// The values of a field are of another type, a wider one included.
    TypeChanged = "type-changed", Breaking, Breaking;
    /// A value of an enum is gone.
    EnumNarrowed = "enum-narrowed", Breaking, Breaking;
    /// A value of an enum is new.
    EnumWidened = "enum-widened", Note, Breaking;
    /// A range, a length or a count is narrower.
    RangeTightened = "range-tightened", Audit, Audit;
    /// A range, a length or a count is wider.
    RangeWidened = "range-widened", Breaking, Breaking;
    /// A pattern refuses what was accepted.
    PatternTightened = "pattern-tightened", Audit, Audit;
    /// A pattern accepts what was refused.
    PatternWidened = "pattern-widened", Breaking, Breaking;
    /// Items must differ from each other now.
    UniquenessAdded = "uniqueness-added", Breaking, Breaking;
    /// Items need not differ from each other any more.
    UniquenessDropped = "uniqueness-dropped", Breaking, Breaking;
    /// A name that was open to anything is declared with a schema (or, forward, the other way round).
    OpenNameClaimed = "open-name-claimed", Breaking, Breaking;
    /// Names or values beside the declared ones are refused by the reader.
    ObjectClosed = "object-closed", Breaking, Breaking;
    /// The alternatives of `anyOf`, `oneOf` or `not` no longer cover the events.
    AlternativesChanged = "alternatives-changed", Breaking, Breaking;
    /// The reader accepts nothing here.
    NothingAccepted = "nothing-accepted", Breaking, Breaking;
    /// The marker `x-semantics` changed: the same bytes mean something else.
    SemanticsChanged = "semantics-changed", Breaking, Breaking;
    /// The event's name changed: that is another subject.
    EventTypeChanged = "event-type-changed", Breaking, Breaking;
    /// There was no such event before.
    EventAdded = "event-added", Note, Note;
    /// The event is marked as deprecated.
    EventDeprecated = "event-deprecated", Note, Note;
    /// A format refuses what was accepted.
    FormatTightened = "format-tightened", Audit, Audit;
    /// A format accepts what was refused.
    FormatWidened = "format-widened", Breaking, Breaking;
    /// A `format` changed that validators do not know, and so do not check.
    FormatChanged = "format-changed", Note, Note;
    /// A keyword changed that the differ does not take apart.
    KeywordUndecided = "keyword-undecided", Unknown, Unknown;
    /// The schema contains itself and the two sides differ inside.
    RecursiveSchema = "recursive-schema", Unknown, Unknown;
    /// The schema is too large or too deep to be compared within the budget.
    TooLarge = "too-large", Unknown, Unknown;
}

/// The severity of each rule. Starts from the evolution tables; single rules can be overridden.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    set: BTreeMap<(Rule, u8), Severity>,
}

impl Policy {
    /// The severity of a rule for a kind of event.
    pub fn severity(&self, rule: Rule, kind: Kind) -> Severity {
        self.set.get(&(rule, kind as u8)).copied().unwrap_or_else(|| rule.standard(kind))
    }

    /// This policy with another severity for one rule and kind.
    pub fn with(mut self, rule: Rule, kind: Kind, severity: Severity) -> Policy {
        self.set.insert((rule, kind as u8), severity);
        self
    }
}
