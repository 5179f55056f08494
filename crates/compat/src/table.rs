//! Evolution rules that inclusion cannot see.
//!
//! A reader that ignores unknown fields does not notice that an optional field is gone, a validator
//! does not know that the same number now means cents, and a wider type is no obstacle for old
//! events. These changes are forbidden anyway, so they are found by comparing what the two schemas
//! declare.

use std::collections::{BTreeSet, HashMap, HashSet};

use chapar_core::schema::{closed, escaped};
use serde_json::Value;

use crate::differ::{Sides, finding};
use crate::facts::{Case, Facts, Types};
use crate::formats;
use crate::members;
use crate::number::key;
use crate::obstacle::{At, Cause, Obstacle, Step};
use crate::report::{Finding, Severity};
use crate::request::{Request, Writers};
use crate::rules::Rule;
use crate::search::Search;

pub(crate) fn apply(request: &Request<'_>, findings: &mut Vec<Finding>) {
    let (old, new) = (&request.old.root, &request.new.root);
    if old == &Value::Bool(false) {
        let reason = "there was no such event: it gets a subject of its own".to_owned();
        findings.push(finding(request, Rule::EventAdded, String::new(), reason, None));
        return;
    }
    let (Ok(forward), Ok(backward), Ok(mut producers)) = (
        Sides::of(request.new, request.old, Writers::Declared),
        Sides::of(request.old, request.new, Writers::Declared),
        Sides::of(request.old, request.new, Writers::Declared),
    ) else {
        return;
    };
    producers.right = closed(new);
    let Ok(reader) = request.new.validator(&producers.right) else { return };
    producers.reader = reader;
    let judges = [&forward, &backward, &producers]
        .map(|sides| (sides, Search::new(&sides.writer, &sides.reader)));
    let known = findings.iter().map(|found| (found.rule.clone(), found.pointer.clone())).collect();
    let moved = old != new;
    let mut table = Table { request, findings, known, moved, fuel: 20_000, judges };
    table.event(old, new);
    table.compare(&Case::new(old, vec![old]), &Case::new(new, vec![new]), &At::default());
}

struct Table<'t, 'a> {
    request: &'t Request<'a>,
    findings: &'t mut Vec<Finding>,
    /// The rules and places of the findings.
    known: HashSet<(String, String)>,
    /// The documents differ, so the same reference may lead to something else.
    moved: bool,
    fuel: u32,
    /// New events before old readers, old events before new readers, old events before new producers.
    judges: [(&'t Sides, Search<'t>); 3],
}

/// New values of an enum that a finding names.
const MOST_NAMED: usize = 20;

/// Keywords that say nothing about instances, so that a renamed field may change them.
const ANNOTATIONS: [&str; 6] =
    ["title", "description", "examples", "$comment", "default", "deprecated"];

impl Table<'_, '_> {
    fn event(&mut self, old: &Value, new: &Value) {
        if new.get("deprecated") == Some(&Value::Bool(true))
            && old.get("deprecated") != Some(&Value::Bool(true))
        {
            let reason = "the event is deprecated: publish it in parallel for at least one release";
            self.add(Rule::EventDeprecated, "", reason.to_owned(), None);
        }
        let name = |root: &Value| {
            let declared = ["eventType", "type"]
                .iter()
                .find_map(|name| root.get("properties")?.get(*name)?.get("const"));
            root.get("x-event-type").or(declared).cloned()
        };
        if let (Some(old), Some(new)) = (name(old), name(new))
            && old != new
        {
            self.add(
                Rule::EventTypeChanged,
                "",
                format!("the event was {old} and is {new}: that is another subject"),
                None,
            );
        }
    }

    fn compare(&mut self, old: &Case<'_>, new: &Case<'_>, at: &At) {
        if self.fuel == 0 || at.path.len() > 32 {
            return;
        }
        self.fuel -= 1;
        let (before, after) = (Facts::of(old), Facts::of(new));
        self.place(&before, &after, at);
        if before.types.has(Types::OBJECT) && after.types.has(Types::OBJECT) {
            self.members(old, new, (&before, &after), at);
        }
        let listed = |facts: &Facts<'_>| facts.parts.iter().any(|part| part.contains_key("items"));
        if listed(&before) && listed(&after) {
            let index = members::prefix(&before).max(members::prefix(&after));
            let mut below = at.clone();
            below.pointer.push_str("/items");
            below.path.push(Step::Item(index));
            self.compare(
                &members::item(old.root, &before, index),
                &members::item(new.root, &after, index),
                &below,
            );
        }
    }

