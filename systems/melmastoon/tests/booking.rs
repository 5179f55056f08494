//! The booking flow from the front desk to the books, and all the ways back.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::time::Duration;

use chapar::App;
use common::{Hotel, on_both, stop, until};
use melmastoon::events::Rail;
use melmastoon::{inventory, payment, reservation};

on_both!(
    a_paid_booking_has_its_room_folio_key_and_message,
    a_guest_who_pays_in_cash_is_confirmed_and_gets_no_key_yet,
    a_declined_card_gives_the_room_back_to_the_next_guest,
    of_two_guests_who_want_one_room_one_gets_it,
    a_hold_that_inventory_never_answers_expires,
    an_allocation_after_the_deadline_leaves_no_room_sold,
    money_captured_after_the_deadline_is_given_back,
    a_booking_without_a_key_stays_confirmed_and_queues_at_the_front_desk,
    the_same_hold_asked_for_twice_is_one_booking,
);

async fn a_paid_booking_has_its_room_folio_key_and_message(hotel: Hotel) {
    let running = hotel.start(melmastoon::app).await;
    let booking = hotel.hold(1, Rail::Card).await;
    hotel.until_state(&booking, "confirmed").await;
    hotel.until_settled().await;
    for topic in [
        "reservation.booking.held",
        "inventory.allocation.committed",
        "payment.intent.created",
        "payment.intent.captured",
        "reservation.booking.confirmed",
        "billing.folio.opened",
        "billing.folio.charge_posted",
        "lock_integration.key_credential.issued",
        "notification.message.dispatched",
    ] {
        assert_eq!(hotel.told(topic, &booking).await, 1, "{topic}");
    }
    const NIGHTS: &str = "select count(*) from inventory_allocations where reservation = $1";
    assert_eq!(hotel.count(NIGHTS, vec![booking.as_str().into()]).await, 2);
    const POSTED: &str = "select count(*) from billing_ledger";
    assert_eq!(hotel.count(POSTED, vec![]).await, 4);
    const QUOTES: &str = "select count(*) from pricing_quotes where reservation = $1";
    assert_eq!(hotel.count(QUOTES, vec![booking.as_str().into()]).await, 1);
    stop(running).await;
}

async fn a_guest_who_pays_in_cash_is_confirmed_and_gets_no_key_yet(hotel: Hotel) {
    let running = hotel.start(melmastoon::app).await;
    let booking = hotel.hold(1, Rail::Cash).await;
    hotel.until_state(&booking, "confirmed_cash_pending").await;
    hotel.until_settled().await;
    assert_eq!(hotel.told("payment.intent.captured", &booking).await, 1);
    assert_eq!(hotel.told("lock_integration.key_credential.issued", &booking).await, 0);
    assert_eq!(hotel.count("select count(*) from payment_captures", vec![]).await, 0);
    stop(running).await;
}

async fn a_declined_card_gives_the_room_back_to_the_next_guest(mut hotel: Hotel) {
    hotel.config.vendors.decline = 1.0;
    let running = hotel.start(melmastoon::app).await;
    let declined = hotel.hold(1, Rail::Card).await;
    hotel.until_state(&declined, "cancelled").await;
    assert_eq!(hotel.state(&declined).await.1.as_deref(), Some("payment_failed"));
    hotel.until_settled().await;
    assert_eq!(hotel.told("inventory.allocation.released", &declined).await, 1);
    assert_eq!(hotel.told("notification.message.dispatched", &declined).await, 1);

    let next = hotel.hold(1, Rail::Cash).await;
    hotel.until_state(&next, "confirmed_cash_pending").await;
    hotel.until_settled().await;
    stop(running).await;
}

