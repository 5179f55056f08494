//! `chapar relay` as separate processes: they share the work and take over from the dead.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test may print and panic")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chapar_testkit::servers::{Kind, Launch};
use chapar_testkit::{http, need, servers};

struct Relay {
    child: Child,
    address: String,
}

fn chapar(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    command.args(args).stdin(Stdio::null());
    command
}

impl Relay {
    fn start(store: &str) -> Self {
        let args =
            ["relay", "--store", store, "--profile", "melmastoon", "--listen", "127.0.0.1:0"];
        let mut child = chapar(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            Some(format!("http://{}", rest.split_once('/')?.0))
        });
        std::thread::spawn(move || lines.for_each(drop));
        Relay { child, address: address.expect("it did not start") }
    }

    fn get(&self, path: &str) -> (u16, String) {
        let answer = http("GET", &format!("{}{path}", self.address), None).unwrap();
        (answer.status, answer.text())
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn terminate(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success(), "it drains and ends well");
    }
}

fn ask(store: &str, sql: &str) -> String {
    let output = Command::new("psql").args([store, "-Atqc", sql]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Commits 40 events of 20 keys, each key in ascending order.
fn emit(store: &str, round: u32) {
    let sql = format!(
        "select set_config('app.tenant_id', 'acme', false); \
         select count(chapar.emit('melmastoon.reservation.booking.modified.v1', 'acme', 'k' || (i % 20), \
         jsonb_build_object('n', {round} * 40 + i), 'i' || ({round} * 40 + i))) \
         from generate_series(1, 40) i"
    );
    ask(store, &sql);
}

fn eventually(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    began.elapsed()
}

const INVERTED: &str = "select count(*) from chapar.log a join chapar.log b \
    on a.ordering_key = b.ordering_key and a.log_offset < b.log_offset \
    where (convert_from(a.body, 'UTF8')::jsonb #>> '{payload,n}')::int \
        > (convert_from(b.body, 'UTF8')::jsonb #>> '{payload,n}')::int";

#[test]
fn two_relays_share_the_shards_and_the_living_takes_over_from_the_dead_in_order() {
    let server = need!(servers::postgres());
    let database = server.database("relays").unwrap();
    let store = database.url();
    assert!(chapar(&["migrate", "apply", "--store", store]).status().unwrap().success());
    let (mut a, b) = (Relay::start(store), Relay::start(store));
    let owners = "select count(*) from (select epoch from chapar.shards \
        where epoch is not null group by epoch having count(*) = 32) x";
    eventually("both have half", Duration::from_secs(20), || ask(store, owners) == "2");
    for round in 0..5 {
        emit(store, round);
    }
    a.child.kill().unwrap();
    a.child.wait().unwrap();
    let killed = Instant::now();
    for round in 5..10 {
        emit(store, round);
    }
    let published = || ask(store, "select count(*) from chapar.log") == "400";
    eventually("all are published", Duration::from_secs(20), published);
    println!("taken over within {:.1} s", killed.elapsed().as_secs_f64());
    assert_eq!(ask(store, INVERTED), "0", "order per key");
    let doubled = "select count(*) - count(distinct event_id) from chapar.log";
    assert_eq!(ask(store, doubled), "0");
    b.terminate();
    let left = "select count(*) from chapar.shards where epoch is not null";
    assert_eq!(ask(store, left), "0", "who leaves gives its shards back");
}

/// Transactions that take an id and write nothing: a crash takes the ids back.
fn burn_ids(store: &str) {
    let mut psql = Command::new("psql");
    psql.args([store, "-Atq"]);
    for _ in 0..40 {
        psql.args(["-c", "select pg_current_xact_id()"]);
    }
    let _ = psql.output();
}

#[test]
fn a_database_that_crashes_and_is_back_at_once_costs_no_event() {
    let server = need!(Launch::of(Kind::Postgres).setting("restart_after_crash", "on").start());
    let database = servers::Postgres::from(&server).database("crash").unwrap();
    let store = database.url();
    assert!(chapar(&["migrate", "apply", "--store", store]).status().unwrap().success());
    let (a, b) = (Relay::start(store), Relay::start(store));
    let relay = "select pid from pg_stat_activity where application_name = 'chapar relay' limit 1";
    let sql = |round: u32| {
        format!(
            "select set_config('app.tenant_id', 'acme', false); \
             select count(chapar.emit('melmastoon.reservation.booking.modified.v1', 'acme', \
             'k' || (i % 20), jsonb_build_object('n', {round} * 10 + i), 'i' || ({round} * 10 + i))) \
             from generate_series(1, 10) i"
        )
    };
    // The intent makes a repetition harmless whose first answer was lost.
    let emit = |round: u32| {
        eventually("it is committed", Duration::from_secs(30), || {
            let output = Command::new("psql").args([store, "-Atqc", &sql(round)]).output();
            output.unwrap().status.success()
        });
    };
    for round in 0..60 {
        emit(round);
        burn_ids(store);
        if round % 10 == 5 {
            emit(round + 1000);
            let output = Command::new("psql").args([store, "-Atqc", relay]).output().unwrap();
            let pid = String::from_utf8(output.stdout).unwrap();
            let _ = Command::new("kill").args(["-9", pid.trim()]).status();
        }
    }
    let all = "select count(distinct event_id) from chapar.outbox";
    let missing = "select count(*) from chapar.outbox o \
        where not exists (select from chapar.log l where l.event_id = o.event_id)";
    assert_eq!(ask(store, all), "660");
    eventually("all are published", Duration::from_secs(60), || ask(store, missing) == "0");
    a.terminate();
    b.terminate();
}

#[test]
fn a_relay_says_how_it_is_and_what_it_has_done() {
    let server = need!(servers::postgres());
    let database = server.database("relay_ops").unwrap();
    let store = database.url();
    assert!(chapar(&["migrate", "apply", "--store", store]).status().unwrap().success());
    let relay = Relay::start(store);
    emit(store, 0);
    eventually("it is counted", Duration::from_secs(20), || {
        relay.get("/metrics").1.contains("melmastoon_events_published_total 40")
    });
    let (_, metrics) = relay.get("/metrics");
    for line in
        ["melmastoon_outbox_unpublished_count 0", "melmastoon_outbox_oldest_unpublished_seconds 0"]
    {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert_eq!(relay.get("/healthz"), (200, "ok".into()));
    assert_eq!(relay.get("/readyz"), (200, "ready".into()));
    relay.terminate();
}

#[test]
fn a_wrong_set_up_is_refused_at_the_start_with_words() {
    let server = need!(servers::postgres());
    let database = server.database("relay_wrong").unwrap();
    let store = database.url();
    let refused = |args: &[&str]| {
        let output =
            chapar(&[&["relay", "--listen", "127.0.0.1:0"], args].concat()).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let hotel = ["--store", store, "--profile", "melmastoon"];
    assert!(refused(&hotel).contains("run `chapar migrate apply`"));
    assert!(refused(&["--store", store, "--profile", "nowhere"]).contains("is none of melmastoon"));
    let nowhere = [&hotel[..], &["--transport", "amqp://localhost"]].concat();
    assert!(refused(&nowhere).contains("use sql:, nats://host:port"));
    assert!(chapar(&["migrate", "apply", "--store", store]).status().unwrap().success());
    let role = format!("svc_{}", database.name());
    ask(
        store,
        &format!(
            "create role {role} login password 'x'; grant chapar_app to {role};
        grant usage on schema chapar_migrations to {role};
        grant select on chapar_migrations.applied to {role}"
        ),
    );
    let (_, place) = store.rsplit_once('@').unwrap();
    let service = format!("postgres://{role}:x@{place}");
    let said = refused(&["--store", &service, "--profile", "melmastoon"]);
    assert!(said.contains("grant chapar_app, chapar_engine to"), "{said}");
}

#[test]
fn an_operator_releases_drops_and_publishes_again_and_all_of_it_is_audited() {
    let server = need!(servers::postgres());
    let database = server.database("outbox_cli").unwrap();
    let store = database.url();
    assert!(chapar(&["migrate", "apply", "--store", store]).status().unwrap().success());
    let outbox = |args: &[&str]| {
        let output =
            chapar(&[&["outbox"], args, &["--store", store, "--format", "json"]].concat()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(said.into()))
    };
    let relay = Relay::start(store);
    emit(store, 0);
    // The hotel demands an idempotency key, which the relay checks where the database does not know
    // it; behind these two, others wait.
    ask(store, "update chapar.settings set idempotency_required = false");
    for (key, n) in [("bad", 1), ("worse", 1), ("bad", 2), ("worse", 2)] {
        let intent = if n == 1 { "null".into() } else { format!("'{key}:{n}'") };
        ask(
            store,
            &format!(
                "select set_config('app.tenant_id', 'acme', false); \
                 select chapar.emit('melmastoon.reservation.booking.modified.v1', \
                 tenant => 'acme', key => '{key}', payload => '{{\"n\": {n}}}', \
                 idempotency_key => {intent})"
            ),
        );
    }
    let quarantined = "select count(*) from chapar.outbox_parked where quarantined_at is not null";
    let ten = Duration::from_secs(10);
    eventually("both are in quarantine", ten, || ask(store, quarantined) == "2");
    let (_, list): (_, serde_json::Value) = outbox(&["quarantine", "list"]);
    let seq = |n: usize| list[n]["seq"].to_string();
    assert_eq!((&list[0]["behind"], &list[1]["behind"]), (&1.into(), &1.into()), "{list}");
    assert!(list[0]["last_error"].as_str().unwrap().contains("CH1002"), "{list}");
    let (_, status) = outbox(&["status"]);
    assert_eq!(status["keys_quarantined"], 2, "{status}");
    assert_eq!(status["relays"][0]["shards"], 64, "{status}");

    assert_eq!(outbox(&["quarantine", "drop", &seq(0), "--reason", " "]).0, Some(1));
    assert_eq!(outbox(&["quarantine", "drop", "999", "--reason", "x"]).0, Some(1));
    assert_eq!(outbox(&["quarantine", "drop", &seq(0), "--reason", "a test"]).0, Some(0));
    let published = "select count(*) from chapar.log where ordering_key like 'acme:bad%'";
    eventually("its follower has moved up", ten, || ask(store, published) == "1");
    // It breaks the same rule again, and is back in its place.
    assert_eq!(outbox(&["quarantine", "release", &seq(1), "--reason", "mended"]).0, Some(0));
    eventually("it was tried again", ten, || {
        ask(store, "select attempts from chapar.outbox_parked where quarantined_at is not null")
            == "1"
    });
    assert_eq!(ask(store, "select count(*) from chapar.log where ordering_key like '%worse'"), "0");

    ask(store, "delete from chapar.log where log_offset % 2 = 0");
    let lost = 41 - ask(store, "select count(*) from chapar.log").parse::<i64>().unwrap();
    assert!(lost > 5, "the broker has lost {lost}");
    let again = ["republish", "--since", "1h", "--reason", "the disk was lost"];
    let (code, done) = outbox(&again);
    assert_eq!((code, &done["state"]), (Some(0), &"done".into()), "{done}");
    assert_eq!((&done["published"], &done["parked"]), (&41.into(), &0.into()), "{done}");
    assert_eq!(ask(store, "select count(distinct event_id) from chapar.log"), "41");
    relay.terminate();

    let (code, asked) = outbox(&[&again[..], &["--detach"]].concat());
    assert_eq!((code, &asked["state"]), (Some(0), &"running".into()), "{asked}");
    let request = asked["request"].to_string();
    let said = chapar(&["outbox", "republish", "--since", "1h", "--reason", "x", "--detach"])
        .args(["--store", store])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("no relay is running") && said.contains("republish cancel"), "{said}");
    let cancel = |reason: &str| outbox(&["republish", "cancel", &request, "--reason", reason]);
    assert_eq!(cancel(" ").0, Some(1));
    let (code, cancelled) = cancel("not needed");
    assert_eq!((code, &cancelled["state"]), (Some(0), &"cancelled".into()), "{cancelled}");
    assert_eq!(cancel("again").0, Some(1));
    assert_eq!(outbox(&["republish", "watch", &request]).0, Some(1), "it was cancelled");
    assert_eq!(outbox(&["republish", "watch", "999"]).0, Some(1));
    assert_eq!(outbox(&["republish", "--since", "1h"]).0, Some(2), "without a reason");
    let (_, listed) = outbox(&["republish", "list"]);
    let states: Vec<_> = listed.as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["running", "cancelled", "done"]);
    let actions = "select string_agg(action, ' ' order by id) from chapar.audit_log";
    assert_eq!(
        ask(store, actions),
        "outbox.drop outbox.release outbox.republish outbox.republish outbox.republish \
         outbox.republish.cancel"
    );
}

#[test]
fn a_request_continues_after_its_relay_was_killed() {
    let server = need!(servers::postgres());
    let database = server.database("republish_cli").unwrap();
    let store = database.url();
    assert!(chapar(&["migrate", "apply", "--store", store]).status().unwrap().success());
    let relay = Relay::start(store);
    ask(
        store,
        "select set_config('app.tenant_id', 'acme', false); \
         select count(chapar.emit('melmastoon.reservation.booking.modified.v1', tenant => 'acme', \
         key => 'k' || n % 500, payload => '{}', idempotency_key => 'i' || n)) \
         from generate_series(1, 20000) n",
    );
    let logged = || ask(store, "select count(*) from chapar.log").parse::<i64>().unwrap();
    let minute = Duration::from_secs(60);
    eventually("all are published", minute, || logged() == 20_000);
    ask(store, "truncate chapar.log");
    let asked = chapar(&["outbox", "republish", "--since", "1h", "--reason", "x", "--detach"])
        .args(["--store", store])
        .status();
    assert!(asked.unwrap().success());
    let published = || {
        let published = "select published from chapar.republish_requests";
        ask(store, published).parse::<i64>().unwrap()
    };
    eventually("the relay has begun", minute, || published() > 0);
    relay.kill();
    let relay = Relay::start(store);
    eventually("it is done", minute, || {
        ask(store, "select count(ended_at) from chapar.republish_requests") == "1"
    });
    assert_eq!((logged(), published()), (20_000, 20_000), "what is counted is in a checkpoint");
    relay.terminate();
}

#[test]
fn a_pooler_in_transaction_mode_is_refused_with_words() {
    let server = need!(servers::postgres());
    let database = server.database("pooled").unwrap();
    let store = database.url();
    assert!(chapar(&["migrate", "apply", "--store", store]).status().unwrap().success());
    let (place, _) = store.rsplit_once('/').unwrap();
    let (_, port) = place.rsplit_once(':').unwrap();
    let launch = Launch::of(Kind::PgBouncer).setting("upstream", port);
    let pooler = need!(launch.start());
    let pooled = format!("{}/{}", pooler.url(), database.name());
    let output = chapar(&["relay", "--listen", "127.0.0.1:0", "--profile", "melmastoon"])
        .args(["--store", &pooled])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("a pooler in transaction mode"), "{said}");
    let direct = Relay::start(store);
    direct.terminate();
}

#[test]
fn what_migrate_writes_of_a_system_emit_checks_before_any_program_has_started() {
    let server = need!(servers::postgres());
    let database = server.database("rules").unwrap();
    let store = database.url();
    let contracts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/melmastoon/contracts.json");
    let migrate = ["migrate", "apply", "--store", store];
    let system = ["--profile", "melmastoon", "--contracts", contracts];
    assert!(chapar(&[migrate, system].concat()).status().unwrap().success());
    let refusal = |subject: &str, more: &str| {
        let sql = format!(
            "select set_config('app.tenant_id', 'acme', false); \
             select chapar.emit('{subject}', 'acme', 'k', '{{}}' {more})"
        );
        let output = Command::new("psql").args([store, "-Atqc", &sql]).output().unwrap();
        assert!(!output.status.success(), "{subject} {more}");
        String::from_utf8(output.stderr).unwrap()
    };
    let held = "melmastoon.reservation.booking.held.v1";
    let keyed = ", idempotency_key => 'i'";
    let foreign = ", idempotency_key => 'i', producer => 'billing-service'";
    assert!(refusal("melmastoon.reservation.Booking.held.v1", keyed).contains("CH1001"));
    assert!(refusal("melmastoon.reservation.booking.dreamed.v1", keyed).contains("CH1013"));
    assert!(refusal(held, "").contains("CH1002"));
    assert!(refusal(held, foreign).contains("CH1014"));

    let audited = "select count(*) from chapar.audit_log where action = 'rules.write'";
    assert_eq!(ask(store, audited), "1");
    assert!(chapar(&[migrate, system].concat()).status().unwrap().success());
    assert_eq!(ask(store, audited), "1", "nothing has changed");

    let lonely = [&migrate[..], &["--contracts", contracts]].concat();
    assert!(!chapar(&lonely).status().unwrap().success(), "contracts of which system?");
}
