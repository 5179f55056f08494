//! Tenants apart, tried from outside: a login that owns nothing and bypasses nothing.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use chapar_sql::{Append, Store, StoreError, StoreOptions, Tx};
use chapar_testkit::{need, servers};

struct Town {
    admin: Store,
    service: Store,
    _database: servers::Database,
}

/// A migrated database, and a store opened by a plain login that is a service's.
async fn town(server: &servers::Postgres) -> Town {
    let database = server.database("tenants").unwrap();
    let admin = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    admin.migrate().await.unwrap();
    let name = format!("svc_{}", database.name());
    let mut tx = admin.begin_raw().await.unwrap();
    for sql in [
        format!("create role {name} login password 'tenant' nosuperuser nobypassrls"),
        format!("grant chapar_app to {name}"),
        format!("grant connect on database {} to {name}", database.name()),
    ] {
        tx.execute(sql.leak(), vec![]).await.unwrap();
    }
    tx.commit().await.unwrap();
    let (_, place) = database.url().rsplit_once('@').unwrap();
    let url = format!("postgres://{name}:tenant@{place}");
    let service = Store::open(&url, &StoreOptions::default()).await.unwrap();
    Town { admin, service, _database: database }
}

fn event(tenant: &str, id: &str) -> Append {
    Append {
        event_id: id.into(),
        tenant: tenant.into(),
        topic: "melmastoon.reservation.booking.held.v1".into(),
        ordering_key: Some(format!("{tenant}:{id}")),
        aggregate_type: "booking".into(),
        aggregate_id: id.into(),
        idempotency_key: Some(id.into()),
        payload_hash: Append::hash(b"{}"),
        correlation_id: id.into(),
        causation_id: None,
        headers: "[]".into(),
        body: "{}".into(),
    }
}

async fn as_tenant(store: &Store, tenant: &str) -> Tx {
    let mut tx = store.begin_raw().await.unwrap();
    tx.set_tenant(tenant).await.unwrap();
    tx
}

async fn count(tx: &mut Tx, sql: &'static str) -> i64 {
    tx.fetch(sql, vec![]).await.unwrap()[0].get(0).unwrap()
}

#[tokio::test]
async fn every_table_with_a_tenant_is_under_forced_row_level_security() {
    let server = need!(servers::postgres());
    let town = town(&server).await;
    let mut tx = town.admin.begin_raw().await.unwrap();
    let open = "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
        join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant' and not a.attisdropped \
        where n.nspname = 'chapar' and c.relkind in ('r', 'p') \
        and not (c.relrowsecurity and c.relforcerowsecurity)";
    assert_eq!(count(&mut tx, open).await, 0);
    let closed = "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
        where n.nspname = 'chapar' and c.relforcerowsecurity";
    assert!(count(&mut tx, closed).await >= 11);
}

#[tokio::test]
async fn a_service_reads_and_writes_the_rows_of_its_tenant_only() {
    let server = need!(servers::postgres());
    let town = town(&server).await;
    for (tenant, id) in [("a", "a1"), ("b", "b1")] {
        let mut tx = as_tenant(&town.service, tenant).await;
        tx.conn().append(&[event(tenant, id)]).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut tx = as_tenant(&town.service, "a").await;
    assert_eq!(count(&mut tx, "select count(*) from chapar.outbox").await, 1);
    assert_eq!(count(&mut tx, "select count(*) from chapar.outbox where tenant = 'b'").await, 0);
    let stolen =
        tx.execute("update chapar.outbox set tenant = 'a' where tenant = 'b'", vec![]).await;
    assert_eq!(stolen.unwrap(), 0, "another tenant's rows are not there to be changed");
    assert_eq!(
        tx.execute("delete from chapar.outbox where tenant = 'b'", vec![]).await.unwrap(),
        0
    );
    drop(tx);

    let mut tx = as_tenant(&town.service, "a").await;
    let forged = tx.conn().append(&[event("b", "b2")]).await;
    assert!(matches!(forged, Err(StoreError::Database(_))), "{forged:?}");
    let mut tx = as_tenant(&town.service, "a").await;
    let moved = tx.execute("update chapar.outbox set tenant = 'b'", vec![]).await;
    assert!(moved.is_err(), "a row cannot be given away either");

    let mut tx = town.admin.begin_engine().await.unwrap();
    assert_eq!(count(&mut tx, "select count(*) from chapar.outbox").await, 2);
}

#[tokio::test]
async fn without_a_tenant_there_is_an_error_and_not_an_empty_answer() {
    let server = need!(servers::postgres());
    let town = town(&server).await;
    let mut tx = as_tenant(&town.service, "a").await;
    tx.conn().append(&[event("a", "a0")]).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = town.service.begin_raw().await.unwrap();
    let unset = tx.fetch("select count(*) from chapar.outbox", vec![]).await;
    assert!(matches!(unset, Err(StoreError::TenantUnset)), "{unset:?}");
    let mut tx = town.service.begin_raw().await.unwrap();
    let unset = tx.conn().append(&[event("a", "a1")]).await;
    assert!(matches!(unset, Err(StoreError::TenantUnset)), "{unset:?}");
}

#[tokio::test]
async fn a_service_cannot_become_the_engine_or_touch_what_is_the_engines() {
    let server = need!(servers::postgres());
    let town = town(&server).await;
    assert!(town.service.begin_engine().await.is_err());
    for sql in [
        "update chapar.shards set epoch = 1",
        "update chapar.cursors set acked_offset = 0",
        "delete from chapar.audit_log",
        "update chapar.settings set value = 'x'",
        "alter table chapar.outbox disable row level security",
        "drop policy tenant_rows on chapar.outbox",
    ] {
        let mut tx = as_tenant(&town.service, "a").await;
        assert!(tx.execute(sql, vec![]).await.is_err(), "{sql}");
    }
}

#[tokio::test]
async fn the_audit_log_only_grows_also_for_its_owner() {
    let server = need!(servers::postgres());
    let town = town(&server).await;
    let mut tx = town.admin.begin_engine().await.unwrap();
    let insert = "insert into chapar.audit_log (actor, action, target, reason, detail) \
                  values ('me', 'test', 'nothing', 'because', '{}')";
    tx.execute(insert, vec![]).await.unwrap();
    tx.commit().await.unwrap();
    for sql in [
        "delete from chapar.audit_log",
        "update chapar.audit_log set actor = 'you'",
        "truncate chapar.audit_log",
    ] {
        let mut tx = town.admin.begin_raw().await.unwrap();
        let refused = tx.execute(sql, vec![]).await.unwrap_err();
        let source = std::error::Error::source(&refused).map(ToString::to_string);
        assert!(source.unwrap_or_default().contains("append-only"), "{sql}: {refused}");
    }
}

#[tokio::test]
async fn a_login_that_cannot_see_all_tenants_is_refused_as_a_relay() {
    let server = need!(servers::postgres());
    let town = town(&server).await;
    town.admin.check_engine_role().await.unwrap();
    let refused = town.service.check_engine_role().await.unwrap_err().to_string();
    assert!(refused.contains("grant chapar_app, chapar_engine to"), "{refused}");
    let mut tx = town.admin.begin_engine().await.unwrap();
    assert_eq!(
        count(&mut tx, "select count(*) from chapar.parked").await,
        0,
        "nothing stays planted"
    );
}
