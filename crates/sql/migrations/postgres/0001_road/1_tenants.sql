-- The path of an event, in four files that are one migration. Here: roles, tenants, and the rules of the
-- system that SQL knows.
--
-- Three roles. chapar_owner, which no program logs in as, owns everything here. Services run as
-- chapar_app: they see the rows of the tenant in app.tenant_id, get an error when none is set, and
-- write through functions of the owner only. The engine runs as chapar_engine and sees all rows,
-- because a relay that sees only some rows silently loses the others; it owns nothing and creates
-- nothing.
--
-- `migrate apply` runs this as chapar_owner, with pg_catalog as search_path: no object of another
-- schema can stand in for one that is meant here.
alter default privileges for role chapar_owner revoke execute on functions from public;

grant usage on schema chapar to chapar_app, chapar_engine;

-- The tenants of bound logins, which can name these and no others.
create table chapar.bound_logins (
    login  name not null,
    tenant text not null,
    primary key (login, tenant)
);
alter table chapar.bound_logins enable row level security;
alter table chapar.bound_logins force row level security;
create policy own_rows on chapar.bound_logins for select to chapar_app using (login = session_user);
create policy engine_rows on chapar.bound_logins for select to chapar_engine using (true);
create policy owner_rows on chapar.bound_logins to chapar_owner using (true) with check (true);
grant select on chapar.bound_logins to chapar_app, chapar_engine;
-- A login that may read this empty table is bound, and one that may not can name every tenant. A right is
-- checked without a statement, which an append would otherwise execute for nothing, and it stays with a login
-- that is renamed: such a login has lost its rows and can name no tenant.
create table chapar.bound_mark ();

create function chapar.tenant() returns text
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    tenant constant text := current_setting('app.tenant_id', true);
begin
    if tenant is null or tenant = '' then
        raise exception 'no tenant is set for this transaction'
            using errcode = 'CHP02',
                  hint = 'run: select set_config(''app.tenant_id'', <tenant>, true)';
    end if;
    -- The login and not the role: `set role` does not change it. The owner, and a superuser, may read the mark
    -- without being bound.
    if has_table_privilege(session_user, 'chapar.bound_mark'::regclass, 'select')
       and not pg_has_role(session_user, 'chapar_owner', 'member')
       and not exists (select from chapar.bound_logins b where b.login = session_user and b.tenant = tenant) then
        raise exception 'the login % is bound to other tenants than %', session_user, quote_literal(tenant)
            using errcode = 'CHP06',
                  hint = 'an administrator binds it with: call chapar.bind_login(<login>, <tenant>)';
    end if;
    return tenant;
end
$$;
grant execute on function chapar.tenant() to chapar_app, chapar_engine;

