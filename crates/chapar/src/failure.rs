use std::error::Error;
use std::fmt;

use chapar_core::machine::failure::FailureKind;
use chapar_sql::StoreError;

use crate::chapar::AppendError;

/// What a handler returns.
pub type Handled = Result<(), Failure>;

/// The handler is done: its work commits together with the claim of the event.
///
/// ```
/// use chapar::prelude::*;
///
/// async fn ignore(_: std::sync::Arc<chapar::Envelope>, _: &mut Cx) -> Handled {
///     applied()
/// }
/// ```
pub fn applied() -> Handled {
    Ok(())
}

/// Why user code (a handler, a saga step, a call to a vendor) did not succeed.
///
/// [`Failure::retry`] is tried again with back-off until the attempts are used up;
/// [`Failure::terminal`] goes to the dead letters at once. Errors of the store and of
/// [`append`](crate::Chapar::append) turn into the right one with `?`: a lost connection or a
/// deadlock is retried, a violated constraint or a broken rule is terminal. For all other errors
/// you say which it is:
///
/// ```
/// use chapar::prelude::*;
///
/// fn amount(text: &str) -> Result<i64, Failure> {
///     text.parse().or_terminal()
/// }
///
/// assert!(!amount("ten").unwrap_err().is_retryable());
/// ```
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
    /// Trying again cannot help: a rule of the business is broken, a card is declined.
    pub fn terminal(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::RuleViolation, message)
    }

    /// Trying again later may help: a time-out, a 503, a row that is not there yet.
    pub fn retry(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::Transient, message)
    }

    pub(crate) fn new(kind: FailureKind, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Failure(Box::new(Inner { kind, message, counted: true, early: None, stuck: None }))
    }

    /// The event came before its saga: stash it until the saga starts.
    pub(crate) fn early(saga: &str, key: &str) -> Self {
        let mut failure = Self::retry(format!("saga {saga} {key} has not started yet"));
        failure.0.early = Some((saga.to_owned(), key.to_owned()));
        failure
    }

    /// Hand the event back without counting the attempt: another process or a later moment is
    /// the right one for it.
    pub(crate) fn released(message: impl fmt::Display) -> Self {
        let mut failure = Self::retry(message);
        failure.0.counted = false;
        failure
    }

    /// An undo step failed: if this event fails for good, the saga is stuck.
    pub(crate) fn in_compensation(mut self, saga: &str, key: &str) -> Self {
        self.0.stuck = Some((saga.to_owned(), key.to_owned()));
        self
    }

    /// Whether it is tried again.
    pub fn is_retryable(&self) -> bool {
        self.0.kind.is_retryable()
    }

    /// What happened, with its causes.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn kind(&self) -> FailureKind {
        self.0.kind
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

impl Error for Failure {}

/// Says of any error whether trying again can help.
pub trait OrFailure<T> {
    /// An error is terminal: the event goes to the dead letters at once.
    fn or_terminal(self) -> Result<T, Failure>;

    /// An error is temporary: the event is tried again with back-off.
    fn or_retry(self) -> Result<T, Failure>;
}

impl<T, E: Error> OrFailure<T> for Result<T, E> {
    fn or_terminal(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::terminal(chain(&error)))
    }

    fn or_retry(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::retry(chain(&error)))
    }
}

impl From<StoreError> for Failure {
    /// Busy, unreachable, serialization failure or deadlock: retried. A violated constraint or an
    /// idempotency key used for another payload: terminal. Any other refusal of a statement is
    /// retried too, because a missing table or right is mended by a migration and not by a replay.
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::Constraint(_)
            | StoreError::IdempotencyConflict(_)
            | StoreError::Cell { .. }
            | StoreError::Column(_) => FailureKind::RuleViolation,
            _ => FailureKind::Transient,
        };
        Self::new(kind, chain(&error))
    }
}

impl From<AppendError> for Failure {
    /// A broken rule or an event that cannot be written is terminal; for the store, see above.
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Rules(violations) => violations.into(),
            AppendError::Encode(error) => Self::terminal(chain(&error)),
            AppendError::Store(error) => error.into(),
        }
    }
}

impl From<chapar_core::Violations> for Failure {
    fn from(violations: chapar_core::Violations) -> Self {
        Self::terminal(violations)
    }
}

impl From<sqlx::Error> for Failure {
    /// Classified as the same error of our own statements is.
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl From<serde_json::Error> for Failure {
    /// The same JSON fails the same way again.
    fn from(error: serde_json::Error) -> Self {
        Self::terminal(format!("JSON: {error}"))
    }
}

macro_rules! terminal {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::terminal(chain(&error))
            }
        }
    )*};
}

terminal!(chapar_core::envelope::TenantError, chapar_core::id::IdError, std::num::TryFromIntError);

/// An error and its causes, none said twice.
fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let text = next.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = next.source();
    }
    message
}
