//! What a consumer does with an event before it handles it: redelivered, released by an operator,
//! fetched before a seek, unreadable, or behind a key that fails.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use chapar::ops::{LetterFilter, Letters, Operator, Seek, SeekTarget};
use chapar::prelude::*;
use chapar_sql::SqlTransport;
use tokio::sync::Semaphore;

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};
use crate::order::MODIFIED;
use crate::seek::back_to;

on_each_store!(
    a_redelivered_letter_is_not_parked_behind_itself_and_stays_deleted,
    an_event_that_fails_again_after_it_was_given_up_is_a_letter_again,
    what_was_fetched_before_a_seek_is_not_applied_after_it,
    an_unreadable_event_blocks_its_key_between_its_neighbours,
    a_failing_key_with_a_long_tail_starves_no_other_key,
    a_released_event_has_all_its_attempts,
    two_processes_drain_a_key_behind_fresh_letters_in_order,
    a_panic_while_taking_locks_fails_its_event_alone,
);

pub(crate) type Handling<'a> = Pin<Box<dyn Future<Output = Handled> + Send + 'a>>;

/// A handler that knows something of its test.
pub(crate) fn handler<F>(handler: F) -> F
where
    F: for<'a> Fn(Noted, &'a mut Cx) -> Handling<'a> + Send + Sync,
{
    handler
}

const BY: Operator<'static> = Operator { name: "ada", reason: "a test" };

fn reapply(consumer: &str) -> Seek {
    Seek { reapply: true, ..back_to(consumer, SeekTarget::Beginning) }
}

/// Fails for good on the number 2.
async fn not_two(noted: Noted, cx: &mut Cx) -> Handled {
    match noted.n {
        2 => Err(Failure::terminal("two is out of the question")),
        _ => write_down(noted, cx).await,
    }
}

async fn a_redelivered_letter_is_not_parked_behind_itself_and_stays_deleted(house: House) {
    let running = house.run(Consumer::named("c").on(not_two)).await;
    house.note("acme", "a", 1..=3).await;
    eventually("the third is parked", async || {
        house.letters().await.first().is_some_and(|letter| letter.followers == 1)
    })
    .await;
    stop(running).await;
    // As after a crash between the letter and the acknowledgement.
    house.seek(&back_to("c", SeekTarget::Beginning)).await.unwrap();
    let running = house.run(Consumer::named("c").on(not_two)).await;
    let metrics = running.metrics().consumer("c");
    eventually("all three came again", async || metrics.duplicates() == 3).await;
    let letters = house.letters().await;
    assert_eq!((letters.len(), letters[0].followers), (1, 1));

    let id = letters[0].id.clone();
    Letters::of(house.chapar.store()).delete(&LetterFilter::one(&id), BY).await.unwrap();
    eventually("the follower goes on", async || house.applied("a").await == [1, 3]).await;
    stop(running).await;
    // Nor does a redelivery bring back what was deleted.
    house.seek(&reapply("c")).await.unwrap();
    let running = house.run(Consumer::named("c").on(write_down)).await;
    eventually("the rest is applied again", async || house.applied("a").await == [1, 3, 1, 3])
        .await;
    let metrics = running.metrics().consumer("c");
    eventually("the deleted one is passed", async || metrics.duplicates() == 1).await;
    stop(running).await;
}

async fn an_event_that_fails_again_after_it_was_given_up_is_a_letter_again(house: House) {
    let running = house.run(Consumer::named("c").on(not_two)).await;
    house.note("acme", "a", 1..=2).await;
    eventually("it fails", async || house.letters().await.len() == 1).await;
    let first = house.letters().await.remove(0);
    let letters = Letters::of(house.chapar.store());
    letters.quarantine(&LetterFilter::one(&first.id), BY).await.unwrap();
    stop(running).await;
    assert!(house.letters().await.is_empty());
    house.seek(&reapply("c")).await.unwrap();
    let running = house.run(Consumer::named("c").on(not_two)).await;
    eventually("it fails again", async || house.letters().await.len() == 1).await;
    let again = house.letters().await.remove(0);
    assert_eq!((again.id, again.attempts, again.outcome), (first.id, 2, None));
    stop(running).await;
}

