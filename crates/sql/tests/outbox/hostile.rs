//! The outbox among hostile rows, settings and neighbours: isolation levels, large and unreadable
//! rows, operators and housekeeping at work beside the relay.

use std::time::{Duration, Instant};

use chapar_core::port::{Fate, Lease, Outbox, Park};
use chapar_sql::{Append, Keep, Store, StoreOptions, Tables};
use chapar_testkit::{need, servers};

use crate::house::{House, MINUTE, event};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_default_isolation_level_changes_nothing() {
    let server = need!(servers::postgres());
    let database = server.database("isolation").unwrap();
    let admin = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    admin.migrate().await.unwrap();
    let mut tx = admin.begin_raw().await.unwrap();
    let sql = "alter database {} set default_transaction_isolation = 'repeatable read'";
    tx.execute(sql.replace("{}", database.name()).leak(), vec![]).await.unwrap();
    tx.commit().await.unwrap();
    let store = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    const LEVEL: &str = "show transaction_isolation";
    let begun = [store.begin("acme").await, store.begin_engine().await, store.begin_read().await];
    for tx in begun {
        let level: String = tx.unwrap().fetch(LEVEL, vec![]).await.unwrap()[0].get(0).unwrap();
        assert_eq!(level, "read committed");
    }
    // A read is one statement of its own: what a function of it sees must be newer than the
    // sequence's value that it has read before.
    let house = House::over(store, database);
    let mut lease = house.lease("a").await;
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for n in 0..200 {
        let (first, second) = (event("a", n), event("b", n));
        written.extend([first.event_id.clone(), second.event_id.clone()]);
        let (first, second) = ([first], [second]);
        let (_, ids, ()) = tokio::join!(
            house.append(&first),
            house.advance(&mut lease, 100),
            house.append(&second),
        );
        read.extend(ids);
    }
    read.extend(house.advance(&mut lease, 100).await);
    read.extend(house.advance(&mut lease, 100).await);
    read.sort();
    written.sort();
    assert_eq!(read, written);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_from_quarantine_that_meets_a_parking_leaves_the_key_a_head() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    let mut lease = house.lease("a").await;
    house.append(&[event("k", 1)]).await;
    let chunk = house.outbox.read(lease.epoch, &lease.tracks, 10).await.unwrap();
    let first = chunk.rows[0].seq;
    let fate = Fate::Quarantine { error: "refused".into() };
    house.write(&mut lease, &chunk, vec![Park { seq: first, fate, stamp: None }]).await.unwrap();
    house.append(&[event("k", 2)]).await;
    let chunk = house.outbox.read(lease.epoch, &lease.tracks, 10).await.unwrap();
    assert!(chunk.rows[0].behind);
    let park = Park { seq: chunk.rows[0].seq, fate: Fate::Behind, stamp: None };
    let mut operator = house.store.begin_engine().await.unwrap();
    assert!(operator.outbox_rows().drop_quarantined(first, "me", "useless").await.unwrap());
    let parking = async {
        house.write(&mut lease, &chunk, vec![park]).await.unwrap();
    };
    let dropping = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        operator.commit().await.unwrap();
    };
    tokio::join!(parking, dropping);
    let due = house.outbox.due(lease.epoch, 10).await.unwrap();
    assert_eq!(due.len(), 1, "the follower is the head of its key now");
}

