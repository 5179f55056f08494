//! The subjects of every catalog parse under the profile of their system, and a wrong one is
//! answered with a finger on the wrong place.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use chapar_core::subject::Fault;
use chapar_core::{Grammar, Profile, Subject};
use support::profile;

const CATALOGS: [(&str, usize); 4] =
    [("melmastoon", 82), ("learning", 73), ("meridian", 25), ("invoicing", 3)];

#[test]
fn every_subject_of_every_catalog_parses_and_prints_as_it_is() {
    for (name, count) in CATALOGS {
        let profile = profile(name);
        let subjects = catalog(name);
        assert_eq!(subjects.len(), count, "{name}");
        for text in subjects {
            let subject = profile.subject(&text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((subject.as_str(), subject.to_string()), (text.as_str(), text.clone()));
            assert_eq!(subject.version(), 1);
            assert_eq!(subject.event_type(), text.trim_end_matches(".v1"));
        }
    }
}

#[test]
fn an_exception_is_in_the_catalog_and_breaks_the_grammar() {
    for (name, _) in CATALOGS {
        let profile = profile(name);
        let subjects = catalog(name);
        let strict = Profile { exceptions: Default::default(), ..profile.clone() };
        for exception in profile.exceptions.keys() {
            assert!(subjects.contains(exception), "{exception} is in no catalog");
            assert!(strict.subject(exception).is_err(), "{exception} needs no exception");
        }
    }
}

#[test]
fn the_services_of_a_catalog_are_the_tokens_of_the_profile() {
    let profile = profile("melmastoon");
    for text in catalog("melmastoon") {
        let subject = profile.subject(&text).unwrap();
        assert!(profile.services.values().any(|token| token == subject.service()), "{subject}");
    }
}

#[test]
fn an_error_points_at_the_segment_that_is_wrong() {
    let cases = [
        (
            Grammar::Prefixed,
            "hotel.payment.intent.captured.v1",
            "hotel",
            Fault::Prefix("melmastoon".into()),
        ),
        (Grammar::Prefixed, "melmastoon.Payment.intent.captured.v1", "Payment", Fault::SnakeCase),
        (Grammar::Prefixed, "melmastoon.payment.in-tent.captured.v1", "in-tent", Fault::SnakeCase),
        (Grammar::Prefixed, "melmastoon.payment.intent.capture.v1", "capture", Fault::PastTense),
        (Grammar::Prefixed, "melmastoon.payment.intent.captured.v0", "v0", Fault::Version),
        (Grammar::Prefixed, "melmastoon.payment.intent.captured.v01", "v01", Fault::Version),
        (Grammar::Prefixed, "melmastoon.payment..captured.v1", "", Fault::SnakeCase),
        (
            Grammar::Prefixed,
            "melmastoon.payment.intent.captured.v4294967296",
            "v4294967296",
            Fault::Version,
        ),
        (Grammar::Partitioned, "sync.push.applied.v1.p 7", "p 7", Fault::Partition),
        (Grammar::Partitioned, "sync.push.applied.1", "1", Fault::Version),
        (Grammar::Kebab, "current-account.account_created.v1", "account_created", Fault::KebabCase),
        (Grammar::Kebab, "current-account.create-account.v1", "create-account", Fault::PastTense),
        (Grammar::Plain, "invoicing.invoice.create", "create", Fault::PastTense),
        (Grammar::Plain, "1nvoicing.invoice.created", "1nvoicing", Fault::KebabCase),
    ];
    for (grammar, text, segment, fault) in cases {
        let error = Subject::parse_among(grammar, "melmastoon", &|_| true, text).unwrap_err();
        assert_eq!((error.segment(), &error.fault), (segment, &fault), "{text}");
        let pointer = error.pointer();
        let (line, finger) = pointer.split_once('\n').unwrap();
        let at = finger.find('^').unwrap();
        assert_eq!((line, &text[at..at + segment.len()]), (text, segment), "{pointer}");
        assert_eq!(finger.matches('^').count(), segment.len().max(1), "{pointer}");
    }
}

#[test]
fn a_finger_points_right_in_a_text_that_is_not_ascii() {
    let error = Subject::parse(Grammar::Prefixed, "melmastoon.zahlungß.intent.captured.v1");
    let error = error.unwrap_err();
    assert_eq!(error.segment(), "zahlungß");
    assert!(error.pointer().ends_with("\n           ^^^^^^^^"), "{}", error.pointer());
}

#[test]
fn the_number_of_segments_and_the_length_are_checked() {
    for (grammar, text) in [
        (Grammar::Prefixed, "melmastoon.file.uploaded.v1"),
        (Grammar::Partitioned, "enrollment.created.v1"),
        (Grammar::Partitioned, "a.b.c.d.e.f"),
        (Grammar::Kebab, "current-account.account.created.v1"),
        (Grammar::Plain, "invoice.created"),
    ] {
        let error = Subject::parse(grammar, text).unwrap_err();
        assert!(matches!(error.fault, Fault::Segments { .. }), "{error}");
        assert!(error.to_string().contains(grammar.form()), "{error}");
    }
    for text in [String::new(), "a".repeat(250), "ü".repeat(5000)] {
        let error = Subject::parse(Grammar::Plain, &text).unwrap_err();
        assert_eq!(error.fault, Fault::Length);
        assert!(error.subject.len() <= 250 && error.pointer().len() < 800);
    }
}

#[test]
fn an_unknown_service_is_named() {
    let error = profile("learning").subject("gdpr.subject.erased.v1").unwrap_err();
    assert_eq!((error.segment(), &error.fault), ("gdpr", &Fault::UnknownService));
}

#[test]
fn a_partition_is_told_apart_from_the_type() {
    let subject = Subject::parse(Grammar::Partitioned, "sync.push.applied.v3.p07").unwrap();
    assert_eq!(subject.event_type(), "sync.push.applied");
    assert_eq!((subject.version(), subject.service()), (3, "sync"));
    assert_eq!(subject.to_string(), "sync.push.applied.v3.p07");
}

#[test]
fn an_exception_is_still_a_plain_text_of_segments() {
    let subject = Subject::exception(Some("melmastoon"), "melmastoon.file.uploaded.v2").unwrap();
    assert_eq!((subject.service(), subject.version()), ("file", 2));
    assert_eq!(Subject::exception(None, "a.b").unwrap().version(), 1);
    for (text, segment) in [("a..b", ""), ("a.B", "B"), ("a.b c", "b c"), ("single", "single")] {
        assert_eq!(Subject::exception(None, text).unwrap_err().segment(), segment, "{text}");
    }
}

fn catalog(name: &str) -> Vec<String> {
    let file = support::path(&format!("fixtures/subjects/{name}.txt"));
    std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_free_subject_is_its_own_type_with_the_version_at_its_end() {
    for (text, version) in [("hotel.reservation.booking.held.v2", 2), ("shop.placed", 1)] {
        let subject = Subject::parse(Grammar::Free, text).unwrap();
        assert_eq!((subject.event_type(), subject.version()), (text, version));
    }
    for wrong in ["", "shop", "shop..placed", "Shop.placed", "shop.or der"] {
        assert!(Subject::parse(Grammar::Free, wrong).is_err(), "{wrong}");
    }
}
