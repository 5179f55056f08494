//! What dialects refuse, and how they say so; what strangers may write, and how it is read.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use chapar_core::dialect::{
    Binding, CloudEvents, DecodeError, Dialect, EncodeError, FlatJson, MAX_MESSAGE, Message,
    MetadataJson,
};
use chapar_core::{Aggregate, Envelope, Payload};
use serde_json::{Value, json};
use support::{dialects, fixture, meridian, round_trip};

#[test]
fn a_message_larger_than_any_event_is_not_even_looked_at() {
    for (name, dialect) in dialects() {
        let message = Message {
            topic: Some(format!("{}.v1", support::ACCOUNT_CREATED)),
            ..Message::from_body(vec![0; MAX_MESSAGE + 1])
        };
        let refused = dialect.decode(&message);
        assert!(matches!(refused, Err(DecodeError::TooLarge(_))), "{name}");
    }
}

#[test]
fn relays_find_the_attributes_that_subscriptions_filter_by() {
    let e = hotel();
    for dialect in [&MetadataJson as &dyn Dialect, &FlatJson] {
        let message = dialect.encode(&e).unwrap();
        assert_eq!(message.header("eventid"), Some("01932f0a-7b1c-7d3e-9f40-5a6b7c8d9e0f"));
        assert_eq!(message.header("eventType"), Some(e.event_type.as_str()));
        assert_eq!(message.header("eventVersion"), Some("1"));
        assert_eq!(message.header("tenantId"), Some("tnt_kabul_grand"));
        assert_eq!(message.header("idempotencyKey"), Some("res_81:confirmed:3"));
    }
}

#[test]
fn free_metadata_under_a_name_of_ours_is_refused_and_only_then() {
    for dialect in [&MetadataJson as &dyn Dialect, &FlatJson] {
        for (name, value) in [
            ("aggregateId", json!("x")),
            ("traceparent", json!("x")),
            ("aiProvenance", json!({})),
            ("fromOfflineReplay", json!(false)),
            ("aggregateVersion", json!(3)),
        ] {
            let mut e = hotel();
            e.metadata.insert(name.into(), value);
            let refused = dialect.encode(&e).unwrap_err();
            assert!(
                matches!(&refused, EncodeError::Reserved { name: n, .. } if n == name),
                "{refused}"
            );
        }
        let mut e = hotel();
        e.metadata.insert("source".into(), json!({"an": "object"}));
        e.metadata.insert("aggregateVersion".into(), json!("three"));
        round_trip(dialect, &e);
    }
}

#[test]
fn an_unknown_field_under_a_name_of_ours_is_refused() {
    for (name, value) in [
        ("eventId", json!(1)),
        ("payload", json!(1)),
        ("metadata", json!({})),
        ("producedBy", json!("text")),
        ("producedBy", json!({})),
        ("producedBy", json!({"service": "x"})),
    ] {
        let mut e = hotel();
        e.extensions.insert(name.into(), value);
        assert!(matches!(MetadataJson.encode(&e), Err(EncodeError::Reserved { .. })), "{name}");
    }
    let mut e = hotel();
    e.actor = None;
    assert!(
        matches!(MetadataJson.encode(&e), Err(EncodeError::Reserved { .. })),
        "an actor's rest"
    );
}

#[test]
fn bytes_are_refused_by_dialects_of_json() {
    let e = Envelope { payload: Payload::Bytes("x".into()), ..hotel() };
    for dialect in [&MetadataJson as &dyn Dialect, &FlatJson] {
        let refused = dialect.encode(&e).unwrap_err();
        assert!(matches!(refused, EncodeError::PayloadKind { .. }), "{refused}");
    }
}

#[test]
fn a_type_does_not_repeat_its_version() {
    let refused = changed(|body| body["eventType"] = json!("melmastoon.a.b.done.v1"));
    assert_invalid(refused, "eventType");
    let e = Envelope { event_type: "melmastoon.a.b.done.v1".into(), ..hotel() };
    assert!(matches!(
        MetadataJson.encode(&e),
        Err(EncodeError::Invalid { field: "event_type", .. })
    ));
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    for (name, dialect) in dialects() {
        for wrong in [
            Envelope { version: 0, ..hotel() },
            Envelope { event_type: String::new(), ..hotel() },
            Envelope { ai_provenance: Some(json!("text")), ..hotel() },
            Envelope { content_type: Some("application/json".into()), ..hotel() },
        ] {
            assert!(matches!(dialect.encode(&wrong), Err(EncodeError::Invalid { .. })), "{name}");
        }
    }
}

