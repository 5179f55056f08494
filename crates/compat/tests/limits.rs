//! Bad input is an error with a place; hostile input ends, within the budget.
#![allow(clippy::unwrap_used, reason = "tests")]

use chapar_compat::proto::{Category, Protos};
use chapar_compat::{BUDGET, InputError, Kind, LARGEST, Request, Schema, Verdict, Writers, diff};
use serde_json::{Map, Value, json};

fn schema(value: Value) -> Schema {
    Schema::from_value("schema.json", value).unwrap()
}

fn refused(value: Value) -> String {
    Schema::from_value("schema.json", value).unwrap_err().to_string()
}

fn wide(kind: &str) -> Value {
    wide_of(500, kind)
}

fn wide_of(count: usize, kind: &str) -> Value {
    let members: Map<String, Value> = (0..count)
        .map(|n| {
            (
                format!("field{n}"),
                json!({ "type": kind, "minLength": 1, "description": format!("number {n}") }),
            )
        })
        .collect();
    let names: Vec<String> = members.keys().cloned().collect();
    json!({ "type": "object", "required": names, "properties": members })
}

#[test]
fn malformed_json_is_refused_with_file_and_line() {
    let error =
        Schema::parse("orders/v1.json", b"{\n  \"type\": \"object\",\n  oops\n}").unwrap_err();
    assert_eq!(error.line(), Some(3));
    assert!(error.to_string().starts_with("orders/v1.json:3:"), "{error}");
}

#[test]
fn wrong_encodings_are_refused_with_a_place() {
    let utf16: Vec<u8> =
        std::iter::once(0xFEFF).chain("{}".encode_utf16()).flat_map(u16::to_le_bytes).collect();
    assert!(Schema::parse("a", &utf16).unwrap_err().to_string().contains("UTF-16"));
    let error = Schema::parse("a", b"{\n\"title\": \"caf\xE9\"}").unwrap_err();
    assert_eq!(error.line(), Some(2));
    assert!(
        Schema::parse("a", b"\xEF\xBB\xBF{}").is_ok(),
        "a byte order mark of UTF-8 does no harm"
    );
}

#[test]
fn ten_megabytes_are_refused_before_they_are_parsed() {
    let large = vec![b' '; 10 * 1024 * 1024];
    assert!(matches!(Schema::parse("a", &large), Err(InputError::Syntax { .. })));
    assert!(Protos::parse(&[("a.proto", &large)]).is_err());
    assert!(large.len() > LARGEST);
}

#[test]
fn schemas_that_do_not_compile_are_refused_with_a_pointer() {
    let error = refused(json!({ "properties": { "a": { "type": "strin" } } }));
    assert!(error.contains("/properties/a/type"), "{error}");
    assert!(refused(json!({ "pattern": "(" })).contains("pattern"));
    assert!(refused(json!(3)).contains("an object or a boolean"));
}

#[test]
fn references_that_are_remote_dangling_or_endless_are_refused() {
    assert!(
        refused(json!({ "$ref": "https://example.com/a.json" })).contains("remote and refused")
    );
    assert!(
        refused(json!({ "properties": { "a": { "$ref": "other.json#/a" } } }))
            .contains("/properties/a")
    );
    assert!(refused(json!({ "$ref": "#/$defs/none" })).contains("leads nowhere"));
    let cycle = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } });
    assert!(refused(cycle).contains("itself"));
    assert!(refused(json!({ "allOf": [{ "$ref": "#" }] })).contains("never ends"));
}

#[test]
fn a_deeply_nested_document_is_an_error_and_no_overflow() {
    let text = format!("{}true{}", "{\"not\":".repeat(5_000), "}".repeat(5_000));
    assert_eq!(Schema::parse("a", text.as_bytes()).unwrap_err().line(), Some(1));
}

