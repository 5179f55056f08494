use std::fmt;

use sqlx::postgres::PgArguments;
#[cfg(feature = "sqlite")]
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Transaction};
#[cfg(feature = "sqlite")]
use sqlx::{Sqlite, SqliteConnection};

use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::Backend;
use crate::value::{Row, RowInner, Value};

/// A transaction that works on SQLite and on PostgreSQL.
///
/// Dropped without [`Tx::commit`] it rolls back. Statements use `$1`, `ON CONFLICT` and
/// `RETURNING`, which both databases understand.
pub struct Tx {
    inner: TxInner,
    role: Role,
}

/// In which role a transaction on PostgreSQL is, so that no round trip is made to a role that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    Login,
    Engine,
    /// A service on behalf of a tenant.
    Service(String),
}

enum TxInner {
    #[cfg(feature = "sqlite")]
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

impl Tx {
    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite(tx: Transaction<'static, Sqlite>) -> Self {
        Tx { inner: TxInner::Sqlite(tx), role: Role::Login }
    }

    pub(crate) fn postgres(tx: Transaction<'static, Postgres>, role: Role) -> Self {
        Tx { inner: TxInner::Postgres(tx), role }
    }

    /// Which database this is on.
    pub fn backend(&self) -> Backend {
        match &self.inner {
            #[cfg(feature = "sqlite")]
            TxInner::Sqlite(_) => Backend::Sqlite,
            TxInner::Postgres(_) => Backend::Postgres,
        }
    }

    pub(crate) fn borrow(&mut self) -> Conn<'_> {
        match &mut self.inner {
            #[cfg(feature = "sqlite")]
            TxInner::Sqlite(tx) => Conn::Sqlite(tx),
            TxInner::Postgres(tx) => Conn::Postgres(tx),
        }
    }

    /// Runs a statement; returns how many rows it touched.
    pub async fn execute(
        &mut self,
        sql: &'static str,
        args: Vec<Value>,
    ) -> Result<u64, StoreError> {
        self.borrow().execute(sql, args).await
    }

    /// Runs a query; returns all rows.
    pub async fn fetch(
        &mut self,
        sql: &'static str,
        args: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        self.borrow().fetch(sql, args).await
    }

    /// Runs a query; returns its first row, if there is one.
    pub async fn fetch_optional(
        &mut self,
        sql: &'static str,
        args: Vec<Value>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.fetch(sql, args).await?.into_iter().next())
    }

    /// The native PostgreSQL transaction, where it is one.
    pub fn as_postgres(&mut self) -> Option<&mut Transaction<'static, Postgres>> {
        match &mut self.inner {
            TxInner::Postgres(tx) => Some(tx),
            #[cfg(feature = "sqlite")]
            TxInner::Sqlite(_) => None,
        }
    }

    /// The native SQLite transaction, where it is one.
    #[cfg(feature = "sqlite")]
    pub fn as_sqlite(&mut self) -> Option<&mut Transaction<'static, Sqlite>> {
        match &mut self.inner {
            #[cfg(feature = "sqlite")]
            TxInner::Sqlite(tx) => Some(tx),
            TxInner::Postgres(_) => None,
        }
    }

    /// Binds the rest of the transaction to one tenant, by row-level security where the database
    /// has it.
    pub async fn set_tenant(&mut self, tenant: &str) -> Result<(), StoreError> {
        if self.backend() == Backend::Postgres {
            const SET: &str = "select pg_catalog.set_config('app.tenant_id', $1, true)";
            self.execute(SET, vec![tenant.into()]).await?;
            if let Role::Service(current) = &mut self.role {
                tenant.clone_into(current);
            }
        }
        Ok(())
    }

    /// Switches to the service role for a tenant: row-level security applies. No round trip if it is
    /// in that role.
    pub async fn become_service(&mut self, tenant: &str) -> Result<(), StoreError> {
        if matches!(&self.role, Role::Service(current) if current == tenant) {
            return Ok(());
        }
        // The engine's search path is not the service's.
        let path = match self.role {
            Role::Engine => "set local search_path to default; ",
            _ => "",
        };
        let sql = format!("{path}{}", as_service(tenant)?);
        self.switch(sql, Role::Service(tenant.to_owned())).await
    }

    /// Switches to the engine role, which sees the rows of all tenants. No round trip if it is in that
    /// role.
    pub async fn become_engine(&mut self) -> Result<(), StoreError> {
        match self.role {
            Role::Engine => Ok(()),
            _ => self.switch(AS_ENGINE.to_owned(), Role::Engine).await,
        }
    }

    async fn switch(&mut self, sql: String, role: Role) -> Result<(), StoreError> {
        if let Conn::Postgres(conn) = self.borrow() {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?;
        }
        self.role = role;
        Ok(())
    }

    /// Commits.
    pub async fn commit(self) -> Result<(), StoreError> {
        match self.inner {
            #[cfg(feature = "sqlite")]
            TxInner::Sqlite(tx) => tx.commit().await?,
            TxInner::Postgres(tx) => tx.commit().await?,
        }
        Ok(())
    }

    /// Rolls back now instead of on drop.
    pub async fn rollback(self) -> Result<(), StoreError> {
        match self.inner {
            #[cfg(feature = "sqlite")]
            TxInner::Sqlite(tx) => tx.rollback().await?,
            TxInner::Postgres(tx) => tx.rollback().await?,
        }
        Ok(())
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tx").field(&self.backend()).finish()
    }
}

