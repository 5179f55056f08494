//! Every mistake is found, all of them in one run, each with its file and line.
#![allow(clippy::unwrap_used, reason = "a test may stop here")]

mod support;

use std::collections::BTreeSet;
use std::fs;

use chapar_catalog::{LoadError, MAX_SCHEMA, load};
use chapar_core::catalog::Rule;
use support::{BOOKING, House, SCHEMA, STAY};

/// Makes one change to a file of a flawless system, and expects one mistake at a line that
/// holds a text.
struct Case {
    rule: Rule,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// A part of the line that the mistake is reported at.
    line: &'static str,
}

const fn case(
    rule: Rule,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    line: &'static str,
) -> Case {
    Case { rule, file, from, to, line }
}

const HELD: &str = "subject = \"melmastoon.reservation.booking.held.v1\"";

const CASES: &[Case] = &[
    case(Rule::Syntax, BOOKING, "kind = \"integration\"", "kind = integration\"", "kind ="),
    case(Rule::Syntax, SCHEMA, "\"type\": \"object\",", "\"type\": \"object\"", "\"required\""),
    case(
        Rule::Syntax,
        SCHEMA,
        "\"type\": \"object\",",
        "\"type\": 1, \"type\": \"object\",",
        "\"type\": 1",
    ),
    case(Rule::MissingField, BOOKING, "trigger = \"A room is held.\"", "", "[[events]]"),
    case(Rule::MissingField, SCHEMA, "\"title\": \"Held\",", "", "{"),
    case(Rule::UnknownField, BOOKING, "volume = ", "volum = \"low\"\nvolume = ", "volum = "),
    case(Rule::WrongValue, BOOKING, "volume = \"low\"", "volume = \"loud\"", "loud"),
    case(Rule::WrongValue, BOOKING, "volume = \"low\"", "volume = 3", "volume = 3"),
    case(
        Rule::UnknownService,
        BOOKING,
        "[\"inventory-service\"]",
        "[\"inventry-service\"]",
        "inventry",
    ),
    case(
        Rule::MisplacedService,
        BOOKING,
        "service = \"reservation-service\"",
        "service = \"pricing-service\"",
        "service =",
    ),
    case(Rule::Subject, BOOKING, ".held.v1\"", ".hold.v1\"", ".hold.v1"),
    case(Rule::Owner, BOOKING, HELD, "subject = \"melmastoon.pricing.booking.held.v1\"", "pricing"),
    case(Rule::Retention, BOOKING, "retention = \"warm\"", "retention = \"tepid\"", "tepid"),
    case(Rule::Retention, BOOKING, "retention = \"warm\"", "retention = \"cold\"", "held.v1"),
    case(Rule::Residency, BOOKING, "volume = ", "residency = \"mars\"\nvolume = ", "mars"),
    case(
        Rule::Consumer,
        BOOKING,
        "[\"inventory-service\"]",
        "[\"reservation-service\"]",
        "consumers",
    ),
    case(
        Rule::Consumer,
        BOOKING,
        "[\"inventory-service\"]",
        "[\"pricing-service\", \"pricing-service\"]",
        "consumers",
    ),
    case(
        Rule::AcceptedVersion,
        BOOKING,
        "\"inventory-service\"",
        "{ service = \"inventory-service\", accepts = [1, 2] }",
        "accepts",
    ),
    case(
        Rule::AcceptedVersion,
        BOOKING,
        "\"inventory-service\"",
        "{ service = \"inventory-service\", accepts = [] }",
        "accepts",
    ),
    case(Rule::NoConsumers, BOOKING, "consumers = [\"inventory-service\"]", "", "held.v1"),
    case(
        Rule::Deprecation,
        BOOKING,
        "consumers = ",
        "deprecated = { since = 2027-01-31, replaced_by = \"melmastoon.reservation.booking.held.v2\" }\nconsumers = ",
        "held.v1",
    ),
    case(
        Rule::MissingField,
        BOOKING,
        "consumers = ",
        "deprecated = { since = 2027-01-31 }\nconsumers = ",
        "deprecated",
    ),
    case(
        Rule::MissingField,
        BOOKING,
        "consumers = ",
        "deprecated = { replaced_by = \"x.y.z\" }\nconsumers = ",
        "deprecated",
    ),
    case(Rule::Untenanted, BOOKING, "volume = ", "untenanted = true\nvolume = ", "untenanted"),
    case(
        Rule::DualPublish,
        BOOKING,
        "consumers = [\"inventory-service\"]\n",
        "consumers = [\"inventory-service\"]\n[events.dual_publish]\nsince = 2027-01-01\n\
         until = 2027-02-01\nrelease = \"2\"\n",
        "[events.dual_publish]",
    ),
    case(Rule::Encoding, BOOKING, "consumers = ", "message = \"a.B\"\nconsumers = ", "message"),
    case(Rule::Schema, SCHEMA, "\"type\": \"object\"", "\"type\": \"thing\"", "thing"),
    case(Rule::Schema, SCHEMA, "2020-12/schema", "2019-09/schema", "2019-09"),
    case(Rule::Schema, SCHEMA, "\"minLength\": 1", "\"pattern\": \"(\"", "pattern"),
    case(Rule::SchemaId, SCHEMA, "booking/held/v1", "booking/held/v2", "$id"),
    case(
        Rule::AcceptsEmpty,
        SCHEMA,
        "\"required\": [\"reservationId\"]",
        "\"required\": []",
        "required",
    ),
    case(
        Rule::OrderingKey,
        SCHEMA,
        "\"required\": [\"reservationId\"]",
        "\"required\": [\"nights\"]",
        "required",
    ),
    case(
        Rule::RemoteRef,
        SCHEMA,
        "\"minLength\": 1",
        "\"$ref\": \"https://else.where/id\"",
        "else.where",
    ),
    case(
        Rule::RefCycle,
        SCHEMA,
        "\"minLength\": 1",
        "\"$ref\": \"#/properties/reservationId\"",
        "$ref",
    ),
    case(Rule::Example, SCHEMA, "\"reservationId\": \"res_1\"", "\"reservationId\": 7", "7"),
    case(
        Rule::Example,
        SCHEMA,
        "[{ \"reservationId\": \"res_1\", \"nights\": 2 }]",
        "[]",
        "examples",
    ),
    case(
        Rule::CrossTenant,
        "catalog/search-aggregation-service.toml",
        "bff-consumer-service",
        "pricing-service",
        "pricing",
    ),
    case(Rule::Provenance, "catalog/ai-orchestrator-service.toml", "provenance = true", "", "hitl"),
];

