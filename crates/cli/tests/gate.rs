//! `chapar schema check`, as a team lead puts it into CI: a repository, a change, a verdict.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "gate/house.rs"]
mod house;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use house::{
    HELD_SCHEMA, House, QUOTE, QUOTE_SCHEMA, QUOTES, WINDOW, audited, event, held, quote,
    without_reason,
};

#[test]
fn what_did_not_change_and_what_was_added_passes() {
    let house = House::new();
    assert!(house.found(0).is_empty());
    let mut schema = quote(1);
    schema["properties"]["agent"] = json!({ "type": "string" });
    house.schema(QUOTE_SCHEMA, &schema);
    assert_eq!(house.found(0), [format!("note field-added {QUOTE}")]);
    // A new event breaks no contract.
    let archived = "melmastoon.pricing.quote.archived.v1";
    house.add_event(QUOTES, &event(archived, "domain", "quoteId", "", ""));
    let mut schema = quote(1);
    schema["$id"] = "schemas://pricing/quote/archived/v1".into();
    house.schema("event-schemas/pricing/quote/archived/v1.json", &schema);
    assert_eq!(house.found(0).len(), 1);
}

#[test]
fn a_grown_enum_passes_in_a_domain_event_and_is_to_be_documented() {
    let house = House::new();
    let mut schema = held();
    schema["properties"]["channel"] = json!({ "enum": ["web", "desk", "phone"] });
    house.schema(HELD_SCHEMA, &schema);
    let (code, out, _) = house.check(&["--against", "HEAD"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("enum-widened") && out.contains("CHANGELOG.events.md"), "{out}");
}

#[test]
fn a_grown_enum_of_an_integration_event_needs_the_setting_and_an_entry() {
    let house = House::new();
    let with = |values: &[&str]| {
        let mut schema = quote(1);
        schema["properties"]["state"] = json!({ "type": "string", "enum": values });
        schema
    };
    house.schema(QUOTE_SCHEMA, &with(&["open", "taken"]));
    house.commit();
    house.schema(QUOTE_SCHEMA, &with(&["open", "taken", "late"]));
    let breaking = [format!("breaking enum-widened {QUOTE}")];
    assert_eq!(house.found(1), breaking, "a contract between contexts");

    house.write("catalog.toml", &(house.read("catalog.toml") + "widened_enums = true\n"));
    assert_eq!(house.found(1), breaking, "there is no entry yet");
    let (code, out, err) = house.check(&["--against", "HEAD", "--changelog"]);
    assert_eq!(code, 0, "{out}{err}");
    let log = house.read("CHANGELOG.events.md");
    assert!(log.contains(&format!("`{QUOTE}` /properties/state: \"late\" can occur now")), "{log}");
    assert_eq!(house.found(0), [format!("note enum-widened {QUOTE}")]);
    assert_eq!(house.check(&["--against", "HEAD", "--changelog"]).0, 0);
    assert_eq!(house.read("CHANGELOG.events.md"), log, "an entry is written once");

    // A consumer that says which values it handles is broken by another one.
    house.write(
        "consumers/analytics-service.toml",
        &format!(
            "service = \"analytics-service\"\n\n[[reads]]\nsubject = \"{QUOTE}\"\n\
             fields = [\"/quoteId\"]\noptional = [\"/state\"]\n\
             values = [{{ field = \"/state\", only = [\"open\", \"taken\"] }}]\n\
             examples = [\"analytics-service/quote.json\"]\n"
        ),
    );
    house.write("consumers/analytics-service/quote.json", "{ \"quoteId\": \"q1\" }");
    let found = house.found(1);
    assert!(found.contains(&format!("breaking consumer-contract {QUOTE}")), "{found:?}");
    let (_, out, _) = house.check(&["--against", "HEAD"]);
    assert!(out.contains("does not handle late"), "{out}");
    house.schema(QUOTE_SCHEMA, &with(&["open", "taken"]));
    assert_eq!(house.found(0), [""; 0]);
}

#[test]
fn a_removed_field_fails_with_subject_pointer_and_the_version_it_needs() {
    let house = House::new();
    house.schema(QUOTE_SCHEMA, &without_reason());
    let (code, out, _) = house.check(&["--against", "HEAD", "--format", "json"]);
    assert_eq!(code, 1, "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["verdict"], "breaking");
    let finding = &report["findings"][0];
    assert_eq!(finding["rule"], "field-removed", "{out}");
    assert_eq!(finding["subject"], QUOTE);
    assert_eq!(finding["pointer"], "/properties/reason");
    assert!(finding.get("counterexample").is_some(), "{out}");
    assert!(finding["reason"].as_str().unwrap().contains("needs v2"), "{out}");

    let (_, text, _) = house.check(&["--against", "HEAD"]);
    for step in ["event-schemas/pricing/quote/expired/v2.json", "replaced_by", "7 silent days"] {
        assert!(text.contains(step), "{step}: {text}");
    }
    let (code, github, _) = house.check(&["--against", "HEAD", "--format", "github"]);
    assert_eq!(code, 1);
    let start =
        "::error file=systems/toy/catalog/pricing-service.toml,line=5,title=field-removed::";
    assert!(github.starts_with(start), "{github}");
}

#[test]
fn a_tightened_range_needs_an_audit_of_that_event() {
    let house = House::new();
    let mut schema = held();
    schema["properties"]["nights"]["maximum"] = 30.into();
    house.schema(HELD_SCHEMA, &schema);
    let subject = "melmastoon.reservation.booking.held.v1";
    assert_eq!(house.found(1), [format!("audit range-tightened {subject}")]);
    let (code, out, _) = house.check(&["--against", "HEAD", "--audited", subject]);
    assert_eq!(code, 0, "{out}");
    assert_eq!(house.check(&["--against", "HEAD", "--audited", "nothing.v1"]).0, 2);
}

#[test]
fn a_new_version_passes_beside_the_old_one_and_fails_without_its_deprecation() {
    let house = House::new();
    house.bump(true);
    assert!(house.found(0).is_empty());
    let house = House::new();
    house.bump(false);
    assert_eq!(
        house.found(1),
        [format!("breaking bump-without-dual-publish {}", QUOTE.replace("v1", "v2"))]
    );
    // Deprecated, but without dual publication of the old version.
    let house = House::new();
    house.bump(true);
    house.write(QUOTES, &house.read(QUOTES).replace(WINDOW, ""));
    let (code, out, _) = house.check(&["--against", "HEAD"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("no dual_publish entry") && out.contains("dual_publish on"), "{out}");
    // The released version itself stays as it is, also beside a new one.
    let house = House::new();
    house.bump(true);
    house.schema(QUOTE_SCHEMA, &without_reason());
    assert!(house.found(1).contains(&format!("breaking field-removed {QUOTE}")));
}

#[test]
fn the_way_back_to_the_old_version_is_tried_on_every_example() {
    let house = House::new();
    house.bump(true);
    let second = QUOTE_SCHEMA.replace("v1", "v2");
    let mut schema = quote(2);
    schema["required"] = json!(["quoteId", "guest"]);
    schema["properties"] = json!({
        "quoteId": { "type": "string" },
        "guest": { "type": "object", "properties": { "why": { "type": "string" } } }
    });
    schema["examples"] = json!([{ "quoteId": "q-1", "guest": { "why": "too late" } }]);
    house.schema(&second, &schema);
    let mut first = quote(1);
    first["required"] = json!(["quoteId", "reason"]);
    first["examples"] = json!([{ "quoteId": "q-1", "reason": "late" }]);
    house.schema(QUOTE_SCHEMA, &first);
    let file = house.read(QUOTES);
    let mistakes = |steps: &str| {
        house.write(QUOTES, &file.replace("convert = []", &format!("convert = [{steps}]")));
        let output = house.chapar(&["catalog", "check"]);
        String::from_utf8(output.stdout).unwrap()
    };
    let moved = "{ move = \"/guest/why\", to = \"/reason\" }";
    let said = mistakes("");
    assert!(said.contains("pricing-service.toml:22:1: converted, example 1 is not"), "{said}");
    let said = mistakes(moved);
    assert!(said.contains("('guest' was unexpected)"), "the old version is closed: {said}");
    // The reason may be missing in the new version, and not in the old one.
    let said = mistakes(&format!("{moved}, {{ drop = \"/guest\" }}"));
    assert!(said.contains("example 1 without /guest/why") && said.contains("reason"), "{said}");
    let filled = "{ default = \"/reason\", value = \"unknown\" }";
    assert_eq!(mistakes(&format!("{moved}, {{ drop = \"/guest\" }}, {filled}")), "");

    let said = mistakes("{ turn = \"/a\" }");
    assert!(said.contains("a step is one of rename, move, drop, default, constant"), "{said}");
    let said = mistakes("{ drop = \"guest\" }");
    assert!(said.contains("\"guest\" is not a JSON pointer"), "{said}");
    let short = file.replace("2027-02-14", "2027-02-13");
    house.write(QUOTES, &short);
    let output = house.chapar(&["catalog", "check"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("the window has 13 days") && said.contains("at least 14"), "{said}");
    house.write("catalog.toml", &(house.read("catalog.toml") + "dual_publish_days = 7\n"));
    let output = house.chapar(&["catalog", "check"]);
    assert!(!String::from_utf8(output.stdout).unwrap().contains("the window"));
}

#[test]
fn a_deprecated_version_is_retired_when_its_consumers_have_cut_over() {
    let house = House::new();
    house.bump(true);
    house.commit();
    let file = house.read(QUOTES);
    let (head, events) = file.split_once("\n[[events]]").unwrap();
    let (_, second) = events.split_once("\n[[events]]").unwrap();
    let retired = format!("{head}\n[[events]]{}", second.replace(WINDOW, ""));
    fs::remove_file(house.path(QUOTE_SCHEMA)).unwrap();

    house.write(QUOTES, &retired);
    let (code, out, _) = house.check(&["--against", "HEAD"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("analytics-service accepts v1, which no longer exists"), "{out}");

    house.write(QUOTES, &retired.replace("[1, 2]", "[2]"));
    assert_eq!(house.found(0), [format!("note event-retired {QUOTE}")]);

    house.write(QUOTES, &retired.replace("[1, 2]", "[2]").replace("analytics", "billing"));
    let (code, out, _) = house.check(&["--against", "HEAD"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("analytics-service accepts v1"), "{out}");
}

#[test]
fn removed_weakened_and_moved_events_fail_all_at_once() {
    let house = House::new();
    let file = house.read(QUOTES).replace("integration", "domain");
    house.write(QUOTES, &file);
    let file = "catalog/reservation-service.toml";
    let held = house.read(file);
    house.write(file, held.split("[[events]]").next().unwrap());
    fs::remove_file(house.path(HELD_SCHEMA)).unwrap();
    assert_eq!(
        house.found(1),
        [
            format!("breaking kind-weakened {QUOTE}"),
            "breaking event-removed melmastoon.reservation.booking.held.v1".to_owned(),
        ]
    );
    let (_, out, _) = house.check(&["--against", "HEAD", "--format", "github"]);
    // Its place is named in the working tree, not where the revision was read.
    assert!(out.contains("file=systems/toy/catalog/reservation-service.toml,line="), "{out}");
    assert!(out.contains("inventory-service, pricing-service"), "{out}");

    let house = House::new();
    house.write(
        "catalog/billing-service.toml",
        &house.read(QUOTES).replace("pricing-s", "billing-s"),
    );
    fs::remove_file(house.path(QUOTES)).unwrap();
    assert!(house.found(1).contains(&format!("breaking owner-changed {QUOTE}")));
}

#[test]
fn what_cannot_be_compared_is_a_wrong_usage() {
    let house = House::new();
    for revision in ["no-such-revision", "--all", ""] {
        let against = format!("--against={revision}");
        let (code, out, err) = house.check(&[&against]);
        assert_eq!((code, out.as_str()), (2, ""), "{revision}: {err}");
    }
    fs::write(house.folder.path().join("bundle.json"), "{").unwrap();
    assert_eq!(house.check(&["--against", "bundle.json"]).0, 2);
    assert_eq!(house.check(&["--against", "HEAD", "--system", "nowhere"]).0, 2);
    fs::remove_dir_all(house.folder.path().join(".git")).unwrap();
    let (code, _, err) = house.check(&["--against", "HEAD"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("not in a Git repository"), "{err}");
}

#[test]
fn a_released_bundle_is_an_old_side_too() {
    let house = House::new();
    let made = house.chapar(&["schema", "bundle", "--system", "toy", "--out", "released.json"]);
    assert!(made.status.success());
    assert_eq!(house.check(&["--against", "released.json"]).0, 0);
    house.schema(QUOTE_SCHEMA, &without_reason());
    let (code, out, _) = house.check(&["--against", "released.json"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("field-removed") && out.contains("needs v2"), "{out}");
    // A bundle does not list consumers, so a contract that is gone may be anybody's.
    fs::remove_file(house.path(QUOTES)).unwrap();
    fs::remove_file(house.path(QUOTE_SCHEMA)).unwrap();
    let (code, out, _) = house.check(&["--against", "released.json"]);
    assert!(code == 1 && out.contains("event-removed"), "{out}");
    // An edited bundle is refused.
    let released = house.folder.path().join("released.json");
    let edited = fs::read_to_string(&released).unwrap().replace("not taken", "never taken");
    fs::write(&released, edited).unwrap();
    let (code, _, err) = house.check(&["--against", "released.json"]);
    assert!(code == 2 && err.contains("was changed"), "{err}");
}

#[test]
fn a_new_system_passes_and_a_broken_catalog_does_not() {
    let house = House::new();
    let systems = house.folder.path().join("systems");
    fs::rename(systems.join("toy"), systems.join("game")).unwrap();
    let (code, _, err) = house.check(&["--system", "game", "--against", "HEAD"]);
    assert_eq!(code, 2, "a flag given twice is a mistake: {err}");
    let output = house.chapar(&["schema", "check", "--system", "game", "--against", "HEAD"]);
    assert!(output.status.success());
    fs::rename(systems.join("game"), systems.join("toy")).unwrap();
    house.write(QUOTES, "service = ");
    assert!(house.found(1).iter().any(|found| found.starts_with("unknown syntax")));
}

#[test]
fn a_bypass_needs_a_lead_an_incident_and_a_store_and_is_audited() {
    let house = House::new();
    house.schema(QUOTE_SCHEMA, &without_reason());
    let (lead, incident) = (["--bypass-lead", "A. Lead"], ["--bypass-incident", "INC-42"]);
    let against = ["--against", "HEAD"];
    let store = format!("sqlite:{}", house.folder.path().join("audit.db").display());
    let kept = ["--store", store.as_str()];
    assert_eq!(house.check(&[against, lead, kept].concat()).0, 2);
    assert_eq!(house.check(&[against, incident, kept].concat()).0, 2);
    let (code, _, err) = house.check(&[against, lead, incident].concat());
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("recorded in the audit log"), "{err}");
    // A store without tables cannot record, so nothing gets through.
    assert_eq!(house.check(&[against, lead, incident, kept].concat()).0, 2);

    assert!(house.chapar(&["migrate", "apply", "--store", &store]).status.success());
    let (code, out, err) = house.check(&[against, lead, incident, kept].concat());
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.starts_with("breaking") && err.contains("BYPASS"), "{out}{err}");
    assert!(err.contains("A. Lead") && err.contains("INC-42"), "{err}");
    let rows = audited(&store);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0][..4], ["A. Lead", "schema.check.bypass", "toy", "INC-42"]);
    assert!(rows[0][4].contains(QUOTE) && rows[0][4].contains("field-removed"), "{rows:?}");

    // Where nothing is broken, nothing is bypassed.
    house.schema(QUOTE_SCHEMA, &quote(1));
    assert_eq!(house.check(&[against, lead, incident, kept].concat()).0, 0);
    assert_eq!(audited(&store).len(), 1);
}

#[test]
fn a_released_event_keeps_its_ordering_key() {
    let house = House::new();
    let file = house.read(QUOTES);
    let made = house.chapar(&["schema", "bundle", "--system", "toy", "--out", "released.json"]);
    assert!(made.status.success());
    for key in ["none", "guestId"] {
        house.write(QUOTES, &file.replace("\"quoteId\"", &format!("{key:?}")));
        let changed = format!("breaking ordering-key-changed {QUOTE}");
        assert!(house.found(1).contains(&changed), "{key}: {:?}", house.found(1));
        let (code, out, _) = house.check(&["--against", "released.json"]);
        assert!(code == 1 && out.contains("ordering-key-changed"), "{key}: {out}");
    }
}

#[test]
fn a_released_system_keeps_its_key_template() {
    let house = House::new();
    let profile = house.read("profile.toml");
    let other = profile.replace("{tenant}:{aggregate_id}", "{tenant}:own:{aggregate_id}");
    assert_ne!(profile, other);
    let bundle = ["schema", "bundle", "--system", "toy", "--out", "released.json"];
    assert!(house.chapar(&bundle).status.success());
    house.write("profile.toml", &other);
    let (code, out, _) = house.check(&["--against", "released.json"]);
    assert!(code == 1 && out.contains("ordering-key-changed"), "{out}");
    assert_eq!(house.found(1), ["breaking ordering-key-changed "]);
    let (_, out, _) = house.check(&["--against", "HEAD", "--format", "github"]);
    assert!(out.contains("file=systems/toy/profile.toml"), "{out}");
    assert!(out.contains("the ordering key of 2 events"), "{out}");
}

#[test]
fn the_envelope_is_a_contract_of_every_event() {
    let house = House::new();
    let envelope = |fields: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            fields.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect();
        let example: serde_json::Map<String, Value> =
            fields.iter().map(|name| ((*name).to_owned(), json!("x"))).collect();
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "schemas://envelope", "title": "Envelope", "description": "Around it.",
            "type": "object", "required": ["eventId"], "properties": properties,
            "examples": [example],
        })
    };
    house
        .write("catalog.toml", &format!("{}envelope = \"envelope\"\n", house.read("catalog.toml")));
    house.schema("event-schemas/envelope.json", &envelope(&["eventId", "actorId"]));
    house.commit();
    assert_eq!(house.found(0), [""; 0]);
    let bundle = ["schema", "bundle", "--system", "toy", "--out", "released.json"];
    assert!(house.chapar(&bundle).status.success());
    house.schema("event-schemas/envelope.json", &envelope(&["eventId", "actorId", "more"]));
    assert_eq!(house.found(0), ["note field-added "]);
    house.schema("event-schemas/envelope.json", &envelope(&["eventId"]));
    assert_eq!(house.found(1), ["breaking field-removed "]);
    let (_, out, _) = house.check(&["--against", "HEAD", "--format", "github"]);
    assert!(out.contains("file=systems/toy/event-schemas/envelope.json"), "{out}");
    let (code, out, _) = house.check(&["--against", "released.json"]);
    assert!(code == 1 && out.contains("field-removed"), "{out}");
    let released = house.folder.path().join("released.json");
    let edited = fs::read_to_string(&released).unwrap().replacen("Around it", "Around  it", 1);
    fs::write(&released, edited).unwrap();
    let (code, _, said) = house.check(&["--against", "released.json"]);
    assert!(code == 2 && said.contains("the envelope"), "{said}");
}

#[test]
fn a_protobuf_event_keeps_its_message_and_its_constraints() {
    let house = House::new();
    let meridian = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/meridian");
    fs::remove_dir_all(house.path("")).unwrap();
    house.copy(&meridian, "");
    house.commit();
    let bundle = ["schema", "bundle", "--system", "toy", "--out", "released.json"];
    assert!(house.chapar(&bundle).status.success());
    let (catalog, protos) =
        ("catalog/current-account.toml", "proto/meridian/events/v1/current_account_events.proto");
    let (declared, described) = (house.read(catalog), house.read(protos));
    let both = |rule: &str| {
        assert!(house.found(1).iter().any(|found| found.contains(rule)), "{:?}", house.found(1));
        let (code, out, _) = house.check(&["--against", "released.json"]);
        assert!(code == 1 && out.contains(rule), "{out}");
    };

    let swapped = declared.replacen("AccountCreatedEvent", "TransactionInitiatedEvent", 1);
    assert_ne!(swapped, declared);
    house.write(catalog, &swapped);
    both("message-changed");
    house.write(catalog, &declared);

    house.write(protos, &described.replacen("max_len: 100", "max_len: 99", 1));
    both("CONSTRAINT_TIGHTENED");
}

#[test]
fn protobuf_contracts_are_held_to_theirs() {
    let house = House::new();
    let meridian = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/meridian");
    fs::remove_dir_all(house.path("")).unwrap();
    house.copy(&meridian, "");
    house.commit();
    assert!(house.found(0).is_empty());
    let file = "proto/meridian/events/v1/current_account_events.proto";
    let bundle = ["schema", "bundle", "--system", "toy", "--out", "released.json"];
    assert!(house.chapar(&bundle).status.success());
    assert_eq!(house.check(&["--against", "released.json"]).0, 0);
    let field = house.read(file).replacen("string created_by = 8;", "bytes created_by = 8;", 1);
    house.write(file, &field);
    let (code, out, _) = house.check(&["--against", "released.json"]);
    assert!(code == 1 && out.contains("FIELD_SAME_TYPE"), "{out}");
    let found = house.found(1);
    assert!(found.iter().any(|found| found.starts_with("breaking FIELD_SAME_TYPE")), "{found:?}");
}
