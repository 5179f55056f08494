//! The evolution tables of the hotel and of the learning platform, row by row.
#![allow(clippy::unwrap_used, reason = "tests")]

use chapar_compat::{
    Direction, Finding, Kind, Report, Request, Schema, Severity, Verdict, Writers, diff,
};
use serde_json::{Value, json};

fn base() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": false,
        "required": ["reservationId", "nights"],
        "properties": {
            "reservationId": { "type": "string", "pattern": "^rsv_[0-9a-z]{8}$" },
            "nights": { "type": "integer", "minimum": 1, "maximum": 90 },
            "status": { "enum": ["confirmed", "cancelled"] },
            "note": { "type": "string" }
        }
    })
}

fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut schema = base();
    change(&mut schema);
    schema
}

fn compare(kind: Kind, old: Value, new: Value) -> Report {
    let old = Schema::from_value("reservation.confirmed.v1.json", old).unwrap();
    let new = Schema::from_value("new.json", new).unwrap();
    diff(&Request::new(&old, &new).kind(kind))
}

fn find<'r>(report: &'r Report, rule: &str) -> &'r Finding {
    report
        .findings
        .iter()
        .find(|finding| finding.rule == rule)
        .unwrap_or_else(|| panic!("no {rule} in {report:#?}"))
}

fn assert_breaking(new: Value, rule: &str, pointer: &str) {
    for kind in [Kind::Domain, Kind::Integration] {
        let report = compare(kind, base(), new.clone());
        assert_eq!(report.verdict, Verdict::Breaking, "{kind:?} {report:#?}");
        let finding = find(&report, rule);
        assert_eq!(
            (finding.severity, finding.pointer.as_str()),
            (Severity::Breaking, pointer),
            "{kind:?}"
        );
        assert!(finding.counterexample.is_some(), "{kind:?} {finding:?}");
        assert!(report.steps.iter().any(|step| step.contains("v2")), "{:?}", report.steps);
    }
}

#[test]
fn adding_an_optional_field_with_a_default_is_allowed() {
    let new = changed(|schema| {
        schema["properties"]["breakfast"] = json!({ "type": "boolean", "default": false })
    });
    for kind in [Kind::Domain, Kind::Integration] {
        let report = compare(kind, base(), new.clone());
        assert_eq!(report.verdict, Verdict::Compatible, "{report:#?}");
        assert_eq!(find(&report, "field-added").severity, Severity::Note);
    }
}

#[test]
fn adding_an_enum_value_is_noted_for_the_changelog_and_breaks_integration_readers() {
    let new = changed(|schema| {
        schema["properties"]["status"]["enum"] = json!(["confirmed", "cancelled", "no-show"])
    });
    let report = compare(Kind::Domain, base(), new.clone());
    assert_eq!(report.verdict, Verdict::Compatible, "{report:#?}");
    assert_eq!(find(&report, "enum-widened").severity, Severity::Note);
    assert!(report.steps.iter().any(|step| step.contains("CHANGELOG.events.md")));

    let report = compare(Kind::Integration, base(), new.clone());
    assert_eq!(report.verdict, Verdict::Breaking);
    assert_eq!(
        find(&report, "enum-widened").counterexample.as_ref().unwrap()["status"],
        json!("no-show")
    );

    let extensible = |mut schema: Value| {
        schema["properties"]["status"]["x-extensible-enum"] = json!(true);
        schema
    };
    let report = compare(Kind::Integration, extensible(base()), extensible(new));
    assert_eq!(report.verdict, Verdict::Compatible, "{report:#?}");
}

#[test]
fn tightening_a_range_or_a_pattern_needs_an_audit() {
    let range = changed(|schema| schema["properties"]["nights"]["maximum"] = json!(30));
    let pattern = changed(|schema| {
        schema["properties"]["reservationId"]["pattern"] = json!("^rsv_[0-9]{8}$")
    });
    for (new, rule) in [(range, "range-tightened"), (pattern, "pattern-tightened")] {
        let report = compare(Kind::Domain, base(), new.clone());
        assert_eq!(report.verdict, Verdict::Breaking);
        assert_eq!(find(&report, rule).severity, Severity::Audit);
        assert!(find(&report, rule).counterexample.is_some());
        assert!(report.steps.iter().any(|step| step.contains("--audited")));

        let (old, new) =
            (Schema::from_value("old", base()).unwrap(), Schema::from_value("new", new).unwrap());
        let report = diff(&Request::new(&old, &new).audited(true));
        assert_eq!(report.verdict, Verdict::Compatible, "{report:#?}");
    }
}

