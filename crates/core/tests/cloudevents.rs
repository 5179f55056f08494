//! The rules of the CloudEvents specification 1.0.2 about attributes, one by one.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use std::collections::BTreeMap;

use chapar_core::dialect::{CloudEvents, DecodeError, Dialect, Message};
use chapar_core::{Envelope, Payload};
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use support::strategy::{bytes_envelope, json_envelope};
use support::{BINDINGS, round_trip};

fn event(name: &str, value: Value) -> Message {
    let mut event = json!({ "specversion": "1.0", "id": "1", "type": "a.b", "source": "/a" });
    event[name] = value;
    Message::from_body(event.to_string())
}

/// Attributes that the specification forbids, with the rule.
fn forbidden() -> Vec<(&'static str, Value, &'static str)> {
    let text = "string is expected";
    let name = "lower-case letters and digits";
    let kinds = "a text, a boolean or an integer";
    vec![
        // Required attributes: non-empty strings.
        ("subject", json!(""), "empty"),
        ("subject", json!(7), text),
        ("subject", json!({ "a": 1 }), text),
        ("dataschema", json!(""), "absolute URI"),
        ("dataschema", json!("schema.json"), "absolute URI"),
        ("dataschema", json!("/schemas/a"), "absolute URI"),
        ("dataschema", json!("https://a/b c"), "absolute URI"),
        ("dataschema", json!(true), text),
        ("datacontenttype", json!(""), "media type"),
        ("datacontenttype", json!("json"), "media type"),
        ("source", json!("a b"), "URI reference"),
        ("source", json!("1a:b"), "URI reference"),
        ("source", json!("/ü"), "URI reference"),
        ("source", json!("/%zz"), "URI reference"),
        ("source", json!("http://[bad"), "URI reference"),
        ("source", json!("http://[1:2]"), "URI reference"),
        ("source", json!("http://[::1]a"), "URI reference"),
        ("source", json!("http://a]"), "URI reference"),
        ("source", json!("http://a:b/c"), "URI reference"),
        ("source", json!("http://a@b@c"), "URI reference"),
        // RFC 3339: four digits of a year, seconds, an offset, and nothing beside.
        ("time", json!("2026-01-31T12:00Z"), "RFC 3339"),
        ("time", json!("2026-01-31"), "RFC 3339"),
        ("time", json!("2026-01-31T12:00:00"), "RFC 3339"),
        ("time", json!("2026-01-31 12:00:00Z"), "RFC 3339"),
        ("time", json!("20260131T120000Z"), "RFC 3339"),
        ("time", json!("2026-01-31T12:00:00,5Z"), "RFC 3339"),
        ("time", json!("2026-01-31T12:00:00.Z"), "RFC 3339"),
        ("time", json!("2026-01-31T12:00:00+01"), "RFC 3339"),
        ("time", json!("2026-01-31T12:00:00+01:00[Europe/Paris]"), "RFC 3339"),
        ("time", json!("-000001-01-31T12:00:00Z"), "RFC 3339"),
        ("time", json!(1_769_860_800), text),
        // Names of extensions.
        ("myTag", json!("x"), name),
        ("my_tag", json!("x"), name),
        ("my-tag", json!("x"), name),
        ("my.tag", json!("x"), name),
        ("täg", json!("x"), name),
        ("", json!("x"), name),
        // Types of extensions.
        ("tag", json!({ "a": 1 }), kinds),
        ("tag", json!([1]), kinds),
        ("tag", json!(1.5), "32 bits"),
        ("tag", json!(2_147_483_648_i64), "32 bits"),
        ("tag", json!(-2_147_483_649_i64), "32 bits"),
        // Characters of strings.
        ("tag", json!("a\u{0}"), "control characters"),
        ("tag", json!("a\nb"), "control characters"),
        ("tag", json!("a\u{7f}"), "control characters"),
        ("tag", json!("a\u{85}"), "control characters"),
        ("tag", json!("\u{fdd0}"), "noncharacters"),
        ("tag", json!("\u{1fffe}"), "noncharacters"),
        ("type", json!("a\tb"), "control characters"),
        ("subject", json!("a\rb"), "control characters"),
    ]
}

#[test]
fn what_the_specification_forbids_is_refused_with_the_rule() {
    for (name, value, rule) in forbidden() {
        let message = event(name, value);
        let refused = CloudEvents::Structured.decode(&message);
        let Err(DecodeError::Invalid { field, reason, .. }) = refused else {
            panic!("{:?}: {refused:?}", message.body);
        };
        assert_eq!(field, name);
        assert!(reason.contains(rule), "{name}: {reason}");
    }
}

