//! Appending under contention: commit order per key, one event per intent.

use std::time::Duration;

use chapar_sql::{Append, Store, StoreError, StoreOptions, Tables};
use chapar_testkit::{need, servers};

fn event(key: &str, n: usize, intent: Option<&str>) -> Append {
    let idempotency_key = intent.map(str::to_owned);
    Append { idempotency_key, ..crate::house::event(key, n) }
}

async fn postgres(server: &servers::Postgres) -> (Store, servers::Database) {
    let database = server.database("append").unwrap();
    let options = StoreOptions { max_connections: 20, ..Default::default() };
    let store = Store::open(database.url(), &options).await.unwrap();
    store.migrate().await.unwrap();
    let mut tx = store.begin_raw().await.unwrap();
    // What the transactions did, in the order in which they held the key.
    tx.execute("create table counters (key text primary key, n bigint not null)", vec![])
        .await
        .unwrap();
    tx.execute("grant all on counters to chapar_app", vec![]).await.unwrap();
    tx.commit().await.unwrap();
    (store, database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_numbers_of_a_key_are_in_commit_order_whatever_the_writers_do() {
    let server = need!(servers::postgres());
    let (store, _database) = postgres(&server).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8u64 {
        let store = store.clone();
        writers.spawn(async move {
            let mut dice = fastrand::Rng::with_seed(writer);
            for _ in 0..40 {
                let key = format!("k{}", dice.u8(0..3));
                let mut tx = store.begin("acme").await.unwrap();
                // The event comes before the business row, so that the key's lock and not the
                // row's is what orders the transactions.
                let id = format!("{writer}-{}", dice.u64(..));
                let mut append = event(&key, 0, None);
                append.event_id = id.clone();
                tx.outbox_rows().append(&[append]).await.unwrap();
                tokio::time::sleep(Duration::from_micros(dice.u64(0..2000))).await;
                let count = "insert into counters values ($1, 1) on conflict (key) \
                             do update set n = counters.n + 1 returning n";
                let n: i64 = tx.fetch(count, vec![(&key).into()]).await.unwrap()[0].get(0).unwrap();
                // A service may not change the outbox.
                tx.become_engine().await.unwrap();
                let mark = "update chapar.outbox set correlation_id = $1 where event_id = $2";
                tx.execute(mark, vec![n.to_string().into(), id.into()]).await.unwrap();
                if dice.u8(0..5) == 0 {
                    tx.rollback().await.unwrap()
                } else {
                    tx.commit().await.unwrap()
                }
            }
        });
    }
    writers.join_all().await;
    let mut tx = store.begin_engine().await.unwrap();
    let inverted = "select count(*) from chapar.outbox a join chapar.outbox b \
        on a.ordering_key = b.ordering_key and a.seq < b.seq \
        and a.correlation_id::bigint >= b.correlation_id::bigint";
    let inverted: i64 = tx.fetch(inverted, vec![]).await.unwrap()[0].get(0).unwrap();
    assert_eq!(inverted, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_intent_appended_by_many_at_once_is_one_event() {
    let server = need!(servers::postgres());
    let (store, _database) = postgres(&server).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let store = store.clone();
        writers.spawn(async move {
            let mut tx = store.begin("acme").await.unwrap();
            let appended =
                tx.outbox_rows().append(&[event("k", writer, Some("intent"))]).await.unwrap();
            tx.commit().await.unwrap();
            appended[0].event_id.clone()
        });
    }
    let mut ids = writers.join_all().await;
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_transactions_that_append_to_the_same_keys_do_not_deadlock() {
    let server = need!(servers::postgres());
    let (store, _database) = postgres(&server).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..6 {
        let store = store.clone();
        writers.spawn(async move {
            for round in 0..20 {
                let n = writer * 100 + round;
                let mut events: Vec<Append> =
                    ["a", "b", "c", "d"].iter().map(|key| event(key, n, None)).collect();
                if writer % 2 == 0 {
                    events.reverse();
                }
                let mut tx = store.begin("acme").await.unwrap();
                tx.outbox_rows().append(&events).await.expect("no deadlock");
                tx.commit().await.unwrap();
            }
        });
    }
    writers.join_all().await;
}

#[tokio::test]
async fn answers_come_in_the_order_of_the_events_and_conflicts_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a.db").display());
    let store = Store::open(&url, &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let mut tx = store.begin("acme").await.unwrap();
    let events = [event("z", 1, Some("i")), event("a", 2, None), event("m", 3, Some("i"))];
    let answers = tx.outbox_rows().append(&events).await.unwrap();
    let ids: Vec<_> = answers.iter().map(|answer| answer.event_id.as_str()).collect();
    // Keys are taken shard by shard, so it is the shard that says which of the two was first.
    let first = if Append::shard("m") < Append::shard("z") { "m-3" } else { "z-1" };
    assert_eq!(ids, [first, "a-2", first]);
    let mut other = event("z", 4, Some("i"));
    other.payload_hash = Append::hash(b"other");
    let conflict = tx.outbox_rows().append(&[other]).await.unwrap_err();
    assert!(matches!(conflict, StoreError::IdempotencyConflict(_)), "{conflict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_very_many_keys_locks_whole_shards_and_keeps_the_order() {
    let server = need!(servers::postgres());
    let (store, _database) = postgres(&server).await;
    let many: Vec<Append> = (0..20_000).map(|n| event(&format!("k{n}"), n, None)).collect();
    let mut batch = store.begin("acme").await.unwrap();
    batch.outbox_rows().append(&many).await.expect("20,000 keys fit");
    let locks =
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";
    let locks: i64 = batch.fetch(locks, vec![]).await.unwrap()[0].get(0).unwrap();
    assert!(locks <= 64, "{locks}");
    // A single key of the batch waits for it, and so keeps its place behind it.
    let single = {
        let store = store.clone();
        tokio::spawn(async move {
            let mut tx = store.begin("acme").await.unwrap();
            tx.outbox_rows().append(&[event("k7", 99_999, None)]).await.unwrap();
            tx.commit().await.unwrap();
        })
    };
    until_somebody_waits(&store).await;
    batch.commit().await.unwrap();
    single.await.unwrap();
    let mut tx = store.begin_engine().await.unwrap();
    let order = "select event_id from chapar.outbox where ordering_key = 'k7' order by seq";
    let rows = tx.fetch(order, vec![]).await.unwrap();
    let ids: Vec<String> = rows.iter().map(|row| row.get(0).unwrap()).collect();
    assert_eq!(ids, ["k7-7", "k7-99999"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_held_too_long_is_a_retryable_error() {
    let server = need!(servers::postgres());
    let (store, _database) = postgres(&server).await;
    shorten_patience(&store).await;
    let mut holder = store.begin("acme").await.unwrap();
    holder.outbox_rows().append(&[event("k", 1, None)]).await.unwrap();
    let mut late = store.begin("acme").await.unwrap();
    let refused = late.outbox_rows().append(&[event("k", 2, None)]).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    let mut unordered = event("k", 3, None);
    unordered.ordering_key = None;
    let mut free = store.begin("acme").await.unwrap();
    free.outbox_rows().append(&[unordered]).await.expect("an unordered event does not wait");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_that_is_held_too_long_is_a_retryable_error_under_any_key() {
    let server = need!(servers::postgres());
    let (store, _database) = postgres(&server).await;
    shorten_patience(&store).await;
    let mut holder = store.begin("acme").await.unwrap();
    holder.outbox_rows().append(&[event("k", 1, Some("intent"))]).await.unwrap();
    for key in [Some("other"), None] {
        let mut late = event("l", 2, Some("intent"));
        late.ordering_key = key.map(str::to_owned);
        let mut tx = store.begin("acme").await.unwrap();
        let patience = Duration::from_secs(30);
        let refused = tokio::time::timeout(patience, tx.outbox_rows().append(&[late])).await;
        let refused = refused.expect("it gives up by itself").unwrap_err();
        assert!(refused.is_retryable(), "{refused}");
    }
}

/// A shorter lock timeout than the default.
async fn shorten_patience(store: &Store) {
    let mut tx = store.begin_raw().await.unwrap();
    let shorter = "alter function chapar.append set lock_timeout = '100ms'";
    tx.execute(shorter, vec![]).await.unwrap();
    tx.commit().await.unwrap();
}

async fn until_somebody_waits(store: &Store) {
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    loop {
        let mut tx = store.begin_raw().await.unwrap();
        if tx.fetch(waiting, vec![]).await.unwrap()[0].get::<i64>(0).unwrap() > 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_part_that_is_too_long_is_refused_at_every_door() {
    let server = need!(servers::postgres());
    let (store, _database) = postgres(&server).await;
    let long = "x".repeat(4800);
    let mut tx = store.begin("acme").await.unwrap();
    let mut appended = event(&long, 1, None);
    appended.event_id = "e".into();
    let refused = tx.outbox_rows().append(&[appended.clone()]).await.unwrap_err();
    assert!(refused.is_of_data() && refused.to_string().contains("1024"), "{refused}");
    appended.ordering_key = Some("k".into());
    appended.aggregate_id = "k".into();
    appended.idempotency_key = Some(long.clone());
    assert!(tx.outbox_rows().append(&[appended]).await.unwrap_err().is_of_data());
    const EMIT: &str = "select chapar.emit('t.v1', tenant => 'acme', key => $1, payload => '{}')";
    let refused = tx.fetch(EMIT, vec![long.clone().into()]).await.unwrap_err();
    assert!(refused.to_string().contains("at most 1024"), "{refused}");
    let mut tx = store.begin("acme").await.unwrap();
    const METADATA: &str = "select chapar.emit('t.v1', tenant => 'acme', key => 'k', payload => '{}', \
         metadata => jsonb_build_object('m', $1::text))";
    let refused = tx.fetch(METADATA, vec![long.into()]).await.unwrap_err();
    assert!(refused.to_string().contains("at most 4096"), "{refused}");
    let mut tx = store.begin("acme").await.unwrap();
    const ID: &str = "select chapar.append(E'a\\nb', 'acme', 't', 'k', 1::smallint, '', 'k', null, \
         null, 'c', null, true, '[]', '')";
    let refused = tx.fetch(ID, vec![]).await.unwrap_err();
    assert!(refused.to_string().contains("control character"), "{refused}");
}

#[tokio::test]
async fn a_transaction_of_very_many_keys_takes_few_locks() {
    let server = need!(servers::postgres());
    let (store, _database) = postgres(&server).await;
    const LOCKS: &str = "select count(*) from pg_locks \
         where locktype = 'advisory' and pid = pg_backend_pid()";
    let mut tx = store.begin("acme").await.unwrap();
    const EMIT: &str = "select chapar.emit('t.v1', tenant => 'acme', key => 'k' || n, \
         payload => '{}') from generate_series(1, 20000) n";
    tx.fetch(EMIT, vec![]).await.unwrap();
    let locks: i64 = tx.fetch(LOCKS, vec![]).await.unwrap()[0].get(0).unwrap();
    assert!(locks < 700, "{locks} locks");
    tx.commit().await.unwrap();
    let mut tx = store.begin("acme").await.unwrap();
    for n in 0..800 {
        tx.outbox_rows().append(&[event(&format!("l{n}"), n, None)]).await.unwrap();
    }
    let locks: i64 = tx.fetch(LOCKS, vec![]).await.unwrap()[0].get(0).unwrap();
    assert!(locks < 700, "{locks} locks");
    // Another transaction waits for the whole shard, as long as its own limit says.
    let mut other = store.begin("acme").await.unwrap();
    other.execute("set local lock_timeout = '100ms'", vec![]).await.unwrap();
    let began = std::time::Instant::now();
    let refused = other.outbox_rows().append(&[event("l799", 1, None)]).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(3), "the caller's limit is shorter than ours");
    tx.rollback().await.unwrap();
}
