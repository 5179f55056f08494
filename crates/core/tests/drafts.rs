//! A draft is completed by the profile of its system.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use chapar_core::port::{ManualClock, SeededIds};
use chapar_core::{
    Actor, ActorKind, Aggregate, Code, Draft, Envelope, Event, Id, Payload, Producer, TraceContext,
    Violations,
};
use jiff::Timestamp;
use serde_json::json;
use support::profile;

const BOOKED: &str = "melmastoon.reservation.booking.confirmed.v1";
const CREATED: &str = "current-account.account-created.v1";
const APPLIED: &str = "sync.push.applied.v1";

#[test]
fn a_sealed_draft_has_all_that_is_mandatory() {
    let e = seal("melmastoon", draft(BOOKED).idempotency_key("k")).unwrap();
    assert_eq!(e.subject(), BOOKED);
    assert_eq!((e.event_type.as_str(), e.version), (BOOKED.trim_end_matches(".v1"), 1));
    assert!(matches!(e.id, Id::Uuid(id) if id.get_version_num() == 7));
    assert!(matches!(e.correlation, Id::Ulid(_)));
    assert_eq!(e.occurred_at, now());
    assert_eq!(e.producer.service, "test-service");
    assert_eq!(e.ordering_key.as_deref(), Some("acme:agg-1"));
    assert_eq!(e.retention.as_deref(), Some("warm"));
    assert_eq!(e.residency.as_deref(), Some("me-central1"));
    assert_eq!(e.aggregate.unwrap().id, "agg-1");
    assert_eq!((e.ingested_at, e.written_at, e.outbox_id), (None, None, None));
}

#[test]
fn what_the_draft_says_wins_over_the_profile() {
    let at: Timestamp = "2020-02-02T02:02:02Z".parse().unwrap();
    let trace = TraceContext { traceparent: "00-a-b-01".into(), tracestate: None };
    let actor = Actor { kind: ActorKind::User, id: "u".into() };
    let sealed = draft(BOOKED)
        .idempotency_key("k")
        .ordering_key("own")
        .retention("cold")
        .residency("us-central1")
        .occurred_at(at)
        .correlated("corr".parse().unwrap())
        .caused_by_id("cmd".parse().unwrap())
        .schema("schemas://x")
        .by(actor.clone())
        .trace(trace.clone())
        .aggregate_version(4)
        .offline_replay()
        .ai_provenance(json!({"model": "m"}))
        .metadata("channel", "web");
    let e = seal("melmastoon", sealed).unwrap();
    assert_eq!(e.ordering_key, Some(format!("{}:own", e.tenant)), "it stays the tenant's");
    assert_eq!(e.retention.as_deref(), Some("cold"));
    assert_eq!(e.residency.as_deref(), Some("us-central1"));
    assert_eq!((e.occurred_at, e.correlation.to_string().as_str()), (at, "corr"));
    assert_eq!(e.causation, Some("cmd".parse().unwrap()));
    assert_eq!(e.schema.as_deref(), Some("schemas://x"));
    assert_eq!((e.actor, e.trace), (Some(actor), Some(trace)));
    assert_eq!(e.aggregate.unwrap().version, Some(4));
    assert!(e.offline_replay);
    assert_eq!(e.ai_provenance, Some(json!({"model": "m"})));
    assert_eq!(e.metadata, [("channel".into(), json!("web"))].into());
}

#[test]
fn an_idempotency_key_is_required_optional_or_the_event_id() {
    let refused = seal("melmastoon", draft(BOOKED)).unwrap_err();
    assert!(refused.contains(Code::IdempotencyKeyMissing));
    assert_eq!(seal("meridian", draft(CREATED)).unwrap().idempotency_key, None);
    let e = seal("learning", draft(APPLIED)).unwrap();
    assert_eq!(e.idempotency_key, Some(e.id.to_string()));
    let e = seal("learning", draft(APPLIED).idempotency_key("own")).unwrap();
    assert_eq!(e.idempotency_key.as_deref(), Some("own"));
}

#[test]
fn a_system_without_tenants_gives_its_own() {
    let e = seal("meridian", draft(CREATED)).unwrap();
    assert_eq!((e.tenant.as_str(), e.ordering_key.as_deref()), ("meridian", Some("agg-1")));
}

