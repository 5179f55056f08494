//! Republish requests in real stores: which rows they cover, in which order, with which stamps,
//! and how far they are.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use chapar_core::machine::stamps::Stamper;
use chapar_core::port::{
    Checkpoint, Fate, Lease, Outbox, OutboxRow, Park, Renewed, Republished, Settled,
};
use chapar_sql::{
    Append, Backend, Keep, RepublishRequest, SqlOutbox, Store, StoreOptions, Tables, Tx,
};
use chapar_testkit::{need, servers};

use crate::house::MINUTE;

const HALF_AN_HOUR: Duration = Duration::from_secs(1800);

/// Runs each test on SQLite and on PostgreSQL.
macro_rules! on_each_store {
    ($($test:ident),* $(,)?) => {
        mod sqlite {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::House::sqlite().await).await;
            }
        )*}
        mod postgres {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let server = chapar_testkit::need!(chapar_testkit::servers::postgres());
                super::$test(super::House::postgres(&server).await).await;
            }
        )*}
    };
}

on_each_store!(
    rows_come_again_before_new_ones_and_with_the_stamps_they_had,
    rows_that_wait_are_parked_or_were_dropped_are_left_out,
    a_row_that_is_refused_goes_before_the_parked_rows_of_its_key,
    a_row_counts_by_when_it_was_published_and_not_by_when_it_was_written,
    another_relay_continues_where_the_first_has_written,
    a_cancelled_request_ends_and_new_rows_flow,
    what_was_republished_since_then_is_covered_too,
    requests_are_carried_out_one_after_the_other,
    notes_about_rows_that_are_gone_go_too_and_the_others_keep_their_stamps,
    a_parked_key_without_a_first_row_gets_one,
);

struct House {
    store: Store,
    outbox: SqlOutbox,
    _place: Box<dyn std::any::Any + Send>,
}

fn event(key: &str, topic: &str, n: usize) -> Append {
    Append { topic: topic.into(), ..crate::house::event(key, n) }
}

fn ids(rows: &[OutboxRow]) -> Vec<String> {
    rows.iter().map(|row| row.event_id.to_string()).collect()
}

impl House {
    async fn postgres(server: &servers::Postgres) -> House {
        let database = server.database("republish").unwrap();
        Self::open(database.url().to_owned(), Box::new(database)).await
    }

    async fn sqlite() -> House {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        Self::open(url, Box::new(folder)).await
    }

    async fn open(url: String, place: Box<dyn std::any::Any + Send>) -> House {
        let store = Store::open(&url, &StoreOptions::default()).await.unwrap();
        store.migrate().await.unwrap();
        House { outbox: SqlOutbox::new(store.clone()), store, _place: place }
    }

