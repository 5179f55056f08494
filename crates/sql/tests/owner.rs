//! Who owns what: the engine and the services cannot become more than they are, and nothing that they
//! or others leave in the database runs with the rights of the login that migrates.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use chapar_sql::{
    Append, AuditEntry, Keep, Migration, SqlOutbox, Store, StoreError, StoreOptions, Tables, Tx,
};
use chapar_testkit::servers::{Kind, Launch};
use chapar_testkit::{need, servers};

struct Town {
    admin: Store,
    database: servers::Database,
}

impl Town {
    async fn new(server: &servers::Postgres) -> Town {
        let database = server.database("owner").unwrap();
        let admin = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
        Town { admin, database }
    }

    /// A login with these attributes, and its store.
    async fn login(&self, name: &str, with: &str, grants: &[&str]) -> Store {
        let login = format!("{name}_{}", self.database.name());
        self.admin(&format!("create role {login} login password 'x' nosuperuser {with}")).await;
        for grant in grants {
            let grant = grant.replace("{db}", self.database.name());
            self.admin(&format!("{grant} to {login}")).await;
        }
        let (_, place) = self.database.url().rsplit_once('@').unwrap();
        let url = format!("postgres://{login}:x@{place}");
        Store::open(&url, &StoreOptions::default()).await.unwrap()
    }

    async fn admin(&self, sql: &str) {
        let mut tx = self.admin.begin_raw().await.unwrap();
        tx.execute(sql.to_owned().leak(), vec![]).await.unwrap();
        tx.commit().await.unwrap();
    }
}

async fn count(tx: &mut Tx, sql: &'static str) -> i64 {
    tx.fetch(sql, vec![]).await.unwrap()[0].get(0).unwrap()
}

fn event(id: &str) -> Append {
    Append {
        event_id: id.into(),
        tenant: "acme".into(),
        topic: "a.b".into(),
        ordering_key: Some(format!("acme:{id}")),
        aggregate_type: String::new(),
        aggregate_id: id.into(),
        idempotency_key: Some(id.into()),
        payload_hash: Append::hash(b"{}"),
        correlation_id: id.into(),
        causation_id: None,
        headers: "[]".into(),
        body: "{}".into(),
    }
}

#[tokio::test]
async fn everything_belongs_to_the_owner_and_no_function_is_open_to_all() {
    let server = need!(servers::postgres());
    let town = Town::new(&server).await;
    town.admin.migrate().await.unwrap();
    let mut tx = town.admin.begin_raw().await.unwrap();
    for strangers in [
        "select count(*) from pg_class c where c.relnamespace = 'chapar'::regnamespace \
         and c.relowner <> 'chapar_owner'::regrole",
        "select count(*) from pg_proc p where p.pronamespace = 'chapar'::regnamespace \
         and p.proowner <> 'chapar_owner'::regrole",
        // A function without its own search path must have been parsed when it was made.
        "select count(*) from pg_proc p where p.pronamespace = 'chapar'::regnamespace \
         and p.prosqlbody is null \
         and not coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false)",
        "select count(*) from pg_proc p, lateral aclexplode(coalesce(p.proacl, \
         acldefault('f', p.proowner))) a where p.pronamespace = 'chapar'::regnamespace \
         and a.grantee = 0 and p.oid <> 'chapar.protect(regclass)'::regprocedure",
        "select count(*) from pg_namespace n, lateral aclexplode(n.nspacl) a \
         where n.nspname in ('chapar', 'chapar_migrations') and a.privilege_type = 'CREATE' \
         and a.grantee <> 'chapar_owner'::regrole",
        "select count(*) from pg_class c, lateral aclexplode(c.relacl) a \
         where c.relnamespace = 'chapar'::regnamespace and a.grantee = 'chapar_app'::regrole \
         and a.privilege_type <> 'SELECT'",
        "select count(*) from pg_class c where c.relnamespace = 'chapar'::regnamespace \
         and c.relforcerowsecurity and not c.relispartition and not exists (select from pg_policy p \
         where p.polrelid = c.oid and 'chapar_owner'::regrole = any(p.polroles))",
    ] {
        assert_eq!(count(&mut tx, strangers).await, 0, "{strangers}");
    }
}

