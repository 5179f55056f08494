use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chapar::ops::{
    EffectCard, EffectFilter, Operator, SagaError, list_effects, retry_effect, retry_saga,
};
use chapar::prelude::*;
use chapar_core::port::{Clock, ManualClock};
use chapar_sql::Tables;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Semaphore;

use crate::admission::Handling;
use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(
    an_effect_is_retried_with_one_key_and_its_outcome_comes_back_once,
    an_effect_that_fails_for_good_comes_back_as_a_failure,
    an_effect_of_a_rolled_back_handler_is_never_made,
    an_effect_of_a_saga_leads_to_its_next_step,
    an_outcome_that_cannot_be_recorded_at_first_is_recorded_later_without_another_call,
    an_outcome_that_keeps_failing_is_stuck_until_an_operator_retries_it,
    an_outcome_that_fails_does_not_stop_its_neighbours,
    a_call_under_way_is_not_made_again_by_an_impatient_operator,
);

#[derive(Effect, Serialize, Deserialize)]
#[effect("charge", key = "charge:{n}", answer = Receipt)]
struct Charge {
    n: i64,
    #[serde(default)]
    order: String,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    reference: String,
}

/// Counts the calls per idempotency key, and fails the first ones.
#[derive(Clone, Default)]
struct Vendor {
    calls: Arc<Mutex<HashMap<String, u32>>>,
    failures: u32,
    terminal: bool,
}

impl Vendor {
    fn charge(&self, _: Charge, attempt: Attempt) -> Result<Receipt, Failure> {
        let mut calls = self.calls.lock().unwrap();
        let calls = calls.entry(attempt.idempotency_key.clone()).or_default();
        *calls += 1;
        assert_eq!(attempt.number, *calls);
        match *calls <= self.failures {
            true if self.terminal => Err(Failure::terminal("refused")),
            true => Err(Failure::retry("busy")),
            false => Ok(Receipt { reference: attempt.idempotency_key }),
        }
    }

    fn task(&self) -> EffectTask<Charge> {
        let vendor = self.clone();
        EffectTask::new(move |charge: Charge, attempt| {
            let answer = vendor.charge(charge, attempt);
            async move { answer }
        })
        .attempts(5)
        .backoff(Duration::from_millis(10), Duration::from_millis(50))
    }
}

async fn ask(noted: Noted, cx: &mut Cx) -> Handled {
    cx.effect(Charge { n: noted.n, order: noted.key }).await
}

async fn record(outcome: EffectOutcome<Charge>, cx: &mut Cx) -> Handled {
    let n = outcome.request.n;
    let key = match outcome.result {
        Ok(receipt) => {
            assert_eq!(receipt.reference, format!("charge:{n}"));
            "ok".to_owned()
        }
        Err(reason) => reason,
    };
    write_down(Noted { key, n }, cx).await
}

async fn run(house: &House, vendor: &Vendor, consumer: Consumer) -> Running {
    let service = Service::new("s").consumer(consumer).effect(vendor.task().then(record));
    house.app().service(service).start().await.unwrap()
}

async fn an_effect_is_retried_with_one_key_and_its_outcome_comes_back_once(house: House) {
    let vendor = Vendor { failures: 2, ..Vendor::default() };
    let running = run(&house, &vendor, Consumer::named("c").on(ask)).await;
    house.note("acme", "a", 0..3).await;
    eventually("all came back", async || house.applied("ok").await.len() == 3).await;
    stop(running).await;
    let calls = vendor.calls.lock().unwrap();
    assert_eq!(calls.len(), 3);
    assert!(calls.values().all(|calls| *calls == 3), "{calls:?}");
}

async fn an_effect_that_fails_for_good_comes_back_as_a_failure(house: House) {
    let vendor = Vendor { failures: 9, terminal: true, ..Vendor::default() };
    let running = run(&house, &vendor, Consumer::named("c").on(ask)).await;
    house.note("acme", "a", [4]).await;
    eventually("it came back", async || house.applied("refused").await == [4]).await;
    stop(running).await;
    assert_eq!(vendor.calls.lock().unwrap()["charge:4"], 1, "a refusal is not tried again");
}