#[test]
fn each_system_makes_ids_of_its_own_kind() {
    let e = seal("meridian", draft(CREATED)).unwrap();
    assert!(matches!(e.id, Id::Uuid(id) if id.get_version_num() == 4));
    let e = seal("learning", draft(APPLIED)).unwrap();
    assert!(matches!((e.id, e.correlation), (Id::Ulid(_), Id::Ulid(_))));
    let e = seal("invoicing", draft("invoicing.invoice.created")).unwrap();
    assert_eq!((e.event_type.as_str(), e.version), ("invoicing.invoice.created", 1));
    assert_eq!(e.ordering_key.as_deref(), Some("acme"), "ordered by tenant");
}

#[test]
fn an_effect_joins_the_chain_of_its_cause() {
    let actor = Actor { kind: ActorKind::ApiKey, id: "key".into() };
    let trace = TraceContext { traceparent: "00-a-b-01".into(), tracestate: None };
    let cause = draft(APPLIED).by(actor.clone()).trace(trace.clone());
    let cause = seal("learning", cause).unwrap();
    let effect = seal("learning", draft("sync.device.wiped.v1").caused_by(&cause)).unwrap();
    assert_eq!((&effect.correlation, &effect.causation), (&cause.correlation, &Some(cause.id)));
    assert_eq!((effect.actor, effect.trace), (Some(actor), Some(trace)));
}

#[test]
fn a_draft_with_a_wrong_subject_is_refused_with_the_reason() {
    for subject in ["", "melmastoon.reservation.booking.v1", "melmastoon.spa.bath.taken.v1"] {
        let refused = seal("melmastoon", draft(subject).idempotency_key("k")).unwrap_err();
        assert!(refused.contains(Code::SubjectMalformed), "{refused}");
    }
}

#[test]
fn a_thin_draft_may_be_large() {
    let large = || {
        let payload = Payload::json(&"x".repeat(300 * 1024)).unwrap();
        Draft::new(APPLIED, aggregate(), payload)
    };
    assert!(seal("learning", large()).unwrap_err().contains(Code::PayloadTooLarge));
    assert!(seal("learning", large().thin()).is_ok());
}

#[test]
fn plain_json_needs_no_content_type() {
    let e = seal("learning", draft(APPLIED).content_type("application/json")).unwrap();
    assert_eq!(e.content_type, None);
    let e = seal("learning", draft(APPLIED).content_type("application/vnd.x+json")).unwrap();
    assert_eq!(e.content_type.as_deref(), Some("application/vnd.x+json"));
}

#[test]
fn a_typed_event_brings_its_subject_aggregate_and_intent() {
    #[derive(serde::Serialize)]
    struct Confirmed {
        reservation: &'static str,
    }
    impl Event for Confirmed {
        const SUBJECT: &'static str = BOOKED;
        const AGGREGATE: &'static str = "booking";
        fn aggregate_id(&self) -> String {
            self.reservation.into()
        }
        fn intent(&self) -> Option<String> {
            Some(format!("{}:confirmed", self.reservation))
        }
    }
    let draft = Confirmed { reservation: "res_1" }.draft();
    let e = seal("melmastoon", draft).unwrap();
    let aggregate = Aggregate { kind: "booking".into(), id: "res_1".into(), version: None };
    assert_eq!((e.subject().as_str(), e.aggregate), (BOOKED, Some(aggregate)));
    assert_eq!(e.idempotency_key.as_deref(), Some("res_1:confirmed"));
    assert_eq!(e.payload.as_bytes(), br#"{"reservation":"res_1"}"#);
}

#[test]
fn a_payload_that_is_no_json_is_refused_when_the_draft_is_sealed() {
    #[derive(serde::Serialize)]
    struct Unwritable(std::collections::BTreeMap<(u8, u8), u8>);
    impl Event for Unwritable {
        const SUBJECT: &'static str = APPLIED;
        const AGGREGATE: &'static str = "push";
        fn aggregate_id(&self) -> String {
            "p".into()
        }
    }
    let refused = seal("learning", Unwritable([((1, 2), 3)].into()).draft());
    assert!(refused.unwrap_err().contains(Code::PayloadUnwritable));
    assert!(seal("learning", Unwritable([].into()).draft()).is_ok());
}

fn draft(subject: &str) -> Draft {
    let payload = Payload::from_json_text("{}").unwrap();
    Draft::new(subject, aggregate(), payload)
}

fn aggregate() -> Aggregate {
    Aggregate { kind: "thing".into(), id: "agg-1".into(), version: None }
}

fn seal(system: &str, draft: Draft) -> Result<Envelope, Violations> {
    let producer = Producer { service: "test-service".into(), ..Producer::default() };
    let tenant = "acme".parse().unwrap();
    draft.seal(&tenant, &profile(system), &producer, &ManualClock::new(now()), &SeededIds::new(7))
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}
