//! Event catalogs on disk, and what is generated from them.
//!
//! A system keeps its contracts in five places:
//!
//! ```text
//! systems/<system>/catalog.toml                   what belongs to no single service
//! systems/<system>/catalog/<service>.toml         a service and the events it owns
//! systems/<system>/event-schemas/<service>/<aggregate>/<verb>/v<n>.json
//! systems/<system>/proto/…                        for systems that speak Protobuf
//! systems/<system>/consumers/<service>.toml       what a consumer reads, with examples beside it
//! ```
//!
//! The path of a schema follows from its subject: a folder per segment, without the system's name.
//! A subject without an aggregate has one folder less, one of five segments one more.
//!
//! [`load`] reads all of it and finds every mistake with its line. Everything is generated from the
//! same [`Loaded`] catalog: [topics, subscriptions and grants](inventory), [set-up files](setup) of
//! brokers, an [AsyncAPI document](asyncapi), a [documentation site](docs), a [graph] and
//! [Rust types](rust). The [gate] compares it with the released contracts, and [policy] checks it
//! and the code beside it.

pub mod asyncapi;
mod bundle;
mod consumers;
mod conversions;
pub mod cutover;
pub mod docs;
pub mod gate;
pub mod graph;
pub mod inventory;
mod json;
mod load;
pub mod policy;
mod proto;
mod refs;
pub mod rust;
mod schema;
pub mod setup;

pub use bundle::bundle;
pub use consumers::Breach;
pub use load::{LoadError, Loaded, load};
pub use proto::Protos;
pub use schema::{MAX_SCHEMA, Schema};
