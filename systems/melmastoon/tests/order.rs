//! Services hold their ground when events come in an order that no key would give them.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use chapar::{App, Event, Tenant};
use chapar_sql::Tables;
use common::{HOTEL, Hotel, on_both, stop, until};
use jiff::Timestamp;
use jiff::civil::Date;
use melmastoon::events::{
    AllocationCommitted, BookingCancelled, BookingCancelledReason, BookingCancelledRequired,
    BookingHeld, BookingHeldRequired, Guest, GuestRequired, Rail,
};
use melmastoon::{analytics, inventory, payment};

on_both!(
    a_booking_that_was_cancelled_before_it_is_allocated_gets_no_room,
    a_payment_begins_once_whichever_is_known_first,
    a_tenant_cannot_take_the_rooms_of_another,
);

async fn a_booking_that_was_cancelled_before_it_is_allocated_gets_no_room(hotel: Hotel) {
    let services = |app: App, config: &_| {
        app.service(inventory::service(config)).service(analytics::service(config))
    };
    let running = hotel.start(services).await;
    append(&hotel, HOTEL, cancelled()).await;
    append(&hotel, HOTEL, held()).await;
    until_recorded(&hotel, 2).await;
    until_idle(&hotel).await;
    assert_eq!(hotel.count("select count(*) from inventory_allocations", vec![]).await, 0);
    assert_eq!(hotel.told("inventory.allocation.committed", "res_1").await, 0);
    stop(running).await;
}

async fn a_payment_begins_once_whichever_is_known_first(hotel: Hotel) {
    let services = |app: App, config: &_| {
        app.service(payment::service(config)).service(analytics::service(config))
    };
    let running = hotel.start(services).await;
    let allocation = AllocationCommitted {
        reservation_id: "res_1".into(),
        allocation_id: "alloc_res_1".into(),
        property_id: "house-1".into(),
        room_id: "1".into(),
        check_in: CHECK_IN,
        nights: 2,
    };
    append(&hotel, HOTEL, allocation).await;
    append(&hotel, HOTEL, held()).await;
    until("the capture", async || hotel.told("payment.intent.captured", "res_1").await == 1).await;
    until_idle(&hotel).await;
    assert_eq!(hotel.told("payment.intent.created", "res_1").await, 1);
    assert_eq!(hotel.count("select count(*) from payment_captures", vec![]).await, 1);
    stop(running).await;
}

/// The rooms are another hotel's, under the same names: for this one they do not exist.
async fn a_tenant_cannot_take_the_rooms_of_another(hotel: Hotel) {
    let services = |app: App, config: &_| {
        app.service(inventory::service(config)).service(analytics::service(config))
    };
    let running = hotel.start(services).await;
    append(&hotel, "oxus-mazar", held()).await;
    until("the refusal", async || hotel.told("inventory.oversell.blocked", "res_1").await == 1)
        .await;
    assert_eq!(hotel.count("select count(*) from inventory_allocations", vec![]).await, 0);
    stop(running).await;
}

/// Appends an event as the service that owns it.
async fn append<E: Event>(hotel: &Hotel, tenant: &str, event: E) {
    let tenant: Tenant = tenant.parse().unwrap();
    let profile = hotel.chapar.profile();
    let token = profile.subject(E::SUBJECT).unwrap().service().to_owned();
    let (owner, _) = profile.services.iter().find(|(_, known)| **known == token).unwrap();
    let chapar = hotel.chapar.for_service(owner);
    let mut tx = chapar.begin(&tenant).await.unwrap();
    chapar.append(&mut tx, &tenant, event).await.unwrap();
    chapar.commit(tx).await.unwrap();
}

async fn until_recorded(hotel: &Hotel, events: i64) {
    until("the events to be recorded", async || {
        hotel.count("select count(*) from analytics_facts", vec![]).await >= events
    })
    .await;
}

async fn until_idle(hotel: &Hotel) {
    until("nothing to be on its way", async || {
        let mut tx = hotel.chapar.store().begin_report().await.unwrap();
        tx.survey().census().await.unwrap().in_flight == 0
    })
    .await;
}

const CHECK_IN: Date = Date::constant(2027, 3, 21);

fn guest() -> Guest {
    GuestRequired { guest_id: "guest_1".into(), locale: "en".into() }.into()
}

fn held() -> BookingHeld {
    BookingHeldRequired {
        reservation_id: "res_1".into(),
        property_id: "house-1".into(),
        room_id: "1".into(),
        check_in: CHECK_IN,
        nights: 2,
        guest: guest(),
        amount_minor: 12_000,
        currency: "USD".into(),
        rail: Rail::Card,
        hold_expires_at: Timestamp::UNIX_EPOCH,
    }
    .into()
}

fn cancelled() -> BookingCancelled {
    BookingCancelledRequired {
        reservation_id: "res_1".into(),
        reason: BookingCancelledReason::HoldExpired,
        property_id: "house-1".into(),
        room_id: "1".into(),
        check_in: CHECK_IN,
        nights: 2,
        guest: guest(),
    }
    .into()
}
