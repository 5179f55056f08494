//! Constraints of Protobuf fields: kept, broken with a path, or refused by name.
#![allow(clippy::unwrap_used, reason = "a test may stop here")]

use std::path::Path;

use chapar_core::constraint::{Broken, Constraints};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::{Value, json};

/// A message with these fields, compiled beside the options that the bank brings along.
fn compiled(declared: &str) -> MessageDescriptor {
    let folder = tempfile();
    let source = format!(
        "syntax = \"proto3\"; package t; import \"buf/validate/validate.proto\"; \
         import \"google/protobuf/timestamp.proto\"; import \"google/type/money.proto\"; \
         enum Currency {{ NONE = 0; GBP = 1; }} message Event {{ {declared} }}"
    );
    std::fs::write(folder.join("t.proto"), source).unwrap();
    let bank = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/meridian/proto");
    let mut compiler = protox::Compiler::new([folder.clone(), bank]).unwrap();
    compiler.include_imports(true);
    compiler.open_file("t.proto").unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    // As a bundle carries it: by its bytes.
    let pool = DescriptorPool::decode(compiler.encode_file_descriptor_set().as_slice()).unwrap();
    pool.get_message_by_name("t.Event").unwrap()
}

fn tempfile() -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name =
        format!("constraints-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn check(message: &MessageDescriptor, json: &Value) -> Result<(), Broken> {
    let text = json.to_string();
    let mut reader = serde_json::Deserializer::from_str(&text);
    let event = DynamicMessage::deserialize(message.clone(), &mut reader).unwrap();
    Constraints::of(message).unwrap().check(&event.encode_to_vec())
}

/// What is fine, and what is not with a part of the reason.
fn tried(declared: &str, fine: &[Value], broken: &[(Value, &str)]) {
    let message = compiled(declared);
    for value in fine {
        assert_eq!(check(&message, value), Ok(()), "{declared}: {value}");
    }
    for (value, reason) in broken {
        let found = check(&message, value).expect_err(declared).to_string();
        assert!(found.contains(reason), "{declared}: {value}: {found}");
    }
}

fn refused(declared: &str) -> String {
    Constraints::of(&compiled(declared)).expect_err(declared).to_string()
}

#[test]
fn strings_keep_their_length_pattern_and_form() {
    tried(
        "string a = 1 [(buf.validate.field).string = { min_len: 2 max_len: 3 pattern: \"^[a-zé]+$\" }];",
        &[json!({ "a": "ab" }), json!({ "a": "éé" })],
        &[
            (json!({ "a": "é" }), "a: it has 1 characters, at least 2"),
            (json!({ "a": "abcd" }), "at most 3"),
            (json!({ "a": "A1" }), "does not match"),
            (json!({}), "at least 2"),
        ],
    );
    tried(
        "string id = 1 [(buf.validate.field).string.uuid = true];",
        &[json!({ "id": "550e8400-e29b-41d4-a716-446655440000" })],
        &[
            (json!({ "id": "550e8400e29b41d4a716446655440000" }), "is not a UUID"),
            (json!({}), "is not a UUID"),
        ],
    );
    tried(
        "optional string mail = 1 [(buf.validate.field).string.email = true];",
        &[json!({ "mail": "a.b+c@example.org" }), json!({})],
        &[(json!({ "mail": "a@-b" }), "mail"), (json!({ "mail": "" }), "e-mail")],
    );
}

#[test]
fn numbers_and_times_keep_their_bounds() {
    tried(
        "int64 n = 1 [(buf.validate.field).int64 = { gt: 0 lte: 10 }];",
        &[json!({ "n": 1 }), json!({ "n": 10 })],
        &[(json!({}), "n: 0 is not greater than 0"), (json!({ "n": 11 }), "11 is not at most 10")],
    );
    tried(
        "double n = 1 [(buf.validate.field).double = { gte: 0.5 lt: 1.5 }];",
        &[json!({ "n": 0.5 })],
        &[(json!({ "n": 1.5 }), "less than 1.5"), (json!({ "n": "NaN" }), "NaN")],
    );
    tried(
        "google.protobuf.Timestamp t = 1 [(buf.validate.field).timestamp.gte = { seconds: 0 }];",
        &[json!({}), json!({ "t": "1970-01-01T00:00:00Z" })],
        &[(json!({ "t": "1969-12-31T23:59:59.5Z" }), "is not at least 1970-01-01T00:00:00Z")],
    );
}

