-- What consumers declare about themselves, for operator commands.
create table chapar_consumers (
    consumer    text primary key,
    service     text not null,
    append_only integer not null,
    declared_at integer not null
) strict, without rowid;

-- The timers that a program handles, and what happens when they fire.
create table chapar_saga_timers (
    saga        text not null,
    name        text not null,
    service     text not null,
    does        text not null,
    declared_at integer not null,
    primary key (saga, name)
) strict, without rowid;

-- Indexes for tracing a correlation.
create index chapar_sagas_correlation on chapar_sagas (correlation_id);
create index chapar_dead_letters_of_event on chapar_dead_letters (event_id);

-- Read models: documents by key, kept by a consumer of the same name. A build is a generation of
-- the documents; the served one is named here, and another may be in progress.
create table chapar_projections (
    projection     text primary key,
    build          integer not null default 1,
    snapshot_every integer not null,
    -- The requested work: none, 'rebuild', 'tail' (from the last snapshot) or 'game-day'; and the
    -- process that does it, with the deadline of its next heartbeat.
    wanted         text,
    asked_by       text,
    reason         text,
    owner          text,
    alive_until    integer,
    done           integer not null default 0,
    total          integer not null default 0,
    started_at     integer,
    finished_at    integer,
    outcome        text,
    micros         integer,
    differences    integer
) strict, without rowid;

create table chapar_projection_rows (
    projection text not null,
    build      integer not null,
    tenant     text not null,
    key        text not null,
    doc        text not null,
    primary key (projection, build, tenant, key)
) strict, without rowid;

-- How far the served build has come in each partition.
create table chapar_projection_marks (
    projection    text not null,
    log_partition integer not null,
    log_offset    integer not null,
    event_id      text not null,
    at            integer not null,
    primary key (projection, log_partition)
) strict, without rowid;

-- Events applied since the last snapshot.
create table chapar_projection_tail (
    projection    text not null,
    event_id      text not null,
    log_partition integer not null,
    log_offset    integer not null,
    primary key (projection, event_id)
) strict, without rowid;

-- The last snapshot of each read model: its documents are build 0.
create table chapar_projection_snapshots (
    projection text primary key,
    events     integer not null,
    marks      text not null,
    docs       integer not null,
    taken_at   integer not null
) strict, without rowid;

-- The served documents, for queries by SQL.
create view chapar_read_models as
select r.projection, r.tenant, r.key, r.doc
from chapar_projection_rows r join chapar_projections p
    on p.projection = r.projection and p.build = r.build;
