//! No value in common, and the same schema: the two small questions that inclusion asks.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use chapar_core::schema::resolve;
use serde_json::Value;

use crate::accepts::{Lists, accepts};
use crate::facts::{Bound, Case, Facts, Types};
use crate::include::BUDGET;
use crate::members;

/// Proves that no value satisfies both; `false` only says that it was not proved.
pub(crate) fn disjoint(a: &Case<'_>, b: &Case<'_>, spent: &mut u64) -> bool {
    nowhere(a, b, spent, 0)
}

fn nowhere(a: &Case<'_>, b: &Case<'_>, spent: &mut u64, depth: usize) -> bool {
    *spent += 1;
    if *spent > BUDGET || depth > 24 {
        return false;
    }
    let (left, right) = (Facts::of(a), Facts::of(b));
    *spent += (left.parts.len() + right.parts.len()) as u64;
    let common = left.types.and(right.types);
    if common.is_empty() || listed_apart(&left, b) || listed_apart(&right, a) {
        return true;
    }
    if common.each().all(|one| apart(one, (a, &left), (b, &right), spent, depth)) {
        return true;
    }
    let split = |case: &Case<'_>, facts: &Facts<'_>, other: &Case<'_>, spent: &mut u64| {
        facts.splits.first().is_some_and(|list| {
            list.as_array().is_some_and(|branches| {
                branches
                    .iter()
                    .all(|branch| nowhere(&case.taking(list, branch), other, spent, depth + 1))
            })
        })
    };
    split(b, &right, a, spent) || split(a, &left, b, spent)
}

fn listed_apart(facts: &Facts<'_>, other: &Case<'_>) -> bool {
    let lists = Lists::default();
    facts.values.as_ref().is_some_and(|values| {
        values.iter().all(|value| {
            other
                .schemas
                .iter()
                .any(|schema| accepts(&lists, other.root, schema, value) == Some(false))
        })
    })
}

fn apart(
    one: Types,
    (a, left): (&Case<'_>, &Facts<'_>),
    (b, right): (&Case<'_>, &Facts<'_>),
    spent: &mut u64,
    depth: usize,
) -> bool {
    match one {
        Types::INTEGER | Types::FRACTION => {
            above(left.low, right.high) || above(right.low, left.high)
        }
        Types::STRING => beyond(left.length, right.length),
        Types::ARRAY => beyond(left.items, right.items),
        Types::OBJECT => {
            let names: BTreeSet<&str> =
                left.required.iter().chain(&right.required).copied().collect();
            names.iter().any(|name| {
                let (mine, theirs) =
                    (members::member(a.root, left, name), members::member(b.root, right, name));
                nowhere(&mine, &theirs, spent, depth + 1)
            })
        }
        _ => false,
    }
}

fn above(low: Option<Bound>, high: Option<Bound>) -> bool {
    let (Some(low), Some(high)) = (low, high) else { return false };
    match low.0.compare(high.0) {
        Some(Ordering::Greater) => true,
        Some(Ordering::Equal) => low.1 || high.1,
        _ => false,
    }
}

fn beyond(a: (u64, Option<u64>), b: (u64, Option<u64>)) -> bool {
    a.1.is_some_and(|most| most < b.0) || b.1.is_some_and(|most| most < a.0)
}

/// The same text, and the same text behind every reference in it.
pub(crate) fn same_schema(
    left_root: &Value,
    left: &Value,
    right_root: &Value,
    right: &Value,
) -> bool {
    let mut waiting = vec![(left, right)];
    let mut seen = BTreeSet::new();
    while let Some((left, right)) = waiting.pop() {
        if left != right {
            return false;
        }
        let mut references = BTreeSet::new();
        collect(left, &mut references);
        for reference in references {
            if seen.insert(reference) {
                match (resolve(left_root, reference), resolve(right_root, reference)) {
                    (Some(left), Some(right)) => waiting.push((left, right)),
                    // Data that looks like a reference; the text is the same and that is enough.
                    (None, None) => {}
                    _ => return false,
                }
            }
        }
    }
    true
}

fn collect<'a>(value: &'a Value, references: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(map) => {
            if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
                references.insert(reference);
            }
            map.values().for_each(|value| collect(value, references));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}
