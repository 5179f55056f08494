//! Values that a schema probably accepts: small, at the edges, and different from each other.
//!
//! Nothing here is trusted. A value becomes a counterexample only after two validators agree about
//! it.

use std::cell::Cell;

use serde_json::{Map, Value, json};

use crate::facts::{Bound, Case, Facts, Types};
use crate::formats;
use crate::members;
use crate::number::{Num, same};
use crate::strings;

/// Values kept per place.
const MOST: usize = 40;

/// How deep values are built; what is deeper is left out.
const DEEPEST: usize = 24;

/// Longer strings and arrays are not built to show that they are too long.
const LONGEST: u64 = 5_000;

pub(crate) fn variants(case: &Case<'_>) -> Vec<Value> {
    build(case, Effort { depth: DEEPEST, many: true, fuel: &Cell::new(20_000) })
}

/// What may still be spent; a recursive schema has no end of instances.
#[derive(Clone, Copy)]
struct Effort<'e> {
    depth: usize,
    /// As many as come to mind, or only the smallest.
    many: bool,
    fuel: &'e Cell<u32>,
}

impl Effort<'_> {
    fn deeper(self) -> Self {
        Effort { depth: self.depth - 1, ..self }
    }

    fn at_most(self, depth: usize) -> Self {
        Effort { depth: self.depth.min(depth), ..self }
    }
}

fn build(case: &Case<'_>, effort: Effort<'_>) -> Vec<Value> {
    let facts = Facts::of(case);
    effort.fuel.set(effort.fuel.get().saturating_sub(1));
    if let Some(values) = &facts.values {
        return values.iter().take(MOST).cloned().collect();
    }
    if effort.depth == 0 || effort.fuel.get() == 0 {
        return Vec::new();
    }
    if let Some(list) = facts.splits.first()
        && let Some(branches) = list.as_array()
    {
        let each = (MOST / branches.len().max(1)).max(2);
        let mut built = branches
            .iter()
            .take(MOST)
            .map(|branch| build(&case.taking(list, branch), effort.deeper()));
        if !effort.many {
            return built.find(|values| !values.is_empty()).unwrap_or_default();
        }
        return built.flat_map(|values| values.into_iter().take(each)).collect();
    }
    let mut values = Vec::new();
    let mut types: Vec<Types> = facts.types.each().collect();
    if !effort.many {
        // The simplest type ends a recursion.
        types.reverse();
    }
    for one in types {
        if !effort.many && !values.is_empty() {
            break;
        }
        values.extend(match one {
            Types::NULL => vec![Value::Null],
            Types::BOOLEAN => vec![json!(true), json!(false)],
            Types::INTEGER => integers(&facts),
            Types::FRACTION => fractions(&facts),
            Types::STRING => strings::variants(
                &facts.patterns,
                &facts.formats,
                facts.length.0,
                facts.length.1.filter(|most| *most <= LONGEST),
            ),
            Types::ARRAY => arrays(case, &facts, effort),
            _ => objects(case, &facts, effort),
        });
    }
    values.truncate(MOST);
    values
}

/// One value, the smallest that came to mind.
fn first(case: &Case<'_>, effort: Effort<'_>) -> Option<Value> {
    build(case, Effort { many: false, ..effort }).into_iter().next()
}

fn integers(facts: &Facts<'_>) -> Vec<Value> {
    let step =
        facts.multiples.iter().filter_map(|step| step.as_int()).find(|step| *step > 0).unwrap_or(1);
    let edge = |bound: Option<Bound>, inward: i128| match bound {
        Some((Num::Int(int), open)) => Some(if open { int + inward } else { int }),
        Some((Num::Float(float), _)) => {
            Some(if inward > 0 { float.ceil() } else { float.floor() } as i128)
        }
        None => None,
    };
    let (low, high) = (edge(facts.low, 1), edge(facts.high, -1));
    let up = |int: i128| int.saturating_add((step - int.rem_euclid(step)) % step);
    let down = |int: i128| int.saturating_sub(int.rem_euclid(step));
    let mut ints: Vec<i128> = Vec::new();
    ints.extend(low.map(up));
    ints.extend(high.map(down));
    ints.extend(low.map(|low| up(low.saturating_add(1))));
    ints.extend(high.map(|high| down(high.saturating_sub(1))));
    ints.extend([0, step, -step, step.saturating_mul(7), 1_000_000_007_i128 * step.min(1_000)]);
    ints.retain(|int| low.is_none_or(|low| *int >= low) && high.is_none_or(|high| *int <= high));
    ints.into_iter().map(|int| Num::Int(int).json()).collect()
}

fn fractions(facts: &Facts<'_>) -> Vec<Value> {
    let mut all = vec![0.5, -0.5, 1.25];
    all.extend(
        facts
            .low
            .iter()
            .flat_map(|(low, _)| [low.as_f64() + 0.5, low.as_f64() + 0.001, low.as_f64()]),
    );
    all.extend(
        facts
            .high
            .iter()
            .flat_map(|(high, _)| [high.as_f64() - 0.5, high.as_f64() - 0.001, high.as_f64()]),
    );
    all.extend(facts.multiples.iter().flat_map(|step| [step.as_f64(), step.as_f64() * 3.0]));
    all.retain(|value| value.is_finite() && value.fract() != 0.0);
    all.into_iter().map(Value::from).collect()
}

