//! The hotel and the relay on Kafka, and what they say when Kafka is not as it should be.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hotel;

use std::net::TcpListener;
use std::process::Command;

use chapar_testkit::need;
use chapar_testkit::servers::{self, Instance, Kind, Launch};
use hotel::Hotel;

fn kafka() -> Result<Instance, servers::ServerError> {
    Launch::of(Kind::Kafka).start()
}

fn url(kafka: &Instance) -> String {
    format!("kafka://{}?session_seconds=2", kafka.url())
}

fn short_run(hotel: &Hotel, kafka: &Instance) {
    let url = url(kafka);
    let args = ["--transport", &url, "--rate", "20", "--for", "10s", "--format", "json"];
    let report = hotel.start(&args).report();
    assert_eq!((&report["lost"], &report["applied_twice"]), (&0.into(), &0.into()), "{report:#}");
    hotel.arrives(&report, &url);
    assert_eq!(report["dead_letters"], 1, "one delivery fails on purpose: {report:#}");
    assert!(report["events_published"].as_i64().unwrap() > 500, "{report:#}");
    assert!(report["events_applied"].as_i64() > report["events_published"].as_i64());
    assert!(report["sagas"]["confirmed"].as_i64().unwrap() > 50, "{report:#}");
    hotel.books().check();
}

#[test]
fn the_hotel_runs_on_sqlite_and_kafka() {
    short_run(&Hotel::on_sqlite(), &need!(kafka()));
}

#[test]
fn the_topics_of_the_catalog_are_planned_made_and_then_as_they_should_be() {
    let kafka = need!(kafka());
    let url = format!("kafka://{}", kafka.url());
    let run = |command: &str| {
        let mut chapar = Command::new(env!("CARGO_BIN_EXE_chapar"));
        chapar.args(["topology", command, "--system", "meridian", "--transport", &url]);
        chapar.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let output = chapar.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = run("plan");
    assert_eq!(code, Some(1), "{err}");
    assert!(out.contains("+ topic ") && out.contains("retention.ms"), "{out}");
    let (code, _, err) = run("apply");
    assert_eq!(code, Some(0), "{err}");
    let (code, out, err) = run("plan");
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
}

/// Runs a wrong call; returns what it said.
fn refused(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    let output = command.args(args).env_remove("CHAPAR_TRANSPORT").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn a_wrong_address_is_refused_with_the_setting_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db").display().to_string();
    let up = ["up", "--file", &file, "--listen", "127.0.0.1:0", "--for", "1s", "--transport"];
    let says = |transport: &str, expected: &[&str]| {
        let said = refused(&[&up[..], &[transport]].concat());
        for text in expected {
            assert!(said.contains(text), "{transport} said: {said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    };
    says("kafka://", &["--transport", "give kafka://host:port"]);
    says("kafka://a?password=hunter2", &["--transport", "has no option", "password_file"]);
    says("kafka://me:hunter2@a?sasl=KERBEROS", &["sasl=KERBEROS", "SCRAM-SHA-256"]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("kafka://{free}?timeout_seconds=2");
    says(&nobody, &["--transport", &free.to_string(), "refused"]);
    let missing = format!("kafka://{free}?ca=/no/such/ca.pem");
    says(&missing, &["option ca", "/no/such/ca.pem"]);
}
