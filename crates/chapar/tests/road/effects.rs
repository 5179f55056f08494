use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chapar::prelude::*;

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(
    an_effect_is_retried_with_one_key_and_its_outcome_comes_back_once,
    an_effect_that_fails_for_good_comes_back_as_a_failure,
    an_effect_of_a_rolled_back_handler_is_never_made,
    an_effect_of_a_saga_leads_to_its_next_step,
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
        let saga = tx.conn().load_saga("order", key, "").await.unwrap()?;
        let note = tx.conn().saga_history("order", key).await.unwrap().pop()?.note;
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
