//! Every example as a person would run it, with its output checked.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use chapar_testkit::need;
use chapar_testkit::servers::{self, Kind, Launch};

const INVOICING: &str = env!("CARGO_BIN_EXE_invoicing");
const CHOREOGRAPHY: &str = env!("CARGO_BIN_EXE_choreography");
const ORCHESTRATION: &str = env!("CARGO_BIN_EXE_orchestration");
const WEB: &str = env!("CARGO_BIN_EXE_web");

const INVOICED: &str = "booked: inv-1, inv-2, inv-3\nin the dead letters: 1\n";
const CHOREOGRAPHED: &str = "o1 is shipping\no2 is cancelled: above the limit\n";

/// What a program prints on a store and a transport.
fn run(program: &str, urls: Option<(&str, &str)>, more: &[(&str, String)]) -> String {
    let mut command = Command::new(program);
    command.env_remove("CHAPAR_STORE").env_remove("CHAPAR_TRANSPORT");
    if let Some((store, transport)) = urls {
        command.env("CHAPAR_STORE", store).env("CHAPAR_TRANSPORT", transport);
    }
    let output = command.envs(more.iter().cloned()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn invoicing_books_in_order_and_keeps_what_does_not_fit() {
    assert_eq!(run(INVOICING, None, &[]), INVOICED);
}

#[test]
fn choreography_ships_one_order_and_cancels_the_other() {
    assert_eq!(run(CHOREOGRAPHY, None, &[]), CHOREOGRAPHED);
}

#[test]
fn orchestration_undoes_what_was_done_in_reverse() {
    let printed = run(ORCHESTRATION, None, &[]);
    let states: Vec<&str> = printed.lines().filter(|line| !line.ends_with("refunded")).collect();
    let expected = [
        "o1 shipped",
        "o2 cancelled: the card was declined",
        "o3 cancelled: no carrier goes there",
        "o4 cancelled: the carrier did not answer",
        "9 of 10 pieces are left",
    ];
    assert_eq!(states, expected);
    let refunded = |order: &str| printed.contains(&format!("{order} refunded"));
    assert!(refunded("o3"), "{printed}");
    assert!(!refunded("o1") && !refunded("o2"), "{printed}");
}

/// Two URLs are all that differs.
fn on(store: &servers::Postgres, transport: &str) {
    let database = store.database("invoicing").unwrap();
    assert_eq!(run(INVOICING, Some((database.url(), transport)), &[]), INVOICED);
    let database = store.database("orders").unwrap();
    assert_eq!(run(CHOREOGRAPHY, Some((database.url(), transport)), &[]), CHOREOGRAPHED);
}

#[test]
fn the_same_programs_run_on_postgresql() {
    on(&need!(servers::postgres()), "sql:");
}

#[test]
fn the_same_programs_run_on_nats() {
    let nats = need!(Launch::of(Kind::Nats).start());
    on(&need!(servers::postgres()), nats.url());
}

#[cfg(feature = "pubsub")]
#[test]
fn the_same_programs_run_on_pubsub() {
    let pubsub = need!(Launch::of(Kind::PubSub).start());
    let transport = format!("pubsub://examples?emulator={}", pubsub.url());
    on(&need!(servers::postgres()), &transport);
}

#[test]
fn an_order_over_http_shows_processing_until_its_event_is_applied() {
    let mut program = Command::new(WEB)
        .env("PORT", "0")
        .env_remove("CHAPAR_STORE")
        .env_remove("CHAPAR_TRANSPORT")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let order = format!("{}/orders/o1", line.strip_prefix("listening on ").unwrap());
    let state =
        |mut answer: ureq::http::Response<ureq::Body>| answer.body_mut().read_to_string().unwrap();
    let placed = ureq::post(&order).send_empty().unwrap();
    assert_eq!(placed.status(), 202);
    assert_eq!(state(placed), r#"{"id":"o1","state":"processing"}"#);
    let deadline = Instant::now() + Duration::from_secs(30);
    while state(ureq::get(&order).call().unwrap()) != r#"{"id":"o1","state":"packed"}"# {
        assert!(Instant::now() < deadline, "the order is never packed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let stopped = Command::new("kill").args(["-INT", &program.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    assert_eq!(lines.next().unwrap().unwrap(), "stopped");
    assert!(program.wait().unwrap().success());
}