#[test]
fn enums_lists_and_presence_are_kept() {
    tried(
        "Currency c = 1 [(buf.validate.field).enum = { defined_only: true not_in: [0] }];",
        &[json!({ "c": "GBP" })],
        &[
            (json!({}), "c: 0 is not allowed"),
            (json!({ "c": 7 }), "7 is not a value of t.Currency"),
        ],
    );
    tried(
        "repeated string l = 1 [(buf.validate.field).repeated = { min_items: 1 max_items: 2 items: { string: { min_len: 1 } } }];",
        &[json!({ "l": ["a"] })],
        &[
            (json!({}), "l: it has 0 items"),
            (json!({ "l": ["a", "b", "c"] }), "at most 2"),
            (json!({ "l": ["a", ""] }), "l[1]: "),
        ],
    );
    tried(
        "string a = 1 [(buf.validate.field).required = true]; \
         google.type.Money m = 2 [(buf.validate.field).required = true];",
        &[json!({ "a": "x", "m": {} })],
        &[(json!({ "m": {} }), "a: it must be set"), (json!({ "a": "x" }), "m: it must be set")],
    );
    tried(
        "string a = 1 [(buf.validate.field) = { ignore: IGNORE_IF_ZERO_VALUE string: { uuid: true } }];",
        &[json!({})],
        &[(json!({ "a": "x" }), "UUID")],
    );
}

#[test]
fn what_lies_inside_is_checked_with_its_path() {
    tried(
        "message Line { google.type.Money price = 1 [(buf.validate.field).required = true]; } \
         repeated Line lines = 1; map<string, Line> named = 2; Event again = 3;",
        &[json!({ "lines": [{ "price": {} }] })],
        &[
            (json!({ "lines": [{ "price": {} }, {}] }), "lines[1].price: it must be set"),
            (json!({ "named": { "x": {} } }), ".price: it must be set"),
            (json!({ "again": { "again": { "lines": [{}] } } }), "again.again.lines[0].price"),
        ],
    );
}

const POSITIVE: &str = "google.type.Money amount = 4 [(buf.validate.field).cel = { \
    id: \"positive_amount\" message: \"amount must be greater than zero\" \
    expression: \"this.units > 0 || (this.units == 0 && this.nanos > 0)\" }];";

#[test]
fn money_is_positive_where_an_expression_says_so() {
    let zero = "amount: amount must be greater than zero (positive_amount)";
    tried(
        POSITIVE,
        &[json!({}), json!({ "amount": { "units": 1 } }), json!({ "amount": { "nanos": 1 } })],
        &[
            (json!({ "amount": {} }), zero),
            (json!({ "amount": { "units": -1, "nanos": 5 } }), zero),
            (json!({ "amount": { "nanos": -1 } }), zero),
        ],
    );
    tried(
        "option (buf.validate.message).cel = { id: \"apart\" expression: \"!(this.a == this.b) && this.c != 'x'\" }; \
         string a = 1; string b = 2; string c = 3;",
        &[json!({ "a": "1" })],
        &[
            (json!({}), "Event: !(this.a == this.b) && this.c != 'x' does not hold (apart)"),
            (json!({ "a": "1", "c": "x" }), "apart"),
        ],
    );
}

#[test]
fn what_is_not_enforced_is_refused_by_name() {
    let cel = |expression: &str| {
        refused(&format!(
            "string a = 1 [(buf.validate.field).cel = {{ id: \"x\" expression: \"{expression}\" }}];"
        ))
    };
    for expression in [
        "this.size() > 1",
        "this == 1",
        "this.b == ''",
        "this",
        "(this == ''",
        "this == '' ? true : false",
        "",
        "this == '' this",
    ] {
        assert!(cel(expression).contains("t.Event.a: the constraint cel \"x\""), "{expression}");
    }
    assert!(cel(&"(".repeat(10_000)).contains("too deeply"));
    let reversed = "int32 a = 1 [(buf.validate.field).int32 = { gt: 5 lt: 1 }];";
    assert!(refused(reversed).contains("a reversed range"));
    let misplaced = "string a = 1 [(buf.validate.field).int32.gt = 1];";
    assert!(refused(misplaced).contains("constraint int32 is not supported"));
    let pattern = "string a = 1 [(buf.validate.field).string.pattern = \"(?=a)\"];";
    assert!(refused(pattern).contains("string.pattern"));
}
