//! Every kind of failure, planted in the running hotel and mended with the commands alone, while
//! bookings go on. The guide page on triage tells the same story.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod hotel;

use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar::{Chapar, Event, Store, StoreOptions, Tenant};
use chapar_core::port::{Outgoing, Subscription, SubscriptionSpec, Transport};
use chapar_sql::SqlTransport;
use chapar_testkit::need;
use chapar_testkit::servers::{self, Kind, Launch};
use chapar_transports::nats::{Nats, NatsOptions};
use hotel::Hotel;
use melmastoon::notification;
use serde::Serialize;
use serde_json::{Value, json};

/// Who runs this, by another tool.
fn who() -> String {
    let id = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(id.stdout).unwrap().trim().to_owned()
}

/// The commands on one store, as an operator would give them.
struct Desk<'a> {
    store: &'a str,
}

impl Desk<'_> {
    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
        command.args(args).args(["--store", self.store, "--format", "json"]);
        command.stdin(Stdio::null()).env("USER", "another-operator").output().unwrap()
    }

    /// Runs what must go well; returns its answer.
    fn well(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {said}"))
    }

    /// Runs what must be refused; returns what was said.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    fn letters(&self, filter: &[&str]) -> Vec<Value> {
        let list = self.well(&[&["dlq", "list", "--limit", "1000"], filter].concat());
        list["letters"].as_array().unwrap().clone()
    }

    fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !holds(self) {
            assert!(Instant::now() < deadline, "still not so after two minutes: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A message that its schema does not allow: the language is missing.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Dispatched {
    reservation_id: &'static str,
    message_id: &'static str,
    template: &'static str,
}

impl Event for Dispatched {
    const SUBJECT: &'static str = "melmastoon.notification.message.dispatched.v1";
    const AGGREGATE: &'static str = "message";

    fn aggregate_id(&self) -> String {
        self.reservation_id.into()
    }

    fn intent(&self) -> Option<String> {
        Some(self.message_id.into())
    }
}

/// What the failures come from, and what mends them outside of the backbone.
struct Saboteur {
    store: Store,
    hotel: Chapar,
    runtime: tokio::runtime::Runtime,
}

impl Saboteur {
    fn on(url: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = runtime.block_on(Store::open(url, &StoreOptions::default())).unwrap();
        Saboteur { hotel: melmastoon::backbone(store.clone()), store, runtime }
    }

    /// A producer without contract validation.
    fn break_the_contract(&self) {
        let tenant: Tenant = "kabul-grand".parse().unwrap();
        let (profile, dialect) = (self.hotel.profile().clone(), chapar_core::dialect::MetadataJson);
        let loose = Chapar::builder(self.store.clone(), profile, Arc::new(dialect)).build();
        let event = Dispatched {
            reservation_id: "res_planted",
            message_id: "msg_planted",
            template: "confirmed",
        };
        self.runtime.block_on(async {
            let mut tx = loose.begin(&tenant).await.unwrap();
            loose.append(&mut tx, &tenant, event).await.unwrap();
            loose.commit(tx).await.unwrap();
        });
    }

    /// Bytes that are not an event, from a foreign producer.
    fn garble(&self, broker: Option<&str>) {
        let garbled = Outgoing {
            id: "0198f2c4-5e6a-7b1c-8d2e-3f4a5b6c7d8e".parse().unwrap(),
            topic: "melmastoon.reservation.booking.confirmed.v1".into(),
            tenant: "kabul-grand".into(),
            key: Some("kabul-grand:res_garbled".into()),
            headers: Default::default(),
            body: b"{\"eventId\": \"0198f2c4-5e6a-7b1c".as_slice().into(),
        };
        self.runtime.block_on(async {
            let transport: Arc<dyn Transport> = match broker {
                None => Arc::new(SqlTransport::new(self.store.clone(), "saboteur")),
                Some(url) => connect(url).await,
            };
            transport.publish(vec![garbled]).await.remove(0).unwrap();
        });
    }

    /// A reader of the copies of dead letters on the broker.
    fn reads_copies(&self, url: &str) -> Box<dyn Subscription> {
        let spec = SubscriptionSpec {
            name: "reader-of-dead-letters".into(),
            topics: vec![format!("{}.dlq", Dispatched::SUBJECT)],
            ack_deadline: Duration::from_secs(60),
            max_in_flight: 10,
        };
        self.runtime.block_on(async {
            let broker = connect(url).await;
            broker.apply(&[], std::slice::from_ref(&spec)).await.unwrap();
            broker.subscribe(&spec).await.unwrap()
        })
    }

    fn execute(&self, sql: &'static str) {
        self.runtime.block_on(async {
            let mut tx = self.store.begin_raw().await.unwrap();
            tx.execute(sql, vec![]).await.unwrap();
            tx.commit().await.unwrap();
        });
    }

    /// The ledger's table is away, and every booking that is confirmed fails to get its folio.
    fn take_the_ledger_away(&self) {
        self.execute("alter table billing_folios rename to billing_folios_away");
    }

    fn bring_the_ledger_back(&self) {
        self.execute("alter table billing_folios_away rename to billing_folios");
    }

    fn add_the_template(&self) {
        for kind in ["confirmed", "cancelled"] {
            let added = notification::add_template(&self.hotel, "is", kind, "Bókun þín");
            self.runtime.block_on(added).unwrap();
        }
    }
}

/// The broker itself, not through the hotel.
async fn connect(url: &str) -> Arc<dyn Transport> {
    #[cfg(feature = "kafka")]
    if url.starts_with("kafka:") {
        use chapar_transports::kafka::{Kafka, KafkaOptions};
        return Arc::new(Kafka::connect(url, KafkaOptions::default()).await.unwrap());
    }
    let options = NatsOptions { prefix: Some("melmastoon".into()), ..NatsOptions::default() };
    Arc::new(Nats::connect(url, options).await.unwrap())
}

fn every_failure_is_mended(hotel: &Hotel, processes: usize, broker: Option<&str>) {
    let transport: Vec<&str> = broker.iter().flat_map(|url| ["--transport", *url]).collect();
    let start = |rate: &str, seed: &str| {
        let args = ["--rate", rate, "--seed", seed, "--format", "json"];
        let mut running = hotel.start(&[&args[..], &transport].concat());
        running.wait_until_ready();
        running
    };
    let seeds = ["1", "2"];
    let running: Vec<_> = (0..processes).map(|n| start("3", seeds[n])).collect();
    let (desk, saboteur) = (Desk { store: hotel.store() }, Saboteur::on(hotel.store()));

    let reader = broker.map(|url| saboteur.reads_copies(url));
    saboteur.break_the_contract();
    saboteur.garble(broker);
    saboteur.take_the_ledger_away();
    desk.until("the ledger is missed", |desk| {
        desk.letters(&["--consumer", "billing-service.booking-confirmed"]).len() > 3
    });
    saboteur.bring_the_ledger_back();
    desk.until("every kind of failure is there", |desk| {
        let groups = desk.well(&["dlq", "groups"]);
        let kinds: Vec<_> = groups.as_array().unwrap().iter().map(|g| &g["kind"]).collect();
        let wanted = ["undecodable", "schema_invalid", "rule_violation", "transient"];
        wanted.iter().all(|kind| kinds.iter().any(|found| *found == kind))
    });

    if let Some(reader) = reader {
        let limit = Duration::from_secs(60);
        let copies = saboteur.runtime.block_on(reader.fetch(1, limit)).unwrap();
        let copy: Value = serde_json::from_slice(&copies[0].body).unwrap();
        assert_eq!(copy["original_topic"], Dispatched::SUBJECT, "{copy:#}");
    }
    a_broken_contract_is_edited(&desk);
    what_is_no_event_is_quarantined(&desk);
    a_bug_is_mended_and_replayed(&desk, &saboteur);
    an_outage_is_replayed(&desk);

    desk.until("no letter is left", |desk| {
        // What was still being tried when the ledger came back may have failed since.
        if !desk.letters(&["--class", "vendor-outage"]).is_empty() {
            replay(desk, &["--class", "vendor-outage"]);
        }
        desk.letters(&[]).is_empty()
    });
    for line in desk.well(&["audit", "list", "--action", "dead_letter"]).as_array().unwrap() {
        assert_eq!(line["actor"], who(), "{line}");
        assert!(!line["reason"].as_str().unwrap().is_empty(), "{line}");
    }
    let reports: Vec<Value> = running.into_iter().map(|running| running.interrupt()).collect();
    assert!(reports.iter().all(|report| report["bookings"].as_i64() > Some(10)), "{reports:?}");

    let mut report = Value::Null;
    for _ in 0..6 {
        let args = ["--rate", "0", "--for", "6s", "--format", "json"];
        report = hotel.start(&[&args[..], &transport].concat()).report();
        if report["in_flight"] == 0 && report["audit"]["sagas_open"] == 0 {
            break;
        }
    }
    for nothing in ["dead_letters", "parked", "lost", "applied_twice", "in_flight"] {
        assert_eq!(report[nothing], 0, "{nothing}: {report:#}");
    }
    assert_eq!(report["audit"]["sagas_open"], 0, "{report:#}");
    hotel.books().check();
}

/// Replays what a filter means and waits for it; how many were applied.
fn replay(desk: &Desk<'_>, filter: &[&str]) -> Value {
    let args = ["dlq", "replay", "--reason", "INC-7", "--patience", "60s"];
    let output = desk.run(&[&args[..], filter].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn a_broken_contract_is_edited(desk: &Desk<'_>) {
    let drift = &desk.letters(&["--kind", "schema-invalid"])[0];
    assert_eq!(drift["class"], "schema_drift", "{drift:#}");
    assert!(drift["error"].as_str().unwrap().contains("locale"), "{drift:#}");
    let id = drift["id"].as_str().unwrap();
    let said = desk.refused(&["dlq", "replay", id, "--reason", "just try"]);
    assert!(said.contains("CH3003") && said.contains("--fix"), "{said}");

    let shown = desk.run(&["dlq", "show", id, "--payload", "--profile", "melmastoon"]);
    let mut payload: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (file, contracts) = (folder.path().join("payload.json"), folder.path().join("all.json"));
    std::fs::write(&contracts, melmastoon::CONTRACTS).unwrap();
    let (file, contracts) = (file.to_str().unwrap(), contracts.to_str().unwrap());
    let edit = ["dlq", "edit-and-replay", id, "--payload", file, "--contracts", contracts];
    let edit = [&edit[..], &["--profile", "melmastoon", "--reason", "INC-7: en was meant"]];
    payload["locale"] = json!(7);
    std::fs::write(file, payload.to_string()).unwrap();
    let said = desk.refused(&edit.concat());
    assert!(said.contains("CH3005") && said.contains("locale"), "{said}");
    payload["locale"] = json!("en");
    std::fs::write(file, payload.to_string()).unwrap();
    desk.well(&edit.concat());
    desk.until("the edited one is applied", |desk| {
        desk.well(&["dlq", "show", id])["outcome"] == "applied"
    });
    let shown = desk.well(&["dlq", "show", id]);
    assert!(shown["body"]["payload"]["locale"].is_null(), "the original stays: {shown:#}");
    assert_eq!(shown["edited"]["body"]["payload"]["locale"], "en", "{shown:#}");
    assert_eq!(shown["edited"]["by"], who(), "{shown:#}");
}

fn what_is_no_event_is_quarantined(desk: &Desk<'_>) {
    let garbled = ["--kind", "undecodable"];
    let of_many = desk.letters(&garbled).len() as i64;
    assert!(of_many > 1, "each consumer of the topic has its own");
    let classify = ["dlq", "classify", "--as", "poison", "--reason", "defect BOOK-311"];
    let settled = desk.well(&[&classify[..], &garbled].concat());
    assert_eq!(settled["changed"], of_many, "{settled:#}");
    let refused = replay(desk, &garbled);
    assert_eq!((&refused["asked"], &refused["refused"]), (&0.into(), &of_many.into()));
    let quarantine = ["dlq", "quarantine", "--class", "poison"];
    let would = desk.well(&[&quarantine[..], &["--dry-run"]].concat());
    assert_eq!(would["selected"], of_many, "{would:#}");
    let settled = desk.well(&[&quarantine[..], &["--reason", "defect BOOK-311"]].concat());
    assert_eq!(
        (&settled["changed"], &settled["after"]["closed"]),
        (&of_many.into(), &of_many.into())
    );
    assert!(desk.letters(&garbled).is_empty());
    let closed = desk.well(&["dlq", "list", "--closed"]);
    let held = closed["letters"].as_array().unwrap().iter();
    assert_eq!(held.filter(|letter| letter["outcome"] == "quarantined").count() as i64, of_many);
}

fn a_bug_is_mended_and_replayed(desk: &Desk<'_>, saboteur: &Saboteur) {
    let missing = ["--error", "there is no template \"x\" in the language \"y\""];
    let group = desk.letters(&missing)[0]["group"].as_str().unwrap().to_owned();
    let of_group = ["--group", &group];
    let bug = ["dlq", "classify", "--as", "consumer-bug", "--reason", "INC-8"];
    desk.well(&[&bug[..], &of_group].concat());
    assert_eq!(replay(desk, &of_group)["asked"], 0, "not before it is mended");
    let said = desk.refused(&[&["dlq", "replay", "--reason", "again"], &of_group[..]].concat());
    assert!(said.contains("not replayed") && said.contains("--fix"), "{said}");
    // A fix that is none is forgotten as soon as it fails.
    desk.well(&[&bug[..], &of_group, &["--fix", "restarted"]].concat());
    let again = replay(desk, &of_group);
    assert!(again["failed"].as_i64() >= Some(1) && again["applied"] == 0, "{again:#}");
    assert_eq!(replay(desk, &of_group)["asked"], 0, "and needs a new fix");
    saboteur.add_the_template();
    desk.well(&[&bug[..], &of_group, &["--fix", "the template was added"]].concat());
    let mended = replay(desk, &of_group);
    assert!(mended["applied"].as_i64() >= Some(1) && mended["failed"] == 0, "{mended:#}");
}

fn an_outage_is_replayed(desk: &Desk<'_>) {
    let outage = ["--class", "vendor-outage"];
    let would = desk.well(&[&["dlq", "replay", "--dry-run"], &outage[..]].concat());
    assert!(would["replayed"].as_i64() >= Some(3), "{would:#}");
    assert!(!desk.letters(&outage).is_empty(), "a dry run changes nothing");
    let done = replay(desk, &[&outage[..], &["--rate", "100"]].concat());
    assert!(done["applied"].as_i64() >= would["replayed"].as_i64(), "{done:#}");
    assert_eq!(done["failed"], 0, "{done:#}");
}

#[test]
fn every_failure_is_mended_on_sqlite() {
    every_failure_is_mended(&Hotel::on_sqlite(), 1, None);
}

#[test]
fn every_failure_is_mended_on_postgres_with_two_processes() {
    let server = need!(servers::postgres());
    every_failure_is_mended(&Hotel::on_postgres(&server), 2, None);
}

#[test]
fn every_failure_is_mended_on_postgres_and_nats_with_two_processes() {
    let (server, nats) = (need!(servers::postgres()), need!(Launch::of(Kind::Nats).start()));
    every_failure_is_mended(&Hotel::on_postgres(&server), 2, Some(nats.url()));
}

#[cfg(feature = "kafka")]
#[test]
fn every_failure_is_mended_on_postgres_and_kafka_with_two_processes() {
    let (server, kafka) = (need!(servers::postgres()), need!(Launch::of(Kind::Kafka).start()));
    let url = format!("kafka://{}?session_seconds=2", kafka.url());
    every_failure_is_mended(&Hotel::on_postgres(&server), 2, Some(&url));
}

#[test]
fn a_wrong_call_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("empty.db").display());
    let desk = Desk { store: &store };
    let said = desk.refused(&["dlq", "list"]);
    assert!(said.contains("migrat"), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    assert!(
        command.args(["migrate", "apply", "--store", &store]).output().unwrap().status.success()
    );
    assert!(desk.letters(&[]).is_empty());
    let reason = ["--reason", "x"];
    for verb in ["replay", "quarantine", "delete"] {
        let said = desk.refused(&[&["dlq", verb], &reason[..]].concat());
        assert!(said.contains("CH3006") && said.contains("--all"), "{said}");
        let said = desk.refused(&[&["dlq", verb, "no-such-letter"], &reason[..]].concat());
        assert!(said.contains("CH3000") && said.contains("chapar dlq list"), "{said}");
        let empty = desk.refused(&["dlq", verb, "--all", "--reason", " "]);
        assert!(empty.contains("--reason is empty"), "{empty}");
        assert_eq!(desk.run(&["dlq", verb, "--all"]).status.code(), Some(2), "a note is asked for");
    }
    let said = desk.refused(&["dlq", "replay", "--resume", "none"]);
    assert!(said.contains("CH3008"), "{said}");
    for (flag, value, says) in [
        ("--kind", "sad", "rule_violation"),
        ("--class", "sad", "vendor-outage"),
        ("--since", "sad", "2h"),
    ] {
        let output = desk.run(&["dlq", "list", flag, value]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(says), "{said}");
    }
    assert_eq!(desk.well(&["dlq", "groups"]), json!([]));
    assert_eq!(desk.well(&["audit", "list"]), json!([]));
}
