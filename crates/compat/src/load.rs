//! Reading a JSON Schema: text first, then the references in it, then the validator.

use std::collections::BTreeSet;

use chapar_core::schema::{MANY, NAMED, ONE, escaped, resolve};
use jsonschema::{Draft, Validator};
use serde_json::Value;

use crate::error::InputError;
use crate::shape;

/// Larger inputs are refused before they are parsed; a schema of this size is a mistake or an attack.
pub const LARGEST: usize = 8 * 1024 * 1024;

/// A JSON Schema whose references all resolve inside it and which a validator accepts.
///
/// Everything is read as draft 2020-12. A draft-07 schema works where both drafts agree and is refused where they do
/// not (an array under `items`, keywords beside `$ref`, `dependencies`).
#[derive(Debug, Clone)]
pub struct Schema {
    pub(crate) file: String,
    pub(crate) root: Value,
    /// Schemas after expansion; too many are never walked.
    pub(crate) weight: u64,
}

impl Schema {
    /// Reads a schema; `file` names it in errors.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Schema, InputError> {
        let root = serde_json::from_str(text(file, bytes)?).map_err(|error| {
            InputError::syntax(
                file,
                (error.line(), error.column().max(1)),
                plain(&error.to_string()),
            )
        })?;
        Schema::from_value(file, root)
    }

    /// Takes a schema that is already in memory.
    pub fn from_value(file: &str, root: Value) -> Result<Schema, InputError> {
        if !root.is_object() && !root.is_boolean() {
            return Err(InputError::schema(file, "", "a schema is an object or a boolean"));
        }
        let old_draft = root.get("$schema").and_then(Value::as_str).is_some_and(|id| {
            ["draft-04", "draft-06", "draft-07"].iter().any(|draft| id.contains(draft))
        });
        Walk { file, root: &root, old_draft }.check(&root, "")?;
        let shape = shape::weigh(&root);
        if let Some(reference) = shape.endless {
            let reason = "the reference leads back to itself without a step into the instance, so it never ends";
            return Err(InputError::schema(file, &reference, reason));
        }
        let schema = Schema { file: file.to_owned(), root, weight: shape.weight };
        schema.validator(&schema.root)?;
        Ok(schema)
    }

    /// The file as it was named.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// A validator that shares no code with the differ; formats are assertions.
    pub(crate) fn validator(&self, root: &Value) -> Result<Validator, InputError> {
        let mut root = root.clone();
        if let Some(map) = root.as_object_mut() {
            map.remove("$schema");
        }
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .should_validate_formats(true)
            .build(&root)
            .map_err(|error| {
                InputError::schema(
                    &self.file,
                    &error.instance_path().to_string(),
                    plain(&error.to_string()),
                )
            })
    }
}

/// UTF-8 of bounded size, without a byte order mark.
pub(crate) fn text<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, InputError> {
    if bytes.len() > LARGEST {
        let reason =
            format!("{} bytes is more than the {LARGEST} that a schema may have", bytes.len());
        return Err(InputError::syntax(file, (1, 1), reason));
    }
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Err(InputError::syntax(file, (1, 1), "this is UTF-16; save it as UTF-8"));
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        InputError::syntax(file, (line, column), "this is not UTF-8; save it as UTF-8")
    })
}

struct Walk<'a> {
    file: &'a str,
    root: &'a Value,
    old_draft: bool,
}

impl<'a> Walk<'a> {
    fn check(&self, schema: &'a Value, pointer: &str) -> Result<(), InputError> {
        let Some(map) = schema.as_object() else { return Ok(()) };
        for keyword in ["$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"] {
            if map.contains_key(keyword) {
                return Err(self.error(
                    pointer,
                    format!("{keyword} is not supported; use a $ref with a JSON pointer"),
                ));
            }
        }
        if !pointer.is_empty() && map.contains_key("$id") {
            return Err(self.error(
                pointer,
                "an $id inside a schema changes what its references mean; remove it",
            ));
        }
        if map.contains_key("dependencies") || map.get("items").is_some_and(Value::is_array) {
            return Err(self.error(
                pointer,
                "`dependencies` and an array under `items` mean something else in draft 2020-12; \
                 use dependentRequired, dependentSchemas or prefixItems",
            ));
        }
        if let Some(reference) = map.get("$ref") {
            if self.old_draft && map.len() > 1 {
                return Err(self.error(
                    pointer,
                    "draft-07 ignores what stands beside $ref; say draft 2020-12",
                ));
            }
            self.reference(reference, pointer)?;
        }
        self.children(map, pointer)
    }

    fn children(
        &self,
        map: &'a serde_json::Map<String, Value>,
        pointer: &str,
    ) -> Result<(), InputError> {
        for keyword in ONE {
            if let Some(child) = map.get(keyword) {
                self.check(child, &format!("{pointer}/{keyword}"))?;
            }
        }
        for keyword in MANY {
            for (index, child) in
                map.get(keyword).and_then(Value::as_array).into_iter().flatten().enumerate()
            {
                self.check(child, &format!("{pointer}/{keyword}/{index}"))?;
            }
        }
        for keyword in NAMED {
            for (name, child) in map.get(keyword).and_then(Value::as_object).into_iter().flatten() {
                self.check(child, &format!("{pointer}/{keyword}/{}", escaped(name)))?;
            }
        }
        Ok(())
    }

    fn reference(&self, reference: &Value, pointer: &str) -> Result<(), InputError> {
        let Some(reference) = reference.as_str() else {
            return Err(self.error(pointer, "$ref is not a string"));
        };
        if !reference.starts_with('#') {
            let reason = format!(
                "$ref {reference} is remote and refused: bundle it into $defs, so that the schema stands alone"
            );
            return Err(self.error(pointer, reason));
        }
        let mut seen = BTreeSet::new();
        let mut at = reference;
        // A chain of bare references that never reaches a schema describes nothing.
        loop {
            if !seen.insert(at) {
                return Err(self.error(
                    pointer,
                    format!("$ref {reference} leads back to itself without a schema"),
                ));
            }
            let Some(target) = resolve(self.root, at) else {
                return Err(self.error(
                    pointer,
                    format!("$ref {at} leads nowhere; give it as a JSON pointer"),
                ));
            };
            if !target.is_object() && !target.is_boolean() {
                return Err(self.error(pointer, format!("$ref {at} does not lead to a schema")));
            }
            match target.get("$ref").and_then(Value::as_str) {
                Some(next) => at = next,
                None => return Ok(()),
            }
        }
    }

    fn error(&self, pointer: &str, reason: impl Into<String>) -> InputError {
        InputError::schema(self.file, pointer, reason)
    }
}

/// One line, bounded: a validator may quote the whole schema.
fn plain(text: &str) -> String {
    let line = text.replace('\n', " ");
    let mut short: String = line.chars().take(300).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}
