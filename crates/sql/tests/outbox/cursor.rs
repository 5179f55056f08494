//! The outbox under the relay's hands: nothing is skipped, however late it commits; a zombie
//! writes nothing; what failed keeps its place; and the table does not rot.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use chapar_core::port::{
    Chunk, Fate, Lease, LeaseLost, Outbox, OutboxError, Park, Renewed, Settled,
};
use chapar_sql::{Append, Keep, Tables, Tx};
use chapar_testkit::{need, servers};

use crate::house::{House, MINUTE, event};

/// The last number of each subject, by key.
type Marks = BTreeMap<String, BTreeMap<String, i64>>;

/// Notes what was read, as somebody would who sees all of it.
fn note(marks: &mut Marks, chunk: &Chunk) {
    for row in &chunk.rows {
        let of_key = marks.entry(row.key.clone().unwrap()).or_default();
        let last = of_key.entry(row.topic.clone()).or_default();
        *last = row.seq.max(*last);
    }
}

impl House {
    /// Writes the marks up to where the lease is, and says what they are.
    async fn marks(&self, lease: &Lease, keys: &Marks) -> Marks {
        let topics = ["t", "u"].map(str::to_owned);
        self.outbox.mark(lease.epoch, &lease.tracks, &topics).await.unwrap();
        let keys: Vec<String> = keys.keys().cloned().collect();
        let marks = self.outbox.marks(&keys).await.unwrap();
        marks.into_iter().map(|known| (known.key, known.marks)).collect()
    }
}

