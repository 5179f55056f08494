use std::time::Duration;

use chapar::prelude::*;
use chapar_sql::{DueTimer, HistoryEntry, Tables};
use jiff::Timestamp;

use crate::harness::{House, Noted, eventually, on_each_store, stop};

on_each_store!(
    a_timer_fires_once_and_survives_a_restart,
    a_disarmed_timer_does_not_fire,
    a_stale_timer_is_a_recorded_no_op,
    an_early_event_waits_for_its_saga,
    an_early_event_waits_for_a_saga_that_a_command_starts,
    an_early_event_whose_saga_never_comes_is_dead_lettered_and_can_be_replayed,
    a_late_event_meets_the_tombstone,
    a_step_that_runs_always_also_runs_after_the_end,
    compensations_run_in_reverse_and_a_failing_one_leaves_the_saga_stuck,
    a_saga_of_newer_code_is_left_alone_without_counting,
    two_tenants_with_one_key_have_two_sagas,
);

/// Starts a saga.
#[derive(Event, Serialize, Deserialize)]
#[event("melmastoon.reservation.booking.held.v1", id = key, intent = "{key}:opened")]
struct Opened {
    key: String,
}

#[derive(Debug, Saga, Serialize, Deserialize)]
#[saga("count", key = key, state = State, timer = Timer, undo = Undo)]
struct Count {
    key: String,
    seen: Vec<i64>,
}

#[derive(SagaState)]
enum State {
    Open,
    Quiet,
    Closed,
    Late,
    Undone,
}

#[derive(SagaTimer)]
enum Timer {
    /// Ends the count half done.
    #[timer(after = "300ms")]
    Deadline,
}

#[derive(SagaUndo, Serialize, Deserialize)]
enum Undo {
    One,
    Two { fails: bool },
}

const NOTE: &str = "insert into notes (n, tenant, key) values ($1, :tenant, $2)";

fn count(key: &str) -> Count {
    Count { key: key.to_owned(), seen: Vec::new() }
}

fn opened(event: Opened) -> Start<Count> {
    Start::new(count(&event.key), State::Open).arm(Timer::Deadline)
}

/// 9 ends the saga, 8 disarms its timer, others are counted.
fn noted(event: Noted, _: &Count) -> Step<Count> {
    let n = event.n;
    let step = match n {
        9 => Step::complete(State::Closed).because("nine came"),
        8 => Step::to(State::Quiet).disarm(Timer::Deadline).because("eight came"),
        n => Step::to(State::Open).because(format!("{n} came")),
    };
    step.update(move |count: &mut Count| count.seen.push(n))
}

fn deadline(count: &Count) -> Step<Count> {
    Step::partial(State::Late, "the deadline passed")
        .execute(NOTE, params![1, format!("{}:deadline", count.key)])
}

fn counting() -> Saga<Count> {
    Saga::new()
        .starts(opened)
        .on(|event: &Noted| &event.key, noted)
        .timer(Timer::Deadline, deadline)
        .consumer(|consumer| consumer.backoff(Duration::from_millis(10), Duration::from_millis(50)))
}

async fn run(house: &House, saga: Saga<Count>) -> Running {
    house.app().service(Service::new("s").saga(saga)).start().await.unwrap()
}

async fn start(house: &House) -> Running {
    run(house, counting()).await
}

async fn open(house: &House, key: &str) {
    house.append("acme", Opened { key: key.to_owned() }).await;
}

async fn history(house: &House, key: &str) -> Vec<HistoryEntry> {
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    tx.sagas().history("count", key, "acme").await.unwrap()
}

async fn state(house: &House, key: &str) -> Option<(String, Option<String>)> {
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    let saga = tx.sagas().load("count", key, "acme", "").await.unwrap();
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
        open(&house, key).await;
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
        assert_eq!(states, ["open", "late"]);
    }
}

async fn a_disarmed_timer_does_not_fire(house: House) {
    let running = start(&house).await;
    open(&house, "quiet").await;
    house.note("acme", "quiet", [8]).await;
    open(&house, "loud").await;
    in_state(&house, "loud", "late").await;
    in_state(&house, "quiet", "quiet").await;
    assert!(house.applied("quiet:deadline").await.is_empty());
    stop(running).await;
}

