-- What consumers keep: claims, dead letters, parked and stashed events, sagas, timers, effects; the log of
-- the transport without a broker; the audit log.

create table chapar.inbox (
    consumer     text not null,
    event_id     text not null,
    tenant       text not null,
    topic        text not null,
    received_at  timestamptz not null default clock_timestamp(),
    processed_at timestamptz not null default clock_timestamp(),
    result       text not null,
    attempts     integer not null default 1,
    primary key (consumer, event_id, tenant)
);
create index inbox_age on chapar.inbox (processed_at);
call chapar.protect_own('chapar.inbox'::regclass);

create table chapar.dead_letters (
    id               text primary key,
    consumer         text not null,
    event_id         text not null,
    tenant           text not null,
    topic            text not null,
    ordering_key     text,
    log_partition    integer not null,
    log_offset       bigint not null,
    headers          text not null,
    body             bytea not null,
    kind             text not null,
    error            text not null,
    fingerprint      text not null,
    attempts         integer not null,
    first_failed_at  timestamptz not null,
    last_failed_at   timestamptz not null,
    status           text not null default 'open',
    blocks_key       boolean not null
);
create index dead_letters_open on chapar.dead_letters (consumer, ordering_key) where status <> 'closed';
-- One letter per consumer and event of a tenant: a crash between the letter and the acknowledgement must not
-- write it twice, and a second failure reopens the letter of the first.
create unique index dead_letters_event on chapar.dead_letters (consumer, event_id, tenant);
call chapar.protect_own('chapar.dead_letters'::regclass);

create table chapar.parked (
    id            bigint generated always as identity primary key,
    consumer      text not null,
    ordering_key  text not null,
    event_id      text not null,
    tenant        text not null,
    topic         text not null,
    log_partition integer not null,
    log_offset    bigint not null,
    headers       text not null,
    body          bytea not null,
    parked_at     timestamptz not null default clock_timestamp(),
    unique (consumer, event_id, tenant)
);
create index parked_key on chapar.parked (consumer, ordering_key, id);
call chapar.protect_own('chapar.parked'::regclass);

create table chapar.sagas (
    saga           text not null,
    key            text not null,
    tenant         text not null,
    definition     integer not null,
    state          text not null,
    data           text not null,
    compensations  text not null,
    timers         text not null,
    version        bigint not null,
    correlation_id text not null,
    started_at     timestamptz not null default clock_timestamp(),
    updated_at     timestamptz not null default clock_timestamp(),
    outcome        text,
    primary key (saga, key, tenant)
);
-- Counting sagas by state and outcome reads this index alone.
create index sagas_state on chapar.sagas (saga, state, outcome);
create index sagas_started on chapar.sagas (started_at);
call chapar.protect_own('chapar.sagas'::regclass);

create table chapar.saga_history (
    saga       text not null,
    key        text not null,
    version    bigint not null,
    tenant     text not null,
    at         timestamptz not null default clock_timestamp(),
    from_state text,
    to_state   text not null,
    cause      text not null,
    event_id   text,
    note       text not null,
    primary key (saga, key, tenant, version)
);
call chapar.protect_own('chapar.saga_history'::regclass);

create table chapar.saga_stash (
    id           bigint generated always as identity primary key,
    consumer     text not null,
    saga         text not null,
    key          text not null,
    event_id     text not null,
    tenant       text not null,
    topic        text not null,
    log_partition integer not null,
    log_offset   bigint not null,
    headers      text not null,
    body         bytea not null,
    ordering_key text,
    stashed_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null,
    unique (consumer, event_id, tenant)
);
create index saga_stash_key on chapar.saga_stash (saga, key, tenant, id);
create index saga_stash_expiry on chapar.saga_stash (consumer, expires_at);
call chapar.protect_own('chapar.saga_stash'::regclass);

create table chapar.timers (
    saga       text not null,
    key        text not null,
    name       text not null,
    tenant     text not null,
    generation bigint not null,
    due_at     timestamptz not null,
    attempts   integer not null default 0,
    primary key (saga, key, tenant, name)
);
create index timers_due on chapar.timers (due_at);
call chapar.protect_own('chapar.timers'::regclass);

