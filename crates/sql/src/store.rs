use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[cfg(feature = "sqlite")]
use sqlx::SqlitePool;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
#[cfg(feature = "sqlite")]
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, PgPool, Postgres, Row, Transaction,
};
use tokio::sync::watch;

use crate::conn::{AS_ENGINE, Role, Tx, as_service};
use crate::error::StoreError;
use crate::inbox::batch_lock;
use crate::secure::{self, Login, is_refused};

/// Which database a store is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the databases")]
pub enum Backend {
    Sqlite,
    Postgres,
}

/// A relay reads, writes checkpoints and renews its lease concurrently, each on a connection.
const RELAY_CONNECTIONS: u32 = 4;

/// The isolation level is said: a default of the database or the login must not change what our
/// statements see after they have waited for a lock.
const BEGIN: &str = "begin isolation level read committed";

/// Begins a transaction with these settings, in one round trip. The settings come first, in a
/// transaction that BEGIN then takes over: when one of them is refused, the connection is not left
/// in a transaction that was begun and failed.
fn begun_with(settings: &str) -> String {
    format!("set transaction isolation level read committed; {settings}; begin")
}

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The most connections to PostgreSQL. Default 10, and 4 more in a process that relays.
    pub max_connections: u32,
    /// Whether SQLite waits for the disk at every commit, so that a power cut loses no committed
    /// transaction. Default true.
    pub sync: bool,
    /// How long to wait for a connection or a lock. Default 10 s.
    pub timeout: Duration,
    /// Whether a SQLite file that does not exist is created. Default true.
    pub create: bool,
    /// Whether to try again, up to `timeout`, while PostgreSQL refuses connections, as it does
    /// while it starts. Default true.
    pub wait_for_server: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            max_connections: 10,
            sync: true,
            timeout: Duration::from_secs(10),
            create: true,
            wait_for_server: true,
        }
    }
}

/// A database with Chapar's tables in it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    pools: Pools,
    url: String,
    commits: watch::Sender<u64>,
    /// The oldest row of the outbox when notes about older ones were last looked for.
    swept: AtomicI64,
}

// The derived Debug of a pool would print the password.
impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("url", &self.url).finish_non_exhaustive()
    }
}

enum Pools {
    // SQLite has one writer: one connection that tasks queue for is fair and never busy,
    // whereas several would spin on SQLITE_BUSY.
    #[cfg(feature = "sqlite")]
    Sqlite {
        write: SqlitePool,
        read: SqlitePool,
    },
    // The relay looks very often: its few connections stay in the engine's role, which saves
    // three round trips at every look.
    Postgres {
        pool: PgPool,
        relay: Mutex<PgPool>,
        login: Box<Login>,
        timeout: Duration,
    },
}

impl Store {
    /// Opens `sqlite:FILE`, `sqlite::memory:` or `postgres://…`.
    ///
    /// The URL of PostgreSQL configures security: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`,
    /// and `password_file` to keep the password out of the URL. Files are read again for every
    /// connection, the password when the server refuses it.
    pub async fn open(url: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        let pools = match url.split_once(':') {
            #[cfg(feature = "sqlite")]
            Some(("sqlite", _)) => open_sqlite(url, options).await?,
            #[cfg(not(feature = "sqlite"))]
            Some(("sqlite", _)) => return Err(StoreError::NoSqlite),
            Some(("postgres" | "postgresql", _)) => open_postgres(url, options).await?,
            _ => return Err(StoreError::Url(without_secrets(url))),
        };
        Ok(Store(Arc::new(Inner {
            pools,
            url: without_secrets(url),
            commits: watch::Sender::new(0),
            swept: AtomicI64::new(0),
        })))
    }

    /// Whether the oldest row of the outbox is another than at the last [`set_swept`](Self::set_swept).
    pub(crate) fn is_unswept(&self, oldest: i64) -> bool {
        self.0.swept.load(Relaxed) != oldest
    }

    pub(crate) fn set_swept(&self, oldest: i64) {
        self.0.swept.store(oldest, Relaxed);
    }