async fn a_stale_timer_is_a_recorded_no_op(house: House) {
    let running = start(&house).await;
    open(&house, "a").await;
    house.note("acme", "a", [8]).await;
    in_state(&house, "a", "quiet").await;
    let stale = DueTimer {
        saga: "count".into(),
        key: "a".into(),
        name: "deadline".into(),
        tenant: "acme".into(),
        generation: 1,
        due_at: Timestamp::now(),
        attempts: 0,
    };
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    tx.timers().arm(&stale).await.unwrap();
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
        tx.survey().census().await.unwrap()
    };
    eventually("both have come", async || stashed().await.in_flight == 0).await;
    open(&house, "a").await;
    house.note("acme", "a", [9]).await;
    in_state(&house, "a", "closed").await;
    stop(running).await;
    let notes: Vec<_> = history(&house, "a").await.into_iter().map(|entry| entry.note).collect();
    let came: Vec<_> = notes.iter().filter(|note| note.ends_with("came")).collect();
    assert_eq!(came, ["5 came", "6 came", "nine came"]);
    assert_eq!(stashed().await.lost, 0);
}

async fn an_early_event_waits_for_a_saga_that_a_command_starts(house: House) {
    let running = run(&house, counting()).await;
    house.note("acme", "a", [5, 6]).await;
    let census = || async {
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        tx.survey().census().await.unwrap()
    };
    eventually("both have come", async || census().await.in_flight == 0).await;
    let correlation = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let command = running.chapar("s").command(&"acme".parse().unwrap()).correlated(correlation);
    command.run(async |cx| cx.start(count("a"), State::Open).await).await.unwrap();
    house.note("acme", "a", [9]).await;
    in_state(&house, "a", "closed").await;
    let notes: Vec<_> = history(&house, "a").await.into_iter().map(|entry| entry.note).collect();
    assert_eq!(notes, ["started", "5 came", "6 came", "nine came"]);
    stop(running).await;
}

