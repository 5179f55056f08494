//! The hotel and the relay on Pub/Sub, and what they say when it is not as it should be.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hotel;
mod pushed;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chapar::{
    App, Chapar, Consumer, Cx, Draft, Envelope, Failure, Payload, Producer, Service, Store,
    StoreOptions, Tenant,
};
use chapar_core::Aggregate;
use chapar_core::port::{SubscriptionSpec, Transport};
use chapar_server::Expected;
use chapar_transports::pubsub::{PubSub, PubSubOptions};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use chapar_testkit::need;
use chapar_testkit::proxy::Proxy;
use chapar_testkit::servers::{self, Instance, Kind, Launch, free_port};
use hotel::Hotel;

fn pubsub() -> Result<Instance, servers::ServerError> {
    Launch::of(Kind::PubSub).start()
}

/// With the shortest lease that a subscription can have as its deadline: what is pulled need not be extended then, and
/// extensions are what the emulator spends most of its time on.
fn url(address: impl std::fmt::Display) -> String {
    format!("pubsub://melmastoon-test?emulator={address}&lease=10")
}

#[test]
fn the_hotel_runs_on_postgres_and_pubsub_and_goes_on_after_a_crash() {
    let (server, pubsub) = (need!(servers::postgres()), need!(pubsub()));
    let (hotel, url) = (Hotel::on_postgres(&server), url(pubsub.url()));
    let transport = ["--transport", &url];
    let mut running = hotel.start(&[&transport[..], &["--rate", "10"]].concat());
    running.wait_until_ready();
    hotel.wait_for_more(80);
    running.kill();
    let args = ["--rate", "5", "--for", "15s", "--format", "json"];
    let report = hotel.start(&[&transport[..], &args].concat()).report();
    assert_eq!((&report["lost"], &report["applied_twice"]), (&0.into(), &0.into()), "{report:#}");
    hotel.arrives(&report, &url);
    assert_eq!(report["dead_letters"], 1, "one delivery fails on purpose: {report:#}");
    assert!(report["events_applied"].as_i64() > report["events_published"].as_i64());
    assert!(report["sagas"]["confirmed"].as_i64().unwrap() > 20, "{report:#}");
    hotel.books().check();
}

/// Everything that is said to the service or heard of it goes through a proxy, which breaks the
/// network in each of its ways while the hotel works.
#[test]
fn the_hotel_outlives_a_broken_network() {
    let (postgres, pubsub) = (need!(servers::postgres()), need!(pubsub()));
    let proxy = Proxy::to(pubsub.url()).unwrap();
    let hotel = Hotel::on_postgres(&postgres);
    let proxied = url(proxy.address());
    // Few bookings: with ten a second the emulator is busy all the time, and draining takes minutes.
    let mut running = hotel.start(&["--transport", &proxied, "--rate", "3"]);
    running.wait_until_ready();
    hotel.wait_for_more(80);
    for fault in [Proxy::cut, Proxy::half_open, Proxy::lose_answers] {
        assert!(fault(&proxy) > 0, "the fault meets connections");
        // Longer than a lease, and than the patience of a publish.
        std::thread::sleep(Duration::from_secs(11));
        proxy.heal();
        hotel.wait_for_more(40);
    }
    running.kill();
    // What failed to be published waits for its next attempt, perhaps for longer than one run.
    let direct = url(pubsub.url());
    let report = hotel.finish_with(&["--transport", &direct]);
    let wrong = ["in_flight", "lost", "applied_twice"].map(|what| report[what].as_i64());
    assert_eq!(wrong, [Some(0); 3], "{report:#}");
    hotel.books().check();
}

