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
    /// A part of an event is too long to be stored and published.
    #[error("{0}")]
    TooLong(String),
    /// A unique key, a foreign key or a check was violated.
    #[error("a constraint of the database was violated: {0}")]
    Constraint(#[source] sqlx::Error),
    /// The database crashed, failed over or was restored since a position was read from it.
    #[error(
        "the position is not valid any more: the database crashed, failed over or was restored since"
    )]
    AnotherLife,
    /// The cursors of the outbox belong to another cluster.
    #[error(
        "{0}: the relay's cursors hold transaction ids of another cluster, and with them new events \
         would never be published. If this database was restored from a dump, or copied by logical \
         replication, run `chapar outbox rebase`; after pg_upgrade, which keeps transaction ids, run \
         `chapar outbox rebase --ids-kept`"
    )]
    Moved(String),
    /// The outbox's sequence gives numbers to sessions in advance.
    #[error(
        "the sequence chapar.outbox_seq has a cache of {0}: sessions take numbers in advance, so \
         that later events get lower numbers and the relay misses them; run \
         `alter sequence chapar.outbox_seq cache 1` and restart the services"
    )]
    CachedSequence(i64),
    /// The transaction has no tenant.
    #[error("no tenant is set for this transaction; begin it with a tenant")]
    TenantUnset,
    /// The event is of another tenant than the transaction.
    #[error("{0}; set the tenant of the event, in a transaction of its own")]
    WrongTenant(String),
    /// An object in Chapar's schemas that Chapar did not make.
    #[error(
        "{object} {why}: only what migrations make may be in the schemas chapar and \
         chapar_migrations; drop it or move it elsewhere, then migrate again"
    )]
    ForeignObject {
        /// Its kind and name.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// The engine would not see the rows of all tenants.
    #[error(
        "the engine role of this login does not see the rows of all tenants: {0}; \
         run `grant chapar_app, chapar_engine to <login>` as an administrator"
    )]
    EngineRole(String),
    /// The login lacks rights on our tables or roles.
    #[error(
        "{said}: this login lacks rights; run as an administrator: \
         grant chapar_app, chapar_engine to {login};"
    )]
    Rights {
        /// What PostgreSQL said.
        said: String,
        /// The login, quoted for SQL.
        login: String,
    },
    /// PostgreSQL refused a migration, and it is known what to do.
    #[error("the migration was refused: {said}; {hint}")]
    Hinted {
        /// What PostgreSQL said.
        said: String,
        /// What to do.
        hint: String,
    },
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

    /// Whether the database refused the data itself, so that the same data never succeeds. All
    /// other errors are troubles of the database, which say nothing about the data.
    pub fn is_of_data(&self) -> bool {
        match self {
            StoreError::Constraint(_) | StoreError::TooLong(_) => true,
            StoreError::Database(sqlx::Error::Encode(_)) => true,
            StoreError::Database(sqlx::Error::Database(error)) => {
                let code = error.code().unwrap_or_default();
                match code.len() {
                    // Data exceptions, violated constraints, and limits of size.
                    5 => ["22", "23", "54"].iter().any(|class| code.starts_with(class)),
                    // SQLite's TOOBIG, CONSTRAINT, MISMATCH and RANGE.
                    _ => code.parse::<i32>().is_ok_and(|n| matches!(n & 0xff, 18 | 19 | 20 | 25)),
                }
            }
            _ => false,
        }
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
                Class::OtherTenant => StoreError::WrongTenant(database.message().to_owned()),
                Class::Life => StoreError::AnotherLife,
                Class::Size => StoreError::TooLong(database.message().to_owned()),
                Class::Constraint => StoreError::Constraint(error),
                Class::Other => StoreError::Database(error),
            },
            _ => StoreError::Database(error),
        }
    }
}

enum Class {
    Busy,
    OtherTenant,
    Idempotency,
    Tenant,
    Life,
    Size,
    Constraint,
    Other,
}

fn classify(error: &dyn DatabaseError) -> Class {
    let code = error.code().unwrap_or_default();
    match code.as_ref() {
        "CHP01" => Class::Idempotency,
        "CHP02" => Class::Tenant,
        "CHP04" => Class::Size,
        "CHP06" => Class::OtherTenant,
        "CHP05" => Class::Life,
        // A read-only spell, a session that was ended for being idle, a lock timeout.
        "25006" | "25P03" | "55P03" => Class::Busy,
        // The connection; serialization failures and deadlocks; resources such as memory, disk and
        // connections; cancelled statements and shutdowns; errors of the system below.
        code if code.len() == 5
            && ["08", "40", "53", "57", "58"].iter().any(|class| code.starts_with(class)) =>
        {
            Class::Busy
        }
        // SQLite's BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL and CANTOPEN, with extended codes
        // above the low byte. PostgreSQL's codes have five characters, and some are numeric too.
        code if code.len() < 5
            && code
                .parse::<i32>()
                .is_ok_and(|n| matches!(n & 0xff, 5 | 6 | 7 | 8 | 10 | 13 | 14)) =>
        {
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
