//! Event catalogs on disk, and what is made of them.
//!
//! A system keeps its contracts in five places, and a reader who has seen one has seen all:
//!
//! ```text
//! systems/<system>/catalog.toml                   what belongs to no single service
//! systems/<system>/catalog/<service>.toml         a service and the events it owns
//! systems/<system>/event-schemas/<service>/<aggregate>/<verb>/v<n>.json
//! systems/<system>/proto/…                        for systems that speak Protobuf
//! systems/<system>/consumers/<service>.toml       what a consumer reads, with examples beside it
//! ```
//!
//! A schema lies where its subject says: a folder per segment, without the system's name. A
//! subject without an aggregate has one folder less, one of five segments one more.
//!
//! [`load`] reads all of it and finds every mistake with its line. What is generated comes from
//! the same [`Loaded`] catalog: [topics, subscriptions and grants](inventory),
//! [set-up files](setup) of brokers, an
//! [AsyncAPI document](asyncapi), a [documentation site](docs), a [picture](graph) and
//! [Rust types](rust). The [gate] compares it with what was released, and [policy] holds it and
//! the code beside it to what no system may do.

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
