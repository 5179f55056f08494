//! Showing events without what is personal in them.

use std::collections::HashMap;

use chapar_core::bundle::Bundle;
use serde_json::Value;

/// What stands where something personal was.
const PERSONAL: &str = "[personal]";
/// What stands where a contract says nothing.
const UNKNOWN: &str = "[not in the contract]";

/// Knows which fields of which events are personal, by the contracts of a system.
#[derive(Debug, Default)]
pub struct Redaction(HashMap<String, Value>);

impl Redaction {
    /// By a released bundle. An event without a contract, or one of Protobuf, is not shown at
    /// all.
    pub fn from_bundle(json: &str) -> Result<Self, serde_json::Error> {
        let bundle: Bundle = serde_json::from_str(json)?;
        let schema = |text: &str| serde_json::from_str::<Value>(text).ok();
        let known = bundle.contracts.into_iter().filter(|contract| contract.message.is_none());
        let known = known.filter_map(|c| Some((c.subject, schema(&c.schema)?)));
        Ok(Redaction(known.collect()))
    }

    /// A payload without personal data; none if nothing is known about its topic.
    pub fn shown(&self, topic: &str, payload: &Value) -> Option<Value> {
        let schema = self.0.get(topic)?;
        Some(redacted(payload, schema, schema, 0))
    }
}

/// Schemas that refer to themselves end somewhere.
const DEEPEST: usize = 32;

fn redacted(value: &Value, schema: &Value, root: &Value, depth: usize) -> Value {
    let schema = resolved(schema, root);
    if depth > DEEPEST {
        return UNKNOWN.into();
    }
    if schema["x-personal"].as_bool() == Some(true) {
        return PERSONAL.into();
    }
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let shown = match property(schema, root, name, depth) {
                    Some(of) => redacted(value, of, root, depth + 1),
                    None => UNKNOWN.into(),
                };
                (name.clone(), shown)
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(items) => {
            let of = &schema["items"];
            let item = |item: &Value| match of.is_object() {
                true => redacted(item, of, root, depth + 1),
                false => UNKNOWN.into(),
            };
            Value::Array(items.iter().map(item).collect())
        }
        plain => plain.clone(),
    }
}

/// What a schema says of a field, also in the parts that it is put together of. A field that any
/// of them calls personal is.
fn property<'a>(schema: &'a Value, root: &'a Value, name: &str, depth: usize) -> Option<&'a Value> {
    let own = schema["properties"].get(name);
    if depth > DEEPEST || own.is_some_and(|of| resolved(of, root)["x-personal"] == true) {
        return own;
    }
    let parts = ["allOf", "anyOf", "oneOf"].iter().filter_map(|list| schema[*list].as_array());
    let mut found =
        parts.flatten().filter_map(|part| property(resolved(part, root), root, name, depth + 1));
    let personal = found.clone().find(|of| resolved(of, root)["x-personal"] == true);
    personal.or(own).or_else(|| found.next())
}

fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..DEEPEST {
        let Some(path) = schema["$ref"].as_str().and_then(|at| at.strip_prefix('#')) else { break };
        match root.pointer(path) {
            Some(found) => schema = found,
            None => break,
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_personal_or_unknown_is_not_shown() {
        let schema = json!({
            "properties": {
                "room": { "type": "string" },
                "guest": { "properties": { "id": {}, "name": { "x-personal": true } } },
                "party": { "items": { "$ref": "#/$defs/person" } },
                "notes": { "items": { "type": "string", "x-personal": true } },
            },
            "allOf": [{ "properties": { "phone": { "x-personal": true } } }],
            "$defs": { "person": { "properties": { "age": {}, "email": { "x-personal": true } } } },
        });
        let payload = json!({
            "room": "101", "guest": { "id": 7, "name": "Ada" }, "phone": "1",
            "party": [{ "age": 3, "email": "a@b" }], "notes": ["x"], "new": { "name": "Ada" },
        });
        let contract = json!({
            "subject": "a.b.v1", "owner": "s", "uri": "u", "schema": schema.to_string(),
        });
        let bundle = json!({ "format": 1, "system": "s", "version": "1", "contracts": [contract] });
        let redaction = Redaction::from_bundle(&bundle.to_string()).unwrap();
        let shown = redaction.shown("a.b.v1", &payload).unwrap();
        let expected = json!({
            "room": "101", "guest": { "id": 7, "name": PERSONAL }, "phone": PERSONAL,
            "party": [{ "age": 3, "email": PERSONAL }], "notes": [PERSONAL], "new": UNKNOWN,
        });
        assert_eq!(shown, expected);
        assert_eq!(redaction.shown("other.v1", &payload), None);
    }
}