async fn what_was_fetched_before_a_seek_is_not_applied_after_it(house: House) {
    let gate = Arc::new(Semaphore::new(10));
    let waits = {
        let gate = gate.clone();
        handler(move |noted: Noted, cx: &mut Cx| {
            let gate = gate.clone();
            Box::pin(async move {
                gate.acquire().await.or_retry()?.forget();
                write_down(noted, cx).await
            })
        })
    };
    house.note("acme", "a", 1..=30).await;
    let running = house.run(Consumer::named("c").on(waits).batch(1)).await;
    eventually("ten are applied", async || house.applied("a").await.len() == 10).await;
    // The eleventh is under way, and the others are fetched.
    let seek = {
        let (store, transport) = (house.chapar.store().clone(), house.transport.clone());
        tokio::spawn(async move { reapply("c").carry_out(&store, &*transport, "ada", "").await })
    };
    gate.add_permits(100);
    seek.await.unwrap().unwrap();
    eventually("the last of all is applied again", async || {
        let applied = house.applied("a").await;
        applied.len() > 30 && applied.last() == Some(&30)
    })
    .await;
    stop(running).await;
    let applied = house.applied("a").await;
    let (before, after) = applied.split_at(applied.len() - 30);
    assert_eq!(after, (1..=30).collect::<Vec<i64>>(), "{applied:?}");
    assert_eq!(before, (1..=before.len() as i64).collect::<Vec<i64>>());
}

async fn an_unreadable_event_blocks_its_key_between_its_neighbours(house: House) {
    // Published by another consumer's process, so that one batch has them all.
    let running = house.run(Consumer::named("other").on(write_down)).await;
    house.note("acme", "a", [1]).await;
    eventually("the first is there", async || house.applied("a").await == [1]).await;
    house.publish_raw(MODIFIED, "acme:a", b"no envelope at all").await;
    house.note("acme", "a", [2]).await;
    house.note("zebra", "b", [1]).await;
    eventually("so is the last", async || house.applied("b").await == [1]).await;
    stop(running).await;
    let running = house.run(Consumer::named("c").on(write_down)).await;
    eventually("the second is parked", async || {
        let letters = house.letters().await;
        letters.iter().any(|letter| letter.consumer == "c" && letter.followers == 1)
    })
    .await;
    let metrics = running.metrics().consumer("c");
    eventually("the others are applied", async || metrics.applied() == 2).await;
    stop(running).await;
}

async fn a_failing_key_with_a_long_tail_starves_no_other_key(house: House) {
    let mended = Arc::new(AtomicBool::new(false));
    let shaky = {
        let mended = mended.clone();
        handler(move |noted: Noted, cx: &mut Cx| {
            let away = noted.key == "hot" && !mended.load(SeqCst);
            Box::pin(async move {
                match away {
                    true => Err(Failure::retry("away")),
                    false => write_down(noted, cx).await,
                }
            })
        })
    };
    house.note("acme", "hot", 1..=120).await;
    for key in ["k1", "k2", "k3"] {
        house.note("acme", key, 1..=2).await;
    }
    let pause = Duration::from_millis(300);
    let consumer = Consumer::named("c").on(shaky).max_in_flight(40).backoff(pause, pause);
    let running = house.run(consumer.retry(1000)).await;
    for key in ["k1", "k2", "k3"] {
        eventually("other keys go on", async || house.applied(key).await == [1, 2]).await;
    }
    assert!(house.applied("hot").await.is_empty());
    mended.store(true, SeqCst);
    eventually("the hot key drains", async || house.applied("hot").await.len() == 120).await;
    assert_eq!(house.applied("hot").await, (1..=120).collect::<Vec<i64>>());
    assert!(house.letters().await.is_empty());
    assert_eq!(running.metrics().consumer("c").dead_letters(), 0);
    stop(running).await;
}

