//! The registry: what a system's events must look like, at run time.

use std::collections::HashMap;
use std::sync::OnceLock;

use chapar_core::bundle::{Bundle, Contract};
use chapar_core::{Code, Envelope, Payload, Violations};
use jsonschema::{Draft, Validator};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The contracts of a system, from a released [bundle](Bundle).
///
/// What a service publishes must be registered and its own, and the payload must fit a *closed*
/// copy of its schema: a field that nobody declared is a mistake of the producer. What a
/// consumer reads must fit the schema as it stands, *open*: a field that a newer producer added
/// is none of its business.
#[derive(Debug)]
pub struct Registry {
    contracts: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    contract: Contract,
    compiled: OnceLock<Compiled>,
}

#[derive(Debug)]
struct Compiled {
    reader: Validator,
    writer: Validator,
}

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// It is not a bundle.
    #[error("the bundle cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// It is of a form that this program does not know.
    #[error("the bundle has form {0}, this program reads {known}; use a newer chapar", known = Bundle::FORMAT)]
    Format(u32),
    /// A schema is not what its hash says.
    #[error("the schema of {0} does not have the hash in its address; the bundle was altered")]
    Hash(String),
    /// A schema is no schema.
    #[error("the schema of {subject} does not compile: {reason}")]
    Schema {
        /// The event.
        subject: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Registry {
    /// Reads a bundle and checks every hash. Schemas are compiled when they are first used.
    pub fn from_bundle(json: &str) -> Result<Self, RegistryError> {
        let bundle: Bundle = serde_json::from_str(json)?;
        if bundle.format != Bundle::FORMAT {
            return Err(RegistryError::Format(bundle.format));
        }
        let mut contracts = HashMap::new();
        for contract in bundle.contracts {
            let hash: String = Sha256::digest(contract.schema.as_bytes())
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            if !contract.uri.ends_with(&format!("#sha256-{hash}")) {
                return Err(RegistryError::Hash(contract.subject));
            }
            let subject = contract.subject.clone();
            contracts.insert(subject, Entry { contract, compiled: OnceLock::new() });
        }
        Ok(Registry { contracts })
    }

    /// Compiles every schema, so that a bad one is found at the start and not at the first event.
    pub fn compile(&self) -> Result<(), RegistryError> {
        for entry in self.contracts.values() {
            entry.compiled()?;
        }
        Ok(())
    }

    /// Whether there is a contract for a subject.
    pub fn contains(&self, subject: &str) -> bool {
        self.contracts.contains_key(subject)
    }

    /// The contract under which a service publishes a subject. Without a service only the
    /// registration is asked for.
    pub(crate) fn may_publish(
        &self,
        subject: &str,
        service: Option<&str>,
    ) -> Result<&Contract, Violations> {
        let Some(entry) = self.contracts.get(subject) else {
            let reason = format!("{subject} is not registered; add it to its owner's catalog file");
            return Err(Violations::one(Code::Unregistered, reason));
        };
        let owner = &entry.contract.owner;
        match service {
            Some(service) if service != owner => {
                let reason = format!("{subject} belongs to {owner}, and {service} publishes it");
                Err(Violations::one(Code::NotOwner, reason))
            }
            _ => Ok(&entry.contract),
        }
    }

    /// Checks what is about to be published, against the closed copy.
    pub fn check_written(&self, subject: &str, payload: &Payload) -> Result<(), Violations> {
        self.check(subject, payload, |compiled| &compiled.writer)
            .map_err(|reason| Violations::one(Code::SchemaInvalid, reason))
    }

    /// Checks what has come in, against the schema as it stands.
    pub fn check_read(&self, subject: &str, envelope: &Envelope) -> Result<(), String> {
        self.check(subject, &envelope.payload, |compiled| &compiled.reader)
    }

    fn check(
        &self,
        subject: &str,
        payload: &Payload,
        which: fn(&Compiled) -> &Validator,
    ) -> Result<(), String> {
        let (Some(entry), Payload::Json(raw)) = (self.contracts.get(subject), payload) else {
            return Ok(());
        };
        let compiled = entry.compiled().map_err(|error| error.to_string())?;
        let value: Value = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
        let validator = which(compiled);
        // Nearly all are valid, and saying so is much cheaper than being ready to say why not.
        if validator.is_valid(&value) {
            return Ok(());
        }
        let Some(error) = validator.iter_errors(&value).next() else { return Ok(()) };
        let pointer = match error.instance_path().as_str() {
            "" => "the payload".to_owned(),
            pointer => pointer.to_owned(),
        };
        Err(format!("{subject}: {pointer}: {error}"))
    }
}

impl Entry {
    fn compiled(&self) -> Result<&Compiled, RegistryError> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(compiled);
        }
        let fail = |reason: String| RegistryError::Schema {
            subject: self.contract.subject.clone(),
            reason,
        };
        let open: Value =
            serde_json::from_str(&self.contract.schema).map_err(|error| fail(error.to_string()))?;
        let mut closed = open.clone();
        close(&mut closed);
        let compile = |schema: &Value| {
            let options = jsonschema::options().with_draft(Draft::Draft202012);
            options
                .should_validate_formats(true)
                .build(schema)
                .map_err(|error| fail(error.to_string()))
        };
        let compiled = Compiled { reader: compile(&open)?, writer: compile(&closed)? };
        Ok(self.compiled.get_or_init(|| compiled))
    }
}

/// Makes every object of a schema refuse fields that it does not declare.
///
/// Below `allOf` and its like an object is only a part of one, and is closed by the whole.
fn close(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for (name, part) in fields.iter_mut() {
        match (name.as_str(), part) {
            ("properties" | "$defs" | "patternProperties", Value::Object(parts)) => {
                parts.values_mut().for_each(close);
            }
            ("items" | "additionalProperties" | "contains", part) => close(part),
            ("prefixItems", Value::Array(parts)) => parts.iter_mut().for_each(close),
            _ => {}
        }
    }
    if fields.contains_key("properties")
        && !fields.contains_key("additionalProperties")
        && !fields.contains_key("unevaluatedProperties")
    {
        // Where nothing beside it declares fields too, both mean the same, and the first is
        // much cheaper: it need not remember what was evaluated.
        let alone = !fields.keys().any(|keyword| IN_PLACE.contains(&keyword.as_str()));
        let lock = if alone { "additionalProperties" } else { "unevaluatedProperties" };
        fields.insert(lock.to_owned(), json!(false));
    }
}

/// The keywords whose schemas look at the same object.
const IN_PLACE: [&str; 11] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "oneOf",
    "then",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_copy_refuses_what_is_not_declared_at_any_depth() {
        let mut schema = json!({
            "properties": {
                "a": { "type": "object", "properties": { "b": { "type": "string" } } },
                "list": { "type": "array", "items": { "properties": { "c": {} } } },
            },
            "allOf": [{ "properties": { "d": {} } }],
        });
        close(&mut schema);
        assert_eq!(schema["unevaluatedProperties"], false, "the parts of allOf count as well");
        assert_eq!(schema["properties"]["a"]["additionalProperties"], false);
        let closed = jsonschema::draft202012::new(&schema).expect("it compiles");
        for fine in [json!({}), json!({ "a": { "b": "" }, "list": [{ "c": 1 }], "d": 1 })] {
            assert!(closed.is_valid(&fine), "{fine}");
        }
        for wrong in
            [json!({ "x": 1 }), json!({ "a": { "x": 1 } }), json!({ "list": [{ "x": 1 }] })]
        {
            assert!(!closed.is_valid(&wrong), "{wrong}");
        }
    }
}