    /// Which database this is.
    pub fn backend(&self) -> Backend {
        match &self.0.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite { .. } => Backend::Sqlite,
            Pools::Postgres { .. } => Backend::Postgres,
        }
    }

    /// The URL, without secrets.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Begins a transaction of a service on behalf of a tenant. One round trip.
    pub async fn begin(&self, tenant: &str) -> Result<Tx, StoreError> {
        let Pools::Postgres { pool, .. } = &self.0.pools else { return self.begin_raw().await };
        let begin = begun_with(&as_service(tenant)?);
        let begun = self.begin_with(pool, &begin).await.map_err(|error| self.granted(error))?;
        Ok(Tx::postgres(begun, Role::Service(tenant.to_owned())))
    }

    /// Begins a transaction of the engine itself, which sees the rows of all tenants. One round trip.
    pub async fn begin_engine(&self) -> Result<Tx, StoreError> {
        let Pools::Postgres { pool, .. } = &self.0.pools else { return self.begin_raw().await };
        let begin = begun_with(AS_ENGINE);
        let begun = self.begin_with(pool, &begin).await.map_err(|error| self.granted(error))?;
        Ok(Tx::postgres(begun, Role::Engine))
    }

    /// Begins the transaction that applies a batch of a consumer, as the engine. All batches of the
    /// consumer share a lock, which [`hold_batches`](crate::Consumers::hold_batches) waits for.
    /// One round trip.
    pub async fn begin_batch(&self, consumer: &str) -> Result<Tx, StoreError> {
        let Pools::Postgres { pool, .. } = &self.0.pools else { return self.begin_raw().await };
        let lock = batch_lock(consumer);
        let begin = begun_with(&format!(
            "{AS_ENGINE}; select pg_catalog.pg_advisory_xact_lock_shared({lock}::bigint)"
        ));
        Ok(Tx::postgres(self.begin_with(pool, &begin).await?, Role::Engine))
    }

    /// Begins a read-only transaction as the engine; on SQLite it runs concurrently with the
    /// writer.
    pub async fn begin_read(&self) -> Result<Tx, StoreError> {
        match &self.0.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite { read, .. } => Ok(Tx::sqlite(read.begin().await?)),
            Pools::Postgres { .. } => self.begin_engine().await,
        }
    }

    /// Like [`Store::begin_read`], for what a service reports about its own tables over all tenants:
    /// the login's `search_path` applies, while the engine finds its own tables and nothing else.
    pub async fn begin_report(&self) -> Result<Tx, StoreError> {
        let mut tx = self.begin_read().await?;
        if self.backend() == Backend::Postgres {
            tx.execute("set local search_path to default", vec![]).await?;
        }
        Ok(tx)
    }

    /// Begins a transaction of the relay, on one of its own connections.
    pub(crate) async fn begin_relay(&self) -> Result<Tx, StoreError> {
        match &self.0.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite { .. } => self.begin_engine().await,
            Pools::Postgres { relay, .. } => {
                let pool = lock(relay).clone();
                Ok(Tx::postgres(self.begin_with(&pool, BEGIN).await?, Role::Engine))
            }
        }
    }

    /// One of the relay's connections to PostgreSQL, outside of any transaction.
    pub(crate) async fn relay_connection(
        &self,
    ) -> Result<Option<PoolConnection<Postgres>>, StoreError> {
        match &self.0.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite { .. } => Ok(None),
            Pools::Postgres { relay, .. } => {
                let pool = lock(relay).clone();
                match pool.acquire().await {
                    Err(error) if self.reads_password_again(&pool, &error)? => {
                        Ok(Some(pool.acquire().await?))
                    }
                    acquired => Ok(Some(acquired?)),
                }
            }
        }
    }

    /// Abandons the relay's connections: one did not answer, and may never.
    pub(crate) fn reconnect_relay(&self) {
        if let Pools::Postgres { relay, login, timeout, .. } = &self.0.pools {
            *lock(relay) = relay_pool(&login.last(), *timeout);
        }
    }

    async fn begin_with(
        &self,
        pool: &PgPool,
        begin: &str,
    ) -> Result<Transaction<'static, Postgres>, StoreError> {
        // Made of constants, numbers and quoted literals.
        match pool.begin_with(AssertSqlSafe(begin.to_owned())).await {
            Err(error) if self.reads_password_again(pool, &error)? => {
                Ok(pool.begin_with(AssertSqlSafe(begin.to_owned())).await?)
            }
            begun => Ok(begun?),
        }
    }

    /// Turns the refusal of a statement on our own roles and schemas into the grant that is missing.
    pub(crate) fn granted(&self, error: StoreError) -> StoreError {
        const INSUFFICIENT_PRIVILEGE: &str = "42501";
        match (&self.0.pools, &error) {
            (
                Pools::Postgres { login, .. },
                StoreError::Database(sqlx::Error::Database(refused)),
            ) if refused.code().as_deref() == Some(INSUFFICIENT_PRIVILEGE) => {
                let name = login.last().get_username().replace('"', "\"\"");
                let said = refused.message().to_owned();
                StoreError::Rights { said, login: format!("\"{name}\"") }
            }
            _ => error,
        }
    }

    /// Whether the password was refused and the file has a new one, which the pool then uses.
    fn reads_password_again(&self, pool: &PgPool, error: &sqlx::Error) -> Result<bool, StoreError> {
        match &self.0.pools {
            Pools::Postgres { login, .. } if login.is_from_file() && is_refused(error) => {
                let fail = |reason| StoreError::Open { url: self.0.url.clone(), reason };
                let password = login.password().map_err(fail)?;
                let options = PgConnectOptions::clone(&pool.connect_options());
                pool.set_connect_options(options.password(&password));
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Begins a transaction in the login's own role, for migrations.
    pub async fn begin_raw(&self) -> Result<Tx, StoreError> {
        match &self.0.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite { write, .. } => {
                Ok(Tx::sqlite(write.begin_with("begin immediate").await?))
            }
            Pools::Postgres { pool, .. } => {
                Ok(Tx::postgres(self.begin_with(pool, BEGIN).await?, Role::Login))
            }
        }
    }

    /// Refuses a pooler in transaction mode, which may use another connection for every
    /// transaction.
    ///
    /// While one client keeps a transaction open, a second one asks twice for its backend's process
    /// id: a direct connection gives the same answer.
    pub async fn check_connection(&self) -> Result<(), StoreError> {
        const WHO: &str = "select pg_catalog.pg_backend_pid()";
        let Pools::Postgres { login, .. } = &self.0.pools else { return Ok(()) };
        let options = login.last();
        let connect = async || options.connect().await;
        let (mut one, mut other) = (connect().await?, connect().await?);
        // Simple queries: a pooler may not know statements prepared on another connection.
        let who = async |conn: &mut PgConnection| -> Result<i32, sqlx::Error> {
            sqlx::raw_sql(WHO).fetch_one(conn).await?.try_get(0)
        };
        let before = who(&mut one).await?;
        sqlx::raw_sql(BEGIN).execute(&mut other).await?;
        who(&mut other).await?;
        let after = who(&mut one).await;
        sqlx::raw_sql("rollback").execute(&mut other).await?;
        let same = before == after?;
        one.close().await?;
        other.close().await?;
        if same { Ok(()) } else { Err(StoreError::Pooler) }
    }

    /// Refuses a login whose engine role does not see the rows of all tenants: a relay that sees
    /// only some rows silently loses the others.
    pub async fn check_engine_role(&self) -> Result<(), StoreError> {
        const PLANT: &str = "insert into chapar.parked (consumer, ordering_key, event_id, tenant, \
             topic, log_partition, log_offset, headers, body) \
             values ('chapar', 'planted', 'planted', $1, 'planted', 0, 0, '[]', '')";
        const FIND: &str = "select 1 from chapar.parked where consumer = 'chapar'";
        const TENANT: &str = "chapar-planted-row";
        if self.backend() == Backend::Sqlite {
            return Ok(());
        }
        let blind = |source: StoreError| match source {
            // It says which grant is missing.
            StoreError::Unavailable(_) | StoreError::Rights { .. } => source,
            source => StoreError::EngineRole(source.to_string()),
        };
        let mut tx = self.begin_engine().await.map_err(blind)?;
        tx.execute(PLANT, vec![TENANT.into()]).await.map_err(blind)?;
        let seen = tx.fetch(FIND, vec![]).await.map_err(blind)?;
        tx.rollback().await?;
        match seen.len() {
            1 => Ok(()),
            _ => Err(StoreError::EngineRole("a test row is not visible".into())),
        }
    }

    /// Signals a commit within this process, so that readers need not wait for the next poll.
    pub fn nudge(&self) {
        self.0.commits.send_modify(|commits| *commits += 1);
    }

    /// Subscribes to commit signals. Read the store after this call, and no commit is missed.
    pub fn nudges(&self) -> Nudges {
        Nudges(self.0.commits.subscribe())
    }

    /// Closes all connections, after running statements have finished.
    pub async fn close(&self) {
        match &self.0.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite { write, read } => {
                read.close().await;
                write.close().await;
            }
            Pools::Postgres { pool, relay, .. } => {
                let relay = lock(relay).clone();
                relay.close().await;
                pool.close().await;
            }
        }
    }
}