#[test]
fn a_format_is_asserted_wherever_a_schema_can_stand() {
    let text = |format: Option<&str>| match format {
        Some(format) => json!({ "type": "string", "format": format }),
        None => json!({ "type": "string" }),
    };
    // Where the schema stands, and an instance around the value there.
    let places: [fn(Value) -> Value; 7] = [
        |one| one,
        |one| json!({ "anyOf": [one, { "type": "null" }] }),
        |one| json!({ "oneOf": [one, { "type": "null" }] }),
        |one| json!({ "type": "object", "additionalProperties": one }),
        |one| json!({ "type": "object", "patternProperties": { "^a": one } }),
        |one| json!({ "type": "array", "prefixItems": [one] }),
        |one| json!({ "type": "array", "items": one }),
    ];
    for place in places {
        let schema = |format| changed(|schema| schema["properties"]["note"] = place(text(format)));
        for (old, new) in [(None, Some("uuid")), (Some("date"), Some("date-time"))] {
            let report = compare(Kind::Domain, schema(old), schema(new));
            assert_eq!(report.verdict, Verdict::Breaking, "{} {report:#?}", schema(new));
            assert!(report.findings.iter().any(|found| found.counterexample.is_some()));
        }
        let report = compare(Kind::Domain, schema(Some("uuid")), schema(None));
        assert_eq!(report.verdict, Verdict::Compatible, "{} {report:#?}", schema(None));
        let report = compare(Kind::Integration, schema(Some("uuid")), schema(None));
        assert_eq!(report.verdict, Verdict::Breaking, "{} {report:#?}", schema(None));
        let same = changed(|schema| {
            schema["properties"]["note"] = place(text(Some("uuid")));
            schema["properties"]["nights"]["maximum"] = json!(100);
        });
        let report = compare(Kind::Domain, schema(Some("uuid")), same);
        assert_eq!(report.verdict, Verdict::Compatible, "{report:#?}");
    }
}

#[test]
fn a_tightened_format_needs_an_audit_and_an_unknown_one_is_an_annotation() {
    let with =
        |format: &str| changed(|schema| schema["properties"]["note"]["format"] = json!(format));
    let report = compare(Kind::Domain, base(), with("uuid"));
    assert_eq!(find(&report, "format-tightened").severity, Severity::Audit);
    let old = Schema::from_value("old", base()).unwrap();
    let new = Schema::from_value("new", with("uuid")).unwrap();
    let report = diff(&Request::new(&old, &new).audited(true));
    assert_eq!(report.verdict, Verdict::Compatible, "{report:#?}");

    let report = compare(Kind::Integration, base(), with("room-number"));
    assert_eq!(report.verdict, Verdict::Compatible, "{report:#?}");
    assert_eq!(find(&report, "format-changed").severity, Severity::Note);

    // Listed values are checked one by one.
    let listed =
        |values: Value| changed(|schema| schema["properties"]["note"] = json!({ "enum": values }));
    let dated = with("date");
    let report = compare(Kind::Domain, listed(json!(["2026-01-31"])), dated.clone());
    assert!(report.findings.iter().all(|found| found.severity != Severity::Audit), "{report:#?}");
    let report = compare(Kind::Domain, listed(json!(["2026-01-31", "soon"])), dated);
    assert_eq!(find(&report, "format-tightened").counterexample.as_ref().unwrap()["note"], "soon");
}

#[test]
fn making_an_optional_field_required_is_breaking() {
    let new = changed(|schema| schema["required"] = json!(["reservationId", "nights", "note"]));
    assert_breaking(new, "optional-made-required", "/properties/note");
}

#[test]
fn adding_a_required_field_is_breaking() {
    let new = changed(|schema| {
        schema["required"] = json!(["reservationId", "nights", "guest"]);
        schema["properties"]["guest"] = json!({ "type": "string" });
    });
    assert_breaking(new, "required-field-added", "/properties/guest");
}

#[test]
fn removing_a_field_is_breaking_even_where_it_is_optional() {
    let remove = |name: &str| {
        changed(|schema| {
            schema["properties"].as_object_mut().unwrap().remove(name);
            schema["required"].as_array_mut().unwrap().retain(|required| required != name);
        })
    };
    assert_breaking(remove("note"), "field-removed", "/properties/note");
    assert_breaking(remove("nights"), "field-removed", "/properties/nights");
}

