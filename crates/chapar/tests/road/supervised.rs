//! Code that panics, hangs or stops: it fails like any other code, and the rest goes on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chapar::RunError;
use chapar::prelude::*;
use chapar_core::machine::failure::FailurePolicy;
use chapar_core::port::{
    BoxFuture, Features, ManualClock, Outgoing, Receipt, SeekTo, Subscription, SubscriptionSpec,
    TopicSpec, Transport, TransportError,
};
use chapar_sql::{DueTimer, Tables};
use jiff::{SignedDuration, Timestamp};
use serde::Deserializer;

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(
    a_timer_that_panics_is_tried_again_later_and_leaves_its_saga_stuck_at_last,
    a_timer_without_a_handler_here_is_left_to_other_processes,
    an_event_whose_deserialize_panics_is_dead_lettered_at_once,
    a_call_that_panics_is_made_again_and_an_outcome_that_hangs_stops_no_other,
    a_relay_that_panics_is_started_again_and_says_so,
    a_part_that_keeps_dying_is_the_error_of_the_app,
    a_consumer_that_its_policy_stops_is_a_problem,
);

#[derive(Saga, Serialize, Deserialize)]
#[saga("hold", key = key, state = State, timer = Timer)]
struct Hold {
    key: String,
}

#[derive(SagaState)]
enum State {
    Held,
    Reminded,
    Released,
}

#[derive(SagaTimer)]
enum Timer {
    /// Reminds the guest.
    #[timer(after = "10s")]
    Reminder,
    /// Releases the room.
    #[timer(after = "30s")]
    Release,
}

const NOTE: &str = "insert into notes (n, tenant, key) values ($1, :tenant, $2)";

/// How often something was called, by key.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<HashMap<String, u32>>>);

impl Calls {
    /// Counts this one too.
    fn count(&self, key: &str) -> u32 {
        let mut calls = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let calls = calls.entry(key.to_owned()).or_default();
        *calls += 1;
        *calls
    }

    fn of(&self, key: &str) -> u32 {
        let calls = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        calls.get(key).copied().unwrap_or_default()
    }
}

/// An app whose timers go by a clock that the test turns.
struct Turned {
    house: House,
    clock: Arc<ManualClock>,
}

impl Turned {
    fn new(house: House) -> Self {
        Turned { house, clock: Arc::new(ManualClock::new(Timestamp::now())) }
    }

    async fn start(&self, saga: Saga<Hold>) -> Running {
        let chapar = self.house.chapar.with_clock(self.clock.clone());
        let app = App::new(chapar, self.house.transport.clone(), "house");
        app.service(Service::new("s").saga(saga)).start().await.unwrap()
    }

    fn turn(&self, seconds: i64) {
        self.clock.advance(SignedDuration::from_secs(seconds));
    }

    async fn state(&self, key: &str) -> Option<(String, Option<String>)> {
        let mut tx = self.house.chapar.store().begin_engine().await.unwrap();
        let saga = tx.sagas().load("hold", key, "acme", "").await.unwrap();
        saga.map(|saga| (saga.state, saga.outcome))
    }

    async fn becomes(&self, key: &str, state: &str, outcome: Option<&str>) {
        let expected = Some((state.to_owned(), outcome.map(str::to_owned)));
        eventually(&format!("{key} is {state} {outcome:?}"), async || {
            self.state(key).await == expected
        })
        .await;
    }

    async fn timers(&self, key: &str) -> Vec<DueTimer> {
        let mut tx = self.house.chapar.store().begin_engine().await.unwrap();
        tx.timers().of_saga("hold", key, "acme").await.unwrap()
    }
}

async fn a_timer_that_panics_is_tried_again_later_and_leaves_its_saga_stuck_at_last(house: House) {
    const ATTEMPTS: u32 = 7;
    let turned = Turned::new(house);
    let (calls, broken) = (Calls::default(), Arc::new(AtomicBool::new(true)));
    let (counted, still) = (calls.clone(), broken.clone());
    let release = move |hold: &Hold| {
        counted.count(&hold.key);
        let step = Step::complete(State::Released);
        match hold.key.as_str() {
            "panics" if still.load(SeqCst) => panic!("no room"),
            // The column takes no null, and trying again cannot help.
            "refused" if still.load(SeqCst) => step.execute(NOTE, params![None::<i64>, hold.key]),
            _ => step,
        }
    };
    let started =
        |noted: Noted| Start::new(Hold { key: noted.key }, State::Held).arm(Timer::Release);
    let running = turned.start(Saga::new().starts(started).timer(Timer::Release, release)).await;
    for key in ["panics", "refused", "good"] {
        turned.house.note("acme", key, [0]).await;
    }
    for key in ["panics", "refused", "good"] {
        turned.becomes(key, "held", None).await;
    }
    turned.turn(31);
    turned.becomes("good", "released", Some("completed")).await;
    turned.becomes("refused", "held", Some("stuck")).await;

    // The clock stands until another saga is there, so that no timer is due a second time.
    turned.house.note("acme", "next", [0]).await;
    turned.becomes("next", "held", None).await;
    assert_eq!((calls.of("panics"), calls.of("refused")), (1, 1), "tried again at once");
    assert_eq!(turned.state("panics").await, Some(("held".into(), None)));
    turned.turn(61);
    turned.becomes("next", "released", Some("completed")).await;
    for attempt in 2..=ATTEMPTS {
        eventually("it is tried again", async || calls.of("panics") == attempt).await;
        eventually("the attempt counts", async || {
            turned.timers("panics").await[0].attempts == i64::from(attempt)
        })
        .await;
        turned.turn(61);
    }
    turned.becomes("panics", "held", Some("stuck")).await;
    assert!(running.health().problems().is_empty(), "{:?}", running.health());

    broken.store(false, SeqCst);
    turned.turn(301);
    turned.becomes("panics", "released", Some("completed")).await;
    turned.becomes("refused", "released", Some("completed")).await;
    assert!(turned.timers("panics").await.is_empty());
    stop(running).await;
}

