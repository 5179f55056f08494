//! The harness for users' own tests, tried on handlers that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use chapar::Envelope;
use chapar::prelude::*;
use chapar::testing::{Delivered, Harness, HarnessError};

use crate::harness::{Noted, write_down};

pub(crate) async fn harness(consumer: Consumer) -> Harness {
    let tables = "create table notes (id integer primary key, n bigint, tenant text, key text)";
    let app = App::connect("sqlite::memory:", "sql:")
        .profile(chapar_testkit::profile("melmastoon"))
        .migrate([Migration::new(1, "notes", tables)])
        .service(Service::new("inventory-service").consumer(consumer));
    Harness::of(app).await.unwrap()
}

async fn append(harness: &mut Harness, key: &str, n: i64) -> Arc<Envelope> {
    let noted = Noted { key: key.into(), n };
    harness.append(&"acme".parse().unwrap(), noted).await.unwrap()
}

pub(crate) async fn notes(harness: &Harness) -> Vec<i64> {
    let mut tx = harness.chapar().store().begin_read().await.unwrap();
    let rows = tx.fetch("select n from notes order by id", vec![]).await.unwrap();
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

#[tokio::test]
async fn an_attempt_is_made_when_the_clock_is_turned_and_the_key_waits_in_order() {
    static LEFT: AtomicI64 = AtomicI64::new(2);
    async fn shaky(noted: Noted, cx: &mut Cx) -> Handled {
        if noted.n == 0 && LEFT.fetch_sub(1, SeqCst) > 0 {
            return Err(Failure::retry("not now"));
        }
        write_down(noted, cx).await
    }
    let backoff = Duration::from_secs(10);
    let mut harness =
        harness(Consumer::named("c").on(shaky).batch(1).backoff(backoff, backoff)).await;
    for (key, n) in [("a", 0), ("a", 1), ("b", 2)] {
        append(&mut harness, key, n).await;
    }
    harness.settle().await.unwrap();
    assert_eq!(notes(&harness).await, [2]);
    harness.turn(Duration::from_secs(4)).await.unwrap();
    assert_eq!(LEFT.load(SeqCst), 1, "half of the pause is the least");
    harness.turn(Duration::from_secs(10)).await.unwrap();
    assert_eq!((LEFT.load(SeqCst), notes(&harness).await), (0, vec![2]));
    harness.turn(Duration::from_secs(10)).await.unwrap();
    assert_eq!(notes(&harness).await, [2, 0, 1]);
    assert_eq!(harness.told(Noted::SUBJECT).len(), 3);
}

#[tokio::test]
async fn the_contract_names_what_breaks_it() {
    async fn refuse(_: Noted, _: &mut Cx) -> Handled {
        Err(Failure::terminal("no such room"))
    }
    let mut house = harness(Consumer::named("c").on(refuse)).await;
    let event = append(&mut house, "a", 0).await;
    let error = house.replay_contract("c", &event).await.unwrap_err();
    assert!(matches!(error, HarnessError::NotApplied { outcome: Delivered::DeadLettered, .. }));
    assert!(error.to_string().contains("no such room"), "{error}");
    let error = house.replay_contract("d", &event).await.unwrap_err();
    assert!(error.to_string().contains("no consumer \"d\"; there are c"), "{error}");
    let mut house = harness(Consumer::named("c").on(write_down)).await;
    let event = append(&mut house, "a", 0).await;
    house.replay_contract("c", &event).await.unwrap();
    let other = Envelope { event_type: "melmastoon.x".into(), ..(*event).clone() };
    let error = house.replay_contract("c", &other).await.unwrap_err();
    assert!(matches!(error, HarnessError::NotHandled { .. }), "{error}");
}

#[tokio::test]
async fn what_was_delivered_before_is_a_duplicate_whatever_was_read_since() {
    let mut harness = harness(Consumer::named("c").on(write_down)).await;
    let event = append(&mut harness, "a", 7).await;
    harness.settle().await.unwrap();
    let outcomes = harness.deliver(&event).await.unwrap();
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [("c".to_owned(), Delivered::Duplicate)]);
    assert_eq!(notes(&harness).await, [7]);
    assert_eq!(harness.metrics().duplicates(), 1);
}
