//! Every server is had, talked to in its own protocol, crashed and brought back.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};

use chapar_testkit::servers::{self, Endpoint, Instance, Keeper, Kind, Launch, Postgres};
use chapar_testkit::{Browser, http, need};

#[test]
fn postgres_answers_a_query() {
    let postgres = need!(servers::postgres());
    let said = psql(postgres.url(), "select version()");
    assert!(said.contains(&format!("PostgreSQL {}", postgres.version())), "{said}");
    assert_eq!(psql(postgres.url(), "show max_connections"), "200");
    assert_eq!(psql(postgres.url(), "show wal_level"), "logical");
}

#[test]
fn postgres_gives_each_test_a_database_of_its_own() {
    let postgres = need!(servers::postgres());
    let one = postgres.database("orders").unwrap();
    let other = postgres.database("orders").unwrap();
    assert_ne!(one.name(), other.name());
    psql(one.url(), "create table t (n int)");
    psql(other.url(), "create table t (n int)");
    assert_eq!(psql(one.url(), "select current_database()"), one.name());
}

#[test]
fn nats_answers_with_jetstream() {
    let nats = need!(servers::nats());
    let reply = wire::nats_request(nats.url(), "$JS.API.INFO", "");
    assert!(reply.contains("io.nats.jetstream.api.v1.account_info_response"), "{reply}");
    assert!(!reply.contains("\"error\""), "{reply}");
}

#[test]
fn kafka_creates_a_topic() {
    let kafka = need!(servers::kafka());
    assert_eq!(wire::kafka_create_topic(kafka.url(), "orders"), 0);
    const TOPIC_ALREADY_EXISTS: i16 = 36;
    assert_eq!(wire::kafka_create_topic(kafka.url(), "orders"), TOPIC_ALREADY_EXISTS);
}

#[test]
fn pubsub_creates_a_topic() {
    let pubsub = need!(servers::pubsub());
    let topic = "projects/chapar/topics/orders";
    let answer = wire::pubsub_create_topic(pubsub.url(), topic);
    assert!(answer.contains(topic), "{answer:?}");
}

#[test]
fn redis_keeps_a_value() {
    let redis = need!(servers::redis());
    assert_eq!(wire::redis(redis.url(), "SET greeting salaam"), "+OK");
    assert_eq!(wire::redis(redis.url(), "STRLEN greeting"), ":6");
}

#[test]
fn prometheus_answers_a_query() {
    let prometheus = need!(servers::prometheus());
    assert_eq!(http("GET", &format!("{}/-/ready", prometheus.url()), None).unwrap().status, 200);
    let query = format!("{}/api/v1/query?query=1%2B1", prometheus.url());
    let answer = http("GET", &query, None).unwrap().json();
    assert_eq!(answer["data"]["result"][1], "2", "{answer}");
}

#[test]
fn chromium_shows_a_page() {
    let chromium = need!(servers::chromium());
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let html = "<title>Outbox</title><h1>waiting</h1><input><button onclick=\"\
                setTimeout(() => document.querySelector('h1').innerText = \
                'sent ' + document.querySelector('input').value, 50)\">send</button>";
    std::fs::write(&page, html).unwrap();

    let browser = Browser::open(&chromium).unwrap();
    browser.goto(&format!("file://{}", page.display())).unwrap();
    assert_eq!(browser.title().unwrap(), "Outbox");
    browser.fill("input", "seven").unwrap();
    browser.click("button").unwrap();
    browser.wait_for_text("h1", "sent seven").unwrap();
    assert_eq!(browser.text("h1").unwrap(), "sent seven");
    assert_eq!(browser.evaluate("window.innerWidth").unwrap(), 1280);
    let png = browser.screenshot().unwrap();
    assert!(png.starts_with(b"\x89PNG") && png.len() > 1_000, "{} bytes", png.len());
}

#[test]
fn a_killed_postgres_comes_back_with_its_data() {
    let mut instance = need!(Launch::of(Kind::Postgres).setting("fsync", "on").start());
    let database = Postgres::from(&instance).database("crash").unwrap();
    psql(database.url(), "create table t as select 7 as n");
    crash_and_restart(&mut instance);
    assert_eq!(psql(database.url(), "select n from t"), "7");
    assert_eq!(psql(database.url(), "show fsync"), "on");
}

