//! What the machines around a process see of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar::prelude::*;
use chapar::{Draft, Envelope, Metrics, Payload, Producer, Store, StoreOptions};
use chapar_core::Aggregate;
use chapar_core::dialect::MetadataJson;
use chapar_core::machine::failure::FailurePolicy;
use chapar_server::Ops;
use chapar_sql::SqlTransport;
use chapar_testkit::http;
use serde_json::json;
use tokio_util::sync::CancellationToken;

const HELD: &str = "melmastoon.reservation.booking.held.v1";

async fn backbone() -> Chapar {
    let store = Store::open("sqlite::memory:", &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let profile = chapar_testkit::profile("melmastoon");
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    Chapar::builder(store, profile, Arc::new(MetadataJson)).producer(producer).build()
}

fn draft(subject: &str) -> Draft {
    let aggregate = Aggregate { kind: "booking".into(), id: "a".into(), version: None };
    let payload = Payload::json(&json!({ "reservationId": "a" })).unwrap();
    Draft::new(subject, aggregate, payload)
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let url = format!("http://{address}{path}");
    let answer = tokio::task::spawn_blocking(move || http("GET", &url, None).unwrap());
    let answer = answer.await.unwrap();
    (answer.status, answer.text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_names_the_parts_that_do_not_run_and_not_their_errors() {
    async fn refuse(_: Arc<Envelope>, _: &mut Cx) -> Handled {
        Err(Failure::terminal("db.internal:5432 said no"))
    }
    let chapar = backbone().await;
    let transport = Arc::new(SqlTransport::new(chapar.store().clone(), "ops"));
    let consumer = Consumer::new("held").on_any(&[HELD], refuse).on_failure(FailurePolicy::Stop);
    let running = App::new(chapar.clone(), transport, "ops")
        .service(Service::new("inventory-service").consumer(consumer))
        .start()
        .await
        .unwrap();
    let ops = Ops::new(chapar.clone(), running.metrics()).health(running.health());
    let closing = CancellationToken::new();
    let (address, server) =
        ops.bind("127.0.0.1:0".parse().unwrap(), closing.clone()).await.unwrap();
    let server = tokio::spawn(server);
    assert_eq!(get(address, "/readyz").await, (200, "ready".into()));

    let tenant: Tenant = "acme".parse().unwrap();
    let mut tx = chapar.begin(&tenant).await.unwrap();
    chapar.append(&mut tx, &tenant, draft(HELD).idempotency_key("a:held")).await.unwrap();
    chapar.commit(tx).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while running.health().problems().is_empty() {
        assert!(Instant::now() < deadline, "the consumer still runs");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let expected = "not running: consumer inventory-service.held";
    assert_eq!(get(address, "/readyz").await, (503, expected.into()));
    assert_eq!(get(address, "/healthz").await, (200, "ok".into()), "a restart cannot help");
    closing.cancel();
    server.await.unwrap();
    running.stop(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_publish_raises_its_counter_by_code_and_service() {
    let chapar = backbone().await;
    let ops = Ops::new(chapar.clone(), Metrics::default());
    let closing = CancellationToken::new();
    let (address, server) =
        ops.bind("127.0.0.1:0".parse().unwrap(), closing.clone()).await.unwrap();
    let server = tokio::spawn(server);
    let blocked = || async move {
        let (_, text) = get(address, "/metrics").await;
        let lines = text.lines().filter(|line| line.starts_with("chapar_publish_blocked"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(blocked().await.is_empty(), "nothing was blocked yet");

    let tenant: Tenant = "acme".parse().unwrap();
    let mut tx = chapar.begin(&tenant).await.unwrap();
    chapar.append(&mut tx, &tenant, draft(HELD)).await.unwrap_err();
    chapar.append(&mut tx, &tenant, draft(HELD)).await.unwrap_err();
    // A topic across tenants that this service has no business with; and it has no key either.
    let other = chapar.for_service("billing-service");
    let indexed = "melmastoon.search_aggregation.listing.indexed.v1";
    other.append(&mut tx, &tenant, draft(indexed)).await.unwrap_err();
    chapar.append(&mut tx, &tenant, draft(HELD).idempotency_key("a:held")).await.unwrap();
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