async fn a_timer_without_a_handler_here_is_left_to_other_processes(house: House) {
    let turned = Turned::new(house);
    let started = |noted: Noted| {
        let hold = Hold { key: noted.key };
        Start::new(hold, State::Held).arm(Timer::Reminder).arm(Timer::Release)
    };
    // It is due after the one that nothing handles here.
    let remind = |_: &Hold| Step::to(State::Reminded);
    let release = |_: &Hold| Step::complete(State::Released);
    let saga = Saga::new().starts(started).timer(Timer::Release, |_| Step::to(State::Released));
    let running = turned.start(saga).await;
    turned.house.note("acme", "a", [0]).await;
    turned.becomes("a", "held", None).await;
    turned.turn(31);
    turned.becomes("a", "released", None).await;
    let left = turned.timers("a").await;
    let left: Vec<_> = left.iter().map(|timer| (timer.name.as_str(), timer.attempts)).collect();
    assert_eq!(left, [("reminder", 0)]);
    stop(running).await;

    let saga = Saga::new().starts(started).timer(Timer::Reminder, remind);
    let running = turned.start(saga.timer(Timer::Release, release)).await;
    turned.becomes("a", "reminded", None).await;
    assert!(turned.timers("a").await.is_empty());
    stop(running).await;
}

/// An event whose reading panics for some keys.
#[derive(Event, Serialize)]
#[event("melmastoon.reservation.booking.modified.v1", id = key)]
struct Fussy {
    key: String,
    n: i64,
}

impl<'de> Deserialize<'de> for Fussy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Noted { key, n } = Noted::deserialize(deserializer)?;
        assert_ne!(key, "bad", "cannot be read");
        Ok(Fussy { key, n })
    }
}

async fn an_event_whose_deserialize_panics_is_dead_lettered_at_once(house: House) {
    let handler = async |event: Fussy, cx: &mut Cx| {
        write_down(Noted { key: event.key, n: event.n }, cx).await
    };
    let consumer = Consumer::named("c").on(handler).retry(3);
    let consumer = consumer.backoff(Duration::from_millis(10), Duration::from_millis(20));
    let running = house.run(consumer).await;
    house.note("acme", "bad", [1]).await;
    house.note("acme", "good", [1]).await;
    eventually("it is a dead letter", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    assert_eq!(letter.kind, "undecodable", "{}", letter.error);
    eventually("the other is applied", async || house.applied("good").await == [1]).await;
    let metrics = running.metrics().consumer("c");
    assert_eq!((metrics.retries(), metrics.dead_letters()), (0, 1), "reading again cannot help");
    assert!(running.health().problems().is_empty(), "{:?}", running.health());
    stop(running).await;
}

#[derive(Effect, Serialize, Deserialize)]
#[effect("charge", key = "charge:{what}", answer = ())]
struct Charge {
    what: String,
}

async fn a_call_that_panics_is_made_again_and_an_outcome_that_hangs_stops_no_other(house: House) {
    let (calls, outcomes) = (Calls::default(), Calls::default());
    let counted = calls.clone();
    let charge = move |charge: Charge, _: Attempt| {
        let first = counted.count(&charge.what) == 1;
        async move {
            assert!(!(first && charge.what == "call panics"), "the vendor's client has a bug");
            Ok(())
        }
    };
    async fn charged(outcome: EffectOutcome<Charge>, cx: &mut Cx) -> Handled {
        let first = cx.state::<Calls>()?.count(&outcome.request.what) <= 2;
        match outcome.request.what.as_str() {
            "outcome panics" if first => panic!("the outcome has a bug"),
            "outcome hangs" if first => std::future::pending().await,
            what => write_down(Noted { key: what.to_owned(), n: 1 }, cx).await,
        }
    }
    let ask = async |noted: Noted, cx: &mut Cx| cx.effect(Charge { what: noted.key }).await;
    let (backoff, timeout) = (Duration::from_millis(10), Duration::from_millis(200));
    let task = EffectTask::new(charge).backoff(backoff, backoff).timeout(timeout).then(charged);
    let service = Service::new("s").consumer(Consumer::named("c").on(ask)).effect(task);
    let app = house.app().state(outcomes.clone()).service(service);
    let running = app.start().await.unwrap();
    let all = ["call panics", "outcome panics", "outcome hangs", "good"];
    for what in all {
        house.note("acme", what, [1]).await;
    }
    for what in all {
        eventually(what, async || house.applied(what).await == [1]).await;
    }
    assert_eq!(calls.of("call panics"), 2);
    assert!(outcomes.of("outcome hangs") > 2 && outcomes.of("outcome panics") > 2);
    assert!(running.health().problems().is_empty(), "{:?}", running.health());
    stop(running).await;
}

/// A transport with a bug that can be switched on.
struct Faulty {
    log: Arc<dyn Transport>,
    panics: AtomicBool,
}

impl Transport for Faulty {
    fn features(&self) -> Features {
        self.log.features()
    }

    fn apply<'a>(
        &'a self,
        topics: &'a [TopicSpec],
        subscriptions: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        self.log.apply(topics, subscriptions)
    }

    fn publish(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>> {
        assert!(!self.panics.load(SeqCst), "the client of the broker has a bug");
        self.log.publish(batch)
    }

    fn subscribe<'a>(
        &'a self,
        spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        self.log.subscribe(spec)
    }

    fn seek<'a>(
        &'a self,
        subscription: &'a str,
        to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        self.log.seek(subscription, to)
    }
}

