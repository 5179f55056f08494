//! What a conjunction of schemas says about one member of an object or one item of an array.

use std::collections::BTreeSet;

use chapar_core::schema::resolve;
use serde_json::{Map, Value};

use crate::facts::{Case, Facts};

pub(crate) static NEVER: Value = Value::Bool(false);

/// The value under `name`: the schemas that it satisfies, or nothing where the name cannot occur.
pub(crate) fn member<'a>(root: &'a Value, facts: &Facts<'a>, name: &str) -> Case<'a> {
    let mut schemas = Vec::new();
    for part in &facts.parts {
        let declared = part.get("properties").and_then(|named| named.get(name));
        schemas.extend(declared);
        // A pattern may or may not match the name; saying nothing is the safe reading.
        if declared.is_none() && !part.contains_key("patternProperties") {
            schemas.extend(part.get("additionalProperties"));
        }
    }
    if facts.closed.as_ref().is_some_and(|names| !names.contains(name)) {
        schemas.push(&NEVER);
    }
    Case::new(root, schemas)
}

/// The value under any name that no part declares.
pub(crate) fn undeclared<'a>(root: &'a Value, facts: &Facts<'a>) -> Case<'a> {
    let mut schemas = Vec::new();
    for part in &facts.parts {
        if !part.contains_key("patternProperties") {
            schemas.extend(part.get("additionalProperties"));
        }
    }
    if facts.closed.is_some() {
        schemas.push(&NEVER);
    }
    Case::new(root, schemas)
}

/// Every name that some part declares, in whatever branch.
pub(crate) fn declared<'a>(root: &'a Value, facts: &Facts<'a>) -> BTreeSet<&'a str> {
    let mut all: BTreeSet<&str> = facts.required.clone();
    for part in &facts.parts {
        collect(root, part, 0, &mut all);
    }
    all
}

/// The item at `index`.
pub(crate) fn item<'a>(root: &'a Value, facts: &Facts<'a>, index: usize) -> Case<'a> {
    let mut schemas = Vec::new();
    for part in &facts.parts {
        let prefix = part.get("prefixItems").and_then(Value::as_array);
        match prefix.and_then(|prefix| prefix.get(index)) {
            Some(schema) => schemas.push(schema),
            None => schemas.extend(part.get("items")),
        }
    }
    Case::new(root, schemas)
}

/// The longest `prefixItems`.
pub(crate) fn prefix(facts: &Facts<'_>) -> usize {
    facts
        .parts
        .iter()
        .filter_map(|part| Some(part.get("prefixItems")?.as_array()?.len()))
        .max()
        .unwrap_or(0)
}

/// The names that `unevaluatedProperties: false` leaves, or none where a pattern or a map lets others in.
pub(crate) fn closed_names<'a>(
    root: &'a Value,
    part: &'a Map<String, Value>,
) -> Option<BTreeSet<&'a str>> {
    if part.get("unevaluatedProperties") != Some(&NEVER) {
        return None;
    }
    let mut all = BTreeSet::new();
    collect(root, part, 0, &mut all).then_some(all)
}

fn collect<'a>(
    root: &'a Value,
    part: &'a Map<String, Value>,
    depth: usize,
    all: &mut BTreeSet<&'a str>,
) -> bool {
    if depth > 64 {
        return false;
    }
    let mut whole = !part.contains_key("patternProperties")
        && part.get("additionalProperties").is_none_or(|schema| schema == &NEVER)
        && part.get("unevaluatedProperties").is_none_or(|schema| schema == &NEVER);
    all.extend(
        part.get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::keys)
            .map(String::as_str),
    );
    let reference = part.get("$ref").and_then(Value::as_str).and_then(|to| resolve(root, to));
    let lists = ["allOf", "anyOf", "oneOf"]
        .iter()
        .filter_map(|keyword| part.get(*keyword)?.as_array())
        .flatten();
    let single = ["if", "then", "else"].iter().filter_map(|keyword| part.get(*keyword));
    let dependent =
        part.get("dependentSchemas").and_then(Value::as_object).into_iter().flat_map(Map::values);
    for branch in reference.into_iter().chain(lists).chain(single).chain(dependent) {
        if let Some(branch) = branch.as_object() {
            whole &= collect(root, branch, depth + 1, all);
        }
    }
    whole
}
