//! Contracts of consumers, second versions and declared code: what can be wrong with them.
#![allow(clippy::unwrap_used, reason = "a test may stop here")]

mod support;

use chapar_catalog::policy::{self, Policy};
use chapar_catalog::{MAX_SCHEMA, load};
use chapar_core::catalog::Rule;
use support::{BOOKING, CODE, CONTRACT, EXAMPLE, House};

#[test]
fn a_grown_house_is_without_mistakes() {
    let house = House::grown();
    let loaded = load(house.path()).unwrap();
    assert_eq!(loaded.mistakes, []);
    assert_eq!(loaded.breaches(), []);
    let found = policy::check(house.path(), &loaded, None).unwrap();
    assert_eq!((found.files, found.offences), (1, vec![]));
}

#[test]
fn each_mistake_is_found_at_its_line() {
    // Rule, file, what is changed, into what, and a part of the line that is blamed.
    let cases = [
        (Rule::Syntax, CONTRACT, "fields = [", "fields = ", "fields = "),
        (Rule::UnknownField, CONTRACT, "optional", "optionl", "optionl"),
        (Rule::MissingField, CONTRACT, "fields = [\"/reservationId\"]", "", "[[reads]]"),
        (
            Rule::MissingField,
            CONTRACT,
            "examples = [\"inventory-service/held.json\"]",
            "",
            "[[reads]]",
        ),
        (Rule::Example, CONTRACT, "[\"inventory-service/held.json\"]", "[]", "examples"),
        (Rule::Example, CONTRACT, "service/held.json", "service/hld.json", "subject"),
        (Rule::Example, CONTRACT, "inventory-service/held.json", "../catalog.toml", "subject"),
        (Rule::Example, CONTRACT, "inventory-service/held.json", "/etc/passwd", "subject"),
        (Rule::WrongValue, CONTRACT, "\"/nights\"", "\"nights\"", "optional"),
        (Rule::WrongValue, CONTRACT, "\"/nights\"", "\"/a~2\"", "optional"),
        (Rule::WrongValue, CONTRACT, "\"/nights\"", "7", "optional"),
        (
            Rule::UnknownService,
            CONTRACT,
            "\"inventory-service\"",
            "\"inventry-service\"",
            "service =",
        ),
        (
            Rule::MisplacedService,
            CONTRACT,
            "\"inventory-service\"",
            "\"pricing-service\"",
            "service =",
        ),
        (Rule::Consumer, CONTRACT, "\"inventory-service\"", "\"pricing-service\"", "subject"),
        (Rule::Unregistered, CONTRACT, "held.v1", "gone.v1", "subject"),
        (Rule::Syntax, EXAMPLE, "2", "2,", "}"),
        (Rule::Example, EXAMPLE, "reservationId", "reservation", "subject"),
        (Rule::DualPublish, BOOKING, "until = 2027-01-15", "until = 2027-01-14", "[events.dual"),
        (Rule::DualPublish, BOOKING, "to = \"nights\"", "to = \"night\"", "[events.dual"),
        (Rule::WrongValue, BOOKING, "{ drop = \"/channel\" }", "{ drop = \"channel\" }", "drop"),
        (Rule::WrongValue, BOOKING, "{ drop = \"/channel\" }", "{ }", "{ }"),
        (
            Rule::WrongValue,
            BOOKING,
            "{ drop = \"/channel\" }",
            "{ drop = \"/a\", move = \"/b\" }",
            "move",
        ),
        (
            Rule::UnknownField,
            BOOKING,
            "{ drop = \"/channel\" }",
            "{ drop = \"/a\", to = \"/b\" }",
            "to =",
        ),
        (
            Rule::MissingField,
            BOOKING,
            "{ drop = \"/channel\" }",
            "{ constant = \"/a\" }",
            "constant",
        ),
        (
            Rule::WrongValue,
            BOOKING,
            "{ drop = \"/channel\" }",
            "{ constant = \"/a\", value = 1979-05-27 }",
            "1979",
        ),
        (Rule::WrongValue, BOOKING, "since = 2027-01-01\nuntil", "since = \"soon\"\nuntil", "soon"),
        (Rule::WrongValue, BOOKING, "code = [\"src\"]", "code = \"src\"", "code ="),
        (Rule::UnknownService, BOOKING, "[\"pricing-service\"]", "[\"pricng-service\"]", "calls"),
        (Rule::MissingField, "catalog.toml", "marks = [\"v::\"]", "", "[[vendors]]"),
        (Rule::UnknownField, "catalog.toml", "adapter", "adaptr", "adaptr"),
    ];
    for (rule, file, from, to, line) in cases {
        let house = House::grown();
        house.change(file, from, to);
        let found = load(house.path()).unwrap().mistakes;
        let hit = found.iter().find(|mistake| {
            let name = mistake.place.file.rsplit_once(&*house.path().display().to_string());
            let text = house.text(name.unwrap().1.trim_start_matches('/'));
            let blamed = text.lines().nth(mistake.place.line - 1).unwrap_or_default();
            mistake.rule == rule && blamed.contains(line)
        });
        assert!(hit.is_some(), "{rule}: {from:?} → {to:?}: {found:#?}");
    }
}

