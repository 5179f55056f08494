use std::borrow::Cow;

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Executor};

use crate::conn::{Conn, Tx};
use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::{Backend, Store};
use crate::tables::Tables;

/// One migration: numbered, forward only, never edited after its release.
#[derive(Debug, Clone)]
pub struct Migration {
    /// Ascending from 1 within its owner.
    pub version: i64,
    /// Its name.
    pub name: &'static str,
    /// Its text for PostgreSQL.
    pub postgres: Cow<'static, str>,
    /// Its text for SQLite.
    pub sqlite: Cow<'static, str>,
    /// Additive: programs that do not know it can still use the store.
    pub additive: bool,
}

impl Migration {
    /// A step with one text for both databases.
    pub fn new(version: i64, name: &'static str, sql: &'static str) -> Self {
        Migration { version, name, postgres: sql.into(), sqlite: sql.into(), additive: false }
    }

    /// Another text for PostgreSQL.
    pub fn on_postgres(mut self, sql: &'static str) -> Self {
        self.postgres = sql.into();
        self
    }

    /// Keeps tenants apart in these tables, by row-level security on their column `tenant`.
    /// SQLite has no such thing.
    pub fn protect<'a>(mut self, tables: impl IntoIterator<Item = &'a str>) -> Self {
        let mut sql = self.postgres.trim_end().trim_end_matches(';').to_owned();
        for table in tables {
            let table = table.replace('\'', "''");
            sql.push_str(&format!(";\ncall chapar.protect('{table}'::pg_catalog.regclass)"));
        }
        self.postgres = sql.into();
        self
    }
}

/// Where a schema stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaStatus {
    /// The versions that are applied.
    pub applied: Vec<i64>,
    /// The pending versions, with their names.
    pub pending: Vec<(i64, &'static str)>,
}

const OWNER: &str = "chapar";

/// Creates the roles and the schemas.
const ROLES: &str = include_str!("../migrations/postgres/roles.sql");

/// Becomes the owner of everything in our schemas.
const AS_OWNER: &str = "set local role chapar_owner; set local search_path = pg_catalog, pg_temp";

/// Objects that depend directly on a schema.
macro_rules! objects {
    ($schemas:literal) => {
        concat!(
            "pg_depend d cross join lateral pg_identify_object(d.classid, d.objid, 0) i \
             where d.refclassid = 'pg_namespace'::regclass and d.deptype = 'n' and d.refobjid in \
             (select n.oid from pg_namespace n where n.nspname in (",
            $schemas,
            "))"
        )
    };
}

/// Objects in our schemas that are not the owner's: a function there could run with the rights of the
/// login that migrates.
const OWNED_BY_OTHERS: &str = concat!(
    "select 'schema ' || n.nspname, 'is owned by ' || pg_get_userbyid(n.nspowner) \
     from pg_namespace n where n.nspname in ('chapar', 'chapar_migrations') \
     and n.nspowner <> 'chapar_owner'::regrole \
     union all select i.type || ' ' || i.identity, 'is owned by ' || coalesce( \
         (select pg_get_userbyid(s.refobjid) from pg_shdepend s where s.classid = d.classid \
          and s.objid = d.objid and s.deptype = 'o' and s.dbid = \
          (select b.oid from pg_database b where b.datname = current_database())), 'a superuser') \
     from ",
    objects!("'chapar', 'chapar_migrations'"),
    " and not exists (select from pg_shdepend s where s.classid = d.classid and s.objid = d.objid \
      and s.deptype = 'o' and s.refobjid = 'chapar_owner'::regrole and s.dbid = \
      (select b.oid from pg_database b where b.datname = current_database())) limit 1"
);