async fn of_two_guests_who_want_one_room_one_gets_it(hotel: Hotel) {
    let running = hotel.start(melmastoon::app).await;
    let (one, other) = tokio::join!(hotel.hold(1, Rail::Card), hotel.hold(1, Rail::Card));
    until("both to have an answer", async || {
        hotel.state(&one).await.0 != "held" && hotel.state(&other).await.0 != "held"
    })
    .await;
    hotel.until_settled().await;
    let mut states = [hotel.state(&one).await, hotel.state(&other).await];
    states.sort();
    assert_eq!(states[0], ("cancelled".into(), Some("no_availability".into())));
    assert_eq!(states[1].0, "confirmed");
    stop(running).await;
}

async fn a_hold_that_inventory_never_answers_expires(mut hotel: Hotel) {
    hotel.config.allocation_deadline = Duration::from_millis(300);
    let running = hotel.start(|app, config| app.service(reservation::service(config))).await;
    let booking = hotel.hold(1, Rail::Card).await;
    hotel.until_state(&booking, "cancelled").await;
    assert_eq!(hotel.state(&booking).await.1.as_deref(), Some("hold_expired"));
    hotel.until_settled().await;
    stop(running).await;
}

async fn an_allocation_after_the_deadline_leaves_no_room_sold(mut hotel: Hotel) {
    hotel.config.allocation_deadline = Duration::from_millis(1);
    let running = hotel.start(|app, config| app.service(reservation::service(config))).await;
    let late = hotel.hold(1, Rail::Card).await;
    hotel.until_state(&late, "cancelled").await;
    stop(running).await;

    hotel.config.allocation_deadline = Duration::from_secs(30);
    let running = hotel.start(melmastoon::app).await;
    until("the room to be given back", async || {
        hotel.told("inventory.allocation.released", &late).await == 1
    })
    .await;
    hotel.until_settled().await;
    assert_eq!(hotel.told("payment.intent.created", &late).await, 0);
    let next = hotel.hold(1, Rail::Card).await;
    hotel.until_state(&next, "confirmed").await;
    stop(running).await;
}

async fn money_captured_after_the_deadline_is_given_back(mut hotel: Hotel) {
    hotel.config.allocation_deadline = Duration::from_millis(1);
    let services = |app: App, config: &_| {
        app.service(payment::service(config)).service(inventory::service(config))
    };
    let running = hotel.start(services).await;
    let booking = hotel.hold(1, Rail::Card).await;
    until("the money to be captured", async || {
        hotel.count("select count(*) from payment_captures", vec![]).await == 1
    })
    .await;
    stop(running).await;

    // The saga has not heard of any of it when its deadline passes.
    let running = hotel.start(|app, _| app.service(reservation::deadlines())).await;
    hotel.until_state(&booking, "cancelled").await;
    stop(running).await;

    let running = hotel.start(melmastoon::app).await;
    until("the money to be given back", async || {
        hotel.told("payment.intent.refunded", &booking).await == 1
    })
    .await;
    hotel.until_settled().await;
    assert_eq!(hotel.state(&booking).await.1.as_deref(), Some("hold_expired"));
    stop(running).await;
}

async fn a_booking_without_a_key_stays_confirmed_and_queues_at_the_front_desk(mut hotel: Hotel) {
    hotel.config.vendors.lock_error = 1.0;
    let running = hotel.start(melmastoon::app).await;
    let booking = hotel.hold(1, Rail::Card).await;
    const QUEUED: &str = "select count(*) from manual_key_queue where reservation = $1";
    until("the queue of the front desk", async || {
        hotel.count(QUEUED, vec![booking.as_str().into()]).await == 1
    })
    .await;
    hotel.until_settled().await;
    assert_eq!(hotel.state(&booking).await.0, "confirmed");
    assert_eq!(hotel.told("lock_integration.vendor.error", &booking).await, 1);
    stop(running).await;
}

async fn the_same_hold_asked_for_twice_is_one_booking(hotel: Hotel) {
    let running = hotel.start(melmastoon::app).await;
    let booking = hotel.hold_as("res_mine").await;
    assert_eq!(hotel.hold_as("res_mine").await, booking);
    hotel.until_state(&booking, "confirmed").await;
    hotel.until_settled().await;
    assert_eq!(hotel.count("select count(*) from reservations", vec![]).await, 1);
    stop(running).await;
}