#[test]
fn changing_a_type_is_breaking_even_to_a_wider_one() {
    let narrower = changed(|schema| schema["properties"]["nights"] = json!({ "type": "string" }));
    assert_breaking(narrower, "type-changed", "/properties/nights");
    let wider = changed(|schema| schema["properties"]["note"]["type"] = json!(["string", "null"]));
    assert_breaking(wider, "type-changed", "/properties/note");
}

#[test]
fn renaming_a_field_is_breaking_and_called_by_its_name() {
    let new = changed(|schema| {
        let note = schema["properties"].as_object_mut().unwrap().remove("note").unwrap();
        schema["properties"]["remark"] = note;
    });
    assert_breaking(new, "field-renamed", "/properties/note");
}

#[test]
fn changing_the_event_type_is_another_subject() {
    let old =
        changed(|schema| schema["x-event-type"] = json!("melmastoon.reservation.confirmed.v1"));
    let new = changed(|schema| schema["x-event-type"] = json!("melmastoon.booking.confirmed.v1"));
    let report = compare(Kind::Domain, old, new);
    assert_eq!(report.verdict, Verdict::Breaking);
    assert_eq!(find(&report, "event-type-changed").severity, Severity::Breaking);
    assert!(report.steps[0].contains("another subject"), "{:?}", report.steps);
}

#[test]
fn narrowing_an_enum_is_breaking() {
    let new = changed(|schema| schema["properties"]["status"]["enum"] = json!(["confirmed"]));
    assert_breaking(new, "enum-narrowed", "/properties/status");
}

#[test]
fn a_change_of_meaning_is_declared_and_breaking() {
    let old = changed(|schema| schema["properties"]["nights"]["x-semantics"] = json!(1));
    let new = changed(|schema| schema["properties"]["nights"]["x-semantics"] = json!(2));
    for kind in [Kind::Domain, Kind::Integration] {
        let report = compare(kind, old.clone(), new.clone());
        assert_eq!(report.verdict, Verdict::Breaking);
        assert_eq!(find(&report, "semantics-changed").pointer, "/properties/nights");
    }
}

#[test]
fn deprecating_an_event_is_allowed_and_a_new_event_too() {
    let report =
        compare(Kind::Integration, base(), changed(|schema| schema["deprecated"] = json!(true)));
    assert_eq!(report.verdict, Verdict::Compatible, "{report:#?}");
    assert_eq!(find(&report, "event-deprecated").severity, Severity::Note);
    let report = compare(Kind::Domain, json!(false), base());
    assert_eq!(report.verdict, Verdict::Compatible, "{report:#?}");
    assert_eq!(find(&report, "event-added").severity, Severity::Note);
}

#[test]
fn integration_readers_rely_on_what_domain_readers_do_not() {
    let new = changed(|schema| schema["required"] = json!(["reservationId"]));
    assert_eq!(compare(Kind::Domain, base(), new.clone()).verdict, Verdict::Compatible);
    let report = compare(Kind::Integration, base(), new);
    assert_eq!(find(&report, "required-made-optional").pointer, "/properties/nights");
}

#[test]
fn with_any_writers_a_new_optional_field_may_meet_an_old_one_of_the_same_name() {
    let (old, new) = (
        json!({ "type": "object" }),
        json!({ "type": "object", "properties": { "x": { "type": "string" } } }),
    );
    let (old, new) =
        (Schema::from_value("old", old).unwrap(), Schema::from_value("new", new).unwrap());
    let ask = |direction| {
        diff(&Request::new(&old, &new).kind(Kind::Bare).writers(Writers::Any).direction(direction))
    };
    assert_eq!(ask(Direction::Forward).verdict, Verdict::Compatible);
    let report = ask(Direction::Backward);
    assert_eq!(report.verdict, Verdict::Breaking, "{report:#?}");
    let example = find(&report, "open-name-claimed").counterexample.as_ref().unwrap();
    assert!(!example["x"].is_string() && example.get("x").is_some(), "{example}");
}

#[test]
fn the_output_has_the_promised_members() {
    let report = compare(
        Kind::Domain,
        base(),
        changed(|schema| schema["properties"]["nights"] = json!({ "type": "string" })),
    );
    let json = report.to_json();
    assert_eq!(json["verdict"], "breaking");
    let finding = &json["findings"][0];
    assert_eq!(
        (&finding["rule"], &finding["pointer"]),
        (&json!("type-changed"), &json!("/properties/nights"))
    );
    assert!(finding["reason"].is_string() && finding["counterexample"].is_object());
    let github = report.to_github("a,b.json");
    assert!(
        github.starts_with("::error file=a%2Cb.json,title=type-changed::/properties/nights"),
        "{github}"
    );
    assert!(report.to_human().starts_with("breaking\n"));
}