fn count(rows: &[chapar_sql::Row]) -> i64 {
    rows[0].get(0).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_live_writers_every_event_is_read_once_and_each_key_in_order() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8u64 {
        let store = house.store.clone();
        writers.spawn(async move {
            let mut dice = fastrand::Rng::with_seed(writer);
            let mut committed = Vec::new();
            for round in 0..60 {
                let key = format!("k{}", dice.u8(0..5));
                let mut append = event(&key, writer as usize * 1000 + round);
                append.topic = dice.choice(["t", "u"]).unwrap().into();
                let id = append.event_id.clone();
                let mut tx = store.begin("acme").await.unwrap();
                tx.outbox_rows().append(&[append]).await.unwrap();
                // A number is taken, and others overtake it before it can be seen.
                if dice.u8(0..4) == 0 {
                    tokio::time::sleep(Duration::from_millis(dice.u64(1..20))).await;
                }
                if dice.u8(0..5) == 0 {
                    tx.rollback().await.unwrap();
                } else {
                    tx.commit().await.unwrap();
                    committed.push(id);
                }
            }
            committed
        });
    }
    let mut lease = house.lease("a").await;
    let (mut read, mut committed) = (Vec::new(), HashSet::new());
    let mut seqs: HashMap<String, i64> = HashMap::new();
    let mut marks = Marks::new();
    let mut dice = fastrand::Rng::with_seed(99);
    assert!(house.marks(&lease, &marks).await.is_empty());
    while !writers.is_empty() || read.len() < committed.len() {
        let chunk = house.outbox.read(lease.epoch, &lease.tracks, 7).await.unwrap();
        for row in &chunk.rows {
            let last = seqs.insert(row.key.clone().unwrap(), row.seq);
            assert!(last.is_none_or(|last| last < row.seq), "order within {:?}", row.key);
            read.push(row.event_id.to_string());
        }
        house.write(&mut lease, &chunk, Vec::new()).await.unwrap();
        note(&mut marks, &chunk);
        if dice.u8(0..4) == 0 {
            assert_eq!(house.marks(&lease, &marks).await, marks);
        }
        if let Some(done) = writers.try_join_next() {
            committed.extend(done.unwrap());
        }
    }
    assert_eq!(read.len(), committed.len());
    assert_eq!(read.into_iter().collect::<HashSet<_>>(), committed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_are_those_of_what_was_passed_and_not_of_what_was_read_ahead() {
    let server = need!(servers::postgres());
    for house in [House::sqlite().await, House::postgres(&server).await] {
        let mut lease = house.lease("a").await;
        let mut marks = Marks::new();
        house.marks(&lease, &marks).await;
        for n in 0..30 {
            let mut append = event(&format!("k{}", n % 4), n);
            append.topic = if n % 3 == 0 { "u".into() } else { "t".into() };
            house.append(&[append]).await;
        }
        for limit in [7, 1, 12] {
            let chunk = house.outbox.read(lease.epoch, &lease.tracks, limit).await.unwrap();
            house.write(&mut lease, &chunk, Vec::new()).await.unwrap();
            note(&mut marks, &chunk);
            let ahead = house.outbox.read(lease.epoch, &lease.tracks, 5).await.unwrap();
            assert!(!ahead.rows.is_empty());
            assert_eq!(house.marks(&lease, &marks).await, marks);
        }
        // Another owner starts from the same marks, and a third without any.
        let heir = house.lease("b").await;
        assert_eq!(house.marks(&lease, &marks).await, marks);
        assert_eq!(house.marks(&heir, &marks).await, marks);
        house.outbox.mark(heir.epoch, &heir.tracks, &[]).await.unwrap();
        let gone = LeaseLost { epoch: 99 };
        let lost = house.outbox.mark(99, &lease.tracks, &[]).await.unwrap_err();
        assert!(matches!(lost, OutboxError::LeaseLost(lost) if lost == gone));
    }
}

impl House {
    /// How many rows of the outbox were read, once that is at least `least`: a connection tells
    /// once a second, with the transaction that it has next.
    async fn rows_read(&self, lease: &Lease, least: i64) -> i64 {
        const READ: &str = "select sum(coalesce(idx_tup_fetch, 0) + seq_tup_read)::bigint \
             from pg_stat_user_tables where relname like 'outbox\\_%'";
        loop {
            self.outbox.renew(lease.epoch, MINUTE).await.unwrap();
            self.outbox.read(lease.epoch, &lease.tracks, 1).await.unwrap();
            let mut tx = self.store.begin_raw().await.unwrap();
            let read = count(&tx.fetch(READ, vec![]).await.unwrap());
            tx.rollback().await.unwrap();
            if read >= least {
                return read;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How many rows are read to pass two, one of which commits late.
    async fn rows_read_per_step(&self, lease: &mut Lease) -> i64 {
        const STEPS: i64 = 10;
        let mut least = i64::MAX;
        let mut read = self.rows_read(lease, 1).await;
        // The least of four tries: a connection may tell of what came before only now.
        for n in 0..4 * STEPS {
            let mut slow = self.store.begin("acme").await.unwrap();
            slow.outbox_rows().append(&[event("slow", n as usize)]).await.unwrap();
            self.append(&[event("fast", n as usize)]).await;
            assert_eq!(self.advance(lease, 1000).await, [format!("fast-{n}")]);
            slow.commit().await.unwrap();
            assert_eq!(self.advance(lease, 1000).await, [format!("slow-{n}")]);
            self.marks(lease, &Marks::new()).await;
            if n % STEPS == STEPS - 1 {
                let now = self.rows_read(lease, read + 2 * STEPS).await;
                least = least.min(now - read);
                read = now;
            }
        }
        least / STEPS
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_does_not_make_each_step_read_all_that_lies_behind() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    let mut lease = house.lease("a").await;
    house.marks(&lease, &Marks::new()).await;
    // It has an id and might still write: until it ends, nothing is behind for good.
    let mut open = house.store.begin_engine().await.unwrap();
    open.fetch("select pg_current_xact_id()::text", vec![]).await.unwrap();
    // All by one transaction, which leaves the planner with a poor opinion of the index.
    let mut tx = house.store.begin_engine().await.unwrap();
    bulk(&mut tx, 100_000).await;
    tx.commit().await.unwrap();
    let mut tx = house.store.begin_raw().await.unwrap();
    tx.execute("analyze chapar.outbox", vec![]).await.unwrap();
    tx.commit().await.unwrap();
    for _ in 0..10 {
        assert_eq!(house.advance(&mut lease, 10_000).await.len(), 10_000);
    }
    assert!(house.advance(&mut lease, 10_000).await.is_empty());
    house.marks(&lease, &Marks::new()).await;
    house.rows_read(&lease, 200_000).await;
    let read = house.rows_read_per_step(&mut lease).await;
    assert!(read < 1000, "{read} rows were read to pass two");
    open.rollback().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_while_marks_are_being_written() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    let mut lease = house.lease("a").await;
    house.marks(&lease, &Marks::new()).await;
    house.append(&[event("k", 1)]).await;
    assert_eq!(house.advance(&mut lease, 10).await, ["k-1"]);
    // Somebody else is at the same mark.
    let mut other = house.store.begin_engine().await.unwrap();
    let write = "insert into chapar.key_marks (ordering_key, topic, seq) values ('k', 't', 0)";
    other.execute(write, vec![]).await.unwrap();
    let (outbox, marked) = (house.outbox.clone(), lease.clone());
    let marking =
        tokio::spawn(
            async move { outbox.mark(marked.epoch, &marked.tracks, &["t".to_owned()]).await },
        );
    let waiting = "select count(*) from pg_stat_activity \
         where wait_event_type = 'Lock' and query like '%come_late%' \
         and datname = current_database()";
    loop {
        let mut tx = house.store.begin_raw().await.unwrap();
        let waiting = count(&tx.fetch(waiting, vec![]).await.unwrap());
        tx.rollback().await.unwrap();
        if waiting > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let renewed = tokio::time::timeout(MINUTE / 12, house.outbox.renew(lease.epoch, MINUTE)).await;
    assert!(matches!(renewed, Ok(Ok(Renewed::Held))), "{renewed:?}");
    other.rollback().await.unwrap();
    marking.await.unwrap().unwrap();
}

async fn the_first_event_ever_is_read(house: House) {
    let mut lease = house.lease("a").await;
    assert!(house.advance(&mut lease, 10).await.is_empty());
    house.append(&[event("k", 1)]).await;
    assert_eq!(house.advance(&mut lease, 10).await, ["k-1"]);
    assert!(house.advance(&mut lease, 10).await.is_empty());
}

#[tokio::test]
async fn on_postgres_the_first_event_ever_is_read() {
    let server = need!(servers::postgres());
    the_first_event_ever_is_read(House::postgres(&server).await).await;
}

#[tokio::test]
async fn on_sqlite_the_first_event_ever_is_read() {
    the_first_event_ever_is_read(House::sqlite().await).await;
}

async fn an_heir_goes_on_where_the_zombie_has_written(house: House) {
    house.append(&[event("k", 1), event("k", 2)]).await;
    let mut zombie = house.outbox.lease("zombie", None, Duration::ZERO).await.unwrap();
    assert_eq!(house.advance(&mut zombie, 1).await, ["k-1"]);
    let unwritten = house.outbox.read(zombie.epoch, &zombie.tracks, 10).await.unwrap();
    let mut heir = house.lease("heir").await;
    let lost = house.write(&mut zombie, &unwritten, Vec::new()).await;
    assert!(matches!(lost, Err(OutboxError::LeaseLost(_))), "{lost:?}");
    let lost = house.outbox.renew(zombie.epoch, MINUTE).await;
    assert!(matches!(lost, Err(OutboxError::LeaseLost(_))), "{lost:?}");
    let lost = house.outbox.settle(zombie.epoch, &[]).await;
    assert!(matches!(lost, Err(OutboxError::LeaseLost(_))), "{lost:?}");
    assert_eq!(house.advance(&mut heir, 10).await, ["k-2"], "the heir still has it to publish");
}

#[tokio::test]
async fn on_postgres_an_heir_goes_on_where_the_zombie_has_written() {
    let server = need!(servers::postgres());
    an_heir_goes_on_where_the_zombie_has_written(House::postgres(&server).await).await;
}

#[tokio::test]
async fn on_sqlite_an_heir_goes_on_where_the_zombie_has_written() {
    an_heir_goes_on_where_the_zombie_has_written(House::sqlite().await).await;
}

async fn relays_share_the_shards_and_each_has_one_owner(house: House) {
    let shards = |lease: &Lease| {
        lease.tracks.iter().flat_map(|track| track.shards.clone()).collect::<Vec<_>>()
    };
    let again =
        async |lease: &Lease| house.outbox.lease("again", Some(lease.epoch), MINUTE).await.unwrap();
    let a = house.lease("a").await;
    assert_eq!(shards(&a).len(), 64, "alone, one has all");
    let b = house.lease("b").await;
    assert_eq!(shards(&b).len(), 0, "nothing is free yet");
    let unbalanced = house.outbox.renew(a.epoch, MINUTE).await.unwrap();
    assert_eq!(unbalanced, Renewed::Unbalanced);
    let a = again(&a).await;
    assert_eq!(shards(&a).len(), 32, "the surplus is given back");
    assert_eq!(house.outbox.renew(b.epoch, MINUTE).await.unwrap(), Renewed::Unbalanced);
    let b = again(&b).await;
    assert_eq!(shards(&b).len(), 32);
    assert_eq!(house.outbox.renew(a.epoch, MINUTE).await.unwrap(), Renewed::Held);
    let c = house.lease("c").await;
    let (a, b) = (again(&a).await, again(&b).await);
    let c = again(&c).await;
    let mut all = [shards(&a), shards(&b), shards(&c)].concat();
    all.sort_unstable();
    assert_eq!(all, (0..64).collect::<Vec<_>>(), "every shard once");
    house.outbox.release(c.epoch).await.unwrap();
    let (a, b) = (again(&a).await, again(&b).await);
    assert_eq!(shards(&a).len() + shards(&b).len(), 64, "who leaves is not waited for");
}

#[tokio::test]
async fn on_postgres_relays_share_the_shards_and_each_has_one_owner() {
    let server = need!(servers::postgres());
    relays_share_the_shards_and_each_has_one_owner(House::postgres(&server).await).await;
}

#[tokio::test]
async fn on_sqlite_relays_share_the_shards_and_each_has_one_owner() {
    relays_share_the_shards_and_each_has_one_owner(House::sqlite().await).await;
}

async fn shards_of_different_places_come_together_and_miss_nothing(house: House) {
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    let round = async |n: usize| {
        let events: Vec<Append> = keys.iter().map(|key| event(key, n)).collect();
        house.append(&events).await;
    };
    round(0).await;
    let (mut a, b) = (house.lease("a").await, house.lease("b").await);
    let mut read = house.advance(&mut a, 100).await;
    a = house.outbox.lease("a", Some(a.epoch), MINUTE).await.unwrap();
    let mut b = house.outbox.lease("b", Some(b.epoch), MINUTE).await.unwrap();
    round(1).await;
    read.extend(house.advance(&mut a, 7).await);
    round(2).await;
    // `a` dies in the middle of a chunk; `b` has everything again, from three places.
    house.outbox.release(a.epoch).await.unwrap();
    b = house.outbox.lease("b", Some(b.epoch), MINUTE).await.unwrap();
    assert!(b.tracks.len() > 1);
    for n in 3.. {
        loop {
            let more = house.advance(&mut b, 11).await;
            if more.is_empty() {
                break;
            }
            read.extend(more);
        }
        if n > 3 {
            break;
        }
        round(n).await;
    }
    assert_eq!(b.tracks.len(), 1, "they travel together again");
    let mut tx = house.store.begin_engine().await.unwrap();
    let tracks = match house.store.backend() {
        chapar_sql::Backend::Postgres => "select count(*) from chapar.tracks",
        chapar_sql::Backend::Sqlite => "select count(*) from chapar_tracks",
    };
    assert_eq!(count(&tx.fetch(tracks, vec![]).await.unwrap()), 1, "and leave nothing behind");
    drop(tx);
    assert_eq!(read.len(), 160);
    assert_eq!(read.iter().collect::<HashSet<_>>().len(), 160);
    for key in &keys {
        let of_key: Vec<_> =
            read.iter().filter(|id| id.starts_with(&format!("{key}-"))).cloned().collect();
        let expected: Vec<_> = (0..4).map(|n| format!("{key}-{n}")).collect();
        assert_eq!(of_key, expected);
    }
}

#[tokio::test]
async fn on_postgres_shards_of_different_places_come_together_and_miss_nothing() {
    let server = need!(servers::postgres());
    shards_of_different_places_come_together_and_miss_nothing(House::postgres(&server).await).await;
}

#[tokio::test]
async fn on_sqlite_shards_of_different_places_come_together_and_miss_nothing() {
    shards_of_different_places_come_together_and_miss_nothing(House::sqlite().await).await;
}

async fn parked_rows_keep_their_place_until_released(house: House) {
    house.append(&[event("bad", 1), event("bad", 2), event("good", 1)]).await;
    let mut lease = house.lease("a").await;
    let chunk = house.outbox.read(lease.epoch, &lease.tracks, 10).await.unwrap();
    let seq = |id: &str, chunk: &Chunk| {
        chunk.rows.iter().find(|row| row.event_id.to_string() == id).unwrap().seq
    };
    let (first, second) = (seq("bad-1", &chunk), seq("bad-2", &chunk));
    let park = |seq, fate| Park { seq, fate, stamp: Some(format!("{seq}")) };
    let parks =
        vec![park(first, Fate::Quarantine { error: "poison".into() }), park(second, Fate::Behind)];
    house.write(&mut lease, &chunk, parks).await.unwrap();
    house.append(&[event("bad", 3), event("good", 2)]).await;
    let chunk = house.outbox.read(lease.epoch, &lease.tracks, 10).await.unwrap();
    let behind: Vec<(String, bool)> =
        chunk.rows.iter().map(|row| (row.event_id.to_string(), row.behind)).collect();
    assert!(behind.contains(&("bad-3".into(), true)) && behind.contains(&("good-2".into(), false)));
    let third = seq("bad-3", &chunk);
    house.write(&mut lease, &chunk, vec![park(third, Fate::Behind)]).await.unwrap();
    assert!(house.outbox.due(lease.epoch, 10).await.unwrap().is_empty(), "it is in quarantine");

    let mut tx = house.store.begin_engine().await.unwrap();
    let released = tx.outbox_rows().release_quarantined(first, "me", "mended").await.unwrap();
    assert!(released);
    tx.commit().await.unwrap();
    let due = house.outbox.due(lease.epoch, 10).await.unwrap();
    let ids: Vec<_> = due.iter().map(|row| row.event_id.to_string()).collect();
    assert_eq!(ids, ["bad-1", "bad-2", "bad-3"]);
    assert_eq!(due[1].stamp.as_deref(), Some(second.to_string().as_str()));
    let settled = [
        (first, Settled::Published),
        (second, Settled::Failed { fate: Fate::Quarantine { error: "also".into() }, counts: true }),
    ];
    house.outbox.settle(lease.epoch, &settled).await.unwrap();
    assert!(house.outbox.due(lease.epoch, 10).await.unwrap().is_empty());
    let mut tx = house.store.begin_engine().await.unwrap();
    assert!(tx.outbox_rows().drop_quarantined(second, "me", "nobody wants it").await.unwrap());
    assert!(!tx.outbox_rows().drop_quarantined(third, "me", "not in quarantine").await.unwrap());
    tx.commit().await.unwrap();
    let due = house.outbox.due(lease.epoch, 10).await.unwrap();
    let ids: Vec<_> = due.iter().map(|row| row.event_id.to_string()).collect();
    assert_eq!(ids, ["bad-3"], "the next has moved up");
    house.outbox.settle(lease.epoch, &[(third, Settled::Published)]).await.unwrap();
    house.append(&[event("bad", 4)]).await;
    let chunk = house.outbox.read(lease.epoch, &lease.tracks, 10).await.unwrap();
    assert!(!chunk.rows[0].behind, "the key is free again");
}

#[tokio::test]
async fn on_postgres_parked_rows_keep_their_place_until_released() {
    let server = need!(servers::postgres());
    parked_rows_keep_their_place_until_released(House::postgres(&server).await).await;
}

#[tokio::test]
async fn on_sqlite_parked_rows_keep_their_place_until_released() {
    parked_rows_keep_their_place_until_released(House::sqlite().await).await;
}

async fn bulk(tx: &mut Tx, rows: i64) {
    let insert = "insert into chapar.outbox (event_id, tenant, topic, ordering_key, shard, \
         aggregate_type, aggregate_id, correlation_id, sealed, headers, body) \
         select 'e' || n, 'acme', 't', 'k' || n % 5000, n % 64, '', '', 'c', true, '[]', '' \
         from generate_series(1, $1) n, pg_current_xact_id()";
    tx.execute(insert, vec![rows.into()]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_rows_and_an_old_snapshot_leave_an_empty_look_cheap() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    // Somebody reads for hours: nothing that is deleted or replaced meanwhile can be cleaned up.
    let mut old = house.store.begin_raw().await.unwrap();
    old.execute("set transaction isolation level repeatable read", vec![]).await.unwrap();
    old.fetch("select count(*) from chapar.outbox", vec![]).await.ok();
    let mut lease = house.lease("a").await;
    let mut read = 0;
    for _ in 0..100 {
        let mut tx = house.store.begin_engine().await.unwrap();
        bulk(&mut tx, 10_000).await;
        tx.commit().await.unwrap();
        while let more @ 1.. = house.advance(&mut lease, 10_000).await.len() {
            read += more;
        }
    }
    assert_eq!(read, 1_000_000);
    house.append(&[event("last", 1)]).await;
    assert_eq!(house.advance(&mut lease, 10).await, ["last-1"]);
    let cursor: serde_json::Value = serde_json::from_str(&lease.tracks[0].cursor.0).unwrap();
    let buffers = look(&house, &cursor, cursor["floor"].as_i64().unwrap()).await;
    assert!(buffers < 60, "an empty look takes {buffers} buffers");
    // The same look without what the cursor knows shows that it could be otherwise.
    let naive = look_with_flag(&house).await;
    println!("an empty look: {buffers} buffers, by a flag that was set: {naive}");
    assert!(naive > 20 * buffers, "{naive} against {buffers}");
    drop(old);
}

async fn look(house: &House, cursor: &serde_json::Value, floor: i64) -> i64 {
    let text = format!(
        "explain (analyze, buffers) select * from chapar.open_window('{}', '{}', {}, \
         {floor}, array(select generate_series(0, 63))::smallint[], \
         (select id from chapar.life))",
        cursor["seen"].as_str().unwrap(),
        cursor["seen_xid"],
        cursor["seen_seq"],
    );
    let mut tx = house.store.begin_engine().await.unwrap();
    // The first call of a connection plans and looks things up.
    tx.fetch(text.clone().leak(), vec![]).await.unwrap();
    buffers(&mut tx, text.leak()).await
}

/// What the seeds' relay would do: a flag, an update for each row, and an index of what is left.
async fn look_with_flag(house: &House) -> i64 {
    let mut tx = house.store.begin_raw().await.unwrap();
    let make = "create table flagged (seq bigint primary key, published_at timestamptz)";
    tx.execute(make, vec![]).await.unwrap();
    tx.execute("create index on flagged (seq) where published_at is null", vec![]).await.unwrap();
    tx.execute("insert into flagged select generate_series(1, 100000)", vec![]).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = house.store.begin_raw().await.unwrap();
    tx.execute("update flagged set published_at = now()", vec![]).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = house.store.begin_raw().await.unwrap();
    tx.execute("set enable_seqscan = off", vec![]).await.unwrap();
    let look = "explain (analyze, buffers) select seq from flagged \
                where published_at is null order by seq limit 500";
    buffers(&mut tx, look).await
}

/// The pages that the whole plan has touched: those of its topmost node.
async fn buffers(tx: &mut Tx, explain: &'static str) -> i64 {
    let plan = tx.fetch(explain, vec![]).await.unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0).unwrap()).collect();
    let line = plan.iter().find(|line| line.contains("Buffers:")).unwrap();
    let pages = |name: &str| {
        let (_, after) = line.split_once(name)?;
        after.split(' ').next()?.parse::<i64>().ok()
    };
    pages("hit=").unwrap_or(0) + pages("read=").unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_moves_out_when_all_of_it_is_published_and_old_and_nobody_writes() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    let keep = Keep { rows_per_partition: 1000, ..Keep::default() };
    let old = "update chapar.outbox set written_at = written_at - interval '40 days'";
    let age = async || {
        let mut tx = house.store.begin_engine().await.unwrap();
        tx.execute(old, vec![]).await.unwrap();
        tx.commit().await.unwrap();
    };
    // A writer whose number is in the first partition, and who takes his time.
    let mut late = house.store.begin("acme").await.unwrap();
    late.outbox_rows().append(&[event("late", 1)]).await.unwrap();
    let mut tx = house.store.begin_raw().await.unwrap();
    tx.execute("select setval('chapar.outbox_seq', 1000500)", vec![]).await.unwrap();
    tx.commit().await.unwrap();
    let kept = house.store.keep_house(&keep).await.unwrap();
    assert!(kept.added > 0, "{kept:?}");
    house.append(&[event("k", 1)]).await;
    age().await;
    let mut lease = house.lease("a").await;
    assert_eq!(house.advance(&mut lease, 10).await, ["k-1"]);
    let kept = house.store.keep_house(&keep).await.unwrap();
    assert_eq!(kept.moved_out, 0, "the late writer's row would be lost");
    late.commit().await.unwrap();
    assert_eq!(house.advance(&mut lease, 10).await, ["late-1"]);
    assert_eq!(house.store.keep_house(&keep).await.unwrap().moved_out, 0, "it is not old yet");
    age().await;
    // A transaction in any database of the server holds the floor down, and other tests have some.
    let deadline = Instant::now() + MINUTE;
    let mut appended = 1;
    let kept = loop {
        appended += 1;
        house.append(&[event("k", appended)]).await;
        house.advance(&mut lease, 10).await;
        let kept = house.store.keep_house(&keep).await.unwrap();
        if kept.moved_out > 0 || Instant::now() > deadline {
            break kept;
        }
    };
    assert_eq!(kept.moved_out, 1, "{kept:?}");
    let mut tx = house.store.begin_engine().await.unwrap();
    let held = tx.fetch("select count(*) from chapar.outbox_held", vec![]).await.unwrap();
    assert_eq!(count(&held), 1, "it is held, not gone");
    let left = tx.fetch("select count(*) from chapar.outbox", vec![]).await.unwrap();
    assert_eq!(count(&left), appended as i64);
}

#[tokio::test]
async fn on_sqlite_old_published_rows_are_held_and_old_intents_forgotten() {
    let house = House::sqlite().await;
    let mut intended = event("k", 1);
    intended.idempotency_key = Some("i".into());
    house.append(&[intended.clone(), event("k", 2)]).await;
    let mut tx = house.store.begin_engine().await.unwrap();
    for old in
        ["update chapar_outbox set written_at = 0", "update chapar_idempotency set created_at = 0"]
    {
        tx.execute(old, vec![]).await.unwrap();
    }
    tx.commit().await.unwrap();
    let keep = Keep::default();
    let kept = house.store.keep_house(&keep).await.unwrap();
    assert_eq!((kept.moved_out, kept.intents), (0, 1), "nothing is published yet");
    let mut lease = house.lease("a").await;
    house.advance(&mut lease, 1).await;
    assert_eq!(house.store.keep_house(&keep).await.unwrap().moved_out, 1);
    intended.event_id = "k-9".into();
    house.append(&[intended]).await;
    assert_eq!(house.advance(&mut lease, 10).await, ["k-2", "k-9"], "the window is over");
}

#[test]
fn a_retention_that_breaks_a_promise_is_refused_with_words() {
    let short = Keep { published: Duration::from_secs(60), ..Keep::default() };
    let said = short.check().unwrap_err().to_string();
    assert!(said.contains("at least an hour"), "{said}");
    let short = Keep { intents: Duration::from_secs(60), ..Keep::default() };
    assert!(short.check().unwrap_err().to_string().contains("retries"));
}
