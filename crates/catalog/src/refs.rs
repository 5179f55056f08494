//! The references of a schema: within its own document, acyclic, of bounded size.

use std::collections::{BTreeMap, BTreeSet};

use chapar_core::catalog::Rule;
use serde_json::{Map, Value};

use crate::json::escape;

/// The most references in one schema, which bounds how long they can be followed.
const MAX_REFS: usize = 500;

/// The maximum number of values that a schema may expand to. A few short lines can double
/// themselves into millions.
const MAX_VALUES: u64 = 100_000;

/// The maximum depth, references followed. Validators and the documentation recurse over it.
const MAX_DEPTH: usize = 200;

/// Errors by the pointer of their position.
pub(crate) type Complaints = Vec<(String, Rule, String)>;

/// Everything that is wrong with the references.
pub(crate) fn check(schema: &Value) -> Complaints {
    let mut complaints = Vec::new();
    let mut local = Vec::new();
    walk(schema, &mut String::new(), &mut |path, key, value| match key {
        "$ref" => match value.strip_prefix('#') {
            Some(target) if target.is_empty() || target.starts_with('/') => {
                if schema.pointer(target).is_some() {
                    local.push((path.to_owned(), target.to_owned()));
                } else {
                    let message = format!("$ref {value:?} leads nowhere");
                    complaints.push((path.to_owned(), Rule::Schema, message));
                }
            }
            Some(_) => {
                let message = format!("$ref {value:?} names an anchor; write it as #/$defs/…");
                complaints.push((path.to_owned(), Rule::Schema, message));
            }
            None => {
                let message = format!("$ref {value:?} leaves the file; copy it into $defs");
                complaints.push((path.to_owned(), Rule::RemoteRef, message));
            }
        },
        "$dynamicRef" | "$recursiveRef" => {
            let message = format!("{key} is not used here; write a plain $ref");
            complaints.push((path.to_owned(), Rule::Schema, message));
        }
        // A nested `$id` would change the base of the references after it.
        "$id" if path != "/$id" => {
            let message = "only the whole schema has an $id".to_owned();
            complaints.push((path.to_owned(), Rule::SchemaId, message));
        }
        _ => {}
    });
    if local.len() > MAX_REFS {
        let message = format!("it has more than {MAX_REFS} references");
        complaints.push((String::new(), Rule::TooLarge, message));
        return complaints;
    }
    let mut unfold = Unfold {
        schema,
        local: &local,
        known: BTreeMap::new(),
        open: Vec::new(),
        cycles: BTreeSet::new(),
    };
    let (values, depth) = unfold.extent("");
    for path in &unfold.cycles {
        let message = "this $ref leads back to itself; a payload must have an end".to_owned();
        complaints.push((path.clone(), Rule::RefCycle, message));
    }
    if unfold.cycles.is_empty() && (values > MAX_VALUES || depth > MAX_DEPTH) {
        let message = format!(
            "with its references it unfolds into more than {MAX_VALUES} values, or deeper than \
             {MAX_DEPTH}"
        );
        complaints.push((String::new(), Rule::TooLarge, message));
    }
    complaints
}

/// The schema with every reference inlined, for documents without `$defs`. Terminates only for
/// schemas without errors.
pub(crate) fn inlined(schema: &Value) -> Value {
    let mut value = inline(schema, schema);
    if let Value::Object(object) = &mut value {
        for key in ["$schema", "$id", "$defs"] {
            object.remove(key);
        }
    }
    value
}

fn inline(value: &Value, root: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let target = object.get("$ref").and_then(Value::as_str);
            let target = target.and_then(|text| root.pointer(text.strip_prefix('#')?));
            let mut flat: Map<String, Value> = match target.map(|target| inline(target, root)) {
                Some(Value::Object(target)) => target,
                _ => Map::new(),
            };
            for (key, value) in object {
                if key != "$ref" {
                    flat.insert(key.clone(), inline(value, root));
                }
            }
            Value::Object(flat)
        }
        Value::Array(items) => items.iter().map(|item| inline(item, root)).collect(),
        other => other.clone(),
    }
}

struct Unfold<'a> {
    schema: &'a Value,
    /// The position and target of each reference.
    local: &'a [(String, String)],
    known: BTreeMap<String, (u64, usize)>,
    open: Vec<String>,
    cycles: BTreeSet<String>,
}

