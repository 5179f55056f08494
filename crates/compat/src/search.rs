//! The search for a counterexample: values at the place of an obstacle, put into whole instances and validated.

use std::collections::HashMap;

use jsonschema::Validator;
use serde_json::{Map, Value};

use crate::accepts::{accepts, all};
use crate::facts::{Case, Facts};
use crate::members;
use crate::obstacle::{Obstacle, Step};
use crate::strings;
use crate::witness::{beyond, variants};

/// Instances judged per obstacle and in all; beyond that the verdict is *unknown*.
const EACH: usize = 240;
const ALL: usize = 6_000;

pub(crate) struct Search<'v> {
    writer: &'v [Validator],
    reader: &'v Validator,
    judged: usize,
    bases: HashMap<Vec<usize>, Vec<Value>>,
}

impl<'v> Search<'v> {
    /// A counterexample satisfies every `writer` and not the `reader`.
    pub(crate) fn new(writer: &'v [Validator], reader: &'v Validator) -> Search<'v> {
        Search { writer, reader, judged: 0, bases: HashMap::new() }
    }

    pub(crate) fn confirms(&self, instance: &Value) -> bool {
        self.writer.iter().all(|writer| writer.is_valid(instance))
            && !self.reader.is_valid(instance)
    }

    pub(crate) fn counterexample(
        &mut self,
        left: &Value,
        right: &Value,
        obstacle: &Obstacle<'_>,
    ) -> Option<Value> {
        let mut judged = 0;
        for value in candidates(right, obstacle) {
            for instance in self.wrap(&Case::new(left, vec![left]), &obstacle.at.path, &value) {
                if judged >= EACH || self.judged >= ALL {
                    return None;
                }
                judged += 1;
                self.judged += 1;
                if self.confirms(&instance) {
                    return Some(instance);
                }
            }
        }
        None
    }

    /// Instances of `case` that hold `value` at the end of `path`.
    fn wrap(&mut self, case: &Case<'_>, path: &[Step], value: &Value) -> Vec<Value> {
        let Some((step, rest)) = path.split_first() else { return vec![value.clone()] };
        let facts = Facts::of(case);
        if let Some(list) = facts.splits.first()
            && let Some(branches) = list.as_array()
        {
            let branches = branches.iter().take(12);
            return branches
                .flat_map(|branch| self.wrap(&case.taking(list, branch), path, value))
                .take(48)
                .collect();
        }
        match step {
            Step::Item(index) => self.wrap_item(case, &facts, *index, rest, value),
            Step::Member(name) => self.wrap_member(case, &facts, name, rest, value),
            Step::Matching(pattern) => {
                let names = strings::matching(pattern);
                names
                    .iter()
                    .take(3)
                    .flat_map(|name| self.wrap_member(case, &facts, name, rest, value))
                    .collect()
            }
        }
    }

    fn wrap_member(
        &mut self,
        case: &Case<'_>,
        facts: &Facts<'_>,
        name: &str,
        rest: &[Step],
        value: &Value,
    ) -> Vec<Value> {
        let inner = self.wrap(&members::member(case.root, facts, name), rest, value);
        let bases = self.bases(case);
        let mut whole = Vec::new();
        for inner in inner.into_iter().take(12) {
            for base in &bases {
                let mut object: Map<String, Value> = base.clone();
                object.insert(name.to_owned(), inner.clone());
                whole.push(Value::Object(object));
            }
        }
        whole
    }

    /// The smallest objects of a case, built once however many members are tried in them.
    fn bases(&mut self, case: &Case<'_>) -> Vec<Map<String, Value>> {
        let key = case.identity();
        let built = self.bases.entry(key).or_insert_with(|| {
            let mut objects: Vec<Value> =
                variants(case).into_iter().filter(Value::is_object).take(5).collect();
            if objects.is_empty() {
                objects.push(Value::Object(Map::new()));
            }
            objects
        });
        built.iter().filter_map(|base| base.as_object().cloned()).collect()
    }

    fn wrap_item(
        &mut self,
        case: &Case<'_>,
        facts: &Facts<'_>,
        index: usize,
        rest: &[Step],
        value: &Value,
    ) -> Vec<Value> {
        let inner = self.wrap(&members::item(case.root, facts, index), rest, value);
        let least = usize::try_from(facts.items.0).unwrap_or(0).min(1_000).max(index + 1);
        let mut whole = Vec::new();
        for inner in inner.into_iter().take(24) {
            let mut array = Vec::with_capacity(least);
            for other in 0..least {
                let filler = || variants(&members::item(case.root, facts, other));
                let distinct = |array: &[Value]| {
                    filler().into_iter().find(|one| one != &inner && !array.contains(one))
                };
                array.push(if other == index {
                    inner.clone()
                } else {
                    distinct(&array).unwrap_or(Value::Null)
                });
            }
            whole.push(Value::Array(array));
        }
        whole
    }
}

/// Values that the left side seems to accept and the right side seems to refuse, the surest first.
fn candidates(right_root: &Value, obstacle: &Obstacle<'_>) -> Vec<Value> {
    let mut sure: Vec<Value> = obstacle.hints.clone();
    let mut maybe = Vec::new();
    for (left, right) in &obstacle.cases {
        let mut values = variants(left);
        values.extend(beyond(&Case::new(right_root, vec![right]), left));
        for value in values {
            let mine = left.schemas.iter().map(|schema| accepts(left.root, schema, &value));
            let mine = all(mine);
            let theirs = accepts(right_root, right, &value);
            match (mine, theirs) {
                (Some(false), _) | (_, Some(true)) => {}
                (Some(true), Some(false)) => sure.push(value),
                _ => maybe.push(value),
            }
        }
    }
    // Smaller examples are easier to read.
    sure.truncate(64);
    sure.sort_by_key(|value| value.to_string().len());
    maybe.truncate(96);
    sure.extend(maybe);
    sure
}
