//! One house for all tests of this suite: a store in memory, a console, and things to show.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use chapar::{Chapar, Metrics, Store, StoreOptions};
use chapar_core::dialect::MetadataJson;
use chapar_server::{Console, Facts};
use chapar_sql::{Arrival, HistoryEntry, LetterFailure, NewDeadLetter, SagaRow, Tables};
use http_body_util::BodyExt;
use jiff::Timestamp;
use tower::ServiceExt;

pub(crate) const LETTER: &str = "01J9Z3";

pub(crate) struct House {
    pub(crate) chapar: Chapar,
    pub(crate) console: Console,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) response: Response<()>,
    pub(crate) text: String,
}

impl House {
    pub(crate) async fn new() -> Self {
        Self::on("sqlite::memory:").await
    }

    pub(crate) async fn on(url: &str) -> Self {
        let chapar = backbone(url).await;
        let facts = Facts::new("hotel bookings", "the database");
        let console = Console::new(chapar.clone(), Metrics::default(), facts);
        House { chapar, console }
    }

    pub(crate) fn router(&self) -> Router {
        self.console.router()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[("host", "localhost:8080")]).await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Answer { status: parts.status, response: Response::from_parts(parts, ()), text }
    }

    pub(crate) async fn bury(&self, reason: &str) {
        bury(self.chapar.store(), LETTER, reason).await;
    }

    pub(crate) async fn start_saga(&self, key: &str) {
        start_saga(self.chapar.store(), key, "awaiting_payment", None).await;
    }

    pub(crate) async fn texts(&self, sql: &'static str) -> Vec<String> {
        let mut tx = self.chapar.store().begin_engine().await.unwrap();
        let rows = tx.fetch(sql, vec![]).await.unwrap();
        rows.iter().map(|row| row.get(0).unwrap()).collect()
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) async fn backbone(url: &str) -> Chapar {
    let store = Store::open(url, &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let profile = chapar_testkit::profile("melmastoon");
    Chapar::builder(store, profile, Arc::new(MetadataJson)).build()
}

pub(crate) async fn bury(store: &Store, id: &str, reason: &str) {
    let offset = u64::from(id.bytes().map(u32::from).sum::<u32>());
    let letter = NewDeadLetter {
        id: id.into(),
        consumer: "inventory-service.booking-held".into(),
        arrival: Arrival {
            event_id: format!("event-{id}"),
            tenant: "kabul-grand".into(),
            topic: "melmastoon.reservation.booking.held.v1".into(),
            ordering_key: Some(format!("kabul-grand:{id}")),
            partition: 0,
            offset,
            headers: Default::default(),
            body: bytes::Bytes::from_static(b"{}"),
        },
        failure: LetterFailure {
            kind: "rule_violation".into(),
            error: reason.into(),
            shape: reason.into(),
            fingerprint: "f".into(),
            class: None,
        },
        attempts: 7,
        first_failed_at: Timestamp::now(),
        last_failed_at: Timestamp::now(),
        blocks_key: true,
        deferral: None,
    };
    let mut tx = store.begin_engine().await.unwrap();
    tx.letters().bury(&letter).await.unwrap();
    tx.commit().await.unwrap();
}

/// A saga that was held and has gone on to `state`.
pub(crate) async fn start_saga(store: &Store, key: &str, state: &str, outcome: Option<&str>) {
    let saga = SagaRow {
        saga: "booking".into(),
        key: key.into(),
        tenant: "kabul-grand".into(),
        definition: 1,
        state: state.into(),
        data: "{}".into(),
        compensations: "[]".into(),
        timers: "{}".into(),
        version: 2,
        correlation_id: "01J9Z3CORRELATION".into(),
        outcome: outcome.map(str::to_owned),
        stashed: false,
    };
    let step = |version, from: Option<&str>, to: &str, note: &str| HistoryEntry {
        version,
        at: Timestamp::now(),
        from_state: from.map(str::to_owned),
        to_state: to.into(),
        cause: "melmastoon.reservation.booking.held.v1".into(),
        event_id: Some("01J9Z3EVENT".into()),
        note: note.into(),
    };
    let mut tx = store.begin_engine().await.unwrap();
    assert!(tx.sagas().insert(&saga).await.unwrap());
    tx.sagas().add_history(&saga, &step(1, None, "held", "started")).await.unwrap();
    let moved = step(2, Some("held"), state, "room 101 allocated");
    tx.sagas().add_history(&saga, &moved).await.unwrap();
    tx.commit().await.unwrap();
}
