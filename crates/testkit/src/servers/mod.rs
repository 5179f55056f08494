//! Real servers for tests: found or obtained, started on a free loopback port with their data in a temporary folder,
//! made ready, and gone when their owner is gone, however it ended.
//!
//! * A **shared** server ([`postgres()`], [`nats()`], …) starts when a test first asks for it, once per run. Under
//!   `cargo xtask test` a [`Keeper`] owns it for all test programs; under plain `cargo test` each test program has its own.
//! * A **private** one ([`Launch`]) belongs to one test, which may [`kill`](Instance::kill), [`stop`](Instance::stop)
//!   and [`restart`](Instance::restart) it.
//! * An environment variable, [`Kind::variable`], points the shared server at one that already runs.
//!
//! Everything here blocks. That is fine at the start of an asynchronous test, which has its thread for itself.
//!
//! A server that this machine cannot have is [`ServerError::Missing`]; [`need!`](crate::need) skips the test by name,
//! and fails it where `CI=true`.

mod chromium;
mod guard;
mod instance;
mod kafka;
mod kafka_old;
mod kafka_tools;
mod keeper;
mod nats;
mod obtain;
mod pgbouncer;
mod pins;
mod ports;
mod postgres;
mod prometheus;
mod pubsub;
mod recipe;
mod redis;
mod shared;
mod skip;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use guard::Guard;
pub use instance::{Instance, Launch};
pub use kafka::kafka_cluster;
pub use kafka_tools::kafka_tool;
pub use keeper::{Keeper, Skip};
pub use obtain::{Listing, build_tools, cache_dir, list, obtain};
pub use pins::{npm_packages, python_packages};
pub use ports::free_port;
pub(crate) use postgres::give_to_server_user;
pub use postgres::{Database, Postgres};
pub use shared::shared;
pub use skip::{Outcome, skip};

/// The shared PostgreSQL: a superuser's address, with logical decoding possible and 200 connections.
pub fn postgres() -> Result<Postgres, ServerError> {
    shared(Kind::Postgres).map(Postgres::at)
}

/// The shared NATS server, JetStream included: `nats://host:port`.
pub fn nats() -> Result<Endpoint, ServerError> {
    shared(Kind::Nats)
}

/// The shared Kafka broker: `host:port`, the bootstrap address.
pub fn kafka() -> Result<Endpoint, ServerError> {
    shared(Kind::Kafka)
}

/// The shared Pub/Sub emulator: `host:port`, as `PUBSUB_EMULATOR_HOST` wants it.
pub fn pubsub() -> Result<Endpoint, ServerError> {
    shared(Kind::PubSub)
}

/// The shared Redis: `redis://host:port`.
pub fn redis() -> Result<Endpoint, ServerError> {
    shared(Kind::Redis)
}

/// The shared Prometheus: `http://host:port`. It scrapes only itself; [`Launch`] a private one to scrape more.
pub fn prometheus() -> Result<Endpoint, ServerError> {
    shared(Kind::Prometheus)
}

/// The shared Chromium: the WebDriver address `http://host:port` that [`Browser`](crate::Browser) opens windows on.
pub fn chromium() -> Result<Endpoint, ServerError> {
    shared(Kind::Chromium)
}

/// The servers that tests can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// NATS with JetStream.
    Nats,
    /// Apache Kafka in KRaft mode, one node.
    Kafka,
    /// Google's Pub/Sub emulator, or `pstest` from Google's Go client.
    PubSub,
    /// Redis.
    Redis,
    /// Prometheus.
    Prometheus,
    /// Headless Chromium behind chromedriver.
    Chromium,
    /// PgBouncer in transaction mode.
    PgBouncer,
}

impl Kind {
    /// Every server, in the order in which they are listed.
    pub const ALL: [Kind; 8] = [
        Kind::Postgres,
        Kind::Nats,
        Kind::Kafka,
        Kind::PubSub,
        Kind::Redis,
        Kind::Prometheus,
        Kind::Chromium,
        Kind::PgBouncer,
    ];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Postgres => "postgres",
            Kind::Nats => "nats",
            Kind::Kafka => "kafka",
            Kind::PubSub => "pubsub",
            Kind::Redis => "redis",
            Kind::Prometheus => "prometheus",
            Kind::Chromium => "chromium",
            Kind::PgBouncer => "pgbouncer",
        }
    }

    /// The environment variable that points tests at a server that already runs.
    pub fn variable(self) -> &'static str {
        match self {
            Kind::Postgres => "CHAPAR_TEST_POSTGRES",
            Kind::Nats => "CHAPAR_TEST_NATS",
            Kind::Kafka => "CHAPAR_TEST_KAFKA",
            Kind::PubSub => "CHAPAR_TEST_PUBSUB",
            Kind::Redis => "CHAPAR_TEST_REDIS",
            Kind::Prometheus => "CHAPAR_TEST_PROMETHEUS",
            Kind::Chromium => "CHAPAR_TEST_CHROMIUM",
            Kind::PgBouncer => "CHAPAR_TEST_PGBOUNCER",
        }
    }

    fn recipe(self) -> &'static dyn recipe::Recipe {
        match self {
            Kind::Postgres => &postgres::Recipe,
            Kind::Nats => &nats::Recipe,
            Kind::Kafka => &kafka::Recipe,
            Kind::PubSub => &pubsub::Recipe,
            Kind::Redis => &redis::Recipe,
            Kind::Prometheus => &prometheus::Recipe,
            Kind::Chromium => &chromium::Recipe,
            Kind::PgBouncer => &pgbouncer::Recipe,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Kind::ALL.map(Kind::name).join(", ");
        Kind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| format!("there is no server `{name}`; there are {known}"))
    }
}

/// Where a server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    kind: Kind,
    url: String,
    version: String,
    given: bool,
}

impl Endpoint {
    /// Which server this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The address in the form that the server's clients expect; see the function that returned it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The server's version as it reports it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether [`Kind::variable`] pointed at it, so that it outlives the tests and must be left tidy.
    pub fn is_given(&self) -> bool {
        self.given
    }
}

/// Why a test has no server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ServerError {
    /// This machine does not have it. A test skips, or fails where `CI=true`.
    #[error("{server} is missing: {reason}; {advice}")]
    Missing {
        /// The server.
        server: Kind,
        /// What was looked for and not found.
        reason: String,
        /// How to get it.
        advice: String,
    },
    /// It is there and does not work. A test fails.
    #[error("{server} does not work: {reason}")]
    Broken {
        /// The server.
        server: Kind,
        /// What went wrong, with the end of the server's log where there is one.
        reason: String,
    },
}

impl ServerError {
    /// The server that was asked for.
    pub fn server(&self) -> Kind {
        match self {
            ServerError::Missing { server, .. } | ServerError::Broken { server, .. } => *server,
        }
    }

    fn broken(server: Kind, reason: impl Into<String>) -> Self {
        ServerError::Broken { server, reason: reason.into() }
    }
}
