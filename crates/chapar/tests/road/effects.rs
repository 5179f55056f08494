use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chapar::core::machine::retry::RetryPolicy;
use chapar::core::port::{BoxFuture, Effect, EffectError, Effects};
use chapar::{Consumer, Cx, EffectOutcome, EffectTask, Failure};
use serde_json::{Value, json};

use crate::harness::{House, Noted, eventually, on_each_store, stop};

on_each_store!(
    an_effect_is_retried_with_one_key_and_its_outcome_comes_back_once,
    an_effect_that_fails_for_good_comes_back_as_a_failure,
    an_effect_of_a_rolled_back_handler_is_never_made,
);

/// Counts the calls per idempotency key, and fails the first ones.
#[derive(Clone, Default)]
struct Vendor {
    calls: Arc<Mutex<HashMap<String, u32>>>,
    failures: u32,
    terminal: bool,
}

impl Effects for Vendor {
    fn run<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<Value, EffectError>> {
        Box::pin(async move {
            let mut calls = self.calls.lock().unwrap();
            let calls = calls.entry(effect.idempotency_key.clone()).or_default();
            *calls += 1;
            match *calls <= self.failures {
                true if self.terminal => Err(EffectError::Terminal("refused".into())),
                true => Err(EffectError::Retryable("busy".into())),
                false => Ok(json!({ "reference": effect.idempotency_key })),
            }
        })
    }
}

async fn ask(noted: Noted, cx: &mut Cx) -> Result<(), Failure> {
    cx.effect("charge", &format!("charge:{}", noted.n), &json!({ "n": noted.n })).await
}

async fn record(outcome: EffectOutcome, cx: &mut Cx) -> Result<(), Failure> {
    const INSERT: &str = "insert into notes (n, tenant, key) values ($1, $2, $3)";
    let n = outcome.request["n"].as_i64().unwrap_or(-1);
    let key = match outcome.result {
        Ok(_) => "ok".to_owned(),
        Err(reason) => reason,
    };
    let tenant = cx.tenant().as_str().to_owned();
    cx.tx().execute(INSERT, vec![n.into(), tenant.into(), key.into()]).await?;
    Ok(())
}

fn task(vendor: &Vendor) -> EffectTask {
    let retry =
        RetryPolicy::attempts(5).backoff(Duration::from_millis(10), Duration::from_millis(50));
    EffectTask::new("payment-gateway-service", "charge", vendor.clone(), record).retry(retry)
}

async fn an_effect_is_retried_with_one_key_and_its_outcome_comes_back_once(house: House) {
    let vendor = Vendor { failures: 2, ..Vendor::default() };
    let app = house.app().effect(task(&vendor));
    let running = app.consumer("s", Consumer::new("c").on(ask)).start().await.unwrap();
    house.note("acme", "a", 0..3).await;
    eventually("all came back", async || house.applied("ok").await.len() == 3).await;
    stop(running).await;
    let calls = vendor.calls.lock().unwrap();
    assert_eq!(calls.len(), 3);
    assert!(calls.values().all(|calls| *calls == 3), "{calls:?}");
}

async fn an_effect_that_fails_for_good_comes_back_as_a_failure(house: House) {
    let vendor = Vendor { failures: 9, terminal: true, ..Vendor::default() };
    let app = house.app().effect(task(&vendor));
    let running = app.consumer("s", Consumer::new("c").on(ask)).start().await.unwrap();
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
        if wrong { Err(Failure::rule("changed my mind")) } else { Ok(()) }
    };
    let consumer = Consumer::new("c").on(handler).unordered();
    let app = house.app().effect(task(&vendor));
    let running = app.consumer("s", consumer).start().await.unwrap();
    house.note("acme", "a", [1, 2]).await;
    eventually("the other came back", async || house.applied("ok").await == [2]).await;
    stop(running).await;
    assert!(!vendor.calls.lock().unwrap().contains_key("charge:1"));
}
