//! Many guests at once, vendors that fail, and the one message that cannot be written.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use chapar_sql::Tables;
use std::time::Duration;

use chapar::ops::{Letters, Operator};
use common::{Hotel, on_both, stop, until};
use melmastoon::{Generator, Vendors, audit, notification};
use tokio_util::sync::CancellationToken;

on_both!(
    the_first_guest_leaves_one_dead_letter_that_can_be_mended_and_replayed,
    two_hundred_guests_and_unreliable_vendors_leave_clean_books,
    a_generator_goes_on_where_the_last_one_ended,
);

async fn the_first_guest_leaves_one_dead_letter_that_can_be_mended_and_replayed(hotel: Hotel) {
    let running = hotel.start(melmastoon::app).await;
    Generator::new(&hotel.chapar, &hotel.config, 1).make(5).await.unwrap();
    until("the dead letter", async || dead_letters(&hotel).await.len() == 1).await;
    hotel.until_settled().await;
    let letters = dead_letters(&hotel).await;
    let (id, consumer, error) = &letters[0];
    assert_eq!(consumer, notification::CONSUMER);
    assert!(error.contains("no template \"confirmed\" in the language \"is\""), "{error}");

    notification::add_template(&hotel.chapar, "is", "confirmed", "Bókun þín er staðfest")
        .await
        .unwrap();
    let by = Operator { name: "test", reason: "the template was added" };
    Letters::of(hotel.chapar.store()).retry(id, by).await.unwrap();
    until("the replayed message", async || {
        hotel.told("notification.message.dispatched", "res_1_000000").await == 1
    })
    .await;
    hotel.until_settled().await;
    assert_eq!(dead_letters(&hotel).await, []);
    assert_eq!(hotel.count("select count(*) from notification_messages", vec![]).await, 5);
    stop(running).await;
}

async fn two_hundred_guests_and_unreliable_vendors_leave_clean_books(mut hotel: Hotel) {
    hotel.config.vendors = Vendors { decline: 0.2, lock_error: 0.2, flaky: 0.2, seed: 7 };
    let running = hotel.start(melmastoon::app).await;
    let generator = Generator::new(&hotel.chapar, &hotel.config, 7);
    generator.make(200).await.unwrap();
    assert_eq!((generator.tally().held(), generator.tally().failed()), (200, 0));
    until("all bookings to end", async || {
        !audit(hotel.chapar.store()).await.unwrap().bookings.contains_key("held")
    })
    .await;
    hotel.until_settled().await;
    let bookings = audit(hotel.chapar.store()).await.unwrap().bookings;
    assert_eq!(bookings.values().sum::<i64>(), 200);
    for state in ["confirmed", "confirmed_cash_pending", "cancelled"] {
        assert!(bookings.get(state).is_some_and(|n| *n > 10), "{bookings:?}");
    }
    const BLOCKED: &str = "select count(*) from reservations where reason = 'no_availability'";
    assert!(hotel.count(BLOCKED, vec![]).await > 0, "no guest wanted a room that was taken");
    assert_eq!(dead_letters(&hotel).await.len(), 1);
    stop(running).await;
}

async fn a_generator_goes_on_where_the_last_one_ended(hotel: Hotel) {
    for expected in [1, 2] {
        let generator = Generator::new(&hotel.chapar, &hotel.config, 1);
        let (stopped, tally) = (CancellationToken::new(), generator.tally());
        let stop = stopped.clone();
        let traffic = tokio::spawn(async move { generator.run(50.0, stop).await });
        until("ten guests", async || tally.held() >= 10).await;
        stopped.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(10), traffic).await;
        ended.expect("it stops when it is told to").unwrap().unwrap();
        let made = hotel.count("select count(*) from reservations", vec![]).await;
        assert!(made >= expected * 10, "{made}");
    }
    const UNTRANSLATED: &str = "select count(*) from reservations where locale = 'is'";
    assert_eq!(hotel.count(UNTRANSLATED, vec![]).await, 1);
}

async fn dead_letters(hotel: &Hotel) -> Vec<(String, String, String)> {
    let mut tx = hotel.chapar.store().begin_report().await.unwrap();
    let open = tx.letters().open(10).await.unwrap();
    open.into_iter().map(|letter| (letter.id, letter.consumer, letter.error)).collect()
}