-- Refuses what is not a tenant. A colon separates the tenant from the rest of an ordering key: with one
-- in its name, a tenant could name the keys of another. The spaces are those of Unicode.
create function chapar.check_form(tenant text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if coalesce(check_form.tenant, '') = '' or octet_length(check_form.tenant) > 128
       or check_form.tenant ~ '[[:space:][:cntrl:]:\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]' then
        raise exception 'CH1003: % is not a tenant: 1 to 128 visible characters without spaces and colons are expected',
            coalesce(quote_literal(check_form.tenant), 'null')
            using errcode = 'CHP04', hint = 'see docs/errors/CH1003.md';
    end if;
end
$$;
grant execute on function chapar.check_form(text) to chapar_app, chapar_engine;

-- Refuses a row of another tenant than the transaction's. The engine writes for all tenants; only a
-- login that may become the engine can be in its role.
create function chapar.check_tenant(tenant text) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if current_setting('role') <> 'chapar_engine' and chapar.tenant() is distinct from check_tenant.tenant then
        raise exception 'this transaction is for the tenant %, and the event for %',
            quote_literal(chapar.tenant()), coalesce(quote_literal(check_tenant.tenant), 'none')
            using errcode = 'CHP06',
                  hint = 'set app.tenant_id to the tenant of the event, in a transaction of its own';
    end if;
end
$$;

-- Binds a login to a tenant, which may be one of several. For those who may become chapar_owner.
create procedure chapar.bind_login(login regrole, tenant text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    -- The engine sees all tenants, and the owner could remove the row.
    if pg_has_role(bind_login.login, 'chapar_engine', 'member')
       or pg_has_role(bind_login.login, 'chapar_owner', 'member') then
        raise exception 'the login % cannot be bound: it is a superuser or a member of chapar_engine or chapar_owner',
            bind_login.login
            using hint = 'give a bound login chapar_app and nothing else';
    end if;
    -- The one could make itself a member of the engine, and the other reads past all policies.
    if exists (select from pg_roles r where r.oid = bind_login.login and (r.rolcreaterole or r.rolbypassrls)) then
        raise exception 'the login % cannot be bound: it may create roles or bypass row-level security', bind_login.login
            using hint = format('alter role %s nocreaterole nobypassrls', bind_login.login);
    end if;
    perform chapar.check_form(bind_login.tenant);
    insert into chapar.bound_logins (login, tenant)
    select r.rolname, bind_login.tenant from pg_roles r where r.oid = bind_login.login
    on conflict do nothing;
    execute format('grant select on chapar.bound_mark to %s', bind_login.login);
end
$$;

-- Takes a tenant from a login. With the last one it is not bound any more, and can name every tenant.
create procedure chapar.unbind_login(login regrole, tenant text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from chapar.bound_logins b using pg_roles r
    where r.oid = unbind_login.login and b.login = r.rolname and b.tenant = unbind_login.tenant;
    if not found then
        raise exception 'the login % is not bound to the tenant %', unbind_login.login, quote_literal(unbind_login.tenant);
    end if;
    if not exists (select from chapar.bound_logins b join pg_roles r on b.login = r.rolname
                   where r.oid = unbind_login.login) then
        execute format('revoke select on chapar.bound_mark from %s', unbind_login.login);
    end if;
end
$$;

-- Protects a table of a service, with a column "tenant", by row-level security, forced on its owner
-- too. For every role: it does only what the caller may do itself.
create procedure chapar.protect(tenant_table regclass)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    execute format('alter table %s enable row level security', tenant_table);
    execute format('alter table %s force row level security', tenant_table);
    -- The sub-select makes the planner ask for the tenant once per statement, not per row.
    execute format('create policy tenant_rows on %s to chapar_app
                    using (tenant = (select chapar.tenant()))
                    with check (tenant = (select chapar.tenant()))', tenant_table);
    execute format('create policy engine_rows on %s to chapar_engine using (true) with check (true)', tenant_table);
    execute format('grant select, insert, update, delete on %s to chapar_app, chapar_engine', tenant_table);
end
$$;
grant execute on procedure chapar.protect(regclass) to public;

-- Protects a table of Chapar: services read the rows of their tenant and write none.
create procedure chapar.protect_own(tenant_table regclass)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    execute format('alter table %s enable row level security', tenant_table);
    execute format('alter table %s force row level security', tenant_table);
    execute format('create policy tenant_rows on %s for select to chapar_app
                    using (tenant = (select chapar.tenant()))', tenant_table);
    execute format('create policy engine_rows on %s to chapar_engine using (true) with check (true)', tenant_table);
    execute format('create policy owner_rows on %s to chapar_owner using (true) with check (true)', tenant_table);
    execute format('grant select on %s to chapar_app', tenant_table);
    execute format('grant select, insert, update, delete on %s to chapar_engine', tenant_table);
end
$$;

-- The parts of the system's profile that SQL needs, in one row that a call reads once; written when a
-- program starts, or by `migrate apply`. What is null is not checked here, but by the relay.
create table chapar.settings (
    one                  boolean primary key default true check (one),
    key_template         text not null default '{tenant}:{aggregate_id}',
    -- Ordering keys of another form than the template's are refused.
    keys_checked         boolean not null default false,
    subject_pattern      text,
    subject_form         text,
    idempotency_required boolean not null default false,
    -- Subjects, or their beginning and a `*`.
    platform_subjects    text[],
    ai_subjects          text[] not null default '{}',
    tenant_fields        text[] not null default '{}',
    max_payload          integer not null default 262144,
    max_metadata         integer not null default 4096,
    -- chapar.subjects lists every event that there is.
    has_catalog          boolean not null default false
);
insert into chapar.settings default values;
grant select on chapar.settings to chapar_app;
grant select, update on chapar.settings to chapar_engine;

-- The events of the catalog.
create table chapar.subjects (
    subject text primary key,
    owner   text not null,
    thin    boolean not null
);
grant select on chapar.subjects to chapar_app;
grant select, insert, update, delete on chapar.subjects to chapar_engine;

