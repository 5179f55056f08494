//! Shapes that differs get wrong, decided or admitted.
#![allow(clippy::unwrap_used, reason = "tests")]

use chapar_compat::{Direction, Kind, Request, Schema, Verdict, Writers, diff};
use serde_json::{Value, json};

fn verdict(old: &Value, new: &Value, writers: Writers) -> Verdict {
    let (old, new) = (
        Schema::from_value("old", old.clone()).unwrap(),
        Schema::from_value("new", new.clone()).unwrap(),
    );
    diff(&Request::new(&old, &new).kind(Kind::Bare).direction(Direction::Backward).writers(writers))
        .verdict
}

fn included(old: Value, new: Value) {
    assert_eq!(verdict(&old, &new, Writers::Any), Verdict::Compatible, "{old} in {new}");
}

fn refuted(old: Value, new: Value) {
    assert_eq!(verdict(&old, &new, Writers::Any), Verdict::Breaking, "{old} in {new}");
}

#[test]
fn a_union_told_apart_by_a_constant_may_grow() {
    let card = json!({ "type": "object", "required": ["how"], "properties": { "how": { "const": "card" }, "last4": { "type": "string" } } });
    let cash = json!({ "type": "object", "required": ["how"], "properties": { "how": { "const": "cash" } } });
    let (two, one) = (json!({ "oneOf": [card, cash] }), json!({ "oneOf": [card] }));
    included(one.clone(), two.clone());
    refuted(two, one);
}

#[test]
fn overlapping_alternatives_of_a_one_of_are_not_taken_for_any_of() {
    refuted(
        json!({ "type": "integer" }),
        json!({ "oneOf": [{ "type": "integer" }, { "minimum": 5 }] }),
    );
    included(
        json!({ "type": "integer", "maximum": 4 }),
        json!({ "oneOf": [{ "type": "integer" }, { "type": "integer", "minimum": 5 }] }),
    );
}

#[test]
fn a_nullable_type_is_split_over_alternatives() {
    included(
        json!({ "type": ["string", "null"] }),
        json!({ "anyOf": [{ "type": "null" }, { "type": "string" }] }),
    );
    included(
        json!({ "anyOf": [{ "const": 1 }, { "const": "a" }] }),
        json!({ "type": ["integer", "string"] }),
    );
}

#[test]
fn listed_values_are_measured_against_lengths_and_ranges() {
    included(
        json!({ "enum": ["ab", "abc"] }),
        json!({ "type": "string", "minLength": 2, "maxLength": 3 }),
    );
    refuted(json!({ "enum": ["ab", "a"] }), json!({ "minLength": 2 }));
}

#[test]
fn bounds_of_integers_are_rounded_inward() {
    included(json!({ "type": "integer", "exclusiveMinimum": 0 }), json!({ "minimum": 1 }));
    refuted(json!({ "type": "number", "exclusiveMinimum": 0 }), json!({ "minimum": 1 }));
    refuted(
        json!({ "type": "integer", "maximum": 9_007_199_254_740_993_u64 }),
        json!({ "maximum": 9_007_199_254_740_992_u64 }),
    );
}

#[test]
fn references_and_all_of_are_read_together() {
    let old = json!({ "allOf": [{ "$ref": "#/$defs/id" }, { "required": ["id"] }], "$defs": { "id": { "type": "object", "properties": { "id": { "type": "string", "maxLength": 8 } } } } });
    included(
        old,
        json!({ "type": "object", "required": ["id"], "properties": { "id": { "type": "string" } } }),
    );
}

#[test]
fn items_and_their_prefix_are_compared_place_by_place() {
    included(
        json!({ "type": "array", "prefixItems": [{ "type": "string" }], "items": { "type": "integer" } }),
        json!({ "items": { "type": ["string", "integer"] } }),
    );
    refuted(
        json!({ "type": "array", "items": { "type": "number" } }),
        json!({ "prefixItems": [true, { "type": "integer" }] }),
    );
}

#[test]
fn what_is_not_taken_apart_is_admitted() {
    let contains = |least: u32| json!({ "type": "array", "contains": { "type": "integer", "minimum": 0 }, "minContains": least, "items": { "const": 3 } });
    assert_eq!(verdict(&contains(2), &contains(1), Writers::Any), Verdict::Unknown);
    assert_eq!(verdict(&contains(2), &contains(2), Writers::Any), Verdict::Compatible);
}

#[test]
fn a_closed_reader_does_not_refuse_a_field_it_does_not_know() {
    let with = |names: &[&str]| {
        let members: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect();
        json!({ "type": "object", "additionalProperties": false, "properties": members })
    };
    let (more, less) = (with(&["a", "b"]), with(&["a"]));
    assert_eq!(verdict(&more, &less, Writers::Declared), Verdict::Compatible);
    assert_eq!(verdict(&more, &less, Writers::Any), Verdict::Breaking);
}
