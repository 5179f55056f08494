use std::borrow::Cow;

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Executor};

use crate::conn::{Conn, Tx};
use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::{Backend, Store};

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
            sql.push_str(&format!(";\ncall chapar.protect('{}')", table.replace('\'', "''")));
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

fn own() -> Vec<Migration> {
    vec![
        Migration {
            version: 1,
            name: "road",
            postgres: include_str!("../migrations/postgres/0001_road.sql").into(),
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
        Ok(wanted.map(|m| (m.version, m.name, text(&m, self.backend()).to_owned())).collect())
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
            run(&mut tx, text(migration, self.backend())).await?;
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
                "select 1 where to_regclass('chapar_migrations.applied') is not null"
            }
            Backend::Sqlite => "select 1 from sqlite_master where name = 'chapar_migrations'",
        };
        let applied = match tx.fetch(exists, vec![]).await?.is_empty() {
            true => Vec::new(),
            false => applied(&mut tx.conn(), owner).await?,
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
            const LOCK: &str = "select pg_advisory_xact_lock(7526764)";
            tx.execute(LOCK, vec![]).await?;
            run(
                tx,
                "create schema if not exists chapar_migrations;
                 create table if not exists chapar_migrations.applied (
                     owner text not null, version bigint not null, name text not null,
                     checksum text not null, additive boolean not null,
                     applied_at timestamptz not null default clock_timestamp(),
                     primary key (owner, version))",
            )
            .await
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
            conn.execute(script).await?;
        }
    }
    Ok(())
}