/// Objects in our schema that no migration made, save the partitions of the outbox.
const NOT_MADE: &str = concat!(
    "select i.type || ' ' || i.identity, 'was made by no migration' from ",
    objects!("'chapar'"),
    " and not exists (select from chapar_migrations.objects o \
      where o.identity = i.type || ' ' || i.identity) \
      and not (d.classid = 'pg_class'::regclass and exists (select from pg_inherits h \
      where h.inhrelid = d.objid and h.inhparent in \
      (to_regclass('chapar.outbox'), to_regclass('chapar.outbox_held')))) limit 1"
);

/// Remembers what lies in our schema.
const MADE: &str = concat!(
    "insert into chapar_migrations.objects (identity) select i.type || ' ' || i.identity from ",
    objects!("'chapar'"),
    " on conflict do nothing"
);

fn own() -> Vec<Migration> {
    vec![
        Migration {
            version: 1,
            name: "road",
            postgres: concat!(
                include_str!("../migrations/postgres/0001_road/1_tenants.sql"),
                include_str!("../migrations/postgres/0001_road/2_outbox.sql"),
                include_str!("../migrations/postgres/0001_road/3_consumers.sql"),
                include_str!("../migrations/postgres/0001_road/4_append.sql"),
            )
            .into(),
            sqlite: include_str!("../migrations/sqlite/0001_road.sql").into(),
            additive: false,
        },
        Migration {
            version: 2,
            name: "members",
            postgres: include_str!("../migrations/postgres/0002_members.sql").into(),
            sqlite: include_str!("../migrations/sqlite/0002_members.sql").into(),
            additive: true,
        },
        Migration {
            version: 4,
            name: "contracts",
            postgres: include_str!("../migrations/postgres/0004_contracts.sql").into(),
            sqlite: include_str!("../migrations/sqlite/0004_contracts.sql").into(),
            additive: true,
        },
        Migration {
            version: 5,
            name: "consumers",
            postgres: include_str!("../migrations/postgres/0005_consumers.sql").into(),
            sqlite: include_str!("../migrations/sqlite/0005_consumers.sql").into(),
            additive: true,
        },
        Migration {
            version: 7,
            name: "letters",
            postgres: include_str!("../migrations/postgres/0007_letters.sql").into(),
            sqlite: include_str!("../migrations/sqlite/0007_letters.sql").into(),
            additive: true,
        },
        Migration {
            version: 8,
            name: "projections",
            postgres: include_str!("../migrations/postgres/0008_projections.sql").into(),
            sqlite: include_str!("../migrations/sqlite/0008_projections.sql").into(),
            additive: true,
        },
    ]
}

impl Store {
    /// Applies the pending migrations of Chapar's own tables; returns their versions.
    pub async fn migrate(&self) -> Result<Vec<i64>, StoreError> {
        self.migrate_system(OWNER, &own()).await
    }

    /// The state of Chapar's own tables.
    pub async fn schema_status(&self) -> Result<SchemaStatus, StoreError> {
        self.system_status(OWNER, &own()).await
    }

    /// The pending migrations of Chapar's own tables, with their SQL.
    pub async fn migration_plan(&self) -> Result<Vec<(i64, &'static str, String)>, StoreError> {
        let pending = self.schema_status().await?.pending;
        let wanted = own().into_iter().filter(|m| pending.iter().any(|(v, _)| *v == m.version));
        let sql = |m: &Migration| match (self.backend(), m.version) {
            (Backend::Postgres, 1) => format!("{ROLES}\n{AS_OWNER};\n{}", text(m, self.backend())),
            _ => text(m, self.backend()).to_owned(),
        };
        Ok(wanted.map(|m| (m.version, m.name, sql(&m))).collect())
    }

