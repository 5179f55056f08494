//! What operators look at and do, in one place for the command line and the console.
//!
//! A function that changes something takes the operator and the reason, and writes its audit entry
//! in the transaction of the change. Command line and server have no other access to the tables.

mod audit_log;
mod consumers;
mod copies;
mod edit;
mod effects;
mod find;
mod letters;
mod outbox;
mod projections;
mod redact;
mod replay;
#[cfg(feature = "contracts")]
mod rules;
mod sagas;
mod seek;
mod survey;
mod svg;
mod tail;
mod trace;
mod versions;

use chapar_core::machine::failure::FailureClass;
use chapar_sql::StoreError;

use audit_log::audit;

pub use audit_log::audit_lines;
pub use chapar_core::port::ReadFrom;
pub use chapar_sql::{
    AuditFilter, AuditLine, Census, ConsumerCard, ConsumerCount, DeadLetter, DeclaredTimer,
    DueTimer, EditedLetter, EffectCard, HeldEvent, HistoryEntry, KeptCursor, KeptEvent,
    LetterFilter, LetterGroup, OutboxFailure, OutboxLag, ParkedRow, ProjectionCard,
    QuarantineFilter, Rebased, Reception, RelayCard, ReplayRun, SagaCard, SagaSummary, Scope,
    StoryEvent, Subscribed, Survey, TopicReader,
};
pub use consumers::{ConsumerError, ConsumerView, Consumers};
pub(crate) use copies::Copier;
pub use edit::Edit;
pub use effects::{EffectFilter, list_effects, retry_effect, retry_stuck_effects};
pub use find::{SearchResult, find};
pub use letters::{Letters, LettersChanged, Page};
pub use outbox::{Outbox, OutboxStatus};
pub use projections::{
    BuildKind, ProjectionError, ask_for_build, list_projections, projection_card, withdraw_build,
};
pub use redact::Redaction;
pub use replay::{Outlook, Progress};
#[cfg(feature = "contracts")]
pub use rules::write_rules;
pub use sagas::{
    CANCEL, SagaError, SagaFilter, SagaHistory, SagaView, Waiting, cancel_saga, list_sagas,
    retry_saga, saga_history, saga_states, view_saga,
};
pub use seek::{Seek, SeekError, SeekPreview, SeekTarget, TopicCount};
pub use survey::{Overview, census, overview, under_way};
pub use tail::{Shown, Tail};
pub use trace::{Node, Story, story};
pub use versions::{Departure, Versions};

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
    #[error("CH3000: there is no dead letter {0}; `chapar dlq list` lists the open ones")]
    NoLetter(String),
    /// The letter is not open.
    #[error("CH3001: dead letter {id} is {found}; only open letters can be changed")]
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
        "CH3003: dead letter {id} is a {}, and no fix is recorded; fix the cause and record it with \
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
         applied twice; pass --reapply to allow that"
    )]
    Forgotten(String),
    /// What was made of it is no event that its consumer could take.
    #[error("CH3005: the edited event is refused: {0}")]
    Edit(String),
    /// No letters were selected.
    #[error("CH3006: select dead letters by id or filter, or --all for every one")]
    NothingSelected,
    /// A fix without a class that asks for one.
    #[error("CH3007: a {} needs no fix; leave --fix out", .0.as_str())]
    NeedlessFix(FailureClass),
    /// There is no such run.
    #[error("CH3008: there is no replay {0}; a stopped replay prints its --resume id")]
    NoRun(String),
}

impl TriageError {
    /// The codes, each with a page in the documentation.
    pub const CODES: [&str; 9] =
        ["CH3000", "CH3001", "CH3002", "CH3003", "CH3004", "CH3005", "CH3006", "CH3007", "CH3008"];
}