-- `held_until` is set while a worker has the effect. `answer` is the outcome of the call when recording it
-- has failed; `recordings` counts the attempts to record it.
create table chapar.effects (
    id              bigint generated always as identity primary key,
    kind            text not null,
    idempotency_key text not null,
    tenant          text not null,
    request         text not null,
    cause           bytea not null,
    status          text not null default 'pending',
    attempts        integer not null default 0,
    first_failed_at timestamptz,
    due_at          timestamptz not null default clock_timestamp(),
    held_until      timestamptz,
    answer          text,
    recordings      integer not null default 0,
    last_error      text,
    created_at      timestamptz not null default clock_timestamp(),
    finished_at     timestamptz,
    unique (tenant, kind, idempotency_key)
);
create index effects_due on chapar.effects (due_at) where status = 'pending';
create index effects_stuck on chapar.effects (id) where status = 'stuck';
call chapar.protect_own('chapar.effects'::regclass);

-- Requests a call to a vendor, in the transaction of a handler; false if it was requested before.
create function chapar.request_effect(
    kind text, idempotency_key text, tenant text, request text, cause bytea, due_at timestamptz
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform chapar.check_tenant(request_effect.tenant);
    insert into chapar.effects (kind, idempotency_key, tenant, request, cause, due_at)
    values (request_effect.kind, request_effect.idempotency_key, request_effect.tenant,
            request_effect.request, request_effect.cause, request_effect.due_at)
    on conflict do nothing;
    return found;
end
$$;
grant execute on function chapar.request_effect(text, text, text, text, bytea, timestamptz)
    to chapar_app, chapar_engine;

-- The transport without a broker. The row of a partition's head is locked until commit, so offsets
-- become visible in order and a reader never overtakes a late commit.
create table chapar.log_heads (
    log_partition integer primary key,
    next_offset   bigint not null default 1
);
insert into chapar.log_heads (log_partition) select generate_series(0, 7);
grant select, update on chapar.log_heads to chapar_engine;

create table chapar.log (
    log_partition integer not null,
    log_offset    bigint not null,
    event_id      text not null,
    tenant        text not null,
    topic         text not null,
    ordering_key  text,
    headers       text not null,
    body          bytea not null,
    published_at  timestamptz not null default clock_timestamp(),
    primary key (log_partition, log_offset),
    -- Ids are chosen by producers: one tenant must not be able to take that of another's event.
    unique (event_id, tenant)
);
-- The engine alone writes the log: its offsets have to be dense.
call chapar.protect_own('chapar.log'::regclass);

create table chapar.subscriptions (
    subscription text not null,
    topic        text not null,
    primary key (subscription, topic)
);
grant select, insert, update, delete on chapar.subscriptions to chapar_engine;

create table chapar.cursors (
    subscription  text not null,
    log_partition integer not null,
    acked_offset  bigint not null,
    owner         text,
    epoch         bigint not null default 0,
    expires_at    timestamptz not null default '-infinity',
    primary key (subscription, log_partition)
);
grant select, insert, update, delete on chapar.cursors to chapar_engine;

create table chapar.audit_log (
    id     bigint generated always as identity primary key,
    at     timestamptz not null default clock_timestamp(),
    actor  text not null,
    action text not null,
    target text not null,
    reason text not null,
    detail text not null
);
grant select on chapar.audit_log to chapar_engine;

-- The one way to write it: the engine may neither insert nor change a row itself, and owns neither
-- the table nor its trigger.
create function chapar.record_audit(actor text, action text, target text, reason text, detail text) returns void
language sql security definer
begin atomic
    insert into chapar.audit_log (actor, action, target, reason, detail)
    values (record_audit.actor, record_audit.action, record_audit.target, record_audit.reason,
            record_audit.detail);
end;
grant execute on function chapar.record_audit(text, text, text, text, text) to chapar_engine;

create function chapar.refuse_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception 'the audit log is append-only' using errcode = 'CHP03';
end
$$;
create trigger audit_log_append_only before update or delete or truncate on chapar.audit_log
    execute function chapar.refuse_change();

