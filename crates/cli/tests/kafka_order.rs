//! Several topics of one aggregate over Kafka, to consumer processes that join, leave, are killed
//! and are frozen under load: every key is applied once and in the order of its commits.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar::{
    App, Chapar, Consumer, Cx, Draft, Envelope, Failure, Payload, Producer, Service, Store,
    StoreOptions, Tenant,
};
use chapar_core::Aggregate;
use chapar_core::dialect::MetadataJson;
use chapar_sql::Value;
use chapar_testkit::need;
use chapar_testkit::servers::{self, Kind, Launch};
use chapar_transports::kafka::{Kafka, KafkaOptions};
use serde::{Deserialize, Serialize};

const TOPICS: [&str; 3] = [
    "melmastoon.reservation.booking.held.v1",
    "melmastoon.reservation.booking.confirmed.v1",
    "melmastoon.reservation.booking.modified.v1",
];
const KEYS: i64 = 12;
const VARIABLE: &str = "CHAPAR_KAFKA_ORDER";
const SESSION: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
struct Noted {
    key: String,
    n: i64,
}

fn backbone(store: Store) -> Chapar {
    let profile = chapar_testkit::profile("melmastoon");
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    Chapar::builder(store, profile, Arc::new(MetadataJson)).producer(producer).build()
}

async fn carrier(url: &str, owner: &str) -> Arc<Kafka> {
    let options = KafkaOptions { owner: owner.into(), session: SESSION, ..KafkaOptions::default() };
    Arc::new(Kafka::connect(url, options).await.unwrap())
}

fn reader(name: &str) -> Consumer {
    Consumer::named(name).lanes(2).batch(5).on_any(
        &TOPICS,
        async |event: Arc<Envelope>, cx: &mut Cx| {
            const INSERT: &str = "insert into notes (n, tenant, key, by) values ($1, $2, $3, $4)";
            let noted: Noted =
                event.payload.parse().map_err(|e| Failure::terminal(e.to_string()))?;
            let tenant = cx.tenant().as_str().to_owned();
            let by = std::process::id().to_string();
            let values = vec![noted.n.into(), tenant.into(), noted.key.into(), by.into()];
            cx.tx().execute(INSERT, values).await?;
            Ok(())
        },
    )
}

/// In a process of [`Process::start`]: works until standard input ends. Elsewhere: nothing.
#[test]
fn worker() {
    let Ok(orders) = std::env::var(VARIABLE) else { return };
    let [owner, kafka, store] = orders.splitn(3, ' ').collect::<Vec<_>>()[..] else { return };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(store, &StoreOptions::default()).await.unwrap();
        let app = App::new(backbone(store), carrier(kafka, owner).await, owner).without_relay();
        let running = app
            .service(Service::new("inventory-service").consumer(reader("c")))
            .start()
            .await
            .unwrap();
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let _ = ended.await;
        running.stop(Duration::from_secs(10)).await;
    });
}

/// A process with one consumer; it is killed when this value goes.
struct Process(Child);

