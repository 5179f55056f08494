//! The two copies of one schema: what its writers may send and what its readers accept.
//!
//! A producer is validated against the closed copy, where an object holds only declared fields. A
//! reader validates open: it ignores unknown fields. Neither copy changes anything under `oneOf`,
//! `not` or `if`, where closing or opening one branch could make another one match.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::load::{NAMED, escaped, percent_decoded, resolve};

/// The copy for writers: `unevaluatedProperties: false` wherever an object declares its fields.
pub fn closed(root: &Value) -> Value {
    let copier = Copier { root, fixed: fixed(root), close: true };
    copier.location(root, "#")
}

/// Without `additionalProperties: false` and `unevaluatedProperties: false`.
pub(crate) fn open(root: &Value) -> Value {
    let copier = Copier { root, fixed: fixed(root), close: false };
    copier.location(root, "#")
}

struct Copier<'a> {
    root: &'a Value,
    /// References from branches that must not be changed.
    fixed: BTreeSet<String>,
    close: bool,
}

impl Copier<'_> {
    /// A schema that describes a place in the instance on its own.
    fn location(&self, schema: &Value, pointer: &str) -> Value {
        let mut copy = self.in_place(schema, pointer);
        if self.close
            && !self.fixed.contains(pointer)
            && let Some(map) = copy.as_object_mut()
            && !map.contains_key("unevaluatedProperties")
            && declares(self.root, schema, 0)
        {
            map.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
        }
        copy
    }

    fn in_place(&self, schema: &Value, pointer: &str) -> Value {
        let Some(map) = schema.as_object() else { return schema.clone() };
        if self.fixed.contains(pointer) {
            return schema.clone();
        }
        let mut copy = map.clone();
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            // `true` is how many schemas spell the default; only a schema there describes a map.
            let drop = if self.close { Value::Bool(true) } else { Value::Bool(false) };
            if copy.get(keyword) == Some(&drop) {
                copy.remove(keyword);
            }
        }
        for keyword in ["properties", "patternProperties"] {
            self.each(&mut copy, keyword, pointer, Self::location);
        }
        for keyword in ["items", "additionalProperties", "unevaluatedProperties"] {
            if let Some(child) = copy.get_mut(keyword) {
                *child = self.location(child, &format!("{pointer}/{keyword}"));
            }
        }
        if let Some(list) = copy.get_mut("prefixItems").and_then(Value::as_array_mut) {
            for (index, child) in list.iter_mut().enumerate() {
                *child = self.location(child, &format!("{pointer}/prefixItems/{index}"));
            }
        }
        for keyword in ["allOf", "anyOf"] {
            if let Some(list) = copy.get_mut(keyword).and_then(Value::as_array_mut) {
                for (index, child) in list.iter_mut().enumerate() {
                    *child = self.in_place(child, &format!("{pointer}/{keyword}/{index}"));
                }
            }
        }
        for keyword in ["$defs", "definitions"] {
            self.each(&mut copy, keyword, pointer, Self::in_place);
        }
        Value::Object(copy)
    }

    fn each(
        &self,
        map: &mut Map<String, Value>,
        keyword: &str,
        pointer: &str,
        copy: fn(&Self, &Value, &str) -> Value,
    ) {
        for (name, child) in
            map.get_mut(keyword).and_then(Value::as_object_mut).into_iter().flatten()
        {
            let pointer = format!("{pointer}/{keyword}/{}", escaped(name));
            *child = copy(self, child, &pointer);
        }
    }
}

/// Whether a schema names properties, itself or through what applies in the same place.
fn declares(root: &Value, schema: &Value, depth: usize) -> bool {
    let Some(map) = schema.as_object() else { return false };
    if depth > 32 {
        return false;
    }
    if map.contains_key("properties") || map.contains_key("patternProperties") {
        return true;
    }
    let reference =
        map.get("$ref").and_then(Value::as_str).and_then(|reference| resolve(root, reference));
    let branches = ["allOf", "anyOf", "oneOf"]
        .iter()
        .filter_map(|keyword| map.get(*keyword)?.as_array())
        .flatten();
    reference.into_iter().chain(branches).any(|branch| declares(root, branch, depth + 1))
}

/// Every reference reachable from inside `oneOf`, `not`, `if`, `then`, `else`, `contains` or `dependentSchemas`.
fn fixed(root: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    search(root, root, false, &mut found);
    found
}

fn search(root: &Value, schema: &Value, inside: bool, found: &mut BTreeSet<String>) {
    let Some(map) = schema.as_object() else { return };
    if let Some(reference) = map.get("$ref").and_then(Value::as_str)
        && inside
        && found.insert(percent_decoded(reference).unwrap_or_else(|| reference.to_owned()))
        && let Some(target) = resolve(root, reference)
    {
        search(root, target, true, found);
    }
    for (keyword, value) in map {
        let inside = inside
            || matches!(
                keyword.as_str(),
                "oneOf" | "not" | "if" | "then" | "else" | "contains" | "dependentSchemas"
            );
        match value {
            Value::Array(list) if crate::load::MANY.contains(&keyword.as_str()) => {
                list.iter().for_each(|child| search(root, child, inside, found));
            }
            Value::Object(children) if NAMED.contains(&keyword.as_str()) => {
                children.values().for_each(|child| search(root, child, inside, found));
            }
            Value::Object(_) if crate::load::ONE.contains(&keyword.as_str()) => {
                search(root, value, inside, found)
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn closing_reaches_nested_objects_but_no_branch_of_a_one_of() {
        let schema = json!({
            "properties": { "guest": { "properties": { "name": {} } }, "extra": { "type": "object" } },
            "oneOf": [{ "properties": { "a": { "properties": { "b": {} } } } }]
        });
        let closed = closed(&schema);
        assert_eq!(closed["unevaluatedProperties"], json!(false));
        assert_eq!(closed["properties"]["guest"]["unevaluatedProperties"], json!(false));
        assert_eq!(
            closed["properties"]["extra"],
            json!({ "type": "object" }),
            "a free object stays free"
        );
        assert_eq!(closed["oneOf"], schema["oneOf"]);
    }

    #[test]
    fn opening_spares_definitions_that_a_one_of_needs() {
        let schema = json!({
            "additionalProperties": false,
            "$defs": { "a": { "additionalProperties": false }, "b": { "additionalProperties": false } },
            "properties": { "x": { "oneOf": [{ "$ref": "#/$defs/a" }] }, "y": { "$ref": "#/$defs/b" } }
        });
        let open = open(&schema);
        assert_eq!(open.get("additionalProperties"), None);
        assert_eq!(open["$defs"]["a"], json!({ "additionalProperties": false }));
        assert_eq!(open["$defs"]["b"], json!({}));
    }
}
