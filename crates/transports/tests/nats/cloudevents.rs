//! CloudEvents on NATS, read and written by the official SDK for Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use chapar_core::dialect::{Binding, CloudEvents, Dialect, Message};
use chapar_core::port::Transport;
use chapar_testkit::need;
use chapar_testkit::servers;
use chapar_transports::nats::Nats;
use serde_json::{Value, json};

use super::specifics::{fetch, message, options, server, spec};
use super::topology::HELD;

/// The packages in the cache of the test servers, fetched the first time.
fn packages() -> Result<PathBuf, String> {
    let packages = servers::cache_dir().join("python-cloudevents-2.2.0");
    if packages.join("cloudevents").is_dir() {
        return Ok(packages);
    }
    std::fs::create_dir_all(servers::cache_dir()).map_err(|error| error.to_string())?;
    let fresh = tempfile::tempdir_in(servers::cache_dir()).map_err(|error| error.to_string())?;
    run(Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
        .arg(fresh.path())
        .args(["cloudevents==2.2.0", "nats-py==2.16.0"]))?;
    // Another test program may have been faster; then its copy serves as well.
    let _ = std::fs::rename(fresh.path(), &packages);
    Ok(packages)
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("python3 does not start: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn python(packages: &Path, args: &[&str]) -> String {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cloudevents/over_nats.py");
    let mut command = Command::new("python3");
    run(command.env("PYTHONPATH", packages).arg(script).args(args)).unwrap()
}

#[tokio::test]
async fn the_official_sdk_reads_and_writes_what_we_write_and_read() {
    let server = need!(server());
    let packages = match packages() {
        Ok(packages) => packages,
        Err(why) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("{why}"),
        Err(why) => {
            use std::io::Write;
            let name = "cloudevents::the_official_sdk_reads_and_writes_what_we_write_and_read";
            let _ = writeln!(std::io::stderr(), "skipped {name}: {why}");
            return;
        }
    };
    let nats = Nats::connect(server.url(), options("a")).await.unwrap();
    let binary = CloudEvents::Binary(Binding::Nats);
    let event = json!({
        "specversion": "1.0", "id": "rs-1", "type": HELD, "source": "/services/reservation-service",
        "time": "2026-01-02T03:04:05.5Z", "subject": "Zimmer „7“ & 8 %", "tenantid": "acme",
        "correlationid": "c-1", "partitionkey": "acme:res_1", "datacontenttype": "application/json",
        "data": {"reservationId": "res_1", "nights": 2, "total": 10.50, "guest": "Ägäis"},
    });
    let envelope = CloudEvents::Structured.decode(&Message::from_body(event.to_string())).unwrap();
    for dialect in [binary, CloudEvents::Structured] {
        let written = dialect.encode(&envelope).unwrap();
        let mut outgoing = message(HELD, "acme", "acme:res_1");
        (outgoing.headers, outgoing.body) = (written.headers, written.body);
        nats.publish(vec![outgoing]).await.remove(0).unwrap();
    }
    let printed = python(&packages, &["read", server.url(), "RESERVATION", "2"]);
    let read: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read.len(), 2, "{printed}");
    for read in read {
        assert_eq!(read["data"], event["data"], "{read:#}");
        for (name, value) in event.as_object().unwrap() {
            let expected = match name.as_str() {
                "data" => continue,
                "time" => json!("2026-01-02T03:04:05.500000+00:00"),
                _ => value.clone(),
            };
            assert_eq!(read["attributes"][name], expected, "{name} in {read:#}");
        }
    }

    let stream = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    stream.get_stream("RESERVATION").await.unwrap().purge().await.unwrap();
    python(&packages, &["write", server.url(), HELD]);
    let reader = nats.subscribe(&spec(&[HELD])).await.unwrap();
    for (number, delivery) in (1..).zip(fetch(&*reader, 2).await) {
        assert_eq!(delivery.key.as_deref(), Some("acme:res_1"));
        let message =
            Message { topic: Some(delivery.topic), headers: delivery.headers, body: delivery.body };
        // One dialect for both: a structured event is known by its content type.
        let event = binary.decode(&message).unwrap();
        assert_eq!(event.id.to_string(), format!("py-{number}"));
        assert_eq!(event.producer.service, "front-desk");
        assert_eq!(event.ordering_key.as_deref(), Some("acme:res_1"));
        assert_eq!(event.aggregate.as_ref().map(|a| a.id.as_str()), Some("Zimmer „7“ & 8 %"));
        assert_eq!(event.occurred_at.to_string(), "2026-01-02T03:04:05Z");
        let payload: Value = serde_json::from_slice(event.payload.as_bytes()).unwrap();
        assert_eq!(payload, json!({"reservationId": "res_1", "nights": number}));
    }
}
