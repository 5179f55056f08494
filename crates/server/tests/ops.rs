//! What the machines around a process see of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use chapar::core::Aggregate;
use chapar::core::dialect::Melmastoon;
use chapar::{Chapar, Draft, Metrics, Payload, Producer, Profile, Store, StoreOptions, Tenant};
use chapar_server::Ops;
use chapar_testkit::http;
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_publish_raises_its_counter_by_code_and_service() {
    let store = Store::open("sqlite::memory:", &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let profile = Profile::builtin("melmastoon").unwrap();
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    let chapar = Chapar::builder(store, profile, Arc::new(Melmastoon)).producer(producer).build();
    let ops = Ops::new(chapar.clone(), Metrics::default());
    let closing = CancellationToken::new();
    let (address, server) =
        ops.bind("127.0.0.1:0".parse().unwrap(), closing.clone()).await.unwrap();
    let server = tokio::spawn(server);
    let blocked = || async move {
        let url = format!("http://{address}/metrics");
        let text = tokio::task::spawn_blocking(move || http("GET", &url, None).unwrap().text());
        let text = text.await.unwrap();
        let lines = text.lines().filter(|line| line.starts_with("chapar_publish_blocked"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(blocked().await.is_empty(), "nothing was blocked yet");

    let tenant: Tenant = "acme".parse().unwrap();
    let draft = |subject: &str| {
        let aggregate = Aggregate { kind: "booking".into(), id: "a".into(), version: None };
        let payload = Payload::json(&json!({ "reservationId": "a" })).unwrap();
        Draft::new(subject, tenant.clone(), aggregate, payload)
    };
    let mut tx = chapar.begin(&tenant).await.unwrap();
    let held = "melmastoon.reservation.booking.held.v1";
    chapar.append(&mut tx, draft(held)).await.unwrap_err();
    chapar.append(&mut tx, draft(held)).await.unwrap_err();
    // A topic across tenants that this service has no business with; and it has no key either.
    let other = chapar.for_service("billing-service");
    let indexed = "melmastoon.search_aggregation.listing.indexed.v1";
    other.append(&mut tx, draft(indexed)).await.unwrap_err();
    chapar.append(&mut tx, draft(held).idempotency_key("a:held")).await.unwrap();
    chapar.commit(tx).await.unwrap();

    let expected = [
        r#"chapar_publish_blocked_total{code="CH1002",service="billing-service"} 1"#,
        r#"chapar_publish_blocked_total{code="CH1002",service="reservation-service"} 2"#,
        r#"chapar_publish_blocked_total{code="CH1010",service="billing-service"} 1"#,
    ];
    let mut found = blocked().await;
    found.sort();
    assert_eq!(found, expected);
    closing.cancel();
    server.await.unwrap();
}