#[test]
fn a_flawless_house_has_no_mistakes() {
    let house = House::new();
    let loaded = load(house.path()).unwrap();
    assert_eq!(loaded.mistakes, []);
    assert_eq!(loaded.catalog.events().count(), 4);
}

#[test]
fn each_mistake_is_found_at_its_line() {
    for case in CASES {
        let house = House::new();
        house.change(case.file, case.from, case.to);
        let found = load(house.path()).unwrap().mistakes;
        let text = house.text(case.file);
        let hit = found.iter().find(|mistake| {
            let line = text.lines().nth(mistake.place.line - 1).unwrap_or_default();
            mistake.rule == case.rule
                && mistake.place.file.ends_with(case.file)
                && line.contains(case.line)
        });
        assert!(hit.is_some(), "{} -> {}: {found:#?}", case.from, case.to);
    }
}

#[test]
fn files_themselves_can_be_wrong() {
    type Damage = fn(&House);
    let cases: &[(Rule, &str, Damage)] = &[
        (Rule::Unreadable, STAY, |house| house.write(STAY, b"\xff\xfe{\0}\0")),
        (Rule::Unreadable, STAY, |house| house.write(STAY, b"\xef\xbb\xbf{}")),
        (Rule::Unreadable, BOOKING, |house| house.write(BOOKING, b"service = \"\xc3\x28\"")),
        (Rule::Syntax, STAY, |house| house.write(STAY, b"{\"type\": \"obj")),
        (Rule::Syntax, STAY, |house| house.write(STAY, b"")),
        (Rule::TooLarge, STAY, |house| house.write(STAY, &vec![b' '; 10 * MAX_SCHEMA])),
        (Rule::TooLarge, BOOKING, |house| house.write(BOOKING, &vec![b'#'; 2 << 20])),
        (Rule::OrphanSchema, "orphan/v1.json", |house| {
            house.write("event-schemas/orphan/v1.json", b"{}");
        }),
        (Rule::MissingSchema, BOOKING, |house| fs::remove_file(house.path().join(STAY)).unwrap()),
        (Rule::WrongValue, "profile.toml", |house| {
            let text = house.text("catalog.toml");
            house.write("catalog.toml", text.split_once('\n').unwrap().1.as_bytes());
            house.write("profile.toml", b"name = 1");
        }),
        (Rule::UnknownService, "catalog.toml", |house| {
            house.change("catalog.toml", "audit-service", "adit-service");
        }),
        (Rule::DuplicateSubject, BOOKING, |house| {
            let text = house.text(BOOKING);
            let event = &text[text.find("[[events]]").unwrap()..];
            house.write(BOOKING, format!("{text}\n{event}").as_bytes());
        }),
    ];
    for (rule, file, damage) in cases {
        let house = House::new();
        damage(&house);
        let found = load(house.path()).unwrap().mistakes;
        let hit = found.iter().find(|m| m.rule == *rule && m.place.file.ends_with(file));
        assert!(hit.is_some(), "{rule} in {file}: {found:#?}");
    }
}

#[test]
fn every_rule_is_tried_above() {
    let tried: BTreeSet<Rule> = CASES.iter().map(|case| case.rule).collect();
    let by_file = [
        Rule::Unreadable,
        Rule::TooLarge,
        Rule::OrphanSchema,
        Rule::MissingSchema,
        Rule::DuplicateSubject,
        Rule::Constraint,
        // In the tests of the contracts.
        Rule::Unregistered,
    ];
    for rule in Rule::ALL {
        assert!(tried.contains(rule) || by_file.contains(rule), "{rule}");
    }
}