#[test]
fn what_the_specification_allows_is_read() {
    for (name, value) in [
        ("subject", json!("bookings/42 ü")),
        ("dataschema", json!("https://a.example/s?x=1#f")),
        ("dataschema", json!("schemas://reservation/booking/held/v1#sha256-00")),
        ("dataschema", json!("urn:uuid:0190d6f2-7b1c-7c3e-8a4d-5b6c7d8e9f00")),
        ("datacontenttype", json!("application/vnd.a+json; charset=\"utf-8\"")),
        ("source", json!("https://[2001:db8::1]:80/a?b#c")),
        ("source", json!("http://[v1.a:b]:80")),
        ("source", json!("http://me:pw@a:/b")),
        ("source", json!("file:///etc")),
        ("source", json!("mailto:a@example.com")),
        ("source", json!("1-555-123-4567")),
        ("source", json!("/a:b/%C3%BC")),
        ("time", json!("2026-01-31T12:00:00Z")),
        ("time", json!("2026-01-31t12:00:00.123456789z")),
        ("time", json!("2026-01-31T12:00:00.5+05:30")),
        ("tag", json!("")),
        ("tag", json!("\u{1F680} \u{200D}")),
        ("tag", json!(-2_147_483_648_i64)),
        ("tag", json!(2_147_483_647)),
        ("tag", json!(false)),
        ("tag", json!(null)),
        ("averyveryverylongnameofanextension1", json!("x")),
    ] {
        let message = event(name, value.clone());
        let read = CloudEvents::Structured.decode(&message);
        assert!(read.is_ok(), "{name} {value}: {read:?}");
        round_trip(&CloudEvents::Structured, &read.unwrap());
    }
}

#[test]
fn a_lenient_reader_keeps_what_is_forbidden_and_writes_only_what_is_allowed() {
    // Without a calendar these cannot be read at all; without an id or a type there is no event.
    let hopeless = |name: &str, value: &Value| match name {
        "time" => value.as_str().is_none_or(|text| text.parse::<jiff::Timestamp>().is_err()),
        _ => name == "type",
    };
    for (name, value, _) in forbidden() {
        let lenient = CloudEvents::Structured.lenient();
        let read = lenient.decode(&event(name, value.clone()));
        if hopeless(name, &value) || (name == "datacontenttype") {
            continue;
        }
        let envelope = read.unwrap_or_else(|error| panic!("{name} {value}: {error}"));
        let written = lenient.encode(&envelope).unwrap();
        let strictly = CloudEvents::Structured.decode(&written);
        assert_eq!(strictly.unwrap(), envelope, "{name} {value}");
        for binding in BINDINGS {
            round_trip(&CloudEvents::Binary(binding), &envelope);
        }
    }
}

#[test]
fn a_media_type_that_is_none_is_not_written() {
    let lenient = CloudEvents::Structured.lenient();
    let read = lenient.decode(&event("datacontenttype", json!("json"))).unwrap();
    let refused = lenient.encode(&read).unwrap_err();
    assert!(refused.to_string().contains("is not a media type"), "{refused}");
}

#[test]
fn json_in_base64_can_travel_as_a_body() {
    let body = json!({
        "specversion": "1.0", "id": "1", "type": "a.b", "source": "/a",
        "datacontenttype": "application/json", "data_base64": "eyJhIjogMS4xMH0=",
    });
    let read = CloudEvents::Structured.decode(&Message::from_body(body.to_string())).unwrap();
    for binding in BINDINGS {
        let message = round_trip(&CloudEvents::Binary(binding), &read);
        assert_eq!(message.body, &br#"{"a": 1.10}"#[..]);
        assert_eq!(message.header("content-type"), Some("application/json"));
    }
    round_trip(&CloudEvents::Structured, &read);
    // Without a media type the bytes are what they are.
    let mut bare = body.clone();
    bare.as_object_mut().unwrap().remove("datacontenttype");
    let read = CloudEvents::Structured.decode(&Message::from_body(bare.to_string())).unwrap();
    assert!(matches!(read.payload, Payload::Bytes(_)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// An independent reading of the rules: no attribute that is written breaks one.
    #[test]
    fn nothing_that_is_written_breaks_a_rule(
        envelope in prop_oneof![json_envelope(), bytes_envelope()]
    ) {
        assert_kept(&envelope);
    }
}

fn assert_kept(envelope: &Envelope) {
    let written = CloudEvents::Structured.encode(envelope).unwrap();
    let mut body: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&written.body).unwrap();
    body.retain(|name, _| !matches!(name.as_str(), "data" | "data_base64"));
    for (name, value) in body {
        let value: Value = serde_json::from_str(value.get()).unwrap();
        assert!(name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9')), "{name}");
        match &value {
            Value::Bool(_) => {}
            Value::Number(number) => assert!(number.as_i64().unwrap().abs() <= 1 << 31, "{name}"),
            Value::String(text) => {
                assert!(!text.chars().any(char::is_control), "{name}: {text:?}");
                let empty = ["subject", "dataschema", "partitionkey", "source", "id", "type"];
                assert!(!text.is_empty() || !empty.contains(&name.as_str()), "{name} is empty");
                if name == "dataschema" {
                    assert!(text.contains(':') && text.is_ascii(), "{text:?}");
                }
                if name == "source" {
                    assert!(text.is_ascii() && !text.contains([' ', '"', '\\']), "{text:?}");
                }
                if name == "time" {
                    assert_eq!(text.find('T'), Some(10), "{text}");
                }
            }
            other => panic!("{name}: {other}"),
        }
    }
}
