//! The gate and the registry check events against the same copies of a schema.
#![allow(clippy::unwrap_used, reason = "a test may stop here")]

use std::path::Path;

use chapar::{Envelope, Payload, Registry};
use chapar_core::dialect::{CloudEvents, Dialect, Message};
use chapar_core::schema::{closed, open};
use jsonschema::{Draft, Validator};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const SUBJECT: &str = "melmastoon.reservation.booking.held.v1";

#[test]
fn every_example_of_every_system_passes_the_gate_and_the_run_time() {
    let systems = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems");
    let mut examples = 0;
    for system in std::fs::read_dir(systems).unwrap() {
        let folder = system.unwrap().path();
        // A system may be a profile alone.
        if !folder.join("catalog.toml").exists() {
            continue;
        }
        let loaded = chapar_catalog::load(&folder).unwrap();
        let bundle = chapar_catalog::bundle(&loaded);
        let registry = Registry::from_bundle(&serde_json::to_string(&bundle).unwrap()).unwrap();
        for (subject, schema) in &loaded.schemas {
            let written = validator(&closed(&schema.value));
            let read = validator(&open(&schema.value));
            for example in schema.examples() {
                assert!(written.is_valid(example), "{subject}: the gate closes it off: {example}");
                assert!(read.is_valid(example), "{subject}: {example}");
                let payload = Payload::json(example).unwrap();
                assert_eq!(registry.check_written(subject, &payload), Ok(()), "{subject}");
                assert_eq!(registry.check_read(subject, &envelope(payload)), Ok(()), "{subject}");
                examples += 1;
            }
        }
    }
    assert!(examples > 82, "{examples} examples");
}

/// Schemas, what producers may write, and what they may not.
fn table() -> Vec<(Value, Vec<Value>, Vec<Value>)> {
    let base = json!({ "type": "object", "properties": { "id": { "type": "string" } } });
    vec![
        // A definition that is extended in place.
        (
            json!({
                "$defs": { "base": base },
                "allOf": [{ "$ref": "#/$defs/base" }],
                "properties": { "nights": { "type": "integer" } },
            }),
            vec![json!({ "id": "a", "nights": 2 })],
            vec![json!({ "id": "a", "x": 1 }), json!({ "id": 1 })],
        ),
        // Nothing is declared at the top.
        (
            json!({ "$defs": { "base": base }, "allOf": [{ "$ref": "#/$defs/base" }, {
                "properties": { "room": { "properties": { "no": {} } } },
            }] }),
            vec![json!({ "id": "a", "room": { "no": 1 } })],
            vec![json!({ "x": 1 }), json!({ "room": { "x": 1 } })],
        ),
        (
            json!({ "$defs": { "base": base }, "$ref": "#/$defs/base" }),
            vec![json!({ "id": "a" })],
            vec![json!({ "x": 1 })],
        ),
        // A member that another one extends.
        (
            json!({ "properties": {
                "a": base,
                "b": { "allOf": [{ "$ref": "#/properties/a" }], "properties": { "c": {} } },
            } }),
            vec![json!({ "a": { "id": "a" }, "b": { "id": "a", "c": 1 } })],
            vec![json!({ "a": { "c": 1 } }), json!({ "b": { "x": 1 } })],
        ),
        // Alternatives, maps, tuples, free objects.
        (
            json!({ "anyOf": [{ "properties": { "a": {} }, "required": ["a"] },
                { "properties": { "b": {} }, "required": ["b"] }] }),
            vec![json!({ "a": 1 }), json!({ "a": 1, "b": 1 })],
            vec![json!({ "a": 1, "x": 1 })],
        ),
        (
            json!({ "oneOf": [{ "properties": { "a": {} }, "required": ["a"] },
                { "properties": { "b": {} }, "required": ["b"] }] }),
            vec![json!({ "a": 1 }), json!({ "b": 1 })],
            vec![json!({ "a": 1, "x": 1 })],
        ),
        (
            json!({ "properties": { "map": { "type": "object", "additionalProperties": base } } }),
            vec![json!({ "map": { "any": { "id": "a" } } })],
            vec![json!({ "map": { "any": { "x": 1 } } })],
        ),
        (
            json!({ "properties": { "pair": { "prefixItems": [base, {}], "items": base } } }),
            vec![json!({ "pair": [{ "id": "a" }, { "x": 1 }, { "id": "b" }] })],
            vec![json!({ "pair": [{ "x": 1 }] }), json!({ "pair": [{}, {}, { "x": 1 }] })],
        ),
        (
            json!({ "properties": { "a": {} }, "additionalProperties": true }),
            vec![json!({ "a": 1 })],
            vec![json!({ "x": 1 })],
        ),
        (
            json!({ "properties": { "a": {}, "free": { "type": "object" } },
                "additionalProperties": {} }),
            vec![json!({ "a": 1, "x": 1, "free": { "y": 1 } })],
            vec![],
        ),
        (
            json!({ "properties": { "at": { "anyOf": [
                { "type": "string", "format": "date-time" }, { "type": "null" }] } } }),
            vec![json!({ "at": "2027-01-31T12:00:00Z" }), json!({ "at": null })],
            vec![json!({ "at": "yesterday" })],
        ),
    ]
}

#[test]
fn the_gate_and_the_registry_agree_about_what_producers_may_write() {
    for (schema, fine, wrong) in table() {
        let gate = validator(&closed(&schema));
        let registry = registry(&schema);
        let verdicts = |payload: &Value| {
            let written = registry.check_written(SUBJECT, &Payload::json(payload).unwrap());
            (gate.is_valid(payload), written.is_ok())
        };
        for payload in fine {
            assert_eq!(verdicts(&payload), (true, true), "{payload} of {schema}");
        }
        for payload in wrong {
            assert_eq!(verdicts(&payload), (false, false), "{payload} of {schema}");
        }
    }
}

#[test]
fn a_reader_ignores_undeclared_fields_of_a_schema_that_is_written_closed() {
    let schema =
        json!({ "properties": { "a": { "type": "string" } }, "additionalProperties": false });
    let read = |payload: Value| {
        registry(&schema).check_read(SUBJECT, &envelope(Payload::json(&payload).unwrap()))
    };
    assert_eq!(
        read(json!({ "a": "b", "new": 1 })),
        Ok(()),
        "the gate calls an added field harmless"
    );
    assert!(read(json!({ "a": 1 })).is_err());
}

fn validator(schema: &Value) -> Validator {
    let options = jsonschema::options().with_draft(Draft::Draft202012);
    options.should_validate_formats(true).build(schema).unwrap()
}

fn registry(schema: &Value) -> Registry {
    let schema = schema.to_string();
    let digest = Sha256::digest(schema.as_bytes());
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let uri = format!("schemas://reservation/booking/held/v1#sha256-{hash}");
    let bundle = json!({
        "format": 1, "system": "melmastoon", "version": "1",
        "contracts": [{ "subject": SUBJECT, "owner": "a", "uri": uri, "schema": schema }],
    });
    Registry::from_bundle(&bundle.to_string()).unwrap()
}

fn envelope(payload: Payload) -> Envelope {
    let body = json!({ "specversion": "1.0", "id": "1", "type": "held", "source": "/services/a" });
    let message = Message::from_body(body.to_string());
    Envelope { payload, ..CloudEvents::Structured.decode(&message).unwrap() }
}
