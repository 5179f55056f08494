//! How much flows, who waits for whom, and what makes a consumer rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chapar::{Consumer, Cx, Draft, Envelope, Failure, Payload, Service};
use chapar_core::Aggregate;
use chapar_sql::{Backend, Hold, Pause, Paused, Tables};
use serde_json::json;

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};
use crate::order::MODIFIED;

on_each_store!(
    a_paused_consumer_rests_until_it_is_resumed,
    a_seek_that_died_does_not_pause_its_consumer_for_good,
    a_breaker_rests_and_spends_no_attempts,
    a_flood_of_one_tenant_does_not_starve_another,
    bytes_in_flight_are_bounded,
);

async fn write_down_twice(noted: Noted, cx: &mut Cx) -> Result<(), Failure> {
    write_down(Noted { key: format!("{}-again", noted.key), ..noted }, cx).await
}

async fn a_paused_consumer_rests_until_it_is_resumed(house: House) {
    let app = house
        .app()
        .service(Service::new("inventory-service").consumer(Consumer::named("c").on(write_down)));
    let app = app.service(
        Service::new("inventory-service").consumer(Consumer::named("d").on(write_down_twice)),
    );
    let running = app.start().await.unwrap();
    let set = async |paused: bool| {
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        let changed = match paused {
            true => tx.consumers().pause("c", "the warehouse moves").await.unwrap(),
            false => tx.consumers().resume("c").await.unwrap(),
        };
        assert!(changed);
        let cards = tx.consumers().list().await.unwrap();
        let said: Vec<bool> = cards.iter().map(|card| card.paused.is_some()).collect();
        assert_eq!(said, [paused, false], "{cards:?}");
        tx.commit().await.unwrap();
    };
    house.note("acme", "a", 0..3).await;
    eventually("it works", async || house.applied("a").await.len() == 3).await;
    set(true).await;
    // It looks every quarter of a second; what it had begun is finished.
    let paused_at = std::time::Instant::now();
    let mut n = 3;
    while paused_at.elapsed() < Duration::from_secs(1) {
        house.note("acme", "a", [n]).await;
        n += 1;
        eventually("the other goes on", async || house.applied("a-again").await.len() as i64 == n)
            .await;
    }
    let rested = house.applied("a").await.len();
    house.note("acme", "a", n..n + 20).await;
    eventually("the other has all", async || house.applied("a-again").await.len() as i64 == n + 20)
        .await;
    assert_eq!(house.applied("a").await.len(), rested, "within a second it rests");
    set(false).await;
    eventually("it goes on", async || house.applied("a").await.len() as i64 == n + 20).await;
    assert_eq!(house.applied("a").await, (0..n + 20).collect::<Vec<_>>());
    stop(running).await;
}

async fn a_seek_that_died_does_not_pause_its_consumer_for_good(house: House) {
    let hold = |holder: &str, seconds: u64| Hold {
        holder: holder.into(),
        reason: "a seek is under way",
        ttl: Duration::from_secs(seconds),
    };
    let (alive, dead, late) = (hold("alive", 60), hold("dead", 0), hold("late", 60));
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    let mut consumers = tx.consumers();
    assert_eq!(consumers.hold("c", &alive).await.unwrap(), Paused::Held);
    assert_eq!(consumers.hold("c", &late).await.unwrap(), Paused::ByAnother);
    assert!(consumers.extend_hold("c", &alive).await.unwrap());
    assert!(!consumers.extend_hold("c", &late).await.unwrap(), "it holds nothing");
    assert!(!consumers.end_abandoned_hold("c").await.unwrap(), "it is not abandoned");
    assert!(consumers.pause("c", "the warehouse moves").await.unwrap());
    assert_eq!(consumers.hold("c", &late).await.unwrap(), Paused::ByOperator);
    consumers.end_hold("c", &alive).await.unwrap();
    assert_eq!(consumers.pause_of("c").await.unwrap(), Pause::InForce, "the operator's stays");
    assert!(consumers.resume("c").await.unwrap());
    // A command that is killed neither extends its hold nor ends it.
    assert_eq!(consumers.hold("c", &dead).await.unwrap(), Paused::Held);
    assert_eq!(consumers.pause_of("c").await.unwrap(), Pause::Abandoned);
    tx.commit().await.unwrap();
    house.note("acme", "a", 0..3).await;
    let running = house.run(Consumer::named("c").on(write_down)).await;
    eventually("it resumes", async || house.applied("a").await.len() == 3).await;
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    assert_eq!(tx.consumers().epoch("c").await.unwrap(), 1, "what was fetched before is void");
    assert!(!tx.consumers().extend_hold("c", &dead).await.unwrap(), "the seek would notice");
    tx.rollback().await.unwrap();
    stop(running).await;
}