    /// What is said about the place itself.
    fn place(&mut self, before: &Facts<'_>, after: &Facts<'_>, at: &At) {
        let keyword = |facts: &Facts<'_>, name: &str| {
            facts.parts.iter().find_map(|part| part.get(name)).cloned()
        };
        let (was, is) = (keyword(before, "x-semantics"), keyword(after, "x-semantics"));
        if was != is && !(was.is_none() && at.path.is_empty() && is == Some(Value::from(1))) {
            let text = |marker: Option<Value>| {
                marker.map_or("unmarked".to_owned(), |marker| marker.to_string())
            };
            let reason = format!(
                "the meaning is declared as changed: x-semantics was {} and is {}",
                text(was),
                text(is)
            );
            self.add(Rule::SemanticsChanged, &at.pointer, reason, None);
        }
        // A format that validators know is compared with the events that it refuses.
        let unknown = |facts: &Facts<'_>| {
            let part = facts.parts.iter().find(|part| part.contains_key("format"))?;
            formats::asserted(part).is_none().then(|| part["format"].clone())
        };
        if unknown(before) != unknown(after) {
            let reason = "the format changed; validators do not check it, so only people can say what it means";
            self.add(Rule::FormatChanged, &at.pointer, reason.to_owned(), None);
        }
        if let (Some(old), Some(new)) = (keyword(before, "enum"), keyword(after, "enum")) {
            let olds: HashSet<String> = old.as_array().into_iter().flatten().map(key).collect();
            let added: Vec<String> = new
                .as_array()
                .into_iter()
                .flatten()
                .filter(|value| !olds.contains(&key(value)))
                .map(Value::to_string)
                .collect();
            if !added.is_empty() {
                let shown = added.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
                let more = match added.len().saturating_sub(MOST_NAMED) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let reason = format!(
                    "{shown}{more} can occur now: readers must ignore values that they do not know"
                );
                self.grown(at, reason);
            }
        }
        let plain = |facts: &Facts<'_>| {
            facts.splits.is_empty() && facts.types != Types::ANY && !facts.types.is_empty()
        };
        if plain(before)
            && plain(after)
            && before.types != after.types
            && before.values.is_none()
            && after.values.is_none()
            && !self.known(Rule::TypeChanged, &at.pointer)
        {
            let example = self.refused_by_readers(at);
            let reason = format!("the type was {} and is {}", before.types, after.types);
            self.settle(Rule::TypeChanged, &at.pointer, reason, example);
        }
    }

    fn members(
        &mut self,
        old: &Case<'_>,
        new: &Case<'_>,
        (before, after): (&Facts<'_>, &Facts<'_>),
        at: &At,
    ) {
        let (olds, news) =
            (members::declared(old.root, before), members::declared(new.root, after));
        let added: BTreeSet<&str> = news.difference(&olds).copied().collect();
        let removed: BTreeSet<&str> = olds.difference(&news).copied().collect();
        let schema = |facts: &Facts<'_>, name: &str| {
            facts.parts.iter().find_map(|part| part.get("properties")?.get(name)).map(bare)
        };
        let mut renamed = BTreeSet::new();
        // The new fields by what they hold, the first names last.
        let mut twins: HashMap<String, Vec<&str>> = HashMap::new();
        for name in added.iter().rev() {
            let schema = schema(after, name).map(|schema| key(&schema));
            twins.entry(schema.unwrap_or_default()).or_default().push(name);
        }
        for name in &removed {
            let mine = schema(before, name)
                .filter(|schema| *schema != Value::Object(serde_json::Map::new()));
            let twin = mine.and_then(|schema| twins.get_mut(&key(&schema))?.pop());
            let below = member(at, name);
            let example = self.refused_by_new_producers(&below);
            if let Some(twin) = twin {
                renamed.insert(twin);
                let reason = format!(
                    "`{name}` is gone and `{twin}` has its schema: readers of `{name}` find nothing"
                );
                self.settle(Rule::FieldRenamed, &below.pointer, reason, example);
            } else if !self.known(Rule::FieldRemoved, &below.pointer) {
                let reason =
                    format!("`{name}` is no longer declared: readers that use it find nothing");
                self.settle(Rule::FieldRemoved, &below.pointer, reason, example);
            }
        }
        for name in &added {
            let below = member(at, name);
            if !after.required.contains(name)
                && !renamed.contains(name)
                && !self.known(Rule::OpenNameClaimed, &below.pointer)
            {
                let default = schema_default(after, name);
                let reason = format!("`{name}` is new and optional, {default}");
                self.add(Rule::FieldAdded, &below.pointer, reason, None);
            }
        }
        for name in olds.intersection(&news) {
            let (mine, theirs) =
                (members::member(old.root, before, name), members::member(new.root, after, name));
            if self.moved || mine.schemas != theirs.schemas {
                self.compare(&mine, &theirs, &member(at, name));
            }
        }
    }

    /// An event of one version that the other refuses, at a place.
    fn refused_by_readers(&mut self, at: &At) -> Option<Value> {
        let [forward, backward, _] = &mut self.judges;
        shown(forward, at).or_else(|| shown(backward, at))
    }

    /// An old event with a field that producers of the new schema may not send.
    fn refused_by_new_producers(&mut self, at: &At) -> Option<Value> {
        shown(&mut self.judges[2], at)
    }

    /// Breaking needs an event that shows it; without one it is unknown.
    fn settle(&mut self, rule: Rule, pointer: &str, reason: String, example: Option<Value>) {
        let shown = example.is_some();
        let mut found = finding(self.request, rule, pointer.to_owned(), reason, example);
        if !shown {
            found.severity = found.severity.min(Severity::Unknown);
        }
        self.push(found);
    }

    fn add(&mut self, rule: Rule, pointer: &str, reason: String, example: Option<Value>) {
        self.push(finding(self.request, rule, pointer.to_owned(), reason, example));
    }

    /// An enum with new values. Where old readers matter, the inclusion has already judged it, and
    /// what it found only lacks the values.
    fn grown(&mut self, at: &At, reason: String) {
        let rule = Rule::EnumWidened;
        if self.known(rule, &at.pointer) {
            let same =
                |found: &&mut Finding| found.rule == rule.id() && found.pointer == at.pointer;
            if let Some(found) = self.findings.iter_mut().find(same) {
                found.reason = reason;
            }
            return;
        }
        let mut found = finding(self.request, rule, at.pointer.clone(), reason, None);
        found.severity = found.severity.min(Severity::Note);
        self.push(found);
    }

    fn push(&mut self, found: Finding) {
        self.known.insert((found.rule.clone(), found.pointer.clone()));
        self.findings.push(found);
    }

    fn known(&self, rule: Rule, pointer: &str) -> bool {
        self.known.contains(&(rule.id().to_owned(), pointer.to_owned()))
    }
}

