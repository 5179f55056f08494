//! A hotel in the test's own process, on a database of its own.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use chapar::{App, Chapar, Running, Store, StoreOptions, Tenant};
use chapar_core::machine::retry::RetryPolicy;
use chapar_sql::{SqlTransport, Tables, Value};
use chapar_testkit::servers::Database;
use jiff::civil::Date;
use melmastoon::events::{GuestRequired, Rail};
use melmastoon::reservation::{Desk, HoldRequest};
use melmastoon::{Config, Vendors, audit};

pub(crate) const HOTEL: &str = "pamir-kabul";

/// Runs each of these tests on SQLite and on PostgreSQL.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::common::Hotel::on_sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let server = chapar_testkit::need!(chapar_testkit::servers::postgres());
                let database = server.database(stringify!($test)).unwrap();
                super::$test(super::common::Hotel::on_postgres(database).await).await;
            })*
        }
    };
}
pub(crate) use on_both;

/// A hotel that is open; its services run once they are started.
pub(crate) struct Hotel {
    pub(crate) chapar: Chapar,
    pub(crate) config: Config,
    processes: AtomicU32,
    _place: Place,
}

enum Place {
    Folder(tempfile::TempDir),
    Database(Database),
}

/// Patient enough for a loaded machine, quick enough for a test.
pub(crate) fn config() -> Config {
    Config {
        retry: RetryPolicy::attempts(3)
            .backoff(Duration::from_millis(10), Duration::from_millis(50)),
        vendors: Vendors::reliable(),
        ..Config::default()
    }
}

impl Hotel {
    pub(crate) async fn on_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("hotel.db").display());
        Self::open(&url, Place::Folder(folder)).await
    }

    pub(crate) async fn on_postgres(database: Database) -> Self {
        let url = database.url().to_owned();
        Self::open(&url, Place::Database(database)).await
    }

    async fn open(url: &str, place: Place) -> Self {
        let options = StoreOptions { sync: false, ..StoreOptions::default() };
        let store = Store::open(url, &options).await.unwrap();
        melmastoon::migrate(&store).await.unwrap();
        let chapar = melmastoon::backbone(store);
        let tenant: Tenant = HOTEL.parse().unwrap();
        melmastoon::inventory::add_rooms(&chapar, &tenant, "house-1", 3).await.unwrap();
        Hotel { chapar, config: config(), processes: AtomicU32::new(0), _place: place }
    }

    /// Starts a process with some of the services.
    pub(crate) async fn start(&self, services: impl FnOnce(App, &Config) -> App) -> Running {
        let owner = format!("process-{}", self.processes.fetch_add(1, Relaxed));
        let transport = Arc::new(SqlTransport::new(self.chapar.store().clone(), &owner));
        let app = App::new(self.chapar.clone(), transport, owner);
        services(app, &self.config).start().await.unwrap()
    }

    pub(crate) async fn hold(&self, room: u32, rail: Rail) -> String {
        self.ask(None, room, rail).await
    }

    pub(crate) async fn hold_as(&self, reservation: &str) -> String {
        self.ask(Some(reservation.to_owned()), 1, Rail::Card).await
    }

    async fn ask(&self, reservation: Option<String>, room: u32, rail: Rail) -> String {
        let request = HoldRequest {
            reservation,
            tenant: HOTEL.parse().unwrap(),
            property: "house-1".into(),
            room: room.to_string(),
            check_in: Date::constant(2027, 3, 21),
            nights: 2,
            guest: GuestRequired { guest_id: "guest_1".into(), locale: "fa".into() }.into(),
            amount_minor: 12_000,
            currency: "USD".into(),
            rail,
        };
        Desk::new(&self.chapar, &self.config).hold(request).await.unwrap()
    }

    /// The state of a booking, and the reason for it.
    pub(crate) async fn state(&self, reservation: &str) -> (String, Option<String>) {
        const STATE: &str = "select state, reason from reservations where id = $1";
        let mut tx = self.chapar.store().begin_report().await.unwrap();
        let row = tx.fetch_optional(STATE, vec![reservation.into()]).await.unwrap().unwrap();
        (row.get(0).unwrap(), row.get(1).unwrap())
    }

    pub(crate) async fn until_state(&self, reservation: &str, expected: &str) {
        until(expected, async || self.state(reservation).await.0 == expected).await;
    }

    pub(crate) async fn count(&self, sql: &'static str, args: Vec<Value>) -> i64 {
        let mut tx = self.chapar.store().begin_report().await.unwrap();
        tx.fetch_optional(sql, args).await.unwrap().unwrap().get(0).unwrap()
    }

    /// How often an event of this topic was recorded for a booking.
    pub(crate) async fn told(&self, topic: &str, reservation: &str) -> i64 {
        const TOLD: &str =
            "select count(*) from analytics_facts where topic = $1 and aggregate = $2";
        self.count(TOLD, vec![format!("melmastoon.{topic}.v1").into(), reservation.into()]).await
    }

    /// Waits until nothing is on its way any more, and finds nothing wrong.
    pub(crate) async fn until_settled(&self) {
        until("nothing to be on its way", async || {
            let mut tx = self.chapar.store().begin_report().await.unwrap();
            let survey = tx.survey().counts().await.unwrap();
            let census = tx.survey().census().await.unwrap();
            survey.effects_pending == 0 && survey.timers == 0 && census.in_flight == 0
        })
        .await;
        let found = audit(self.chapar.store()).await.unwrap();
        assert!(found.is_clean(), "{found:#?}");
        let mut tx = self.chapar.store().begin_report().await.unwrap();
        assert_eq!(tx.survey().census().await.unwrap().lost, 0);
    }
}

/// Asks again and again until it is so; half a minute is more than any of it takes.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn stop(running: Running) {
    running.stop(Duration::from_secs(10)).await;
}
