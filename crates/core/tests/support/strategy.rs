//! Arbitrary envelopes.

use std::collections::BTreeMap;

use chapar_core::{
    Actor, ActorKind, Aggregate, Envelope, Id, Payload, Producer, Tenant, TraceContext,
};
use jiff::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use serde_json::Value;

/// Envelopes whose payload is JSON.
pub fn json_envelope() -> BoxedStrategy<Envelope> {
    let media_type = of(Just("application/vnd.chapar.test+json".to_owned()));
    (envelope("[a-z]{1,8}(\\.[a-z_]{1,8}){1,4}"), json_payload(), media_type)
        .prop_map(|(e, payload, content_type)| Envelope { payload, content_type, ..e })
        .boxed()
}

/// Envelopes whose payload is bytes of some media type.
pub fn bytes_envelope() -> BoxedStrategy<Envelope> {
    let media_type = prop_oneof![
        Just(None),
        Just(Some("application/octet-stream".to_owned())),
        Just(Some("text/plain; charset=utf-8".to_owned())),
        Just(Some("image/svg+xml".to_owned())),
    ];
    let bytes = prop_oneof![vec(any::<u8>(), 0..40), text().prop_map(String::into_bytes)];
    (envelope("[a-z]{1,8}(\\.[a-z0-9]{1,4}){1,4}"), bytes, media_type)
        .prop_map(|(e, bytes, content_type)| Envelope {
            payload: Payload::Bytes(bytes.into()),
            content_type,
            ..e
        })
        .boxed()
}

/// Envelopes of an account that was opened, with fields that its description does not know.
pub fn account_envelope() -> BoxedStrategy<Envelope> {
    let payload = (text(), text(), vec(any::<u8>(), 0..9), 0u8..4).prop_map(
        |(iban, by, unknown, currency)| {
            let mut bytes = field(3, iban.as_bytes());
            bytes.extend(field(8, by.as_bytes()));
            bytes.extend([4 << 3, currency]);
            bytes.extend(field(99, &unknown));
            bytes
        },
    );
    (envelope("[a-z]"), payload)
        .prop_map(|(e, payload)| Envelope {
            event_type: super::ACCOUNT_CREATED.into(),
            payload: Payload::Bytes(payload.into()),
            content_type: Some("application/protobuf".into()),
            ..e
        })
        .boxed()
}

/// Texts that trip naive code.
pub fn text() -> BoxedStrategy<String> {
    let odd = [
        "",
        " ",
        "%41",
        "%",
        "%zz",
        "\"quoted\"",
        "null",
        "true",
        "17",
        "{}",
        "a\nb",
        "\u{0}",
        "\u{7f}",
        "ü",
        "\u{1F680}\u{200D}",
        "\u{FEFF}",
        "\u{202E}abc",
        "/services/a b",
        "a,b",
        "x.v2",
        "\\",
        "😀".repeat(40).leak(),
        "platform",
        "2026-01-01T00:00:00Z",
    ];
    prop_oneof![
        3 => "[a-zA-Z0-9_:/-]{1,20}",
        1 => any::<String>(),
        2 => proptest::sample::select(odd.map(str::to_owned).to_vec()),
    ]
    .boxed()
}

/// Any point in time that exists.
pub fn time() -> BoxedStrategy<Timestamp> {
    let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    prop_oneof![
        1 => proptest::sample::select(vec![Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH]),
        3 => (first..last, 0..1_000_000_000).prop_map(|(s, n)| Timestamp::new(s, n).unwrap()),
    ]
    .boxed()
}

pub fn id() -> BoxedStrategy<Id> {
    prop_oneof![
        (any::<u64>(), any::<u128>()).prop_map(|(ms, random)| Id::uuid_v7(ms >> 16, random)),
        any::<u128>().prop_map(Id::uuid_v4),
        (any::<u64>(), any::<u128>()).prop_map(|(ms, random)| Id::ulid(ms >> 16, random)),
        text().prop_filter_map("not an id", |text| text.parse().ok()),
    ]
    .boxed()
}

/// Any JSON.
pub fn value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-100i32..100).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
    .boxed()
}

fn json_payload() -> BoxedStrategy<Payload> {
    let odd = ["1e400", "-0", "1.10", "{\"b\": 1,\n \"a\": 2, \"a\": 3}", "\"\\u00fc\"", "[ ]"];
    prop_oneof![
        value().prop_map(|value| Payload::json(&value).unwrap()),
        proptest::sample::select(odd.to_vec())
            .prop_map(|text| Payload::from_json_text(text).unwrap()),
    ]
    .boxed()
}

fn envelope(event_type: &'static str) -> BoxedStrategy<Envelope> {
    let tenant = prop_oneof![
        Just(Tenant::platform()),
        Just("meridian".parse().unwrap()),
        text().prop_filter_map("not a tenant", |text| text.parse::<Tenant>().ok()),
    ];
    let version = prop_oneof![3 => 1u32..4, 1 => 1..=u32::MAX];
    let kinds = proptest::sample::select(vec![
        ActorKind::User,
        ActorKind::System,
        ActorKind::Service,
        ActorKind::ApiKey,
        ActorKind::ServiceAccount,
    ]);
    let actor = of((kinds, text()).prop_map(|(kind, id)| Actor { kind, id }));
    let producer =
        (text(), text(), text(), of(text())).prop_map(|(service, instance, commit, region)| {
            Producer { service, instance, commit, region }
        });
    let aggregate = of((text(), text(), of(prop_oneof![Just(0), any::<i64>()]))
        .prop_map(|(kind, id, version)| Aggregate { kind, id, version }));
    let trace = of((text(), of(text()))
        .prop_map(|(traceparent, tracestate)| TraceContext { traceparent, tracestate }));
    let provenance =
        of(btree_map(text(), value(), 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect())));
    let source = of(text().prop_filter("a source is not empty", |text| !text.is_empty()));
    // Fields of others: some fit into attributes, some only just do not.
    let name = prop_oneof![Just("sequence".to_owned()), Just("Upper".to_owned()), text()];
    let extensions = btree_map(name, value(), 0..4);
    (
        (id(), event_type, version, of(text()), tenant, id(), of(id()), actor),
        (time(), of(time()), of(time()), producer, source, of(text()), of(text()), aggregate),
        (of(text()), of(text()), any::<bool>(), provenance, of(id()), trace),
        (btree_map(text(), value(), 0..4), extensions),
    )
        .prop_map(|(a, b, c, (metadata, extensions))| Envelope {
            id: a.0,
            event_type: a.1,
            version: a.2,
            schema: a.3,
            tenant: a.4,
            correlation: a.5,
            causation: a.6,
            actor: a.7,
            occurred_at: b.0,
            ingested_at: b.1,
            written_at: b.2,
            producer: b.3,
            source: b.4,
            content_type: None,
            idempotency_key: b.5,
            ordering_key: b.6,
            aggregate: b.7,
            retention: c.0,
            residency: c.1,
            offline_replay: c.2,
            ai_provenance: c.3,
            outbox_id: c.4,
            trace: c.5,
            metadata,
            extensions,
            payload: Payload::json(&BTreeMap::<String, i32>::new()).unwrap(),
        })
        .boxed()
}

fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut varint = |mut value: usize| {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    };
    varint((number as usize) << 3 | 2);
    varint(content.len());
    bytes.extend_from_slice(content);
    bytes
}
