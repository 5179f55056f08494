//! Events pushed over HTTP to a service that is no part of the process.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use chapar::{Consumer, Endpoint, Event, Service, Store};
use chapar_core::dialect::{Dialect, Message};
use chapar_core::port::{SeekTo, Transport};
use chapar_core::webhook::{ID, Secrets};
use chapar_sql::Backend;
use jiff::Timestamp;

use crate::harness::{House, Noted, eventually, on_each_store, stop};

on_each_store!(
    events_of_a_key_are_posted_in_order_one_at_a_time_signed_and_as_they_are,
    no_transaction_is_open_during_the_call,
    an_unhappy_service_is_tried_again_and_the_order_of_a_key_holds,
    an_event_that_the_service_refuses_is_a_dead_letter_at_once_and_parks_its_key,
    a_replay_that_hangs_does_not_hold_up_other_keys,
    what_was_applied_is_not_pushed_again,
    what_cannot_be_read_is_pushed_to_nobody,
    a_service_that_does_not_answer_or_is_not_there_is_given_up_after_the_attempts,
);

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

type Answer = dyn Fn(&Noted, usize) -> u16 + Send + Sync;

/// A service of somebody else: it checks the signature and writes down what came.
#[derive(Clone)]
struct Receiver {
    base: String,
    log: Arc<Mutex<Vec<(Noted, u16)>>>,
    busy: Arc<Mutex<HashSet<String>>>,
    wrong: Arc<Mutex<Vec<String>>>,
    answer: Arc<Mutex<Arc<Answer>>>,
    /// Written to during each call.
    store: Option<Store>,
    together: Arc<AtomicUsize>,
    /// Lets those go that hang.
    release: Arc<tokio::sync::Notify>,
}

impl Receiver {
    async fn start(answer: impl Fn(&Noted, usize) -> u16 + Send + Sync + 'static) -> Self {
        Self::with_store(None, answer).await
    }

    async fn with_store(
        store: Option<Store>,
        answer: impl Fn(&Noted, usize) -> u16 + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = Receiver {
            base: format!("http://{}/billing/", listener.local_addr().unwrap()),
            log: Arc::default(),
            busy: Arc::default(),
            wrong: Arc::default(),
            answer: Arc::new(Mutex::new(Arc::new(answer))),
            store,
            together: Arc::default(),
            release: Arc::default(),
        };
        let router = Router::new().fallback(Self::take).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        service
    }

