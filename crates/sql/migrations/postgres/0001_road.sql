-- The path of an event: outbox, log, inbox, dead letters, parked and stashed events.
--
-- Two roles separate tenants. Services run as chapar_app and see the rows of the tenant in
-- app.tenant_id, and get an error when none is set. The engine runs as chapar_engine and sees all
-- rows, because a relay that sees only some rows silently loses the others.
create schema chapar;

do $$
declare
    role_name text;
begin
    foreach role_name in array array['chapar_app', 'chapar_engine'] loop
        if not exists (select from pg_roles where rolname = role_name) then
            begin
                execute format('create role %I nologin', role_name);
            exception
                -- Roles belong to the cluster: another database may be migrating right now.
                when duplicate_object or unique_violation then null;
                when insufficient_privilege then
                    raise exception 'the role % is missing and % may not create it', role_name, current_user
                        using hint = format('have an administrator run: create role %I nologin; grant %I to %I;',
                                            role_name, role_name, current_user);
            end;
        end if;
        if not pg_has_role(current_user, role_name, 'member') then
            execute format('grant %I to current_user', role_name);
        end if;
    end loop;
end
$$;

grant usage on schema chapar to chapar_app, chapar_engine;

create function chapar.tenant() returns text
language plpgsql stable parallel safe
as $$
declare
    tenant constant text := current_setting('app.tenant_id', true);
begin
    if tenant is null or tenant = '' then
        raise exception 'no tenant is set for this transaction'
            using errcode = 'CHP02',
                  hint = 'run: select set_config(''app.tenant_id'', <tenant>, true)';
    end if;
    return tenant;
end
$$;

-- Protects a table with a column "tenant" by row-level security, forced on its owner too.
create procedure chapar.protect(tenant_table regclass)
language plpgsql
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

-- The parts of the system's profile that SQL needs; written when a service starts.
create table chapar.settings (
    name  text primary key,
    value text not null
);
insert into chapar.settings values ('key_template', '{tenant}:{aggregate_id}');
grant select on chapar.settings to chapar_app;
grant select, insert, update on chapar.settings to chapar_engine;

-- The running relays. A row is a lease: every write of its holder names its epoch. The relay that
-- takes over from a dead one deletes its row, so a relay that lost its lease writes nothing.
create table chapar.relays (
    epoch      bigint generated always as identity primary key,
    owner      text not null,
    expires_at timestamptz not null
);
grant select, insert, update, delete on chapar.relays to chapar_engine;

-- The key space in 64 shards. A row changes only when its shard changes owner.
create table chapar.shards (
    shard smallint primary key,
    epoch bigint,
    track bigint not null
);
create index shards_epoch on chapar.shards (epoch);
insert into chapar.shards (shard, track) select n, 1 from generate_series(0, 63) n;
grant select, update on chapar.shards to chapar_engine;

-- The cursor of shards that share one (a track). Every checkpoint is a row under a new key: a row
-- that is updated often gets slower with each version that an old snapshot keeps alive.
create table chapar.tracks (
    track   bigint not null,
    version bigint not null,
    cursor  text not null,
    primary key (track, version)
);
create sequence chapar.track_ids start 2;
insert into chapar.tracks values (1, 1, '{"seen":"1:1:","seen_xid":1,"seen_seq":0,"seen_top":0,"floor":0,"floor_xid":1,"floor_next":0,"after":0}');
grant select, insert, delete on chapar.tracks to chapar_engine;
grant usage on sequence chapar.track_ids to chapar_engine;