async fn a_relay_that_panics_is_started_again_and_says_so(house: House) {
    let transport = Arc::new(Faulty { log: house.transport.clone(), panics: false.into() });
    let service = Service::new("s").consumer(Consumer::named("c").on(write_down));
    let app = App::new(house.chapar.clone(), transport.clone(), "house").service(service);
    let running = app.start().await.unwrap();
    let health = running.health();
    house.note("acme", "a", [1]).await;
    eventually("it works", async || house.applied("a").await == [1]).await;
    assert!(health.problems().is_empty(), "{health:?}");

    transport.panics.store(true, SeqCst);
    house.note("acme", "a", [2, 3]).await;
    eventually("the relay restarts", async || {
        let problems = health.problems();
        problems.iter().any(|problem| problem.starts_with("relay restarts after failure"))
    })
    .await;
    assert_eq!(house.applied("a").await, [1]);
    transport.panics.store(false, SeqCst);
    eventually("the others arrive", async || house.applied("a").await == [1, 2, 3]).await;
    eventually("all is well again", async || health.problems().is_empty()).await;
    stop(running).await;
}

async fn a_part_that_keeps_dying_is_the_error_of_the_app(house: House) {
    let transport = Arc::new(Faulty { log: house.transport.clone(), panics: true.into() });
    let app = || App::new(house.chapar.clone(), transport.clone(), "house").give_up_after(2);
    house.note("acme", "a", [1]).await;
    let died = |ended: Result<(), RunError>| {
        let error = ended.unwrap_err();
        assert!(matches!(error, RunError::Failed(_)), "{error:?}");
        let error = error.to_string();
        assert!(error.starts_with("relay failed 2 times in a row: "), "{error}");
        assert!(error.contains("the client of the broker has a bug"), "{error}");
    };
    died(app().run_until(std::future::pending()).await);

    let mut running = app().start().await.unwrap();
    let health = running.health();
    died(running.wait().await);
    assert!(health.problems()[0].starts_with("relay keeps failing: "), "{health:?}");
    stop(running).await;
}

async fn a_consumer_that_its_policy_stops_is_a_problem(house: House) {
    let fails = async |_: Noted, _: &mut Cx| Err(Failure::terminal("no such room"));
    let stops = Consumer::named("stops").on(fails).on_failure(FailurePolicy::Stop);
    let goes_on = Consumer::named("goes-on").on(write_down);
    let service = Service::new("s").consumer(stops).consumer(goes_on);
    let mut running = house.app().service(service).start().await.unwrap();
    house.note("acme", "a", [1]).await;
    let health = running.health();
    let expected = ["consumer stops stopped: its failure policy stopped it"];
    eventually("it is reported", async || health.problems() == expected).await;
    house.note("acme", "a", [2]).await;
    eventually("the other goes on", async || house.applied("a").await == [1, 2]).await;
    let waited = tokio::time::timeout(Duration::from_millis(50), running.wait()).await;
    assert!(waited.is_err(), "nothing has failed for good: {waited:?}");
    stop(running).await;
}