impl Process {
    fn start(owner: &str, kafka: &str, store: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, format!("{owner} {kafka} {store}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Process(child)
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Lets it end in good order, and waits until it has.
    fn leave(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct House {
    chapar: Chapar,
    last: i64,
}

impl House {
    async fn open(url: &str) -> Self {
        let store = Store::open(url, &StoreOptions::default()).await.unwrap();
        store.migrate().await.unwrap();
        let mut tx = store.begin_raw().await.unwrap();
        let create = "create table notes (id bigint generated always as identity, n bigint not \
                      null, tenant text not null, key text not null, by text not null)";
        tx.execute(create, vec![]).await.unwrap();
        tx.execute("call chapar.protect('notes'::regclass)", vec![]).await.unwrap();
        tx.commit().await.unwrap();
        House { chapar: backbone(store), last: 0 }
    }

    /// Appends the next numbers of every key, each to the next of the topics.
    async fn append(&mut self, count: i64) {
        let tenant: Tenant = "acme".parse().unwrap();
        for _ in 0..count {
            self.last += 1;
            let n = self.last;
            for key in 0..KEYS {
                let key = format!("b{key}");
                let payload = Payload::json(&Noted { key: key.clone(), n }).unwrap();
                let intent = format!("{key}:{n}");
                let aggregate = Aggregate { kind: "booking".into(), id: key, version: None };
                let topic = TOPICS[n as usize % TOPICS.len()];
                let draft = Draft::new(topic, aggregate, payload);
                let draft = draft.idempotency_key(intent);
                let mut tx = self.chapar.begin(&tenant).await.unwrap();
                self.chapar.append(&mut tx, &tenant, draft).await.unwrap();
                self.chapar.commit(tx).await.unwrap();
            }
        }
    }

    async fn ints(&self, sql: &'static str, of: impl Into<Value>) -> Vec<i64> {
        let mut tx = self.chapar.store().begin_report().await.unwrap();
        let rows = tx.fetch(sql, vec![of.into()]).await.unwrap();
        rows.iter().map(|row| row.get(0).unwrap()).collect()
    }

    /// How much a process has applied.
    async fn by(&self, process: &Process) -> i64 {
        let id = process.0.id().to_string();
        self.ints("select count(*) from notes where by = $1", id).await[0]
    }

    /// Freezes a process in no transaction. In the middle of one it would keep its rows locked, and
    /// its successor could only wait, like the database itself.
    async fn freeze(&self, process: &Process) {
        const OPEN: &str = "select count(*) from pg_stat_activity where state = 'idle in transaction' \
                            and datname = current_database()";
        loop {
            process.signal("-STOP");
            for _ in 0..50 {
                let mut tx = self.chapar.store().begin_raw().await.unwrap();
                let open: i64 = tx.fetch(OPEN, vec![]).await.unwrap()[0].get(0).unwrap();
                tx.rollback().await.unwrap();
                if open == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            process.signal("-CONT");
        }
    }

    /// Waits until every key has been applied, and sees that it was once and in order.
    async fn wait_until_applied(&self, patience: Duration) {
        let limit = Instant::now() + patience;
        for key in 0..KEYS {
            let key = format!("b{key}");
            let applied = async || {
                self.ints("select n from notes where key = $1 order by id", key.clone()).await
            };
            while (applied().await.len() as i64) < self.last {
                assert!(Instant::now() < limit, "{key}: {:?} of {}", applied().await, self.last);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(applied().await, (1..=self.last).collect::<Vec<_>>(), "{key}");
        }
    }

    /// Appends until a process has applied more than it had.
    async fn append_until_it_works(&mut self, process: &Process) {
        let (before, limit) = (self.by(process).await, Instant::now() + Duration::from_secs(60));
        while self.by(process).await == before {
            assert!(Instant::now() < limit, "a process gets nothing");
            self.append(1).await;
        }
    }
}

/// Whatever partition fills the consumer's hands first, the rest has what that one waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_with_its_hands_full_still_gets_what_it_waits_for() {
    let (server, kafka) = (need!(servers::postgres()), need!(servers::kafka()));
    let database = server.database("full").unwrap();
    let url = format!("kafka://{}", kafka.url());
    let mut house = House::open(database.url()).await;
    let relay = App::new(house.chapar.clone(), carrier(&url, "relay").await, "relay");
    let relay = relay.stamp(TOPICS).start().await.unwrap();
    house.append(10).await;
    let kafka = carrier(&url, "full").await;
    let app = App::new(house.chapar.clone(), kafka, "full").without_relay();
    // The default waits 30 s before it goes on out of order: longer than this test.
    let narrow = reader("full").max_in_flight(3);
    let running =
        app.service(Service::new("inventory-service").consumer(narrow)).start().await.unwrap();
    house.wait_until_applied(Duration::from_secs(25)).await;
    running.stop(Duration::from_secs(10)).await;
    relay.stop(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_over_three_topics_is_applied_once_and_in_order_whatever_becomes_of_processes() {
    let (server, kafka) = (need!(servers::postgres()), need!(Launch::of(Kind::Kafka).start()));
    let database = server.database("order").unwrap();
    let url = format!("kafka://{}", kafka.url());
    let mut house = House::open(database.url()).await;
    let relay = App::new(house.chapar.clone(), carrier(&url, "relay").await, "relay");
    let relay = relay.stamp(TOPICS).start().await.unwrap();
    let start = |owner: &str| Process::start(owner, &url, database.url());

    let (first, second) = (start("p1"), start("p2"));
    house.append_until_it_works(&first).await;
    house.append_until_it_works(&second).await;
    // Joins.
    let third = start("p3");
    house.append_until_it_works(&third).await;
    // Leaves in good order, under load.
    first.leave();
    house.append(3).await;
    // Is killed.
    drop(second);
    house.append_until_it_works(&third).await;
    let fourth = start("p4");
    house.append_until_it_works(&fourth).await;
    // Is frozen for longer than its session; the other takes over. Then it wakes.
    house.freeze(&third).await;
    let (frozen, n) = (Instant::now(), house.last + 1);
    house.append(1).await;
    let limit = Instant::now() + Duration::from_secs(60);
    while frozen.elapsed() < SESSION * 2 || {
        let done = "select count(*) from notes where n >= $1";
        house.ints(done, n).await[0] < KEYS
    } {
        assert!(Instant::now() < limit, "the partitions of the frozen are not taken over");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    third.signal("-CONT");
    house.append_until_it_works(&third).await;
    house.append(3).await;

    house.wait_until_applied(Duration::from_secs(60)).await;
    relay.stop(Duration::from_secs(10)).await;
}
