//! From a request to a report.

use std::collections::HashMap;

use chapar_core::schema::{self, escaped};
use jsonschema::Validator;
use serde_json::Value;

use crate::error::InputError;
use crate::facts::{Case, Facts};
use crate::include::{BUDGET, Inclusion};
use crate::load::Schema;
use crate::members;
use crate::obstacle::{Cause, Obstacle};
use crate::report::{Finding, Report, Severity};
use crate::request::{Direction, Kind, Request, Writers};
use crate::rules::Rule;
use crate::search::Search;
use crate::table;

/// Schemas after expansion of references; more than this is not compared.
const HEAVIEST: u64 = 200_000;

/// The maximum number of findings per direction; the others are counted.
const MOST: usize = 1_000;

/// Compares two schemas.
pub fn diff(request: &Request<'_>) -> Report {
    let (old, new) = (request.old, request.new);
    if let Some(heavy) = [old, new].into_iter().find(|schema| schema.weight > HEAVIEST) {
        let reason = format!(
            "{} is more than {HEAVIEST} schemas once its references are followed; nothing was compared",
            heavy.file
        );
        return Report::of(
            vec![finding(request, Rule::TooLarge, String::new(), reason, None)],
            &old.file,
            0,
        );
    }
    if old.root == new.root {
        return Report::of(Vec::new(), &old.file, 0);
    }
    let mut findings = Vec::new();
    let mut left_out = Vec::new();
    let mut spent = 0;
    let sides = [(Side::OldEvents, old, new), (Side::NewEvents, new, old)];
    for (side, writer, reader) in sides.into_iter().filter(|(side, ..)| side.asked(request)) {
        match Sides::of(writer, reader, request.writers) {
            Ok(sides) => {
                let mut found = Vec::new();
                let inclusion = Inclusion::of(&sides.left, &sides.right);
                sides.compare(request, side, &inclusion, &mut found);
                spent += inclusion.spent;
                left_out.push((side, inclusion.obstacles.len().saturating_sub(MOST)));
                merge(&mut findings, found);
            }
            Err(error) => {
                let reason = format!(
                    "the copy that producers are checked against does not compile: {error}"
                );
                findings.push(finding(request, Rule::TooLarge, String::new(), reason, None));
            }
        }
    }
    // After the merge, which keeps one finding per rule and place.
    for (side, count) in left_out.into_iter().filter(|(_, count)| *count > 0) {
        let (event, readers) = side.names();
        let reason = format!(
            "{count} more differences between {event} and {readers} were found and not judged: \
             the first {MOST} are listed"
        );
        findings.push(finding(request, Rule::TooLarge, String::new(), reason, None));
    }
    if request.kind != Kind::Bare {
        table::apply(request, &mut findings);
    }
    Report::of(findings, &old.file, spent)
}

/// Adds what the other direction found. A change that both found is one finding, the worse one.
fn merge(findings: &mut Vec<Finding>, more: Vec<Finding>) {
    let place = |found: &Finding| (found.rule.clone(), found.pointer.clone());
    let known: HashMap<(String, String), usize> =
        findings.iter().enumerate().map(|(index, found)| (place(found), index)).collect();
    for found in more {
        match known.get(&place(&found)).and_then(|index| findings.get_mut(*index)) {
            Some(known) if known.severity < found.severity => *known = found,
            Some(_) => {}
            None => findings.push(found),
        }
    }
}

/// Whose events are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    OldEvents,
    NewEvents,
}

impl Side {
    fn asked(self, request: &Request<'_>) -> bool {
        match request.direction.unwrap_or(request.kind.direction()) {
            Direction::Full => true,
            Direction::Backward => self == Side::OldEvents,
            Direction::Forward => self == Side::NewEvents,
        }
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Side::OldEvents => ("an old event", "new readers"),
            Side::NewEvents => ("a new event", "old readers"),
        }
    }
}

/// One writer and one reader, each with its copy and its validators.
pub(crate) struct Sides {
    pub(crate) left: Value,
    pub(crate) right: Value,
    pub(crate) writer: Vec<Validator>,
    pub(crate) reader: Validator,
}

impl Sides {
    pub(crate) fn of(
        writer: &Schema,
        reader: &Schema,
        writers: Writers,
    ) -> Result<Sides, InputError> {
        let (left, right) = match writers {
            Writers::Declared => (schema::closed(&writer.root), schema::open(&reader.root)),
            Writers::Any => (writer.root.clone(), reader.root.clone()),
        };
        // An event satisfies what its schema says and what producers are checked against.
        let validators = vec![writer.validator(&left)?, writer.validator(&writer.root)?];
        let reader = reader.validator(&right)?;
        Ok(Sides { left, right, writer: validators, reader })
    }

    fn compare(
        &self,
        request: &Request<'_>,
        side: Side,
        inclusion: &Inclusion<'_>,
        findings: &mut Vec<Finding>,
    ) {
        let mut search = Search::new(&self.writer, &self.reader);
        for obstacle in inclusion.obstacles.iter().take(MOST) {
            let example = search.counterexample(&self.left, &self.right, obstacle);
            findings.push(self.judged(request, side, obstacle, example));
        }
    }

