//! Seeking. Google's emulator cannot, so what is sent is looked at.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use chapar_core::port::{Position, SeekTo, Transport, TransportError};
use chapar_testkit::need;
use chapar_testkit::servers;
use chapar_transports::pubsub::{PubSub, PubSubOptions};
use serde_json::{Value, json};

use super::specifics::{PROJECT, admin, connect, spec, subscription_of, topic};

/// Consumers as labels have them: half of the SHA-256 of their names.
const INVENTORY: &str = "b11a85b296a90afc460430434a504e7a";
const BILLING: &str = "0c95c7ece1ce1a9750275ef1c6d7ad6b";

/// Google's service as far as a seek needs it: it lists subscriptions, and writes down what it is
/// asked to move, and where to.
struct Service {
    host: String,
    seeks: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let seeks = Arc::new(Mutex::new(Vec::new()));
        let noted = seeks.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = noted.clone();
                std::thread::spawn(move || while answer(&stream, &noted).is_some() {});
            }
        });
        Service { host, seeks }
    }

    fn take(&self) -> Vec<(String, Value)> {
        let mut seeks = std::mem::take(&mut *self.seeks.lock().unwrap());
        seeks.sort_by(|(one, _), (other, _)| one.cmp(other));
        seeks
    }
}

/// Answers one request; `None` once the connection is closed.
fn answer(mut stream: &TcpStream, seeks: &Mutex<Vec<(String, Value)>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.split('?').next()?.to_owned();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let answer = match path.strip_suffix(":seek") {
        Some(subscription) => {
            let name = subscription.rsplit('/').next()?.to_owned();
            seeks.lock().unwrap().push((name, serde_json::from_slice(&body).unwrap()));
            json!({})
        }
        None if path.ends_with("/subscriptions") => subscriptions(),
        None => json!({}),
    };
    let body = answer.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).ok()
}

/// Two of the consumer, its dead letters, and one of another consumer.
fn subscriptions() -> Value {
    let of = |name: &str, consumer: &str, letters: bool| {
        let mut subscription = json!({
            "name": format!("projects/{PROJECT}/subscriptions/{name}"),
            "topic": format!("projects/{PROJECT}/topics/t"),
            "labels": {"chapar-consumer": consumer},
        });
        if !letters {
            let policy = json!({"deadLetterTopic": "t.dlq", "maxDeliveryAttempts": 100});
            subscription["deadLetterPolicy"] = policy;
        }
        subscription
    };
    json!({"subscriptions": [
        of("inventory.held.sub", INVENTORY, false),
        of("inventory.sold.sub", INVENTORY, false),
        of("inventory.held.dlq.sub", INVENTORY, true),
        of("billing.held.sub", BILLING, false),
    ]})
}

/// The time in a request to seek.
fn asked_for(request: &Value) -> jiff::Timestamp {
    request["time"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seek_moves_all_subscriptions_of_the_consumer_and_no_others() {
    let service = Service::start();
    let url = format!("pubsub://{PROJECT}?emulator={}", service.host);
    let options = PubSubOptions { emulator_seeks: true, ..PubSubOptions::default() };
    let pubsub = PubSub::connect(&url, options).await.unwrap();
    assert!(pubsub.features().seek_time && !pubsub.features().seek_position);

    let time: jiff::Timestamp = "2026-01-02T03:04:05.5Z".parse().unwrap();
    pubsub.seek("inventory", SeekTo::Time(time)).await.unwrap();
    let moved = service.take();
    let names: Vec<&str> = moved.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["inventory.held.sub", "inventory.sold.sub"]);
    for (name, asked) in &moved {
        assert_eq!(asked_for(asked), time, "{name}: {asked}");
    }

    pubsub.seek("inventory", SeekTo::Beginning).await.unwrap();
    for (_, asked) in service.take() {
        assert_eq!(asked_for(&asked), jiff::Timestamp::UNIX_EPOCH);
    }
    let before = jiff::Timestamp::now();
    pubsub.seek("inventory", SeekTo::End).await.unwrap();
    for (_, asked) in service.take() {
        let said = asked_for(&asked);
        assert!(before <= said && said <= jiff::Timestamp::now(), "{asked}");
    }

    let position = SeekTo::Position(Position { partition: 1, offset: 1 });
    let said = pubsub.seek("inventory", position).await;
    assert!(matches!(said, Err(TransportError::Unsupported(_))), "{said:?}");
    let said = pubsub.seek("housekeeping", SeekTo::Beginning).await.unwrap_err();
    assert!(matches!(said, TransportError::Setup(_)), "{said}");
    assert!(said.to_string().contains("no subscription of housekeeping"), "{said}");
    assert!(service.take().is_empty(), "nothing else was moved");
}

/// Once this fails, the conformance suite can seek on the emulator: then `emulator_seeks` and the
/// service above can go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_emulator_cannot_seek_and_we_say_so() {
    let server = need!(servers::pubsub());
    if server.version().starts_with("pstest") {
        return;
    }
    let (pubsub, held) = (connect(server.url()).await, topic());
    pubsub.apply(&[], &[spec(&held)]).await.unwrap();
    assert!(!pubsub.features().seek_time);
    let name = format!("projects/{PROJECT}/subscriptions/{}", subscription_of(&held));
    let seek = admin(server.url()).await.seek().set_subscription(name);
    let refused = seek.set_time(google_cloud_wkt::Timestamp::default()).send().await.unwrap_err();
    let code = refused.status().map(|status| status.code.name().to_owned());
    assert_eq!(code.as_deref(), Some("UNIMPLEMENTED"), "{refused}");
    let said = pubsub.seek("inventory.holds", SeekTo::Beginning).await.unwrap_err();
    assert!(said.to_string().contains("seek on the emulator"), "{said}");
}
