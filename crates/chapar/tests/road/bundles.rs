//! A registry whose bundle lies behind a server, which releases new ones.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use chapar::{
    App, BearerToken, BundleSource, Chapar, Consumer, Event, FetchError, Producer, Registry,
    RegistryError, Running, Service,
};
use chapar_core::bundle::Bundle;
use chapar_core::dialect::MetadataJson;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(
    a_released_bundle_is_picked_up_by_the_first_event_of_a_new_schema,
    a_schema_that_nobody_knows_is_dead_lettered_and_fetched_for_once,
    a_corrupted_bundle_is_refused_and_the_one_before_stays,
    a_letter_that_came_before_its_schema_is_applied_when_it_is_replayed,
);

/// A server that hands out one bundle, and counts.
struct Shelf {
    bundle: Arc<Mutex<String>>,
    fetched: Arc<AtomicUsize>,
    url: String,
}

const TOKEN: &str = "let-me-read";

impl Shelf {
    async fn with(bundle: &Bundle) -> Shelf {
        let shelf = Arc::new(Mutex::new(text(bundle)));
        let fetched = Arc::new(AtomicUsize::new(0));
        let (on_shelf, count) = (shelf.clone(), fetched.clone());
        let hand_out = async move |headers: HeaderMap| {
            count.fetch_add(1, SeqCst);
            let shown = headers.get("authorization").and_then(|value| value.to_str().ok());
            match shown == Some(&format!("Bearer {TOKEN}")) {
                true => Ok(on_shelf.lock().unwrap().clone()),
                false => Err(StatusCode::UNAUTHORIZED),
            }
        };
        let router = axum::Router::new().route("/hotel.json", axum::routing::get(hand_out));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hotel.json", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Shelf { bundle: shelf, fetched, url }
    }

    fn release(&self, text: String) {
        *self.bundle.lock().unwrap() = text;
    }

    fn fetched(&self) -> usize {
        self.fetched.load(SeqCst)
    }

    async fn registry(&self) -> Registry {
        let source: BundleSource = self.url.parse().unwrap();
        Registry::open(source.token(BearerToken::Text(TOKEN.into()))).await.unwrap()
    }
}

