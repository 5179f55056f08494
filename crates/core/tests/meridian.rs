//! Messages of the bank, whose envelope lies inside the event.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use chapar_core::dialect::{
    DecodeError, Dialect, EncodeError, InlineProtobuf, InlineProtobufError, Message,
};
use chapar_core::{Envelope, Payload};
use serde_json::Value;
use support::{fixture, meridian, profile};

#[test]
fn a_bank_message_needs_a_topic_that_is_known() {
    let mut message = fixture("meridian/account_created.msg");
    for (topic, known) in [
        (None, false),
        (Some("current-account.account-created"), false),
        (Some("current-account.account-created.v1.dlq"), false),
        (Some("current-account.account-created.v2"), true),
    ] {
        message.topic = topic.map(str::to_owned);
        let decoded = meridian().decode(&message);
        assert_eq!(decoded.is_ok(), known, "{topic:?}");
        assert!(known || matches!(decoded, Err(DecodeError::UnknownType)));
    }
    message.topic = Some("current-account.account-lost.v1".into());
    assert!(matches!(meridian().decode(&message), Err(DecodeError::UnknownMessage(_))));
    let e = Envelope { event_type: "current-account.account-lost".into(), ..account() };
    assert!(matches!(meridian().encode(&e), Err(EncodeError::UnknownMessage(_))));
}

#[test]
fn a_bank_message_without_its_core_or_in_pieces_is_refused() {
    let topic = Some(format!("{}.v1", support::ACCOUNT_CREATED));
    let decode = |body: &[u8]| {
        meridian().decode(&Message { topic: topic.clone(), ..Message::from_body(body.to_vec()) })
    };
    assert!(matches!(decode(b""), Err(DecodeError::Missing(field)) if field == "event_id"));
    assert!(
        matches!(decode(b"\x0a\x01x"), Err(DecodeError::Missing(field)) if field == "timestamp")
    );
    let far = b"\x0a\x01x\x5a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    assert!(decode(far).is_ok(), "a second before 1970");
    let far = b"\x0a\x01x\x5a\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
    assert_invalid(decode(far).unwrap_err(), "timestamp");
    for broken in [
        &b"\x0a"[..],
        b"\x0a\x05x",
        b"\x08\x01",
        b"\x0a\x01\xff",
        b"\x1a\x01\xff",
        b"\x0f",
        b"\x00",
    ] {
        let refused = decode(broken).unwrap_err();
        assert!(matches!(refused, DecodeError::Protobuf { .. }), "{broken:?}: {refused}");
    }
}

#[test]
fn a_bank_event_may_be_given_as_json() {
    let meridian = meridian();
    let json = |text: &str| Envelope {
        payload: Payload::from_json_text(text).unwrap(),
        content_type: None,
        ..account()
    };
    let e = json(
        r#"{"accountId": "account-123", "accountStatus": "ACTIVE", "baseCurrency": "CURRENCY_EUR"}"#,
    );
    let decoded = meridian.decode(&meridian.encode(&e).unwrap()).unwrap();
    assert_eq!(decoded.payload.as_bytes(), b"\x20\x02\x2a\x06ACTIVE");
    assert_eq!(decoded.content_type.as_deref(), Some("application/protobuf"));
    let back: Value = meridian.payload_to_json(&decoded).unwrap().payload.parse().unwrap();
    assert_eq!(back, e.payload.parse::<Value>().unwrap());

    for wrong in [
        r#"{"accountId": "another"}"#,
        r#"{"eventId": "x"}"#,
        r#"{"unknown": 1}"#,
        r#"{"accountStatus": 5}"#,
        "[]",
    ] {
        let refused = meridian.encode(&json(wrong)).unwrap_err();
        assert!(matches!(refused, EncodeError::Message { .. }), "{wrong}: {refused}");
    }
}

#[test]
fn a_bank_payload_holds_nothing_of_the_envelope() {
    for wrong in [&b"\x0a\x01x"[..], b"\x60\x01", b"\x1a\x05x", b"\x1a\x01\xff"] {
        let e = Envelope { payload: Payload::Bytes(wrong.to_vec().into()), ..account() };
        let refused = meridian().encode(&e).unwrap_err();
        assert!(matches!(refused, EncodeError::Message { .. }), "{refused}");
    }
    let e = Envelope { content_type: Some("image/png".into()), ..account() };
    assert!(matches!(meridian().encode(&e), Err(EncodeError::PayloadKind { .. })));
}

#[test]
fn a_profile_whose_messages_do_not_hold_the_envelope_is_refused() {
    let with = |change: fn(&mut chapar_core::profile::ProtoMessage)| {
        let mut profile = profile("meridian");
        change(profile.messages.get_mut(support::ACCOUNT_CREATED).unwrap());
        InlineProtobuf::new(support::pool(), &profile).unwrap_err()
    };
    let error = with(|message| message.message = "meridian.events.v1.Nothing".into());
    assert!(matches!(error, InlineProtobufError::Unknown(_)), "{error}");
    let error = with(|message| message.message = "google.protobuf.Timestamp".into());
    assert!(matches!(error, InlineProtobufError::Field { .. }), "{error}");
    let error = with(|message| message.aggregate_field = "base_currency".into());
    assert!(error.to_string().contains("base_currency of type string"), "{error}");
}

fn account() -> Envelope {
    meridian().decode(&fixture("meridian/account_created.msg")).unwrap()
}

#[track_caller]
fn assert_invalid(error: DecodeError, expected: &str) {
    assert!(matches!(&error, DecodeError::Invalid { field, .. } if field == expected), "{error}");
}
