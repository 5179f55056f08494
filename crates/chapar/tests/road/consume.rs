use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use chapar::{Consumer, Cx, Failure, Service};
use chapar_core::machine::failure::FailurePolicy;
use chapar_core::port::{SeekTo, Transport};

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(
    events_of_a_key_are_applied_once_and_in_order,
    a_redelivered_event_is_a_silent_no_op,
    a_subscription_is_set_to_a_time_a_place_and_the_end,
    a_poison_event_parks_its_key_and_no_other_and_replay_drains_in_order,
    one_poison_in_a_batch_does_not_hold_back_the_batch,
    a_transient_failure_is_tried_again_and_order_holds,
    a_slow_handler_times_out_and_is_tried_again,
    what_was_under_way_at_a_stop_goes_on_at_the_next_start,
    a_replay_that_fails_again_goes_back_into_the_box,
    a_panicking_handler_is_a_failure_like_any_other,
    passed_followers_are_flagged,
    a_consumer_that_stops_on_failure_stops_alone_and_goes_on_at_the_next_start,
    what_comes_in_keeps_the_rules_of_what_goes_out,
);

fn patient(name: &str) -> Consumer {
    Consumer::named(name).backoff(Duration::from_millis(20), Duration::from_millis(100))
}

async fn events_of_a_key_are_applied_once_and_in_order(house: House) {
    let running = house.run(patient("c").on(write_down).lanes(4).batch(7)).await;
    for round in 0..5 {
        for key in ["a", "b", "c"] {
            house.note("acme", key, round * 10..round * 10 + 10).await;
        }
    }
    eventually("all are applied", async || house.applied("c").await.len() == 50).await;
    for key in ["a", "b", "c"] {
        let key = key.to_owned();
        eventually("all are applied", async || house.applied(&key).await.len() == 50).await;
        assert_eq!(house.applied(&key).await, (0..50).collect::<Vec<_>>());
    }
    stop(running).await;
    assert!(house.letters().await.is_empty());
}

async fn a_redelivered_event_is_a_silent_no_op(house: House) {
    let running = house.run(patient("c").on(write_down)).await;
    house.note("acme", "a", 0..20).await;
    eventually("all are applied", async || house.applied("a").await.len() == 20).await;
    house.transport.seek("c", SeekTo::Beginning).await.unwrap();
    let metrics = running.metrics().consumer("c");
    eventually("all came again", async || metrics.duplicates() >= 20).await;
    assert_eq!(house.applied("a").await, (0..20).collect::<Vec<_>>());
    stop(running).await;
}

async fn a_subscription_is_set_to_a_time_a_place_and_the_end(house: House) {
    let running = house.run(patient("c").on(write_down)).await;
    house.note("acme", "a", 0..5).await;
    eventually("all are applied", async || house.applied("a").await.len() == 5).await;
    let between = jiff::Timestamp::now();
    house.note("acme", "a", 5..8).await;
    eventually("all are applied", async || house.applied("a").await.len() == 8).await;
    let metrics = running.metrics().consumer("c");
    house.transport.seek("c", SeekTo::Time(between)).await.unwrap();
    eventually("those after it came again", async || metrics.duplicates() == 3).await;
    house.transport.seek("c", SeekTo::End).await.unwrap();
    house.note("acme", "a", [8]).await;
    eventually("only the new one came", async || house.applied("a").await.len() == 9).await;
    assert_eq!(metrics.duplicates(), 3);
    stop(running).await;
}

static MENDED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

/// Fails for number 3 of key `bad`, until it is mended.
async fn poisoned(noted: Noted, cx: &mut Cx) -> Result<(), Failure> {
    let on_postgres = cx.tx().as_postgres().is_some();
    let mended = &MENDED[usize::from(on_postgres)];
    if noted.key == "bad" && noted.n == 3 && !mended.load(Ordering::SeqCst) {
        return Err(Failure::terminal("number 3 is impossible"));
    }
    write_down(noted, cx).await
}

async fn a_poison_event_parks_its_key_and_no_other_and_replay_drains_in_order(house: House) {
    let running = house.run(patient("c").on(poisoned).batch(50)).await;
    house.note("acme", "bad", 0..6).await;
    house.note("acme", "good", 0..6).await;
    eventually("the neighbour flows", async || house.applied("good").await.len() == 6).await;
    eventually("the key is parked", async || {
        let letters = house.letters().await;
        letters.len() == 1 && letters[0].followers == 2
    })
    .await;
    assert_eq!(house.applied("bad").await, [0, 1, 2]);
    house.note("acme", "bad", 6..8).await;
    eventually("later ones park too", async || house.letters().await[0].followers == 4).await;

    let letter = house.letters().await.remove(0);
    assert_eq!(
        (letter.kind.as_str(), letter.error.as_str()),
        ("rule_violation", "number 3 is impossible")
    );
    let on_postgres = house.chapar.store().backend() == chapar_sql::Backend::Postgres;
    MENDED[usize::from(on_postgres)].store(true, Ordering::SeqCst);
    house.replay(&letter.id).await;
    eventually("the key has caught up", async || house.applied("bad").await.len() == 8).await;
    assert_eq!(house.applied("bad").await, (0..8).collect::<Vec<_>>());
    assert!(house.letters().await.is_empty());
    house.note("acme", "bad", 8..10).await;
    eventually("and goes on as before", async || house.applied("bad").await.len() == 10).await;
    stop(running).await;
}

