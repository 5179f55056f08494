//! Each rule is kept by a good event and broken by a bad one.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use chapar_core::port::{ManualClock, SeededIds};
use chapar_core::rules::{MAX_METADATA, MAX_PAYLOAD, check, check_reader, check_topic};
use chapar_core::{
    Aggregate, Code, Draft, Envelope, Payload, Producer, Profile, Subject, Tenant, Violations,
};
use serde_json::json;
use support::profile;

#[test]
fn a_good_event_keeps_every_rule() {
    assert_eq!(broken(|_| {}), []);
}

#[test]
fn a_malformed_subject_is_refused() {
    assert_eq!(
        broken(|e| e.event_type = "melmastoon.reservation.booking.confirm".into()),
        [Code::SubjectMalformed]
    );
    assert_eq!(broken(|e| e.version = 0), [Code::SubjectMalformed]);
    assert_eq!(broken(|e| e.version = 7), []);
    assert_eq!(broken(|e| e.event_type = "melmastoon.reservation.booking.no_show".into()), []);
}

#[test]
fn a_missing_or_empty_idempotency_key_is_refused_where_one_is_required() {
    assert_eq!(broken(|e| e.idempotency_key = None), [Code::IdempotencyKeyMissing]);
    assert_eq!(broken(|e| e.idempotency_key = Some(String::new())), [Code::IdempotencyKeyMissing]);
    let bank = Envelope {
        event_type: "current-account.account-created".into(),
        tenant: "meridian".parse().unwrap(),
        idempotency_key: None,
        retention: None,
        residency: None,
        payload: Payload::json(&json!({})).unwrap(),
        ..good()
    };
    assert_eq!(check(&bank, &profile("meridian"), false), Ok(()));
}

#[test]
fn a_name_or_a_key_that_no_index_takes_is_refused() {
    let long = || Some("x".repeat(4800));
    assert_eq!(broken(|e| e.ordering_key = long()), [Code::TooLong]);
    assert_eq!(broken(|e| e.idempotency_key = long()), [Code::TooLong]);
    let aggregate =
        |id: usize| Aggregate { kind: "booking".into(), id: "x".repeat(id), version: None };
    assert_eq!(broken(|e| e.aggregate = Some(aggregate(1025))), [Code::TooLong]);
    assert_eq!(broken(|e| e.aggregate = Some(aggregate(1024))), []);
}

#[test]
fn an_event_without_a_tenant_is_refused_unless_it_is_on_the_list() {
    let untenanted = |e: &mut Envelope| {
        e.tenant = Tenant::platform();
        e.payload = Payload::json(&json!({})).unwrap();
    };
    assert_eq!(broken(untenanted), [Code::TenantMissing]);
    assert_eq!(
        broken(|e| {
            untenanted(e);
            e.event_type = "melmastoon.audit.merkle.anchored".into();
        }),
        []
    );
}

#[test]
fn a_payload_of_another_tenant_is_refused() {
    for payload in [
        r#"{"tenantId": "other"}"#,
        r#"{"tenant_id": "other"}"#,
        r#"{"tenantId": 7}"#,
        r#"{"tenantId": "acme", "tenantId": "other"}"#,
        r#"{"tenant\u0049d": "other"}"#,
    ] {
        let found = broken(|e| e.payload = Payload::from_json_text(payload).unwrap());
        assert_eq!(found, [Code::TenantMismatch], "{payload}");
    }
    for payload in [
        r#"{"tenantId": "acme"}"#,
        r#"{"tenantId": null}"#,
        "[1]",
        r#"{"deep": {"tenantId": "x"}}"#,
    ] {
        assert_eq!(
            broken(|e| e.payload = Payload::from_json_text(payload).unwrap()),
            [],
            "{payload}"
        );
    }
}

#[test]
fn an_ai_event_without_provenance_is_refused() {
    let ai = |e: &mut Envelope| e.event_type = "melmastoon.ai_orchestrator.hitl.decided".into();
    assert_eq!(broken(ai), [Code::AiProvenanceMissing]);
    for empty in [json!({}), json!(null), json!("yes")] {
        let found = broken(|e| {
            ai(e);
            e.ai_provenance = Some(empty.clone());
        });
        assert_eq!(found, [Code::AiProvenanceMissing], "{empty}");
    }
    let found = broken(|e| {
        ai(e);
        e.ai_provenance = Some(json!({"model": "m"}));
    });
    assert_eq!(found, []);
}

#[test]
fn too_much_metadata_is_refused() {
    let around = r#"{"k":""}"#.len();
    let text = |len: usize| json!("x".repeat(len - around));
    let found = broken(|e| e.metadata = [("k".into(), text(MAX_METADATA))].into());
    assert_eq!(found, [], "exactly as much as is allowed");
    let found = broken(|e| e.metadata = [("k".into(), text(MAX_METADATA + 1))].into());
    assert_eq!(found, [Code::MetadataTooLarge]);
}

