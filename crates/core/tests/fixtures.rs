//! Messages as other producers write them, which must be understood for ever, and messages as
//! we write them, which must never change by accident.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use chapar_core::dialect::{CloudEvents, Dialect, FlatJson, MetadataJson};
use chapar_core::{
    Actor, ActorKind, Aggregate, Envelope, Id, Payload, Producer, Tenant, TraceContext,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use support::{BINDINGS, dialect, dialects, fixture, meridian, print_message, round_trip};

#[test]
fn a_confirmed_booking_of_the_hotel_platform_is_understood() {
    let e = MetadataJson.decode(&fixture("melmastoon/booking_confirmed.json")).unwrap();
    assert_eq!(e.id, id("01932f0a-7b1c-7d3e-9f40-5a6b7c8d9e0f"));
    assert_eq!(e.subject(), "melmastoon.reservation.booking.confirmed.v1");
    assert_eq!(e.schema.as_deref().unwrap().len(), 66);
    assert_eq!(e.tenant, tenant("tnt_kabul_grand"));
    assert!(matches!(e.correlation, Id::Ulid(_)));
    assert_eq!(e.causation, Some(id("01932f0a-7a00-7000-8000-000000000001")));
    let actor = Actor { kind: ActorKind::User, id: "usr_front_desk_7".into() };
    assert_eq!(e.actor, Some(actor));
    assert_eq!(e.occurred_at, time("2026-03-01T08:15:30.123Z"));
    assert_eq!(e.producer.service, "reservation-service");
    assert_eq!(e.producer.region.as_deref(), Some("me-central1"));
    assert_eq!(e.idempotency_key.as_deref(), Some("res_81:confirmed:3"));
    assert_eq!(e.retention.as_deref(), Some("warm"));
    assert_eq!(e.residency.as_deref(), Some("me-central1"));
    assert_eq!(e.ordering_key.as_deref(), Some("tnt_kabul_grand:res_81"));
    assert_eq!(e.outbox_id, Some(id("01JCQGMYRX0000000000000001")));
    assert_eq!(e.metadata, [("channel".into(), json!("tenant-site"))].into());
    assert_eq!(e.extensions["signature"], "c2lnbmF0dXJl");
    assert_eq!(e.extensions["actorId"], json!({"displayName": "Front desk"}));
    let payload = std::str::from_utf8(e.payload.as_bytes()).unwrap();
    assert!(payload.contains("\"amount\": 1250.50"), "kept to the letter: {payload}");

    let again: Value = serde_json::from_slice(&round_trip(&MetadataJson, &e).body).unwrap();
    let original = fixture("melmastoon/booking_confirmed.json");
    let original: Value = serde_json::from_slice(&original.body).unwrap();
    assert_eq!(again, original, "nothing is added, lost or moved");
}

#[test]
fn a_platform_event_and_an_ai_event_are_understood() {
    let e = MetadataJson.decode(&fixture("melmastoon/platform_merkle_anchored.json")).unwrap();
    assert!(e.tenant.is_platform());
    assert_eq!(e.occurred_at, time("2026-03-01T19:30:00Z"));
    assert!(!e.offline_replay && e.ai_provenance.is_none() && e.causation.is_none());
    round_trip(&MetadataJson, &e);

    let e = MetadataJson.decode(&fixture("melmastoon/ai_completion.json")).unwrap();
    assert_eq!((e.version, e.causation.clone(), e.offline_replay), (2, None, true));
    assert_eq!(e.ai_provenance.as_ref().unwrap()["confidence"], 0.875);
    assert!(e.metadata.is_empty());
    round_trip(&MetadataJson, &e);
}

#[test]
fn a_published_draft_of_the_learning_platform_is_understood() {
    let e = FlatJson.decode(&fixture("learning/course_draft_published.json")).unwrap();
    assert_eq!(e.subject(), "authoring.course_draft.published.v1");
    assert_eq!((e.producer.service.as_str(), e.producer.commit.as_str()), ("authoring", "deadbee"));
    assert_eq!(e.actor.as_ref().unwrap().kind, ActorKind::ServiceAccount);
    assert_eq!(e.ingested_at, Some(time("2026-04-05T06:07:08.5Z")));
    assert_eq!(e.written_at, Some(time("2026-04-05T06:07:08.01Z")));
    assert_eq!(e.outbox_id, Some(id("01JCQGMYRX0000000000000009")));
    assert_eq!(e.ordering_key.as_deref(), Some("drf_1"));
    assert_eq!(e.retention.as_deref(), Some("operational"));
    assert_eq!(e.residency.as_deref(), Some("eu"));
    let unknown = [
        ("legalHold".to_owned(), json!(false)),
        ("outbox".to_owned(), json!({"shard": 2})),
        ("source".to_owned(), json!({"pod": "authoring-3-x"})),
    ];
    assert_eq!(e.extensions, unknown.into());
    round_trip(&FlatJson, &e);

    let e = FlatJson.decode(&fixture("learning/course_draft_published_bare.json")).unwrap();
    assert_eq!((e.causation.clone(), e.outbox_id.clone(), e.written_at), (None, None, None));
    assert!(e.metadata.is_empty() && e.extensions.is_empty());
    round_trip(&FlatJson, &e);
}

#[test]
fn an_invoice_in_the_guides_cloud_event_is_understood_and_written_back_as_it_was() {
    let message = fixture("cloudevents/invoice_created.json");
    let e = CloudEvents::Structured.decode(&message).unwrap();
    assert_eq!(e.subject(), "invoicing.invoice.created.v1");
    assert_eq!((e.producer.service.as_str(), &e.source), ("invoice-api", &None));
    assert_eq!(e.occurred_at, time("2026-05-01T12:00:00Z"));
    assert_eq!((e.tenant.as_str(), e.correlation.to_string()), ("acme", "req-77".into()));
    assert_eq!(e.causation, Some(id("cmd-12")));
    assert_eq!(e.content_type, None);
    assert_eq!(written_back(&message), json_of(&message.body));
}

#[test]
fn a_cloud_event_of_a_stranger_is_understood_and_nothing_is_invented() {
    let message = fixture("cloudevents/github_push.json");
    let e = CloudEvents::Structured.decode(&message).unwrap();
    assert_eq!((e.event_type.as_str(), e.version), ("com.github.push", 2));
    assert_eq!(e.source.as_deref(), Some("https://github.com/example/repo"));
    assert_eq!(e.producer, Producer::default());
    assert!(e.tenant.is_platform());
    assert_eq!(e.correlation, e.id);
    assert_eq!(e.occurred_at, Timestamp::UNIX_EPOCH);
    assert_eq!(e.aggregate.as_ref().unwrap().id, "refs/heads/main");
    assert_eq!(e.extensions["sequence"], 42);
    assert_eq!(e.extensions["forced"], true);
    assert_eq!(e.extensions["sampledrate"], "high");
    let mut expected = json_of(&message.body);
    expected.as_object_mut().unwrap().remove("comexampleother");
    // The specification says that a missing content type of JSON data means this one.
    expected["datacontenttype"] = "application/json".into();
    assert_eq!(written_back(&message), expected);
    for binding in BINDINGS {
        round_trip(&CloudEvents::Binary(binding), &e);
    }
}

#[test]
fn bytes_and_text_of_other_media_types_are_understood() {
    let message = fixture("cloudevents/thumbnail_base64.json");
    let e = CloudEvents::Structured.decode(&message).unwrap();
    assert_eq!(e.content_type.as_deref(), Some("image/png"));
    assert_eq!(e.payload.as_bytes(), b"\x89PNG\r\n\x1a\n");
    assert_eq!(written_back(&message), json_of(&message.body));

    let message = fixture("cloudevents/note_text.json");
    let e = CloudEvents::Structured.decode(&message).unwrap();
    assert_eq!(e.payload, Payload::Bytes("hello ü".into()));
    assert_eq!(written_back(&message), json_of(&message.body));
    let binary = round_trip(&CloudEvents::Binary(BINDINGS[0]), &e);
    assert_eq!(binary.body, "hello ü");
}

#[test]
fn binary_cloud_events_of_every_binding_are_understood() {
    for name in ["http", "kafka", "nats", "pubsub"] {
        let message = fixture(&format!("cloudevents/binary_{name}.msg"));
        let dialect = dialect(&format!("cloudevents-{name}"));
        let e = dialect.decode(&message).unwrap();
        assert_eq!(e.id, id("bin-1"), "{name}");
        assert_eq!((e.tenant.as_str(), e.producer.service.as_str()), ("acme", "invoice-api"));
        assert_eq!(e.extensions, [("note".into(), json!("café \"x\""))].into(), "{name}");
        assert_eq!(e.content_type.as_deref(), Some("application/json; charset=utf-8"));
        assert_eq!(e.payload, Payload::from_json_text("{\"invoiceId\": \"inv_1\"}").unwrap());
        let again = round_trip(&*dialect, &e);
        for (name, value) in &message.headers {
            if name != "x-request" {
                assert_eq!(again.header(name), Some(value));
            }
        }
    }
    let message = fixture("cloudevents/binary_without_content_type.msg");
    let e = dialect("cloudevents-http").decode(&message).unwrap();
    assert_eq!((e.content_type.clone(), e.payload.as_bytes()), (None, &message.body[..]));
    round_trip(&*dialect("cloudevents-http"), &e);
}

#[test]
fn an_opened_account_of_the_bank_is_understood() {
    let message = fixture("meridian/account_created.msg");
    let meridian = meridian();
    let e = meridian.decode(&message).unwrap();
    assert_eq!(e.id, id("550e8400-e29b-41d4-a716-446655440000"));
    assert_eq!(e.subject(), "current-account.account-created.v1");
    assert_eq!(e.tenant, tenant("meridian"));
    assert_eq!(e.correlation, id("trace-abc-123"));
    assert_eq!(e.causation, Some(id("cmd-1")));
    assert_eq!(e.occurred_at, Timestamp::new(1_763_562_600, 500).unwrap());
    assert_eq!(e.idempotency_key.as_deref(), Some("idem-1"));
    let aggregate =
        Aggregate { kind: "account".into(), id: "account-123".into(), version: Some(1) };
    assert_eq!(e.aggregate, Some(aggregate));
    assert_eq!(e.ordering_key.as_deref(), Some("account-123"));
    let metadata = [("trace_id".into(), json!("abc")), ("span_id".into(), json!("def"))];
    assert_eq!(e.metadata, metadata.into());
    assert_eq!(e.content_type.as_deref(), Some("application/protobuf"));
    let future = b"from the future";
    assert!(e.payload.as_bytes().windows(future.len()).any(|part| part == future));
    round_trip(&meridian, &e);

    let json: Value = meridian.payload_to_json(&e).unwrap().payload.parse().unwrap();
    let expected = json!({
        "accountId": "account-123", "accountIdentification": "GB82WEST12345698765432",
        "baseCurrency": "CURRENCY_GBP", "accountStatus": "ACTIVE", "productReference": "prod-1",
        "customerReference": "cust-9", "createdBy": "user123",
    });
    assert_eq!(json, expected);
}

/// Our own messages. A difference is either a defect or a decision: then run the test once with
/// `CHAPAR_BLESS=1` and let the difference be reviewed.
#[test]
fn what_we_write_does_not_change() {
    for (name, dialect) in dialects() {
        for (kind, envelope) in [("full", full(name)), ("bare", bare(name))] {
            let written = print_message(&round_trip(&*dialect, &envelope));
            let file = support::path(&format!("fixtures/golden/{name}-{kind}.msg"));
            if std::env::var_os("CHAPAR_BLESS").is_some() {
                std::fs::write(&file, &written).unwrap();
            }
            let golden = std::fs::read(&file).unwrap();
            let (written, golden) =
                (String::from_utf8_lossy(&written), String::from_utf8_lossy(&golden));
            assert_eq!(written, golden, "{} differs", file.display());
        }
    }
}

fn full(dialect: &str) -> Envelope {
    Envelope {
        schema: Some("schemas://reservation/booking/confirmed/v2#sha256-9f".into()),
        version: 2,
        causation: Some(id("cmd-1")),
        actor: Some(Actor { kind: ActorKind::ServiceAccount, id: "bot".into() }),
        ingested_at: Some(time("2026-01-02T03:04:06Z")),
        written_at: Some(time("2026-01-02T03:04:05.5Z")),
        producer: Producer {
            service: "reservation-service".into(),
            instance: "i-1".into(),
            commit: "abc123".into(),
            region: Some("me-central1".into()),
        },
        source: Some("urn:hotel:reservations".into()),
        idempotency_key: Some("res_1:confirmed:2".into()),
        ordering_key: Some("acme:res_1".into()),
        aggregate: Some(Aggregate { kind: "booking".into(), id: "res_1".into(), version: Some(2) }),
        retention: Some("warm".into()),
        residency: Some("me-central1".into()),
        offline_replay: true,
        ai_provenance: Some(json!({"model": "m-1"})),
        outbox_id: Some(id("01JCQGMYRX0000000000000001")),
        trace: Some(TraceContext {
            traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
            tracestate: Some("vendor=1".into()),
        }),
        metadata: [("channel".into(), json!("café")), ("tries".into(), json!(3))].into(),
        extensions: [("sequence".into(), json!(7)), ("legalHold".into(), json!(false))].into(),
        ..bare(dialect)
    }
}

fn bare(dialect: &str) -> Envelope {
    let message = fixture("melmastoon/booking_confirmed.json");
    let e = MetadataJson.decode(&message).unwrap();
    let bank = dialect == "meridian";
    let payload = match bank {
        true => Payload::Bytes(b"\x1a\x04IBAN\x2a\x06ACTIVE".to_vec().into()),
        false => Payload::from_json_text(r#"{"total": 10.50}"#).unwrap(),
    };
    Envelope {
        event_type: if bank { support::ACCOUNT_CREATED.into() } else { e.event_type },
        id: e.id,
        version: 1,
        schema: None,
        tenant: tenant("acme"),
        correlation: e.correlation,
        causation: None,
        actor: None,
        occurred_at: e.occurred_at,
        ingested_at: None,
        written_at: None,
        producer: Producer { service: "reservation-service".into(), ..Producer::default() },
        source: None,
        content_type: bank.then(|| "application/protobuf".into()),
        idempotency_key: None,
        ordering_key: None,
        aggregate: None,
        retention: None,
        residency: None,
        offline_replay: false,
        ai_provenance: None,
        outbox_id: None,
        trace: None,
        metadata: Default::default(),
        extensions: Default::default(),
        payload,
    }
}

#[track_caller]
fn written_back(message: &chapar_core::dialect::Message) -> Value {
    let envelope = CloudEvents::Structured.decode(message).unwrap();
    json_of(&round_trip(&CloudEvents::Structured, &envelope).body)
}

fn json_of(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

fn id(text: &str) -> Id {
    text.parse().unwrap()
}

fn tenant(text: &str) -> Tenant {
    text.parse().unwrap()
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}