    /// Applies the pending migrations of a system's tables, with the same checks as Chapar's own.
    pub async fn migrate_system(
        &self,
        owner: &str,
        migrations: &[Migration],
    ) -> Result<Vec<i64>, StoreError> {
        let mut done = Vec::new();
        for migration in migrations {
            let mut tx = self.begin_raw().await?;
            prepare(&mut tx).await?;
            let applied = applied(&mut tx.conn(), owner).await?;
            check(&applied, migrations, self.backend())?;
            if applied.iter().any(|row| row.version == migration.version) {
                continue;
            }
            match (self.backend(), owner) {
                (Backend::Postgres, OWNER) => {
                    run(&mut tx, text(migration, self.backend())).await?;
                    tx.execute(MADE, vec![]).await?;
                }
                (Backend::Postgres, _) => {
                    // A system's tables belong to the login, in its own schemas.
                    const LOGIN: &str =
                        "set local role to default; set local search_path to default";
                    run(&mut tx, LOGIN).await?;
                    run(&mut tx, text(migration, self.backend())).await?;
                    run(&mut tx, AS_OWNER).await?;
                }
                (Backend::Sqlite, _) => run(&mut tx, text(migration, self.backend())).await?,
            }
            record(&mut tx, owner, migration).await?;
            tx.commit().await?;
            done.push(migration.version);
        }
        Ok(done)
    }

    /// Refuses a store whose schema is newer than, older than or different from what this program
    /// expects.
    pub async fn check_schema(&self) -> Result<(), StoreError> {
        match self.schema_status().await?.pending.len() {
            0 => Ok(()),
            missing => Err(StoreError::MissingMigrations(missing)),
        }
    }

    async fn system_status(
        &self,
        owner: &str,
        migrations: &[Migration],
    ) -> Result<SchemaStatus, StoreError> {
        let mut tx = self.begin_raw().await?;
        let exists = match self.backend() {
            Backend::Postgres => {
                "select 1 where pg_catalog.to_regclass('chapar_migrations.applied') is not null"
            }
            Backend::Sqlite => "select 1 from sqlite_master where name = 'chapar_migrations'",
        };
        let found = tx.fetch(exists, vec![]).await.map_err(|error| self.granted(error))?;
        let applied = match found.is_empty() {
            true => Vec::new(),
            false => applied(&mut tx.conn(), owner).await.map_err(|error| self.granted(error))?,
        };
        tx.rollback().await?;
        check(&applied, migrations, self.backend())?;
        let versions: Vec<i64> = applied.iter().map(|row| row.version).collect();
        let pending = migrations
            .iter()
            .filter(|m| !versions.contains(&m.version))
            .map(|m| (m.version, m.name))
            .collect();
        Ok(SchemaStatus { applied: versions, pending })
    }
}

struct AppliedRow {
    version: i64,
    checksum: String,
    additive: bool,
}

fn text(migration: &Migration, backend: Backend) -> &str {
    match backend {
        Backend::Postgres => &migration.postgres,
        Backend::Sqlite => &migration.sqlite,
    }
}

fn checksum(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check(
    applied: &[AppliedRow],
    migrations: &[Migration],
    backend: Backend,
) -> Result<(), StoreError> {
    let known = migrations.iter().map(|m| m.version).max().unwrap_or(0);
    for row in applied {
        match migrations.iter().find(|m| m.version == row.version) {
            Some(m) if checksum(text(m, backend)) != row.checksum => {
                return Err(StoreError::AlteredMigration(row.version));
            }
            // An unknown additive migration belongs to a newer program, and this one can work
            // beside it.
            None if !row.additive => {
                return Err(StoreError::NewerSchema { found: row.version, known });
            }
            _ => {}
        }
    }
    Ok(())
}

async fn prepare(tx: &mut Tx) -> Result<(), StoreError> {
    match tx.backend() {
        Backend::Postgres => {
            // Two programs that start at once must not apply the same migration twice.
            const LOCK: &str = "select pg_catalog.pg_advisory_xact_lock(7526764::bigint)";
            tx.execute(LOCK, vec![]).await?;
            // No object of another schema may stand in for one that a migration means.
            run(tx, "set local search_path = pg_catalog, pg_temp").await?;
            run(tx, ROLES).await?;
            refuse(tx, OWNED_BY_OTHERS).await?;
            run(tx, AS_OWNER).await?;
            run(
                tx,
                "create table if not exists chapar_migrations.applied (
                     owner text not null, version bigint not null, name text not null,
                     checksum text not null, additive boolean not null,
                     applied_at timestamptz not null default clock_timestamp(),
                     primary key (owner, version));
                 create table if not exists chapar_migrations.objects (identity text primary key);
                 grant usage on schema chapar_migrations to chapar_app, chapar_engine;
                 grant select on chapar_migrations.applied to chapar_app, chapar_engine",
            )
            .await?;
            refuse(tx, NOT_MADE).await
        }
        Backend::Sqlite => {
            run(
                tx,
                "create table if not exists chapar_migrations (
                     owner text not null, version integer not null, name text not null,
                     checksum text not null, additive integer not null, applied_at integer not null,
                     primary key (owner, version)) strict",
            )
            .await
        }
    }
}

