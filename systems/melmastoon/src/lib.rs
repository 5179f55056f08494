//! The hotel platform, written as a user of Chapar would write it.
//!
//! A guest books a room. The [reservation] service holds it and runs the booking
//! saga, [inventory] sells each room at most once per night, [payment]
//! captures the money, and a confirmed booking opens a [folio](billing), gets a [key](lock) and
//! a [message](notification). [Analytics](analytics), [pricing] and the front desk's [board] look on. Each
//! service has its own tables and handlers, and hears of the others only by events.
//!
//! [`hotel`] runs them all, [`Generator`] makes guests, and [`audit`] checks by plain SQL
//! what came of it.
//!
//! ```no_run
//! use chapar::prelude::*;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let app = App::connect("sqlite:hotel.db", "sql:");
//! melmastoon::hotel(app, &melmastoon::Config::default()).run_until(ctrl_c()).await?;
//! # Ok(()) }
//! ```

pub mod analytics;
mod audit;
pub mod billing;
pub mod board;
pub mod events;
pub mod inventory;
pub mod lock;
pub mod notification;
pub mod payment;
pub mod pricing;
pub mod reservation;
mod traffic;
pub mod vendor;

use std::time::Duration;

use chapar::prelude::*;
use chapar::{Producer, Registry, RetryPolicy, Store, StoreError};

pub use audit::{Audit, audit};
pub use traffic::{Generator, Tally};
pub use vendor::Vendors;

/// Under which name the tables of the hotel are migrated.
pub const OWNER: &str = "melmastoon";

/// The hotel's contracts, as they were released.
pub const CONTRACTS: &str = include_str!("../contracts.json");

/// How the hotel runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long a held booking waits for its room. Default 30 s.
    pub allocation_deadline: Duration,
    /// How long a guest is promised that a hold lasts. Default 10 min.
    pub hold_ttl: Duration,
    /// How often and how patiently handlers and vendors are tried again. Default: 5 attempts,
    /// 100 ms to 2 s apart, so that a demonstration need not wait for minutes.
    pub retry: RetryPolicy,
    /// How the simulated vendors behave.
    pub vendors: Vendors,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            allocation_deadline: Duration::from_secs(30),
            hold_ttl: Duration::from_secs(600),
            retry: RetryPolicy::attempts(5)
                .backoff(Duration::from_millis(100), Duration::from_secs(2)),
            vendors: Vendors::default(),
        }
    }
}

impl Config {
    fn consumer(&self, name: &str) -> Consumer {
        self.patience(Consumer::new(name))
    }

    fn patience(&self, consumer: Consumer) -> Consumer {
        let RetryPolicy { attempts, min_backoff, max_backoff, .. } = self.retry;
        consumer.retry(attempts).backoff(min_backoff, max_backoff)
    }

    fn task<C: Effect>(&self, task: EffectTask<C>) -> EffectTask<C> {
        let RetryPolicy { attempts, min_backoff, max_backoff, .. } = self.retry;
        task.attempts(attempts).backoff(min_backoff, max_backoff).timeout(Duration::from_secs(5))
    }
}

/// The whole hotel on an app: its profile, contracts, tables and services.
pub fn hotel(app: App, config: &Config) -> App {
    let app = app.profile(profile()).registry(registry()).migrate(migrations());
    self::app(app, config)
}

/// Every service of the hotel.
pub fn app(app: App, config: &Config) -> App {
    app.service(reservation::service(config))
        .service(inventory::service(config))
        .service(payment::service(config))
        .service(billing::service(config))
        .service(lock::service(config))
        .service(notification::service(config))
        .service(analytics::service(config))
        .service(board::service(config))
        .service(pricing::service(config))
}

/// What the hotel decides for itself.
pub fn profile() -> Profile {
    Profile::from_toml(include_str!("../profile.toml")).expect("the profile is tested to be valid")
}

fn registry() -> Registry {
    Registry::from_bundle(CONTRACTS).expect("the bundle is tested to be current")
}

/// The backbone of the hotel on a store: its profile, its dialect and its contracts.
pub fn backbone(store: Store) -> Chapar {
    let producer = Producer { service: "melmastoon".into(), ..Producer::default() };
    let profile = profile();
    let dialect = profile.dialect().expect("the hotel writes JSON");
    Chapar::builder(store, profile, dialect).producer(producer).registry(registry()).build()
}

/// The tables of the hotel.
pub fn migrations() -> Vec<Migration> {
    const TABLES: &str = include_str!("../migrations/0001_hotel.sql");
    const PROTECT: &str = include_str!("../migrations/0001_hotel_protect.sql");
    const QUEUED_AT: &str = include_str!("../migrations/0002_key_queue_time.sql");
    let hotel = Migration {
        version: 1,
        name: "hotel",
        postgres: format!("{TABLES}{PROTECT}").into(),
        sqlite: TABLES.into(),
        additive: false,
    };
    // SQLite has no type for times; they are numbers in both versions.
    vec![hotel, Migration::new(2, "key_queue_time", "select 1").on_postgres(QUEUED_AT)]
}

/// Brings Chapar's tables and the hotel's up to date.
pub async fn migrate(store: &Store) -> Result<(), StoreError> {
    store.migrate().await?;
    store.migrate_system(OWNER, &migrations()).await?;
    Ok(())
}
