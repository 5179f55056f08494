//! Sagas from outside, and stories over services.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use chapar::ops::{CANCEL, SagaError, Waiting, cancel_saga, find, retry_saga, story, view_saga};
use chapar::prelude::*;
use chapar::{Draft, Envelope, Payload};
use chapar_core::Aggregate;

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};
use crate::order::HELD;

on_each_store!(
    a_saga_says_what_it_waits_for_and_is_cancelled_by_its_program,
    a_saga_whose_cancel_step_did_not_end_it_can_be_cancelled_again,
    a_cancel_step_that_failed_can_be_asked_for_again_once_it_is_mended,
    a_saga_that_nobody_can_cancel_is_abandoned_with_what_is_left_to_undo,
    a_saga_is_tried_again_by_its_dead_letters,
    a_story_is_a_tree_over_services_with_its_letters,
    anything_is_found,
);

#[derive(Saga, Serialize, Deserialize)]
#[saga("trip", key = key, state = State, timer = Timer, undo = Undo)]
struct Trip {
    key: String,
}

#[derive(SagaState)]
enum State {
    Open,
    Cancelled,
}

#[derive(SagaTimer)]
enum Timer {
    /// the train leaves
    #[timer(after = "10m")]
    Departure,
}

#[derive(SagaUndo, Serialize, Deserialize)]
enum Undo {
    GiveSeatBack,
}

fn begin(noted: Noted) -> Start<Trip> {
    let trip = Trip { key: noted.key };
    Start::new(trip, State::Open).undo_with(Undo::GiveSeatBack).arm(Timer::Departure)
}

fn undo(undo: Undo, _: &Trip) -> Step<Trip> {
    const NOTE: &str = "insert into notes (n, tenant, key) values (1, :tenant, $1)";
    Step::stay().execute(NOTE, params![undo.name()])
}

async fn travelling(house: &House, cancellable: bool) -> Running {
    let saga = Saga::new().starts(begin).timer(Timer::Departure, |_| Step::stay()).undo(undo);
    let cancelled = |_: &Trip| Step::compensate(State::Cancelled, "undone");
    let saga = if cancellable { saga.cancelled_by_operator(cancelled) } else { saga };
    start(house, saga).await
}

async fn start(house: &House, saga: Saga<Trip>) -> Running {
    let running = house.app().service(Service::new("s").saga(saga)).start().await.unwrap();
    house.note("acme", "t1", [1]).await;
    let store = house.chapar.store();
    eventually("it is on its way", async || view_saga(store, "trip", "t1").await.is_ok()).await;
    running
}

async fn a_saga_says_what_it_waits_for_and_is_cancelled_by_its_program(house: House) {
    let running = travelling(&house, true).await;
    let store = house.chapar.store();
    let view = view_saga(store, "trip", "t1").await.unwrap();
    assert_eq!(view.history.len(), 1);
    assert_eq!(view.compensations, ["give_seat_back"]);
    let [Waiting::Timer(timer, Some(declared))] = &view.waits_for[..] else {
        panic!("{:?}", view.waits_for);
    };
    assert_eq!((timer.name.as_str(), declared.does.as_str()), ("departure", "the train leaves"));
    let nothing = retry_saga(store, "trip", "t1", "ada", "why not").await.unwrap_err();
    assert!(matches!(nothing, SagaError::NothingToRetry(..)), "{nothing}");

    cancel_saga(store, "trip", "t1", false, "ada", "the guest has called").await.unwrap();
    eventually("it has ended", async || {
        view_saga(store, "trip", "t1").await.unwrap().card.outcome.is_some()
    })
    .await;
    let view = view_saga(store, "trip", "t1").await.unwrap();
    assert_eq!(view.card.outcome.as_deref(), Some("compensated"));
    assert!(view.waits_for.is_empty() && view.compensations.is_empty(), "{view:?}");
    assert_eq!(house.applied("give_seat_back").await, [1]);
    let asked = view.history.iter().find(|step| step.note == "the guest has called").unwrap();
    assert_eq!(asked.cause, "cancellation asked for by ada");
    let ended = cancel_saga(store, "trip", "t1", false, "ada", "again").await.unwrap_err();
    assert!(matches!(ended, SagaError::Ended { .. }), "{ended}");
    let unknown = view_saga(store, "trip", "t9").await.unwrap_err().to_string();
    assert!(unknown.contains("chapar find t9"), "{unknown}");
    stop(running).await;
}