async fn an_effect_of_a_rolled_back_handler_is_never_made(house: House) {
    let vendor = Vendor::default();
    let handler = async |noted: Noted, cx: &mut Cx| {
        let wrong = noted.n == 1;
        ask(noted, cx).await?;
        if wrong { Err(Failure::terminal("changed my mind")) } else { Ok(()) }
    };
    let consumer = Consumer::named("c").on(handler).unordered();
    let running = run(&house, &vendor, consumer).await;
    house.note("acme", "a", [1, 2]).await;
    eventually("the other came back", async || house.applied("ok").await == [2]).await;
    stop(running).await;
    assert!(!vendor.calls.lock().unwrap().contains_key("charge:1"));
}

async fn an_effect_of_a_saga_leads_to_its_next_step(house: House) {
    #[derive(Saga, Serialize, Deserialize)]
    #[saga("order", key = order, state = State)]
    struct Order {
        order: String,
    }
    #[derive(SagaState)]
    enum State {
        Charging,
        Charged,
        Declined,
    }
    let started = |event: Noted| {
        let order = Order { order: event.key.clone() };
        Start::new(order, State::Charging).effect(Charge { n: event.n, order: event.key })
    };
    async fn charge(charge: Charge, attempt: Attempt) -> Result<Receipt, Failure> {
        match charge.n {
            1 => Ok(Receipt { reference: attempt.idempotency_key }),
            _ => Err(Failure::terminal("declined")),
        }
    }
    let charged = |outcome: EffectOutcome<Charge>, _: &Order| match outcome.result {
        Ok(receipt) => Step::complete(State::Charged).because(receipt.reference),
        Err(reason) => Step::compensate(State::Declined, reason),
    };
    let task = EffectTask::new(charge);
    let saga = Saga::new().starts(started).effect(task, |charge: &Charge| &charge.order, charged);
    let running = house.app().service(Service::new("s").saga(saga)).start().await.unwrap();
    house.note("acme", "good", [1]).await;
    house.note("acme", "bad", [2]).await;
    let ended = async |key: &str| {
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        let saga = tx.sagas().load("order", key, "acme", "").await.unwrap()?;
        let note = tx.sagas().history("order", key, "acme").await.unwrap().pop()?.note;
        Some((saga.state, saga.outcome?, note))
    };
    for (key, expected) in [
        ("good", ("charged", "completed", "charge:1")),
        ("bad", ("declined", "compensated", "declined")),
    ] {
        eventually("it has ended", async || ended(key).await.is_some()).await;
        let (state, outcome, note) = ended(key).await.unwrap();
        assert_eq!((state.as_str(), outcome.as_str(), note.as_str()), expected);
    }
    stop(running).await;
}

/// A handler of outcomes that knows something of its test.
fn recorder<F>(recorder: F) -> F
where
    F: for<'a> Fn(EffectOutcome<Charge>, &'a mut Cx) -> Handling<'a> + Send + Sync,
{
    recorder
}

/// Records outcomes unless told to fail; counts how often it was asked to, by number.
#[derive(Clone, Default)]
struct Ledger {
    broken: Arc<AtomicBool>,
    /// How many attempts of each number fail before one succeeds.
    failures: usize,
    asked: Arc<Mutex<HashMap<i64, usize>>>,
}

impl Ledger {
    async fn record(self, outcome: EffectOutcome<Charge>, cx: &mut Cx) -> Handled {
        let asked = {
            let mut asked = self.asked.lock().unwrap();
            let asked = asked.entry(outcome.request.n).or_default();
            *asked += 1;
            *asked
        };
        // What a failed attempt has written must not stay.
        record(outcome, cx).await?;
        match asked <= self.failures || self.broken.load(Relaxed) {
            true => Err(Failure::retry("the ledger is closed")),
            false => applied(),
        }
    }

