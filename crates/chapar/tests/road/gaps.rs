//! What a consumer does about a version that has not come, by a clock that is turned.

use std::time::Duration;

use chapar::testing::Harness;
use chapar::{Consumer, Cx, Draft, Failure, Gap, Missing, Payload};
use chapar_core::Aggregate;

use crate::harness::{Noted, write_down};
use crate::order::MODIFIED;
use crate::testing::{harness, notes};

const LIMIT: Duration = Duration::from_secs(30);
const ALMOST: Duration = Duration::from_secs(29);
const SECOND: Duration = Duration::from_secs(1);

fn consumer(gap: Gap) -> Consumer {
    Consumer::named("c").on(write_down).on_gap(gap)
}

/// Appends a version of the one aggregate, and lets happen what happens without time.
async fn comes(harness: &mut Harness, version: i64) {
    let payload = Payload::json(&Noted { key: "a".into(), n: version }).unwrap();
    let aggregate = Aggregate { kind: "booking".into(), id: "a".into(), version: Some(version) };
    let draft = Draft::new(MODIFIED, aggregate, payload).idempotency_key(format!("a:{version}"));
    harness.append(&"acme".parse().unwrap(), draft).await.unwrap();
    harness.settle().await.unwrap();
}

async fn with_two_missing(gap: Gap) -> Harness {
    let mut harness = harness(consumer(gap)).await;
    for version in [1, 3] {
        comes(&mut harness, version).await;
    }
    harness
}

fn gaps(harness: &Harness) -> u64 {
    harness.metrics().consumer("c").gaps()
}

#[tokio::test]
async fn a_wait_ends_when_the_missing_one_comes() {
    let mut harness = with_two_missing(Gap::Wait { limit: LIMIT }).await;
    harness.turn(ALMOST).await.unwrap();
    assert_eq!(notes(&harness).await, [1]);
    comes(&mut harness, 2).await;
    harness.turn(SECOND / 2).await.unwrap();
    assert_eq!(notes(&harness).await, [1, 2, 3]);
    assert_eq!(gaps(&harness), 0);
}

#[tokio::test]
async fn a_wait_ends_at_its_limit_and_what_comes_after_that_fills_the_hole() {
    let mut harness = with_two_missing(Gap::Wait { limit: LIMIT }).await;
    harness.turn(ALMOST).await.unwrap();
    assert_eq!(notes(&harness).await, [1]);
    harness.turn(2 * SECOND).await.unwrap();
    assert_eq!((notes(&harness).await, gaps(&harness)), (vec![1, 3], 1));
    comes(&mut harness, 2).await;
    assert_eq!(notes(&harness).await, [1, 3, 2]);
}

#[tokio::test]
async fn an_accepted_gap_takes_no_time_at_all() {
    let mut harness = with_two_missing(Gap::Accept).await;
    assert_eq!((notes(&harness).await, gaps(&harness)), (vec![1, 3], 1));
    comes(&mut harness, 2).await;
    assert_eq!(notes(&harness).await, [1, 3, 2]);
}

/// Brings the rows up to date, with a number that says what for.
async fn fetch(missing: Missing, cx: &mut Cx) -> Result<(), Failure> {
    assert_eq!(missing.key, "acme:a");
    write_down(Noted { key: missing.key, n: 100 * missing.number }, cx).await
}

#[tokio::test]
async fn what_is_missing_is_fetched_at_the_limit_and_before_the_one_that_came() {
    let mut harness = with_two_missing(Gap::fetch(LIMIT, fetch)).await;
    harness.turn(ALMOST).await.unwrap();
    assert_eq!(notes(&harness).await, [1]);
    harness.turn(2 * SECOND).await.unwrap();
    assert_eq!((notes(&harness).await, gaps(&harness)), (vec![1, 300, 3], 1));
}

#[tokio::test]
async fn nothing_is_fetched_when_the_missing_one_comes_in_time() {
    let mut harness = with_two_missing(Gap::fetch(LIMIT, fetch)).await;
    comes(&mut harness, 2).await;
    harness.turn(SECOND).await.unwrap();
    assert_eq!((notes(&harness).await, gaps(&harness)), (vec![1, 2, 3], 0));
}

#[tokio::test]
async fn a_fetch_that_fails_fails_the_event() {
    let away =
        async |_: Missing, _: &mut Cx| Err(Failure::terminal("the source knows no such booking"));
    let mut harness = with_two_missing(Gap::fetch(LIMIT, away)).await;
    harness.turn(LIMIT + SECOND).await.unwrap();
    assert_eq!(notes(&harness).await, [1]);
    let letters = harness.letters().await.unwrap();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].error.contains("no such booking"), "{}", letters[0].error);
}