#[tokio::test]
async fn the_engine_creates_nothing_and_owns_nothing() {
    let server = need!(servers::postgres());
    let town = Town::new(&server).await;
    town.admin.migrate().await.unwrap();
    let engine = town.login("engine", "", &["grant chapar_app, chapar_engine"]).await;
    for forbidden in [
        "create function chapar.protect(text) returns void language sql as 'select 1'",
        "create table chapar.more (n int)",
        "create table chapar_migrations.more (n int)",
        "alter table chapar.outbox disable row level security",
        "alter table chapar.audit_log disable trigger all",
        "drop table chapar.outbox_held",
        "set local role chapar_owner",
        "insert into chapar.outbox_partitions values ('x', 1, 2)",
        "insert into chapar_migrations.applied values ('chapar', 99, 'x', 'x', false)",
    ] {
        let mut tx = engine.begin_engine().await.unwrap();
        let refused = tx.execute(forbidden, vec![]).await.unwrap_err();
        let StoreError::Database(sqlx::Error::Database(said)) = &refused else {
            panic!("{refused:?}")
        };
        assert_eq!(said.code().as_deref(), Some("42501"), "{forbidden}: {refused}");
    }
    // What it needs the owner for, it has functions for.
    let keep = Keep { rows_per_partition: 2_000_000, ..Keep::default() };
    engine.keep_house(&keep).await.unwrap();
    let mut tx = engine.begin_engine().await.unwrap();
    assert_eq!(count(&mut tx, "select count(*) from chapar.outbox_partitions").await, 2);
}

/// On managed services the login that migrates may create roles, and is no superuser.
#[tokio::test]
async fn a_login_without_superuser_migrates_and_another_runs() {
    let server = need!(servers::postgres());
    let town = Town::new(&server).await;
    // Roles are the cluster's: those of other tests are there, and this login did not make them.
    let roles = "grant chapar_owner, chapar_app, chapar_engine";
    let create = "grant create, connect on database {db}";
    let other = server.database("other").unwrap();
    Store::open(other.url(), &StoreOptions::default()).await.unwrap().migrate().await.unwrap();
    let migrator = town.login("migrator", "createrole", &[roles, create]).await;
    let system = [Migration::new(1, "orders", "create table orders (tenant text, id text)")
        .protect(["orders"])];
    town.admin(&format!(
        "grant create, usage on schema public to migrator_{}",
        town.database.name()
    ))
    .await;
    assert!(!migrator.migrate().await.unwrap().is_empty());
    assert!(migrator.migrate().await.unwrap().is_empty());
    migrator.migrate_system("shop", &system).await.unwrap();
    let program = town.login("program", "", &["grant chapar_app, chapar_engine"]).await;
    program.check_schema().await.unwrap();
    program.check_engine_role().await.unwrap();
    program.check_outbox().await.unwrap();
    let mut tx = program.begin("acme").await.unwrap();
    tx.outbox_rows().append(&[event("e1")]).await.unwrap();
    tx.execute("insert into orders values ('acme', '1')", vec![]).await.unwrap();
    tx.become_engine().await.unwrap();
    assert_eq!(count(&mut tx, "select count(*) from chapar.outbox").await, 1);
    tx.become_service("acme").await.unwrap();
    assert_eq!(count(&mut tx, "select count(*) from orders").await, 1);
    tx.commit().await.unwrap();
    let outbox = SqlOutbox::new(program.clone());
    let minute = std::time::Duration::from_secs(60);
    let lease = chapar_core::port::Outbox::lease(&outbox, "a", None, minute).await.unwrap();
    let read = chapar_core::port::Outbox::read(&outbox, lease.epoch, &lease.tracks, 10).await;
    assert_eq!(read.unwrap().rows.len(), 1);
}

/// The first migration of a cluster creates the roles, with the right to create roles and no other.
#[tokio::test]
async fn a_login_that_may_create_roles_migrates_a_new_cluster() {
    let instance = need!(Launch::of(Kind::Postgres).start());
    let server = servers::Postgres::from(&instance);
    let town = Town::new(&server).await;
    let create = "grant create, connect on database {db}";
    let migrator = town.login("migrator", "createrole", &[create]).await;
    assert!(!migrator.migrate().await.unwrap().is_empty());
    assert!(migrator.migrate().await.unwrap().is_empty());
    let program = town.login("program", "", &["grant chapar_app, chapar_engine"]).await;
    program.check_schema().await.unwrap();
    program.check_engine_role().await.unwrap();
    let mut tx = program.begin("acme").await.unwrap();
    tx.outbox_rows().append(&[event("e1")]).await.unwrap();
    tx.commit().await.unwrap();
}