async fn a_saga_whose_cancel_step_did_not_end_it_can_be_cancelled_again(house: House) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let cancelled = move |_: &Trip| match counted.fetch_add(1, Relaxed) {
        0 => Step::stay(),
        1 => Step::to(State::Open),
        _ => Step::compensate(State::Cancelled, "undone"),
    };
    let saga = Saga::new().starts(begin).timer(Timer::Departure, |_| Step::stay()).undo(undo);
    let running = start(&house, saga.cancelled_by_operator(cancelled)).await;
    let store = house.chapar.store();
    for time in 1..=3 {
        cancel_saga(store, "trip", "t1", false, "ada", "the guest has called").await.unwrap();
        eventually("the step has run", async || {
            let waits = view_saga(store, "trip", "t1").await.unwrap().waits_for;
            let armed = |w: &Waiting| matches!(w, Waiting::Timer(timer, _) if timer.name == CANCEL);
            asked.load(Relaxed) == time && !waits.iter().any(armed)
        })
        .await;
    }
    let view = view_saga(store, "trip", "t1").await.unwrap();
    assert_eq!(view.card.outcome.as_deref(), Some("compensated"));
    stop(running).await;
}

async fn a_cancel_step_that_failed_can_be_asked_for_again_once_it_is_mended(house: House) {
    let broken = Arc::new(AtomicBool::new(true));
    let mended = broken.clone();
    let undo = move |_: Undo, _: &Trip| match broken.load(Relaxed) {
        true => Step::complete(State::Open),
        false => Step::stay(),
    };
    let saga = Saga::new().starts(begin).timer(Timer::Departure, |_| Step::stay()).undo(undo);
    let cancelled = |_: &Trip| Step::compensate(State::Cancelled, "undone");
    let running = start(&house, saga.cancelled_by_operator(cancelled)).await;
    let store = house.chapar.store();
    let outcome = async || view_saga(store, "trip", "t1").await.unwrap().card.outcome;
    cancel_saga(store, "trip", "t1", false, "ada", "the guest has called").await.unwrap();
    eventually("it is stuck", async || outcome().await.as_deref() == Some("stuck")).await;
    mended.store(false, Relaxed);
    // Its own next try would be minutes away.
    cancel_saga(store, "trip", "t1", false, "ada", "mended").await.unwrap();
    eventually("it is undone", async || outcome().await.as_deref() == Some("compensated")).await;
    stop(running).await;
}

async fn a_saga_that_nobody_can_cancel_is_abandoned_with_what_is_left_to_undo(house: House) {
    let running = travelling(&house, false).await;
    let store = house.chapar.store();
    let refused = cancel_saga(store, "trip", "t1", false, "ada", "x").await.unwrap_err();
    assert!(refused.to_string().starts_with("CH3026"), "{refused}");
    let left = cancel_saga(store, "trip", "t1", true, "ada", "by hand").await.unwrap();
    assert_eq!(left, ["give_seat_back"]);
    let view = view_saga(store, "trip", "t1").await.unwrap();
    assert_eq!(view.card.outcome.as_deref(), Some("partial"));
    assert!(view.waits_for.is_empty(), "{:?}", view.waits_for);
    stop(running).await;
}

/// The keys whose handler is mended. Both databases run in one program.
static MENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

async fn a_saga_is_tried_again_by_its_dead_letters(house: House) {
    fn begin_and_ask(noted: Noted) -> Start<Trip> {
        let held = held(&noted.key);
        begin(noted).emit(held)
    }
    async fn answer(event: Arc<Envelope>, cx: &mut Cx) -> Handled {
        let noted: Noted = event.payload.parse().or_terminal()?;
        if !MENDED.lock().unwrap().contains(&noted.key) {
            return Err(Failure::terminal("not yet"));
        }
        write_down(Noted { key: format!("{}:answered", noted.key), n: 1 }, cx).await
    }
    let saga = Saga::new().starts(begin_and_ask);
    let app = house.app().service(Service::new("s").saga(saga));
    let app = app.service(Service::new("t").consumer(Consumer::named("d").on_any(&[HELD], answer)));
    let running = app.start().await.unwrap();
    let store = house.chapar.store();
    let key = format!("late-{}", house.url.len());
    house.note("acme", &key, [1]).await;
    eventually("it has failed", async || house.letters().await.len() == 1).await;
    let view = view_saga(store, "trip", &key).await.unwrap();
    let stuck =
        view.waits_for.iter().any(|w| matches!(w, Waiting::Held(b) if b.error.contains("not yet")));
    assert!(stuck, "{:?}", view.waits_for);
    MENDED.lock().unwrap().push(key.clone());
    let set_going = retry_saga(store, "trip", &key, "ada", "mended").await.unwrap();
    assert_eq!(set_going.len(), 1, "{set_going:?}");
    let answered = format!("{key}:answered");
    eventually("answered", async || house.applied(&answered).await == [1]).await;
    stop(running).await;
}

