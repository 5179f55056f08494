//! `chapar topology`, driven as a user would, against real servers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use chapar_testkit::need;
use chapar_testkit::servers::{self, Kind, Launch};
use serde_json::Value;

fn topology(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    command.arg("topology").args(args).current_dir(root());
    command.env_remove("CHAPAR_TRANSPORT").env_remove("CHAPAR_STORE").output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&out(output)).unwrap_or_else(|_| panic!("{}", err(output)))
}

#[test]
fn a_plan_is_carried_out_once_and_then_empty() {
    let nats = need!(Launch::of(Kind::Nats).start());
    let hotel = ["--system", "melmastoon", "--transport", nats.url()];
    let run = |command: &str, more: &[&str]| topology(&[&[command], &hotel[..], more].concat());

    let plan = run("plan", &[]);
    assert_eq!(code(&plan), 1, "{}", err(&plan));
    assert!(out(&plan).contains("+ stream RESERVATION  "), "{}", out(&plan));
    assert!(out(&plan).contains("max_age 7 d") && !out(&plan).contains('\x1b'), "{}", out(&plan));
    assert!(err(&plan).contains("to create, 0 to change"), "{}", err(&plan));
    let apply = run("apply", &["--format", "json"]);
    assert_eq!((code(&apply), json(&apply)["as_declared"].as_bool()), (0, Some(true)));
    let created = json(&apply)["done"].as_array().unwrap().len();
    assert_eq!(created, out(&plan).lines().count());
    let again = run("apply", &[]);
    assert_eq!((code(&again), out(&again).as_str()), (0, ""), "{}", err(&again));
    assert!(err(&again).contains("matches the catalog"), "{}", err(&again));
    let plan = run("plan", &["--format", "json"]);
    assert_eq!((code(&plan), json(&plan)["differences"].as_array().unwrap().len()), (0, 0));

    // The number of partitions cannot be changed while running.
    let config = tempfile::tempdir().unwrap();
    let config = config.path().join("six.toml");
    std::fs::write(&config, "[nats]\npartitions = 6\nretention_days = 90\n").unwrap();
    let config = config.display().to_string();
    let six = run("apply", &["--config", &config]);
    assert_eq!(code(&six), 1);
    assert!(err(&six).contains("chapar-partitions: 12 → 6"), "{}", err(&six));
    assert!(err(&six).contains("by hand: JetStream cannot change"), "{}", err(&six));
    let plan = run("plan", &["--config", &config, "--format", "json"]);
    let change = &json(&plan)["differences"][0];
    assert_eq!((&change["action"], &change["kind"]), (&"change".into(), &"stream".into()));
    assert!(change["settings"][0]["how"]["by-hand"].is_string(), "{change:#}");
}

#[test]
fn the_hotel_makes_no_difference_to_the_log_in_its_store() {
    let server = need!(servers::postgres());
    let database = server.database("topology").unwrap();
    let store = database.url();
    let sql = ["--transport", "sql:", "--store", store, "--system"];
    let run = |command: &str, system: &str| topology(&[&[command], &sql[..], &[system]].concat());
    let old = run("plan", "melmastoon");
    assert_eq!(code(&old), 2);
    assert!(err(&old).contains("run `chapar migrate apply`"), "{}", err(&old));
    let mut hotel = Command::new(env!("CARGO_BIN_EXE_chapar"));
    let up = ["up", "--store", store, "--listen", "127.0.0.1:0", "--rate", "0", "--for", "1s"];
    let ran = hotel.args(up).output().unwrap();
    assert!(ran.status.success(), "{}", err(&ran));
    let plan = run("plan", "melmastoon");
    assert_eq!((code(&plan), out(&plan).as_str()), (0, ""), "{}", err(&plan));
}

#[test]
fn what_cannot_be_asked_is_no_difference() {
    let says = |args: &[&str], expected: &str| {
        let output = topology(args);
        assert_eq!((code(&output), out(&output).as_str()), (2, ""), "{args:?}: {}", err(&output));
        assert!(err(&output).contains(expected), "{args:?}: {}", err(&output));
    };
    says(&["plan", "--system", "melmastoon", "--transport", "sql:"], "give --store URL");
    says(&["plan", "--system", "spa", "--transport", "sql:"], "there is no system \"spa\"");
    says(&["plan", "--system", "melmastoon", "--transport", "amqp://x"], "names no transport");
    says(&["plan", "--system", "melmastoon"], "--transport");
    let unused = "nats://me:secret@127.0.0.1:1";
    says(&["plan", "--system", "melmastoon", "--transport", unused], "nats://127.0.0.1:1");
}

#[test]
fn set_up_files_are_written_to_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    for (command, system, file) in [
        ("terraform", "melmastoon", "main.tf"),
        ("kafka", "meridian", "acls.sh"),
        ("nats", "learning", "accounts.conf"),
    ] {
        let at = folder.path().join(command);
        let output = topology(&[command, "--system", system, "--out", &at.display().to_string()]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        assert!(at.join(file).is_file(), "{command}");
    }
    let refused = topology(&["terraform", "--system", "melmastoon", "--push", "spa-service"]);
    assert_eq!(code(&refused), 1);
    assert!(
        err(&refused).contains("spa-service is listed for push, but reads nothing"),
        "{}",
        err(&refused)
    );
}
