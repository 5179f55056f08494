//! Other languages emit by SQL: the samples of the guide, run as they stand.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

use chapar_sql::{Store, StoreOptions};
use chapar_testkit::{need, servers};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/emit").join(name)
}

async fn orders(server: &servers::Postgres) -> (Store, servers::Database) {
    let database = server.database("languages").unwrap();
    let store = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let mut tx = store.begin_raw().await.unwrap();
    let create =
        "create table orders (tenant text not null, id text primary key, total bigint not null)";
    tx.execute(create, vec![]).await.unwrap();
    tx.execute("call chapar.protect('orders'::regclass)", vec![]).await.unwrap();
    tx.commit().await.unwrap();
    (store, database)
}

async fn emitted(store: &Store, order: &str) -> i64 {
    let mut tx = store.begin_raw().await.unwrap();
    let both = "select count(*) from orders o join chapar.outbox e on e.aggregate_id = o.id \
                where o.id = $1 and not e.sealed and e.ordering_key = 'acme:' || o.id";
    tx.fetch(both, vec![order.into()]).await.unwrap()[0].get(0).unwrap()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[tokio::test]
async fn psql_emits_in_its_own_transaction() {
    let server = need!(servers::postgres());
    let (store, database) = orders(&server).await;
    run(Command::new("psql").arg(database.url()).arg("-f").arg(sample("emit.sql")));
    assert_eq!(emitted(&store, "ord_1").await, 1);
}

#[tokio::test]
async fn python_emits_in_its_own_transaction() {
    let server = need!(servers::postgres());
    let (store, database) = orders(&server).await;
    let packages = servers::python_packages("psycopg").unwrap();
    let id = run(Command::new("python3")
        .env("PYTHONPATH", packages)
        .arg(sample("emit.py"))
        .arg(database.url()));
    assert_eq!(id.trim().len(), 36, "an event id: {id}");
    assert_eq!(emitted(&store, "ord_2").await, 1);
}