#[test]
fn a_killed_nats_comes_back_with_its_streams() {
    let mut instance =
        need!(Launch::of(Kind::Nats).setting("jetstream.sync_interval", "always").start());
    let stream = r#"{"name":"ORDERS","subjects":["orders.>"],"storage":"file"}"#;
    let created = wire::nats_request(instance.url(), "$JS.API.STREAM.CREATE.ORDERS", stream);
    assert!(created.contains("stream_create_response"), "{created}");
    let stored = wire::nats_request(instance.url(), "orders.placed", "1");
    assert!(stored.contains("\"seq\":1"), "{stored}");
    crash_and_restart(&mut instance);
    let info = wire::nats_request(instance.url(), "$JS.API.STREAM.INFO.ORDERS", "");
    assert!(info.contains("\"messages\":1"), "{info}");
}

#[test]
fn a_killed_kafka_comes_back_with_its_topics() {
    let mut instance = need!(Launch::of(Kind::Kafka).start());
    assert_eq!(wire::kafka_create_topic(instance.url(), "orders"), 0);
    crash_and_restart(&mut instance);
    assert_ne!(wire::kafka_create_topic(instance.url(), "orders"), 0);
}

#[test]
fn a_stopped_server_starts_again_where_it_was() {
    let mut instance = need!(Launch::of(Kind::Redis).setting("appendonly", "yes").start());
    wire::redis(instance.url(), "SET n 1");
    instance.stop();
    assert_eq!(instance.pid(), None);
    instance.restart().unwrap();
    assert_eq!(wire::redis(instance.url(), "STRLEN n"), ":1");
}

#[test]
fn a_server_ends_when_its_owner_panics() {
    let instance = need!(Launch::of(Kind::Redis).start());
    let pid = instance.pid().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _owned = instance;
        panic!("the owner fails");
    }));
    assert!(panicked.is_err());
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left");
}

#[test]
fn a_server_that_cannot_start_shows_its_log() {
    let launch = Launch::of(Kind::Redis).setting("no-such-directive", "yes");
    match launch.start() {
        Err(missing @ servers::ServerError::Missing { .. }) => need!(Err(missing)),
        Err(error) => assert!(error.to_string().contains("no-such-directive"), "{error}"),
        Ok(instance) => panic!("{instance:?} accepted a directive that does not exist"),
    }
}

#[test]
fn a_shared_server_is_started_once() {
    let askers: Vec<_> = (0..4).map(|_| std::thread::spawn(servers::redis)).collect();
    let mut answers: Vec<Endpoint> = Vec::new();
    for asker in askers {
        answers.push(need!(asker.join().unwrap()));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
}

#[test]
fn all_programs_of_a_run_share_the_keepers_servers() {
    let keeper = Keeper::open().unwrap();
    let mut programs: Vec<_> =
        (0..2).map(|_| this_program(&keeper, "redis_keeps_a_value").spawn().unwrap()).collect();
    assert!(programs.iter_mut().all(|program| program.wait().unwrap().success()));
    need!(keeper.server(Kind::Redis));
    assert_eq!(keeper.used().len(), 1, "{:?}", keeper.used());
}

#[test]
fn a_skipped_test_is_reported_to_the_keeper_and_fails_in_ci() {
    let keeper = Keeper::open().unwrap();
    let nowhere = tempfile::tempdir().unwrap();
    let mut program = this_program(&keeper, "a_killed_nats_comes_back_with_its_streams");
    program.env("PATH", nowhere.path()).env("CHAPAR_CACHE", nowhere.path());

    assert!(program.env_remove("CI").status().unwrap().success());
    let skips = keeper.take_skips();
    assert_eq!(skips.len(), 1, "{skips:?}");
    assert_eq!(skips[0].test, "servers::a_killed_nats_comes_back_with_its_streams");
    assert!(skips[0].reason.starts_with("nats is missing"), "{skips:?}");

    assert!(!program.env("CI", "true").status().unwrap().success());
    assert!(keeper.take_skips().is_empty());
}

/// One test of this file in a process of its own, under that keeper.
fn this_program(keeper: &Keeper, test: &str) -> Command {
    let (variable, socket) = keeper.environment();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program
        .args(["--exact", test])
        .env(variable, socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    program
}

fn crash_and_restart(instance: &mut Instance) {
    let (url, pid) = (instance.url().to_owned(), instance.pid());
    instance.kill();
    assert_eq!(instance.pid(), None);
    instance.restart().unwrap();
    assert_eq!(instance.url(), url);
    assert_ne!(instance.pid(), pid);
}

fn psql(url: &str, statement: &str) -> String {
    let output = Command::new("psql").args(["-XAtqc", statement, url]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}
