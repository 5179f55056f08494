//! The transport in the database keeps the contract of transports, on both databases.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar_core::Id;
use chapar_core::port::{
    DeclaredSubscription, Delivery, Outgoing, Pruning, SeekTo, Subscription, SubscriptionSpec,
    TopicSpec, Topology, Transport, TransportError,
};
use chapar_sql::{SqlTransport, Store, StoreOptions, Tables};
use chapar_testkit::conformance::{Bench, Need};
use chapar_testkit::servers::{self, Instance, Kind, Launch, ServerError};
use chapar_testkit::{conformance, need};

const LEASE: Duration = Duration::from_millis(900);

struct SqliteBench(tempfile::TempDir);

impl Bench for SqliteBench {
    // The one writer of a file, frozen, has it locked for all.
    const FREEZES: bool = false;

    fn open(_need: Need) -> Result<Self, ServerError> {
        Ok(SqliteBench(tempfile::tempdir().unwrap()))
    }

    fn address(&self) -> String {
        format!("sqlite:{}", self.0.path().join("log.db").display())
    }

    async fn connect(address: &str, owner: &str) -> Arc<dyn Transport> {
        connect(address, owner).await
    }
}

struct PostgresBench {
    place: Place,
}

enum Place {
    Shared(servers::Database),
    Own(Box<Instance>),
}

impl Bench for PostgresBench {
    fn open(need: Need) -> Result<Self, ServerError> {
        let place = match need {
            Need::Own => Place::Own(Box::new(Launch::of(Kind::Postgres).start()?)),
            _ => Place::Shared(servers::postgres()?.database("transport")?),
        };
        Ok(PostgresBench { place })
    }

    fn address(&self) -> String {
        match &self.place {
            Place::Shared(database) => database.url().to_owned(),
            Place::Own(server) => server.url().to_owned(),
        }
    }

    async fn connect(address: &str, owner: &str) -> Arc<dyn Transport> {
        connect(address, owner).await
    }

    fn crash(&mut self) -> bool {
        if let Place::Own(server) = &mut self.place {
            server.kill();
        }
        true
    }

    fn revive(&mut self) {
        if let Place::Own(server) = &mut self.place {
            server.restart().unwrap();
        }
    }
}

async fn connect(address: &str, owner: &str) -> Arc<dyn Transport> {
    let options = StoreOptions { max_connections: 3, ..StoreOptions::default() };
    let store = Store::open(address, &options).await.unwrap();
    store.migrate().await.unwrap();
    Arc::new(SqlTransport::new(store, owner).lease(LEASE))
}

conformance!(sqlite, SqliteBench);
conformance!(postgres, PostgresBench);