/// Whatever a bound login sets and calls, it stays with its tenants.
#[tokio::test]
async fn a_bound_login_reaches_no_other_tenant() {
    let server = need!(servers::postgres());
    let town = Town::new(&server).await;
    town.admin.migrate().await.unwrap();
    town.admin("create table orders (tenant text not null, id text)").await;
    town.admin("call chapar.protect('orders'::regclass)").await;
    town.admin("insert into orders values ('acme', '1'), ('blue', '1')").await;
    let shop = town.login("shop", "", &["grant chapar_app"]).await;
    let engine = town.login("engine", "", &["grant chapar_app, chapar_engine"]).await;
    let login = |name| format!("{name}_{}", town.database.name());
    town.admin(&format!("call chapar.bind_login('{}', 'acme')", login("shop"))).await;
    town.admin(&format!("call chapar.bind_login('{}', 'acme')", login("shop"))).await;

    const EMIT: &str =
        "select chapar.emit('a.b.c.v1', current_setting('app.tenant_id'), 'k', '{}')";
    const APPEND: &str = "select chapar.append('e' || gen_random_uuid(), current_setting('app.tenant_id'), 'a.b', \
                          current_setting('app.tenant_id') || ':k', 1::smallint, '', 'k', null, null, 'c', null, \
                          false, '{}', '{}')";
    const READ: &str = "select id from orders";
    const READ_OURS: &str = "select event_id from chapar.outbox";
    const WRITE: &str = "insert into orders values (current_setting('app.tenant_id'), '2')";
    for sql in [EMIT, APPEND, READ, READ_OURS, WRITE] {
        for role in ["set local role none", "set local role chapar_app"] {
            for (tenant, allowed) in [("acme", true), ("blue", false)] {
                let mut tx = shop.begin_raw().await.unwrap();
                tx.execute(role, vec![]).await.unwrap();
                let set = format!("select set_config('app.tenant_id', '{tenant}', true)");
                tx.fetch(set.leak(), vec![]).await.unwrap();
                match tx.fetch(sql, vec![]).await {
                    Ok(_) => assert!(allowed, "{tenant}: {sql}"),
                    Err(StoreError::WrongTenant(why)) => {
                        assert!(!allowed && why.contains("is bound to other tenants"), "{why}");
                    }
                    Err(other) => panic!("{tenant}: {sql}: {other}"),
                }
                tx.commit().await.ok();
            }
        }
    }
    // Nor the keys of another, also before a program has written which form they have.
    for (tenant, key) in [("acme", "blue:k"), ("acme:x", "acme:x:k"), ("a:b", "a:b:c")] {
        let mut tx = shop.begin_raw().await.unwrap();
        let set = format!("select set_config('app.tenant_id', '{tenant}', true)");
        tx.fetch(set.leak(), vec![]).await.unwrap();
        let append = format!(
            "select chapar.append('e', '{tenant}', 'a.b', '{key}', 1::smallint, '', 'k', null, null, \
             'c', null, false, '{{}}', '{{}}')"
        );
        let refused = tx.fetch(append.leak(), vec![]).await.unwrap_err().to_string();
        assert!(refused.contains("CH1018") || refused.contains("CH1003"), "{key}: {refused}");
    }
    // It cannot become more than it is.
    for sql in [
        "delete from chapar.bound_logins",
        "set local role chapar_engine",
        "call chapar.unbind_login(session_user::regrole, 'acme')",
        "call chapar.bind_login(session_user::regrole, 'blue')",
    ] {
        let mut tx = shop.begin_raw().await.unwrap();
        let refused = tx.execute(sql, vec![]).await.unwrap_err().to_string();
        assert!(refused.contains("permission denied"), "{sql}: {refused}");
    }
    // Renamed without its rows it is still bound, and can name no tenant.
    let mut tx = shop.begin_raw().await.unwrap();
    town.admin(&format!("alter role {} rename to {}", login("shop"), login("store"))).await;
    tx.fetch("select set_config('app.tenant_id', 'acme', true)", vec![]).await.unwrap();
    let refused = tx.fetch(EMIT, vec![]).await.unwrap_err();
    assert!(matches!(refused, StoreError::WrongTenant(_)), "{refused}");
    drop(tx);
    town.admin(&format!("alter role {} rename to {}", login("store"), login("shop"))).await;
    // A login that sees all tenants cannot be bound, and one that is not bound names any.
    let mut tx = town.admin.begin_raw().await.unwrap();
    let bind = format!("call chapar.bind_login('{}', 'acme')", login("engine"));
    let refused = tx.execute(bind.leak(), vec![]).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be bound"), "{refused}");
    drop(tx);
    for right in ["createrole", "bypassrls"] {
        town.login(right, right, &["grant chapar_app"]).await;
        let mut tx = town.admin.begin_raw().await.unwrap();
        let bind = format!("call chapar.bind_login('{}', 'acme')", login(right));
        let refused = tx.execute(bind.leak(), vec![]).await.unwrap_err().to_string();
        assert!(refused.contains("it may create roles or bypass"), "{refused}");
    }
    for tenant in ["", "a:b", "a b"] {
        let mut tx = town.admin.begin_raw().await.unwrap();
        let bind = format!("call chapar.bind_login('{}', '{tenant}')", login("shop"));
        let refused = tx.execute(bind.leak(), vec![]).await.unwrap_err().to_string();
        assert!(refused.contains("CH1003"), "{refused}");
    }
    let mut tx = engine.begin("blue").await.unwrap();
    assert_eq!(count(&mut tx, "select count(*) from orders").await, 1);
    drop(tx);
    town.admin(&format!("call chapar.unbind_login('{}', 'acme')", login("shop"))).await;
    let mut tx = shop.begin_raw().await.unwrap();
    tx.fetch("select set_config('app.tenant_id', 'blue', true)", vec![]).await.unwrap();
    assert_eq!(count(&mut tx, "select count(*) from orders").await, 1);
}

