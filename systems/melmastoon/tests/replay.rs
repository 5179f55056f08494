//! Every consumer of the hotel, driven in memory by a clock that the test turns.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use chapar::App;
use chapar::testing::{self, Harness};
use chapar_core::machine::retry::RetryPolicy;
use jiff::civil::Date;
use melmastoon::events::{GuestRequired, Rail};
use melmastoon::reservation::{Desk, HoldRequest};
use melmastoon::{Config, Vendors, inventory, reservation};

const HOTEL: &str = "pamir-kabul";

fn config() -> Config {
    Config { retry: RetryPolicy::attempts(3), vendors: Vendors::reliable(), ..Config::default() }
}

async fn hotel(config: &Config, services: fn(App, &Config) -> App) -> Harness {
    let store = testing::store().await.unwrap();
    melmastoon::migrate(&store).await.unwrap();
    let harness = Harness::new(melmastoon::backbone(store), |app| services(app, config)).await;
    let harness = harness.unwrap();
    let tenant = HOTEL.parse().unwrap();
    inventory::add_rooms(harness.chapar(), &tenant, "house-1", 3).await.unwrap();
    harness
}

async fn hold(harness: &Harness, config: &Config, rail: Rail) -> String {
    let request = HoldRequest {
        reservation: None,
        tenant: HOTEL.parse().unwrap(),
        property: "house-1".into(),
        room: "1".into(),
        check_in: Date::constant(2027, 3, 21),
        nights: 2,
        guest: GuestRequired { guest_id: "guest_1".into(), locale: "fa".into() }.into(),
        amount_minor: 12_000,
        currency: "USD".into(),
        rail,
    };
    Desk::new(harness.chapar(), config).hold(request).await.unwrap()
}

async fn state(harness: &Harness, reservation: &str) -> (String, Option<String>) {
    const STATE: &str = "select state, reason from reservations where id = $1";
    let mut tx = harness.chapar().store().begin_report().await.unwrap();
    let row = tx.fetch_optional(STATE, vec![reservation.into()]).await.unwrap().unwrap();
    (row.get(0).unwrap(), row.get(1).unwrap())
}

/// What a booking, and one that comes to nothing, set off; each event to each of its consumers.
async fn keep_their_contract(mut config: Config, decline: f64, rail: Rail) -> usize {
    config.vendors.decline = decline;
    let mut harness = hotel(&config, melmastoon::app).await;
    hold(&harness, &config, rail).await;
    harness.settle().await.unwrap();
    harness.turn(Duration::from_secs(3600)).await.unwrap();
    let app = |app| melmastoon::app(app, &config);
    let probe = App::new(
        harness.chapar().clone(),
        std::sync::Arc::new(chapar_sql::SqlTransport::new(harness.chapar().store().clone(), "x")),
        "x",
    );
    let mut kept = 0;
    for (consumer, topic) in app(probe).subscriptions() {
        for event in harness.told(&topic) {
            let held = harness.replay_contract(&consumer, &event).await;
            held.unwrap_or_else(|error| panic!("{consumer} and {topic}: {error}"));
            kept += 1;
        }
    }
    assert!(harness.letters().await.unwrap().is_empty());
    kept
}

#[tokio::test]
async fn every_consumer_takes_a_second_delivery_for_what_it_is() {
    let paid = keep_their_contract(config(), 0.0, Rail::Card).await;
    let cash = keep_their_contract(config(), 0.0, Rail::Cash).await;
    let declined = keep_their_contract(config(), 1.0, Rail::Card).await;
    assert!(paid > 15 && cash > 8 && declined > 8, "{paid} {cash} {declined}");
}

#[tokio::test]
async fn a_hold_without_an_answer_expires_when_the_clock_says_so_and_not_before() {
    let config = config();
    // No service allocates rooms here.
    let services = |app: App, config: &Config| app.service(reservation::service(config));
    let mut harness = hotel(&config, services).await;
    let booking = hold(&harness, &config, Rail::Card).await;
    harness.settle().await.unwrap();
    harness.turn(config.allocation_deadline - Duration::from_secs(1)).await.unwrap();
    assert_eq!(state(&harness, &booking).await.0, "held");
    harness.turn(Duration::from_secs(1)).await.unwrap();
    let expired = ("cancelled".to_owned(), Some("hold_expired".to_owned()));
    assert_eq!(state(&harness, &booking).await, expired);
    assert_eq!(harness.told("melmastoon.reservation.booking.cancelled.v1").len(), 1);
}

#[tokio::test]
async fn a_booking_is_confirmed_without_a_wait() {
    let config = config();
    let mut harness = hotel(&config, melmastoon::app).await;
    let booking = hold(&harness, &config, Rail::Card).await;
    harness.settle().await.unwrap();
    assert_eq!(state(&harness, &booking).await.0, "confirmed");
    let told = harness.told("melmastoon.reservation.booking.confirmed.v1");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].tenant.as_str(), HOTEL);
}

#[tokio::test]
async fn a_key_that_failed_is_queued_at_the_time_of_the_clock() {
    let mut config = config();
    config.vendors.lock_error = 1.0;
    let mut harness = hotel(&config, melmastoon::app).await;
    harness.turn(Duration::from_secs(86_400)).await.unwrap();
    let tomorrow = harness.now();
    let reservation = hold(&harness, &config, Rail::Card).await;
    harness.settle().await.unwrap();
    // The vendor is called once per turn of the clock, until the call is given up.
    for _ in 0..10 {
        harness.turn(Duration::from_secs(3600)).await.unwrap();
    }
    const QUEUED: &str = "select queued_at from manual_key_queue where reservation = $1";
    let mut tx = harness.chapar().store().begin_report().await.unwrap();
    let row = tx.fetch_optional(QUEUED, vec![reservation.into()]).await.unwrap().unwrap();
    let queued: jiff::Timestamp = row.get(0).unwrap();
    assert!(tomorrow <= queued && queued <= harness.now(), "{queued}");
}