#[tokio::test]
async fn partitions_are_shared_evenly_and_handed_over_without_a_redelivery() {
    let bench = SqliteBench::open(Need::Shared).unwrap();
    let store = Store::open(&bench.address(), &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let spec = SubscriptionSpec {
        name: "reader".into(),
        topics: vec!["orders".into()],
        ack_deadline: Duration::from_secs(30),
        max_in_flight: 64,
    };
    let transports =
        ["a", "b", "c"].map(|owner| SqlTransport::new(store.clone(), owner).lease(LEASE));
    let batch = (0..64).map(|number| message(&format!("key-{number}"))).collect();
    for receipt in transports[0].publish(batch).await {
        receipt.unwrap();
    }
    let first = transports[0].subscribe(&spec).await.unwrap();
    let open = fetch(&*first, 64).await;
    let second = transports[1].subscribe(&spec).await.unwrap();
    let since = Instant::now();
    while since.elapsed() < LEASE * 2 {
        // What is in flight stays where it is, for as long as it takes.
        let (one, two) =
            (first.fetch(8, TICK).await.unwrap(), second.fetch(8, TICK).await.unwrap());
        assert!(one.is_empty() && two.is_empty(), "a process joined, and a message came twice");
    }
    let tokens: Vec<_> = open.into_iter().map(|delivery| delivery.token).collect();
    first.ack(&tokens).await.unwrap();
    shares(&store, &[&*first, &*second], &[4, 4]).await;
    let third = transports[2].subscribe(&spec).await.unwrap();
    shares(&store, &[&*first, &*second, &*third], &[2, 3, 3]).await;
    second.close().await.unwrap();
    shares(&store, &[&*first, &*third], &[4, 4]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_commits_late_is_not_skipped() {
    let server = need!(servers::postgres());
    let database = server.database("late").unwrap();
    let writer = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    writer.migrate().await.unwrap();
    let transport = SqlTransport::new(writer, "a");
    let spec = SubscriptionSpec {
        name: "reader".into(),
        topics: vec!["orders".into()],
        ack_deadline: Duration::from_secs(30),
        max_in_flight: 1000,
    };
    let reader = transport.subscribe(&spec).await.unwrap();
    let publishers: Vec<_> = (0..6)
        .map(|publisher| {
            let transport = transport.clone();
            tokio::spawn(async move {
                for number in 0..20 {
                    // Keys of all publishers meet in the same partitions.
                    let batch = (0..5).map(|n| message(&format!("{publisher}-{number}-{n}")));
                    for receipt in transport.publish(batch.collect()).await {
                        receipt.unwrap();
                    }
                }
            })
        })
        .collect();
    let mut offsets: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for delivery in fetch(&*reader, 600).await {
        let position = delivery.token.position;
        offsets.entry(position.partition).or_default().push(position.offset);
    }
    for publisher in publishers {
        publisher.await.unwrap();
    }
    for (partition, offsets) in offsets {
        let dense: Vec<u64> = (1..=offsets.len() as u64).collect();
        assert_eq!(offsets, dense, "partition {partition} has no holes and is in order");
    }
}

const TICK: Duration = Duration::from_millis(10);

/// Everybody goes on until the partitions are shared like this, smallest share first.
async fn shares(store: &Store, members: &[&dyn Subscription], expected: &[i64]) {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        for member in members {
            assert!(member.fetch(1, TICK).await.unwrap().is_empty());
        }
        let count = "select count(*) from chapar_cursors where owner is not null \
             group by owner order by count(*)";
        let mut tx = store.begin_engine().await.unwrap();
        let rows = tx.fetch(count, vec![]).await.unwrap();
        tx.rollback().await.unwrap();
        let found: Vec<i64> = rows.iter().map(|row| row.get(0).unwrap()).collect();
        if found == expected {
            return;
        }
        assert!(Instant::now() < limit, "shared as {found:?}, not as {expected:?}");
    }
}

async fn fetch(reader: &dyn Subscription, count: usize) -> Vec<Delivery> {
    let (mut got, limit) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    while got.len() < count {
        got.extend(reader.fetch(count, Duration::from_millis(200)).await.unwrap());
        assert!(Instant::now() < limit, "{} of {count} arrived in time", got.len());
    }
    got
}

fn message(key: &str) -> Outgoing {
    Outgoing {
        id: Id::uuid_v4(fastrand::u128(..)),
        topic: "orders".into(),
        tenant: "acme".into(),
        key: Some(key.into()),
        headers: Default::default(),
        body: "{}".into(),
    }
}

async fn is_compared_with_a_catalog(address: &str) {
    let transport = connect(address, "a").await;
    let topic = "hotel.booking.held.v1".to_owned();
    let declared = DeclaredSubscription {
        name: "billing.hotel.booking.held.v1.sub".into(),
        service: "billing".into(),
        topic: topic.clone(),
        ordered: true,
        dead_letter_topic: format!("{topic}.dlq"),
    };
    let spec = TopicSpec { name: topic.clone(), partitions: 3, retention: LEASE };
    let wanted = Topology {
        system: "hotel".into(),
        topics: vec![spec],
        publishers: BTreeMap::new(),
        subscriptions: vec![declared],
    };
    assert_eq!(transport.plan(&wanted).await.unwrap(), [], "topics need no setting up");
    let subscription = |name: &str, topic: &str| SubscriptionSpec {
        name: name.into(),
        topics: vec![topic.into()],
        ack_deadline: Duration::from_secs(30),
        max_in_flight: 10,
    };
    let folios = subscription("billing.folios", &topic);
    let (curious, stranger) =
        (subscription("billing.odd", "hotel.x.v1"), subscription("spa.slots", &topic));
    transport.apply(&[], &[folios, curious, subscription("bank.x", "bank.x.v1")]).await.unwrap();
    let reader = transport.subscribe(&stranger).await.unwrap();
    reader.fetch(1, Duration::ZERO).await.unwrap();
    let plan = transport.plan(&wanted).await.unwrap();
    let names: Vec<&str> = plan.iter().map(|difference| difference.name.as_str()).collect();
    assert_eq!(names, ["billing.odd", "spa.slots"]);
    assert_eq!(plan[0].to_do(Pruning::Delete), None, "a consumer is changed by its own process");
    let refused = transport.carry_out(&wanted, &plan[1]).await.unwrap_err();
    assert!(refused.to_string().contains("read by 1 processes"), "{refused}");
    reader.close().await.unwrap();
    for _ in 0..2 {
        transport.carry_out(&wanted, &plan[1]).await.unwrap();
    }
    assert_eq!(transport.plan(&wanted).await.unwrap(), plan[..1]);
}

#[tokio::test]
async fn the_log_is_compared_with_a_catalog_on_sqlite() {
    let bench = SqliteBench::open(Need::Shared).unwrap();
    is_compared_with_a_catalog(&bench.address()).await;
}

#[tokio::test]
async fn the_log_is_compared_with_a_catalog_on_postgres() {
    let bench = need!(PostgresBench::open(Need::Shared));
    is_compared_with_a_catalog(&bench.address()).await;
}

fn numbered(key: &str, n: usize) -> Outgoing {
    Outgoing {
        id: format!("{key}-{n}").parse().unwrap(),
        topic: "orders".into(),
        tenant: "acme".into(),
        key: Some(key.into()),
        headers: chapar_core::Headers::new(),
        body: "{}".into(),
    }
}

/// Changes a setting of the database; it holds for connections that are made afterwards.
async fn set(database: &servers::Database, setting: &str) {
    let store = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    let mut tx = store.begin_raw().await.unwrap();
    tx.execute("set local transaction_read_only = off", vec![]).await.unwrap();
    let sql = format!("alter database {} {setting}", database.name());
    tx.execute(sql.leak(), vec![]).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_read_only_spell_and_a_lock_timeout_refuse_no_message() {
    let database = need!(servers::postgres()).database("spell").unwrap();
    connect(database.url(), "a").await;
    set(&database, "set default_transaction_read_only = on").await;
    let store = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    let answers =
        SqlTransport::new(store, "a").publish(vec![numbered("k", 1), numbered("l", 1)]).await;
    let passing =
        |answer: &Result<_, TransportError>| matches!(answer, Err(TransportError::Unavailable(_)));
    assert!(answers.iter().all(passing), "{answers:?}");
    set(&database, "reset default_transaction_read_only").await;
    set(&database, "set lock_timeout = '50ms'").await;
    let store = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    let mut other = store.begin_engine().await.unwrap();
    other.execute("lock table chapar.log in exclusive mode", vec![]).await.unwrap();
    let transport = SqlTransport::new(store.clone(), "a");
    let answers = transport.publish(vec![numbered("k", 1), numbered("l", 1)]).await;
    assert!(answers.iter().all(passing), "{answers:?}");
    other.rollback().await.unwrap();
    let answers = transport.publish(vec![numbered("k", 1), numbered("l", 1)]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test]
async fn only_the_message_that_the_database_refuses_is_refused_and_its_key_waits() {
    let database = need!(servers::postgres()).database("refused").unwrap();
    let transport = connect(database.url(), "a").await;
    let mut batch: Vec<Outgoing> = (1..=9).map(|n| numbered(&format!("k{}", n % 3), n)).collect();
    batch[3].topic = "a text with a \0 is refused by PostgreSQL".into();
    let answers = transport.publish(batch).await;
    let said: Vec<&str> = answers
        .iter()
        .map(|answer| match answer {
            Ok(_) => "published",
            Err(TransportError::Refused(_)) => "refused",
            Err(_) => "waits",
        })
        .collect();
    assert_eq!(said[3], "refused", "{answers:?}");
    assert_eq!(said[6], "waits", "a later one of its key: {answers:?}");
    assert_eq!(said.iter().filter(|said| **said == "published").count(), 7, "{answers:?}");
}

async fn a_topic_that_comes_later_starts_behind_what_was_applied(address: &str) {
    let published = async |transport: &dyn Transport, topic: &str, key: &str, n: usize| {
        let body = format!("{key}-{n}").into();
        let message = Outgoing { topic: topic.into(), body, ..numbered(key, n) };
        transport.publish(vec![message]).await.remove(0).unwrap();
    };
    let spec = |topics: &[&str]| SubscriptionSpec {
        name: "reader".into(),
        topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        ack_deadline: Duration::from_secs(30),
        max_in_flight: 10,
    };
    let ids = |got: &[Delivery]| {
        let id = |one: &Delivery| String::from_utf8_lossy(&one.body).into_owned();
        let mut ids: Vec<String> = got.iter().map(id).collect();
        ids.sort_unstable();
        ids
    };
    let old = connect(address, "old").await;
    for (topic, n) in [("orders", 1), ("refunds", 2), ("orders", 3)] {
        for key in ["applied", "waiting"] {
            published(&*old, topic, key, n).await;
        }
    }
    let reader = old.subscribe(&spec(&["orders"])).await.unwrap();
    assert_eq!(fetch(&*reader, 4).await.len(), 4);
    // It applies those of one key, and dies before its cursor says so.
    let store = Store::open(address, &StoreOptions::default()).await.unwrap();
    let mut tx = store.begin_engine().await.unwrap();
    let applied = [("applied-1", "orders"), ("applied-3", "orders")];
    tx.inbox().claim("reader", "acme", &applied).await.unwrap();
    tx.commit().await.unwrap();
    drop(reader);
    let new = connect(address, "new").await;
    let reader = new.subscribe(&spec(&["orders", "refunds"])).await.unwrap();
    published(&*new, "refunds", "applied", 4).await;
    let again = fetch(&*reader, 6).await;
    let expected = ["applied-1", "applied-3", "applied-4", "waiting-1", "waiting-2", "waiting-3"];
    assert_eq!(ids(&again), expected, "the second of one key is behind the third");
    // An operator who wants what was before seeks back.
    new.seek("reader", SeekTo::Beginning).await.unwrap();
    let all = fetch(&*reader, 7).await;
    assert!(ids(&all).contains(&"applied-2".to_owned()), "{:?}", ids(&all));
}

#[tokio::test]
async fn a_topic_that_comes_later_starts_behind_what_was_applied_on_sqlite() {
    let bench = SqliteBench::open(Need::Shared).unwrap();
    a_topic_that_comes_later_starts_behind_what_was_applied(&bench.address()).await;
}

#[tokio::test]
async fn a_topic_that_comes_later_starts_behind_what_was_applied_on_postgres() {
    let bench = need!(PostgresBench::open(Need::Shared));
    a_topic_that_comes_later_starts_behind_what_was_applied(&bench.address()).await;
}