#[test]
fn a_bomb_of_references_is_unknown_with_the_reason() {
    let bomb = |leaf: &str| {
        let mut defs = Map::new();
        for n in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
            defs.insert(format!("d{n}"), json!({ "properties": { "l": next, "r": next } }));
        }
        defs.insert("d40".to_owned(), json!({ "type": leaf }));
        schema(json!({ "$ref": "#/$defs/d0", "$defs": defs }))
    };
    let report = diff(&Request::new(&bomb("string"), &bomb("integer")).kind(Kind::Integration));
    assert_eq!(report.verdict, Verdict::Unknown);
    assert_eq!(report.findings[0].rule, "too-large");
    assert!(report.findings[0].reason.contains("once its references are followed"));
}

#[test]
fn a_recursive_schema_is_unknown_unless_it_is_the_same() {
    let tree = |extra: Value| {
        let mut node = json!({ "type": "object", "properties": { "value": { "type": "string" }, "next": { "$ref": "#/$defs/node" } } });
        node["properties"]["extra"] = extra;
        schema(json!({ "$ref": "#/$defs/node", "$defs": { "node": node } }))
    };
    let (old, new) =
        (tree(json!({ "type": "string" })), tree(json!({ "type": ["string", "null"] })));
    let report = diff(
        &Request::new(&old, &new).kind(Kind::Bare).direction(chapar_compat::Direction::Backward),
    );
    assert_eq!(report.verdict, Verdict::Unknown, "{report:#?}");
    assert!(
        report.findings.iter().any(|finding| finding.rule == "recursive-schema"),
        "{report:#?}"
    );
    assert_eq!(diff(&Request::new(&old, &old)).verdict, Verdict::Compatible);
}

#[test]
fn entangled_alternatives_stay_within_the_budget() {
    let level = |inner: Value| json!({ "anyOf": [inner.clone(), { "properties": { "x": inner } }], "oneOf": [{ "minProperties": 1 }, { "maxProperties": 0 }] });
    let deep =
        (0..9).fold(json!({ "type": "object", "maxProperties": 3 }), |inner, _| level(inner));
    let other =
        (0..9).fold(json!({ "type": "object", "maxProperties": 2 }), |inner, _| level(inner));
    let report = diff(&Request::new(&schema(deep), &schema(other)).kind(Kind::Bare));
    assert_ne!(report.verdict, Verdict::Compatible);
    assert!(report.spent < 4 * BUDGET, "{}", report.spent);
}

#[test]
fn five_hundred_properties_take_a_few_thousand_steps() {
    let (old, new) = (wide("string"), wide("string"));
    let mut new = new;
    new["properties"]["added"] = json!({ "type": "string" });
    for writers in [Writers::Declared, Writers::Any] {
        let report = diff(
            &Request::new(&schema(old.clone()), &schema(new.clone()))
                .kind(Kind::Integration)
                .writers(writers),
        );
        assert!(report.spent < 10_000, "{}", report.spent);
    }
    let report =
        diff(&Request::new(&schema(old), &schema(wide("integer"))).kind(Kind::Integration));
    assert_eq!(report.verdict, Verdict::Breaking);
    assert_eq!(
        report.findings.iter().filter(|finding| finding.rule == "type-changed").count(),
        500
    );
    assert!(report.findings.iter().all(|finding| finding.counterexample.is_some()));
    assert!(report.spent < 20_000, "{}", report.spent);
}

#[test]
fn long_enums_take_time_in_proportion() {
    let listed = |from: u32, to: u32| {
        let values: Vec<String> = (from..to).map(|n| format!("value-{n}")).collect();
        schema(json!({
            "properties": { "a": { "$ref": "#/$defs/a" } },
            "$defs": { "a": { "enum": values } },
        }))
    };
    let started = std::time::Instant::now();
    let (old, new) = (listed(0, 100_000), listed(50, 100_100));
    let report = diff(&Request::new(&old, &new).kind(Kind::Integration));
    let rules: Vec<&str> = report.findings.iter().map(|found| found.rule.as_str()).collect();
    assert_eq!(rules, ["enum-narrowed", "enum-widened"]);
    assert!(report.findings.iter().all(|found| found.reason.len() < 2_000));
    // Comparing every value with every other takes minutes.
    assert!(started.elapsed().as_secs() < 180, "{:?}", started.elapsed());
}