#[test]
fn too_large_a_payload_is_refused_unless_the_event_is_thin() {
    let sized = |size: usize| Envelope { payload: Payload::Bytes(vec![0; size].into()), ..good() };
    let system = profile("melmastoon");
    assert_eq!(check(&sized(MAX_PAYLOAD), &system, false), Ok(()));
    let found = check(&sized(MAX_PAYLOAD + 1), &system, false).unwrap_err();
    assert!(found.contains(Code::PayloadTooLarge));
    assert_eq!(check(&sized(MAX_PAYLOAD + 1), &system, true), Ok(()));
}

#[test]
fn an_unknown_retention_class_is_refused() {
    assert_eq!(broken(|e| e.retention = Some("regulated".into())), [Code::RetentionUnknown]);
    assert_eq!(broken(|e| e.retention = None), []);
}

#[test]
fn an_unknown_region_is_refused() {
    assert_eq!(broken(|e| e.residency = Some("mars-1".into())), [Code::ResidencyUnknown]);
    assert_eq!(broken(|e| e.residency = Some("us-central1".into())), []);
}

#[test]
fn an_envelope_that_differs_from_its_topic_is_refused() {
    let system = profile("melmastoon");
    let topic = |text| system.subject(text).unwrap();
    let event = good();
    assert_eq!(check_topic(&event, &topic("melmastoon.reservation.booking.confirmed.v1")), Ok(()));
    for other in [
        "melmastoon.reservation.booking.confirmed.v2",
        "melmastoon.reservation.booking.cancelled.v1",
    ] {
        let found = check_topic(&event, &topic(other)).unwrap_err();
        assert_eq!(codes(&found), [Code::VersionMismatch], "{other}");
    }
    let partition =
        Subject::parse(chapar_core::Grammar::Partitioned, "sync.push.applied.v1.p3").unwrap();
    let event = Envelope { event_type: "sync.push.applied".into(), ..event };
    assert_eq!(check_topic(&event, &partition), Ok(()));
}

#[test]
fn a_cross_tenant_topic_is_only_for_those_who_are_registered() {
    let computed =
        |e: &mut Envelope| e.event_type = "melmastoon.analytics.snapshot.computed".into();
    assert_eq!(broken(computed), [Code::CrossTenant]);
    let found = broken(|e| {
        computed(e);
        e.producer.service = "analytics-service".into();
    });
    assert_eq!(found, []);

    let system = profile("melmastoon");
    let topic = "melmastoon.analytics.snapshot.computed.v1";
    for service in ["reporting-service", "analytics-service"] {
        assert_eq!(check_reader(&system, topic, service), Ok(()));
    }
    let found = check_reader(&system, topic, "billing-service").unwrap_err();
    assert_eq!(codes(&found), [Code::CrossTenant]);
    let other = "melmastoon.reservation.booking.confirmed.v1";
    assert_eq!(check_reader(&system, other, "billing-service"), Ok(()));
}

#[test]
fn all_broken_rules_are_reported_at_once_in_the_order_of_their_codes() {
    let found = broken(|e| {
        e.event_type = "melmastoon.reservation.booking.confirm".into();
        e.idempotency_key = None;
        e.retention = Some("no".into());
        e.residency = Some("no".into());
        e.payload = Payload::from_json_text(r#"{"tenantId": "other"}"#).unwrap();
    });
    let expected = [
        Code::SubjectMalformed,
        Code::IdempotencyKeyMissing,
        Code::TenantMismatch,
        Code::RetentionUnknown,
        Code::ResidencyUnknown,
    ];
    assert_eq!(found, expected);
}

#[test]
fn codes_are_stable_and_unique() {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let expected: Vec<String> = (1..=18).map(|n| format!("CH{}", 1000 + n)).collect();
    assert_eq!(codes, expected);
    let found = check(&Envelope { idempotency_key: None, ..good() }, &profile("melmastoon"), false);
    assert!(found.unwrap_err().to_string().starts_with("CH1002: "));
}

fn broken(change: impl FnOnce(&mut Envelope)) -> Vec<Code> {
    let mut envelope = good();
    change(&mut envelope);
    let system: Profile = profile("melmastoon");
    check(&envelope, &system, false).err().map(|found| codes(&found)).unwrap_or_default()
}

fn codes(violations: &Violations) -> Vec<Code> {
    violations.iter().map(|violation| violation.code).collect()
}

fn good() -> Envelope {
    let aggregate = Aggregate { kind: "booking".into(), id: "res_1".into(), version: None };
    let payload = Payload::from_json_text(r#"{"tenantId": "acme"}"#).unwrap();
    let tenant = "acme".parse().unwrap();
    let producer = Producer { service: "reservation-service".into(), ..Default::default() };
    let clock = ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap());
    Draft::new("melmastoon.reservation.booking.confirmed.v1", aggregate, payload)
        .idempotency_key("res_1:confirmed:1")
        .seal(&tenant, &profile("melmastoon"), &producer, &clock, &SeededIds::new(1))
        .unwrap()
}
