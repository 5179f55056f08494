//! The size of a schema with its references expanded, computed without expanding them.
//!
//! Thirty definitions that each mention the next one twice are a billion schemas. Weighing every definition once
//! finds that in linear time, so neither the differ nor the validator ever walks it.

use std::collections::HashMap;

use chapar_core::schema::{MANY, NAMED, ONE, resolve};
use serde_json::Value;

/// What [`weigh`] found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// Schemas after expansion, a recursive reference counted once.
    pub(crate) weight: u64,
    /// A reference that leads back to where it stands, in the same place of the instance: it never ends.
    pub(crate) endless: Option<String>,
}

pub(crate) fn weigh(root: &Value) -> Shape {
    let mut scale = Scale { root, known: HashMap::new(), open: Vec::new(), endless: None };
    let weight = scale.schema(root);
    Shape { weight, endless: scale.endless }
}

struct Scale<'a> {
    root: &'a Value,
    known: HashMap<&'a str, u64>,
    /// References being followed, each with whether the instance was descended into since.
    open: Vec<(&'a str, bool)>,
    endless: Option<String>,
}

impl<'a> Scale<'a> {
    /// Definitions only weigh where they are used.
    fn schema(&mut self, schema: &'a Value) -> u64 {
        let Some(map) = schema.as_object() else { return 1 };
        let mut weight: u64 = 1;
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            weight = weight.saturating_add(self.reference(reference));
        }
        for (keyword, value) in map {
            let keyword = keyword.as_str();
            let deeper = !matches!(
                keyword,
                "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" | "dependentSchemas"
            );
            let before = if deeper { self.descend() } else { Vec::new() };
            if MANY.contains(&keyword) {
                for child in value.as_array().into_iter().flatten() {
                    weight = weight.saturating_add(self.schema(child));
                }
            } else if NAMED.contains(&keyword) && keyword != "$defs" && keyword != "definitions" {
                for child in value.as_object().into_iter().flat_map(serde_json::Map::values) {
                    weight = weight.saturating_add(self.schema(child));
                }
            } else if ONE.contains(&keyword) {
                weight = weight.saturating_add(self.schema(value));
            }
            if deeper {
                self.open = before;
            }
        }
        weight
    }

    /// Marks every open reference as passed on the way down, and returns what to restore.
    fn descend(&mut self) -> Vec<(&'a str, bool)> {
        let before = self.open.clone();
        self.open.iter_mut().for_each(|(_, descended)| *descended = true);
        before
    }

    fn reference(&mut self, reference: &'a str) -> u64 {
        if let Some((_, descended)) = self.open.iter().find(|(open, _)| *open == reference) {
            if !descended {
                self.endless.get_or_insert_with(|| reference.to_owned());
            }
            return 1;
        }
        if let Some(weight) = self.known.get(reference) {
            return *weight;
        }
        // The stack of references is as deep as the chain of definitions; beyond this it is an attack.
        if self.open.len() > 256 {
            return u64::MAX;
        }
        let Some(target) = resolve(self.root, reference) else { return 1 };
        self.open.push((reference, false));
        let weight = self.schema(target);
        self.open.pop();
        self.known.insert(reference, weight);
        weight
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn a_bomb_of_definitions_is_weighed_without_being_expanded() {
        let mut defs = Map::new();
        for n in 0..60 {
            let next = format!("#/$defs/d{}", n + 1);
            defs.insert(format!("d{n}"), json!({ "allOf": [{ "$ref": next }, { "$ref": next }] }));
        }
        defs.insert("d60".to_owned(), json!(true));
        let shape = weigh(&json!({ "$ref": "#/$defs/d0", "$defs": defs }));
        assert!(shape.weight > 1 << 50);
        assert_eq!(shape.endless, None);
    }

    #[test]
    fn a_tree_is_recursive_and_ends() {
        let tree = json!({ "properties": { "child": { "$ref": "#" } }, "$defs": {} });
        assert_eq!(weigh(&tree).endless, None);
    }

    #[test]
    fn a_schema_that_includes_itself_in_place_never_ends() {
        let bad = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/a" }, true] } } });
        assert_eq!(weigh(&bad).endless.as_deref(), Some("#/$defs/a"));
    }
}