-- Rows are appended, read by a cursor, and moved out a partition at a time; no row is ever updated.
-- The transaction id tells which rows have become visible since the relay's last poll, however late
-- their transaction commits.
create sequence chapar.outbox_seq;
grant usage, select on sequence chapar.outbox_seq to chapar_app, chapar_engine;
create table chapar.outbox (
    seq             bigint not null default nextval('chapar.outbox_seq'),
    xid             xid8 not null default pg_current_xact_id(),
    event_id        text not null,
    tenant          text not null,
    topic           text not null,
    ordering_key    text,
    shard           smallint not null,
    aggregate_type  text not null,
    aggregate_id    text not null,
    idempotency_key text,
    correlation_id  text not null,
    causation_id    text,
    -- A sealed row holds the message as it goes out; a draft holds the payload that
    -- chapar.emit was given, and the relay completes it by the system's profile.
    sealed          boolean not null,
    headers         text not null,
    body            bytea not null,
    written_at      timestamptz not null default clock_timestamp()
) partition by range (seq);
alter table chapar.outbox add primary key (seq);
create index outbox_xid on chapar.outbox (xid);
-- Ids begin with their time, so a few block ranges are read for a lookup, and the index costs an
-- append almost nothing.
create index outbox_event on chapar.outbox using brin (event_id) with (pages_per_range = 16);
create index outbox_correlation on chapar.outbox using brin (correlation_id) with (pages_per_range = 16);
call chapar.protect('chapar.outbox');

-- Published rows past their retention in the outbox, kept until an archive takes them.
create table chapar.outbox_held (like chapar.outbox including defaults) partition by range (seq);
alter table chapar.outbox_held add primary key (seq);
call chapar.protect('chapar.outbox_held');

create table chapar.outbox_partitions (
    name     text primary key,
    from_seq bigint not null,
    to_seq   bigint not null,
    held     boolean not null default false
);
grant select on chapar.outbox_partitions to chapar_app;

-- Rows that could not be published, and the later rows of their keys. Only the first row of a key,
-- the head, is retried.
create table chapar.outbox_parked (
    seq             bigint primary key,
    shard           smallint not null,
    tenant          text not null,
    ordering_key    text,
    head            boolean not null,
    attempts        integer not null default 0,
    first_failed_at timestamptz,
    next_attempt_at timestamptz,
    quarantined_at  timestamptz,
    last_error      text,
    stamp           text
);
create index outbox_parked_key on chapar.outbox_parked (ordering_key, seq);
create index outbox_parked_due on chapar.outbox_parked (shard, next_attempt_at)
    where head and quarantined_at is null;
create index outbox_parked_quarantine on chapar.outbox_parked (quarantined_at)
    where quarantined_at is not null;
call chapar.protect('chapar.outbox_parked');

-- Rows that were parked and are not any more. A republish request finds here what was published
-- long after it was written, and what an operator has dropped.
create table chapar.outbox_unparked (
    seq     bigint primary key,
    at      timestamptz not null default clock_timestamp(),
    dropped boolean not null
);
grant select, insert, update on chapar.outbox_unparked to chapar_engine;

-- About once a minute: every row up to `floor` was published or parked at that time.
create table chapar.relayed (
    at    timestamptz primary key default clock_timestamp(),
    floor bigint not null
);
grant select, insert, delete on chapar.relayed to chapar_engine;

-- Requests to publish again. The relays carry them out: their progress is in the cursors of the
-- tracks, and this row ends once all shards are done.
create table chapar.republish_requests (
    id        bigint generated always as identity primary key,
    asked_at  timestamptz not null default clock_timestamp(),
    actor     text not null,
    reason    text not null,
    -- Rows above `from_seq`, and those that left the parked rows since then.
    since     timestamptz not null,
    from_seq  bigint not null,
    published bigint not null default 0,
    parked    bigint not null default 0,
    ended_at  timestamptz,
    cancelled boolean not null default false
);
create index republish_requests_open on chapar.republish_requests (id) where ended_at is null;
grant select, insert, update on chapar.republish_requests to chapar_engine;

-- The last sequence number of each subject of a key, where the order over topics is stamped.
create table chapar.key_marks (
    ordering_key text collate "C" not null,
    topic        text collate "C" not null,
    seq          bigint not null,
    primary key (ordering_key, topic)
);
grant select, insert, update, delete on chapar.key_marks to chapar_engine;

-- The numbers before those, so that a row that is published again gets the stamp it had first.
-- Most keys have one event for each subject, and no row here.
create table chapar.earlier_marks (
    ordering_key text collate "C" not null,
    topic        text collate "C" not null,
    seq          bigint not null,
    primary key (ordering_key, topic, seq)
);
grant select, insert, delete on chapar.earlier_marks to chapar_engine;