#[tokio::test]
async fn migrating_refuses_objects_that_it_did_not_make_by_name() {
    let server = need!(servers::postgres());
    for (plant, named) in [
        ("create schema chapar; create table chapar.outbox (n int)", "schema chapar is owned by"),
        (
            "create schema chapar_migrations; create table chapar_migrations.applied (n int)",
            "schema chapar_migrations is owned by",
        ),
    ] {
        let town = Town::new(&server).await;
        for sql in plant.split("; ") {
            town.admin(sql).await;
        }
        let refused = town.admin.migrate().await.unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
    for (plant, named) in [
        (
            "create function chapar.protect(text) returns void language sql as 'select 1'",
            "function chapar.protect(",
        ),
        ("create view chapar.view_of_mine as select 1 as n", "view chapar.view_of_mine"),
        (
            "create operator chapar.=== (leftarg = text, rightarg = text, function = texteq)",
            "operator chapar.===",
        ),
    ] {
        for (role, why) in
            [("", "is owned by"), ("set local role chapar_owner", "made by no migration")]
        {
            let town = Town::new(&server).await;
            town.admin.migrate().await.unwrap();
            let mut tx = town.admin.begin_raw().await.unwrap();
            if !role.is_empty() {
                tx.execute(role, vec![]).await.unwrap();
            }
            tx.execute(plant, vec![]).await.unwrap();
            tx.commit().await.unwrap();
            let system = [Migration::new(1, "orders", "create table orders (tenant text)")];
            for refused in [
                town.admin.migrate().await.unwrap_err(),
                town.admin.migrate_system("shop", &system).await.unwrap_err(),
            ] {
                let said = refused.to_string();
                assert!(said.contains(named) && said.contains(why), "{said}");
            }
        }
    }
}

/// What lies in `public`, with better fitting types than ours, is not called by anything of ours.
#[tokio::test]
async fn nothing_in_another_schema_stands_in_for_what_is_meant() {
    let server = need!(servers::postgres());
    let town = Town::new(&server).await;
    for trap in [
        "create table public.caught (what text)",
        "grant all on public.caught to public",
        "create function public.hashtextextended(text, integer) returns bigint language plpgsql as \
         $$ begin insert into public.caught values ('hash as ' || current_user); return 1; end $$",
        "create function public.pg_advisory_xact_lock(integer) returns void language plpgsql as \
         $$ begin insert into public.caught values ('lock as ' || current_user); end $$",
        "create function public.set_config(text, text, text) returns text language plpgsql as \
         $$ begin insert into public.caught values ('set as ' || current_user); return $2; end $$",
        "create function public.protect_own(text) returns void language plpgsql as \
         $$ begin insert into public.caught values ('protect as ' || current_user); end $$",
        "create function public.trap(numeric, integer) returns numeric language plpgsql as \
         $$ begin insert into public.caught values ('/ as ' || current_user); return 1; end $$",
        "create operator public./ (leftarg = numeric, rightarg = integer, function = public.trap)",
        "create function public.trap(text, text) returns boolean language plpgsql as \
         $$ begin insert into public.caught values ('= as ' || current_user); return true; end $$",
        "create operator public.= (leftarg = text, rightarg = text, function = public.trap)",
    ] {
        town.admin(trap).await;
    }
    // The traps first: what the database sets for every session.
    let name = town.database.name();
    town.admin(&format!("alter database {name} set search_path = public, pg_catalog")).await;
    let store = Store::open(town.database.url(), &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let mut tx = store.begin("acme").await.unwrap();
    let many: Vec<Append> = (0..3).map(|n| event(&format!("e{n}"))).collect();
    tx.outbox_rows().append(&many).await.unwrap();
    tx.outbox_rows().append(&[event("f")]).await.unwrap();
    tx.execute("select chapar.emit('a.b'::text, 'acme'::text, 'k'::text, '{}'::jsonb)", vec![])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let outbox = SqlOutbox::new(store.clone());
    let minute = std::time::Duration::from_secs(60);
    let lease = chapar_core::port::Outbox::lease(&outbox, "a", None, minute).await.unwrap();
    let read = chapar_core::port::Outbox::read(&outbox, lease.epoch, &lease.tracks, 10).await;
    assert_eq!(read.unwrap().rows.len(), 5);
    store.keep_house(&Keep::default()).await.unwrap();
    store.check_engine_role().await.unwrap();
    let mut tx = store.begin_batch("c").await.unwrap();
    tx.inbox().claim("c", "acme", &[("e1", "t")]).await.unwrap();
    tx.inbox().lock_names(&["a".to_owned()]).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = town.admin.begin_raw().await.unwrap();
    let caught = tx.fetch("select what from public.caught", vec![]).await.unwrap();
    let caught: Vec<String> = caught.iter().map(|row| row.get(0).unwrap()).collect();
    assert!(caught.is_empty(), "{caught:?}");
}

#[tokio::test]
async fn the_audit_log_only_grows_also_for_the_engine_and_its_owner() {
    let server = need!(servers::postgres());
    let town = Town::new(&server).await;
    town.admin.migrate().await.unwrap();
    let engine = town.login("engine", "", &["grant chapar_app, chapar_engine"]).await;
    let entry =
        AuditEntry { actor: "me", action: "test", target: "it", reason: "because", detail: "{}" };
    let mut tx = engine.begin_engine().await.unwrap();
    tx.audit_log().record(&entry).await.unwrap();
    assert_eq!(tx.audit_log().lines(&Default::default(), 10).await.unwrap().len(), 1);
    tx.commit().await.unwrap();
    for sql in [
        "insert into chapar.audit_log (actor, action, target, reason, detail) \
         values ('you', 'test', 'nothing', '', '{}')",
        "delete from chapar.audit_log",
        "update chapar.audit_log set actor = 'you'",
        "truncate chapar.audit_log",
        "alter table chapar.audit_log disable trigger audit_log_append_only",
        "drop trigger audit_log_append_only on chapar.audit_log",
        "create or replace function chapar.refuse_change() returns trigger language plpgsql as \
         $$ begin return null; end $$",
        "set local session_replication_role = replica",
    ] {
        let mut tx = engine.begin_engine().await.unwrap();
        let refused = tx.execute(sql, vec![]).await.unwrap_err().to_string();
        let denied = refused.contains("permission denied") || refused.contains("must be owner");
        assert!(denied, "{sql}: {refused}");
    }
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
async fn the_audit_log_of_sqlite_only_grows() {
    let store = Store::open("sqlite::memory:", &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let entry =
        AuditEntry { actor: "me", action: "test", target: "it", reason: "because", detail: "{}" };
    let mut tx = store.begin_raw().await.unwrap();
    tx.audit_log().record(&entry).await.unwrap();
    tx.audit_log().record(&entry).await.unwrap();
    tx.commit().await.unwrap();
    for sql in [
        "delete from chapar_audit_log",
        "update chapar_audit_log set actor = 'you'",
        "insert or replace into chapar_audit_log (id, at, actor, action, target, reason, detail) \
         values (1, 0, 'you', '', '', '', '')",
        "replace into chapar_audit_log (id, at, actor, action, target, reason, detail) \
         values (2, 0, 'you', '', '', '', '')",
    ] {
        let mut tx = store.begin_raw().await.unwrap();
        let refused = tx.execute(sql, vec![]).await.unwrap_err();
        let source = std::error::Error::source(&refused).map(ToString::to_string);
        let said = format!("{refused}: {}", source.unwrap_or_default());
        assert!(said.contains("append-only"), "{sql}: {said}");
    }
    let mut tx = store.begin_raw().await.unwrap();
    assert_eq!(tx.audit_log().lines(&Default::default(), 10).await.unwrap().len(), 2);
}
