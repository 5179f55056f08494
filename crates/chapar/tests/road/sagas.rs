use std::time::Duration;

use chapar::saga::{Found, Outcome, Saga, SagaKind};
use chapar::sql::{DueTimer, HistoryEntry};
use chapar::{Consumer, Cx, Failure, Running};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(
    a_timer_fires_once_and_survives_a_restart,
    a_disarmed_timer_does_not_fire,
    a_stale_timer_is_a_recorded_no_op,
    an_early_event_waits_for_its_saga,
    an_early_event_waits_for_a_saga_that_a_command_starts,
    an_early_event_whose_saga_never_comes_is_dead_lettered_and_can_be_replayed,
    a_late_event_meets_the_tombstone,
    compensations_run_in_reverse_and_a_failing_one_leaves_the_saga_stuck,
    a_saga_of_newer_code_is_left_alone_without_counting,
);

const COUNT: SagaKind = SagaKind::new("count", 1);

#[derive(Debug, Serialize, Deserialize)]
struct Count {
    seen: Vec<i64>,
}

/// 0 starts the saga, 9 ends it, others are counted.
async fn count(noted: Noted, cx: &mut Cx) -> Result<(), Failure> {
    if noted.n == 0 {
        let mut saga = Saga::start(cx, COUNT, &noted.key, "open", Count { seen: vec![] }).await?;
        return saga.arm(cx, "deadline", Duration::from_millis(300)).await;
    }
    let Found::Active(mut saga) = Saga::<Count>::expect(cx, COUNT, &noted.key).await? else {
        cx.noop();
        return Ok(());
    };
    saga.data.seen.push(noted.n);
    match noted.n {
        9 => saga.end(cx, "closed", Outcome::Completed, "nine came").await,
        8 => {
            saga.disarm(cx, "deadline").await?;
            saga.go(cx, "quiet", "eight came").await
        }
        n => saga.go(cx, "open", &format!("{n} came")).await,
    }
}

async fn on_deadline(key: String, cx: &mut Cx) -> Result<(), Failure> {
    let Found::Active(saga) = Saga::<Count>::load(cx, COUNT, &key).await? else {
        return Ok(());
    };
    write_down(Noted { key: format!("{key}:deadline"), n: 1 }, cx).await?;
    saga.end(cx, "late", Outcome::Partial, "the deadline passed").await
}

async fn start(house: &House) -> Running {
    let consumer = Consumer::new("c").on(count).stash_for(Duration::from_millis(300));
    let consumer = consumer.backoff(Duration::from_millis(10), Duration::from_millis(50));
    let app = house.app().consumer("s", consumer);
    app.timer("s", COUNT, "deadline", on_deadline).start().await.unwrap()
}

async fn history(house: &House, key: &str) -> Vec<HistoryEntry> {
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    tx.conn().saga_history("count", key).await.unwrap()
}

async fn state(house: &House, key: &str) -> Option<(String, Option<String>)> {
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    let saga = tx.conn().load_saga("count", key, "").await.unwrap();
    saga.map(|saga| (saga.state, saga.outcome))
}

async fn in_state(house: &House, key: &str, expected: &str) {
    eventually(expected, async || {
        state(house, key).await.is_some_and(|(state, _)| state == expected)
    })
    .await;
}

async fn a_timer_fires_once_and_survives_a_restart(house: House) {
    let running = start(&house).await;
    for key in ["a", "b", "c"] {
        house.note("acme", key, [0]).await;
    }
    in_state(&house, "c", "open").await;
    stop(running).await;
    let running = start(&house).await;
    for key in ["a", "b", "c"] {
        in_state(&house, key, "late").await;
    }
    stop(running).await;
    for key in ["a", "b", "c"] {
        assert_eq!(house.applied(&format!("{key}:deadline")).await, [1], "fired once");
        let history = history(&house, key).await;
        let states: Vec<_> = history.iter().map(|entry| entry.to_state.as_str()).collect();
        assert_eq!(states, ["open", "open", "late"]);
    }
}

async fn a_disarmed_timer_does_not_fire(house: House) {
    let running = start(&house).await;
    house.note("acme", "quiet", [0, 8]).await;
    house.note("acme", "loud", [0]).await;
    in_state(&house, "loud", "late").await;
    in_state(&house, "quiet", "quiet").await;
    assert!(house.applied("quiet:deadline").await.is_empty());
    stop(running).await;
}

async fn a_stale_timer_is_a_recorded_no_op(house: House) {
    let running = start(&house).await;
    house.note("acme", "a", [0, 8]).await;
    in_state(&house, "a", "quiet").await;
    let stale = DueTimer {
        saga: "count".into(),
        key: "a".into(),
        name: "deadline".into(),
        tenant: "acme".into(),
        generation: 1,
        due_at: Timestamp::now(),
    };
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    tx.conn().arm_timer(&stale).await.unwrap();
    tx.commit().await.unwrap();
    eventually("the history tells of it", async || {
        let history = history(&house, "a").await;
        history.last().is_some_and(|entry| entry.note.contains("stale timer"))
    })
    .await;
    in_state(&house, "a", "quiet").await;
    assert!(house.applied("a:deadline").await.is_empty());
    stop(running).await;
}

async fn an_early_event_waits_for_its_saga(house: House) {
    let running = start(&house).await;
    house.note("acme", "a", [5, 6]).await;
    let stashed = || async {
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        tx.conn().verdict().await.unwrap()
    };
    eventually("both have come", async || stashed().await.in_flight == 0).await;
    house.note("acme", "a", [0, 9]).await;
    in_state(&house, "a", "closed").await;
    stop(running).await;
    let notes: Vec<_> = history(&house, "a").await.into_iter().map(|entry| entry.note).collect();
    let came: Vec<_> = notes.iter().filter(|note| note.ends_with("came")).collect();
    assert_eq!(came, ["5 came", "6 came", "nine came"]);
    assert_eq!(stashed().await.lost, 0);
}

