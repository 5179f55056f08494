//! `chapar consumers` on a store where the hotel has run.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Output, Stdio};

use chapar_testkit::{need, servers};
use serde_json::Value;

fn chapar(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn list(store: &str) -> Vec<Value> {
    let output = chapar(&["consumers", "list", "--store", store, "--format", "json"]);
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn a_consumer_is_paused_and_resumed(store: &str) {
    let up = ["up", "--store", store, "--rate", "20", "--for", "2s", "--listen", "127.0.0.1:0"];
    let output = chapar(&[&up[..], &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let cards = list(store);
    let name = cards[0]["consumer"].as_str().unwrap();
    assert!(cards.len() > 1 && cards.iter().all(|card| card["paused"].is_null()), "{cards:?}");

    let decide = |verb: &str, name: &str, reason: &str| {
        chapar(&["consumers", verb, name, "--store", store, "--reason", reason])
    };
    let output = decide("resume", name, "why not");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("is not paused"), "{}", said(&output));
    let output = decide("pause", "no-such-consumer", "why not");
    assert!(said(&output).contains("`chapar consumers list` shows who has"), "{}", said(&output));
    let output = decide("pause", name, " ");
    assert!(said(&output).contains("--reason is empty"), "{}", said(&output));

    assert!(decide("pause", name, "INC-42").status.success());
    assert_eq!(list(store)[0]["paused"], "INC-42");
    let output = decide("pause", name, "INC-43");
    assert!(said(&output).contains("is already paused"), "{}", said(&output));
    let output = chapar(&["consumers", "list", "--store", store]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("paused since") && text.contains("INC-42"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours in a pipe: {text}");
    assert!(decide("resume", name, "repaired").status.success());
    assert!(list(store)[0]["paused"].is_null());
}

#[test]
fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("hotel.db").display());
    a_consumer_is_paused_and_resumed(&store);
}

#[test]
fn on_postgres() {
    let server = need!(servers::postgres());
    let database = server.database("consumers").unwrap();
    a_consumer_is_paused_and_resumed(database.url());
}