#[test]
fn the_adapter_is_measured_against_the_bare_client() {
    need!(pubsub());
    // Nothing behind it: an emulator of its own.
    let output = Command::new(env!("CARGO_BIN_EXE_chapar"))
        .args(["bench", "transport", "--transport", "pubsub://", "--rounds", "1"])
        .args(["--turn-ms", "200", "--format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for figure in ["publish_ratio", "subscribe_ratio", "publish_per_s", "subscribe_per_s"] {
        assert!(report[figure].as_f64().is_some_and(|figure| figure > 0.0), "{report}");
    }
    assert_eq!(report["transport"], "Pub/Sub");
}

#[test]
fn a_wrong_address_is_refused_with_the_setting_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("key.json"), "{\"private_key\": \"s3cret\"}").unwrap();
    let says = |transport: &str, expected: &[&str]| {
        let up = ["up", "--file", &path("a.db"), "--listen", "127.0.0.1:0", "--for", "1s"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
        command.args(up).args(["--transport", transport]).env_remove("CHAPAR_TRANSPORT");
        for variable in ["PUBSUB_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"] {
            command.env_remove(variable);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{transport}: {said}");
        assert!(!said.contains("panicked") && !said.contains("s3cret"), "{said}");
        for text in expected {
            assert!(said.contains(text), "{transport} said: {said}");
        }
    };
    says("pubsub://", &["--transport", "pubsub://project"]);
    says("pubsub://hotel-test?region=x", &["--transport", "?region"]);
    let file = path("key.json");
    says(&format!("pubsub://hotel-test?credentials={file}"), &["credentials", &file, "type"]);
    says(&format!("pubsub://hotel-test?credentials={file}x"), &["cannot be read"]);
    let free = format!("127.0.0.1:{}", free_port().unwrap());
    says(&format!("pubsub://hotel-test?emulator={free}"), &["--transport", &free]);
}

const ACCOUNT: &str = "push@hotel.iam.gserviceaccount.com";
const HELD: &str = "melmastoon.reservation.booking.held.v1";

/// A key of the issuer, published on an address of its own.
struct Issuer {
    pair: EcdsaKeyPair,
    url: String,
}

impl Issuer {
    fn start() -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        let point = pair.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|half| URL_SAFE_NO_PAD.encode(half));
        let key = json!({"kid": "k", "kty": "EC", "crv": "P-256", "x": x, "y": y});
        let set = json!({ "keys": [key] }).to_string();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/certs", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", set.len());
                let _ = write!(stream, "{head}Connection: close\r\n\r\n{set}");
            }
        });
        Issuer { pair, url }
    }

    fn token(&self, audience: &str) -> String {
        let now = jiff::Timestamp::now().as_second();
        let claims = json!({"iss": "https://accounts.google.com", "aud": audience,
            "exp": now + 600, "iat": now, "email": ACCOUNT, "email_verified": true});
        let text = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", text(json!({"alg": "ES256", "kid": "k"})), text(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Posts as Pub/Sub does; returns the status.
async fn push(address: SocketAddr, token: Option<String>, body: Value) -> u16 {
    let post = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let body = body.to_string();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "POST /internal/events/reservation.booking.held.v1 HTTP/1.1\r\nHost: x\r\n{}\
             Connection: close\r\nContent-Length: {}\r\n\r\n",
            token.unwrap_or_default(),
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer[9..12].parse().unwrap()
    };
    tokio::task::spawn_blocking(post).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_pushed_with_a_good_token_is_applied_once_before_it_is_answered() {
    let server = need!(pubsub());
    let options = PubSubOptions { prefix: Some("melmastoon".into()), ..PubSubOptions::default() };
    let pubsub = PubSub::connect(&url(server.url()), options).await.unwrap();
    let spec = SubscriptionSpec {
        name: "sniffer".into(),
        topics: vec![HELD.into()],
        ack_deadline: Duration::from_secs(30),
        max_in_flight: 10,
    };
    let sniffer = pubsub.subscribe(&spec).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("a.db").display());
    let store = Store::open(&file, &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let profile = chapar_testkit::profile("melmastoon");
    let dialect = Arc::new(chapar_core::dialect::MetadataJson);
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    let chapar = Chapar::builder(store, profile, dialect).producer(producer).build();

    let pushed = pushed::transport(pubsub);
    let applied = Arc::new(AtomicU32::new(0));
    let counted = applied.clone();
    let consumer = Consumer::named("billing-service.holds").retry(1).on_any(
        &[HELD],
        move |event: Arc<Envelope>, _: &mut Cx| {
            counted.fetch_add(1, Ordering::SeqCst);
            let payload: Value = event.payload.parse().unwrap();
            let poison = payload["note"] == "poison";
            std::future::ready(if poison { Err(Failure::terminal("poison")) } else { Ok(()) })
        },
    );
    let app = App::new(chapar.clone(), Arc::new(pushed.clone()), "billing-1");
    let running =
        app.service(Service::new("billing-service").consumer(consumer)).start().await.unwrap();
    let issuer = Issuer::start();
    let expected = Expected::of_google("https://billing", ACCOUNT);
    let endpoint = pushed::endpoint(pushed, expected, &issuer.url);
    let closing = tokio_util::sync::CancellationToken::new();
    let any = "127.0.0.1:0".parse().unwrap();
    let (address, serve) = endpoint.bind(any, closing.clone()).await.unwrap();
    tokio::spawn(serve);

    let tenant: Tenant = "acme".parse().unwrap();
    let mut bodies = Vec::new();
    for n in ["fine", "poison"] {
        let payload = Payload::json(&json!({ "note": n })).unwrap();
        let aggregate = Aggregate { kind: "booking".into(), id: n.into(), version: None };
        let draft = Draft::new(HELD, aggregate, payload).idempotency_key(n);
        let mut tx = chapar.begin(&tenant).await.unwrap();
        chapar.append(&mut tx, &tenant, draft).await.unwrap();
        chapar.commit(tx).await.unwrap();
        // The message as the relay has published it, in the form in which it would be pushed.
        let limit = Instant::now() + Duration::from_secs(20);
        let got = loop {
            let got = sniffer.fetch(1, Duration::from_millis(200)).await.unwrap();
            if let Some(got) = got.into_iter().next() {
                break got;
            }
            assert!(Instant::now() < limit, "the relay does not publish");
        };
        sniffer.ack(std::slice::from_ref(&got.token)).await.unwrap();
        let attributes: serde_json::Map<String, Value> =
            got.headers.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        bodies.push(json!({
            "message": {"messageId": got.token.position.offset.to_string(), "attributes": attributes,
                "orderingKey": got.key, "data": STANDARD.encode(&got.body)},
            "subscription": "projects/x/subscriptions/billing-service.holds.reservation.booking.held.v1.sub",
        }));
    }
    let good = || Some(issuer.token("https://billing"));
    for bad in [None, Some(issuer.token("https://other")), Some("eyJhbGciOiJub25lIn0.e30.".into())]
    {
        assert_eq!(push(address, bad, bodies[0].clone()).await, 401);
    }
    assert_eq!(applied.load(Ordering::SeqCst), 0, "nothing of them has come through");
    assert_eq!(push(address, good(), bodies[0].clone()).await, 204);
    assert_eq!(applied.load(Ordering::SeqCst), 1, "applied before the answer");
    assert_eq!(push(address, good(), bodies[0].clone()).await, 204, "it came again");
    assert_eq!(applied.load(Ordering::SeqCst), 1, "and was not applied again");
    assert_eq!(push(address, good(), bodies[1].clone()).await, 204, "it is a dead letter");
    let mut stranger = bodies[0].clone();
    stranger["subscription"] = "projects/x/subscriptions/another".into();
    assert_eq!(push(address, good(), stranger).await, 404);
    assert_eq!(push(address, good(), json!({})).await, 400);
    closing.cancel();
    running.stop(Duration::from_secs(5)).await;
}