fn held(key: &str) -> Draft {
    let payload = Payload::json(&Noted { key: key.into(), n: 2 }).unwrap();
    let aggregate = Aggregate { kind: "booking".into(), id: key.into(), version: None };
    Draft::new(HELD, aggregate, payload).idempotency_key(format!("{key}:held"))
}

async fn first(noted: Noted, cx: &mut Cx) -> Handled {
    cx.emit(held(&noted.key)).await
}

async fn second(event: Arc<Envelope>, cx: &mut Cx) -> Handled {
    let noted: Noted = event.payload.parse().or_terminal()?;
    match noted.key.as_str() {
        "bad" => Err(Failure::terminal("<this> & that")),
        _ => write_down(noted, cx).await,
    }
}

async fn told(house: &House) -> Running {
    let app = house.app().service(Service::new("s").consumer(Consumer::named("c").on(first)));
    let app = app.service(Service::new("t").consumer(Consumer::named("d").on_any(&[HELD], second)));
    let running = app.start().await.unwrap();
    house.note("acme", "good", [1]).await;
    house.note("acme", "bad", [1]).await;
    eventually("good is through", async || house.applied("good").await == [2]).await;
    eventually("bad is not", async || house.letters().await.len() == 1).await;
    running
}

async fn correlation(house: &House, key: &str) -> String {
    let found = find(house.chapar.store(), key).await.unwrap();
    found[0].next.strip_prefix("chapar trace ").unwrap().to_owned()
}

async fn a_story_is_a_tree_over_services_with_its_letters(house: House) {
    let running = told(&house).await;
    let stores = [house.chapar.store().clone()];
    let good = story(&stores, &correlation(&house, "good").await).await.unwrap().unwrap();
    let depths: Vec<_> =
        good.events.iter().map(|node| (node.depth, node.receptions.len())).collect();
    assert_eq!(depths, [(0, 1), (1, 1)]);
    assert_eq!((good.held(), good.services()), (0, vec!["reservation"]));
    let json = good.to_json();
    assert_eq!(json["events"][1]["causation_id"], json["events"][0]["event_id"]);
    assert!(json["events"][1]["published_ms"].as_f64() >= json["events"][1]["written_ms"].as_f64());

    let bad = story(&stores, &correlation(&house, "bad").await).await.unwrap().unwrap();
    assert_eq!(bad.held(), 1);
    let text = bad.to_text();
    assert!(text.contains("✗ d: dead letter") && text.contains("<this> & that"), "{text}");
    assert!(text.contains("   └─ booking.held.v1"), "{text}");
    let svg = bad.to_svg();
    assert!(svg.contains("&lt;this&gt; &amp; that") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(!svg.contains("<this>"));
    assert!(story(&stores, "nothing").await.unwrap().is_none());
    stop(running).await;
}

async fn anything_is_found(house: House) {
    let running = told(&house).await;
    let store = house.chapar.store();
    let correlation = correlation(&house, "bad").await;
    let stores = [store.clone()];
    let story = story(&stores, &correlation).await.unwrap().unwrap();
    let letter = house.letters().await.remove(0);
    let event = story.events[1].event.event_id.clone();
    for (wanted, as_what) in [
        (event.as_str(), "event"),
        (event.as_str(), "dead letter"),
        (letter.id.as_str(), "dead letter"),
        (correlation.as_str(), "correlation"),
        ("bad", "aggregate"),
        ("bad:held", "idempotency key"),
    ] {
        let found = find(store, wanted).await.unwrap();
        assert!(found.iter().any(|f| f.found_as == as_what), "{wanted} as {as_what}: {found:?}");
    }
    assert_eq!(find(store, "nothing").await.unwrap(), []);
    stop(running).await;
}