/// A listener for the commit signals of a store.
#[derive(Debug)]
pub struct Nudges(watch::Receiver<u64>);

impl Nudges {
    /// Waits for a signal since the last call, at most for `limit`; returns whether there was one.
    pub async fn wait(&mut self, limit: Duration) -> bool {
        matches!(tokio::time::timeout(limit, self.0.changed()).await, Ok(Ok(())))
    }
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(url: &str, options: &StoreOptions) -> Result<Pools, StoreError> {
    let fail = |reason: String| StoreError::Open { url: without_secrets(url), reason };
    let memory = url.contains(":memory:");
    let connect = SqliteConnectOptions::from_str(url)
        .map_err(|error| fail(error.to_string()))?
        .create_if_missing(true)
        .journal_mode(if memory { SqliteJournalMode::Memory } else { SqliteJournalMode::Wal })
        .synchronous(if options.sync { SqliteSynchronous::Full } else { SqliteSynchronous::Normal })
        .busy_timeout(options.timeout)
        .statement_cache_capacity(512);
    if !memory
        && let Some(folder) = connect.get_filename().parent()
        && folder != Path::new("")
        && !folder.is_dir()
    {
        return Err(fail(format!(
            "the folder {} does not exist; create it first",
            folder.display()
        )));
    }
    if !memory {
        let file = connect.get_filename();
        prepare_file(file, options.create).map_err(fail)?;
    }
    let pool = |most: u32| {
        // An in-memory database exists as long as its one connection.
        let pool = SqlitePoolOptions::new().max_connections(most).acquire_timeout(options.timeout);
        if memory { pool.idle_timeout(None).max_lifetime(None).min_connections(1) } else { pool }
    };
    let write =
        pool(1).connect_with(connect.clone()).await.map_err(|error| fail(advice(&error)))?;
    // SQLite opens a file that is not a database without an error; reading it fails.
    let probe = sqlx::query("select count(*) from sqlite_master").execute(&write).await;
    probe.map_err(|error| fail(advice(&error)))?;
    let read = if memory {
        write.clone()
    } else {
        pool(4).connect_with(connect).await.map_err(|error| fail(advice(&error)))?
    };
    Ok(Pools::Sqlite { write, read })
}

/// Creates the file if it is missing, for its owner alone: events hold personal data. SQLite gives
/// its other files the same permissions.
#[cfg(feature = "sqlite")]
fn prepare_file(file: &Path, create: bool) -> Result<(), String> {
    if file.exists() {
        return Ok(());
    }
    // SQLite would read it as a URI, and create another file than the one prepared here.
    if file.to_string_lossy().starts_with("file:") {
        return Err("give the path itself: sqlite:path/to/file.db".to_owned());
    }
    // SQLite would create the file that a link names, for everybody to read.
    if file.is_symlink() {
        let target = std::fs::read_link(file).map_err(|error| error.to_string())?;
        let folder = file.parent().unwrap_or(Path::new(""));
        return prepare_file(&folder.join(target), create);
    }
    if !create {
        return Err("the file does not exist; check the path, or create it with \
                    `chapar migrate apply`"
            .to_owned());
    }
    let mut new = std::fs::OpenOptions::new();
    new.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
    match new.open(file) {
        // Another process was faster.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(format!(
            "the file cannot be created ({error}); check that its folder exists and may be written"
        )),
        Ok(_) => Ok(()),
    }
}