-- How far the marks of a shard are written: all that lies behind this cursor. What has been passed
-- since is found out from the rows. A row per version, for the reason that tracks have.
create table chapar.marked (
    shard   smallint not null,
    version bigint not null,
    cursor  text not null,
    primary key (shard, version)
);
grant select, insert, delete on chapar.marked to chapar_engine;

-- The engine creates and moves partitions, so it owns them. Row-level security is forced on the
-- owner, and on partitions that are queried directly.
grant create on schema chapar to chapar_engine;
alter table chapar.outbox owner to chapar_engine;
alter table chapar.outbox_held owner to chapar_engine;
alter table chapar.outbox_partitions owner to chapar_engine;

create procedure chapar.add_outbox_partition(from_seq bigint, to_seq bigint)
language plpgsql
as $$
declare
    name constant text := 'outbox_' || from_seq;
begin
    execute format('create table chapar.%I (like chapar.outbox including defaults)', name);
    execute format('alter table chapar.%I enable row level security', name);
    execute format('alter table chapar.%I force row level security', name);
    execute format('alter table chapar.%I owner to chapar_engine', name);
    execute format('alter table chapar.outbox attach partition chapar.%I for values from (%s) to (%s)',
                   name, from_seq, to_seq);
    insert into chapar.outbox_partitions values (name, from_seq, to_seq);
end
$$;
call chapar.add_outbox_partition(1, 1000001);

-- The default partition: an append never fails for lack of a partition. Its rows stay here.
create table chapar.outbox_rest partition of chapar.outbox default;
alter table chapar.outbox_rest enable row level security;
alter table chapar.outbox_rest force row level security;
alter table chapar.outbox_rest owner to chapar_engine;

-- Keeps an empty partition ahead of the sequence; returns how many it made.
create function chapar.extend_outbox(rows_per_partition bigint) returns integer
language plpgsql
set lock_timeout = '2s'
as $$
declare
    last  constant bigint := (select last_value from chapar.outbox_seq);
    upper constant bigint := (select max(to_seq) from chapar.outbox_partitions);
    start bigint := upper;
begin
    if upper - last >= rows_per_partition then
        return 0;
    end if;
    if last >= upper then
        -- Rows are in the default partition already; begin well ahead of them.
        start := last + greatest(rows_per_partition / 10, 10000);
    end if;
    call chapar.add_outbox_partition(start, start + rows_per_partition);
    return 1;
end
$$;

-- Moves the oldest partition out of the outbox if all its rows are published and its last row is
-- older than `keep`; returns its name. If nothing can be moved, nothing is locked.
create function chapar.move_out_outbox(floor_seq bigint, keep interval) returns text
language plpgsql
set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
    oldest chapar.outbox_partitions%rowtype;
    free   boolean;
begin
    select * into oldest from chapar.outbox_partitions p where not p.held order by p.from_seq limit 1;
    if oldest.name is null or move_out_outbox.floor_seq < oldest.to_seq - 1 then
        return null;
    end if;
    execute format('select not exists (select from chapar.outbox_parked p where p.seq >= %1$s and p.seq < %2$s)
                    and coalesce((select written_at < clock_timestamp() - $1 from chapar.outbox
                                  where seq >= %1$s and seq < %2$s order by seq desc limit 1), true)',
                   oldest.from_seq, oldest.to_seq) into free using move_out_outbox.keep;
    if not free then
        return null;
    end if;
    -- Waits for transactions that still write to it, so that the second check sees all rows.
    execute format('lock table chapar.%I in access exclusive mode', oldest.name);
    execute format('select coalesce((select written_at < clock_timestamp() - $1 from chapar.outbox
                                     where seq >= %1$s and seq < %2$s order by seq desc limit 1), true)
                    and not exists (select from chapar.outbox_parked p where p.seq >= %1$s and p.seq < %2$s)
                    and not exists (select from chapar.outbox o where o.seq >= %1$s and o.seq < %2$s
                                    and o.xid >= pg_snapshot_xmin(pg_current_snapshot()))',
                   oldest.from_seq, oldest.to_seq) into free using move_out_outbox.keep;
    if not free then
        return null;
    end if;
    execute format('alter table chapar.outbox detach partition chapar.%I', oldest.name);
    execute format('alter table chapar.outbox_held attach partition chapar.%I for values from (%s) to (%s)',
                   oldest.name, oldest.from_seq, oldest.to_seq);
    update chapar.outbox_partitions p set held = true where p.name = oldest.name;
    return oldest.name;
