//! Rust types from schemas: what becomes a plain type, and what stays a JSON value.
#![allow(clippy::unwrap_used, reason = "a test may stop here")]

mod support;

use chapar_catalog::{load, rust};
use serde_json::{Value, json};
use support::{BOOKING, House, SCHEMA};

/// The source of a system whose event `booking.held` has more properties.
fn with(properties: Value) -> String {
    let house = House::new();
    let mut schema: Value = serde_json::from_str(&house.text(SCHEMA)).unwrap();
    for (name, property) in properties.as_object().unwrap() {
        schema["properties"][name] = property.clone();
    }
    house.write(SCHEMA, schema.to_string().as_bytes());
    let loaded = load(house.path()).unwrap();
    assert_eq!(loaded.mistakes, []);
    rust::source(&loaded)
}

fn has(source: &str, line: &str) {
    assert!(source.lines().any(|found| found.trim() == line), "no {line:?} in\n{source}");
}

#[test]
fn every_kind_of_property_has_its_type() {
    let source = with(json!({
        "type": { "type": "string" },
        "maybe": { "type": ["integer", "null"] },
        "share": { "type": "number" },
        "when": { "type": "string", "format": "date-time" },
        "lines": { "type": "array", "items": { "type": "object", "properties": { "sum": { "type": "integer" } } } },
        "texts": { "type": "object", "additionalProperties": { "type": "string" } },
        "either": { "oneOf": [{ "type": "string" }, { "type": "integer" }] },
        "mode": { "type": "string", "enum": ["fast-lane", "2nd"] },
    }));
    has(&source, "pub r#type: Option<String>,");
    has(&source, "pub maybe: Option<i64>,");
    has(&source, "pub share: Option<serde_json::Number>,");
    has(&source, "pub when: Option<jiff::Timestamp>,");
    has(&source, "pub lines: Option<Vec<super::Lines>>,");
    has(&source, "pub struct Lines {");
    has(&source, "pub texts: Option<std::collections::BTreeMap<String, String>>,");
    has(&source, "/// No plain type says what the schema says; the registry checks it.");
    has(&source, "pub either: Option<serde_json::Value>,");
    has(&source, "#[text(\"fast-lane\")]");
    has(&source, "FastLane,");
    has(&source, "N2nd,");
}

#[test]
fn shapes_that_differ_under_one_name_get_the_name_of_their_holder() {
    let state = |values: [&str; 2]| json!({ "type": "string", "enum": values });
    let room = |values| json!({ "type": "object", "properties": { "state": state(values) } });
    let source = with(json!({ "from": room(["a", "b"]), "to": room(["c", "d"]) }));
    for line in ["pub enum FromState {", "pub enum ToState {", "pub state: Option<ToState>,"] {
        has(&source, line);
    }
}

#[test]
fn an_event_that_happens_once_has_its_key_for_an_intent() {
    let house = House::new();
    let intent = ":held\"";
    assert!(!rust::source(&load(house.path()).unwrap()).contains(intent));
    let subject = "subject = \"melmastoon.reservation.booking.held.v1\"";
    house.change(BOOKING, subject, &format!("{subject}\nonce = true"));
    let source = rust::source(&load(house.path()).unwrap());
    assert!(source.contains(intent) && source.contains("#[event("), "{source}");
}

#[test]
fn what_is_required_is_made_by_name_and_checked_by_the_compiler() {
    let source = with(json!({ "note": { "type": "string" }, "tenantId": { "type": "string" } }));
    has(&source, "pub note: Option<String>,");
    let required = source.split("pub struct BookingHeldRequired {").nth(1).unwrap();
    let required = required.split('}').next().unwrap();
    assert!(!required.contains("note"), "{required}");
    has(&source, "impl std::convert::From<BookingHeldRequired> for BookingHeld {");
    assert!(!source.contains("tenant_id"), "the envelope says whose it is");
}
