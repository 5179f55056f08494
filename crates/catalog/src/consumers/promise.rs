//! What a schema guarantees about a field.

use std::collections::BTreeSet;

use prost_reflect::{Kind, MessageDescriptor};
use serde_json::Value;

/// Whether a field is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Promise {
    /// The schema does not declare it.
    Absent,
    /// It may be present.
    Sometimes,
    /// It is in every event.
    Always,
}

/// The maximum number of references that are followed. Those of a checked schema end much earlier.
const MOST_STEPS: usize = 256;

/// What a JSON Schema guarantees at the position of a pointer.
pub(super) fn in_schema(schema: &Value, pointer: &str) -> Promise {
    let names: Vec<String> =
        pointer.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~")).collect();
    look(schema, schema, &names, MOST_STEPS)
}

fn look(root: &Value, schema: &Value, names: &[String], steps: usize) -> Promise {
    let Some((name, rest)) = names.split_first() else { return Promise::Always };
    let Some(steps) = steps.checked_sub(1) else { return Promise::Absent };
    let mut best = Promise::Absent;
    if let Some(target) = schema.get("$ref").and_then(Value::as_str)
        && let Some(target) = target.strip_prefix('#').and_then(|path| root.pointer(path))
    {
        best = best.max(look(root, target, names, steps));
    }
    if let Some(field) = schema.get("properties").and_then(|fields| fields.get(name)) {
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.is_some_and(|all| all.iter().any(|one| one == name.as_str()));
        let here = if required { Promise::Always } else { Promise::Sometimes };
        best = best.max(here.min(look(root, field, rest, steps)));
    }
    // A field may be declared in one part and required in another.
    let parts = |keyword: &str| schema.get(keyword).and_then(Value::as_array);
    for part in parts("allOf").into_iter().flatten() {
        best = best.max(look(root, part, names, steps));
    }
    if best == Promise::Sometimes && requires(root, schema, name, steps) && rest.is_empty() {
        best = Promise::Always;
    }
    for keyword in ["anyOf", "oneOf"] {
        let promises = parts(keyword).into_iter().flatten();
        let promises: Vec<Promise> = promises.map(|part| look(root, part, names, steps)).collect();
        let every = promises.iter().min().copied().unwrap_or(Promise::Absent);
        let some = promises.iter().max().copied().unwrap_or(Promise::Absent);
        best = best.max(every).max(some.min(Promise::Sometimes));
    }
    if name == "*"
        && let Some(items) = schema.get("items")
    {
        best = best.max(look(root, items, rest, steps));
    }
    best
}

/// The values that a JSON Schema lists at the position of a pointer; none where it lists none.
pub(super) fn listed(schema: &Value, pointer: &str) -> Option<BTreeSet<String>> {
    let names: Vec<String> =
        pointer.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~")).collect();
    values(schema, schema, &names, MOST_STEPS)
}

fn values(
    root: &Value,
    schema: &Value,
    names: &[String],
    steps: usize,
) -> Option<BTreeSet<String>> {
    let steps = steps.checked_sub(1)?;
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let below = |part: &Value, names: &[String]| values(root, part, names, steps);
    let here = match names.split_first() {
        None => {
            let list = schema.get("enum").and_then(Value::as_array);
            let only = schema.get("const").map(|value| BTreeSet::from([shown(value)]));
            only.or_else(|| list.map(|list| list.iter().map(shown).collect()))
        }
        Some((name, rest)) => {
            let items = schema.get("items").filter(|_| name == "*");
            let field = schema.get("properties").and_then(|fields| fields.get(name));
            field.or(items).and_then(|part| below(part, rest))
        }
    };
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
    let target = || below(root.pointer(target?)?, names);
    let parts = |keyword: &str| schema.get(keyword).and_then(Value::as_array);
    let all = || parts("allOf")?.iter().find_map(|part| below(part, names));
    // Of alternatives that lead there, each must list its values.
    let any = |keyword: &str| {
        let branches = parts(keyword)?.iter();
        let reached = branches.filter(|part| look(root, part, names, steps) != Promise::Absent);
        let lists: Option<Vec<BTreeSet<String>>> = reached
            .map(|part| match part.get("type").and_then(Value::as_str) {
                Some("null") if names.is_empty() => Some(BTreeSet::from(["null".to_owned()])),
                _ => below(part, names),
            })
            .collect();
        lists.filter(|lists| !lists.is_empty()).map(|lists| lists.into_iter().flatten().collect())
    };
    here.or_else(target).or_else(all).or_else(|| any("anyOf")).or_else(|| any("oneOf"))
}