end
$$;

-- The window of a relay's poll: the sequence's last value, a transaction id of its own, then the
-- snapshot, in this order. A transaction that is still running has an id below this one or will
-- take a number above that value, because an append takes its id before its number. `top` is the
-- sequence's value afterwards: no visible row has a higher number. Returns no row if there is
-- nothing new since `seen`.
create function chapar.open_window(
    seen pg_snapshot, seen_xid xid8, seen_seq bigint, floor_seq bigint, shards smallint[]
) returns table (seq bigint, xid xid8, snapshot pg_snapshot, top bigint)
language plpgsql
as $$
#variable_conflict use_column
begin
    if not exists (
        select from chapar.outbox o
        where o.seq > open_window.seen_seq and o.shard = any(open_window.shards)
          and not pg_visible_in_snapshot(o.xid, open_window.seen)
    ) and not exists (
        select from chapar.come_late(open_window.seen, open_window.seen_xid, open_window.floor_seq)
    ) then
        return;
    end if;
    -- A sequence that was never used reports 1 and means 0.
    open_window.seq := (select case when s.is_called then s.last_value else 0 end from chapar.outbox_seq s);
    open_window.xid := pg_current_xact_id();
    open_window.snapshot := pg_current_snapshot();
    open_window.top := (select s.last_value from chapar.outbox_seq s);
    return next;
end
$$;

-- The transactions that were running at the last poll and whose rows are visible now. It asks one
-- index for the next transaction that has written anything, starting from each running id. The
-- planner must not choose: asked for rows of certain transactions, it may read all rows instead, at
-- each poll for as long as any transaction stays open on the server.
create function chapar.come_late(seen pg_snapshot, seen_xid xid8, floor_seq bigint) returns setof xid8
language plpgsql stable
as $$
#variable_conflict use_column
declare
    running xid8;
    written xid8;
begin
    for running in select pg_snapshot_xip(come_late.seen) loop
        -- No row was written between the last id asked for and this one.
        continue when written > running;
        written := (select o.xid from chapar.outbox o where o.seq > come_late.floor_seq and o.xid >= running
                    order by o.xid limit 1);
        exit when written is null;
        if written = running then
            return next written;
        end if;
    end loop;
    written := (select o.xid from chapar.outbox o
                where o.seq > come_late.floor_seq and o.xid >= pg_snapshot_xmax(come_late.seen)
                order by o.xid limit 1);
    while written < come_late.seen_xid loop
        return next written;
        written := (select o.xid from chapar.outbox o where o.seq > come_late.floor_seq and o.xid > written
                    order by o.xid limit 1);
    end loop;
end
$$;

-- The range of numbers of their rows, up to the last number assigned at that poll: above `after`,
-- and not above `upto`. Called after the snapshot of a window, it covers all rows that the window
-- can see.
create function chapar.late_span(
    seen pg_snapshot, seen_xid xid8, seen_seq bigint, floor_seq bigint, out after bigint, out upto bigint
)
language plpgsql stable
as $$
declare
    late constant xid8[] := array(select chapar.come_late(seen, seen_xid, floor_seq));
begin
    if cardinality(late) > 0 then
        -- `offset 0` keeps the planner from searching the minimum and the maximum from either end.
        select min(o.seq) - 1, max(o.seq) into after, upto
        from (select o.seq from chapar.outbox o where o.seq > floor_seq and o.xid = any(late) offset 0) o
        where o.seq <= seen_seq;
    end if;
    after := coalesce(after, 0);
    upto := coalesce(upto, 0);
end
$$;

-- Committed rows that are neither published nor parked.
create view chapar.outbox_waiting as
select o.seq, o.shard, o.tenant, o.topic, o.written_at
from chapar.outbox o
join chapar.shards s on s.shard = o.shard
join lateral (select t.cursor::jsonb as at from chapar.tracks t
              where t.track = s.track order by t.version desc limit 1) t on true