#[test]
fn a_missing_field_is_named() {
    for field in [
        "eventId",
        "eventType",
        "eventVersion",
        "tenantId",
        "correlationId",
        "occurredAt",
        "producedBy",
        "payload",
    ] {
        let refused = changed(|body| drop(body.as_object_mut().unwrap().remove(field)));
        assert!(matches!(&refused, DecodeError::Missing(name) if name == field), "{refused}");
    }
    let refused = changed(|body| body["actorId"] = json!({"type": "user"}));
    assert_eq!(refused.to_string(), "the message has no actorId.id, which is mandatory");
}

#[test]
fn a_wrong_field_is_named_with_its_value_cut_short() {
    assert_invalid(changed(|body| body["eventVersion"] = json!(0)), "eventVersion");
    assert_invalid(changed(|body| body["eventVersion"] = json!(1.5)), "eventVersion");
    assert_invalid(changed(|body| body["tenantId"] = json!("a b")), "tenantId");
    assert_invalid(changed(|body| body["occurredAt"] = json!("yesterday")), "occurredAt");
    assert_invalid(changed(|body| body["actorId"]["type"] = json!("robot")), "actorId.type");
    assert_invalid(changed(|body| body["metadata"] = json!([])), "metadata");
    let refused = changed(|body| body["eventId"] = json!("x".repeat(100_000)));
    assert!(refused.to_string().len() < 512, "{refused}");
    assert_invalid(refused, "eventId");
}

#[test]
fn a_field_that_is_there_twice_is_refused() {
    let body = br#"{"eventId": "a", "tenantId": "a", "tenantId": "b"}"#.to_vec();
    let refused = MetadataJson.decode(&Message::from_body(body)).unwrap_err();
    assert!(refused.to_string().contains("\"tenantId\" is there twice"), "{refused}");
}

