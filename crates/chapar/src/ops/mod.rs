//! What operators do when something has failed: find it, judge it, mend it.
//!
//! The commands and the console call the same functions, which write the audit log in the
//! transaction of the action itself.

mod copies;
mod edit;
mod find;
mod letters;
mod projections;
mod redact;
mod replay;
mod sagas;
mod seek;
mod svg;
mod tail;
mod trace;

use chapar_core::machine::failure::FailureClass;
use chapar_sql::{AuditEntry, Conn, StoreError};

pub use chapar_sql::{
    AuditFilter, AuditLine, DeadLetter, EditedLetter, LetterFilter, LetterGroup, ReplayRun,
};
pub(crate) use copies::Copier;
pub use edit::Edit;
pub use find::{Finding, find};
pub use letters::{Letters, Page, Settled};
pub use projections::{BuildKind, ProjectionError, ask_for_build, projection_card};
pub use redact::Redaction;
pub use replay::{Outlook, Progress};
pub use sagas::{CANCEL, SagaError, SagaView, Waiting, cancel_saga, retry_saga, view_saga};
pub use seek::{Seek, SeekError, SeekPreview, SeekTarget, TopicCount};
pub use tail::{Shown, Tail};
pub use trace::{Node, Story, story};

/// Who does something, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operator<'a> {
    /// As the operating system or a token knows them.
    pub name: &'a str,
    /// In their words; it is kept in the audit log.
    pub reason: &'a str,
}

/// Why something was not done. Each has a page of its own in the documentation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TriageError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no such letter.
    #[error("CH3000: there is no dead letter {0}; `chapar dlq list` shows those in the box")]
    NoLetter(String),
    /// It is not in the box, or on its way out of it.
    #[error("CH3001: dead letter {id} is {found}; only an open one can be dealt with")]
    NotOpen {
        /// The letter.
        id: String,
        /// What it is instead.
        found: String,
    },
    /// Its class forbids a replay for good.
    #[error(
        "CH3002: dead letter {0} is poison, which is never replayed; quarantine or delete it, or \
         classify it again"
    )]
    Poison(String),
    /// Its class asks for a fix, and none is recorded.
    #[error(
        "CH3003: dead letter {id} is a {}, and no fix is recorded; mend it, and say so with \
         `chapar dlq classify --as {} --fix …`", .class.as_str(), .class.as_str()
    )]
    Unfixed {
        /// The letter.
        id: String,
        /// Its class.
        class: FailureClass,
    },
    /// The inbox no longer knows whether its event was applied.
    #[error(
        "CH3004: dead letter {0} is older than what the inbox remembers, so its event could be \
         applied twice; say --reapply if it may"
    )]
    Forgotten(String),
    /// What was made of it is no event that its consumer could take.
    #[error("CH3005: the edited event is refused: {0}")]
    Edit(String),
    /// No letters were selected.
    #[error("CH3006: say which dead letters by id or by a filter, or --all for every one")]
    NothingSelected,
    /// A fix without a class that asks for one.
    #[error("CH3007: a {} needs no fix; leave --fix out", .0.as_str())]
    NeedlessFix(FailureClass),
    /// There is no such run.
    #[error("CH3008: there is no replay {0}; a replay that is stopped says how to go on")]
    NoRun(String),
}

impl TriageError {
    /// The codes, each with a page in the documentation.
    pub const CODES: [&str; 9] =
        ["CH3000", "CH3001", "CH3002", "CH3003", "CH3004", "CH3005", "CH3006", "CH3007", "CH3008"];
}

async fn audit(
    conn: &mut Conn<'_>,
    by: Operator<'_>,
    action: &str,
    target: &str,
    detail: &serde_json::Value,
) -> Result<(), StoreError> {
    let detail = detail.to_string();
    let (actor, reason) = (by.name, by.reason);
    conn.audit(&AuditEntry { actor, action, target, reason, detail: &detail }).await
}