where o.seq > (select min((t.cursor::jsonb ->> 'floor')::bigint) from chapar.tracks t)
  and not pg_visible_in_snapshot(o.xid, (t.at ->> 'seen')::pg_snapshot)
  and not (t.at ? 'upto' and o.seq <= (t.at ->> 'after')::bigint
           and pg_visible_in_snapshot(o.xid, (t.at ->> 'upto')::pg_snapshot));
grant select on chapar.outbox_waiting to chapar_engine;

create table chapar.idempotency (
    tenant       text not null,
    topic        text not null,
    key          text not null,
    event_id     text not null,
    payload_hash bytea not null,
    created_at   timestamptz not null default clock_timestamp(),
    primary key (tenant, topic, key)
);
call chapar.protect('chapar.idempotency');

create table chapar.inbox (
    consumer     text not null,
    event_id     text not null,
    tenant       text not null,
    topic        text not null,
    received_at  timestamptz not null default clock_timestamp(),
    processed_at timestamptz not null default clock_timestamp(),
    result       text not null,
    attempts     integer not null default 1,
    primary key (consumer, event_id)
);
create index inbox_age on chapar.inbox (processed_at);
call chapar.protect('chapar.inbox');

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
-- One letter per consumer and position: a crash between the letter and the acknowledgement must not
-- write it twice.
create unique index dead_letters_place on chapar.dead_letters (consumer, log_partition, log_offset);
call chapar.protect('chapar.dead_letters');

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
    unique (consumer, event_id)
);
create index parked_key on chapar.parked (consumer, ordering_key, id);
call chapar.protect('chapar.parked');

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
    primary key (saga, key)
);
-- Counting sagas by state and outcome reads this index alone.
create index sagas_state on chapar.sagas (saga, state, outcome);
create index sagas_started on chapar.sagas (started_at);
call chapar.protect('chapar.sagas');

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
    primary key (saga, key, version)
);
call chapar.protect('chapar.saga_history');

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
    unique (consumer, event_id)
);
create index saga_stash_key on chapar.saga_stash (saga, key, id);
create index saga_stash_expiry on chapar.saga_stash (consumer, expires_at);
call chapar.protect('chapar.saga_stash');

create table chapar.timers (
    saga       text not null,
    key        text not null,
    name       text not null,
    tenant     text not null,
    generation bigint not null,
    due_at     timestamptz not null,
    attempts   integer not null default 0,
    primary key (saga, key, name)
);
create index timers_due on chapar.timers (due_at);
call chapar.protect('chapar.timers');

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
    last_error      text,
    created_at      timestamptz not null default clock_timestamp(),
    finished_at     timestamptz,
    unique (tenant, kind, idempotency_key)
);
create index effects_due on chapar.effects (due_at) where status = 'pending';
call chapar.protect('chapar.effects');

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
    event_id      text not null unique,
    tenant        text not null,
    topic         text not null,
    ordering_key  text,
    headers       text not null,
    body          bytea not null,
    published_at  timestamptz not null default clock_timestamp(),
    primary key (log_partition, log_offset)
);
call chapar.protect('chapar.log');

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
grant select, insert on chapar.audit_log to chapar_engine;

create function chapar.refuse_change() returns trigger
language plpgsql
as $$
begin
    raise exception 'the audit log is append-only' using errcode = 'CHP03';
end
$$;
create trigger audit_log_append_only before update or delete or truncate on chapar.audit_log
    execute function chapar.refuse_change();

-- The shard of a key. The library computes the same; neither may ever change.
create function chapar.shard(ordering_key text) returns smallint
language sql immutable parallel safe
return (get_byte(sha256(convert_to(ordering_key, 'UTF8')), 0) % 64)::smallint;

-- Appends one event inside the caller's transaction and returns its id, or the id of the
-- first event with the same idempotency key and payload.
--
-- The lock on the key is taken before the sequence number: two transactions of one key get their
-- numbers in commit order. Each statement of this function has its own snapshot, so it sees what
-- the transaction it waited for has written.
create function chapar.append(
    event_id text, tenant text, topic text, ordering_key text, shard smallint,
    aggregate_type text, aggregate_id text, idempotency_key text, payload_hash bytea,
    correlation_id text, causation_id text, sealed boolean, headers text, body bytea,
    shard_is_locked boolean default false
) returns text
language plpgsql
-- A key that another transaction holds for long gives a retryable error instead of a hang.
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
    first_id   text;
    first_hash bytea;
