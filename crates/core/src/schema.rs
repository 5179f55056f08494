//! The two copies of a JSON Schema: what its writers may send and what its readers accept.
//!
//! A producer is validated against the [closed] copy, where an object holds only declared
//! fields. A reader validates against the [open] copy: it ignores unknown fields. Neither copy
//! changes anything under `oneOf`, `not` or `if`, where closing or opening one branch could make
//! another one match.
//!
//! The gate proves compatibility for these copies and the registry checks events against them, so
//! both must call the same functions.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Keywords that hold one schema. With [`MANY`] and [`NAMED`] they are all the keywords that hold
/// schemas, so data (an `enum`, a `default`, an example) is never treated as one.
pub const ONE: [&str; 12] = [
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "unevaluatedItems",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
    "additionalItems",
];

/// Keywords that hold a list of schemas.
pub const MANY: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];

/// Keywords that hold schemas by name.
pub const NAMED: [&str; 5] =
    ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];

/// The copy for writers: `unevaluatedProperties: false` wherever an object declares its fields.
///
/// `additionalProperties: true` is how many schemas spell the default, and is closed like it. An
/// object whose fields are free says `additionalProperties: {}`, or declares none.
pub fn closed(root: &Value) -> Value {
    Copier::new(root, true).copy()
}

/// The copy for readers: without `additionalProperties: false` and `unevaluatedProperties: false`.
pub fn open(root: &Value) -> Value {
    Copier::new(root, false).copy()
}

/// A schema inside `root` by a local reference such as `#/$defs/money`.
pub fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return None;
    }
    if !pointer.contains('%') {
        return root.pointer(pointer);
    }
    root.pointer(&percent_decoded(pointer)?)
}

/// A name as one step of a JSON pointer.
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn percent_decoded(text: &str) -> Option<String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.ok().map(std::borrow::Cow::into_owned)
}

struct Copier<'a> {
    root: &'a Value,
    /// References from branches that must not be changed.
    fixed: BTreeSet<String>,
    close: bool,
    /// Closed places that other schemas include in place (`allOf` with a `$ref` to
    /// `#/properties/a`). What includes them may declare more fields, so it refers to a copy that
    /// is not closed itself.
    included: RefCell<Vec<String>>,
}

impl<'a> Copier<'a> {
    fn new(root: &'a Value, close: bool) -> Self {
        Copier { root, fixed: fixed(root), close, included: RefCell::default() }
    }

    fn copy(&self) -> Value {
        let mut copy = self.location(self.root, "#");
        let mut next = 0;
        // A copy may include further places.
        while let Some(target) = self.included_at(next) {
            let mut unclosed = resolve(self.root, &target)
                .map_or(Value::Bool(true), |part| self.in_place(part, &target, false));
            if target == "#"
                && let Some(map) = unclosed.as_object_mut()
            {
                for keyword in ["$schema", "$id", "$defs", "definitions"] {
                    map.remove(keyword);
                }
            }
            if let Some(map) = copy.as_object_mut() {
                let defs = map.entry("$defs").or_insert_with(|| Value::Object(Map::new()));
                if let Some(defs) = defs.as_object_mut() {
                    defs.insert(self.unclosed_name(next), unclosed);
                }
            }
            next += 1;
        }
        copy
    }

    fn included_at(&self, index: usize) -> Option<String> {
        self.included.borrow().get(index).cloned()
    }

    /// A schema that describes a place in the instance on its own.
    fn location(&self, schema: &Value, pointer: &str) -> Value {
        let alone = schema.as_object().is_some_and(|map| map.len() == 1);
        let mut copy = self.in_place(schema, pointer, alone);
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

    /// A schema that may be a part of a larger one. Where it is `alone`, a reference is all that
    /// describes its place.
    fn in_place(&self, schema: &Value, pointer: &str, alone: bool) -> Value {
        let Some(map) = schema.as_object() else { return schema.clone() };
        if self.fixed.contains(pointer) {
            return schema.clone();
        }
        let mut copy = map.clone();
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            let drop = if self.close { Value::Bool(true) } else { Value::Bool(false) };
            if copy.get(keyword) == Some(&drop) {
                copy.remove(keyword);
            }
        }
        if self.close
            && !alone
            && let Some(reference) = copy.get_mut("$ref")
        {
            self.include(reference);
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
                    *child = self.in_place(child, &format!("{pointer}/{keyword}/{index}"), false);
                }
            }
        }
        for keyword in ["$defs", "definitions"] {
            self.each(&mut copy, keyword, pointer, |copier, child, pointer| {
                copier.in_place(child, pointer, false)
            });
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

    /// Replaces a reference to a place that is closed by one to its unclosed copy.
    fn include(&self, reference: &mut Value) {
        let Some(target) = reference.as_str().and_then(percent_decoded) else { return };
        let parent = target.rsplit_once('/').map(|(parent, _)| parent).unwrap_or_default();
        let definition = parent.ends_with("/$defs") || parent.ends_with("/definitions");
        if definition || self.fixed.contains(&target) || resolve(self.root, &target).is_none() {
            return;
        }
        let mut included = self.included.borrow_mut();
        let index = included.iter().position(|known| *known == target).unwrap_or_else(|| {
            included.push(target);
            included.len() - 1
        });
        *reference = format!("#/$defs/{}", self.unclosed_name(index)).into();
    }

    /// The name of an unclosed copy among the definitions, which no definition of the schema has.
    fn unclosed_name(&self, index: usize) -> String {
        let mut name = format!("unclosed-{index}");
        while self.root.get("$defs").is_some_and(|defs| defs.get(&name).is_some()) {
            name.push('-');
        }
        name
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
            Value::Array(list) if MANY.contains(&keyword.as_str()) => {
                list.iter().for_each(|child| search(root, child, inside, found));
            }
            Value::Object(children) if NAMED.contains(&keyword.as_str()) => {
                children.values().for_each(|child| search(root, child, inside, found));
            }
            Value::Object(_) if ONE.contains(&keyword.as_str()) => {
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
