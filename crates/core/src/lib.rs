//! The contracts of Chapar, without I/O.
//!
//! Everything here is data, rules and decisions: the canonical [`Envelope`] and its wire
//! [dialects](dialect), [subjects](subject), [ids](id), [profiles](profile), the
//! [rules] an event must keep, the [ports](port) that adapters implement, and the
//! [state machines](machine) that the engine drives. Nothing in this crate opens a socket or a file
//! or reads a clock, so a test controls the time.

pub mod bundle;
pub mod catalog;
pub mod constraint;
pub mod convert;
pub mod dialect;
pub mod draft;
pub mod envelope;
mod headers;
pub mod id;
pub mod machine;
pub mod port;
pub mod profile;
pub mod rules;
pub mod schema;
pub mod subject;
pub mod webhook;

pub use draft::{Draft, Event, IntoDraft};
pub use envelope::{
    Actor, ActorKind, Aggregate, Cause, Envelope, Payload, PayloadError, Producer, Tenant,
    TraceContext,
};
pub use headers::Headers;
pub use id::{Id, IdKind};
pub use profile::Profile;
pub use rules::{Code, Violation, Violations};
pub use subject::{Grammar, Subject, SubjectError};
