//! A small evaluator: whether a schema accepts a value, or `None` if it does not know a keyword.
//!
//! It filters candidates and decides finite sets. A counterexample is always confirmed by a
//! validator.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use chapar_core::schema::resolve;
use serde_json::{Map, Value};

use crate::facts::{Types, size};
use crate::formats;
use crate::number::{Num, key, same};

/// Keywords that restrict instances and are not evaluated here.
const OPAQUE: [&str; 11] = [
    "pattern",
    "patternProperties",
    "propertyNames",
    "contains",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "additionalItems",
];

/// The values of long enums, so that each of many values is looked up instead of compared with
/// every one. Entries are found by the address of the list: the schemas must outlive this.
#[derive(Debug, Default)]
pub(crate) struct Lists(RefCell<HashMap<usize, HashSet<String>>>);

impl Lists {
    /// Shorter lists are compared.
    const SHORT: usize = 32;

    fn has(&self, list: &[Value], value: &Value) -> bool {
        if list.len() <= Self::SHORT {
            return list.iter().any(|one| same(one, value));
        }
        let mut known = self.0.borrow_mut();
        let keys =
            known.entry(list.as_ptr().addr()).or_insert_with(|| list.iter().map(key).collect());
        keys.contains(&key(value))
    }
}

pub(crate) fn accepts(lists: &Lists, root: &Value, schema: &Value, value: &Value) -> Option<bool> {
    let map = match schema {
        Value::Bool(verdict) => return Some(*verdict),
        Value::Object(map) => map,
        _ => return None,
    };
    let mut verdict = Some(true);
    for one in [
        scalars(lists, map, value),
        nested(lists, root, map, value),
        combined(lists, root, map, value),
    ] {
        verdict = and(verdict, one);
    }
    if verdict == Some(true)
        && OPAQUE.iter().any(|keyword| map.contains_key(*keyword) && concerns(keyword, map, value))
    {
        return None;
    }
    verdict
}

/// Whether an opaque keyword can say anything about a value of this type.
fn concerns(keyword: &str, map: &Map<String, Value>, value: &Value) -> bool {
    match keyword {
        "pattern" => value.is_string(),
        "uniqueItems" => {
            value.as_array().is_some_and(|items| items.len() > 1)
                && map[keyword] == Value::Bool(true)
        }
        "contains" | "unevaluatedItems" | "additionalItems" => value.is_array(),
        "if" => true,
        _ => value.is_object(),
    }
}

fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// Every verdict together; one `no` decides, whatever is not known.
pub(crate) fn all(verdicts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut together = Some(true);
    for verdict in verdicts {
        together = and(together, verdict);
    }
    together
}

fn scalars(lists: &Lists, map: &Map<String, Value>, value: &Value) -> Option<bool> {
    let fits = map.get("type").is_none_or(|types| Types::of(value).within(Types::keyword(types)))
        && map.get("const").is_none_or(|only| same(only, value))
        && map.get("enum").and_then(Value::as_array).is_none_or(|list| lists.has(list, value));
    if !fits {
        return Some(false);
    }
    match value {
        Value::Number(_) => number(map, Num::of(value)?),
        Value::String(text) => Some(
            within(map, "minLength", "maxLength", text.chars().count())
                && formats::asserted(map).is_none_or(|format| formats::fits(format, value)),
        ),
        Value::Array(items) => Some(within(map, "minItems", "maxItems", items.len())),
        Value::Object(members) => Some(
            within(map, "minProperties", "maxProperties", members.len())
                && map.get("required").and_then(Value::as_array).is_none_or(|names| {
                    names.iter().filter_map(Value::as_str).all(|name| members.contains_key(name))
                }),
        ),
        _ => Some(true),
    }
}

fn number(map: &Map<String, Value>, value: Num) -> Option<bool> {
    for (keyword, allowed) in [
        ("minimum", [Ordering::Greater, Ordering::Equal]),
        ("exclusiveMinimum", [Ordering::Greater; 2]),
        ("maximum", [Ordering::Less, Ordering::Equal]),
        ("exclusiveMaximum", [Ordering::Less; 2]),
    ] {
        if let Some(bound) = map.get(keyword).and_then(Num::of)
            && !allowed.contains(&value.compare(bound)?)
        {
            return Some(false);
        }
    }
    match map.get("multipleOf").and_then(Num::of) {
        None => Some(true),
        // Fractions are left to the validator, which decides how they are rounded.
        Some(step) => Some(value.as_int()? % step.as_int().filter(|step| *step != 0)? == 0),
    }
}

fn within(map: &Map<String, Value>, least: &str, most: &str, count: usize) -> bool {
    let count = count as u64;
    map.get(least).and_then(size).is_none_or(|least| least <= count)
        && map.get(most).and_then(size).is_none_or(|most| count <= most)
}

fn nested(lists: &Lists, root: &Value, map: &Map<String, Value>, value: &Value) -> Option<bool> {
    match value {
        Value::Object(members) => all(members.iter().map(|(name, member)| {
            match map.get("properties").and_then(|named| named.get(name)) {
                Some(schema) => accepts(lists, root, schema, member),
                None if map.contains_key("patternProperties") => None,
                None => map
                    .get("additionalProperties")
                    .map_or(Some(true), |schema| accepts(lists, root, schema, member)),
            }
        })),
        Value::Array(items) => {
            let prefix = map.get("prefixItems").and_then(Value::as_array);
            all(items.iter().enumerate().map(|(index, item)| {
                match prefix.and_then(|prefix| prefix.get(index)).or_else(|| map.get("items")) {
                    Some(schema) => accepts(lists, root, schema, item),
                    None => Some(true),
                }
            }))
        }
        _ => Some(true),
    }
}

fn combined(lists: &Lists, root: &Value, map: &Map<String, Value>, value: &Value) -> Option<bool> {
    let list = |keyword: &str| {
        map.get(keyword)
            .and_then(Value::as_array)
            .map(|list| list.iter().map(|one| accepts(lists, root, one, value)))
    };
    let mut verdict = Some(true);
    if let Some(target) = map.get("$ref").and_then(Value::as_str) {
        verdict = and(
            verdict,
            resolve(root, target).and_then(|target| accepts(lists, root, target, value)),
        );
    }
    if let Some(parts) = list("allOf") {
        verdict = and(verdict, all(parts));
    }
    if let Some(parts) = list("anyOf") {
        // One yes is enough, whatever the others are.
        verdict = and(verdict, all(parts.map(negated)).map(|none| !none));
    }
    if let Some(parts) = list("oneOf") {
        let parts: Vec<_> = parts.collect();
        let sure = parts.iter().filter(|part| **part == Some(true)).count();
        let open = parts.iter().any(Option::is_none);
        verdict = and(verdict, if sure > 1 { Some(false) } else { (!open).then_some(sure == 1) });
    }
    if let Some(schema) = map.get("not") {
        verdict = and(verdict, negated(accepts(lists, root, schema, value)));
    }
    verdict
}

fn negated(verdict: Option<bool>) -> Option<bool> {
    verdict.map(|verdict| !verdict)
}
