//! The event backbone for multi-tenant services.
//!
//! A service commits its row and its event in one transaction ([`Chapar::append`]); every other
//! service applies that event exactly once, in order ([`Consumer`]); processes that span
//! services are plain code over persisted state ([`saga`]); and calls to vendors are durable
//! tasks outside of any transaction ([`Cx::effect`]). An [`App`] runs it all in one process.
//!
//! ```
//! use chapar::{App, Chapar, Consumer, Cx, Event, Failure};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct BookingHeld { reservation: String, room: String }
//!
//! impl Event for BookingHeld {
//!     const SUBJECT: &'static str = "melmastoon.reservation.booking.held.v1";
//!     const AGGREGATE: &'static str = "booking";
//!     fn aggregate_id(&self) -> String { self.reservation.clone() }
//!     fn intent(&self) -> Option<String> { Some(format!("{}:held", self.reservation)) }
//! }
//!
//! async fn allocate(held: BookingHeld, cx: &mut Cx) -> Result<(), Failure> {
//!     const ALLOCATE: &str = "insert into allocations (reservation, room) values ($1, $2)";
//!     cx.tx().execute(ALLOCATE, vec![held.reservation.into(), held.room.into()]).await?;
//!     Ok(())
//! }
//!
//! let consumer = Consumer::new("inventory-service.booking-held").on(allocate).lanes(4).retry(7);
//! ```

mod app;
mod chapar;
mod consumer;
mod cx;
mod effects;
mod failure;
mod metrics;
mod projection;
mod push;
mod registry;
mod relay;
mod republish;
pub mod saga;
pub mod testing;
mod timers;
pub mod triage;

pub use app::{App, Running, StartError};
pub use chapar::{AppendError, Chapar, ChaparBuilder};
pub use chapar_core as core;
pub use chapar_core::{Draft, Envelope, Event, Id, IntoDraft, Payload, Producer, Profile, Tenant};
pub use chapar_sql as sql;
pub use chapar_sql::AuditEntry;
pub use chapar_sql::{RepublishRequest, Store, StoreError, StoreOptions, Tx};
pub use consumer::{Consumer, Gap, HandlerFn, Missing};
pub use cx::Cx;
pub use effects::{EffectOutcome, EffectTask};
pub use failure::Failure;
pub use metrics::{Blocked, ConsumerMetrics, Metrics};
pub use projection::{Projection, read_model};
pub use push::{Endpoint, EndpointError};
pub use registry::{BundleSource, FetchError, Refusal, Registry, RegistryError, Token};

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