fn arrays(case: &Case<'_>, facts: &Facts<'_>, effort: Effort<'_>) -> Vec<Value> {
    let item = |index: usize| build(&members::item(case.root, facts, index), effort.deeper());
    let prefix = members::prefix(facts);
    let sample = item(prefix);
    let mut arrays = Vec::new();
    let most = facts.items.1.filter(|most| *most <= LONGEST);
    let mut lengths = vec![facts.items.0, facts.items.0 + 1, prefix as u64, prefix as u64 + 1, 2];
    lengths.extend(most);
    lengths.retain(|length| {
        *length <= LONGEST
            && *length >= facts.items.0
            && facts.items.1.is_none_or(|most| *length <= most)
    });
    lengths.sort_unstable();
    lengths.dedup();
    if !effort.many {
        lengths.truncate(1);
    }
    for length in lengths {
        let mut array: Vec<Value> = Vec::new();
        for index in 0..usize::try_from(length).unwrap_or(0) {
            let choices = if index < prefix { item(index) } else { sample.clone() };
            let fresh = choices
                .iter()
                .find(|choice| !facts.unique || !array.iter().any(|other| same(other, choice)));
            // Numbers are easy to keep apart where the list of choices is used up.
            let value = fresh.cloned().unwrap_or_else(|| json!(index));
            array.push(value);
        }
        arrays.push(Value::Array(array));
    }
    arrays.extend(
        sample.iter().take(8).filter(|_| prefix == 0 && facts.items.0 <= 1).map(|one| json!([one])),
    );
    arrays
}

fn objects(case: &Case<'_>, facts: &Facts<'_>, effort: Effort<'_>) -> Vec<Value> {
    let member = |name: &str| members::member(case.root, facts, name);
    let mut least = Map::new();
    for name in &facts.required {
        if let Some(value) = first(&member(name), effort.deeper()) {
            least.insert((*name).to_owned(), value);
        }
    }
    if !effort.many && (least.len() as u64) >= facts.members.0 {
        return vec![Value::Object(least)];
    }
    let optional: Vec<&str> = members::declared(case.root, facts)
        .into_iter()
        .filter(|name| !facts.required.contains(name))
        .collect();
    let mut full = least.clone();
    for name in &optional {
        if let Some(value) = first(&member(name), effort.deeper()) {
            full.insert((*name).to_owned(), value);
        }
    }
    for name in full.keys().filter(|name| !facts.required.contains(name.as_str())) {
        if (least.len() as u64) < facts.members.0 {
            least.insert(name.clone(), full[name].clone());
        }
    }
    let room = facts.members.1.is_none_or(|most| (full.len() as u64) <= most);
    let mut spare = 0;
    while (least.len() as u64) < facts.members.0.min(LONGEST) {
        let Some(value) = first(&members::undeclared(case.root, facts), effort.deeper()) else {
            break;
        };
        least.insert(format!("other{spare}"), value);
        spare += 1;
    }
    let mut objects = vec![Value::Object(least.clone())];
    if room && full != least {
        objects.push(Value::Object(full.clone()));
    }
    for extra in build(&members::undeclared(case.root, facts), effort.at_most(2).deeper())
        .into_iter()
        .take(2)
    {
        let mut open = least.clone();
        open.insert("other".to_owned(), extra);
        objects.push(Value::Object(open));
    }
    for name in full.keys().take(8) {
        for value in build(&member(name), effort.at_most(3).deeper()).into_iter().take(6) {
            let mut other = least.clone();
            other.insert(name.clone(), value);
            objects.push(Value::Object(other));
        }
    }
    objects
}

/// Values just outside what the right side accepts.
pub(crate) fn beyond(right: &Case<'_>, left: &Case<'_>) -> Vec<Value> {
    let facts = Facts::of(right);
    let mut values = Vec::new();
    for part in &facts.parts {
        let number = |keyword: &str| part.get(keyword).and_then(Num::of);
        for keyword in ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"] {
            if let Some(bound) = number(keyword) {
                values.extend(
                    bound
                        .as_int()
                        .into_iter()
                        .flat_map(|int| [int, int - 1, int + 1])
                        .map(|int| Num::Int(int).json()),
                );
                values.extend([json!(bound.as_f64() - 0.5), json!(bound.as_f64() + 0.5)]);
            }
        }
        if let Some(step) = number("multipleOf") {
            values.extend([json!(step.as_f64() * 1.5), json!(1), json!(2), json!(3), json!(0.5)]);
            values.extend(step.as_int().map(|int| Num::Int(int + 1).json()));
        }
        for keyword in ["minLength", "maxLength"] {
            if let Some(length) =
                part.get(keyword).and_then(crate::facts::size).filter(|length| *length <= LONGEST)
            {
                let length = usize::try_from(length).unwrap_or(0);
                values.extend(
                    [length.saturating_sub(1), length + 1].map(|length| json!("a".repeat(length))),
                );
            }
        }
        values.extend(formats::asserted(part).into_iter().flat_map(formats::wrong));
        for listed in part.get("enum").and_then(Value::as_array).into_iter().flatten().take(1) {
            values.extend(listed.as_str().map(|text| json!(format!("{text}-other"))));
        }
    }
    let whole: Vec<Value> = variants(left).into_iter().filter(Value::is_object).take(8).collect();
    for object in &whole {
        for name in facts.required.iter().take(16) {
            let mut without = object.clone();
            if without.as_object_mut().is_some_and(|map| map.remove(*name).is_some()) {
                values.push(without);
            }
        }
    }
    values.extend([
        json!(null),
        json!(true),
        json!(0),
        json!(0.5),
        json!("?"),
        json!([]),
        json!([0, 0]),
        json!({}),
    ]);
    values
}
