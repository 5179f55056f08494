//! `chapar schema audit`: a tightened range against real events, in stores and in files.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "gate/house.rs"]
#[allow(dead_code, reason = "shared with the gate's tests")]
mod house;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar::{App, Chapar, Producer, Store, StoreOptions};
use chapar_core::dialect::{Dialect, MetadataJson};
use chapar_core::{Aggregate, Draft, Payload, Tenant};
use chapar_sql::{Backend, SqlTransport};
use chapar_testkit::{need, servers};
use serde_json::{Value, json};

use house::{HELD_SCHEMA, House, held};

const HELD: &str = "melmastoon.reservation.booking.held.v1";

/// A house whose bookings may have this many nights.
fn most_nights(most: i64) -> House {
    let house = House::new();
    let mut schema = held();
    schema["properties"]["nights"]["maximum"] = most.into();
    house.schema(HELD_SCHEMA, &schema);
    house
}

fn audit(house: &House, args: &[&str]) -> (i32, String, String) {
    let output = house.chapar(&[&["schema", "audit", "--system", "toy"], args].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn draft(nights: i64) -> Draft {
    let id = format!("r-{nights}");
    let payload = json!({ "reservationId": id, "channel": "web", "nights": nights });
    let aggregate = Aggregate { kind: "booking".into(), id: id.clone(), version: None };
    Draft::new(HELD, aggregate, Payload::json(&payload).unwrap())
        .idempotency_key(format!("{id}:held"))
}

/// Twenty events that were published, and ten that were not yet; two of them long ago.
async fn filled(url: &str) -> Store {
    let store = Store::open(url, &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let profile = chapar_testkit::profile("melmastoon");
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    let chapar =
        Chapar::builder(store.clone(), profile, Arc::new(MetadataJson)).producer(producer).build();
    let tenant: Tenant = "acme".parse().unwrap();
    let append = async |nights: std::ops::RangeInclusive<i64>| {
        let mut tx = chapar.begin(&tenant).await.unwrap();
        chapar.append_batch(&mut tx, &tenant, nights.map(draft)).await.unwrap();
        chapar.commit(tx).await.unwrap();
    };
    append(1..=20).await;
    let transport = Arc::new(SqlTransport::new(store.clone(), "audit"));
    let running = App::new(chapar.clone(), transport, "audit").start().await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while running.metrics().published() < 20 {
        assert!(Instant::now() < deadline, "they were not published");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.stop(Duration::from_secs(10)).await;
    append(21..=30).await;
    let back: [&str; 2] = match store.backend() {
        Backend::Sqlite => [
            "update chapar_log set published_at = published_at - 40 * 86400000000 where body like '%\"nights\":20%'",
            "update chapar_outbox set written_at = written_at - 40 * 86400000000 where body like '%\"nights\":20%' or body like '%\"nights\":30%'",
        ],
        Backend::Postgres => [
            "update chapar.log set published_at = published_at - interval '40 days' where convert_from(body, 'UTF8') like '%\"nights\":20%'",
            "update chapar.outbox set written_at = written_at - interval '40 days' where convert_from(body, 'UTF8') similar to '%\"nights\":(20|30)%'",
        ],
    };
    let mut tx = store.begin_engine().await.unwrap();
    for sql in back {
        assert!(tx.execute(sql, vec![]).await.unwrap() > 0);
    }
    tx.commit().await.unwrap();
    store
}

async fn the_events_of_a_store_are_counted_and_named(url: &str) {
    let store = filled(url).await;
    let house = most_nights(15);
    // 16 to 19 in the log, 21 to 29 in the outbox only; 20 and 30 are too old.
    let (code, out, err) = audit(&house, &["--store", url, "--since", "30d"]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.starts_with(&format!("{HELD}: 13 of 28 do not fit\n")), "{out}");
    assert!(err.contains("13 of 28 events since"), "{err}");
    assert_eq!(out.lines().filter(|line| line.contains("/nights: ")).count(), 5, "{out}");

    let args = ["--store", url, "--since", "90d", "--format", "json", "--examples", "99"];
    let (code, out, _) = audit(&house, &args);
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["checked"], &report["failed"]), (&json!(30), &json!(15)), "{out}");
    let examples = report["subjects"][0]["examples"].as_array().unwrap();
    assert_eq!(examples.len(), 15);
    // The ids are those of the store.
    let sql = match store.backend() {
        Backend::Sqlite => "select event_id from chapar_outbox order by event_id",
        Backend::Postgres => "select event_id from chapar.outbox order by event_id",
    };
    let mut tx = store.begin_engine().await.unwrap();
    let rows = tx.fetch(sql, vec![]).await.unwrap();
    let ids: Vec<String> = rows.iter().map(|row| row.get(0).unwrap()).collect();
    tx.rollback().await.unwrap();
    assert!(examples.iter().all(|e| ids.iter().any(|id| e["event"] == *id)), "{out}");
    assert!(examples.iter().all(|e| e["pointer"] == "/nights"), "{out}");

    let (code, _, err) = audit(&most_nights(30), &["--store", url, "--since", "90d"]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = audit(&house, &["--store", url, "--subject", house::QUOTE]);
    assert!(code == 0 && err.contains("no events found"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("audit.db").display());
    the_events_of_a_store_are_counted_and_named(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres() {
    let server = need!(servers::postgres());
    let database = server.database("audit").unwrap();
    the_events_of_a_store_are_counted_and_named(database.url()).await;
    // What came in by SQL and waits for a relay is only a payload yet.
    let store = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    let mut tx = store.begin("acme").await.unwrap();
    let emit = "select chapar.emit($1, 'acme', 'r-99', '{\"reservationId\": \"r-99\", \"channel\": \
                \"web\", \"nights\": 99}'::jsonb, 'r-99:held')";
    tx.fetch(emit, vec![HELD.into()]).await.unwrap();
    tx.commit().await.unwrap();
    let (code, out, _) = audit(&most_nights(30), &["--store", database.url(), "--since", "30d"]);
    assert!(code == 1 && out.contains("1 of 29 do not fit"), "{out}");
}

#[test]
fn a_file_is_read_line_by_line_and_a_bad_line_is_named() {
    let house = most_nights(15);
    let profile = chapar_testkit::profile("melmastoon");
    let tenant: Tenant = "acme".parse().unwrap();
    let clock = chapar_core::port::SystemClock;
    let event = |nights| {
        let (producer, ids) = (Producer::default(), chapar_core::port::SystemIds);
        let envelope = draft(nights).seal(&tenant, &profile, &producer, &clock, &ids).unwrap();
        String::from_utf8(MetadataJson.encode(&envelope).unwrap().body.to_vec()).unwrap()
    };
    let lines: Vec<String> = (1..=30).map(event).collect();
    let file = house.folder.path().join("events.jsonl");
    fs::write(&file, lines.join("\n")).unwrap();
    let (code, out, err) = audit(&house, &["--events", "events.jsonl"]);
    assert!(code == 1 && out.contains("15 of 30 do not fit"), "{out}{err}");
    assert!(out.contains("/nights: 16 is greater than the maximum of 15"), "{out}");

    fs::write(&file, format!("{}\n\n{{\"eventId\":\n", lines[0])).unwrap();
    let (code, out, err) = audit(&house, &["--events", "events.jsonl"]);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("events.jsonl:3: the message is not metadata-json"), "{err}");
    for wrong in [
        &["--events", "nowhere.jsonl"][..],
        &["--subject", "nothing.v1", "--events", "events.jsonl"],
        &["--since", "1y", "--events", "events.jsonl"],
        &["--store", "mysql://localhost"],
        &[],
    ] {
        let (code, out, err) = audit(&house, wrong);
        assert_eq!((code, out.as_str()), (2, ""), "{wrong:?}: {err}");
    }
}