impl Unfold<'_> {
    /// The number of values under a pointer and their depth, references included.
    fn extent(&mut self, pointer: &str) -> (u64, usize) {
        if let Some(extent) = self.known.get(pointer) {
            return *extent;
        }
        self.open.push(pointer.to_owned());
        let (mut values, mut depth) = self.schema.pointer(pointer).map_or((0, 0), plain_extent);
        for (path, target) in self.local {
            let Some(inside) = path.strip_prefix(pointer).filter(|rest| rest.starts_with('/'))
            else {
                continue;
            };
            // Definitions in $defs count where a reference leads to them.
            if pointer.is_empty() && path.starts_with("/$defs/") {
                continue;
            }
            if self.open.contains(target) {
                self.cycles.insert(path.clone());
                continue;
            }
            let (more, deeper) = self.extent(target);
            values = values.saturating_add(more);
            depth = depth.max(inside.matches('/').count().saturating_add(deeper));
        }
        self.open.pop();
        self.known.insert(pointer.to_owned(), (values, depth));
        (values, depth)
    }
}

/// The number of values and their depth, without following references.
fn plain_extent(value: &Value) -> (u64, usize) {
    let inner: Vec<(u64, usize)> = match value {
        Value::Object(object) => object.values().map(plain_extent).collect(),
        Value::Array(items) => items.iter().map(plain_extent).collect(),
        _ => Vec::new(),
    };
    let values = inner.iter().map(|(values, _)| values).sum::<u64>();
    (values + 1, inner.iter().map(|(_, depth)| depth).max().map_or(0, |depth| depth + 1))
}

/// Calls with the pointer, key and value of every text in a schema that is not plain data.
fn walk(value: &Value, path: &mut String, found: &mut impl FnMut(&str, &str, &str)) {
    let length = path.len();
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                if ["examples", "default", "const", "enum"].contains(&key.as_str()) {
                    continue;
                }
                path.push('/');
                path.push_str(&escape(key));
                match value {
                    Value::String(text) => found(path, key, text),
                    _ => walk(value, path, found),
                }
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("/{index}"));
                walk(item, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(schema: Value) -> Vec<Rule> {
        check(&schema).into_iter().map(|(_, rule, _)| rule).collect()
    }

    #[test]
    fn a_reference_stays_in_its_file_and_comes_to_an_end() {
        assert_eq!(rules(json!({"$ref": "#/$defs/a", "$defs": {"a": {}}})), []);
        assert_eq!(rules(json!({"$ref": "https://else.where/a"})), [Rule::RemoteRef]);
        assert_eq!(rules(json!({"$ref": "other.json"})), [Rule::RemoteRef]);
        assert_eq!(rules(json!({"$ref": "#"})), [Rule::RefCycle]);
        assert_eq!(rules(json!({"$ref": "#/$defs/none"})), [Rule::Schema]);
        let a = json!({"properties": {"b": {"$ref": "#/$defs/b"}}});
        let b = json!({"items": {"$ref": "#/$defs/a"}});
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": a, "b": b}});
        assert_eq!(rules(circle), [Rule::RefCycle]);
    }

    #[test]
    fn a_small_schema_cannot_unfold_into_millions() {
        let mut defs = Map::new();
        for n in 0..40 {
            let next = format!("#/$defs/d{}", n + 1);
            defs.insert(format!("d{n}"), json!({"allOf": [{"$ref": next}, {"$ref": next}]}));
        }
        defs.insert("d40".to_owned(), json!({}));
        let bomb = json!({"$ref": "#/$defs/d0", "$defs": defs});
        assert_eq!(rules(bomb), [Rule::TooLarge]);
    }

    #[test]
    fn a_chain_of_references_cannot_go_deeper_than_a_stack() {
        let chain = |links: usize| {
            let mut defs = Map::new();
            for n in 0..links {
                let next = format!("#/$defs/d{}", n + 1);
                let mut deep = json!({"$ref": next});
                for _ in 0..30 {
                    deep = json!({"properties": {"a": deep}});
                }
                defs.insert(format!("d{n}"), deep);
            }
            defs.insert(format!("d{links}"), json!({}));
            json!({"$ref": "#/$defs/d0", "$defs": defs})
        };
        assert_eq!(rules(chain(2)), []);
        assert_eq!(rules(chain(60)), [Rule::TooLarge]);
        assert_eq!(rules(chain(600)), [Rule::TooLarge]);
    }

    #[test]
    fn an_inlined_schema_needs_no_definitions() {
        let schema = json!({"$id": "x", "properties": {"a": {"$ref": "#/$defs/m", "title": "A"}},
            "$defs": {"m": {"type": "string", "title": "M"}}});
        let flat = json!({"properties": {"a": {"type": "string", "title": "A"}}});
        assert_eq!(inlined(&schema), flat);
    }
}
