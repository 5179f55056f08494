//! The hotel platform, written as a user of Chapar would write it.
//!
//! A guest books a room. The [reservation] service holds it and runs the booking
//! saga, [inventory] sells each room at most once per night, [payment]
//! captures the money, and a confirmed booking opens a [folio](billing), gets a [key](lock) and
//! a [message](notification). [Analytics](analytics), [pricing] and the front desk's [board] look on. Each
//! service has its own tables and handlers, and hears of the others only by events.
//!
//! [`app`] registers them all, [`Generator`] makes guests, and [`audit`] checks by plain SQL
//! what came of it.
//!
//! ```no_run
//! use chapar::sql::SqlTransport;
//! use chapar::{App, Store, StoreOptions};
//! use melmastoon::Config;
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open("sqlite:hotel.db", &StoreOptions::default()).await?;
//! melmastoon::migrate(&store).await?;
//! let transport = std::sync::Arc::new(SqlTransport::new(store.clone(), "hotel-1"));
//! let app = App::new(melmastoon::backbone(store), transport, "hotel-1");
//! let running = melmastoon::app(app, &Config::default()).start().await?;
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

use std::sync::Arc;
use std::time::Duration;

use chapar::core::dialect::Melmastoon;
use chapar::core::machine::retry::RetryPolicy;
use chapar::sql::Migration;
use chapar::{App, Chapar, Consumer, EffectTask, Producer, Profile, Registry, Store, StoreError};

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
        let RetryPolicy { attempts, min_backoff, max_backoff, .. } = self.retry;
        Consumer::new(name).retry(attempts).backoff(min_backoff, max_backoff)
    }

    fn task(&self, task: EffectTask) -> EffectTask {
        task.retry(self.retry).timeout(Duration::from_secs(5))
    }
}

/// Registers every consumer, timer and vendor call of the hotel.
pub fn app(app: App, config: &Config) -> App {
    let app = reservation::register(app, config);
    let app = inventory::register(app, config);
    let app = payment::register(app, config);
    let app = billing::register(app, config);
    let app = lock::register(app, config);
    let app = notification::register(app, config);
    let app = analytics::register(app, config);
    let app = board::register(app, config);
    pricing::register(app, config)
}

/// The backbone of the hotel on a store: its profile, its dialect and its contracts.
pub fn backbone(store: Store) -> Chapar {
    let registry = Registry::from_bundle(CONTRACTS).expect("the bundle is tested to be current");
    let profile = Profile::builtin("melmastoon").expect("the profile is built in");
    let producer = Producer { service: "melmastoon".into(), ..Producer::default() };
    Chapar::builder(store, profile, Arc::new(Melmastoon))
        .producer(producer)
        .registry(registry)
        .build()
}

/// The tables of the hotel.
pub fn migrations() -> Vec<Migration> {
    const TABLES: &str = include_str!("../migrations/0001_hotel.sql");
    const PROTECT: &str = include_str!("../migrations/0001_hotel_protect.sql");
    vec![Migration {
        version: 1,
        name: "hotel",
        postgres: format!("{TABLES}{PROTECT}").into(),
        sqlite: TABLES.into(),
        additive: false,
    }]
}

/// Brings Chapar's tables and the hotel's up to date.
pub async fn migrate(store: &Store) -> Result<(), StoreError> {
    store.migrate().await?;
    store.migrate_system(OWNER, &migrations()).await?;
    Ok(())
}
