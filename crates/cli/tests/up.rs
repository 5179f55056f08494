//! `chapar up` as a newcomer meets it, wrong turns included.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hotel;

use std::path::Path;
use std::process::{Command, Output};

use chapar_testkit::{http, need, servers};
use hotel::Hotel;

fn chapar(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    command.args(args).current_dir(folder).env_remove("CHAPAR_STORE").output().unwrap()
}

/// Runs a wrong call; returns what it said.
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = chapar(folder, args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "data only on success: {args:?}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn short_run(hotel: &Hotel) {
    let report = hotel.start(&["--rate", "20", "--for", "3s", "--format", "json"]).report();
    assert_eq!((&report["lost"], &report["applied_twice"]), (&0.into(), &0.into()), "{report:#}");
    assert_eq!(report["dead_letters"], 1, "one delivery fails on purpose: {report:#}");
    assert!(report["events_published"].as_i64().unwrap() > 100, "{report:#}");
    assert!(report["events_applied"].as_i64() > report["events_published"].as_i64());
    let sagas = report["sagas"].as_object().unwrap();
    assert!(sagas["confirmed"].as_i64().unwrap() > 10, "{report:#}");
    hotel.books().check();
}

#[test]
fn a_short_run_on_sqlite_ends_by_itself_with_a_report() {
    short_run(&Hotel::on_sqlite());
}

#[test]
fn a_short_run_on_postgres_ends_by_itself_with_a_report() {
    let server = need!(servers::postgres());
    short_run(&Hotel::on_postgres(&server));
}

#[test]
fn the_console_answers_while_it_runs() {
    let hotel = Hotel::on_sqlite();
    let mut running = hotel.start(&["--rate", "20", "--format", "json"]);
    let address = running.wait_until_ready();
    assert_eq!(http("GET", &format!("{address}/healthz"), None).unwrap().status, 200);
    let page = http("GET", &address, None).unwrap().text();
    assert!(page.contains("Chapar") && page.contains("notification-service"), "{page}");
    running.interrupt();
}

#[test]
fn wrong_flags_and_values_are_refused_with_words() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let says = |args: &[&str], expected: &str| {
        let said = refused(folder, args);
        assert!(said.contains(expected), "{args:?} said: {said}");
    };
    says(&["up", "--rat", "5"], "--rate");
    says(&["up", "--rate", "-1"], "makes no sense");
    says(&["up", "--rate", "many"], "invalid value");
    says(&["up", "--for", "20 parsecs"], "use ms, s, m, h or d");
    says(&["up", "--listen", "here"], "is not an address such as 127.0.0.1:7070");
    says(&["up", "--store", "mysql://x"], "use sqlite:FILE");
    says(&["up", "--file", "a.db", "--store", "sqlite:b.db"], "cannot be used with");
    says(&["up", "--file", "no/such/folder/a.db"], "check that no/such/folder exists");
    says(&["--config", "none.toml", "up"], "cannot be read");
    std::fs::write(folder.join("chapar.toml"), "[up]\nrat = 5\n").unwrap();
    says(&["up"], "unknown field `rat`");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1, "nothing was made on the way");
}

#[test]
fn a_damaged_file_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hotel.db");
    std::fs::write(&file, vec![42; 5000]).unwrap();
    let said = refused(folder.path(), &["up", "--file", "hotel.db"]);
    assert!(said.contains("not a SQLite database or is damaged"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), vec![42; 5000]);
}

#[test]
fn a_second_up_on_the_same_file_and_a_port_in_use_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let hotel = Hotel::at(&folder.path().join("hotel.db"));
    let mut running = hotel.start(&["--format", "json"]);
    let address = running.wait_until_ready();
    let said = refused(folder.path(), &["up", "--file", "hotel.db", "--listen", "127.0.0.1:0"]);
    assert!(said.contains("another `chapar up` is running"), "{said}");
    let port = address.trim_start_matches("http://");
    let said = refused(folder.path(), &["up", "--file", "other.db", "--listen", port]);
    assert!(said.contains("in use") && said.contains("--listen"), "{said}");
    running.interrupt();
}

#[test]
fn the_configuration_is_layered_and_printed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("chapar.toml"), "[up]\nrate = 7.0\nseed = 3\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_chapar"))
        .args(["config", "--seed", "9"])
        .env("CHAPAR_RATE", "8")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in ["rate = 8.0", "seed = 9", "listen = \"127.0.0.1:7070\""] {
        assert!(printed.contains(line), "{printed}");
    }
}

#[test]
fn migrations_are_planned_applied_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = chapar(folder.path(), args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let store = ["--store", "sqlite:a.db", "--format", "json"];
    let call = |command: &str| run(&[&["migrate", command], &store[..]].concat());
    assert!(call("plan").contains("create table chapar_outbox"));
    assert!(!folder.path().join("a.db").exists(), "a plan creates nothing");
    std::fs::write(folder.path().join("a.db"), "").unwrap();
    let status = chapar(folder.path(), &[&["migrate", "status"], &store[..]].concat());
    assert_eq!(status.status.code(), Some(1));
    assert!(String::from_utf8(status.stdout).unwrap().contains("\"pending\":[{"));
    assert!(call("apply").contains("\"applied\":[1,2,4,5,7,8]"));
    assert!(call("apply").contains("\"applied\":[]"));
    assert!(call("status").contains("\"pending\":[]"));
}