/// Refuses the first object that a query finds in our schemas.
async fn refuse(tx: &mut Tx, query: &'static str) -> Result<(), StoreError> {
    match tx.fetch(query, vec![]).await?.first() {
        Some(row) => Err(StoreError::ForeignObject { object: row.get(0)?, why: row.get(1)? }),
        None => Ok(()),
    }
}

async fn applied(conn: &mut Conn<'_>, owner: &str) -> Result<Vec<AppliedRow>, StoreError> {
    let sql = match conn.backend() {
        Backend::Postgres => {
            "select version, checksum, additive from chapar_migrations.applied where owner = $1 order by version"
        }
        Backend::Sqlite => {
            "select version, checksum, additive from chapar_migrations where owner = $1 order by version"
        }
    };
    let rows = conn.fetch(sql, vec![owner.into()]).await?;
    rows.iter()
        .map(|row| {
            Ok(AppliedRow { version: row.get(0)?, checksum: row.get(1)?, additive: row.get(2)? })
        })
        .collect()
}

async fn record(tx: &mut Tx, owner: &str, migration: &Migration) -> Result<(), StoreError> {
    static POSTGRES: &str = "insert into chapar_migrations.applied (owner, version, name, checksum, additive) values ($1, $2, $3, $4, $5)";
    static SQLITE: Statement = Statement::new(
        "insert into chapar_migrations (owner, version, name, checksum, additive, applied_at) \
         values ($1, $2, $3, $4, $5, clock_timestamp())",
    );
    let sql = match tx.backend() {
        Backend::Postgres => POSTGRES,
        Backend::Sqlite => SQLITE.on(Backend::Sqlite),
    };
    let checksum = checksum(text(migration, tx.backend()));
    let args = vec![
        owner.into(),
        migration.version.into(),
        migration.name.into(),
        checksum.into(),
        migration.additive.into(),
    ];
    tx.execute(sql, args).await?;
    Ok(())
}

async fn run(tx: &mut Tx, script: &str) -> Result<(), StoreError> {
    // Migrations are constants of the program; no outside text gets in here.
    let script = sqlx::raw_sql(AssertSqlSafe(script.to_owned()));
    match tx.conn() {
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(conn) => {
            conn.execute(script).await?;
        }
        Conn::Postgres(conn) => {
            conn.execute(script).await.map_err(explained)?;
        }
    }
    Ok(())
}

/// A refusal with what to do about it: PostgreSQL's hint, or the right that a new schema takes.
fn explained(error: sqlx::Error) -> StoreError {
    const INSUFFICIENT_PRIVILEGE: &str = "42501";
    let sqlx::Error::Database(refused) = &error else { return error.into() };
    let Some(refused) = refused.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() else {
        return error.into();
    };
    let hint = match (refused.hint(), refused.code()) {
        (Some(hint), _) => hint.to_owned(),
        (None, INSUFFICIENT_PRIVILEGE) => {
            "have an administrator run: grant create on database <database> to <login>;".to_owned()
        }
        _ => return error.into(),
    };
    StoreError::Hinted { said: refused.message().to_owned(), hint }
}