async fn a_released_event_has_all_its_attempts(house: House) {
    let failures = Arc::new(AtomicI64::new(0));
    let shaky = {
        let failures = failures.clone();
        handler(move |noted: Noted, cx: &mut Cx| {
            let fails = noted.n == 3 && failures.fetch_add(1, SeqCst) < 2;
            Box::pin(async move {
                match fails {
                    true => Err(Failure::retry("not now")),
                    false => not_two(noted, cx).await,
                }
            })
        })
    };
    let pause = Duration::from_millis(20);
    let running = house.run(Consumer::named("c").on(shaky).backoff(pause, pause)).await;
    house.note("acme", "a", 1..=4).await;
    eventually("two are parked", async || {
        house.letters().await.first().is_some_and(|letter| letter.followers == 2)
    })
    .await;
    let id = house.letters().await.remove(0).id;
    Letters::of(house.chapar.store()).delete(&LetterFilter::one(&id), BY).await.unwrap();
    eventually("they are applied", async || house.applied("a").await == [1, 3, 4]).await;
    assert_eq!(failures.load(SeqCst), 3);
    assert_eq!(running.metrics().consumer("c").dead_letters(), 1, "only the second was one");
    stop(running).await;
}

async fn two_processes_drain_a_key_behind_fresh_letters_in_order(house: House) {
    // Every third number fails until an operator has replayed it.
    let mended: Arc<std::sync::Mutex<std::collections::HashSet<(String, i64)>>> = Arc::default();
    let start = async |owner: &str| {
        let mended = mended.clone();
        let fails = handler(move |noted: Noted, cx: &mut Cx| {
            let known = mended.lock().unwrap().contains(&(noted.key.clone(), noted.n));
            Box::pin(async move {
                match noted.n % 3 == 0 && !known {
                    true => Err(Failure::terminal("not before it is mended")),
                    false => write_down(noted, cx).await,
                }
            })
        });
        let store = house.chapar.store().clone();
        let transport = Arc::new(SqlTransport::new(store.clone(), owner));
        let consumer = Consumer::named("c").on(fails).lanes(2).batch(4);
        App::new(House::backbone(store), transport, owner)
            .service(Service::new("inventory-service").consumer(consumer))
            .start()
            .await
            .unwrap()
    };
    let processes = [start("p1").await, start("p2").await];
    let keys: Vec<String> = (0..6).map(|key| format!("k{key}")).collect();
    for key in &keys {
        house.note("acme", key, 1..=12).await;
    }
    let letters = Letters::of(house.chapar.store());
    eventually("every key is drained", async || {
        for letter in house.letters().await {
            let noted: serde_json::Value = serde_json::from_slice(&letter.arrival.body).unwrap();
            let data = noted.get("payload").unwrap_or(&noted);
            let key = data["key"].as_str().unwrap().to_owned();
            mended.lock().unwrap().insert((key, data["n"].as_i64().unwrap()));
            if letter.status == "open" {
                letters.retry(&letter.id, BY).await.unwrap();
            }
        }
        let mut drained = true;
        for key in &keys {
            let applied = house.applied(key).await;
            assert!(applied.is_sorted(), "{key} is out of order: {applied:?}");
            drained &= applied.len() == 12;
        }
        drained
    })
    .await;
    for key in &keys {
        assert_eq!(house.applied(key).await, (1..=12).collect::<Vec<i64>>());
    }
    for process in processes {
        stop(process).await;
    }
}

async fn a_panic_while_taking_locks_fails_its_event_alone(house: House) {
    let consumer = Consumer::named("c").on(write_down).retry(1).serialize_by(|envelope| {
        let noted: Noted = envelope.payload.parse().ok()?;
        assert_ne!(noted.n, 2, "a bug in the user's function");
        Some(noted.key)
    });
    let running = house.run(consumer).await;
    house.note("acme", "a", [2]).await;
    house.note("acme", "b", [1]).await;
    eventually("the other key goes on", async || house.applied("b").await == [1]).await;
    eventually("it is a letter", async || house.letters().await.len() == 1).await;
    assert!(house.letters().await[0].error.contains("a bug in the user's function"));
    stop(running).await;
}
