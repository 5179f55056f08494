//! What the booking flow writes is what the catalog promises.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::collections::BTreeMap;
use std::path::Path;

use chapar::Event;
use chapar_catalog::load;
use melmastoon::events::*;
use serde::Serialize;
use serde_json::Value;

#[test]
fn every_event_of_the_booking_flow_fits_its_schema() {
    let hotel = load(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert_eq!(hotel.mistakes, []);
    let written = written();
    assert!(TOPICS.iter().all(|topic| written.contains_key(topic)), "one of them is not tried");
    for (subject, payloads) in written {
        for payload in payloads {
            let refusals = hotel.schemas[subject].refusals(&payload);
            assert!(refusals.is_empty(), "{subject}: {refusals:?} in {payload}");
        }
    }
}

type Written = BTreeMap<&'static str, Vec<Value>>;

fn add<E: Event + Serialize>(written: &mut Written, event: E) {
    written.entry(E::SUBJECT).or_default().push(serde_json::to_value(event).unwrap());
}

/// Every event, with every value of its choices.
fn written() -> Written {
    let mut w = Written::new();
    let reservation_id = || "res_000001".to_owned();
    let price = || Price { amount_minor: 12_000, currency: "USD".into() };
    let guest = || Guest { guest_id: "guest_000001".into(), locale: "ps".into() };
    let stay = || Stay {
        property_id: "house-1".into(),
        room_id: "101".into(),
        check_in: "2027-01-02".parse().unwrap(),
        nights: 2,
    };
    let (intent_id, folio_id, allocation_id) = ("pay_1", "fol_1", "alloc_1");
    for rail in [Rail::Card, Rail::Cash] {
        add(
            &mut w,
            BookingHeld {
                reservation_id: reservation_id(),
                stay: stay(),
                guest: guest(),
                price: price(),
                rail,
                hold_expires_at: "2027-01-01T10:00:00.123456Z".parse().unwrap(),
            },
        );
        let (reservation_id, intent_id) = (reservation_id(), intent_id.into());
        add(&mut w, IntentCreated { reservation_id, intent_id, price: price(), rail });
    }
    for status in [Confirmation::Confirmed, Confirmation::ConfirmedCashPending] {
        let (reservation_id, stay, guest) = (reservation_id(), stay(), guest());
        add(&mut w, BookingConfirmed { reservation_id, status, stay, guest, price: price() });
    }
    for reason in ["no_availability", "payment_failed", "hold_expired"] {
        for allocation_id in [None, Some(allocation_id.to_owned())] {
            let (reservation_id, stay, guest) = (reservation_id(), stay(), guest());
            let reason = reason.into();
            add(&mut w, BookingCancelled { reservation_id, reason, stay, guest, allocation_id });
        }
        add(
            &mut w,
            AllocationReleased {
                reservation_id: reservation_id(),
                allocation_id: allocation_id.into(),
                nights_released: 2,
                reason: reason.into(),
            },
        );
    }
    let r = reservation_id;
    let allocation_id = allocation_id.into();
    add(&mut w, AllocationCommitted { reservation_id: r(), allocation_id, stay: stay() });
    add(&mut w, OversellBlocked { reservation_id: r(), stay: stay(), reason: "taken".into() });
    for rail in [CapturedRail::Card, CapturedRail::CashPending] {
        let intent_id = intent_id.into();
        add(&mut w, IntentCaptured { reservation_id: r(), intent_id, price: price(), rail });
    }
    let reason = || "declined".to_owned();
    let intent = || intent_id.to_owned();
    add(&mut w, IntentFailed { reservation_id: r(), intent_id: intent(), reason: reason() });
    add(&mut w, IntentRefunded { reservation_id: r(), intent_id: intent(), price: price() });
    let guest_id = guest().guest_id;
    add(&mut w, FolioOpened { reservation_id: r(), folio_id: folio_id.into(), guest_id });
    add(&mut w, ChargePosted { reservation_id: r(), folio_id: folio_id.into(), price: price() });
    let room_id = || "101".to_owned();
    let credential_id = "key_1".into();
    add(&mut w, KeyIssued { reservation_id: r(), credential_id, room_id: room_id() });
    add(&mut w, LockVendorError { reservation_id: r(), room_id: room_id(), reason: reason() });
    let message_id = || "msg_1".to_owned();
    let (template, locale) = ("booking_confirmed".into(), "ps".into());
    let message =
        MessageDispatched { reservation_id: r(), message_id: message_id(), template, locale };
    add(&mut w, message);
    add(&mut w, MessageBounced { reservation_id: r(), message_id: message_id(), reason: reason() });
    w
}

#[test]
fn the_bundle_that_the_hotel_runs_on_is_what_its_files_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let loaded = chapar_catalog::load(folder).unwrap();
    let current = serde_json::to_string_pretty(&chapar_catalog::bundle(&loaded)).unwrap() + "\n";
    let committed = std::fs::read_to_string(folder.join("contracts.json")).unwrap();
    assert!(
        current == committed,
        "make it anew: chapar schema bundle --system melmastoon --out systems/melmastoon/contracts.json"
    );
}
