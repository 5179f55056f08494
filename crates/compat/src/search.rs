//! The search for a counterexample: values at the place of an obstacle, put into whole instances and validated.

use std::collections::HashMap;
use std::rc::Rc;

use jsonschema::Validator;
use serde_json::{Map, Value};

use crate::accepts::{Lists, accepts, all};
use crate::facts::{Case, Facts};
use crate::members;
use crate::obstacle::{Obstacle, Step};
use crate::strings;
use crate::witness::{beyond, variants};

/// Instances judged per obstacle and in all; beyond that the verdict is *unknown*.
const EACH: usize = 240;
const ALL: usize = 6_000;

/// Objects of more members are copied once per try, not in several variants.
const LARGE: usize = 600;

pub(crate) struct Search<'v> {
    writer: &'v [Validator],
    reader: &'v Validator,
    judged: usize,
    bases: HashMap<Vec<usize>, Vec<Value>>,
    /// The facts of the cases on the way to a place: every member of an object shares them.
    facts: HashMap<Vec<usize>, Rc<Facts<'v>>>,
    lists: Lists,
    /// Parts and names of schemas that were read, and members that were copied.
    work: u64,
}

impl<'v> Search<'v> {
    /// A counterexample satisfies every `writer` and not the `reader`.
    pub(crate) fn new(writer: &'v [Validator], reader: &'v Validator) -> Search<'v> {
        Search {
            writer,
            reader,
            judged: 0,
            bases: HashMap::new(),
            facts: HashMap::new(),
            lists: Lists::default(),
            work: 0,
        }
    }

    /// The case of a schema at the end of a path.
    pub(crate) fn place(&mut self, root: &'v Value, path: &[Step]) -> Case<'v> {
        path.iter().fold(Case::new(root, vec![root]), |case, step| {
            let facts = self.facts(&case);
            match step {
                Step::Member(name) | Step::Matching(name) => members::member(root, &facts, name),
                Step::Item(index) => members::item(root, &facts, *index),
            }
        })
    }

    fn facts(&mut self, case: &Case<'v>) -> Rc<Facts<'v>> {
        let (key, work) = (case.identity(), &mut self.work);
        let known = self.facts.entry(key).or_insert_with(|| {
            let facts = Facts::of(case);
            *work += facts.weight();
            Rc::new(facts)
        });
        Rc::clone(known)
    }

    pub(crate) fn confirms(&self, instance: &Value) -> bool {
        self.writer.iter().all(|writer| writer.is_valid(instance))
            && !self.reader.is_valid(instance)
    }

    /// No further counterexample is looked for.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.judged >= ALL
    }

    pub(crate) fn counterexample(
        &mut self,
        left: &'v Value,
        right: &Value,
        obstacle: &Obstacle<'_>,
    ) -> Option<Value> {
        let mut judged = 0;
        if self.is_exhausted() {
            return None;
        }
        let candidates = candidates(&self.lists, right, obstacle);
        self.judged += candidates.iter().map(members_of).sum::<usize>() / LARGE;
        for value in candidates {
            for instance in self.wrap(&Case::new(left, vec![left]), &obstacle.at.path, &value) {
                if judged >= EACH || self.judged >= ALL {
                    return None;
                }
                judged += 1;
                // Validators track which fields were evaluated, so many fields take long to judge.
                let size = members_of(&instance) / 250;
                self.judged += 1 + size * size;
                if self.confirms(&instance) {
                    return Some(instance);
                }
            }
        }
        None
    }

    /// Instances of `case` that hold `value` at the end of `path`.
    fn wrap(&mut self, case: &Case<'v>, path: &[Step], value: &Value) -> Vec<Value> {
        let Some((step, rest)) = path.split_first() else { return vec![value.clone()] };
        let facts = self.facts(case);
        if let Some(&list) = facts.splits.first()
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
        case: &Case<'v>,
        facts: &Facts<'v>,
        name: &str,
        rest: &[Step],
        value: &Value,
    ) -> Vec<Value> {
        let inner = self.wrap(&members::member(case.root, facts, name), rest, value);
        let bases = self.bases(case);
        // Copies of a large object are what takes the time.
        let large = bases.iter().any(|base| base.len() > LARGE);
        let (inners, copies) = if large { (2, 1) } else { (12, 5) };
        let mut whole = Vec::new();
        for inner in inner.into_iter().take(inners) {
            for base in bases.iter().take(copies) {
                self.work += 1 + base.len() as u64;
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
        let large = built.iter().any(|base| members_of(base) > LARGE);
        let most = if large { 1 } else { built.len() };
        built.iter().take(most).filter_map(|base| base.as_object().cloned()).collect()
    }

    fn wrap_item(
        &mut self,
        case: &Case<'v>,
        facts: &Facts<'v>,
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

fn members_of(instance: &Value) -> usize {
    match instance {
        Value::Object(members) => members.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    }
}

/// Values that the left side seems to accept and the right side seems to refuse, the surest first.
fn candidates(lists: &Lists, right_root: &Value, obstacle: &Obstacle<'_>) -> Vec<Value> {
    let mut sure: Vec<Value> = obstacle.hints.clone();
    let mut maybe = Vec::new();
    for (left, right) in &obstacle.cases {
        let mut values = variants(left);
        values.extend(beyond(&Case::new(right_root, vec![right]), left));
        for value in values {
            let mine = left.schemas.iter().map(|schema| accepts(lists, left.root, schema, &value));
            let mine = all(mine);
            let theirs = accepts(lists, right_root, right, &value);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::obstacle::{At, Cause};

    /// The work of an example for each of `count` optional members of a closed object.
    fn work(count: usize) -> u64 {
        let wide = |kind: &str| {
            let named: Map<String, Value> =
                (0..count).map(|n| (format!("field{n}"), json!({ "type": kind }))).collect();
            json!({ "type": "object", "properties": named, "unevaluatedProperties": false })
        };
        let (left, right) = (wide("string"), wide("integer"));
        let compiled = |schema: &Value| jsonschema::validator_for(schema).unwrap();
        let (writer, reader) = ([compiled(&left)], compiled(&right));
        let mut search = Search::new(&writer, &reader);
        for n in 0..count {
            let at = At::default().member(&format!("field{n}"));
            let place = search.place(&left, &at.path);
            let obstacle = Obstacle::new(place, &Value::Bool(true), at, Cause::Extra);
            let obstacle = Obstacle { hints: vec![json!("a")], ..obstacle };
            assert!(search.counterexample(&left, &right, &obstacle).is_some(), "field{n}");
        }
        search.work
    }

    #[test]
    fn four_times_the_fields_are_four_times_the_work() {
        let (few, many) = (work(500), work(2_000));
        assert!(many <= 5 * few, "{few} for 500 fields, then {many}");
    }
}
