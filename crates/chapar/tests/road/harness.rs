//! One house for all tests of this suite: a store, a backbone, and words to wait with.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar::ops::{LetterFilter, Letters, Operator};
use chapar::prelude::*;
use chapar::{Producer, Store, StoreOptions};
use chapar_core::dialect::{Dialect, MetadataJson};
use chapar_core::machine::failure::FailureClass;
use chapar_core::port::{Outgoing, Transport};
use chapar_sql::{Backend, SqlTransport, Tables, Value};
use chapar_testkit::servers;

pub(crate) struct House {
    pub(crate) chapar: Chapar,
    pub(crate) transport: Arc<SqlTransport>,
    pub(crate) url: String,
    _place: Box<dyn std::any::Any + Send>,
}

/// Runs each test on SQLite and on PostgreSQL.
macro_rules! on_each_store {
    ($($test:ident),* $(,)?) => {
        mod sqlite {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::harness::House::on_sqlite().await).await;
            }
        )*}
        mod postgres {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let server = chapar_testkit::need!(chapar_testkit::servers::postgres());
                super::$test(crate::harness::House::on_postgres(&server).await).await;
            }
        )*}
    };
}
pub(crate) use on_each_store;

impl House {
    pub(crate) async fn on_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("road.db").display());
        Self::open(url, Box::new(folder)).await
    }

    pub(crate) async fn on_postgres(server: &servers::Postgres) -> Self {
        let database = server.database("road").unwrap();
        Self::open(database.url().to_owned(), Box::new(database)).await
    }

    async fn open(url: String, place: Box<dyn std::any::Any + Send>) -> Self {
        let store = Store::open(&url, &StoreOptions::default()).await.unwrap();
        store.migrate().await.unwrap();
        let mut tx = store.begin_raw().await.unwrap();
        let create = match store.backend() {
            Backend::Sqlite => {
                "create table notes (id integer primary key autoincrement, n bigint not null, \
                 tenant text not null, key text not null)"
            }
            Backend::Postgres => {
                "create table notes (id bigint generated always as identity, n bigint not null, \
                 tenant text not null, key text not null)"
            }
        };
        tx.execute(create, vec![]).await.unwrap();
        if store.backend() == Backend::Postgres {
            tx.execute("call chapar.protect('notes'::regclass)", vec![]).await.unwrap();
        }
        tx.commit().await.unwrap();
        let chapar = Self::backbone(store.clone());
        let transport = Arc::new(SqlTransport::new(store, "house"));
        House { chapar, transport, url, _place: place }
    }

    /// What every process of the house has.
    pub(crate) fn backbone(store: Store) -> Chapar {
        let profile = chapar_testkit::profile("melmastoon");
        let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
        Chapar::builder(store, profile, Arc::new(MetadataJson)).producer(producer).build()
    }

    pub(crate) fn app(&self) -> App {
        App::new(self.chapar.clone(), self.transport.clone(), "house")
    }

    pub(crate) async fn run(&self, consumer: Consumer) -> Running {
        self.app()
            .service(Service::new("inventory-service").consumer(consumer))
            .start()
            .await
            .unwrap()
    }

    /// Appends notes in one transaction each, as a service would.
    pub(crate) async fn note(
        &self,
        tenant: &str,
        key: &str,
        numbers: impl IntoIterator<Item = i64>,
    ) {
        for n in numbers {
            self.append(tenant, Noted { key: key.into(), n }).await;
        }
    }

    /// Appends an event in a transaction of its own.
    pub(crate) async fn append(&self, tenant: &str, event: impl IntoDraft) {
        let tenant: Tenant = tenant.parse().unwrap();
        let mut tx = self.chapar.begin(&tenant).await.unwrap();
        self.chapar.append(&mut tx, &tenant, event).await.unwrap();
        self.chapar.commit(tx).await.unwrap();
    }

    /// Puts bytes on the wire that no producer of ours would write.
    pub(crate) async fn publish_raw(&self, topic: &str, key: &str, body: &[u8]) {
        let message = Outgoing {
            id: format!("raw-{}", body.len()).parse().unwrap(),
            topic: topic.into(),
            tenant: "platform".into(),
            key: Some(key.into()),
            headers: Default::default(),
            body: body.to_vec().into(),
        };
        self.transport.publish(vec![message]).await.remove(0).unwrap();
    }

    /// The numbers that were applied for a key, in the order in which they were.
    pub(crate) async fn applied(&self, key: &str) -> Vec<i64> {
        self.ints("select n from notes where key = $1 order by id", vec![key.into()]).await
    }

    pub(crate) async fn ints(&self, sql: &'static str, args: Vec<Value>) -> Vec<i64> {
        // As the login: these are tables of a service, which the engine's statements do not name.
        let store = self.chapar.store();
        let tx = match store.backend() {
            Backend::Sqlite => store.begin_read().await,
            Backend::Postgres => store.begin_raw().await,
        };
        let mut tx = tx.unwrap();
        let rows = tx.fetch(sql, args).await.unwrap();
        rows.iter().map(|row| row.get(0).unwrap()).collect()
    }

    pub(crate) async fn letters(&self) -> Vec<chapar_sql::DeadLetter> {
        let mut tx = self.chapar.store().begin_engine().await.unwrap();
        tx.letters().open(100).await.unwrap()
    }

    pub(crate) async fn replay(&self, id: &str) {
        let letters = Letters::of(self.chapar.store());
        let by = Operator { name: "house", reason: "mended" };
        let (one, bug) = (LetterFilter::one(id), FailureClass::ConsumerBug);
        letters.classify(&one, Some(bug), Some("mended"), by).await.unwrap();
        letters.retry(id, by).await.unwrap();
    }

    pub(crate) fn dialect(&self) -> impl Dialect {
        MetadataJson
    }
}

/// Waits until something holds, for a while that is long enough for a slow machine.
pub(crate) async fn eventually<F, Fut>(what: &str, mut holds: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "still not so after 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn stop(running: Running) {
    running.stop(Duration::from_secs(10)).await;
}

/// The event of these tests: a number noted under a key.
#[derive(Debug, Clone, Event, Serialize, Deserialize)]
#[event("melmastoon.reservation.booking.modified.v1", id = key, intent = "{key}:{n}")]
pub(crate) struct Noted {
    pub(crate) key: String,
    pub(crate) n: i64,
}

/// The business effect of these tests.
pub(crate) async fn write_down(noted: Noted, cx: &mut Cx) -> Handled {
    const INSERT: &str = "insert into notes (n, tenant, key) values ($1, :tenant, $2)";
    cx.execute(INSERT, params![noted.n, noted.key]).await?;
    applied()
}
