//! The rig convicts every wrong relay and every sabotaged database, each for what is wrong with it, and acquits ours.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use chapar_testkit::need;
use chapar_testkit::servers::{Kind, Launch, ServerError};
use serde_json::Value;

/// One run has a dozen processes: two at once would wait for each other and for their deadlines.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this machine has the servers that the rig starts.
fn servers() -> Result<(), ServerError> {
    Launch::of(Kind::Nats).start()?;
    Launch::of(Kind::Postgres).start()?;
    Ok(())
}

fn torture(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    command.args(["torture", "--format", "json"]).args(args).output().unwrap()
}

fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// The counts that must be zero.
const VIOLATIONS: [&str; 7] = [
    "lost",
    "phantom",
    "applied_twice",
    "out_of_order",
    "unparked_followers",
    "wrongly_held",
    "resurrected",
];

/// Runs a wrong relay until it is convicted of one of `charges`.
#[track_caller]
fn convict(mutant: &str, faults: &str, charges: &[&str]) {
    convict_on("nats", mutant, faults, charges);
}

#[track_caller]
fn convict_on(transport: &str, mutant: &str, faults: &str, charges: &[&str]) {
    let args = ["--mutant", mutant, "--faults", faults, "--until-violation"];
    // No more than a debug build on a busy machine can carry, and enough for events of a key to be
    // under way together: at 60 a second relays that overtake each other rarely had the chance.
    let calm = ["--transport", transport, "--seconds", "40", "--seed", "1", "--rate", "150"];
    let output = torture(&[&args[..], &calm].concat());
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    assert_eq!((&report["verdict"], &report["mutant"]), (&"violated".into(), &mutant.into()));
    let guilty = charges.iter().any(|charge| report[charge].as_u64() > Some(0));
    assert!(guilty, "not of {charges:?}: {report:#}");
    assert!(report["acknowledged"].as_u64() > Some(0), "with live writers: {report:#}");
    assert!(!report["examples"].as_array().unwrap().is_empty(), "{report:#}");
}

#[test]
fn our_relay_keeps_every_promise_whatever_happens() {
    need!(servers());
    let _alone = alone();
    let processes = "kill-relay,kill-consumer,kill-writer,freeze-relay,freeze-consumer";
    let servers = "crash-database,quick-crash,kill-backend,restart-broker";
    let lines = "cut-broker,slow-broker,half-open-broker,lost-ack-broker,\
                 cut-database,slow-database,half-open-database,lost-ack-database";
    let habits = "foreign-transaction,long-transactions,rollbacks,lock-order-races,\
                  async-commits,large-rows";
    let faults = [processes, servers, lines, habits].join(",");
    let calm = ["--rate", "200", "--transport", "nats", "--faults", &faults];
    let output = torture(&[&["--seconds", "15", "--seed", "1"], &calm[..]].concat());
    let report = report(&output);
    assert!(output.status.success(), "{report:#}");
    assert_eq!((&report["verdict"], &report["seed"]), (&"held".into(), &1.into()));
    for violation in VIOLATIONS {
        assert_eq!(report[violation], 0, "{report:#}");
    }
    assert!(report["acknowledged"].as_u64() > Some(100), "{report:#}");
    assert!(report["acknowledged_per_second"].as_f64() > Some(1.0), "{report:#}");
    let faults = report["faults"].as_object().unwrap();
    for fault in ["kill-relay", "freeze-relay", "rollbacks", "long-transactions"] {
        assert!(faults[fault]["fired"].as_u64() > Some(0), "{fault}: {report:#}");
        assert!(faults[fault]["interrupted"].is_object(), "{fault}: {report:#}");
    }
}

#[test]
fn without_a_broker_a_new_version_that_reads_another_topic_misses_nothing() {
    need!(servers());
    let _alone = alone();
    let calm = ["--rate", "100", "--transport", "sql:", "--faults", "deploys,rollbacks"];
    let output = torture(&[&["--seconds", "12", "--seed", "1"], &calm[..]].concat());
    let report = report(&output);
    assert!(output.status.success(), "{report:#}");
    let deploys = &report["faults"]["deploys"]["interrupted"];
    assert_eq!(deploys["processes of another version"], 2, "{report:#}");
}

