//! The registry at run time: refused before commit, dead-lettered on arrival.

use std::sync::Arc;

use chapar::{
    AppendError, Chapar, Consumer, Event, IntoDraft, Producer, Registry, RegistryError, Service,
};
use chapar_core::dialect::MetadataJson;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(
    what_is_not_registered_not_owned_or_not_valid_is_refused_before_commit,
    what_comes_in_invalid_is_dead_lettered_and_an_unknown_field_is_not,
);

fn bundle(owner: &str) -> Value {
    let schema = json!({
        "$id": "schemas://reservation/booking/modified/v1",
        "type": "object",
        "required": ["key", "n"],
        "properties": {
            "key": { "type": "string" },
            "n": { "type": "integer", "minimum": 0 },
            "more": { "type": "object", "properties": { "a": { "type": "string" } } },
        },
    })
    .to_string();
    let hash: String =
        Sha256::digest(schema.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "format": 1, "system": "melmastoon", "version": "1",
        "contracts": [{
            "subject": Noted::SUBJECT,
            "owner": owner,
            "uri": format!("schemas://reservation/booking/modified/v1#sha256-{hash}"),
            "schema": schema,
        }],
    })
}

pub(crate) fn registered(house: &House, owner: &str) -> Chapar {
    let registry = Registry::from_bundle(&bundle(owner).to_string()).unwrap();
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    let profile = chapar_testkit::profile("melmastoon");
    Chapar::builder(house.chapar.store().clone(), profile, Arc::new(MetadataJson))
        .producer(producer)
        .registry(registry)
        .build()
}

async fn refusal(chapar: &Chapar, event: impl IntoDraft) -> String {
    let tenant = "acme".parse().unwrap();
    let mut tx = chapar.begin(&tenant).await.unwrap();
    let refused = chapar.append(&mut tx, &tenant, event).await;
    assert!(matches!(refused, Err(AppendError::Rules(_))), "{refused:?}");
    refused.unwrap_err().to_string()
}

async fn what_is_not_registered_not_owned_or_not_valid_is_refused_before_commit(house: House) {
    let tenant = "acme".parse().unwrap();
    let chapar = registered(&house, "reservation-service");
    let noted = |n| Noted { key: "a".into(), n };
    let mut tx = chapar.begin(&tenant).await.unwrap();
    chapar.append(&mut tx, &tenant, noted(1)).await.expect("a valid one is taken");
    tx.rollback().await.unwrap();
    let error = refusal(&chapar, noted(-4711)).await;
    assert!(error.starts_with("CH1015") && error.contains("/n: "), "{error}");
    assert!(!error.contains("4711"), "values of a payload do not belong into logs: {error}");

    let aggregate = || chapar_core::Aggregate { kind: "b".into(), id: "a".into(), version: None };
    let with = |subject: &str, payload: Value| {
        let payload = chapar::Payload::json(&payload).unwrap();
        chapar::Draft::new(subject, aggregate(), payload).idempotency_key("i")
    };
    let undeclared = json!({ "key": "a", "n": 1, "more": { "b": "?" } });
    let error = refusal(&chapar, with(Noted::SUBJECT, undeclared)).await;
    assert!(error.starts_with("CH1015") && error.contains("/more"), "{error}");
    let unknown = "melmastoon.reservation.booking.confirmed.v1";
    let error = refusal(&chapar, with(unknown, json!({}))).await;
    assert!(error.starts_with("CH1013"), "{error}");

    let foreign = registered(&house, "billing-service");
    let error = refusal(&foreign, noted(2)).await;
    assert!(error.starts_with("CH1014") && error.contains("billing-service"), "{error}");
}

async fn what_comes_in_invalid_is_dead_lettered_and_an_unknown_field_is_not(house: House) {
    // Two producers without a registry: one writes nonsense, the other a newer revision.
    house.note("acme", "bad", [-1]).await;
    house.note("acme", "good", [1]).await;
    let chapar = registered(&house, "reservation-service");
    let app = chapar::App::new(chapar, house.transport.clone(), "house");
    let running = app
        .service(Service::new("s").consumer(Consumer::named("c").on(write_down)))
        .start()
        .await
        .unwrap();
    eventually("the valid one is applied", async || house.applied("good").await == [1]).await;
    eventually("the other is a letter", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    assert_eq!(letter.kind, "schema_invalid");
    assert!(letter.error.contains("/n: "), "{}", letter.error);
    stop(running).await;
}

#[test]
fn an_altered_bundle_is_refused() {
    let mut altered = bundle("reservation-service");
    altered["contracts"][0]["schema"] = "{}".into();
    let refused = Registry::from_bundle(&altered.to_string());
    assert!(matches!(refused, Err(RegistryError::Hash(_))), "{refused:?}");
    let mut newer = bundle("reservation-service");
    newer["format"] = 2.into();
    assert!(matches!(Registry::from_bundle(&newer.to_string()), Err(RegistryError::Format(2))));
    assert!(Registry::from_bundle("{").is_err());
}