#[test]
fn thousands_of_changed_fields_are_bounded() {
    let (old, new) = (schema(wide_of(1_000, "string")), schema(wide_of(1_000, "integer")));
    let report = diff(&Request::new(&old, &new).kind(Kind::Integration));
    assert_eq!(report.verdict, Verdict::Breaking);
    let renamed: String = serde_json::to_string(&wide_of(1_000, "string")).unwrap();
    let renamed = renamed.replace("field", "other");
    let new = schema(serde_json::from_str(&renamed).unwrap());
    let report = diff(&Request::new(&old, &new).kind(Kind::Integration));
    assert_eq!(report.verdict, Verdict::Breaking);
    // The larger the events, the fewer of them are made and judged.
    let shown = report.findings.iter().filter(|found| found.counterexample.is_some()).count();
    assert!(shown < 1_000, "{shown}");
}

#[test]
fn differences_beyond_the_first_thousand_are_counted_and_not_passed_over() {
    let listed = |values: Value| {
        let members: Map<String, Value> = (0..1_200)
            .map(|n| (format!("f{n}"), json!({ "enum": values, "x-extensible-enum": true })))
            .collect();
        schema(json!({ "type": "object", "properties": members }))
    };
    let (old, new) = (listed(json!(["a"])), listed(json!(["a", "b"])));
    let report = diff(&Request::new(&old, &new).kind(Kind::Bare));
    // Each of the thousand is a note, and what was not judged may be worse.
    assert_eq!(report.verdict, Verdict::Unknown);
    let rest = &report.findings[0];
    assert_eq!(rest.rule, "too-large");
    assert!(rest.reason.starts_with("200 more differences"), "{}", rest.reason);
    assert!(rest.reason.contains("a new event and old readers"), "{}", rest.reason);
}

#[test]
fn twice_the_properties_are_no_more_than_about_twice_the_work() {
    let spent = |count: usize, kind: &str| {
        let (old, new) = (schema(wide_of(count, "string")), schema(wide_of(count, kind)));
        diff(&Request::new(&old, &new).kind(Kind::Integration)).spent
    };
    for kind in ["string", "integer"] {
        for count in [40, 80] {
            let (once, twice) = (spent(count, kind), spent(2 * count, kind));
            assert!(twice <= 5 * once / 2 + 100, "{kind}: {once} for {count}, then {twice}");
        }
    }
}

#[test]
fn malformed_proto_is_refused_with_file_and_line() {
    let error =
        Protos::parse(&[("a/b.proto", b"syntax = \"proto3\";\nmessage A {\n  string x = ;\n}")])
            .unwrap_err();
    assert!(error.to_string().starts_with("a/b.proto:3:"), "{error}");
    let error =
        Protos::parse(&[("b.proto", b"syntax = \"proto3\";\nmessage A {\n  Missing x = 1;\n}")])
            .unwrap_err();
    assert!(error.to_string().starts_with("b.proto:3:"), "{error}");
    let deep = format!("syntax = \"proto3\";{}", "message A {".repeat(50_000));
    assert!(Protos::parse(&[("c.proto", deep.as_bytes())]).is_err());
}

#[test]
fn a_proto_change_says_which_rule_and_what_to_do() {
    let old = Protos::parse(&[(
        "e.v1.proto",
        b"syntax = \"proto3\"; package e.v1; message A { string x = 1; int32 y = 2; }",
    )])
    .unwrap();
    let new = Protos::parse(&[(
        "e.v1.proto",
        b"syntax = \"proto3\"; package e.v1; message A { string x = 1; reserved 2; }",
    )])
    .unwrap();
    let report = chapar_compat::proto::diff(&old, &new, Category::File);
    assert_eq!(
        (report.findings[0].rule.as_str(), report.findings[0].pointer.as_str()),
        ("FIELD_NO_DELETE", "e.v1.proto:e.v1.A")
    );
    assert!(report.steps.iter().any(|step| step.contains("v2")));
    assert!(chapar_compat::proto::diff(&old, &new, Category::Wire).passes());
}