async fn open_postgres(url: &str, options: &StoreOptions) -> Result<Pools, StoreError> {
    let fail = |reason: String| StoreError::Open { url: without_secrets(url), reason };
    let login = Login::of(url).map_err(fail)?;
    let connect = login.read().map_err(fail)?;
    // The pool tries again while connections are refused, and then reports only the time-out.
    let refused = refusal(&connect, options.timeout).await;
    if let (Some(reason), false) = (&refused, options.wait_for_server) {
        return Err(fail(reason.clone()));
    }
    let pool = PgPoolOptions::new()
        .max_connections(options.max_connections)
        .acquire_timeout(options.timeout)
        .connect_with(connect.clone().application_name("chapar"))
        .await
        .map_err(|error| match (error, refused) {
            (sqlx::Error::PoolTimedOut, Some(reason)) => fail(reason),
            (error, _) => fail(secure::advice(&error).unwrap_or_else(|| advice(&error))),
        })?;
    let relay = Mutex::new(relay_pool(&connect, options.timeout));
    let (login, timeout) = (Box::new(login), options.timeout);
    Ok(Pools::Postgres { pool, relay, login, timeout })
}

/// Connects once; returns what to say if no server accepts connections.
async fn refusal(connect: &PgConnectOptions, timeout: Duration) -> Option<String> {
    match tokio::time::timeout(timeout, connect.connect()).await {
        Ok(Ok(connection)) => {
            // It has served its purpose; that it cannot be closed politely does not matter.
            let _ = connection.close().await;
            None
        }
        Ok(Err(sqlx::Error::Io(error)))
            if matches!(
                error.kind(),
                std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound
            ) =>
        {
            let (host, port) = (connect.get_host(), connect.get_port());
            Some(format!(
                "no server accepts connections at {host}:{port} ({error}); start it, or check \
                 host and port"
            ))
        }
        // The pool reports it too, with more advice.
        _ => None,
    }
}

