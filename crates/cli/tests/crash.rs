//! `kill -9` at random moments, twenty times: nothing lost, nothing applied twice.
//!
//! A process crash, not a power cut: what the operating system has taken stays taken.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test may print and panic")]

mod hotel;

use std::time::Duration;

use chapar_testkit::servers::{Kind, Launch};
use chapar_testkit::{need, servers};
use hotel::Hotel;

const KILLS: u32 = 20;

/// Kills the hotel again and again, lets it finish, and looks into the books.
fn torture(hotel: &Hotel, longest: u64) {
    let seed = std::env::var("CHAPAR_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("CHAPAR_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    for _ in 0..KILLS {
        let mut running = hotel.start(&["--rate", "60"]);
        running.wait_until_ready();
        std::thread::sleep(Duration::from_millis(dice.u64(20..longest)));
        running.kill();
    }
    // On a slow machine most kills come early, so the last one comes when enough has happened.
    let running = hotel.start(&["--rate", "60"]);
    hotel.wait_for_more(300);
    running.kill();
    let report = hotel.finish();
    assert_eq!(report["lost"], 0, "{report:#}");
    assert_eq!(report["applied_twice"], 0, "{report:#}");
    assert_eq!(report["in_flight"], 0, "{report:#}");
    assert!(report["events_applied"].as_i64().unwrap() > 500, "{report:#}");
    hotel.books().check();
}

#[test]
fn on_sqlite_twenty_kills_lose_nothing_and_apply_nothing_twice() {
    torture(&Hotel::on_sqlite(), 900);
}

#[test]
fn on_postgres_twenty_kills_lose_nothing_and_apply_nothing_twice() {
    let server = need!(servers::postgres());
    // A dead process keeps its leases for four seconds, so some kills come before and some
    // after the next one has taken over.
    torture(&Hotel::on_postgres(&server), 6000);
}

#[test]
fn a_database_that_crashes_under_traffic_loses_nothing_that_was_committed() {
    let mut server = need!(Launch::of(Kind::Postgres).setting("fsync", "on").start());
    let hotel = Hotel::on_postgres(&servers::Postgres::from(&server));
    let mut running = hotel.start(&["--rate", "40", "--format", "json"]);
    running.wait_until_ready();
    for _ in 0..3 {
        hotel.wait_for_more(50);
        server.kill();
        server.restart().unwrap();
    }
    hotel.wait_for_more(50);
    running.interrupt();
    let report = hotel.finish();
    assert_eq!((&report["lost"], &report["in_flight"]), (&0.into(), &0.into()), "{report:#}");
    assert!(report["events_applied"].as_i64().unwrap() > 200, "{report:#}");
    hotel.books().check();
}

#[test]
fn ctrl_c_stops_cleanly_and_the_next_start_carries_on() {
    let hotel = Hotel::on_sqlite();
    for round in 1..=2 {
        let mut running = hotel.start(&["--rate", "30", "--format", "json"]);
        running.wait_until_ready();
        hotel.wait_for_more(300);
        let report = running.interrupt();
        assert_eq!(report["lost"], 0, "{report:#}");
        let bookings: i64 =
            report["sagas"].as_object().unwrap().values().map(|n| n.as_i64().unwrap()).sum();
        assert!(bookings >= round * 30, "round {round} carries on: {report:#}");
    }
    let report = hotel.finish();
    assert_eq!((&report["lost"], &report["in_flight"]), (&0.into(), &0.into()), "{report:#}");
    hotel.books().check();
}
