//! The keywords about one value at a time: do they follow from the facts?

use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::facts::{Bound, Facts, Types, size};
use crate::formats;
use crate::number::Num;
use crate::obstacle::Cause;

/// What `part` asks for and the facts do not guarantee.
pub(crate) fn missing(facts: &Facts<'_>, part: &Map<String, Value>) -> Vec<Cause> {
    let mut missing = Vec::new();
    if part.get("type").is_some_and(|types| !facts.types.within(Types::keyword(types))) {
        missing.push(Cause::Type);
    }
    // A left side that can be listed is compared value by value and does not come here.
    if part.contains_key("enum") || part.contains_key("const") {
        missing.push(Cause::Enum);
    }
    if facts.types.has(Types::NUMBER) && !number(facts, part) {
        missing.push(Cause::Range);
    }
    let sizes = [
        (Types::STRING, facts.length, "minLength", "maxLength"),
        (Types::ARRAY, facts.items, "minItems", "maxItems"),
        (Types::OBJECT, members(facts), "minProperties", "maxProperties"),
    ];
    for (types, known, least, most) in sizes {
        if facts.types.has(types) && !within(known, part, least, most) {
            missing.push(Cause::Range);
        }
    }
    if facts.types.has(Types::STRING)
        && part
            .get("pattern")
            .and_then(Value::as_str)
            .is_some_and(|pattern| !facts.patterns.contains(pattern))
    {
        missing.push(Cause::Pattern);
    }
    if facts.types.has(Types::STRING)
        && formats::asserted(part).is_some_and(|format| !facts.formats.contains(format))
    {
        missing.push(Cause::Format);
    }
    if facts.types.has(Types::ARRAY)
        && part.get("uniqueItems") == Some(&Value::Bool(true))
        && !(facts.unique || facts.items.1.is_some_and(|most| most <= 1))
    {
        missing.push(Cause::Unique);
    }
    missing.dedup();
    missing
}

/// Nothing is asked for.
pub(crate) fn is_trivial(schema: &Value) -> bool {
    match schema {
        Value::Bool(all) => *all,
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn members(facts: &Facts<'_>) -> (u64, Option<u64>) {
    let least = facts.members.0.max(facts.required.len() as u64);
    let names = facts.closed.as_ref().map(|names| names.len() as u64);
    (
        least,
        match (facts.members.1, names) {
            (Some(most), Some(names)) => Some(most.min(names)),
            (most, names) => most.or(names),
        },
    )
}

fn within(known: (u64, Option<u64>), part: &Map<String, Value>, least: &str, most: &str) -> bool {
    part.get(least).is_none_or(|least| size(least).is_some_and(|least| least <= known.0))
        && part
            .get(most)
            .is_none_or(|most| size(most).zip(known.1).is_some_and(|(most, known)| known <= most))
}

fn number(facts: &Facts<'_>, part: &Map<String, Value>) -> bool {
    let low = |keyword: &str, open| {
        part.get(keyword).is_none_or(|bound| implied(facts.low, bound, open, Ordering::Greater))
    };
    let high = |keyword: &str, open| {
        part.get(keyword).is_none_or(|bound| implied(facts.high, bound, open, Ordering::Less))
    };
    low("minimum", false)
        && low("exclusiveMinimum", true)
        && high("maximum", false)
        && high("exclusiveMaximum", true)
        && part.get("multipleOf").and_then(Num::of).is_none_or(|step| multiple(facts, step))
}

fn implied(known: Option<Bound>, bound: &Value, open: bool, wins: Ordering) -> bool {
    let (Some((known, known_open)), Some(bound)) = (known, Num::of(bound)) else { return false };
    match known.compare(bound) {
        Some(Ordering::Equal) => known_open || !open,
        order => order == Some(wins),
    }
}

fn multiple(facts: &Facts<'_>, step: Num) -> bool {
    let integers = !facts.types.has(Types::FRACTION);
    facts.multiples.iter().any(|known| match (known.as_int(), step.as_int()) {
        (Some(known), Some(step)) => step != 0 && known % step == 0,
        _ => known.compare(step) == Some(Ordering::Equal),
    }) || (integers && step.as_int() == Some(1))
}
