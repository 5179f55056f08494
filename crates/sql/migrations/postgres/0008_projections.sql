-- What consumers declare about themselves, for operator commands.
create table chapar.consumers (
    consumer    text primary key,
    service     text not null,
    append_only boolean not null,
    declared_at timestamptz not null default clock_timestamp()
);
grant select, insert, update, delete on chapar.consumers to chapar_engine;

-- The timers that a program handles, and what happens when they fire.
create table chapar.saga_timers (
    saga        text not null,
    name        text not null,
    service     text not null,
    does        text not null,
    declared_at timestamptz not null default clock_timestamp(),
    primary key (saga, name)
);
grant select, insert, update, delete on chapar.saga_timers to chapar_engine;

-- Indexes for tracing a correlation.
create index sagas_correlation on chapar.sagas (correlation_id);
create index dead_letters_of_event on chapar.dead_letters (event_id);

-- Read models: documents by key, kept by a consumer of the same name. A build is a generation of
-- the documents; the served one is named here, and another may be in progress.
create table chapar.projections (
    projection     text primary key,
    build          bigint not null default 1,
    snapshot_every bigint not null,
    -- The requested work: none, 'rebuild', 'tail' (from the last snapshot) or 'game-day'; and the
    -- process that does it, with the deadline of its next heartbeat.
    wanted         text,
    asked_by       text,
    reason         text,
    owner          text,
    alive_until    timestamptz,
    done           bigint not null default 0,
    total          bigint not null default 0,
    started_at     timestamptz,
    finished_at    timestamptz,
    outcome        text,
    micros         bigint,
    differences    bigint
);
grant select, insert, update, delete on chapar.projections to chapar_engine;
grant select on chapar.projections to chapar_app;

create table chapar.projection_rows (
    projection text not null,
    build      bigint not null,
    tenant     text not null,
    key        text not null,
    doc        text not null,
    primary key (projection, build, tenant, key)
);
call chapar.protect_own('chapar.projection_rows'::regclass);

-- How far the served build has come in each partition.
create table chapar.projection_marks (
    projection    text not null,
    log_partition integer not null,
    log_offset    bigint not null,
    event_id      text not null,
    at            timestamptz not null default clock_timestamp(),
    primary key (projection, log_partition)
);
grant select, insert, update, delete on chapar.projection_marks to chapar_engine;

-- Events applied since the last snapshot.
create table chapar.projection_tail (
    projection    text not null,
    event_id      text not null,
    log_partition integer not null,
    log_offset    bigint not null,
    primary key (projection, event_id)
);
grant select, insert, update, delete on chapar.projection_tail to chapar_engine;

-- The last snapshot of each read model: its documents are build 0.
create table chapar.projection_snapshots (
    projection text primary key,
    events     bigint not null,
    marks      text not null,
    docs       bigint not null,
    taken_at   timestamptz not null default clock_timestamp()
);
grant select, insert, update, delete on chapar.projection_snapshots to chapar_engine;

-- The served documents, for queries by SQL.
create view chapar.read_models with (security_invoker = true) as
select r.projection, r.tenant, r.key, r.doc
from chapar.projection_rows r join chapar.projections p
    on p.projection = r.projection and p.build = r.build;
grant select on chapar.read_models to chapar_app, chapar_engine;
