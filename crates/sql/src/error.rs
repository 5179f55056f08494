use sqlx::error::DatabaseError;

/// Errors of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The URL is not that of a store.
    #[error("{0:?} is not a store; use sqlite:FILE, sqlite::memory: or postgres://…")]
    Url(String),
    /// The URL names SQLite, and this program is built without it.
    #[error("this program is built without SQLite; build it with the cargo feature `sqlite`")]
    NoSqlite,
    /// The store cannot be opened.
    #[error("the store {url} cannot be opened: {reason}")]
    Open {
        /// The URL, without secrets.
        url: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// A retry may succeed: the connection broke, a lock was held, a deadlock was resolved.
    #[error("the store is busy or not reachable: {0}")]
    Unavailable(#[source] sqlx::Error),
    /// An idempotency key was reused for another payload.
    #[error("{0}")]
    IdempotencyConflict(String),
    /// A unique key, a foreign key or a check was violated.
    #[error("a constraint of the database was violated: {0}")]
    Constraint(#[source] sqlx::Error),
    /// The transaction has no tenant.
    #[error("no tenant is set for this transaction; begin it with a tenant")]
    TenantUnset,
    /// The engine would not see the rows of all tenants.
    #[error(
        "the engine role of this login does not see the rows of all tenants: {0}; \
         run `grant chapar_app, chapar_engine to <login>` as an administrator"
    )]
    EngineRole(String),
    /// A pooler in transaction mode: session settings, locks and prepared statements would be lost.
    #[error(
        "the URL leads to a pooler in transaction mode; \
         connect to PostgreSQL itself, or through a pool in session mode"
    )]
    Pooler,
    /// The schema is newer than this program.
    #[error(
        "the store's schema is at version {found}, this program knows {known}; \
         use a newer chapar, the data is untouched"
    )]
    NewerSchema {
        /// The version of the store.
        found: i64,
        /// The version that this program knows.
        known: i64,
    },
    /// The schema is older than this program.
    #[error("the store lacks {0} migration(s); run `chapar migrate apply`")]
    MissingMigrations(usize),
    /// An applied migration differs from the one in this program.
    #[error("migration {0} was applied with a different content than in this program")]
    AlteredMigration(i64),
    /// A retention setting would forget something too early.
    #[error("{0}")]
    Retention(String),
    /// A column has an unexpected type.
    #[error("column {column} cannot be read as {expected}")]
    Cell {
        /// The column, from 0.
        column: usize,
        /// The expected type.
        expected: &'static str,
    },
    /// A query has no column of the name that was asked for.
    #[error("the query has no column {0:?}; name it in the select list")]
    Column(String),
    /// The database refused a statement.
    #[error("the database refused a statement: {0}")]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// Whether a retry can succeed without any change.
    pub fn is_retryable(&self) -> bool {
        matches!(self, StoreError::Unavailable(_))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error::*;
        match &error {
            Io(_) | Tls(_) | PoolTimedOut | PoolClosed | WorkerCrashed | Protocol(_) => {
                StoreError::Unavailable(error)
            }
            Database(database) => match classify(database.as_ref()) {
                Class::Busy => StoreError::Unavailable(error),
                Class::Idempotency => {
                    StoreError::IdempotencyConflict(database.message().to_owned())
                }
                Class::Tenant => StoreError::TenantUnset,
                Class::Constraint => StoreError::Constraint(error),
                Class::Other => StoreError::Database(error),
            },
            _ => StoreError::Database(error),
        }
    }
}

enum Class {
    Busy,
    Idempotency,
    Tenant,
    Constraint,
    Other,
}

fn classify(error: &dyn DatabaseError) -> Class {
    let code = error.code().unwrap_or_default();
    match code.as_ref() {
        "CHP01" => Class::Idempotency,
        "CHP02" => Class::Tenant,
        // Serialization failure, deadlock, lock timeout, shutdown, too many connections.
        "40001" | "40P01" | "55P03" | "57P01" | "57P02" | "57P03" | "53300" => Class::Busy,
        code if code.starts_with("08") => Class::Busy,
        // SQLite's BUSY and LOCKED, with extended codes above the low byte. PostgreSQL's codes have
        // five characters, and some of them are numeric too.
        code if code.len() < 5 && code.parse::<i32>().is_ok_and(|n| matches!(n & 0xff, 5 | 6)) => {
            Class::Busy
        }
        _ if error.is_unique_violation()
            || error.is_foreign_key_violation()
            || error.is_check_violation()
            || error.kind() == sqlx::error::ErrorKind::NotNullViolation =>
        {
            Class::Constraint
        }
        _ => Class::Other,
    }
}