fn relay_pool(connect: &PgConnectOptions, timeout: Duration) -> PgPool {
    PgPoolOptions::new()
        .max_connections(RELAY_CONNECTIONS)
        .acquire_timeout(timeout)
        .after_connect(|conn, _| {
            Box::pin(async move {
                // Reads are single statements, whose functions need a snapshot per statement.
                const SET: &str = "set role chapar_engine; \
                     set search_path = pg_catalog, pg_temp; \
                     set default_transaction_isolation = 'read committed'";
                sqlx::raw_sql(SET).execute(conn).await?;
                Ok(())
            })
        })
        .connect_lazy_with(connect.clone().application_name("chapar relay"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No code that holds the lock can panic in the middle of a change.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn advice(error: &sqlx::Error) -> String {
    let code = match error {
        sqlx::Error::Database(error) => error.code().unwrap_or_default().into_owned(),
        _ => String::new(),
    };
    match code.as_str() {
        "14" => "the file cannot be opened; check that its folder exists and may be written".into(),
        "8" | "1032" | "520" => "the file may only be read; check its permissions".into(),
        "26" | "11" => {
            "the file is not a SQLite database or is damaged; nothing was written to it".into()
        }
        "3D000" => format!("{error}; create the database first"),
        _ => error.to_string(),
    }
}

/// The URL without password and options. Of a malformed URL only the part that cannot be a secret
/// is left.
fn without_secrets(url: &str) -> String {
    const HIDDEN: &str = "***";
    let before = url.split('?').next().unwrap_or(url);
    let Some((scheme, rest)) = before.split_once("://") else {
        return match before.split_once(':') {
            Some(("sqlite", _)) => before.to_owned(),
            Some((scheme, _)) if !scheme.contains(['@', '/', '=', ' ']) => {
                format!("{scheme}:{HIDDEN}")
            }
            // Not a URL at all, but perhaps the other way to give a connection: `host=… password=…`.
            _ if url.contains(['@', ':', '=']) => HIDDEN.to_owned(),
            _ => before.to_owned(),
        };
    };
    match rest.rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split_once(':').map_or(user, |(name, _)| name);
            format!("{scheme}://{user}@{host}")
        }
        // A password with a question mark that is not escaped.
        None if url.contains('@') && rest.contains(':') => format!("{scheme}://{HIDDEN}"),
        None => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        let shown = without_secrets("postgres://me:se@cret@host:5432/db?password=x");
        assert_eq!(shown, "postgres://me@host:5432/db");
        assert_eq!(without_secrets("sqlite:a.db"), "sqlite:a.db");
        assert_eq!(without_secrets("postgres://h:5432/db?user=me@x"), "postgres://***");
        assert_eq!(without_secrets("mysql"), "mysql");
    }

    #[test]
    fn a_malformed_url_does_not_give_its_secret_away() {
        for url in [
            "postgres:me:secret@host/db",
            "postgres:/me:secret@host/db",
            "postgres//me:secret@host/db",
            "me:secret@host/db",
            "postgres://me:secret?x@host/db",
            "postgres://me:x?secret@host/db",
            "postgres://host/db?password=secret",
            "mysql://me:secret@host/db",
            "host=h user=bob password=secret",
            "host=h password=secret:x",
        ] {
            let shown = without_secrets(url);
            assert!(!shown.contains("secret"), "{url}: {shown}");
        }
    }
}