fn shown<'t>((sides, search): &mut (&'t Sides, Search<'t>), at: &At) -> Option<Value> {
    if search.is_exhausted() {
        return None;
    }
    let left = search.place(&sides.left, &at.path);
    static ANYTHING: Value = Value::Bool(true);
    // The reader's own schema is left out of the filter: only its validator is asked.
    let mut obstacle = Obstacle::new(left, &ANYTHING, at.clone(), Cause::Extra);
    obstacle.hints = crate::witness::variants(&obstacle.cases[0].0);
    search.counterexample(&sides.left, &sides.right, &obstacle)
}

fn member(at: &At, name: &str) -> At {
    let mut at = at.clone();
    at.pointer.push_str(&format!("/properties/{}", escaped(name)));
    at.path.push(Step::Member(name.to_owned()));
    at
}

fn schema_default(facts: &Facts<'_>, name: &str) -> String {
    let default =
        facts.parts.iter().find_map(|part| part.get("properties")?.get(name)?.get("default"));
    default
        .map_or("without a default: readers must know what its absence means".to_owned(), |value| {
            format!("{value} by default")
        })
}

fn bare(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(map) = schema.as_object_mut() {
        ANNOTATIONS.iter().for_each(|keyword| {
            map.remove(*keyword);
        });
    }
    schema
}
