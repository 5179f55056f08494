//! Schemas: forward only, refused when newer, lived beside when additive.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use chapar_sql::{Backend, Store, StoreError, StoreOptions};
use chapar_testkit::{need, servers};

async fn on_sqlite(test: impl AsyncFn(Store)) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    test(Store::open(&url, &StoreOptions::default()).await.unwrap()).await;
}

async fn on_postgres(server: &servers::Postgres, test: impl AsyncFn(Store)) {
    let database = server.database("migrations").unwrap();
    test(Store::open(database.url(), &StoreOptions::default()).await.unwrap()).await;
}

async fn forward_only(store: Store) {
    let missing = store.check_schema().await;
    assert!(matches!(missing, Err(StoreError::MissingMigrations(6))), "{missing:?}");
    assert_eq!(store.migration_plan().await.unwrap().len(), 6);
    assert_eq!(store.migrate().await.unwrap(), [1, 2, 4, 5, 7, 8]);
    assert_eq!(store.migrate().await.unwrap(), [] as [i64; 0], "applied twice it does nothing");
    store.check_schema().await.unwrap();
    assert!(store.migration_plan().await.unwrap().is_empty());

    pretend_newer(&store, 98, true).await;
    store.check_schema().await.expect("an additive step of a newer program is lived beside");
    pretend_newer(&store, 99, false).await;
    let newer = store.check_schema().await.unwrap_err();
    assert!(newer.to_string().contains("schema is at version 99, this program knows 8"), "{newer}");
    assert!(store.migrate().await.is_err(), "and nothing is applied on top of it");
}

async fn pretend_newer(store: &Store, version: i64, additive: bool) {
    let sql = match store.backend() {
        Backend::Postgres => {
            "insert into chapar_migrations.applied (owner, version, name, checksum, additive) \
             values ('chapar', $1, 'newer', '', $2)"
        }
        Backend::Sqlite => {
            "insert into chapar_migrations (owner, version, name, checksum, additive, applied_at) \
             values ('chapar', $1, 'newer', '', $2, 0)"
        }
    };
    let mut tx = store.begin_raw().await.unwrap();
    tx.execute(sql, vec![version.into(), additive.into()]).await.unwrap();
    tx.commit().await.unwrap();
}

async fn altered(store: Store) {
    store.migrate().await.unwrap();
    let sql = match store.backend() {
        Backend::Postgres => "update chapar_migrations.applied set checksum = 'other'",
        Backend::Sqlite => "update chapar_migrations set checksum = 'other'",
    };
    let mut tx = store.begin_raw().await.unwrap();
    tx.execute(sql, vec![]).await.unwrap();
    tx.commit().await.unwrap();
    assert!(matches!(store.check_schema().await, Err(StoreError::AlteredMigration(1))));
}

#[tokio::test]
async fn a_sqlite_schema_goes_forward_and_refuses_a_newer_one() {
    on_sqlite(forward_only).await;
    on_sqlite(altered).await;
}

#[tokio::test]
async fn a_postgres_schema_goes_forward_and_refuses_a_newer_one() {
    let server = need!(servers::postgres());
    on_postgres(&server, forward_only).await;
    on_postgres(&server, altered).await;
}

#[tokio::test]
async fn two_programs_that_migrate_at_once_apply_each_step_once() {
    let server = need!(servers::postgres());
    let database = server.database("race").unwrap();
    let options = StoreOptions { max_connections: 2, ..Default::default() };
    let open = || Store::open(database.url(), &options);
    let (a, b) = (open().await.unwrap(), open().await.unwrap());
    let (a, b) = tokio::join!(a.migrate(), b.migrate());
    assert_eq!(a.unwrap().len() + b.unwrap().len(), 6);
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let open = async |url: String| {
        Store::open(&url, &StoreOptions::default()).await.unwrap_err().to_string()
    };
    let garbage = folder.path().join("garbage.db");
    std::fs::write(&garbage, vec![7; 8192]).unwrap();
    let error = open(format!("sqlite:{}", garbage.display())).await;
    assert!(error.contains("not a SQLite database or is damaged"), "{error}");
    assert_eq!(std::fs::read(&garbage).unwrap(), vec![7; 8192], "nothing was damaged");
    let error = open(format!("sqlite:{}/no/such/folder.db", folder.path().display())).await;
    assert!(error.contains("create it first"), "{error}");
    let error = open("mysql://localhost".into()).await;
    assert!(error.contains("is not a store; use sqlite:FILE"), "{error}");
    let error = open("postgres://stranger:secret@127.0.0.1:1/none".into()).await;
    assert!(error.contains("stranger@127.0.0.1:1") && !error.contains("secret"), "{error}");
}
