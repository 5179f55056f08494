//! What people do when something has failed: the logic behind the commands and the console.

mod find;
mod projections;
mod redact;
mod sagas;
mod seek;
mod svg;
mod tail;
mod trace;

pub use find::{Finding, find};
pub use projections::{BuildKind, ProjectionError, ask_for_build, projection_card};
pub use redact::Redaction;
pub use sagas::{CANCEL, SagaError, SagaView, Waiting, cancel_saga, retry_saga, view_saga};
pub use seek::{Seek, SeekError, SeekPreview, SeekTarget, TopicCount};
pub use tail::{Shown, Tail};
pub use trace::{Node, Story, story};