    async fn take(
        State(service): State<Receiver>,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> StatusCode {
        let secrets: Secrets = SECRET.parse().unwrap();
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let signed = secrets.verify(header, &body, Timestamp::now());
        let message = Message { topic: None, headers: Default::default(), body: body.clone() };
        let envelope = chapar_core::dialect::MetadataJson.decode(&message).unwrap();
        let noted: Noted = envelope.payload.parse().unwrap();
        let mut wrong = Vec::new();
        if signed.map(|signed| signed.id.to_owned()) != Ok(envelope.id.to_string()) {
            wrong.push(format!("signature or id: {:?}", header(ID)));
        }
        if uri.path() != "/billing/internal/events/reservation.booking.modified.v1" {
            wrong.push(uri.to_string());
        }
        if header("chapar-topic") != Some(Noted::SUBJECT) {
            wrong.push(format!("{headers:?}"));
        }
        if !service.busy.lock().unwrap().insert(noted.key.clone()) {
            wrong.push(format!("two of {} at once", noted.key));
        }
        service.wrong.lock().unwrap().extend(wrong);
        if let Some(store) = &service.store {
            let mut tx = store.begin("acme").await.unwrap();
            let note = "insert into notes (n, tenant, key) values ($1, 'acme', 'called')";
            tx.execute(note, vec![noted.n.into()]).await.unwrap();
            tx.commit().await.unwrap();
        }
        let before = {
            let log = service.log.lock().unwrap();
            log.iter().filter(|(known, _)| (&known.key, known.n) == (&noted.key, noted.n)).count()
        };
        let answer = service.answer.lock().unwrap().clone();
        let status = answer(&noted, before + 1);
        service.busy.lock().unwrap().remove(&noted.key);
        service.log.lock().unwrap().push((noted, status));
        if status == 0 {
            service.together.fetch_add(1, SeqCst);
            service.release.notified().await;
            return StatusCode::OK;
        }
        StatusCode::from_u16(status).unwrap()
    }

    fn mend(&self) {
        *self.answer.lock().unwrap() = Arc::new(|_, _| 204);
    }

    /// What was asked of a key, in order, with the answers.
    fn calls(&self, key: &str) -> Vec<(i64, u16)> {
        let log = self.log.lock().unwrap();
        log.iter().filter(|(noted, _)| noted.key == key).map(|(n, s)| (n.n, *s)).collect()
    }

    fn consumer(&self, name: &str) -> Consumer {
        let endpoint = Endpoint::new(&self.base, SECRET.parse().unwrap()).unwrap();
        Consumer::named(name)
            .push([Noted::SUBJECT], &endpoint)
            .lanes(8)
            .backoff(Duration::from_millis(20), Duration::from_millis(100))
    }

    fn was_treated_well(&self) {
        assert_eq!(*self.wrong.lock().unwrap(), Vec::<String>::new());
    }
}

async fn events_of_a_key_are_posted_in_order_one_at_a_time_signed_and_as_they_are(house: House) {
    let service = Receiver::start(|_, _| 200).await;
    // Whatever is asked for: a failure of the next must not have one called again.
    let running = house.run(service.consumer("p").batch(50)).await;
    for key in ["a", "b", "c"] {
        house.note("acme", key, 0..20).await;
    }
    let metrics = running.metrics().consumer("p");
    eventually("all are applied", async || metrics.applied() == 60).await;
    for key in ["a", "b", "c"] {
        let expected: Vec<_> = (0..20).map(|n| (n, 200)).collect();
        assert_eq!(service.calls(key), expected);
    }
    service.was_treated_well();
    stop(running).await;
}

async fn no_transaction_is_open_during_the_call(house: House) {
    // On SQLite one transaction writes at a time: ours would wait for the service, and the
    // service for ours.
    let store = house.chapar.store().clone();
    let on_sqlite = store.backend() == Backend::Sqlite;
    let service = Receiver::with_store(Some(store), |_, _| 200).await;
    let running = house.run(service.consumer("p").timeout(Duration::from_secs(2)).retry(1)).await;
    house.note("acme", "a", 0..3).await;
    let metrics = running.metrics().consumer("p");
    eventually("all are applied", async || metrics.applied() == 3).await;
    assert_eq!(house.applied("called").await, [0, 1, 2], "on SQLite: {on_sqlite}");
    stop(running).await;
}

async fn an_unhappy_service_is_tried_again_and_the_order_of_a_key_holds(house: House) {
    let service = Receiver::start(|noted, attempt| match (noted.key.as_str(), noted.n, attempt) {
        ("a", 1, 1) => 503,
        ("a", 1, 2) => 401,
        ("a", 1, 3) => 302,
        _ => 200,
    })
    .await;
    let running = house.run(service.consumer("p")).await;
    house.note("acme", "a", 0..4).await;
    house.note("acme", "b", 0..4).await;
    let metrics = running.metrics().consumer("p");
    eventually("all are applied", async || metrics.applied() == 8).await;
    let expected = [(0, 200), (1, 503), (1, 401), (1, 302), (1, 200), (2, 200), (3, 200)];
    assert_eq!(service.calls("a"), expected);
    assert_eq!(metrics.retries(), 3);
    service.was_treated_well();
    stop(running).await;
}

async fn an_event_that_the_service_refuses_is_a_dead_letter_at_once_and_parks_its_key(
    house: House,
) {
    let service = Receiver::start(|noted, _| match (noted.key.as_str(), noted.n) {
        ("a", 1) => 422,
        _ => 200,
    })
    .await;
    let running = house.run(service.consumer("p")).await;
    house.note("acme", "a", 0..4).await;
    house.note("acme", "b", 0..4).await;
    let metrics = running.metrics().consumer("p");
    eventually("the rest is applied", async || metrics.applied() == 5).await;
    eventually("its followers are parked", async || metrics.parked() == 2).await;
    assert_eq!(service.calls("a"), [(0, 200), (1, 422)]);
    let letters = house.letters().await;
    assert_eq!((letters.len(), letters[0].kind.as_str()), (1, "rule_violation"));
    assert!(letters[0].error.contains("answered 422"), "{}", letters[0].error);
    service.mend();
    house.replay(&letters[0].id).await;
    eventually("the key is drained", async || metrics.applied() == 8).await;
    let expected = [(0, 200), (1, 422), (1, 204), (2, 204), (3, 204)];
    assert_eq!(service.calls("a"), expected);
    service.was_treated_well();
    stop(running).await;
}

async fn a_replay_that_hangs_does_not_hold_up_other_keys(house: House) {
    let service = Receiver::start(|noted, attempt| match (noted.key.as_str(), attempt) {
        ("a", 1) => 422,
        ("a", _) => 0,
        _ => 200,
    })
    .await;
    // Longer than this test waits for anything.
    let running = house.run(service.consumer("p").timeout(Duration::from_secs(60))).await;
    house.note("acme", "a", [0]).await;
    eventually("there is a letter", async || house.letters().await.len() == 1).await;
    house.replay(&house.letters().await[0].id).await;
    eventually("the replay hangs", async || service.together.load(SeqCst) == 1).await;
    house.note("acme", "b", 0..3).await;
    let metrics = running.metrics().consumer("p");
    eventually("others flow", async || metrics.applied() == 3).await;
    assert_eq!(service.calls("a"), [(0, 422), (0, 0)]);
    running.stop(Duration::from_millis(100)).await;
    // Threads of calls that hang would hold up the end of the test.
    service.release.notify_waiters();
}

async fn what_was_applied_is_not_pushed_again(house: House) {
    let service = Receiver::start(|_, _| 200).await;
    let running = house.run(service.consumer("p")).await;
    house.note("acme", "a", 0..5).await;
    let metrics = running.metrics().consumer("p");
    eventually("all are applied", async || metrics.applied() == 5).await;
    house.transport.seek("p", SeekTo::Beginning).await.unwrap();
    eventually("all came again", async || metrics.duplicates() == 5).await;
    assert_eq!(service.calls("a").len(), 5);
    stop(running).await;
}

async fn what_cannot_be_read_is_pushed_to_nobody(house: House) {
    let service = Receiver::start(|_, _| 200).await;
    let running = house.run(service.consumer("p")).await;
    house.publish_raw(Noted::SUBJECT, "x", b"\xff\xfe no text").await;
    house.publish_raw(Noted::SUBJECT, "y", b"{\"eventId\":").await;
    house.note("acme", "a", 0..2).await;
    let metrics = running.metrics().consumer("p");
    eventually("the rest flows", async || metrics.applied() == 2).await;
    eventually("they are dead letters", async || house.letters().await.len() == 2).await;
    assert!(house.letters().await.iter().all(|letter| letter.kind == "undecodable"));
    assert_eq!(service.log.lock().unwrap().len(), 2);
    service.was_treated_well();
    stop(running).await;
}

async fn a_service_that_does_not_answer_or_is_not_there_is_given_up_after_the_attempts(
    house: House,
) {
    let service = Receiver::start(|_, _| 0).await;
    let hanging = service.consumer("p").retry(2).timeout(Duration::from_millis(300));
    let nobody = Endpoint::new("http://127.0.0.1:1", SECRET.parse().unwrap()).unwrap();
    let absent = Consumer::named("q")
        .push([Noted::SUBJECT], &nobody)
        .backoff(Duration::from_millis(20), Duration::from_millis(20))
        .retry(3);
    let app = house.app().service(Service::new("inventory-service").consumer(hanging));
    let running =
        app.service(Service::new("billing-service").consumer(absent)).start().await.unwrap();
    house.note("acme", "a", 0..1).await;
    eventually("both gave up", async || house.letters().await.len() == 2).await;
    let mut letters = house.letters().await;
    letters.sort_by(|a, b| a.consumer.cmp(&b.consumer));
    let kinds: Vec<_> = letters.iter().map(|l| (l.kind.as_str(), l.attempts)).collect();
    assert_eq!(kinds, [("timeout", 2), ("transient", 3)]);
    assert!(letters[1].error.contains("POST http://127.0.0.1:1/internal/events/reservation"));
    assert_eq!(service.together.load(SeqCst), 2);
    stop(running).await;
}