#[test]
fn files_that_are_no_text_or_too_large_are_named() {
    let cases: [(Rule, &str, &[u8]); 5] = [
        (Rule::Unreadable, CONTRACT, b"service = \"\xff\""),
        (Rule::Unreadable, EXAMPLE, b"\xef\xbb\xbf{}"),
        (Rule::Syntax, EXAMPLE, b""),
        (Rule::TooLarge, EXAMPLE, &vec![b' '; MAX_SCHEMA + 1]),
        (Rule::TooLarge, CONTRACT, &vec![b'#'; 2 << 20]),
    ];
    for (rule, file, bytes) in cases {
        let house = House::grown();
        house.write(file, bytes);
        let found = load(house.path()).unwrap().mistakes;
        let hit = found.iter().any(|m| m.rule == rule && m.place.file.ends_with(file));
        assert!(hit, "{rule} in {file}: {found:#?}");
    }
}

#[test]
fn code_that_cannot_be_looked_through_is_an_offence_and_not_a_pass() {
    let cases: [(&[u8], &str); 2] =
        [(b"let a = \"\xff\";", "not UTF-8"), (&vec![b' '; 5 << 20], "larger than 4096 KiB")];
    for (bytes, words) in cases {
        let house = House::grown();
        house.write(CODE, bytes);
        let loaded = load(house.path()).unwrap();
        let found = policy::check(house.path(), &loaded, None).unwrap().offences;
        let hit = found.iter().any(|o| o.code == Policy::Catalog && o.message.contains(words));
        assert!(hit, "{words}: {found:#?}");
    }
    let house = House::grown();
    house.change(BOOKING, "code = [\"src\"]", "code = [\"/etc\"]");
    let loaded = load(house.path()).unwrap();
    let found = policy::check(house.path(), &loaded, None).unwrap().offences;
    assert!(found.iter().any(|offence| offence.message.contains("is absolute")), "{found:#?}");
}

#[test]
fn a_contract_about_a_protobuf_event_is_kept_as_well() {
    let house = House::bank();
    let contract = "service = \"position-keeping\"\n[[reads]]\n\
                    subject = \"current-account.account-created.v1\"\n\
                    fields = [\"/account_id\"]\nexamples = [\"created.json\"]\n";
    house.write("consumers/position-keeping.toml", contract.as_bytes());
    house.write("consumers/created.json", b"{ \"account_id\": \"acc-1\" }");
    let loaded = load(house.path()).unwrap();
    assert_eq!((loaded.mistakes.as_slice(), loaded.breaches()), (&[][..], vec![]));
    house.change("proto/events.proto", "account_id = 1", "account = 1");
    let breaches = load(house.path()).unwrap().breaches();
    assert!(
        breaches[0].message().contains("position-keeping reads /account_id of"),
        "{breaches:?}"
    );
    assert!(breaches.iter().any(|breach| breach.reason.contains("refuses the example")));
}