    fn judged(
        &self,
        request: &Request<'_>,
        side: Side,
        obstacle: &Obstacle<'_>,
        example: Option<Value>,
    ) -> Finding {
        let rule = rule(side, obstacle);
        let mut pointer = obstacle.at.pointer.clone();
        if let Cause::Required(name) = &obstacle.cause {
            pointer.push_str(&format!("/properties/{}", escaped(name)));
        }
        let mut found =
            finding(request, rule, pointer, reason(side, obstacle, &self.right), example);
        let tightened =
            matches!(rule, Rule::RangeTightened | Rule::PatternTightened | Rule::FormatTightened);
        let extensible = rule == Rule::EnumWidened
            && obstacle
                .cases
                .iter()
                .all(|(_, right)| right.get("x-extensible-enum") == Some(&Value::Bool(true)));
        found.severity = match (found.severity, found.counterexample.is_some()) {
            (severity, _) if tightened && request.audited && severity == Severity::Audit => {
                Severity::Note
            }
            _ if extensible => Severity::Note,
            _ if rule == Rule::EnumWidened && request.widened_enums => Severity::Note,
            (Severity::Audit, true) if request.kind == Kind::Bare => Severity::Breaking,
            // A refuted inclusion stays breaking; a note from the evolution table does not override
            // it.
            (severity, true) => severity.max(if severity == Severity::Audit {
                Severity::Audit
            } else {
                Severity::Breaking
            }),
            (_, false) => Severity::Unknown,
        };
        if found.counterexample.is_none() && found.severity == Severity::Unknown {
            found.reason.push_str("; this was neither proved harmless nor shown by an event");
        }
        found
    }
}

pub(crate) fn finding(
    request: &Request<'_>,
    rule: Rule,
    pointer: String,
    reason: String,
    counterexample: Option<Value>,
) -> Finding {
    let severity = request.policy.severity(rule, request.kind);
    Finding { rule: rule.id().to_owned(), severity, pointer, reason, counterexample }
}

fn rule(side: Side, obstacle: &Obstacle<'_>) -> Rule {
    let old = side == Side::OldEvents;
    let either = |backward, forward| if old { backward } else { forward };
    match &obstacle.cause {
        Cause::Type => Rule::TypeChanged,
        Cause::Enum => either(Rule::EnumNarrowed, Rule::EnumWidened),
        Cause::Range => either(Rule::RangeTightened, Rule::RangeWidened),
        Cause::Pattern => either(Rule::PatternTightened, Rule::PatternWidened),
        Cause::Format => either(Rule::FormatTightened, Rule::FormatWidened),
        Cause::Unique => either(Rule::UniquenessAdded, Rule::UniquenessDropped),
        Cause::Required(name) => {
            let declared = obstacle.cases.iter().any(|(left, _)| {
                members::declared(left.root, &Facts::of(left)).contains(name.as_str())
            });
            match (old, declared) {
                (true, true) => Rule::OptionalMadeRequired,
                (true, false) => Rule::RequiredFieldAdded,
                (false, true) => Rule::RequiredMadeOptional,
                (false, false) => Rule::FieldRemoved,
            }
        }
        Cause::OpenName => Rule::OpenNameClaimed,
        Cause::Extra => Rule::ObjectClosed,
        Cause::Alternatives => Rule::AlternativesChanged,
        Cause::Never => Rule::NothingAccepted,
        Cause::Undecided(_) => Rule::KeywordUndecided,
        Cause::Recursive => Rule::RecursiveSchema,
        Cause::Budget => Rule::TooLarge,
    }
}

fn reason(side: Side, obstacle: &Obstacle<'_>, right_root: &Value) -> String {
    let (event, readers) = side.names();
    let types = || {
        let (left, right) = &obstacle.cases[0];
        let right = Facts::of(&Case::new(right_root, vec![right]));
        (Facts::of(left).types, right.types)
    };
    match &obstacle.cause {
        Cause::Type => {
            let (left, right) = types();
            format!("{event} may hold {left} here, and {readers} accept {right}")
        }
        Cause::Enum => format!("{event} may hold a value that {readers} do not list"),
        Cause::Range => {
            format!("{event} may be outside the range, length or count that {readers} accept")
        }
        Cause::Pattern => format!("{event} may hold a text that the pattern of {readers} refuses"),
        Cause::Format => format!("{event} may hold a text that the format of {readers} refuses"),
        Cause::Unique => format!("{event} may hold the same item twice, which {readers} refuse"),
        Cause::Required(name) => format!("{event} may lack `{name}`, which {readers} require"),
        Cause::OpenName => format!(
            "{event} may hold anything under this name, and {readers} expect something certain"
        ),
        Cause::Extra => format!("{event} may hold members that {readers} refuse"),
        Cause::Alternatives => {
            format!("{event} may match none, or too many, of the alternatives of {readers}")
        }
        Cause::Never => format!("{event} may have this, and {readers} accept nothing here"),
        Cause::Undecided(keyword) => {
            format!("`{keyword}` of {readers} is not the same for {event} and is not taken apart")
        }
        Cause::Recursive => {
            format!("the schema of {readers} contains itself and differs from that of {event}")
        }
        Cause::Budget => format!(
            "the schemas are too deep or too entangled to be compared within {BUDGET} steps"
        ),
    }
}