static AWAY: [AtomicBool; 2] = [AtomicBool::new(true), AtomicBool::new(true)];

async fn a_breaker_rests_and_spends_no_attempts(house: House) {
    let handler = async |noted: Noted, cx: &mut Cx| {
        let on_postgres = cx.tx().as_postgres().is_some();
        if AWAY[usize::from(on_postgres)].load(Ordering::SeqCst) {
            return Err(Failure::retry("the property system is away"));
        }
        write_down(noted, cx).await
    };
    for key in 0..10 {
        house.note("acme", &format!("k{key}"), [key]).await;
    }
    let consumer = Consumer::named("c")
        .on(handler)
        .retry(4)
        .backoff(Duration::from_millis(20), Duration::from_millis(40))
        .breaker("property-system", 3, Duration::from_millis(200));
    let running = house.run(consumer).await;
    let metrics = running.metrics().consumer("c");
    // More trials than there are attempts.
    eventually("it rests again and again", async || metrics.breaks() >= 6).await;
    assert!(house.letters().await.is_empty(), "no event is to blame");
    let on_postgres = house.chapar.store().backend() == Backend::Postgres;
    AWAY[usize::from(on_postgres)].store(false, Ordering::SeqCst);
    eventually("all are applied", async || {
        house.ints("select n from notes", vec![]).await.len() == 10
    })
    .await;
    assert!(house.letters().await.is_empty());
    stop(running).await;
}

async fn a_flood_of_one_tenant_does_not_starve_another(house: House) {
    let relay = house.app().start().await.unwrap();
    for n in 0..500 {
        house.note("loud", &format!("loud-{}", n % 100), [n]).await;
    }
    for n in 0..5 {
        house.note("quiet", &format!("quiet-{n}"), [n]).await;
    }
    eventually("all are published", async || relay.metrics().published() == 505).await;
    stop(relay).await;
    let running = house.run(Consumer::named("c").on(write_down).batch(10)).await;
    eventually("all are applied", async || {
        house.ints("select n from notes", vec![]).await.len() == 505
    })
    .await;
    let count =
        "select count(*) from notes where id <= (select max(id) from notes where tenant = 'quiet')";
    let place = house.ints(count, vec![]).await[0];
    // A tenth of the window: turns of the other, of a run of five each, between its own.
    assert!(place <= 100, "the last of the quiet one came as number {place} of 505");
    stop(running).await;
}

async fn bytes_in_flight_are_bounded(house: House) {
    const SIZE: usize = 20_000;
    for n in 0..60 {
        let payload = Payload::json(&json!({ "text": "x".repeat(SIZE), "n": n })).unwrap();
        let id = format!("b{n}");
        let aggregate = Aggregate { kind: "booking".into(), id, version: None };
        let draft = Draft::new(MODIFIED, aggregate, payload).thin();
        house.append("acme", draft.idempotency_key(n.to_string())).await;
    }
    let spread = Arc::new(house.spread());
    let relay = house.relay(&spread, None).await;
    eventually("all are published", async || relay.metrics().published() == 60).await;
    stop(relay).await;
    let handler = async |event: Arc<Envelope>, cx: &mut Cx| {
        let key = event.aggregate.as_ref().map_or(String::new(), |aggregate| aggregate.id.clone());
        write_down(Noted { key, n: 0 }, cx).await
    };
    let consumer =
        Consumer::named("c").on_any(&[MODIFIED], handler).batch(2).max_bytes_in_flight(4 * SIZE);
    let running = house.relay(&spread, Some(consumer)).await;
    eventually("all are applied", async || {
        house.ints("select n from notes", vec![]).await.len() == 60
    })
    .await;
    stop(running).await;
    let most = spread.most_bytes();
    assert!(most < 5 * (SIZE + 2000), "{most} bytes at once");
}