async fn one_poison_in_a_batch_does_not_hold_back_the_batch(house: House) {
    for key in 0..40 {
        house.note("acme", &format!("k{key}"), [if key == 17 { -1 } else { key }]).await;
    }
    let handler = async |noted: Noted, cx: &mut Cx| {
        if noted.n < 0 { Err(Failure::terminal("negative")) } else { write_down(noted, cx).await }
    };
    let running = house.run(patient("c").on(handler).batch(100)).await;
    eventually("the others are applied", async || {
        house.ints("select n from notes", vec![]).await.len() == 39
    })
    .await;
    eventually("one letter", async || house.letters().await.len() == 1).await;
    stop(running).await;
}

static TRIES: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

async fn a_transient_failure_is_tried_again_and_order_holds(house: House) {
    let handler = async |noted: Noted, cx: &mut Cx| {
        let on_postgres = cx.tx().as_postgres().is_some();
        if noted.n == 1 && TRIES[usize::from(on_postgres)].fetch_add(1, Ordering::SeqCst) < 3 {
            return Err(Failure::retry("the downstream is away"));
        }
        write_down(noted, cx).await
    };
    let running = house.run(patient("c").on(handler)).await;
    house.note("acme", "a", 0..5).await;
    eventually("all are applied", async || house.applied("a").await.len() == 5).await;
    assert_eq!(house.applied("a").await, [0, 1, 2, 3, 4]);
    assert!(running.metrics().consumer("c").retries() >= 1);
    stop(running).await;
}

static SLOW: [AtomicBool; 2] = [AtomicBool::new(true), AtomicBool::new(true)];

