//! The event backbone for multi-tenant services.
//!
//! A service commits its row and its event in one transaction ([`Chapar::append`]); every other
//! service applies that event exactly once, in order ([`Consumer`]); processes that span
//! services are plain code over persisted state ([`saga`]); and calls to vendors are durable
//! tasks outside of any transaction ([`Cx::effect`]). An [`App`] runs it all in one process.
//!
//! ```no_run
//! use chapar::prelude::*;
//!
//! #[derive(Event, Serialize, Deserialize)]
//! #[event("hotel.reservation.booking.held.v1", id = reservation, intent = "{reservation}:held")]
//! struct BookingHeld { reservation: String, room: String }
//!
//! async fn allocate(held: BookingHeld, cx: &mut Cx) -> Handled {
//!     const ALLOCATE: &str =
//!         "insert into allocations (tenant, reservation, room) values (:tenant, $1, $2)";
//!     cx.execute(ALLOCATE, params![held.reservation, held.room]).await?;
//!     applied()
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let inventory =
//!         Service::new("inventory").consumer(Consumer::new("booking-held").on(allocate).lanes(4));
//!     App::connect("postgres://localhost/hotel", "nats://localhost:4222")
//!         .profile("hotel.toml")
//!         .service(inventory)
//!         .run_until(ctrl_c())
//!         .await?;
//!     Ok(())
//! }
//! ```

mod app;
mod chapar;
mod command;
mod consumer;
mod cx;
mod effects;
mod execution;
mod failure;
mod metrics;
pub mod ops;
pub mod prelude;
mod projection;
#[cfg(feature = "push")]
mod push;
#[cfg(not(feature = "push"))]
#[path = "push_absent.rs"]
mod push;
#[cfg(feature = "contracts")]
mod registry;
#[cfg(not(feature = "contracts"))]
#[path = "registry_absent.rs"]
mod registry;
mod relay;
mod republish;
mod running;
pub mod saga;
mod service;
mod statement;
mod supervisor;
#[cfg(feature = "sqlite")]
pub mod testing;
mod text;
mod timers;

pub use app::{App, ProfileSource, StartError};
pub use chapar::{AppendError, Chapar, ChaparBuilder};
pub use chapar_core::dialect::Dialect;
pub use chapar_core::machine::failure::FailurePolicy;
pub use chapar_core::machine::retry::RetryPolicy;
pub use chapar_core::port::{Clock, Ids, Transport, TransportError};
pub use chapar_core::profile::ProfileError;
pub use chapar_core::webhook::Secrets;
pub use chapar_core::{
    Actor, ActorKind, Aggregate, Cause, Code, Draft, Envelope, Event, Id, IdKind, IntoDraft,
    Payload, Producer, Profile, Tenant, TraceContext, Violation, Violations,
};
pub use chapar_macros::{Effect, Event, FromRow, Saga, SagaState, SagaTimer, SagaUndo, TextEnum};
pub use chapar_sql::{
    Append, Appended, AuditEntry, FromCell, FromRow, Keep, Migration, Param, RepublishRequest, Row,
    SqlTransport, Statement, Store, StoreError, StoreOptions, Tx, Value,
};
pub use command::Command;
pub use consumer::{Consumer, Gap, HandlerFn, Missing};
pub use cx::Cx;
pub use effects::{Attempt, Effect, EffectOutcome, EffectTask};
pub use failure::{Failure, Handled, OrFailure, applied};
pub use metrics::{Blocked, ConsumerMetrics, Metrics};
pub use projection::{Projection, read_model};
#[cfg(feature = "push")]
pub use push::{Endpoint, EndpointError};
#[cfg(feature = "contracts")]
pub use registry::{BearerToken, BundleSource, FetchError, Registry, RegistryError, SchemaRefusal};
pub use running::{RunError, Running, ctrl_c};
pub use service::Service;
pub use supervisor::{Health, PartHealth};
pub use text::TextEnum;

/// What the derive macros expand to.
#[doc(hidden)]
pub mod __macro {
    pub use crate::text::text_enum;
    pub use serde::{Deserialize, Deserializer, Serialize, Serializer};
}

/// The README and the guide, compiled so that their samples stay true.
macro_rules! page {
    ($name:ident, $path:literal) => {
        #[cfg(doctest)]
        #[doc = include_str!(concat!("../../../", $path))]
        struct $name;
    };
}

page!(Readme, "README.md");
page!(Producing, "docs/guide/producing.md");
page!(Consuming, "docs/guide/consuming.md");
page!(Push, "docs/guide/push.md");
page!(Testing, "docs/guide/testing.md");
page!(Sagas, "docs/guide/sagas.md");
page!(Effects, "docs/guide/effects.md");
page!(ReadModels, "docs/guide/read-models.md");
page!(Triage, "docs/guide/triage.md");
page!(Profiles, "docs/guide/profiles.md");
page!(Tenants, "docs/guide/tenants.md");
page!(Tracing, "docs/guide/tracing.md");
page!(Versions, "docs/guide/versions.md");