/// Whether a name is required by the schema or by a part that always applies.
fn requires(root: &Value, schema: &Value, name: &str, steps: usize) -> bool {
    let Some(steps) = steps.checked_sub(1) else { return false };
    let here = schema.get("required").and_then(Value::as_array);
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
    let parts = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
    here.is_some_and(|all| all.iter().any(|one| one == name))
        || target
            .and_then(|path| root.pointer(path))
            .is_some_and(|t| requires(root, t, name, steps))
        || parts.into_iter().any(|part| requires(root, part, name, steps))
}

/// What a Protobuf message guarantees. A field has a value in every event, its default if none was
/// written; only fields marked `optional` and message fields may be missing.
pub(super) fn in_message(message: &MessageDescriptor, pointer: &str) -> Promise {
    let mut message = message.clone();
    let mut promise = Promise::Always;
    let mut names = pointer.split('/').skip(1).peekable();
    while let Some(name) = names.next() {
        let Some(field) = message.get_field_by_name(name) else { return Promise::Absent };
        if names.peek().is_none() {
            return promise;
        }
        if field.is_list() && names.next_if_eq(&"*").is_none() {
            return Promise::Absent;
        }
        let Kind::Message(inner) = field.kind() else { return Promise::Absent };
        if !field.is_list() && field.field_descriptor_proto().proto3_optional() {
            promise = Promise::Sometimes;
        }
        message = inner;
    }
    promise
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn listed_values_are_found_where_they_are_declared() {
        let schema = json!({
            "properties": {
                "a": { "enum": ["x", "y"] },
                "b": { "$ref": "#/$defs/b" },
                "c": { "anyOf": [{ "enum": ["x"] }, { "type": "null" }] },
                "d": { "items": { "properties": { "e": { "const": "z" } } } },
                "f": { "type": "string" },
                "g": { "anyOf": [{ "enum": ["x"] }, { "type": "string" }] },
            },
            "allOf": [{ "properties": { "h": { "enum": [1] } } }],
            "$defs": { "b": { "enum": ["x"] } },
        });
        let found =
            |pointer: &str| listed(&schema, pointer).map(|values| Vec::from_iter(values).join(" "));
        for (pointer, expected) in [
            ("/a", Some("x y")),
            ("/b", Some("x")),
            ("/c", Some("null x")),
            ("/d/*/e", Some("z")),
            ("/f", None),
            ("/g", None),
            ("/h", Some("1")),
            ("/nothing", None),
        ] {
            assert_eq!(found(pointer).as_deref(), expected, "{pointer}");
        }
    }

    #[test]
    fn a_field_is_promised_where_every_event_has_it() {
        let schema = json!({
            "required": ["a", "list", "one", "ref"],
            "properties": {
                "a": { "required": ["b"], "properties": { "b": {}, "c": {} } },
                "d": { "required": ["e"], "properties": { "e": {} } },
                "list": { "items": { "required": ["f"], "properties": { "f": {}, "g": {} } } },
                "one": { "oneOf": [
                    { "required": ["h", "i"], "properties": { "h": {}, "i": {} } },
                    { "required": ["h"], "properties": { "h": {} } },
                ] },
                "ref": { "$ref": "#/$defs/r" },
                "all": {},
                "x/y": {},
            },
            "allOf": [{ "required": ["all"] }],
            "$defs": { "r": { "required": ["s"], "properties": { "s": {} } } },
        });
        for (pointer, expected) in [
            ("/a/b", Promise::Always),
            ("/a/c", Promise::Sometimes),
            ("/d/e", Promise::Sometimes),
            ("/list/*/f", Promise::Always),
            ("/list/*/g", Promise::Sometimes),
            ("/one/h", Promise::Always),
            ("/one/i", Promise::Sometimes),
            ("/ref/s", Promise::Always),
            ("/all", Promise::Always),
            ("/x~1y", Promise::Sometimes),
            ("/nothing", Promise::Absent),
            ("/a/b/nothing", Promise::Absent),
        ] {
            assert_eq!(in_schema(&schema, pointer), expected, "{pointer}");
        }
    }
}
