use std::fmt;

use chapar_core::machine::failure::FailureKind;
use chapar_sql::StoreError;

/// Why a handler could not apply an event.
///
/// Any error turns into one with `?`: what the store calls busy, and errors that nobody
/// classified, count as transient and are retried; broken constraints are rule violations and
/// go to the dead letters at once.
#[derive(Debug)]
pub struct Failure(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: FailureKind,
    message: String,
    counted: bool,
    early: Option<(String, String)>,
    stuck: Option<(String, String)>,
}

impl Failure {
    /// A rule of the business is broken: retrying would not help.
    pub fn rule(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::RuleViolation, message)
    }

    /// Something was not there; later it may be.
    pub fn transient(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::Transient, message)
    }

    /// A failure of a kind.
    pub fn new(kind: FailureKind, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Failure(Box::new(Inner { kind, message, counted: true, early: None, stuck: None }))
    }

    /// The event came before its saga: keep it until the saga starts.
    pub(crate) fn early(saga: &str, key: &str) -> Self {
        let mut failure = Self::transient(format!("saga {saga} {key} has not started yet"));
        failure.0.early = Some((saga.to_owned(), key.to_owned()));
        failure
    }

    /// A newer program's saga: leave it to the newer program, and do not count the attempt.
    pub(crate) fn released(message: impl fmt::Display) -> Self {
        let mut failure = Self::transient(message);
        failure.0.counted = false;
        failure
    }

    /// A compensation failed: if this event fails for good, the saga is stuck.
    pub(crate) fn in_compensation(mut self, saga: &str, key: &str) -> Self {
        self.0.stuck = Some((saga.to_owned(), key.to_owned()));
        self
    }

    /// What kind of failure.
    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }

    /// What happened, with its causes.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.0.counted
    }

    pub(crate) fn early_for(&self) -> Option<&(String, String)> {
        self.0.early.as_ref()
    }

    pub(crate) fn stuck_saga(&self) -> Option<&(String, String)> {
        self.0.stuck.as_ref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.as_str(), self.0.message)
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let any: &dyn std::any::Any = &error;
        let kind = match any.downcast_ref::<StoreError>() {
            Some(StoreError::Constraint(_) | StoreError::IdempotencyConflict(_)) => {
                FailureKind::RuleViolation
            }
            _ if any.is::<chapar_core::Violations>() => FailureKind::RuleViolation,
            _ if any.is::<serde_json::Error>() => FailureKind::Undecodable,
            _ => FailureKind::Transient,
        };
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            let text = next.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = next.source();
        }
        Self::new(kind, message)
    }
}