#[tokio::test]
async fn a_sequence_that_gives_out_numbers_in_advance_is_refused() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    house.store.check_outbox().await.unwrap();
    let mut tx = house.store.begin_raw().await.unwrap();
    tx.execute("alter sequence chapar.outbox_seq cache 20", vec![]).await.unwrap();
    tx.commit().await.unwrap();
    let refused = house.store.check_outbox().await.unwrap_err().to_string();
    assert!(refused.contains("cache 1"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_rows_after_small_ones_are_read_in_bounded_chunks() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    let mut lease = house.lease("a").await;
    let large = |n: usize| {
        let headers = format!("[[\"h\",\"{}\"]]", "x".repeat(20_000));
        Append { body: vec![b'x'; 250_000].into(), headers, ..event(&format!("k{n}"), n) }
    };
    for n in 0..60 {
        house.append(&[if n % 3 == 0 { event("small", n) } else { large(n) }]).await;
    }
    let (mut read, mut reads) = (0, 0);
    while read < 60 {
        let chunk = house.outbox.read(lease.epoch, &lease.tracks, 1000).await.unwrap();
        let bytes: usize = chunk.rows.iter().map(|row| row.size()).sum();
        assert!(bytes < 5 << 20, "{bytes} bytes in a chunk");
        for row in &chunk.rows {
            let n: usize = row.event_id.to_string().rsplit_once('-').unwrap().1.parse().unwrap();
            assert_eq!(row.body.len() == 250_000, !n.is_multiple_of(3));
            assert_eq!(row.headers.get("h").is_some(), !n.is_multiple_of(3));
        }
        read += chunk.rows.len();
        reads += 1;
        house.write(&mut lease, &chunk, Vec::new()).await.unwrap();
    }
    assert_eq!(read, 60);
    assert!(reads >= 3, "{reads} reads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_read_says_so_and_stops_no_other() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    let mut lease = house.lease("a").await;
    let mut tx = house.store.begin_engine().await.unwrap();
    let insert = "insert into chapar.outbox (event_id, tenant, topic, ordering_key, shard, \
         aggregate_type, aggregate_id, correlation_id, sealed, headers, body) values \
         (E'bad\\u0001', 'acme', 't', 'k', chapar.shard('k'), '', 'k', 'c', true, '[]', ''), \
         ('bad headers', 'acme', 't', 'l', chapar.shard('l'), '', 'l', 'c', true, 'x', '')";
    tx.execute(insert, vec![]).await.unwrap();
    tx.commit().await.unwrap();
    house.append(&[event("m", 1)]).await;
    let chunk = house.outbox.read(lease.epoch, &lease.tracks, 10).await.unwrap();
    let said: Vec<_> = chunk.rows.iter().map(|row| row.unreadable.as_deref()).collect();
    assert!(said[0].unwrap().contains("control character"), "{said:?}");
    assert!(said[1].unwrap().contains("headers"), "{said:?}");
    assert_eq!(said[2], None);
    // What is said about it cannot be stored either; all the others are parked as they are.
    let park = |row: &chapar_core::port::OutboxRow, error: &str| Park {
        seq: row.seq,
        fate: Fate::Quarantine { error: error.into() },
        stamp: None,
    };
    let mut parks = vec![park(&chunk.rows[0], "a\0b"), park(&chunk.rows[1], "wrong")];
    parks[1].stamp = Some("no text of \0 PostgreSQL".into());
    house.write(&mut lease, &chunk, parks).await.unwrap();
    let mut tx = house.store.begin_engine().await.unwrap();
    let parked = tx.outbox_rows().parked(true, 10).await.unwrap();
    assert_eq!(parked.len(), 2);
    assert_eq!(parked[0].last_error.as_deref(), Some("a\u{fffd}b"));
    assert!(parked[1].last_error.as_ref().unwrap().contains("cannot be stored"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn housekeeping_does_not_make_producers_wait_for_an_open_one() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    let keep = Keep { rows_per_partition: 1000, ..Keep::default() };
    house.append(&[event("k", 1)]).await;
    let mut lease = house.lease("a").await;
    let mut tx = house.store.begin_raw().await.unwrap();
    tx.execute("select setval('chapar.outbox_seq', 1000500)", vec![]).await.unwrap();
    tx.become_engine().await.unwrap();
    tx.execute("update chapar.outbox set written_at = now() - interval '40 days'", vec![])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    house.store.keep_house(&keep).await.unwrap();
    // The floor rises once what was running at the last read is over.
    let deadline = Instant::now() + MINUTE;
    let floor = |lease: &Lease| {
        let cursor: serde_json::Value = serde_json::from_str(&lease.tracks[0].cursor.0).unwrap();
        cursor["floor"].as_i64().unwrap()
    };
    let mut appended = 1;
    while floor(&lease) < 1_000_000 && Instant::now() < deadline {
        appended += 1;
        house.append(&[event("k", appended)]).await;
        house.advance(&mut lease, 10).await;
    }
    let mut open = house.store.begin("acme").await.unwrap();
    open.outbox_rows().append(&[event("open", 1)]).await.unwrap();
    let keeping = async {
        for _ in 0..5 {
            assert_eq!(house.store.keep_house(&keep).await.unwrap().moved_out, 0);
        }
    };
    let appending = async {
        let mut slowest = Duration::ZERO;
        for n in 0..50 {
            let began = Instant::now();
            house.append(&[event("other", n)]).await;
            slowest = slowest.max(began.elapsed());
        }
        slowest
    };
    let ((), slowest) = tokio::join!(keeping, appending);
    assert!(slowest < Duration::from_millis(700), "an append took {slowest:?}");
    open.rollback().await.unwrap();
    assert_eq!(house.store.keep_house(&keep).await.unwrap().moved_out, 1);
}
