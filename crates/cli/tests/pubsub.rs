//! The hotel and the relay on Pub/Sub, and what they say when it is not as it should be.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hotel;

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use chapar_testkit::need;
use chapar_testkit::servers::{self, Instance, Kind, Launch};
use hotel::Hotel;

fn pubsub() -> Result<Instance, servers::ServerError> {
    Launch::of(Kind::PubSub).start()
}

fn url(pubsub: &Instance) -> String {
    format!("pubsub://melmastoon-test?emulator={}&lease=3", pubsub.url())
}

#[test]
fn the_hotel_runs_on_postgres_and_pubsub_and_goes_on_after_a_crash() {
    let (server, pubsub) = (need!(servers::postgres()), need!(pubsub()));
    let (hotel, url) = (Hotel::on_postgres(&server), url(&pubsub));
    let transport = ["--transport", &url];
    let mut running = hotel.start(&[&transport[..], &["--rate", "10"]].concat());
    running.wait_until_ready();
    let limit = Instant::now() + Duration::from_secs(90);
    while hotel.books().ask("select count(*) from chapar.inbox").parse::<i64>().unwrap() < 200 {
        assert!(Instant::now() < limit, "the hotel does not get going");
    }
    running.kill();
    let args = ["--rate", "5", "--for", "15s", "--format", "json"];
    let report = hotel.start(&[&transport[..], &args].concat()).report();
    assert_eq!((&report["lost"], &report["applied_twice"]), (&0.into(), &0.into()), "{report:#}");
    assert_eq!(report["in_flight"], 0, "{report:#}");
    assert_eq!(report["dead_letters"], 1, "one delivery fails on purpose: {report:#}");
    assert!(report["events_applied"].as_i64() > report["events_published"].as_i64());
    assert!(report["sagas"]["confirmed"].as_i64().unwrap() > 20, "{report:#}");
    hotel.books().check();
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
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    says(&format!("pubsub://hotel-test?emulator={free}"), &["--transport", &free.to_string()]);
}
