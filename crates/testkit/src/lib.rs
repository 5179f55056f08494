//! Conformance suites and private servers for tests.
//!
//! A suite asks for the real server it talks to and gets its address:
//!
//! ```no_run
//! use chapar_testkit::{need, servers};
//!
//! # fn example() {
//! let postgres = need!(servers::postgres());
//! let database = postgres.database("orders").expect("a fresh database");
//! assert!(database.url().starts_with("postgres://"));
//! # }
//! ```
//!
//! [`mod@conformance`] is the suite that every transport passes, and [`memory`] is the transport for tests that need no broker.
//! [`servers`] finds, starts, watches and stops the servers; [`Browser`] drives a headless Chromium for the console's tests.

mod authority;
mod browser;
pub mod conformance;
pub mod history;
mod http;
pub mod memory;
mod profile;
pub mod proxy;
pub mod servers;

pub use authority::{Authority, Certified};
pub use browser::{Browser, BrowserError};
pub use http::{Answer, http};
pub use profile::profile;