begin
    -- The transaction id is taken before the number: see chapar.open_window.
    perform pg_current_xact_id();
    if append.ordering_key is not null and not append.shard_is_locked then
        -- Shared, so that it only waits for a batch with very many keys, which locks whole shards.
        perform pg_advisory_xact_lock_shared(7526764, append.shard);
        perform pg_advisory_xact_lock(hashtextextended(append.ordering_key, 0));
    end if;
    if append.idempotency_key is not null then
        insert into chapar.idempotency (tenant, topic, key, event_id, payload_hash)
        values (append.tenant, append.topic, append.idempotency_key, append.event_id, append.payload_hash)
        on conflict do nothing;
        if not found then
            select i.event_id, i.payload_hash into first_id, first_hash
            from chapar.idempotency i
            where i.tenant = append.tenant and i.topic = append.topic and i.key = append.idempotency_key;
            if first_hash is distinct from append.payload_hash then
                raise exception 'the idempotency key % of % was used for another payload, in event %',
                    append.idempotency_key, append.topic, first_id
                    using errcode = 'CHP01',
                          hint = 'derive the key from the business intent, so that another intent has another key';
            end if;
            return first_id;
        end if;
    end if;
    insert into chapar.outbox (event_id, tenant, topic, ordering_key, shard, aggregate_type, aggregate_id,
                               idempotency_key, correlation_id, causation_id, sealed, headers, body)
    values (append.event_id, append.tenant, append.topic, append.ordering_key, append.shard,
            append.aggregate_type, append.aggregate_id, append.idempotency_key, append.correlation_id,
            append.causation_id, append.sealed, append.headers, append.body);
    return append.event_id;
end
$$;

-- A UUID of version 7: 48 bits of milliseconds, then random bits.
create function chapar.uuid_v7() returns text
language sql volatile parallel safe
return encode(
    set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
                placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                from 1 for 6),
        52, 1), 53, 1), 'hex')::uuid::text;

-- The entry point for every language: emits an event inside the caller's transaction.
--
--   select chapar.emit('melmastoon.reservation.booking.confirmed.v1',
--                      tenant => 'acme', key => 'res_1', payload => '{"reservationId": "res_1"}',
--                      idempotency_key => 'res_1:confirmed:1');
create function chapar.emit(
    subject text, tenant text, key text, payload jsonb,
    idempotency_key text default null, aggregate_type text default '',
    correlation_id text default null, causation_id text default null,
    actor jsonb default null, metadata jsonb default '{}', ai_provenance jsonb default null
) returns text
language plpgsql
as $$
declare
    id           constant text := chapar.uuid_v7();
    ordering_key constant text := (
        select replace(replace(value, '{tenant}', emit.tenant), '{aggregate_id}', emit.key)
        from chapar.settings where name = 'key_template');
    body         constant bytea := convert_to(emit.payload::text, 'UTF8');
begin
    if coalesce(emit.subject, '') = '' or coalesce(emit.tenant, '') = '' or coalesce(emit.key, '') = ''
       or emit.payload is null then
        raise exception 'chapar.emit needs a subject, a tenant, a key and a payload' using errcode = 'CHP04';
    end if;
    if octet_length(body) > 262144 then
        raise exception 'the payload of % has % bytes, at most 262144 are allowed', emit.subject, octet_length(body)
            using errcode = 'CHP04', hint = 'send a reference to the facts instead of the facts';
    end if;
    return chapar.append(
        id, emit.tenant, emit.subject, ordering_key, chapar.shard(ordering_key),
        emit.aggregate_type, emit.key, emit.idempotency_key, sha256(body),
        coalesce(emit.correlation_id, id), emit.causation_id, false,
        jsonb_build_object('actor', emit.actor, 'metadata', emit.metadata,
                           'aiProvenance', emit.ai_provenance)::text, body);
end
$$;
