//! Every SQL statement and migration of Chapar, for SQLite and PostgreSQL.
//!
//! One design serves both databases. Statements are written once, in PostgreSQL's spelling of
//! the common subset, and a [`Statement`] knows its SQLite form; where the two really differ,
//! there are two. A [`Store`] is opened from a URL, a [`Tx`] is a transaction on either, and
//! [`Conn`] borrows one, be it ours or the caller's own `sqlx` transaction.

#![cfg_attr(
    not(feature = "sqlite"),
    allow(irrefutable_let_patterns, unused, reason = "with one database, fewer cases are left")
)]

mod append;
mod audit;
mod broker;
mod conn;
#[cfg(feature = "sqlite")]
mod contents;
mod cutover;
mod deadletter;
mod declared;
mod effect;
mod error;
mod inbox;
mod kept;
mod log;
mod migrate;
mod outbox;
mod projection;
mod rules;
mod saga;
mod secure;
mod seek;
mod statement;
mod store;
mod story;
mod survey;
mod tables;
mod value;

pub use append::{Append, Appended};
pub use audit::{AuditEntry, AuditFilter, AuditLine};
pub use broker::Subscribed;
pub use conn::{Conn, Tx};
pub use cutover::TopicReader;
pub use deadletter::{
    AppliedEdit, DeadLetter, Deferral, EditedLetter, LetterCount, LetterCursor, LetterFailure,
    LetterFilter, LetterGroup, NewDeadLetter, Parked, ReplayRun,
};
pub use declared::{DeclaredConsumer, DeclaredTimer};
pub use effect::{DueEffect, EffectCard, NewEffect, Unrecorded};
pub use error::StoreError;
pub use inbox::{
    Arrival, ConsumerCard, Hold, InboxFacts, InboxFloor, InboxHole, InboxMark, MarkPlace, Pause,
    Paused, StashedArrival,
};
pub use kept::{AppendedEvent, KeptCursor, KeptEvent};
pub use log::SqlTransport;
pub use migrate::{Migration, SchemaStatus};
pub use outbox::{
    Keep, Kept, ParkedRow, QuarantineFilter, Rebased, RelayCard, RepublishRequest, SqlOutbox,
};
pub use projection::{Doc, ProjectionCard, ProjectionMark, SNAPSHOT};
pub use rules::{KnownSubject, write_rules};
pub use saga::{DueTimer, HistoryEntry, SagaCard, SagaRow, SagaSummary};
pub use seek::{Scope, Stretch, StretchCount};
pub use statement::Statement;
pub use store::{Backend, Nudges, Store, StoreOptions};
pub use story::{HeldEvent, OutboxFailure, Reception, StoryEvent};
pub use survey::{Census, ConsumerCount, OutboxLag, Survey};
pub use tables::{
    AuditLog, Consumers, Effects, Inbox, Letters, LogCursors, OutboxRows, Projections, Sagas,
    Stash, Story, Surveys, Tables, Timers,
};
pub use value::{FromCell, FromRow, Param, Row, Value};