    async fn run(&self, house: &House, vendor: &Vendor) -> Running {
        let ledger = self.clone();
        let then = recorder(move |outcome, cx| Box::pin(ledger.clone().record(outcome, cx)));
        let service = Service::new("s")
            .consumer(Consumer::named("c").on(ask))
            .effect(vendor.task().attempts(3).then(then));
        house.app().service(service).start().await.unwrap()
    }
}

async fn with_status(house: &House, status: &str) -> Vec<EffectCard> {
    let filter = EffectFilter { status: Some(status.into()), ..EffectFilter::default() };
    list_effects(house.chapar.store(), &filter, 100).await.unwrap()
}

async fn an_outcome_that_cannot_be_recorded_at_first_is_recorded_later_without_another_call(
    house: House,
) {
    let vendor = Vendor::default();
    let ledger = Ledger { failures: 2, ..Ledger::default() };
    let running = ledger.run(&house, &vendor).await;
    house.note("acme", "a", [1]).await;
    eventually("it came back", async || house.applied("ok").await == [1]).await;
    stop(running).await;
    assert_eq!(vendor.calls.lock().unwrap()["charge:1"], 1, "the vendor has answered");
    assert_eq!(ledger.asked.lock().unwrap()[&1], 3);
}

async fn an_outcome_that_keeps_failing_is_stuck_until_an_operator_retries_it(house: House) {
    let (vendor, ledger) = (Vendor::default(), Ledger::default());
    ledger.broken.store(true, Relaxed);
    let running = ledger.run(&house, &vendor).await;
    house.note("acme", "a", [1]).await;
    eventually("it is stuck", async || with_status(&house, "stuck").await.len() == 1).await;
    assert_eq!(ledger.asked.lock().unwrap()[&1], 3, "the budget of the task");
    let stuck = with_status(&house, "stuck").await.remove(0);
    assert!(stuck.answered && stuck.last_error.unwrap().contains("the ledger is closed"));
    assert_eq!(
        chapar::ops::overview(house.chapar.store(), 1, 1).await.unwrap().counts.effects_stuck,
        1
    );
    let by = Operator { name: "anna", reason: "the ledger is open" };
    ledger.broken.store(false, Relaxed);
    assert!(retry_effect(house.chapar.store(), stuck.id, by).await.unwrap().is_some());
    eventually("it came back", async || house.applied("ok").await == [1]).await;
    eventually("it has ended", async || with_status(&house, "done").await.len() == 1).await;
    assert!(retry_effect(house.chapar.store(), stuck.id, by).await.unwrap().is_none());
    stop(running).await;
    assert_eq!(vendor.calls.lock().unwrap()["charge:1"], 1, "the vendor has answered");
    assert!(!with_status(&house, "done").await[0].answered, "the answer is not kept");
}

async fn an_outcome_that_fails_does_not_stop_its_neighbours(house: House) {
    let vendor = Vendor::default();
    let then = async |outcome: EffectOutcome<Charge>, cx: &mut Cx| match outcome.request.n {
        3 => panic!("three is one too many"),
        _ => record(outcome, cx).await,
    };
    let service = Service::new("s")
        .consumer(Consumer::named("c").on(ask))
        .effect(vendor.task().attempts(2).then(then));
    let running = house.app().service(service).start().await.unwrap();
    for n in 0..8 {
        house.note("acme", &format!("k{n}"), [n]).await;
    }
    eventually("the others came back", async || house.applied("ok").await.len() == 7).await;
    eventually("it is stuck", async || with_status(&house, "stuck").await.len() == 1).await;
    stop(running).await;
    assert!(vendor.calls.lock().unwrap().values().all(|calls| *calls == 1));
}

