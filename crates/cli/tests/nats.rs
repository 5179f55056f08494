//! The hotel and the relay on NATS, and what they say when NATS is not as it should be.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hotel;

use std::process::Command;

use chapar_testkit::need;
use chapar_testkit::servers::{self, Instance, Kind, Launch, free_port};
use hotel::Hotel;

fn nats() -> Result<Instance, servers::ServerError> {
    Launch::of(Kind::Nats).start()
}

fn short_run(hotel: &Hotel, nats: &Instance) {
    let args = ["--transport", nats.url(), "--rate", "20", "--for", "10s", "--format", "json"];
    let report = hotel.start(&args).report();
    assert_eq!((&report["lost"], &report["applied_twice"]), (&0.into(), &0.into()), "{report:#}");
    hotel.arrives(&report, nats.url());
    assert_eq!(report["dead_letters"], 1, "one delivery fails on purpose: {report:#}");
    assert!(report["events_published"].as_i64().unwrap() > 500, "{report:#}");
    assert!(report["events_applied"].as_i64() > report["events_published"].as_i64());
    assert!(report["sagas"]["confirmed"].as_i64().unwrap() > 50, "{report:#}");
    hotel.books().check();
}

#[test]
fn the_hotel_runs_on_sqlite_and_nats() {
    short_run(&Hotel::on_sqlite(), &need!(nats()));
}

#[test]
fn the_hotel_runs_on_postgres_and_nats_and_goes_on_after_a_crash() {
    let (server, nats) = (need!(servers::postgres()), need!(nats()));
    let hotel = Hotel::on_postgres(&server);
    let transport = ["--transport", nats.url()];
    let mut running = hotel.start(&[&transport[..], &["--rate", "40"]].concat());
    running.wait_until_ready();
    hotel.wait_for_more(80);
    running.kill();
    short_run(&hotel, &nats);
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
fn a_wrong_transport_is_refused_with_the_setting_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db").display().to_string();
    let up = ["up", "--file", &file, "--listen", "127.0.0.1:0", "--for", "1s", "--transport"];
    let says = |transport: &str, expected: &[&str]| {
        let said = refused(&[&up[..], &[transport]].concat());
        for text in expected {
            assert!(said.contains(text), "{transport} said: {said}");
        }
    };
    says("amqp://localhost", &["--transport", "use sql:, nats://host:port"]);
    says("nats://", &["--transport", "use sql:, nats://host:port"]);
    let free = format!("127.0.0.1:{}", free_port().unwrap());
    says(&format!("nats://{free}"), &["--transport", &free, "refused"]);

    let locked =
        need!(Launch::of(Kind::Nats).setting("authorization", "{user: a, password: b}").start());
    let host = locked.url().trim_start_matches("nats://");
    let wrong = format!("nats://a:secret@{host}");
    let said = refused(&[&up[..], &[&wrong]].concat());
    assert!(said.contains("check user and password") && !said.contains("secret"), "{said}");
}

#[test]
fn a_stream_with_other_settings_is_refused_by_name_and_left_alone() {
    let nats = need!(nats());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db").display().to_string();
    let config = folder.path().join("six.toml");
    std::fs::write(&config, "[nats]\npartitions = 6\n").unwrap();
    let up = ["up", "--file", &file, "--listen", "127.0.0.1:0", "--rate", "0", "--for", "1s"];
    let up = [&up[..], &["--transport", nats.url()]].concat();
    let first = Command::new(env!("CARGO_BIN_EXE_chapar")).args(&up).output().unwrap();
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let said = refused(&[&["--config", &config.display().to_string()], &up[..]].concat());
    assert!(said.contains("chapar-partitions 12 where 6 is asked for"), "{said}");
}

#[test]
fn the_transport_comes_from_the_file_the_environment_or_a_flag() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("chapar.toml"), "[up]\ntransport = \"nats://a\"\n").unwrap();
    let printed = |args: &[&str], variable: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
        command.arg("config").args(args).current_dir(folder.path());
        command.env_remove("CHAPAR_TRANSPORT");
        if !variable.is_empty() {
            command.env("CHAPAR_TRANSPORT", variable);
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(printed(&[], "").contains("transport = \"nats://a\""));
    assert!(printed(&[], "nats://b").contains("transport = \"nats://b\""));
    assert!(printed(&["--transport", "nats://c"], "nats://b").contains("transport = \"nats://c\""));
}