async fn a_slow_handler_times_out_and_is_tried_again(house: House) {
    let handler = async |noted: Noted, cx: &mut Cx| {
        let on_postgres = cx.tx().as_postgres().is_some();
        if SLOW[usize::from(on_postgres)].swap(false, Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        write_down(noted, cx).await
    };
    let consumer = patient("c").on(handler).timeout(Duration::from_millis(200));
    let running = house.run(consumer).await;
    house.note("acme", "a", 0..2).await;
    eventually("both are applied", async || house.applied("a").await.len() == 2).await;
    assert_eq!(house.applied("a").await, [0, 1]);
    stop(running).await;
}

async fn what_was_under_way_at_a_stop_goes_on_at_the_next_start(house: House) {
    let mut expected = 0;
    for _ in 0..4 {
        let running = house.run(patient("c").on(write_down).batch(3)).await;
        house.note("acme", "a", expected..expected + 25).await;
        expected += 25;
        stop(running).await;
    }
    let running = house.run(patient("c").on(write_down)).await;
    let all = expected as usize;
    eventually("all are applied", async || house.applied("a").await.len() == all).await;
    assert_eq!(house.applied("a").await, (0..expected).collect::<Vec<_>>());
    stop(running).await;
}

async fn a_replay_that_fails_again_goes_back_into_the_box(house: House) {
    let handler = async |_: Noted, _: &mut Cx| Err::<(), Failure>(Failure::terminal("never works"));
    let running = house.run(patient("c").on(handler)).await;
    house.note("acme", "a", 0..2).await;
    eventually("one letter", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    house.replay(&letter.id).await;
    eventually("it is back", async || {
        let letters = house.letters().await;
        letters.len() == 1
            && letters[0].status == "open"
            && letters[0].attempts == letter.attempts + 1
    })
    .await;
    assert_eq!(house.letters().await[0].followers, 1);
    stop(running).await;
}

async fn a_panicking_handler_is_a_failure_like_any_other(house: House) {
    let handler = async |noted: Noted, cx: &mut Cx| {
        assert!(noted.key != "bad", "out of cheese");
        write_down(noted, cx).await
    };
    let running = house.run(patient("c").on(handler).retry(2)).await;
    house.note("acme", "bad", [1]).await;
    house.note("acme", "good", [1]).await;
    eventually("the neighbour flows", async || house.applied("good").await == [1]).await;
    eventually("one letter", async || house.letters().await.len() == 1).await;
    assert_eq!(house.letters().await[0].error, "panicked: out of cheese");
    stop(running).await;
}

async fn refuse_three(noted: Noted, cx: &mut Cx) -> Result<(), Failure> {
    if noted.n == 3 { Err(Failure::terminal("three")) } else { write_down(noted, cx).await }
}

async fn passed_followers_are_flagged(house: House) {
    let consumer = patient("c").on(refuse_three).on_failure(FailurePolicy::PassAndFlag);
    let running = house.run(consumer).await;
    house.note("acme", "a", 1..6).await;
    eventually("its followers go on", async || house.applied("a").await == [1, 2, 4, 5]).await;
    let flagged = match house.chapar.store().backend() {
        chapar_sql::Backend::Sqlite => "select count(*) from chapar_inbox where result = 'flagged'",
        chapar_sql::Backend::Postgres => {
            "select count(*) from chapar.inbox where result = 'flagged'"
        }
    };
    assert_eq!(house.ints(flagged, vec![]).await, [2]);
    stop(running).await;
}

async fn a_consumer_that_stops_on_failure_stops_alone_and_goes_on_at_the_next_start(house: House) {
    let start = async |handler_fails: bool| {
        let strict = patient("strict").on_failure(FailurePolicy::Stop);
        let strict = if handler_fails { strict.on(refuse_three) } else { strict.on(write_down) };
        let other = async |noted: Noted, cx: &mut Cx| {
            write_down(Noted { key: format!("{}:other", noted.key), ..noted }, cx).await
        };
        let app = house.app().service(Service::new("s").consumer(strict));
        app.service(Service::new("s").consumer(patient("other").on(other))).start().await.unwrap()
    };
    let running = start(true).await;
    house.note("acme", "a", 1..6).await;
    eventually("the other goes on", async || house.applied("a:other").await.len() == 5).await;
    eventually("the strict one got this far", async || house.applied("a").await == [1, 2]).await;
    assert!(house.letters().await.is_empty());
    stop(running).await;
    let running = start(false).await;
    eventually("nothing was lost", async || house.applied("a").await.len() == 5).await;
    assert_eq!(house.applied("a").await, [1, 2, 3, 4, 5]);
    stop(running).await;
}

async fn what_comes_in_keeps_the_rules_of_what_goes_out(house: House) {
    const TOPIC: &str = "melmastoon.ai_orchestrator.anomaly.detected.v1";
    let handler = async |_: std::sync::Arc<chapar::Envelope>, _: &mut Cx| Ok(());
    let running = house.run(patient("c").on_any(&[TOPIC], handler)).await;
    let mut bare = serde_json::json!({
        "eventId": "0190163d-8694-739b-aea5-966c26f8ad91",
        "eventType": "melmastoon.ai_orchestrator.anomaly.detected",
        "eventVersion": 1,
        "schemaUri": "schemas://ai_orchestrator/anomaly/detected/v1#sha256-00",
        "tenantId": "acme",
        "correlationId": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "actorId": { "type": "system", "id": "ai" },
        "occurredAt": "2026-01-01T00:00:00Z",
        "producedBy": { "service": "ai-orchestrator-service", "instance": "1", "commit": "c", "region": "me-central1" },
        "idempotencyKey": "k",
        "payload": { "what": "odd" },
        "metadata": {
            "retentionClass": "cold", "dataResidency": "me-central1",
            "orderingKey": "acme:1", "outboxId": "01ARZ3NDEKTSV4RRFFQ69G5FAV"
        }
    });
    house.publish_raw(TOPIC, "acme:1", bare.to_string().as_bytes()).await;
    eventually("it is rejected", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    assert_eq!(letter.kind, "rule_violation");
    assert!(letter.error.starts_with("CH1005"), "{}", letter.error);
    assert_eq!(
        (&*letter.arrival.tenant, &*letter.arrival.event_id),
        ("acme", bare["eventId"].as_str().unwrap())
    );
    // Of one that names two tenants it is not known whose it is.
    bare["eventId"] = "0190163d-8694-739b-aea5-966c26f8ad92".into();
    bare["payload"]["tenantId"] = "blue".into();
    house.publish_raw(TOPIC, "acme:2", bare.to_string().as_bytes()).await;
    eventually("it is rejected too", async || house.letters().await.len() == 2).await;
    let tenants: Vec<String> =
        house.letters().await.into_iter().map(|one| one.arrival.tenant).collect();
    assert!(tenants.contains(&"platform".to_owned()), "{tenants:?}");
    stop(running).await;
}

#[tokio::test]
async fn a_reader_that_is_not_registered_for_a_cross_tenant_topic_is_refused_at_start() {
    let house = House::on_sqlite().await;
    const TOPIC: &str = "melmastoon.search_aggregation.listing.indexed.v1";
    let consumer = || {
        let handler = async |_: std::sync::Arc<chapar::Envelope>, _: &mut Cx| Ok(());
        Consumer::named("c").on_any(&[TOPIC], handler)
    };
    let refused =
        house.app().service(Service::new("billing-service").consumer(consumer())).start().await;
    let error = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.starts_with("CH1010"), "{error}");
    let running = house
        .app()
        .service(Service::new("bff-consumer-service").consumer(consumer()))
        .start()
        .await
        .unwrap();
    stop(running).await;
}