    async fn append(&self, events: &[Append]) {
        let mut tx = self.store.begin("acme").await.unwrap();
        tx.outbox_rows().append(events).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn is_new_behind_the_floor(&self) -> bool {
        const BEHIND: &str = "select coalesce((select max(floor) from chapar.relayed) >= \
             (select max(seq) from chapar.outbox where event_id = 'new-0'), false)";
        self.engine().await.fetch(BEHIND, vec![]).await.unwrap()[0].get(0).unwrap()
    }

    async fn engine(&self) -> Tx {
        self.store.begin_engine().await.unwrap()
    }

    async fn lease(&self, owner: &str) -> Lease {
        self.outbox.lease(owner, None, MINUTE).await.unwrap()
    }

    /// What a relay does when the renewal says so.
    async fn lease_again(&self, lease: &mut Lease) {
        let renewed = self.outbox.renew(lease.epoch, MINUTE).await.unwrap();
        assert_eq!(renewed, Renewed::Unbalanced);
        *lease = self.outbox.lease("a", Some(lease.epoch), MINUTE).await.unwrap();
    }

    /// One step: reads, and writes progress with these parked.
    async fn step(&self, lease: &mut Lease, limit: usize, parks: &[&str]) -> Vec<OutboxRow> {
        let chunk = self.outbox.read(lease.epoch, &lease.tracks, limit).await.unwrap();
        lease.tracks.clone_from(&chunk.tracks);
        let (mut parked, mut republished) = (Vec::new(), BTreeMap::<i64, Republished>::new());
        let mut blocked = HashSet::new();
        for row in &chunk.rows {
            let id = row.event_id.to_string();
            let behind = row.behind || blocked.contains(&row.key);
            let taken = !behind && !parks.contains(&id.as_str());
            if !taken {
                blocked.insert(row.key.clone());
                let at = jiff::Timestamp::now() + Duration::from_secs(3600);
                let fate = match behind {
                    true => Fate::Behind,
                    false => Fate::Retry { at, error: "refused".into() },
                };
                parked.push(Park { seq: row.seq, fate, stamp: row.stamp.clone() });
            }
            if let Some(request) = row.republish {
                let counted = republished.entry(request).or_default();
                counted.published += u64::from(taken);
                counted.parked += u64::from(!taken);
            }
        }
        let tracks = chunk.tracks.clone();
        let checkpoint = Checkpoint { tracks, parks: parked, republished };
        self.outbox.checkpoint(lease.epoch, &checkpoint).await.unwrap();
        chunk.rows
    }

    /// Reads everything that is there.
    async fn drain(&self, lease: &mut Lease, parks: &[&str]) -> Vec<OutboxRow> {
        let mut all = Vec::new();
        loop {
            let republishing = lease.tracks.iter().any(|track| track.republishing.is_some());
            let rows = self.step(lease, 3, parks).await;
            if rows.is_empty() && !republishing {
                return all;
            }
            all.extend(rows);
        }
    }

    async fn ask(&self, ago: Duration) -> i64 {
        let mut tx = self.engine().await;
        let id = tx.outbox_rows().ask_to_republish(ago, "op", "a test").await.unwrap();
        tx.commit().await.unwrap();
        id
    }

    async fn request(&self, id: i64) -> RepublishRequest {
        self.engine().await.outbox_rows().republish_request(id).await.unwrap().unwrap()
    }

    async fn run(&self, postgres: &'static str, sqlite: &'static str) {
        let mut tx = self.store.begin_raw().await.unwrap();
        let sql = if tx.backend() == Backend::Postgres { postgres } else { sqlite };
        tx.execute(sql, vec![]).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Moves what was noted so far an hour back.
    async fn an_hour_passes(&self) {
        self.run(
            "update chapar.relayed set at = at - interval '1 hour'",
            "update chapar_relayed set at = at - 3600000000",
        )
        .await;
        self.run(
            "update chapar.outbox_unparked set at = at - interval '1 hour'",
            "update chapar_outbox_unparked set at = at - 3600000000",
        )
        .await;
    }
}

/// Publishes thirty rows of four keys, two of three topics stamped; returns their stamps.
async fn thirty(house: &House, topics: &[String]) -> (Lease, BTreeMap<String, Option<String>>) {
    let mut lease = house.lease("a").await;
    house.outbox.mark(lease.epoch, &lease.tracks, topics).await.unwrap();
    let mut stamper = Stamper::new(topics, 100);
    let mut first = BTreeMap::new();
    for n in 0..30 {
        let topic = ["t", "u", "other"][n * 7 % 3];
        house.append(&[event(&format!("k{}", n % 4), topic, n)]).await;
        if n % 5 == 0 {
            house.outbox.mark(lease.epoch, &lease.tracks, topics).await.unwrap();
        }
        let mut rows = house.step(&mut lease, 10, &[]).await;
        stamper.learn(stamper.unknown(&rows), Vec::new());
        stamper.stamp(n as u64, &mut rows);
        first.extend(rows.into_iter().map(|row| (row.event_id.to_string(), row.stamp)));
    }
    assert_eq!(first.len(), 30);
    assert!(first.values().filter(|stamp| stamp.is_some()).count() == 20, "{first:?}");
    (lease, first)
}

async fn notes_about_rows_that_are_gone_go_too_and_the_others_keep_their_stamps(house: House) {
    let topics = ["t", "u"].map(str::to_owned);
    let (mut lease, first) = thirty(&house, &topics).await;
    house.outbox.mark(lease.epoch, &lease.tracks, &topics).await.unwrap();
    let counts = async || {
        let mut tx = house.engine().await;
        let mut counts = Vec::new();
        for (postgres, sqlite) in [
            (
                "select count(*) from chapar.earlier_marks",
                "select count(*) from chapar_earlier_marks",
            ),
            (
                "select count(*) from chapar.outbox_unparked",
                "select count(*) from chapar_outbox_unparked",
            ),
            ("select count(*) from chapar.relayed", "select count(*) from chapar_relayed"),
        ] {
            let sql = if tx.backend() == Backend::Postgres { postgres } else { sqlite };
            counts.push(tx.fetch(sql, vec![]).await.unwrap()[0].get::<i64>(0).unwrap());
        }
        counts
    };
    // Every row was parked once, and a year of notes was left behind.
    house
        .run(
            "insert into chapar.outbox_unparked (seq, dropped) select seq, false from chapar.outbox",
            "insert into chapar_outbox_unparked (seq, at, dropped) select seq, 0, 0 from chapar_outbox",
        )
        .await;
    house
        .run(
            "insert into chapar.relayed (at, floor) select clock_timestamp() - n * interval '1 hour', 1000 \
             from generate_series(1, 8760) n",
            "insert into chapar_relayed (at, floor) with recursive hours (n) as (select 1 union all \
             select n + 1 from hours where n < 8760) select \
             cast(unixepoch('subsec') * 1000000 as integer) - n * 3600000000, 1000 from hours",
        )
        .await;
    let keep = Keep::default();
    let before = counts().await;
    house.store.keep_house(&keep).await.unwrap();
    let [marks, unparked, relayed] = counts().await[..] else { panic!("three counts") };
    assert_eq!((marks, unparked), (before[0], before[1]), "all rows can be published again");
    assert!((30 * 24 + 330..30 * 24 + 345).contains(&relayed), "{relayed} notes");

    // As if the partition with the first half had been dropped.
    house
        .run(
            "delete from chapar.outbox where seq in (select seq from chapar.outbox order by seq limit 15)",
            "delete from chapar_outbox where seq in (select seq from chapar_outbox order by seq limit 15)",
        )
        .await;
    assert!(house.store.keep_house(&keep).await.unwrap().notes > 0);
    let [fewer_marks, fewer_unparked, _] = counts().await[..] else { panic!("three counts") };
    assert_eq!(fewer_unparked, 15);
    assert!(fewer_marks < marks, "{fewer_marks} of {marks} marks are left");
    assert_eq!(house.store.keep_house(&keep).await.unwrap().notes, 0);

    let days = Duration::from_secs(400 * 24 * 3600);
    house.ask(days).await;
    house.lease_again(&mut lease).await;
    let rows = house.drain(&mut lease, &[]).await;
    assert_eq!(rows.len(), 15);
    for row in &rows {
        assert_eq!(row.stamp, first[&row.event_id.to_string()], "{}", row.event_id);
    }
}

async fn a_parked_key_without_a_first_row_gets_one(house: House) {
    let mut lease = house.lease("a").await;
    for n in 0..3 {
        house.append(&[event("a", "t", n), event("b", "t", n)]).await;
    }
    house.drain(&mut lease, &["a-0", "b-1"]).await;
    house
        .run(
            "delete from chapar.outbox_parked where ordering_key = 'a' and head",
            "delete from chapar_outbox_parked where ordering_key = 'a' and head",
        )
        .await;
    assert!(house.outbox.due(lease.epoch, 10).await.unwrap().is_empty());
    let kept = house.store.keep_house(&Keep::default()).await.unwrap();
    assert_eq!(kept.repaired, 1);
    let due = house.outbox.due(lease.epoch, 10).await.unwrap();
    assert_eq!(ids(&due), ["a-1", "a-2"], "the other key waits for its first row");
}

async fn rows_come_again_before_new_ones_and_with_the_stamps_they_had(house: House) {
    let topics = ["t", "u"].map(str::to_owned);
    let (mut lease, first) = thirty(&house, &topics).await;
    let request = house.ask(HALF_AN_HOUR).await;
    house.append(&[event("k1", "t", 30)]).await;
    house.lease_again(&mut lease).await;
    assert_eq!(lease.tracks[0].republishing, Some(request));
    house.outbox.mark(lease.epoch, &lease.tracks, &topics).await.unwrap();
    house.append(&[event("k2", "t", 31)]).await;
    let rows = house.drain(&mut lease, &[]).await;
    let again: Vec<_> = rows.iter().filter(|row| row.republish.is_some()).collect();
    assert_eq!(again.len(), 30);
    for row in &again {
        assert_eq!(row.stamp, first[&row.event_id.to_string()], "{}", row.event_id);
    }
    assert!(rows[..30].is_sorted_by_key(|row| row.seq));
    assert_eq!(ids(&rows[30..]), ["k1-30", "k2-31"], "new rows come after");
    assert_eq!(house.request(request).await.ended_at, None);
    house.outbox.renew(lease.epoch, MINUTE).await.unwrap();
    let done = house.request(request).await;
    assert!(done.ended_at.is_some() && !done.cancelled, "{done:?}");
    assert_eq!((done.published, done.parked, done.share), (30, 0, 1.0));
}

async fn rows_that_wait_are_parked_or_were_dropped_are_left_out(house: House) {
    let mut lease = house.lease("a").await;
    for n in 0..4 {
        house.append(&[event("a", "t", n), event("b", "t", n)]).await;
    }
    house.drain(&mut lease, &["a-2", "b-1"]).await;
    // The whole of `b` from its second row on is parked; the second is dropped.
    let mut tx = house.engine().await;
    let parked = tx.outbox_rows().parked(false, 10).await.unwrap();
    let of_b = parked.iter().find(|row| row.key.as_deref() == Some("b")).unwrap().seq;
    let quarantine = Fate::Quarantine { error: "never".into() };
    let settled = Settled::Failed { fate: quarantine, counts: true };
    drop(tx);
    house.outbox.settle(lease.epoch, &[(of_b, settled)]).await.unwrap();
    let mut tx = house.engine().await;
    assert!(tx.outbox_rows().drop_quarantined(of_b, "op", "a test").await.unwrap());
    tx.commit().await.unwrap();
    let due = house.outbox.due(lease.epoch, 10).await.unwrap();
    let published: Vec<_> = due.iter().map(|row| (row.seq, Settled::Published)).collect();
    assert_eq!(ids(&due), ["b-2", "b-3"]);
    house.outbox.settle(lease.epoch, &published).await.unwrap();
    house.append(&[event("c", "t", 0)]).await;

    house.ask(HALF_AN_HOUR).await;
    house.lease_again(&mut lease).await;
    let rows = house.drain(&mut lease, &[]).await;
    let (again, new): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.republish.is_some());
    assert_eq!(ids(&again), ["a-0", "b-0", "a-1", "b-2", "b-3"]);
    assert_eq!(ids(&new), ["c-0"]);
}

async fn a_row_that_is_refused_goes_before_the_parked_rows_of_its_key(house: House) {
    let mut lease = house.lease("a").await;
    for n in 0..5 {
        house.append(&[event("a", "t", n)]).await;
    }
    house.drain(&mut lease, &["a-3"]).await;
    let heads = async || {
        let rows = house.engine().await.outbox_rows().parked(false, 10).await.unwrap();
        rows.iter().map(|row| (row.event_id.clone(), row.behind)).collect::<Vec<_>>()
    };
    assert_eq!(heads().await, [("a-3".to_owned(), 1)]);
    let request = house.ask(HALF_AN_HOUR).await;
    house.lease_again(&mut lease).await;
    let rows = house.drain(&mut lease, &["a-1"]).await;
    assert_eq!(ids(&rows), ["a-0", "a-1", "a-2"]);
    assert_eq!(heads().await, [("a-1".to_owned(), 3)], "it is the only head of its key");
    assert_eq!(house.request(request).await.parked, 2);
}

async fn a_row_counts_by_when_it_was_published_and_not_by_when_it_was_written(house: House) {
    let mut lease = house.lease("a").await;
    house.append(&[event("parked", "t", 0)]).await;
    house.drain(&mut lease, &["parked-0"]).await;
    house.append(&[event("old", "t", 0)]).await;
    // A number is taken, and its transaction commits much later.
    let mut late = None;
    if house.store.backend() == Backend::Postgres {
        let mut tx = house.store.begin("acme").await.unwrap();
        tx.outbox_rows().append(&[event("late", "t", 0)]).await.unwrap();
        late = Some(tx);
    }
    for n in 0..4 {
        house.append(&[event("busy", "t", n)]).await;
        house.drain(&mut lease, &[]).await;
    }
    house.outbox.renew(lease.epoch, MINUTE).await.unwrap();
    house.an_hour_passes().await;

    if let Some(late) = late {
        late.commit().await.unwrap();
    }
    house.append(&[event("new", "t", 0)]).await;
    house.drain(&mut lease, &[]).await;
    let mut tx = house.engine().await;
    let seq = tx.outbox_rows().parked(false, 1).await.unwrap()[0].seq;
    drop(tx);
    house.outbox.settle(lease.epoch, &[(seq, Settled::Published)]).await.unwrap();
    house.ask(HALF_AN_HOUR).await;
    house.lease_again(&mut lease).await;
    let again = ids(&house.drain(&mut lease, &[]).await);
    assert_eq!(again.first().map(String::as_str), Some("parked-0"), "{again:?}");
    assert_eq!(again.last().map(String::as_str), Some("new-0"), "{again:?}");
    if house.store.backend() == Backend::Postgres {
        assert!(again.contains(&"late-0".into()), "{again:?}");
    } else {
        assert_eq!(again.len(), 2, "nothing that was published before: {again:?}");
    }

    // Two hours later, nothing was published within the last half.
    house.outbox.renew(lease.epoch, MINUTE).await.unwrap();
    // The floor rises once no transaction of the server, which other tests use too, is older.
    let began = std::time::Instant::now();
    let mut n = 0;
    loop {
        house.run("delete from chapar.relayed", "delete from chapar_relayed").await;
        for _ in 0..3 {
            house.append(&[event("floor", "t", n)]).await;
            house.drain(&mut lease, &[]).await;
            n += 1;
        }
        house.outbox.renew(lease.epoch, MINUTE).await.unwrap();
        if house.store.backend() == Backend::Sqlite || house.is_new_behind_the_floor().await {
            break;
        }
        assert!(began.elapsed() < MINUTE, "a transaction of another test stays open");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    house.an_hour_passes().await;
    house
        .run(
            "update chapar.republish_requests set ended_at = ended_at - interval '1 hour'",
            "update chapar_republish_requests set ended_at = ended_at - 3600000000",
        )
        .await;
    house.ask(HALF_AN_HOUR).await;
    house.lease_again(&mut lease).await;
    let again = ids(&house.drain(&mut lease, &[]).await);
    assert!(!again.contains(&"parked-0".into()) && !again.contains(&"old-0".into()), "{again:?}");
}

async fn another_relay_continues_where_the_first_has_written(house: House) {
    let mut lease = house.lease("a").await;
    for n in 0..10 {
        house.append(&[event("a", "t", n)]).await;
    }
    house.drain(&mut lease, &[]).await;
    let request = house.ask(HALF_AN_HOUR).await;
    house.lease_again(&mut lease).await;
    assert_eq!(house.step(&mut lease, 4, &[]).await.len(), 4);
    let share = house.request(request).await.share;
    assert!((0.3..0.6).contains(&share), "{share}");
    // Read, and published perhaps; then it dies.
    assert_eq!(house.outbox.read(lease.epoch, &lease.tracks, 4).await.unwrap().rows.len(), 4);
    house.outbox.release(lease.epoch).await.unwrap();
    let mut heir = house.lease("b").await;
    assert_eq!(heir.tracks[0].republishing, Some(request));
    let rows = house.drain(&mut heir, &[]).await;
    assert_eq!(ids(&rows), (4..10).map(|n| format!("a-{n}")).collect::<Vec<_>>());
    house.outbox.renew(heir.epoch, MINUTE).await.unwrap();
    let done = house.request(request).await;
    assert!(done.ended_at.is_some() && done.published == 10, "{done:?}");
}

async fn a_cancelled_request_ends_and_new_rows_flow(house: House) {
    let mut lease = house.lease("a").await;
    for n in 0..10 {
        house.append(&[event("a", "t", n)]).await;
    }
    house.drain(&mut lease, &[]).await;
    let request = house.ask(HALF_AN_HOUR).await;
    house.lease_again(&mut lease).await;
    house.step(&mut lease, 4, &[]).await;
    house.append(&[event("a", "t", 10)]).await;
    let mut tx = house.engine().await;
    assert!(tx.outbox_rows().cancel_republish(request, "op", "enough").await.unwrap());
    assert!(!tx.outbox_rows().cancel_republish(request, "op", "enough").await.unwrap());
    let audit = tx.audit_log().lines(&Default::default(), 10).await.unwrap();
    tx.commit().await.unwrap();
    let actions: Vec<_> = audit.iter().map(|line| line.action.as_str()).collect();
    assert_eq!(actions, ["outbox.republish.cancel", "outbox.republish"]);
    house.lease_again(&mut lease).await;
    assert_eq!(ids(&house.drain(&mut lease, &[]).await), ["a-10"]);
    assert_eq!(house.outbox.renew(lease.epoch, MINUTE).await.unwrap(), Renewed::Held);
    let done = house.request(request).await;
    assert!(done.cancelled && done.published == 4, "{done:?}");
}

async fn what_was_republished_since_then_is_covered_too(house: House) {
    let mut lease = house.lease("a").await;
    house.append(&[event("a", "t", 0)]).await;
    house.drain(&mut lease, &[]).await;
    house.append(&[event("a", "t", 1)]).await;
    house.drain(&mut lease, &[]).await;
    house.outbox.renew(lease.epoch, MINUTE).await.unwrap();
    for _ in 0..24 {
        house.an_hour_passes().await;
    }
    house.ask(48 * 2 * HALF_AN_HOUR).await;
    house.lease_again(&mut lease).await;
    assert_eq!(house.drain(&mut lease, &[]).await.len(), 2);
    house.outbox.renew(lease.epoch, MINUTE).await.unwrap();
    // The broker loses it a second time.
    house.ask(HALF_AN_HOUR).await;
    house.lease_again(&mut lease).await;
    assert_eq!(house.drain(&mut lease, &[]).await.len(), 2);
}

async fn requests_are_carried_out_one_after_the_other(house: House) {
    let mut lease = house.lease("a").await;
    for n in 0..5 {
        house.append(&[event("a", "t", n)]).await;
    }
    house.drain(&mut lease, &[]).await;
    let requests = [house.ask(HALF_AN_HOUR).await, house.ask(HALF_AN_HOUR).await];
    for request in requests {
        house.lease_again(&mut lease).await;
        let rows = house.drain(&mut lease, &[]).await;
        assert!(rows.len() == 5 && rows.iter().all(|row| row.republish == Some(request)));
    }
    house.outbox.renew(lease.epoch, MINUTE).await.unwrap();
    let listed = house.engine().await.outbox_rows().republish_requests(10).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|request| (request.id, request.published)).collect();
    assert_eq!(listed, [(requests[1], 5), (requests[0], 5)]);
}

#[tokio::test]
async fn on_sqlite_rows_that_were_moved_out_come_again_and_can_be_parked() {
    let house = House::sqlite().await;
    let mut lease = house.lease("a").await;
    for n in 0..3 {
        house.append(&[event("a", "t", n)]).await;
    }
    house.drain(&mut lease, &[]).await;
    house.run("", "insert into chapar_outbox_held select * from chapar_outbox").await;
    house.run("", "delete from chapar_outbox").await;
    house.ask(HALF_AN_HOUR).await;
    house.lease_again(&mut lease).await;
    assert_eq!(ids(&house.drain(&mut lease, &["a-1"]).await), ["a-0", "a-1", "a-2"]);
    let parked = house.engine().await.outbox_rows().parked(false, 10).await.unwrap();
    assert_eq!((parked[0].event_id.as_str(), parked[0].behind), ("a-1", 1));
    house.run("", "update chapar_outbox_parked set next_attempt_at = null").await;
    let due = house.outbox.due(lease.epoch, 10).await.unwrap();
    assert_eq!(ids(&due), ["a-1", "a-2"]);
}

#[tokio::test]
async fn on_postgres_rows_that_were_moved_out_come_again() {
    let server = need!(servers::postgres());
    let house = House::postgres(&server).await;
    let mut lease = house.lease("a").await;
    house.append(&[event("a", "t", 0), event("a", "t", 1)]).await;
    house.drain(&mut lease, &[]).await;
    let mut tx = house.store.begin_raw().await.unwrap();
    for sql in [
        "select chapar.extend_outbox(1000000)",
        "alter table chapar.outbox detach partition chapar.outbox_1",
        "alter table chapar.outbox_held attach partition chapar.outbox_1 \
         for values from (1) to (1000001)",
    ] {
        tx.execute(sql, vec![]).await.unwrap();
    }
    tx.commit().await.unwrap();
    house.ask(HALF_AN_HOUR).await;
    house.lease_again(&mut lease).await;
    assert_eq!(ids(&house.drain(&mut lease, &["a-0"]).await), ["a-0", "a-1"]);
    let parked = house.engine().await.outbox_rows().parked(false, 10).await.unwrap();
    assert_eq!(parked[0].event_id, "a-0");
}
