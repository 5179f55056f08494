//! Tenants apart, tried from outside: a login that owns nothing and bypasses nothing.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use chapar_sql::{Append, Store, StoreError, StoreOptions, Tables, Tx};
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
        tx.outbox_rows().append(&[event(tenant, id)]).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut tx = as_tenant(&town.service, "a").await;
    assert_eq!(count(&mut tx, "select count(*) from chapar.outbox").await, 1);
    assert_eq!(count(&mut tx, "select count(*) from chapar.outbox where tenant = 'b'").await, 0);
    drop(tx);

    let mut tx = as_tenant(&town.service, "a").await;
    let forged = tx.outbox_rows().append(&[event("b", "b2")]).await;
    let Err(StoreError::WrongTenant(said)) = &forged else { panic!("{forged:?}") };
    assert_eq!(said, "this transaction is for the tenant 'a', and the event for 'b'");
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
    tx.outbox_rows().append(&[event("a", "a0")]).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = town.service.begin_raw().await.unwrap();
    let unset = tx.fetch("select count(*) from chapar.outbox", vec![]).await;
    assert!(matches!(unset, Err(StoreError::TenantUnset)), "{unset:?}");
    let mut tx = town.service.begin_raw().await.unwrap();
    let unset = tx.outbox_rows().append(&[event("a", "a1")]).await;
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
        "update chapar.settings set key_template = 'x'",
        "insert into chapar.subjects values ('a.b', 'c', false)",
        "alter table chapar.outbox disable row level security",
        "drop policy tenant_rows on chapar.outbox",
    ] {
        let mut tx = as_tenant(&town.service, "a").await;
        assert!(tx.execute(sql, vec![]).await.is_err(), "{sql}");
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

/// The guide says how: by the login, which neither `set role` nor a setting changes.
#[tokio::test]
async fn a_login_can_be_bound_to_its_tenant() {
    let server = need!(servers::postgres());
    let town = town(&server).await;
    let mut tx = town.admin.begin_raw().await.unwrap();
    let login = format!("svc_{}", town._database.name());
    let policy = format!(
        "create policy bound on orders as restrictive \
         using (tenant = case session_user when '{login}' then 'acme' else tenant end)"
    );
    for (tenant, sql) in [
        ("acme", "create table orders (tenant text not null, id text primary key)"),
        ("acme", "call chapar.protect('orders'::regclass)"),
        ("acme", "insert into orders values ('acme', '1')"),
        ("blue", "insert into orders values ('blue', '2')"),
    ] {
        tx.set_tenant(tenant).await.unwrap();
        tx.execute(sql, vec![]).await.unwrap();
    }
    tx.commit().await.unwrap();
    const ALL: &str = "select count(*) from orders";
    let as_blue = async || {
        let mut tx = as_tenant(&town.service, "blue").await;
        let own = count(&mut tx, ALL).await;
        tx.execute("set local role chapar_app", vec![]).await.unwrap();
        (own, count(&mut tx, ALL).await)
    };
    assert_eq!(as_blue().await, (1, 1), "the setting alone is no protection against a login");
    let mut tx = town.admin.begin_raw().await.unwrap();
    tx.execute(policy.leak(), vec![]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(as_blue().await, (0, 0));
    let mut tx = as_tenant(&town.service, "acme").await;
    assert_eq!(count(&mut tx, ALL).await, 1);
}

#[tokio::test]
async fn a_service_may_append_and_change_nothing_else_of_the_road() {
    let server = need!(servers::postgres());
    let town = town(&server).await;
    let mut tx = as_tenant(&town.service, "acme").await;
    tx.outbox_rows().append(&[event("acme", "e1")]).await.unwrap();
    tx.commit().await.unwrap();
    for forbidden in [
        "insert into chapar.log (log_partition, log_offset, event_id, tenant, topic, headers, body) \
         values (0, 1000, 'x', 'acme', 't', '[]', '')",
        "delete from chapar.log",
        "update chapar.outbox set topic = 't'",
        "delete from chapar.outbox",
        "insert into chapar.outbox (seq, event_id, tenant, topic, shard, aggregate_type, \
         aggregate_id, correlation_id, sealed, headers, body) \
         values (99, 'x', 'acme', 't', 0, '', '', 'c', true, '[]', '')",
        "delete from chapar.outbox_held",
        "insert into chapar.outbox_parked (seq, shard, tenant, head) values (99, 0, 'acme', true)",
        "delete from chapar.outbox_parked",
        "delete from chapar.idempotency",
        "update chapar.shards set epoch = null",
        "delete from chapar.life",
        "insert into chapar.outbox (event_id, tenant, topic, shard, aggregate_type, aggregate_id, \
         correlation_id, sealed, headers, body) \
         values ('x', 'acme', 't', 0, '', '', 'c', true, '[]', '')",
        "insert into chapar.idempotency (tenant, topic, key, event_id, payload_hash) \
         values ('acme', 't', 'k', 'x', '')",
        "insert into chapar.inbox (consumer, event_id, tenant, topic, result) \
         values ('c', 'x', 'acme', 't', 'ok')",
        "update chapar.inbox set result = 'reapply'",
        "delete from chapar.inbox_marks",
        "delete from chapar.inbox_holes",
        "delete from chapar.inbox_intents",
        "delete from chapar.dead_letters",
        "update chapar.dead_letters set blocks_key = true",
        "delete from chapar.parked",
        "delete from chapar.sagas",
        "delete from chapar.saga_history",
        "delete from chapar.saga_stash",
        "delete from chapar.timers",
        "insert into chapar.effects (kind, idempotency_key, tenant, request, cause) \
         values ('k', 'i', 'acme', '{}', '')",
        "update chapar.projections set build = 7",
        "delete from chapar.projection_rows",
        "delete from chapar.projection_marks",
        "delete from chapar.projection_tail",
        "select nextval('chapar.outbox_seq')",
    ] {
        let mut tx = as_tenant(&town.service, "acme").await;
        let refused = tx.execute(forbidden, vec![]).await.unwrap_err().to_string();
        assert!(refused.contains("permission denied"), "{forbidden}: {refused}");
    }
}

#[tokio::test]
async fn the_doors_for_services_ask_for_the_tenant() {
    let server = need!(servers::postgres());
    let town = town(&server).await;
    for (tenant, call, said) in [
        (
            "a",
            "select chapar.emit('x.y', 'b', 'k', '{}')",
            "for the tenant 'a', and the event for 'b'",
        ),
        (
            "a",
            "select chapar.request_effect('k', 'i', 'b', '{}', '', now())",
            "for the tenant 'a', and the event for 'b'",
        ),
        (
            "a",
            "select chapar.respond('c', 'b', 'k', '{}')",
            "for the tenant 'a', and the event for 'b'",
        ),
        ("", "select chapar.emit('x.y', 'b', 'k', '{}')", "no tenant is set"),
        ("", "select chapar.request_effect('k', 'i', 'b', '{}', '', now())", "no tenant is set"),
        ("a", "select chapar.record_audit('a', 'b', 'c', 'd', 'e')", "permission denied"),
        ("a", "select chapar.extend_outbox(1)", "permission denied"),
        ("a", "call chapar.add_outbox_partition(5, 6)", "permission denied"),
    ] {
        let mut tx = as_tenant(&town.service, tenant).await;
        let refused = tx.execute(call, vec![]).await.unwrap_err();
        let mut whole = refused.to_string();
        if let StoreError::TenantUnset = refused {
            whole = "no tenant is set".into();
        }
        assert!(whole.contains(said), "{call}: {whole}");
    }
}

/// Ids are chosen by producers, keys by business: neither may be taken from another tenant.
#[tokio::test]
async fn an_event_id_and_a_saga_key_belong_to_one_tenant() {
    let server = need!(servers::postgres());
    let town = town(&server).await;
    let mut tx = town.admin.begin_engine().await.unwrap();
    let event = [("e1", "t")];
    assert_eq!(tx.inbox().claim("c", "a", &event).await.unwrap().len(), 1);
    assert_eq!(tx.inbox().claim("c", "b", &event).await.unwrap().len(), 1);
    assert!(tx.inbox().claim("c", "b", &event).await.unwrap().is_empty());
    let saga = |tenant: &str| chapar_sql::SagaRow {
        saga: "booking".into(),
        key: "res:1".into(),
        tenant: tenant.into(),
        definition: 1,
        state: "held".into(),
        data: format!("\"{tenant}\""),
        compensations: "[]".into(),
        timers: "{}".into(),
        version: 1,
        correlation_id: "c".into(),
        outcome: None,
        stashed: false,
    };
    assert!(tx.sagas().insert(&saga("a")).await.unwrap());
    assert!(tx.sagas().insert(&saga("b")).await.unwrap());
    assert!(!tx.sagas().insert(&saga("b")).await.unwrap());
    let found = tx.sagas().load("booking", "res:1", "b", "").await.unwrap().unwrap();
    assert_eq!(found.data, "\"b\"");
    assert_eq!(tx.sagas().named("booking", "res:1").await.unwrap().len(), 2);
    let named = tx.sagas().named("booking", "b:res:1").await.unwrap();
    assert_eq!(named.len(), 1);
    assert_eq!(named[0].tenant, "b");
}