#[test]
fn a_cursor_on_the_sequence_loses_what_commits_late() {
    need!(servers());
    let _alone = alone();
    convict("sequence-cursor", "long-transactions", &["lost"]);
}

#[test]
fn relays_that_skip_what_others_have_locked_overtake_each_other() {
    need!(servers());
    let _alone = alone();
    convict("skip-locked", "long-transactions", &["out_of_order"]);
}

#[test]
fn the_horizon_of_transactions_inverts_keys() {
    need!(servers());
    let _alone = alone();
    convict("xmin-horizon", "long-transactions", &["out_of_order"]);
}

#[test]
fn a_low_water_mark_from_xmax_loses_who_runs_above_it() {
    need!(servers());
    let _alone = alone();
    convict("snapshot-xmax", "long-transactions", &["lost"]);
}

#[test]
fn marking_before_publishing_loses_when_killed_in_between_and_only_then() {
    need!(servers());
    let _alone = alone();
    holds_in_peace("mark-before-publish");
    convict("mark-before-publish", "kill-relay", &["lost"]);
}

#[test]
fn a_lease_without_an_epoch_loses_when_a_zombie_wakes_and_only_then() {
    need!(servers());
    let _alone = alone();
    holds_in_peace("lease-without-epoch");
    convict("lease-without-epoch", "freeze-relay", &["lost"]);
}

#[test]
fn trouble_of_the_database_that_is_taken_for_bad_data_quarantines_healthy_events() {
    need!(servers());
    let _alone = alone();
    convict_on("sql:", "trouble-is-refusal", "rollbacks", &["wrongly_held"]);
}

#[test]
fn a_group_that_does_not_learn_a_new_topic_loses_its_events() {
    need!(servers());
    let _alone = alone();
    convict_on("sql:", "topic-not-added", "deploys", &["lost"]);
}

/// Without the fault a design has no chance to be wrong: what convicts it otherwise is not the rig itself.
#[track_caller]
fn holds_in_peace(mutant: &str) {
    let output = torture(&["--mutant", mutant, "--faults", "rollbacks", "--seconds", "4"]);
    let report = report(&output);
    assert!(output.status.success(), "{report:#}");
}

#[test]
fn wrong_calls_are_refused_with_words() {
    let says = |args: &[&str], expected: &str| {
        let output = torture(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
    };
    says(&["--faults", "kill-everything"], "there is no fault");
    says(&["--mutant", "none"], "there is no mutant");
    says(&["--seconds", "0"], "makes no sense");
    says(&["--rate", "0"], "makes no sense");
    says(
        &["--transport", "amqp://x:1", "--store", "postgres://x@127.0.0.1:1/x"],
        "give sql:, nats",
    );
    says(&["--store", "sqlite:a.db"], "give postgres://");
}

#[test]
fn ctrl_c_ends_every_process_of_the_run() {
    need!(servers());
    let _alone = alone();
    let mut child = Command::new(env!("CARGO_BIN_EXE_chapar"))
        .args(["torture", "--seconds", "600", "--faults", "freeze-relay", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A frozen relay is the hardest to end.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.by_ref().any(|line| line.contains("freeze-relay")));
    let processes = offspring(child.id());
    assert!(processes.len() >= 7, "writers, relays and consumers: {processes:?}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    std::thread::spawn(move || lines.for_each(drop));
    let status = child.wait().unwrap();
    assert!(matches!(status.code(), Some(0 | 130)), "{status}");
    let left: Vec<&u32> = processes.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(left.is_empty(), "still there: {left:?}");
}

/// The children of a process.
fn offspring(pid: u32) -> Vec<u32> {
    let output =
        Command::new("ps").args(["-o", "pid=", "--ppid", &pid.to_string()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("zombie")
}