/// A bundle with one schema, whose title makes it another.
fn bundle(title: &str) -> Bundle {
    let schema = json!({
        "$id": "schemas://reservation/booking/modified/v1",
        "title": title,
        "type": "object",
        "required": ["key", "n"],
        "properties": { "key": { "type": "string" }, "n": { "type": "integer", "minimum": 0 } },
    })
    .to_string();
    let hash: String =
        Sha256::digest(schema.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let bundle = json!({
        "format": 1, "system": "melmastoon", "version": title,
        "contracts": [{
            "subject": Noted::SUBJECT,
            "owner": "reservation-service",
            "uri": format!("schemas://reservation/booking/modified/v1#sha256-{hash}"),
            "schema": schema,
        }],
    });
    serde_json::from_value(bundle).unwrap()
}

fn after(mut bundle: Bundle, before: &Bundle) -> Bundle {
    bundle.follow(before);
    bundle
}

fn text(bundle: &Bundle) -> String {
    serde_json::to_string(bundle).unwrap()
}

fn backbone(house: &House, registry: Registry) -> Chapar {
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    let profile = chapar_testkit::profile("melmastoon");
    Chapar::builder(house.chapar.store().clone(), profile, Arc::new(MetadataJson))
        .producer(producer)
        .registry(registry)
        .build()
}

/// Writes notes as a producer that has this bundle.
async fn note(house: &House, bundle: &Bundle, key: &str, numbers: impl Iterator<Item = i64>) {
    let chapar = backbone(house, Registry::from_bundle(&text(bundle)).unwrap());
    let tenant = "acme".parse().unwrap();
    let mut tx = chapar.begin(&tenant).await.unwrap();
    for n in numbers {
        chapar.append(&mut tx, &tenant, Noted { key: key.into(), n }).await.unwrap();
    }
    chapar.commit(tx).await.unwrap();
}

async fn consume(house: &House, registry: Registry) -> Running {
    let app = App::new(backbone(house, registry), house.transport.clone(), "house");
    app.service(Service::new("s").consumer(Consumer::named("c").on(write_down)))
        .start()
        .await
        .unwrap()
}

async fn a_released_bundle_is_picked_up_by_the_first_event_of_a_new_schema(house: House) {
    let (old, new) = (bundle("1"), after(bundle("2"), &bundle("1")));
    let shelf = Shelf::with(&old).await;
    let running = consume(&house, shelf.registry().await).await;
    note(&house, &old, "old", 1..3).await;
    eventually("the old ones are applied", async || house.applied("old").await == [1, 2]).await;
    assert_eq!(shelf.fetched(), 1, "what is known is not fetched again");

    shelf.release(text(&new));
    note(&house, &new, "new", 1..30).await;
    note(&house, &old, "late", 1..3).await;
    eventually("the new ones are applied", async || house.applied("new").await.len() == 29).await;
    eventually("an earlier revision still is", async || house.applied("late").await == [1, 2])
        .await;
    assert_eq!((shelf.fetched(), house.letters().await.len()), (2, 0));
    stop(running).await;
}

async fn a_schema_that_nobody_knows_is_dead_lettered_and_fetched_for_once(house: House) {
    let shelf = Shelf::with(&bundle("1")).await;
    let running = consume(&house, shelf.registry().await).await;
    note(&house, &bundle("unheard of"), "a", 1..2).await;
    eventually("it is a letter", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    assert_eq!(letter.kind, "schema_invalid");
    let says = |what: &str| assert!(letter.error.contains(what), "{}", letter.error);
    says("the registry does not know schemas://reservation/booking/modified/v1#sha256-");
    says("fetched again and does not have it either");

    note(&house, &bundle("another"), "b", 1..2).await;
    eventually("so is another", async || house.letters().await.len() == 2).await;
    let letters = house.letters().await;
    assert!(letters.iter().any(|letter| letter.error.contains("at most every 60 s")));
    assert_eq!(shelf.fetched(), 2, "once to open it, once for the first");
    stop(running).await;
}

async fn a_corrupted_bundle_is_refused_and_the_one_before_stays(house: House) {
    let old = bundle("1");
    let shelf = Shelf::with(&old).await;
    let running = consume(&house, shelf.registry().await.patience(Duration::ZERO)).await;
    let new = bundle("2");
    for (n, corrupted) in
        [text(&new).replace("\\\"minimum\\\":0", "\\\"minimum\\\":9"), "{".to_owned()]
            .into_iter()
            .enumerate()
    {
        shelf.release(corrupted);
        note(&house, &new, &format!("new-{n}"), 1..2).await;
        eventually("it is a letter", async || house.letters().await.len() == n + 1).await;
        assert_eq!(shelf.fetched(), n + 2);
    }
    let errors: Vec<_> = house.letters().await.into_iter().map(|letter| letter.error).collect();
    assert!(errors.iter().any(|error| error.contains("the bundle was altered")), "{errors:?}");
    assert!(errors.iter().any(|error| error.contains("cannot be read")), "{errors:?}");
    note(&house, &old, "old", 1..2).await;
    eventually("the old one is applied", async || house.applied("old").await == [1]).await;
    stop(running).await;
}

async fn a_letter_that_came_before_its_schema_is_applied_when_it_is_replayed(house: House) {
    let (old, new) = (bundle("1"), bundle("2"));
    let shelf = Shelf::with(&old).await;
    let running = consume(&house, shelf.registry().await.patience(Duration::ZERO)).await;
    note(&house, &new, "a", 1..2).await;
    eventually("it is a letter", async || house.letters().await.len() == 1).await;
    shelf.release(text(&new));
    house.replay(&house.letters().await[0].id).await;
    eventually("it is applied", async || house.applied("a").await == [1]).await;
    stop(running).await;
}

#[tokio::test]
async fn a_bundle_that_does_not_come_is_an_error_at_the_start() {
    let shelf = Shelf::with(&bundle("1")).await;
    let without: BundleSource = shelf.url.parse().unwrap();
    let refused = Registry::open(without).await.unwrap_err().to_string();
    assert!(refused.contains("401"), "{refused}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{TOKEN}\n")).unwrap();
    let source: BundleSource = shelf.url.parse().unwrap();
    let source = source.token(BearerToken::File(file.path().to_owned()));
    Registry::open(source).await.expect("the token in the file is shown");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("contracts.json");
    let open = async || Registry::open(path.display().to_string().parse().unwrap()).await;
    assert!(matches!(open().await, Err(RegistryError::Fetch(FetchError::File(..)))));
    std::fs::write(&path, text(&bundle("1"))).unwrap();
    assert!(open().await.unwrap().contains(Noted::SUBJECT));
}
