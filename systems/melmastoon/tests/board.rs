//! The front desk's board: what is confirmed, and nothing else, also after a rebuild.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use chapar_sql::Tables;
use std::collections::BTreeSet;

use common::{HOTEL, Hotel, on_both, stop, until};
use jiff::civil::Date;
use melmastoon::board::{self, BOARD};
use melmastoon::events::Rail;

on_both!(the_board_shows_who_arrives);

async fn on_the_board(hotel: &Hotel) -> BTreeSet<String> {
    let tenant = HOTEL.parse().unwrap();
    let mut tx = hotel.chapar.begin(&tenant).await.unwrap();
    let day = Date::constant(2027, 3, 21);
    let arrivals = board::arrivals(&mut tx, &tenant, "house-1", day).await.unwrap();
    arrivals.bookings.into_keys().collect()
}

async fn the_board_shows_who_arrives(hotel: Hotel) {
    let running = hotel.start(melmastoon::app).await;
    let first = hotel.hold(1, Rail::Card).await;
    hotel.until_state(&first, "confirmed").await;
    let late = hotel.hold(1, Rail::Card).await;
    hotel.until_state(&late, "cancelled").await;
    let second = hotel.hold(2, Rail::Card).await;
    hotel.until_state(&second, "confirmed").await;
    let expected = BTreeSet::from([first, second]);
    until("both to be on the board", async || on_the_board(&hotel).await == expected).await;

    let mut tx = hotel.chapar.store().begin_engine().await.unwrap();
    assert!(tx.projections().ask_for_build(BOARD, "rebuild", "ada", "a test").await.unwrap());
    tx.commit().await.unwrap();
    until("the board to be built again", async || {
        let mut tx = hotel.chapar.store().begin_engine().await.unwrap();
        tx.projections().list().await.unwrap()[0].finished_at.is_some()
    })
    .await;
    assert_eq!(on_the_board(&hotel).await, expected);
    stop(running).await;
}