#[test]
fn all_mistakes_of_all_files_come_in_one_run_and_in_order() {
    let house = House::new();
    house.change(BOOKING, "volume = \"low\"", "volume = \"loud\"");
    house.change(BOOKING, "[\"inventory-service\"]", "[\"inventry-service\"]");
    house.change(SCHEMA, "\"minLength\": 1", "\"minLength\": -1");
    house.change(
        "catalog/search-aggregation-service.toml",
        "bff-consumer-service",
        "pricing-service",
    );
    let found = load(house.path()).unwrap().mistakes;
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(found.is_sorted());
    let text = found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(text.contains("did you mean \"inventory-service\"?"), "{text}");
}

#[test]
fn a_broken_file_does_not_hide_its_neighbours_and_blames_no_schema() {
    let house = House::new();
    house.write(BOOKING, b"service = \"reservation-service\"\n[[events]]\nsubject = \"melm");
    house.change(
        "catalog/search-aggregation-service.toml",
        "bff-consumer-service",
        "pricing-service",
    );
    let found = load(house.path()).unwrap().mistakes;
    let rules: Vec<Rule> = found.iter().map(|mistake| mistake.rule).collect();
    assert_eq!(rules, [Rule::Syntax, Rule::CrossTenant], "{found:#?}");
    assert_eq!(found[0].place.line, 3);
}

#[test]
fn a_second_version_takes_over_from_the_first() {
    let house = House::new();
    let two = house.text(BOOKING);
    let event = two[two.find("[[events]]").unwrap()..].replace(".v1", ".v2");
    let first = two.replace(
        "consumers = [\"inventory-service\"]",
        "consumers = [{ service = \"inventory-service\", accepts = [1, 2] }]\n\
         deprecated = { since = 2027-01-31, replaced_by = \"melmastoon.reservation.booking.held.v2\" }",
    );
    house.write(BOOKING, format!("{first}\n{event}").as_bytes());
    let schema = house.text(SCHEMA).replace("held/v1", "held/v2");
    house.write("event-schemas/reservation/booking/held/v2.json", schema.as_bytes());
    let loaded = load(house.path()).unwrap();
    assert_eq!(loaded.mistakes, []);
    let versions = loaded.catalog.versions();
    assert_eq!(versions["melmastoon.reservation.booking.held"].len(), 2);
}

#[test]
fn a_protobuf_system_names_messages_that_exist_with_the_key_they_have() {
    let house = House::bank();
    assert_eq!(load(house.path()).unwrap().mistakes, []);
    let file = "catalog/current-account.toml";
    for (from, to, rule) in [
        ("AccountCreatedEvent", "AccountMadeEvent", Rule::MissingSchema),
        ("key = \"account_id\"", "key = \"accountId\"", Rule::OrderingKey),
        ("message = ", "# message = ", Rule::Encoding),
    ] {
        let house = House::bank();
        house.change(file, from, to);
        let found = load(house.path()).unwrap().mistakes;
        assert_eq!(found.iter().map(|m| m.rule).collect::<Vec<_>>(), [rule], "{found:#?}");
    }
    let house = House::bank();
    house.change("proto/events.proto", "string account_id = 1;", "\n  strng");
    let found = load(house.path()).unwrap().mistakes;
    let syntax = found.iter().find(|mistake| mistake.rule == Rule::Syntax).unwrap();
    assert!(syntax.place.file.ends_with("proto/events.proto") && syntax.place.line > 3, "{syntax}");
}

#[test]
fn a_constraint_that_nobody_enforces_is_a_mistake_and_named() {
    let house = House::bank();
    // As the whole file of the registry has it, and ours does not.
    let options = include_str!("../../../systems/meridian/proto/buf/validate/validate.proto");
    let options = options
        .replace("message StringRules {", "message StringRules {\n  optional string prefix = 7;");
    house.write("proto/buf/validate/validate.proto", options.as_bytes());
    house.change(
        "proto/events.proto",
        "package bank;",
        "package bank;\nimport \"buf/validate/validate.proto\";",
    );
    let with = |constraint: &str| {
        format!("string account_id = 1 [(buf.validate.field).string.{constraint}];")
    };
    house.change("proto/events.proto", "string account_id = 1;", &with("min_len = 1"));
    assert_eq!(load(house.path()).unwrap().mistakes, []);
    house.change("proto/events.proto", &with("min_len = 1"), &with("prefix = \"a\""));
    let found = load(house.path()).unwrap().mistakes;
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].rule, Rule::Constraint);
    let text = found[0].to_string();
    assert!(
        text.contains("bank.AccountCreatedEvent.account_id: the constraint string.prefix"),
        "{text}"
    );
}

#[test]
fn a_folder_without_a_catalog_is_no_system() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(load(folder.path()), Err(LoadError::NoCatalog(_))));
}