async fn an_early_event_waits_for_a_saga_that_a_command_starts(house: House) {
    let consumer = Consumer::new("c").on(count);
    let consumer = consumer.backoff(Duration::from_millis(10), Duration::from_millis(50));
    let running = house.run(consumer).await;
    house.note("acme", "a", [5, 6]).await;
    let verdict = || async {
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        tx.conn().verdict().await.unwrap()
    };
    eventually("both have come", async || verdict().await.in_flight == 0).await;
    let cause = chapar::core::Cause {
        tenant: "acme".parse().unwrap(),
        correlation: "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
        causation: None,
        actor: None,
        trace: None,
    };
    let mut cx = Cx::begin(&house.chapar, cause).await.unwrap();
    Saga::start(&mut cx, COUNT, "a", "open", Count { seen: vec![] }).await.unwrap();
    cx.commit().await.unwrap();
    house.note("acme", "a", [9]).await;
    in_state(&house, "a", "closed").await;
    let notes: Vec<_> = history(&house, "a").await.into_iter().map(|entry| entry.note).collect();
    assert_eq!(notes, ["started", "5 came", "6 came", "nine came"]);
    stop(running).await;
}

async fn an_early_event_whose_saga_never_comes_is_dead_lettered_and_can_be_replayed(house: House) {
    let running = start(&house).await;
    house.note("acme", "a", [5]).await;
    eventually("it is in the box", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    assert_eq!(letter.error, "saga count a did not start in time");
    house.note("acme", "a", [0, 8]).await;
    in_state(&house, "a", "quiet").await;
    house.replay(&letter.id).await;
    eventually("it is applied after all", async || {
        history(&house, "a").await.iter().any(|entry| entry.note == "5 came")
    })
    .await;
    assert!(house.letters().await.is_empty());
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    assert_eq!(tx.conn().verdict().await.unwrap().lost, 0);
    stop(running).await;
}

async fn a_late_event_meets_the_tombstone(house: House) {
    let running = start(&house).await;
    house.note("acme", "a", [0, 9, 5]).await;
    let late = "select count(*) from chapar_inbox where result = 'noop'";
    let late = match house.chapar.store().backend() {
        chapar::sql::Backend::Sqlite => late,
        chapar::sql::Backend::Postgres => "select count(*) from chapar.inbox where result = 'noop'",
    };
    eventually("the late one is a no-op", async || house.ints(late, vec![]).await == [1]).await;
    assert_eq!(state(&house, "a").await, Some(("closed".into(), Some("completed".into()))));
    stop(running).await;
}

/// 0 starts, 1 and 2 record how to undo them, 3 fails and compensates; undoing `two` fails for
/// keys that begin with `stuck`.
async fn stepwise(noted: Noted, cx: &mut Cx) -> Result<(), Failure> {
    if noted.n == 0 {
        Saga::start(cx, COUNT, &noted.key, "open", Count { seen: vec![] }).await?;
        return Ok(());
    }
    let Found::Active(mut saga) = Saga::<Count>::expect(cx, COUNT, &noted.key).await? else {
        return Ok(());
    };
    match noted.n {
        1 => saga.undo_with("one", 1),
        2 => saga.undo_with("two", 2),
        _ => {
            for step in saga.compensations() {
                if step.name == "two" && noted.key.starts_with("stuck") {
                    return Err(saga.stuck(Failure::rule("two cannot be undone")));
                }
                let n = step.data.as_i64().unwrap_or(0);
                write_down(Noted { key: format!("{}:undone", noted.key), n }, cx).await?;
            }
            return saga.end(cx, "undone", Outcome::Compensated, "three failed").await;
        }
    }
    saga.go(cx, "open", "a step").await
}

async fn compensations_run_in_reverse_and_a_failing_one_leaves_the_saga_stuck(house: House) {
    let running = house.run(Consumer::new("c").on(stepwise)).await;
    for key in ["a", "stuck"] {
        house.note("acme", key, 0..4).await;
    }
    in_state(&house, "a", "undone").await;
    assert_eq!(house.applied("a:undone").await, [2, 1], "newest first");
    eventually("the other is stuck", async || {
        state(&house, "stuck").await == Some(("open".into(), Some("stuck".into())))
    })
    .await;
    assert!(house.applied("stuck:undone").await.is_empty(), "all or nothing");
    assert_eq!(house.letters().await[0].error, "two cannot be undone");
    stop(running).await;
}

async fn a_saga_of_newer_code_is_left_alone_without_counting(house: House) {
    const NEWER: SagaKind = SagaKind::new("count", 2);
    let newer = async |noted: Noted, cx: &mut Cx| {
        Saga::start(cx, NEWER, &noted.key, "open", Count { seen: vec![] }).await?;
        Ok(())
    };
    let running = house.run(Consumer::new("newer").on(newer)).await;
    house.note("acme", "a", [0]).await;
    in_state(&house, "a", "open").await;
    stop(running).await;
    let older = async |noted: Noted, cx: &mut Cx| {
        Saga::<Count>::load(cx, COUNT, &noted.key).await?;
        Ok(())
    };
    let consumer = Consumer::new("older").on(older).retry(2);
    let consumer = consumer.backoff(Duration::from_millis(5), Duration::from_millis(10));
    let running = house.run(consumer).await;
    let metrics = running.metrics().consumer("older");
    eventually("it keeps trying", async || metrics.retries() > 10).await;
    assert!(house.letters().await.is_empty(), "an attempt by old code does not count");
    stop(running).await;
}