#[test]
fn headers_that_cannot_be_trusted_are_refused() {
    let good: &[(&str, &str)] =
        &[("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-type", "a"), ("ce-source", "s")];
    let decode = |binding, more: &[(&str, &str)]| {
        let headers = good.iter().chain(more);
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        CloudEvents::Binary(binding).decode(&Message { headers, ..Message::default() })
    };
    assert!(decode(Binding::Http, &[]).is_ok());
    for (name, value, reason) in [
        ("CE-ID", "2", "twice"),
        ("ce-x", "ü", "printable ASCII"),
        ("ce-x", "a\nb", "printable ASCII"),
        ("ce-x", "%", "two hex digits"),
        ("ce-x", "%2", "two hex digits"),
        ("ce-x", "%+1", "two hex digits"),
        ("ce-x", "%ff", "not UTF-8"),
        ("ce-data", "x", "not among the attributes"),
        ("ce-datacontenttype", "x", "not among the attributes"),
    ] {
        let refused = decode(Binding::Http, &[(name, value)]).unwrap_err();
        assert!(refused.to_string().contains(reason), "{name}: {refused}");
    }
    let twice = [("content-type", "a/b"), ("Content-Type", "a/b")];
    assert!(decode(Binding::Http, &twice).unwrap_err().to_string().contains("twice"));
    let quoted = decode(Binding::Http, &[("ce-x", r#""a \"b\" %20c""#)]).unwrap();
    assert_eq!(quoted.extensions["x"], "a \"b\"  c");
    let plain = decode(Binding::PubSub, &[("ce-x", "%ü")]).unwrap();
    assert_eq!(plain.extensions["x"], "%ü");
}

#[test]
fn a_cloud_event_of_another_version_or_without_its_core_is_refused() {
    let core = json!({"specversion": "1.0", "id": "1", "type": "a", "source": "s"});
    let decode =
        |event: &Value| CloudEvents::Structured.decode(&Message::from_body(event.to_string()));
    assert!(decode(&core).is_ok());
    for name in ["specversion", "id", "type", "source"] {
        let mut event = core.clone();
        event[name] = json!("");
        assert!(matches!(decode(&event), Err(DecodeError::Missing(n)) if n == name));
        event[name] = json!(null);
        assert!(matches!(decode(&event), Err(DecodeError::Missing(n)) if n == name));
        event[name] = json!(7);
        assert_invalid(decode(&event).unwrap_err(), name);
    }
    for (name, value) in [
        ("specversion", json!("0.3")),
        ("time", json!("noon")),
        ("tenantid", json!("two words")),
        ("tenantid", json!(5)),
        ("data_base64", json!("***")),
    ] {
        let mut event = core.clone();
        event[name] = value;
        assert_invalid(decode(&event).unwrap_err(), name);
    }
    let mut event = core.clone();
    event["data"] = json!(1);
    event["data_base64"] = json!("");
    assert_invalid(decode(&event).unwrap_err(), "data");
}

#[test]
fn strange_but_legal_cloud_events_keep_their_shape() {
    for event in [
        json!({"id": "1", "type": "a", "source": "/services/a%2fb"}),
        json!({"id": "1", "type": "a", "source": "/services/"}),
        json!({"id": "1", "type": "com.example.thing.v2", "source": "?"}),
        json!({"id": "1", "type": "com.example.thing.v2", "source": "?", "eventversion": 3}),
        json!({"id": "1", "type": ".v2", "source": "?"}),
        json!({"id": "1", "type": "a.v0", "source": "?", "eventversion": "none"}),
        json!({"id": "1", "type": "a", "source": "s", "metadata": "not an object"}),
        json!({"id": "1", "type": "a", "source": "s", "extensions": "text", "subject": "x"}),
        json!({"id": "1", "type": "a", "source": "s", "actorid": "lonely"}),
        json!({"id": "1", "type": "a", "source": "s", "tracestate": "orphan=1"}),
        json!({"id": "1", "type": "a", "source": "s", "partitionkey": 5, "offlinereplay": "maybe"}),
        json!({"id": "1", "type": "a", "source": "s", "datacontenttype": "application/xml", "data": "<a/>"}),
        json!({"id": "1", "type": "a", "source": "s", "datacontenttype": "application/x", "data": {"a": 1}}),
        json!({"id": "1", "type": "a", "source": "s", "datacontenttype": "application/json", "data": null}),
        json!({"id": "1", "type": "a", "source": "s", "data_base64": "AAE="}),
    ] {
        let mut event = event;
        event["specversion"] = json!("1.0");
        let decoded =
            CloudEvents::Structured.decode(&Message::from_body(event.to_string())).unwrap();
        let written = round_trip(&CloudEvents::Structured, &decoded);
        assert_eq!(serde_json::from_slice::<Value>(&written.body).unwrap(), event);
    }
}

#[test]
fn a_structured_cloud_event_is_recognised_where_a_binary_one_was_expected() {
    let mut message = fixture("cloudevents/invoice_created.json");
    let content_type = "Application/CloudEvents+JSON; charset=utf-8";
    message.headers.push("Content-Type", content_type);
    let e = CloudEvents::Binary(Binding::Kafka).decode(&message).unwrap();
    assert_eq!(e, CloudEvents::Structured.decode(&message).unwrap());
}

#[test]
fn a_version_in_a_type_is_remembered_across_dialects() {
    let body =
        r#"{"specversion": "1.0", "id": "1", "type": "com.x.y.v7", "source": "s", "data": 1}"#;
    let e = CloudEvents::Structured.decode(&Message::from_body(body)).unwrap();
    assert_eq!((e.event_type.as_str(), e.version), ("com.x.y", 7));
    let hotel = round_trip(&MetadataJson, &e);
    let back = CloudEvents::Binary(Binding::Http).encode(&MetadataJson.decode(&hotel).unwrap());
    let back = back.unwrap();
    assert_eq!(back.header("ce-type"), Some("com.x.y.v7"));
    assert_eq!(back.header("ce-eventversion"), None);
}

#[test]
fn an_aggregate_of_which_little_is_known_is_told_apart_from_none() {
    let aggregate = |kind: &str, id: &str, version| {
        Some(Aggregate { kind: kind.into(), id: id.into(), version })
    };
    for aggregate in [
        None,
        aggregate("", "", None),
        aggregate("", "", Some(0)),
        aggregate("account", "", None),
        aggregate("", "x", Some(-1)),
        aggregate("other", "x", Some(0)),
    ] {
        round_trip(&meridian(), &Envelope { aggregate: aggregate.clone(), ..account() });
        round_trip(&MetadataJson, &Envelope { aggregate: aggregate.clone(), ..hotel() });
        round_trip(&CloudEvents::Structured, &Envelope { aggregate, ..hotel() });
    }
}

fn hotel() -> Envelope {
    MetadataJson.decode(&fixture("melmastoon/booking_confirmed.json")).unwrap()
}

fn account() -> Envelope {
    meridian().decode(&fixture("meridian/account_created.msg")).unwrap()
}

/// The error for the booking, changed on the wire.
#[track_caller]
fn changed(change: impl FnOnce(&mut Value)) -> DecodeError {
    let message = fixture("melmastoon/booking_confirmed.json");
    let mut body: Value = serde_json::from_slice(&message.body).unwrap();
    change(&mut body);
    MetadataJson.decode(&Message::from_body(body.to_string())).unwrap_err()
}

#[track_caller]
fn assert_invalid(error: DecodeError, expected: &str) {
    assert!(matches!(&error, DecodeError::Invalid { field, .. } if field == expected), "{error}");
}
