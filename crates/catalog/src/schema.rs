//! The schema of one event, and its mistakes.

use chapar_core::catalog::{Mistake, Rule, Source};
use jsonschema::{Draft, Validator};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::json::Spots;
use crate::refs;

/// The largest schema file, in bytes: a larger contract is unreadable for people.
pub const MAX_SCHEMA: usize = 1024 * 1024;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A JSON Schema of a payload.
#[derive(Debug, Clone)]
pub struct Schema {
    /// The document.
    pub value: Value,
    /// The document as written.
    pub text: String,
    /// Its address without the hash, such as `schemas://reservation/booking/held/v1`.
    pub id: String,
    /// The SHA-256 of the file's bytes, in hexadecimal.
    pub sha256: String,
    /// Its validator. Formats are validated too.
    validator: Validator,
}

impl Schema {
    /// The address with the hash of its content, as envelopes carry it.
    pub fn uri(&self) -> String {
        format!("{}#sha256-{}", self.id, self.sha256)
    }

    /// Its description.
    pub fn description(&self) -> &str {
        self.value.get("description").and_then(Value::as_str).unwrap_or_default()
    }

    /// Its examples, of which there is at least one.
    pub fn examples(&self) -> &[Value] {
        self.value.get("examples").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Why it refuses a payload; none if it accepts it.
    pub fn refusals(&self, payload: &Value) -> Vec<String> {
        self.validator.iter_errors(payload).map(|error| error.to_string()).collect()
    }

    /// The first error in a payload: its position, and the reason.
    pub fn first_refusal(&self, payload: &Value) -> Option<(String, String)> {
        let error = self.validator.iter_errors(payload).next()?;
        Some((error.instance_path().as_str().to_owned(), error.to_string()))
    }

    /// A validator for producers: undeclared fields are refused too.
    pub(crate) fn writer(&self) -> Option<Validator> {
        writer(&self.value)
    }

    /// The schema for documents without `$defs` and `$id`.
    pub fn inlined(&self) -> Value {
        refs::inlined(&self.value)
    }

    /// Reads a schema and checks it against the address and the ordering key of its event.
    pub(crate) fn read(
        source: &Source,
        id: &str,
        key: Option<&str>,
    ) -> (Option<Self>, Vec<Mistake>) {
        let value: Value = match serde_json::from_str(source.text()) {
            Ok(value) => value,
            Err(error) => return (None, vec![syntax(source, &error)]),
        };
        let mut check = Check { source, spots: Spots::of(source.text()), mistakes: Vec::new() };
        let validator = check.document(&value, id, key);
        let schema = validator.map(|validator| Schema {
            value,
            text: source.text().to_owned(),
            id: id.to_owned(),
            sha256: hex(&Sha256::digest(source.text().as_bytes())),
            validator,
        });
        (schema, check.mistakes)
    }
}

struct Check<'a> {
    source: &'a Source,
    spots: Spots,
    mistakes: Vec<Mistake>,
}

impl Check<'_> {
    fn at(&mut self, pointer: &str, rule: Rule, message: impl Into<String>) {
        let byte = self.spots.byte(pointer);
        self.mistakes.push(self.source.mistake(byte..byte, rule, message));
    }

    fn document(&mut self, schema: &Value, id: &str, key: Option<&str>) -> Option<Validator> {
        for (pointer, byte) in std::mem::take(&mut self.spots.repeated) {
            let message = format!("{pointer} is declared twice; only the last one would count");
            self.mistakes.push(self.source.mistake(byte..byte, Rule::Syntax, message));
        }
        if !schema.is_object() {
            self.at("", Rule::Schema, "a schema of a payload is an object");
            return None;
        }
        self.head(schema, id);
        let before = self.mistakes.len();
        for (pointer, rule, message) in refs::check(schema) {
            self.at(&pointer, rule, message);
        }
        let meta = jsonschema::draft202012::meta::validator();
        for error in meta.iter_errors(schema) {
            self.at(error.instance_path().as_str(), Rule::Schema, error.to_string());
        }
        // A validator might not terminate on cyclic or foreign references.
        if self.mistakes.len() > before {
            return None;
        }
        let options = jsonschema::options().with_draft(Draft::Draft202012);
        let validator = match options.should_validate_formats(true).build(schema) {
            Ok(validator) => validator,
            Err(error) => {
                self.at(error.instance_path().as_str(), Rule::Schema, error.to_string());
                return None;
            }
        };
        if validator.is_valid(&json!({})) {
            let message = "it accepts {}: say which fields are required";
            self.at("/required", Rule::AcceptsEmpty, message);
        }
        self.examples(schema, &validator);
        if let Some(key) = key {
            self.ordering_key(schema, key);
        }
        Some(validator)
    }

    fn head(&mut self, schema: &Value, id: &str) {
        match schema.get("$schema").and_then(Value::as_str) {
            Some(DRAFT) => {}
            _ => self.at("/$schema", Rule::Schema, format!("$schema must be {DRAFT:?}")),
        }
        if schema.get("$id").and_then(Value::as_str) != Some(id) {
            self.at("/$id", Rule::SchemaId, format!("$id must be {id:?}, as its subject says"));
        }
        for field in ["title", "description"] {
            let said = schema.get(field).and_then(Value::as_str);
            if said.is_none_or(|text| text.trim().is_empty()) {
                self.at(&format!("/{field}"), Rule::MissingField, format!("{field} is missing"));
            }
        }
    }

    fn examples(&mut self, schema: &Value, validator: &Validator) {
        let examples = schema.get("examples").and_then(Value::as_array);
        let Some(examples) = examples.filter(|examples| !examples.is_empty()) else {
            return self.at("/examples", Rule::Example, "examples is missing: give at least one");
        };
        let writer = writer(schema);
        for (index, example) in examples.iter().enumerate() {
            let before = self.mistakes.len();
            for error in validator.iter_errors(example) {
                let pointer = format!("/examples/{index}{}", error.instance_path().as_str());
                let message = format!("the schema refuses its own example: {error}");
                self.at(&pointer, Rule::Example, message);
            }
            // An event like this would be accepted here and refused when it is published.
            if self.mistakes.len() == before
                && let Some(error) = writer.as_ref().and_then(|all| all.iter_errors(example).next())
            {
                let pointer = format!("/examples/{index}{}", error.instance_path().as_str());
                let message = format!("producers may not write this example: {error}");
                self.at(&pointer, Rule::Example, message);
            }
        }
    }

    fn ordering_key(&mut self, schema: &Value, key: &str) {
        let required = schema.get("required").and_then(Value::as_array);
        if !required.is_some_and(|required| required.iter().any(|field| field == key)) {
            let message = format!("the ordering key {key:?} is not among its required fields");
            self.at("/required", Rule::OrderingKey, message);
        }
    }
}

/// A validator of the copy that producers are checked against, here and by the registry.
fn writer(schema: &Value) -> Option<Validator> {
    let options = jsonschema::options().with_draft(Draft::Draft202012);
    options.should_validate_formats(true).build(&chapar_core::schema::closed(schema)).ok()
}

pub(crate) fn syntax(source: &Source, error: &serde_json::Error) -> Mistake {
    let mut place = source.place(0);
    place.line = error.line().max(1);
    place.column = error.column().max(1);
    // The position is already in front.
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or_default();
    place.mistake(Rule::Syntax, message)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