async fn an_early_event_whose_saga_never_comes_is_dead_lettered_and_can_be_replayed(house: House) {
    let soon = counting().consumer(|consumer| consumer.stash_for(Duration::from_millis(300)));
    let running = run(&house, soon).await;
    house.note("acme", "a", [5]).await;
    eventually("it is a letter", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    assert_eq!(letter.error, "saga count a did not start in time");
    open(&house, "a").await;
    house.note("acme", "a", [8]).await;
    in_state(&house, "a", "quiet").await;
    house.replay(&letter.id).await;
    eventually("it is applied after all", async || {
        history(&house, "a").await.iter().any(|entry| entry.note == "5 came")
    })
    .await;
    assert!(house.letters().await.is_empty());
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    assert_eq!(tx.survey().census().await.unwrap().lost, 0);
    stop(running).await;
}

async fn noops(house: &House) -> i64 {
    let sql = match house.chapar.store().backend() {
        chapar_sql::Backend::Sqlite => "select count(*) from chapar_inbox where result = 'noop'",
        chapar_sql::Backend::Postgres => "select count(*) from chapar.inbox where result = 'noop'",
    };
    house.ints(sql, vec![]).await[0]
}

async fn a_late_event_meets_the_tombstone(house: House) {
    let running = start(&house).await;
    open(&house, "a").await;
    house.note("acme", "a", [9, 5]).await;
    eventually("the late one is a no-op", async || noops(&house).await == 1).await;
    assert_eq!(state(&house, "a").await, Some(("closed".into(), Some("completed".into()))));
    stop(running).await;
}

async fn a_step_that_runs_always_also_runs_after_the_end(house: House) {
    // 7 moves the saga, which can no longer be done after its end; others are only noted.
    fn always(event: Noted, count: &Count) -> Step<Count> {
        match event.n {
            9 => Step::complete(State::Closed),
            7 => Step::to(State::Quiet).execute(NOTE, params![event.n, count.key]),
            n => Step::stay().execute(NOTE, params![n, count.key]),
        }
    }
    let saga = Saga::new().starts(opened).on_always(|event: &Noted| &event.key, always);
    let running = run(&house, saga).await;
    open(&house, "a").await;
    house.note("acme", "a", [1, 9, 2, 7, 3]).await;
    eventually("the last is noted", async || house.applied("a").await == [1, 2, 3]).await;
    assert_eq!(noops(&house).await, 1);
    assert_eq!(state(&house, "a").await, Some(("closed".into(), Some("completed".into()))));
    stop(running).await;
}

/// 1 and 2 record how to undo them, 3 compensates; undoing 2 fails for keys that begin with
/// `stuck`.
fn stepwise(event: Noted, count: &Count) -> Step<Count> {
    match event.n {
        1 => Step::stay().undo_with(Undo::One),
        2 => Step::stay().undo_with(Undo::Two { fails: count.key.starts_with("stuck") }),
        _ => Step::compensate(State::Undone, "three failed"),
    }
}

fn undone(undo: Undo, count: &Count) -> Step<Count> {
    let n: Option<i64> = match undo {
        Undo::One => Some(1),
        Undo::Two { fails: false } => Some(2),
        // The column takes no null.
        Undo::Two { fails: true } => None,
    };
    Step::stay().execute(NOTE, params![n, format!("{}:undone", count.key)])
}

async fn compensations_run_in_reverse_and_a_failing_one_leaves_the_saga_stuck(house: House) {
    let saga = Saga::new()
        .starts(|event: Opened| Start::new(count(&event.key), State::Open))
        .on(|event: &Noted| &event.key, stepwise)
        .undo(undone);
    let running = run(&house, saga).await;
    for key in ["a", "stuck"] {
        open(&house, key).await;
        house.note("acme", key, 1..4).await;
    }
    in_state(&house, "a", "undone").await;
    assert_eq!(house.applied("a:undone").await, [2, 1], "newest first");
    eventually("the other is stuck", async || {
        state(&house, "stuck").await == Some(("open".into(), Some("stuck".into())))
    })
    .await;
    assert!(house.applied("stuck:undone").await.is_empty(), "all or nothing");
    let error = house.letters().await.remove(0).error;
    assert!(error.to_lowercase().contains("null"), "{error}");
    let why = history(&house, "stuck").await.pop().unwrap();
    assert_eq!((why.cause.as_str(), why.note), ("failed for good", error));
    stop(running).await;
}

async fn a_saga_of_newer_code_is_left_alone_without_counting(house: House) {
    #[derive(Saga, Serialize, Deserialize)]
    #[saga("count", version = 2, key = key, state = State)]
    struct NewerCount {
        key: String,
        seen: Vec<i64>,
    }
    let newer = |event: Opened| {
        let (key, seen) = (event.key, Vec::new());
        Start::new(NewerCount { key, seen }, State::Open)
    };
    let service = Service::new("newer").saga(Saga::new().starts(newer));
    let running = house.app().service(service).start().await.unwrap();
    open(&house, "a").await;
    in_state(&house, "a", "open").await;
    stop(running).await;
    house.note("acme", "a", [1]).await;
    let older = Saga::new().on(|event: &Noted| &event.key, noted).consumer(|consumer| {
        consumer.retry(2).backoff(Duration::from_millis(5), Duration::from_millis(10))
    });
    let running = house.app().service(Service::new("older").saga(older)).start().await.unwrap();
    let metrics = running.metrics().consumer("older.count-saga");
    eventually("it keeps trying", async || metrics.retries() > 10).await;
    assert!(house.letters().await.is_empty(), "an attempt by old code does not count");
    stop(running).await;
}

async fn two_tenants_with_one_key_have_two_sagas(house: House) {
    let running = start(&house).await;
    for tenant in ["acme", "blue"] {
        house.append(tenant, Opened { key: "one".to_owned() }).await;
    }
    eventually("both have started", async || {
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        tx.sagas().named("count", "one").await.unwrap().len() == 2
    })
    .await;
    assert!(house.letters().await.is_empty());
    stop(running).await;
}