async fn a_call_under_way_is_not_made_again_by_an_impatient_operator(house: House) {
    let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let call = {
        let (calls, gate) = (calls.clone(), gate.clone());
        move |_: Charge, attempt: Attempt| {
            let (calls, gate) = (calls.clone(), gate.clone());
            async move {
                calls.fetch_add(1, Relaxed);
                gate.acquire().await.unwrap().forget();
                Ok(Receipt { reference: attempt.idempotency_key })
            }
        }
    };
    #[derive(Saga, Serialize, Deserialize)]
    #[saga("order", key = order, state = State)]
    struct Order {
        order: String,
    }
    #[derive(SagaState)]
    enum State {
        Charging,
        Charged,
    }
    let started = |event: Noted| {
        let order = Order { order: event.key.clone() };
        Start::new(order, State::Charging).effect(Charge { n: event.n, order: event.key })
    };
    let saga = Saga::new().starts(started).effect(
        EffectTask::new(call),
        |charge: &Charge| &charge.order,
        |_, _: &Order| Step::complete(State::Charged),
    );
    let running = house.app().service(Service::new("s").saga(saga)).start().await.unwrap();
    house.note("acme", "one", [1]).await;
    eventually("the call is under way", async || calls.load(Relaxed) == 1).await;
    let store = house.chapar.store();
    let retried = retry_saga(store, "order", "one", "anna", "it takes so long").await;
    assert!(matches!(retried, Err(SagaError::NothingToRetry(..))), "{retried:?}");
    let id = with_status(&house, "pending").await[0].id;
    let by = Operator { name: "anna", reason: "it takes so long" };
    assert!(retry_effect(store, id, by).await.unwrap().is_none());
    gate.add_permits(9);
    eventually("it has ended", async || with_status(&house, "done").await.len() == 1).await;
    stop(running).await;
    assert_eq!(calls.load(Relaxed), 1);
}

/// Outcomes wait for a free place to record them longer than their calls are held: the process that
/// takes them then finds them answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_waits_longer_than_its_hold_is_recorded_without_another_call() {
    let server = chapar_testkit::need!(chapar_testkit::servers::postgres());
    let house = House::on_postgres(&server).await;
    let vendor = Vendor::default();
    let clock = Arc::new(ManualClock::new(Timestamp::now()));
    let gate = Arc::new(Semaphore::new(0));
    let entered = Arc::new(AtomicUsize::new(0));
    let start = async |name: &str, gate: Arc<Semaphore>| {
        let entered = entered.clone();
        let then = recorder(move |outcome, cx| {
            let (gate, entered) = (gate.clone(), entered.clone());
            Box::pin(async move {
                entered.fetch_add(1, Relaxed);
                gate.acquire().await.unwrap().forget();
                record(outcome, cx).await
            })
        });
        let service = Service::new(name)
            .consumer(Consumer::named(format!("{name}-consumer")).on(ask))
            .effect(vendor.task().then(then));
        let chapar = house.chapar.with_clock(clock.clone());
        App::new(chapar, house.transport.clone(), "house").service(service).start().await.unwrap()
    };
    let first = start("first", gate.clone()).await;
    // Four transactions record at a time.
    for n in 0..12 {
        house.note("acme", &format!("k{n}"), [n]).await;
        let busy = (n as usize + 1).min(4);
        eventually("it is recorded", async || entered.load(Relaxed) == busy).await;
    }
    let answered = async || {
        let pending = with_status(&house, "pending").await;
        pending.iter().filter(|effect| effect.answered).count()
    };
    // What they record is locked.
    let unlocked = async || {
        const FREE: &str = "select id from chapar.effects where status = 'pending' \
             and answer is null for update skip locked";
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        tx.fetch(FREE, vec![]).await.unwrap().len()
    };
    eventually("the others wait for their turn", async || {
        let called = vendor.calls.lock().unwrap().len();
        called == 12 && answered().await > 0 && unlocked().await == 0
    })
    .await;
    clock.advance(SignedDuration::from_hours(1));
    let second = start("second", Arc::new(Semaphore::new(1000))).await;
    eventually("they are taken again, or recorded", async || {
        let pending = with_status(&house, "pending").await;
        let held = |effect: &EffectCard| effect.held_until.is_some_and(|until| until > clock.now());
        pending.iter().filter(|effect| effect.answered).all(held)
    })
    .await;
    gate.add_permits(1000);
    eventually("all are recorded", async || house.applied("ok").await.len() == 12).await;
    stop(first).await;
    stop(second).await;
    assert!(vendor.calls.lock().unwrap().values().all(|calls| *calls == 1));
}
