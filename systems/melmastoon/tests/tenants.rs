//! The hotel's own tables: one tenant does not see another, whoever asks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use chapar::{Store, StoreOptions, Tx};
use chapar_testkit::{need, servers};

async fn count(tx: &mut Tx, sql: &'static str) -> i64 {
    tx.fetch(sql, vec![]).await.unwrap()[0].get(0).unwrap()
}

#[tokio::test]
async fn every_table_of_the_hotel_with_a_tenant_is_under_forced_row_level_security() {
    let server = need!(servers::postgres());
    let database = server.database("hotel_tenants").unwrap();
    let store = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    melmastoon::migrate(&store).await.unwrap();
    let mut tx = store.begin_raw().await.unwrap();
    let tables = "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
        join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant' and not a.attisdropped \
        where n.nspname not in ('pg_catalog', 'information_schema', 'chapar') and c.relkind in ('r', 'p')";
    assert!(count(&mut tx, tables).await >= 12);
    let open = "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
        join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant' and not a.attisdropped \
        where n.nspname not in ('pg_catalog', 'information_schema') and c.relkind in ('r', 'p') \
        and not (c.relrowsecurity and c.relforcerowsecurity)";
    assert_eq!(count(&mut tx, open).await, 0);
}

#[tokio::test]
async fn a_service_sees_and_changes_the_bookings_of_its_tenant_only() {
    let server = need!(servers::postgres());
    let database = server.database("hotel_tenants").unwrap();
    let store = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    melmastoon::migrate(&store).await.unwrap();
    for tenant in ["a", "b"] {
        let mut tx = store.begin(tenant).await.unwrap();
        let queue = "insert into manual_key_queue values ($1, 'r1', 'vendor error', now())";
        tx.execute(queue, vec![tenant.into()]).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut tx = store.begin("a").await.unwrap();
    assert_eq!(count(&mut tx, "select count(*) from manual_key_queue").await, 1);
    let taken =
        tx.execute("delete from manual_key_queue where tenant = 'b'", vec![]).await.unwrap();
    assert_eq!(taken, 0);
    let forged = "insert into manual_key_queue values ('b', 'r2', 'forged', now())";
    assert!(tx.execute(forged, vec![]).await.is_err());
}
