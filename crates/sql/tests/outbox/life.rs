//! The lives of a store: a crash, a promoted standby and a restored dump give transaction ids and
//! numbers out again, and nothing may count as published because of that.

use std::time::Duration;

use chapar_core::port::{Checkpoint, Chunk, Lease, Outbox, OutboxError};
use chapar_sql::{Append, SqlOutbox, Store, StoreOptions, Tables};
use chapar_testkit::need;
use chapar_testkit::proxy::Proxy;
use chapar_testkit::servers::{Kind, Launch, Postgres};

use crate::house::{MINUTE, event};

async fn open(url: &str) -> Store {
    let options = StoreOptions { timeout: Duration::from_secs(2), ..StoreOptions::default() };
    Store::open(url, &options).await.unwrap()
}

/// Appends, also over connections that a restart has broken.
async fn append(store: &Store, events: &[Append]) {
    for _ in 0..100 {
        let appended = async {
            let mut tx = store.begin("acme").await?;
            tx.outbox_rows().append(events).await?;
            tx.commit().await
        };
        match appended.await {
            Ok(()) => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("the database does not come back");
}

/// Transactions that take an id and write nothing: no log record makes their ids durable.
async fn burn_ids(store: &Store, count: usize) {
    for _ in 0..count {
        let mut tx = store.begin("acme").await.unwrap();
        tx.fetch("select pg_current_xact_id()::text", vec![]).await.unwrap();
        tx.rollback().await.unwrap();
    }
}

fn ids(chunk: &Chunk) -> Vec<String> {
    let mut ids: Vec<String> = chunk.rows.iter().map(|row| row.event_id.to_string()).collect();
    ids.sort();
    ids
}

fn is_lost<T: std::fmt::Debug>(answer: Result<T, OutboxError>) -> bool {
    matches!(answer, Err(OutboxError::LeaseLost(_)))
}

fn at(chunk: &Chunk) -> Checkpoint {
    Checkpoint { tracks: chunk.tracks.clone(), ..Checkpoint::default() }
}

/// Until the pool has replaced the connections that a restart has broken.
async fn until_answered<T, F>(mut call: impl FnMut() -> F) -> Result<T, OutboxError>
where
    F: Future<Output = Result<T, OutboxError>>,
{
    for _ in 0..100 {
        match call().await {
            Err(OutboxError::Store(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            answer => return answer,
        }
    }
    panic!("the database does not come back");
}

async fn refuses_what_was_before(outbox: &SqlOutbox, lease: &Lease, ahead: &Chunk) {
    let read = until_answered(|| outbox.read(lease.epoch, &ahead.tracks, 100)).await;
    assert!(is_lost(read), "a position from before may pass over new events");
    let (epoch, checkpoint) = (lease.epoch, at(ahead));
    assert!(is_lost(until_answered(|| outbox.checkpoint(epoch, &checkpoint)).await));
    assert!(is_lost(until_answered(|| outbox.renew(epoch, MINUTE)).await));
    assert!(is_lost(until_answered(|| outbox.settle(epoch, &[])).await));
    assert!(is_lost(until_answered(|| outbox.mark(epoch, &ahead.tracks, &[])).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_from_before_a_crash_is_refused_and_nothing_is_lost() {
    let mut server = need!(Launch::of(Kind::Postgres).start());
    let database = Postgres::from(&server).database("crash").unwrap();
    let store = open(database.url()).await;
    store.migrate().await.unwrap();
    let outbox = SqlOutbox::new(store.clone());
    let lease = outbox.lease("a", None, MINUTE).await.unwrap();
    append(&store, &[event("before", 1)]).await;
    burn_ids(&store, 100).await;
    let ahead = outbox.read(lease.epoch, &lease.tracks, 100).await.unwrap();
    assert_eq!(ids(&ahead), ["before-1"]);
    server.kill();
    server.restart().unwrap();
    let fresh: Vec<Append> = (1..=9).map(|n| event("fresh", n)).collect();
    for event in &fresh {
        append(&store, std::slice::from_ref(event)).await;
    }
    refuses_what_was_before(&outbox, &lease, &ahead).await;
    outbox.release(lease.epoch).await.unwrap();
    let again = outbox.lease("a", None, MINUTE).await.unwrap();
    assert!(again.life > lease.life, "stamps name the new life");
    let read = outbox.read(again.epoch, &again.tracks, 100).await.unwrap();
    assert_eq!(read.rows.len(), 10, "{:?}", ids(&read));
    outbox.checkpoint(again.epoch, &at(&read)).await.unwrap();
    // A clean restart gives no id out twice, and the lease goes on.
    server.restart().unwrap();
    let read = until_answered(|| outbox.read(again.epoch, &read.tracks, 100)).await.unwrap();
    assert_eq!(ids(&read), [""; 0]);
    outbox.checkpoint(again.epoch, &at(&read)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_from_before_a_lagging_failover_is_refused_and_nothing_is_lost() {
    let mut primary = need!(Launch::of(Kind::Postgres).start());
    let address = |url: &str| {
        let url = url.split_once('@').unwrap().1;
        url.split_once('/').unwrap().0.to_owned()
    };
    let database = Postgres::from(&primary).database("failover").unwrap();
    let proxy = Proxy::to(&address(primary.url())).unwrap();
    let url = database.url().replace(&address(primary.url()), &proxy.address().to_string());
    let store = open(&url).await;
    store.migrate().await.unwrap();
    append(&store, &[event("kept", 1)]).await;
    let outbox = SqlOutbox::new(store.clone());
    let lease = outbox.lease("a", None, MINUTE).await.unwrap();
    let standby = Launch::of(Kind::Postgres)
        .setting("+standby_of", primary.url().replace("/postgres?", "/?"));
    let mut standby = need!(standby.start());
    // The standby lags: it is not even there while these are written and published.
    standby.stop();
    for n in 1..=9 {
        append(&store, &[event("gone", n)]).await;
    }
    burn_ids(&store, 100).await;
    let ahead = outbox.read(lease.epoch, &lease.tracks, 100).await.unwrap();
    assert_eq!(ahead.rows.len(), 10);
    outbox.checkpoint(lease.epoch, &at(&ahead)).await.unwrap();
    primary.kill();
    standby.restart().unwrap();
    proxy.cut();
    proxy.redirect(&address(standby.url()));
    proxy.heal();
    let promoted = open(standby.url()).await;
    let mut tx = promoted.begin_raw().await.unwrap();
    tx.fetch("select pg_promote()", vec![]).await.unwrap();
    drop(tx);
    for n in 1..=9 {
        append(&store, &[event("fresh", n)]).await;
    }
    refuses_what_was_before(&outbox, &lease, &ahead).await;
    outbox.release(lease.epoch).await.unwrap();
    let again = outbox.lease("a", None, MINUTE).await.unwrap();
    assert!(again.life > lease.life, "numbers of lost events are given out again");
    let read = outbox.read(again.epoch, &again.tracks, 100).await.unwrap();
    let fresh = (1..=9).map(|n| format!("fresh-{n}"));
    let mut expected: Vec<String> = fresh.chain(["kept-1".to_owned()]).collect();
    expected.sort();
    assert_eq!(ids(&read), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_restored_into_another_cluster_is_refused_until_it_is_rebased() {
    let (here, there) =
        (need!(Launch::of(Kind::Postgres).start()), need!(Launch::of(Kind::Postgres).start()));
    let database = Postgres::from(&here).database("dumped").unwrap();
    let store = open(database.url()).await;
    store.migrate().await.unwrap();
    let topics = ["t".to_owned()];
    let outbox = SqlOutbox::new(store.clone());
    let lease = outbox.lease("a", None, MINUTE).await.unwrap();
    append(&store, &[event("published", 1), event("both", 1)]).await;
    outbox.mark(lease.epoch, &lease.tracks, &topics).await.unwrap();
    burn_ids(&store, 3000).await;
    let read = outbox.read(lease.epoch, &lease.tracks, 100).await.unwrap();
    outbox.checkpoint(lease.epoch, &at(&read)).await.unwrap();
    append(&store, &[event("waiting", 1), event("both", 2)]).await;

    // Roles belong to a cluster and are in no dump of a database.
    let roles = Postgres::from(&there).database("roles").unwrap();
    open(roles.url()).await.migrate().await.unwrap();
    let restored = database.restore_on(&Postgres::from(&there)).unwrap();
    let store = open(restored.url()).await;
    append(&store, &[event("new", 1), event("both", 3)]).await;
    let outbox = SqlOutbox::new(store.clone());
    let refused = outbox.lease("b", None, MINUTE).await.unwrap_err();
    let refused = std::error::Error::source(&refused).unwrap().to_string();
    assert!(refused.contains("chapar outbox rebase"), "{refused}");
    let refused = store.check_outbox().await.unwrap_err().to_string();
    assert!(refused.contains("comes from the cluster"), "{refused}");

    let mut tx = store.begin_engine().await.unwrap();
    let kept = tx.outbox_rows().rebase(true, "me", "a lie").await.unwrap_err().to_string();
    assert!(kept.contains("and the cluster is at"), "{kept}");
    drop(tx);
    let mut tx = store.begin_engine().await.unwrap();
    let rebased = tx.outbox_rows().rebase(false, "me", "moved").await.unwrap().unwrap();
    tx.commit().await.unwrap();
    assert_eq!(rebased.waiting, 4);
    append(&store, &[event("new", 2)]).await;
    let lease = outbox.lease("b", None, MINUTE).await.unwrap();
    outbox.mark(lease.epoch, &lease.tracks, &topics).await.unwrap();
    let marks = outbox.marks(&["both".into(), "published".into()]).await.unwrap();
    assert_eq!(marks.len(), 2, "the marks of what was published before the dump: {marks:?}");
    let read = outbox.read(lease.epoch, &lease.tracks, 100).await.unwrap();
    assert_eq!(ids(&read), ["both-2", "both-3", "new-1", "new-2", "waiting-1"]);
    outbox.checkpoint(lease.epoch, &at(&read)).await.unwrap();
    burn_ids(&store, 300).await;
    append(&store, &[event("new", 3)]).await;
    let read = outbox.read(lease.epoch, &read.tracks, 100).await.unwrap();
    assert_eq!(ids(&read), ["new-3"], "once each, also when ids reach those of the old cluster");
    let mut tx = store.begin_engine().await.unwrap();
    assert_eq!(tx.outbox_rows().rebase(false, "me", "again").await.unwrap(), None);
}
