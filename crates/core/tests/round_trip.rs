//! Every dialect gives back every field of every envelope.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use chapar_core::dialect::{CloudEvents, Dialect, FlatJson, MetadataJson};
use chapar_core::{Aggregate, Envelope};
use proptest::prelude::*;

use support::strategy::{account_envelope, bytes_envelope, json_envelope};
use support::{BINDINGS, meridian, round_trip};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn melmastoon_gives_back_every_envelope(envelope in json_envelope()) {
        round_trip(&MetadataJson, &envelope);
    }

    #[test]
    fn learning_gives_back_every_envelope(envelope in json_envelope()) {
        round_trip(&FlatJson, &envelope);
    }

    #[test]
    fn cloudevents_give_back_every_envelope_in_every_mode(
        envelope in prop_oneof![json_envelope(), bytes_envelope()]
    ) {
        round_trip(&CloudEvents::Structured, &envelope);
        for binding in BINDINGS {
            round_trip(&CloudEvents::Binary(binding), &envelope);
        }
    }

    #[test]
    fn cloudevents_escape_headers_into_printable_ascii(envelope in json_envelope()) {
        for binding in [chapar_core::dialect::Binding::Http, chapar_core::dialect::Binding::Nats] {
            for (name, value) in &CloudEvents::Binary(binding).encode(&envelope).unwrap().headers {
                prop_assert!(value.bytes().all(|b| (b' '..=b'~').contains(&b)), "{name}: {value}");
                prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{name}");
            }
        }
    }

    #[test]
    fn a_journey_through_other_dialects_changes_nothing(envelope in json_envelope()) {
        let mut travelled = envelope.clone();
        let structured = CloudEvents::Structured;
        let stations: [&dyn Dialect; 6] = [
            &MetadataJson, &structured, &FlatJson, &CloudEvents::Binary(BINDINGS[0]),
            &CloudEvents::Binary(BINDINGS[1]), &MetadataJson,
        ];
        for station in stations {
            travelled = station.decode(&station.encode(&travelled).unwrap()).unwrap();
        }
        prop_assert_eq!(travelled, envelope);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..Default::default() })]

    #[test]
    fn meridian_gives_back_every_envelope(envelopes in proptest::collection::vec(account_envelope(), 4)) {
        let meridian = meridian();
        for envelope in envelopes {
            round_trip(&meridian, &envelope);
        }
    }

    #[test]
    fn a_bank_event_survives_as_json_and_as_a_cloud_event(mut envelope in account_envelope()) {
        let meridian = meridian();
        // An aggregate without an id has no place in the JSON of the message.
        envelope.aggregate = Some(Aggregate { kind: "account".into(), id: "acc-1".into(), version: Some(3) });
        round_trip(&CloudEvents::Structured, &envelope);
        let json = meridian.payload_to_json(&envelope).unwrap();
        let travelled = MetadataJson.decode(&MetadataJson.encode(&json).unwrap()).unwrap();
        prop_assert_eq!(&travelled, &json);
        let back = meridian.decode(&meridian.encode(&travelled).unwrap()).unwrap();
        let known = Envelope { payload: back.payload.clone(), ..envelope.clone() };
        prop_assert_eq!(&back, &known, "all but the unknown fields of the payload");
        prop_assert_eq!(meridian.payload_to_json(&back).unwrap(), json);
    }
}