/// Becomes the engine for the rest of a transaction. Its statements find no function or operator
/// outside of `pg_catalog`: one in another schema could be there to run with the engine's rights.
pub(crate) const AS_ENGINE: &str =
    "set local role chapar_engine; set local search_path = pg_catalog, pg_temp";

/// Becomes a service on behalf of a tenant.
pub(crate) fn as_service(tenant: &str) -> Result<String, StoreError> {
    if tenant.contains('\0') {
        return Err(StoreError::TooLong("a tenant must not contain a NUL character".into()));
    }
    let tenant = tenant.replace('\\', "\\\\").replace('\'', "''");
    Ok(format!("set local role chapar_app; set local app.tenant_id = E'{tenant}'"))
}

/// A borrowed transaction: ours, or the caller's own from `sqlx`.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names are the databases")]
pub enum Conn<'t> {
    #[cfg(feature = "sqlite")]
    Sqlite(&'t mut SqliteConnection),
    Postgres(&'t mut PgConnection),
}

impl<'t> From<&'t mut Tx> for Conn<'t> {
    fn from(tx: &'t mut Tx) -> Self {
        tx.borrow()
    }
}

impl<'t> From<&'t mut Transaction<'_, Postgres>> for Conn<'t> {
    fn from(tx: &'t mut Transaction<'_, Postgres>) -> Self {
        Conn::Postgres(&mut *tx)
    }
}

#[cfg(feature = "sqlite")]
impl<'t> From<&'t mut Transaction<'_, Sqlite>> for Conn<'t> {
    fn from(tx: &'t mut Transaction<'_, Sqlite>) -> Self {
        Conn::Sqlite(&mut *tx)
    }
}

impl Conn<'_> {
    /// Which database this is on.
    pub fn backend(&self) -> Backend {
        match self {
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => Backend::Sqlite,
            Conn::Postgres(_) => Backend::Postgres,
        }
    }

    /// Runs a statement; returns how many rows it touched.
    pub async fn execute(
        &mut self,
        sql: &'static str,
        args: Vec<Value>,
    ) -> Result<u64, StoreError> {
        Ok(match self {
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => {
                let query = sqlx::query_with(sql, sqlite_args(args)?);
                query.execute(&mut **conn).await?.rows_affected()
            }
            Conn::Postgres(conn) => {
                let query = sqlx::query_with(sql, postgres_args(args)?);
                query.execute(&mut **conn).await?.rows_affected()
            }
        })
    }

    /// Runs a query; returns all rows.
    pub async fn fetch(
        &mut self,
        sql: &'static str,
        args: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        Ok(match self {
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => {
                let query = sqlx::query_with(sql, sqlite_args(args)?);
                let rows = query.fetch_all(&mut **conn).await?;
                rows.into_iter().map(|row| Row(RowInner::Sqlite(row))).collect()
            }
            Conn::Postgres(conn) => {
                let query = sqlx::query_with(sql, postgres_args(args)?);
                let rows = query.fetch_all(&mut **conn).await?;
                rows.into_iter().map(|row| Row(RowInner::Postgres(row))).collect()
            }
        })
    }

    pub(crate) async fn run(
        &mut self,
        statement: &Statement,
        args: Vec<Value>,
    ) -> Result<u64, StoreError> {
        let sql = statement.on(self.backend());
        self.execute(sql, args).await
    }

    pub(crate) async fn query(
        &mut self,
        statement: &Statement,
        args: Vec<Value>,
    ) -> Result<Vec<Row>, StoreError> {
        let sql = statement.on(self.backend());
        self.fetch(sql, args).await
    }
}

#[cfg(feature = "sqlite")]
fn sqlite_args(args: Vec<Value>) -> Result<SqliteArguments, StoreError> {
    let mut bound = SqliteArguments::default();
    for value in args {
        value.bind_sqlite(&mut bound)?;
    }
    Ok(bound)
}

fn postgres_args(args: Vec<Value>) -> Result<PgArguments, StoreError> {
    let mut bound = PgArguments::default();
    for value in args {
        value.bind_postgres(&mut bound)?;
    }
    Ok(bound)
}
