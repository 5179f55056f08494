//! Seeking, sagas, traces, finding, following and read models, by the commands alone.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hotel;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use chapar_testkit::servers::{Kind, Launch};
use chapar_testkit::{need, servers};
use hotel::Hotel;
use serde_json::Value;

const FACTS: &str = "analytics-service.booking-facts";
const BOARD: &str = "bff-backoffice-service.arrivals";

fn chapar(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    command.env_remove("CHAPAR_TRANSPORT").env_remove("CHAPAR_PROFILE");
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(args: &[&str]) -> String {
    let output = chapar(args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    let text = text(&[args, &["--format", "json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn refused(args: &[&str]) -> String {
    let output = chapar(args);
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
    said(&output)
}

/// How often facts were recorded, as the hotel's own table has it.
fn facts(hotel: &Hotel) -> i64 {
    hotel
        .books()
        .ask("select sum(confirmed) + sum(cancelled) from analytics_totals")
        .parse()
        .unwrap()
}

fn table(hotel: &Hotel, name: &str) -> String {
    let dot = if hotel.store().starts_with("sqlite") { "_" } else { "." };
    format!("chapar{dot}{name}")
}

/// The transport without the profile, which the hotel brings itself.
fn address<'a>(transport: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    transport.iter().copied().take(2)
}

/// A consumer is seen to be somewhere, previewed, asked about, moved, and comes back.
fn seek(hotel: &Hotel, transport: &[&str]) {
    let store = ["--store", hotel.store()];
    let all = hotel
        .books()
        .ask(&format!("select count(*) from {} where consumer = '{FACTS}'", table(hotel, "inbox")));
    let all: u64 = all.parse().unwrap();
    let before = facts(hotel);
    let base = ["consumers", "seek", FACTS, "--to", "beginning"];
    let base = [&base[..], &store, transport].concat();

    let shown = json(&["consumers", "show", FACTS, store[0], store[1]]);
    assert_eq!(shown["append_only"], false, "{shown:#}");
    assert!(shown["topics"].as_array().unwrap().len() > 5, "{shown:#}");

    let preview = json(&[&base[..], &["--dry-run"]].concat());
    assert_eq!(
        (&preview["events"], &preview["applied"]),
        (&all.into(), &all.into()),
        "{preview:#}"
    );
    assert_eq!((&preview["to_apply"], &preview["done"]), (&0.into(), &false.into()));
    let reapply = [&base[..], &["--reapply"]].concat();
    let preview = json(&[&reapply[..], &["--dry-run"]].concat());
    assert_eq!(preview["to_apply"], all);
    let plain = text(&[&reapply[..], &["--dry-run"]].concat());
    assert!(plain.contains("were applied before, and would be again"), "{plain}");
    assert!(!plain.contains('\u{1b}'), "no colours in a pipe: {plain}");

    let unasked = refused(&[&reapply[..], &["--reason", "x", "--format", "json"]].concat());
    assert!(unasked.contains("give --yes"), "{unasked}");
    let output = chapar(&[&base[..], &["--yes"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let unknown =
        refused(&["consumers", "seek", "stranger", "--to", "end", "--dry-run", store[0], store[1]]);
    assert!(unknown.contains("no consumer stranger has run"), "{unknown}");
    let nowhere = refused(&["consumers", "seek", FACTS, "--to", "yesterday", store[0], store[1]]);
    assert!(nowhere.contains("PARTITION:OFFSET"), "{nowhere}");
    assert_eq!(facts(hotel), before, "nothing was done so far");

    let confirmed = "melmastoon.reservation.booking.confirmed.v1";
    let scope = ["--type", confirmed, "--reason", "INC-42", "--yes"];
    let done = json(&[&reapply[..], &scope].concat());
    let again = done["to_apply"].as_i64().unwrap();
    assert!(done["done"] == true && again > 0 && done["outside"].as_u64() > Some(0), "{done:#}");
    // The facts themselves can be recorded once; the totals are what is counted again.
    hotel.books().run(&format!("delete from analytics_facts where topic = '{confirmed}'"));
    let mut args = vec!["--rate", "0", "--for", "8s", "--format", "json"];
    args.extend(address(transport));
    hotel.start(&args).report();
    assert_eq!(facts(hotel), before + again, "{again} were counted again, and nothing else");
    let audited = format!(
        "select count(*) from {} where action = 'consumer.seek'",
        table(hotel, "audit_log")
    );
    assert_eq!(hotel.books().ask(&audited), "1");
}

/// The story of a booking, found by its number.
fn tell(hotel: &Hotel) {
    let store = ["--store", hotel.store()];
    let reservation =
        hotel.books().ask("select id from reservations where state = 'confirmed' limit 1");
    let found = json(&["find", &reservation, store[0], store[1]]);
    let kinds: Vec<_> =
        found.as_array().unwrap().iter().map(|f| f["found_as"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"aggregate") && kinds.contains(&"saga"), "{kinds:?}");
    let output = chapar(&["find", "nothing-of-it", store[0], store[1]]);
    assert_eq!(output.status.code(), Some(1));

    let saga = json(&["sagas", "show", "booking", &reservation, store[0], store[1]]);
    assert_eq!(saga["outcome"], "completed", "{saga:#}");
    assert!(saga["history"].as_array().unwrap().len() >= 3);
    let plain = text(&["sagas", "show", "booking", &reservation, store[0], store[1]]);
    assert!(
        plain.contains("allocated → confirmed") && plain.contains("the payment is captured"),
        "{plain}"
    );
    let ended =
        refused(&["sagas", "cancel", "booking", &reservation, "--reason", "x", store[0], store[1]]);
    assert!(ended.contains("CH3024"), "{ended}");
    let listed =
        json(&["sagas", "list", "--outcome", "completed", "--limit", "3", store[0], store[1]]);
    assert_eq!(listed.as_array().unwrap().len(), 3);

    let correlation = saga["correlation_id"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("booking.svg");
    let story =
        json(&["trace", correlation, "--svg", picture.to_str().unwrap(), store[0], store[1]]);
    let events = story["events"].as_array().unwrap();
    assert!(events.len() >= 5 && story["sagas"][0]["key"] == *reservation, "{story:#}");
    assert!(events.iter().any(|event| event["depth"].as_u64() > Some(1)), "{story:#}");
    assert!(events.iter().all(|event| !event["consumers"].as_array().unwrap().is_empty()));
    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("booking.held.v1"));
    let plain = text(&["trace", correlation, store[0], store[1]]);
    assert!(plain.contains("└─ ") && plain.contains("saga booking"), "{plain}");
    let unknown = refused(&["trace", "nothing", store[0], store[1]]);
    assert!(unknown.contains("chapar find nothing"), "{unknown}");
}

/// Follows the hotel while it runs, sees no guest by name, and ends with Ctrl-C.
fn follow(hotel: &Hotel, transport: &[&str]) {
    let mut up = vec!["--rate", "20", "--format", "json"];
    up.extend(address(transport));
    let mut running = hotel.start(&up);
    running.wait_until_ready();
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    command.args(["tail", "--store", hotel.store(), "--format", "json", "--profile", "melmastoon"]);
    command.args(["--topic", "melmastoon.reservation.*"]);
    command.args(address(transport));
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..20 {
        let line = lines.next().expect("it follows").unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        assert!(event["topic"].as_str().unwrap().starts_with("melmastoon.reservation."), "{event}");
        assert_eq!(
            event["payload"]["guest"]["guestId"].as_str().unwrap_or("[personal]"),
            "[personal]",
            "{event:#}"
        );
        assert!(event["payload"].is_object() && event["unreadable"].is_null(), "{event:#}");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let left: Vec<_> = lines.map_while(Result::ok).collect();
    assert!(left.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()), "whole lines");
    assert!(child.wait().unwrap().success(), "Ctrl-C ends it well");

    // A read model is built again while bookings come in.
    let store = ["--store", hotel.store()];
    let limit = Instant::now() + Duration::from_secs(30);
    while json(&["projections", "list", store[0], store[1]])[0]["documents"].as_i64() < Some(3) {
        assert!(Instant::now() < limit, "no guest arrives");
    }
    let missing =
        refused(&["projections", "rebuild", "nothing", "--reason", "x", store[0], store[1]]);
    assert!(missing.contains("chapar projections list"), "{missing}");
    let built = json(&["projections", "rebuild", BOARD, "--reason", "INC-42", store[0], store[1]]);
    assert_eq!((&built["outcome"], &built["build"]), (&"rebuilt".into(), &2.into()), "{built:#}");
    let compared = json(&["projections", "game-day", BOARD, store[0], store[1]]);
    assert_eq!((&compared["outcome"], &compared["differences"]), (&"compared".into(), &0.into()));
    running.interrupt();
}

fn all_of_it(hotel: &Hotel, transport: &[&str]) {
    let mut args = vec!["--rate", "20", "--for", "5s", "--format", "json"];
    args.extend(address(transport));
    hotel.start(&args).report();
    tell(hotel);
    seek(hotel, transport);
    follow(hotel, transport);
}

#[test]
fn on_sqlite() {
    all_of_it(&Hotel::on_sqlite(), &[]);
}

#[test]
fn on_postgres() {
    let server = need!(servers::postgres());
    all_of_it(&Hotel::on_postgres(&server), &[]);
}

#[test]
fn on_postgres_and_nats() {
    let (server, nats) = (need!(servers::postgres()), need!(Launch::of(Kind::Nats).start()));
    let transport = ["--transport", nats.url(), "--profile", "melmastoon"];
    all_of_it(&Hotel::on_postgres(&server), &transport);
}

#[test]
fn a_rebuild_that_nobody_takes_up_is_withdrawn() {
    let hotel = Hotel::on_sqlite();
    hotel.start(&["--rate", "5", "--for", "2s", "--format", "json"]).report();
    let said = refused(&["projections", "game-day", BOARD, "--store", hotel.store()]);
    assert!(said.contains("no process that keeps"), "{said}");
    let card = &json(&["projections", "list", "--store", hotel.store()])[0];
    assert!(card["building"].is_null(), "{card:#}");
    let audit = json(&["audit", "list", "--action", "projection", "--store", hotel.store()]);
    let actions: Vec<_> = audit.as_array().unwrap().iter().map(|line| &line["action"]).collect();
    assert_eq!(actions, ["projection.withdraw", "projection.build"], "{audit:#}");
}
