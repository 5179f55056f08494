-- The outbox, and what the relays keep about it: leases, cursors, parked rows, stamps, partitions.

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

-- Where this database lives: the cluster whose transaction ids the cursors hold, its timeline, and
-- a number that rises with each new life of the store, which order stamps carry.
create table chapar.home (
    one      boolean primary key default true check (one),
    system   text,
    timeline integer,
    life     bigint not null default 0
);
grant select, insert, update on chapar.home to chapar_engine;

-- The current life of the store. PostgreSQL empties an unlogged table after a crash, in a promoted
-- standby and in a physical restore, which is when transaction ids and sequence numbers may be
-- given out a second time. A relay names its life in every read and every write, so positions from
-- before are refused. The row is never updated: it is looked up at each poll.
create unlogged table chapar.life (
    one boolean primary key default true check (one),
    id  text not null
);
insert into chapar.life (id) values (gen_random_uuid()::text);
grant select, insert, delete on chapar.life to chapar_engine;

-- The cluster and the timeline of this server; null where a provider does not show them.
create function chapar.whereabouts(out system text, out timeline integer)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    select c.system_identifier::text into system from pg_control_system() c;
    timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
exception
    when insufficient_privilege or feature_not_supported or undefined_function then null;
end
$$;
insert into chapar.home (system, timeline) select w.system, w.timeline from chapar.whereabouts() w;
grant execute on function chapar.whereabouts() to chapar_engine;

-- Refuses a relay whose positions are from another life of the store.
create function chapar.check_life(life text) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from chapar.life l where l.id = check_life.life) then
        raise exception 'the database was restarted after a crash, failed over or restored: positions from before are void'
            using errcode = 'CHP05';
    end if;
    return true;
end
$$;
grant execute on function chapar.check_life(text) to chapar_engine;

-- Rows are appended, read by a cursor, and moved out a partition at a time; no row is ever updated.
-- The transaction id tells which rows have become visible since the relay's last poll, however late
-- their transaction commits.
--
-- Sizes are bounded by chapar.append, the only way in, and not by a constraint: PostgreSQL parses a
-- constraint of this length for each statement that inserts, which took about half as long as the
-- rest of an append.
create sequence chapar.outbox_seq;
grant usage, select on sequence chapar.outbox_seq to chapar_engine;
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
call chapar.protect_own('chapar.outbox'::regclass);
-- Published rows past their retention in the outbox, kept until an archive takes them.
create table chapar.outbox_held (like chapar.outbox including defaults including constraints) partition by range (seq);
alter table chapar.outbox_held add primary key (seq);
call chapar.protect_own('chapar.outbox_held'::regclass);

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
call chapar.protect_own('chapar.outbox_parked'::regclass);

-- Rows that were parked and are not any more. A republish request finds here what was published
-- long after it was written, and what an operator has dropped.
create table chapar.outbox_unparked (
    seq     bigint primary key,
    at      timestamptz not null default clock_timestamp(),
    dropped boolean not null
);
grant select, insert, update, delete on chapar.outbox_unparked to chapar_engine;

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

-- Partitions are made and moved by functions of the owner: the engine may call two of them. Row-level
-- security is forced on the owner, and on partitions that are queried directly.
grant select on chapar.outbox_partitions to chapar_engine;

create procedure chapar.add_outbox_partition(from_seq bigint, to_seq bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    name constant text := 'outbox_' || from_seq;
begin
    -- With its range as a constraint, no attaching reads the rows.
    execute format('create table chapar.%I (like chapar.outbox including defaults including constraints,
                    constraint seq_range check (seq >= %s and seq < %s))', name, from_seq, to_seq);
    execute format('alter table chapar.%I enable row level security', name);
    execute format('alter table chapar.%I force row level security', name);
    execute format('alter table chapar.outbox attach partition chapar.%I for values from (%s) to (%s)',
                   name, from_seq, to_seq);
    insert into chapar.outbox_partitions values (name, from_seq, to_seq);
end
$$;
call chapar.add_outbox_partition(1::bigint, 1000001::bigint);

-- The default partition: an append never fails for lack of a partition. Its rows stay here.
create table chapar.outbox_rest partition of chapar.outbox default;
alter table chapar.outbox_rest enable row level security;
alter table chapar.outbox_rest force row level security;

-- Keeps an empty partition ahead of the sequence; returns how many it made.
--
-- This and moving out need strong locks, and a call that waits for one makes all appends wait
-- behind it. So one housekeeper works at a time, and it gives up almost at once while a producer's
-- transaction is open; the next round tries again.
create function chapar.extend_outbox(rows_per_partition bigint) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '30ms'
as $$
declare
    last  constant bigint := (select last_value from chapar.outbox_seq);
    upper constant bigint := (select max(to_seq) from chapar.outbox_partitions);
    start bigint := upper;
begin
    if upper - last >= rows_per_partition or not pg_try_advisory_xact_lock(7526765::integer, 0::integer) then
        return 0;
    end if;
    if last >= upper then
        -- Rows are in the default partition already; begin well ahead of them.
        start := last + greatest(rows_per_partition / 10, 10000);
    end if;
    call chapar.add_outbox_partition(start, start + rows_per_partition);
    return 1;
exception
    when lock_not_available then return 0;
end
$$;
grant execute on function chapar.extend_outbox(bigint) to chapar_engine;

-- Moves the oldest partition out of the outbox if all its rows are published and its last row is
-- older than `keep`; returns its name. If nothing can be moved, nothing is locked.
create function chapar.move_out_outbox(floor_seq bigint, keep interval) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '30ms'
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
    if not free or not pg_try_advisory_xact_lock(7526765::integer, 0::integer) then
        return null;
    end if;
    -- No transaction still writes to it, so that the second check sees all rows.
    execute format('lock table only chapar.outbox, chapar.%I in access exclusive mode', oldest.name);
    execute format('select coalesce((select written_at < clock_timestamp() - $1 from chapar.outbox
                                     where seq >= %1$s and seq < %2$s order by seq desc limit 1), true)
                    and not exists (select from chapar.outbox_parked p where p.seq >= %1$s and p.seq < %2$s)
                    and not exists (select from chapar.outbox o where o.seq >= %1$s and o.seq < %2$s
                                    and o.xid >= pg_snapshot_xmin(pg_current_snapshot())
                                    and o.xid < pg_snapshot_xmax(pg_current_snapshot()))',
                   oldest.from_seq, oldest.to_seq) into free using move_out_outbox.keep;
    if not free then
        return null;
    end if;
    execute format('alter table chapar.outbox detach partition chapar.%I', oldest.name);
    execute format('alter table chapar.outbox_held attach partition chapar.%I for values from (%s) to (%s)',
                   oldest.name, oldest.from_seq, oldest.to_seq);
    update chapar.outbox_partitions p set held = true where p.name = oldest.name;
    return oldest.name;
exception
    when lock_not_available then return null;
end
$$;
grant execute on function chapar.move_out_outbox(bigint, interval) to chapar_engine;

-- The window of a relay's poll: the sequence's last value, a transaction id of its own, then the
-- snapshot, in this order. A transaction that is still running has an id below this one or will
-- take a number above that value, because an append takes its id before its number. `top` is the
-- sequence's value afterwards: no visible row has a higher number. Returns no row if there is
-- nothing new since `seen`.
create function chapar.open_window(
    seen pg_snapshot, seen_xid xid8, seen_seq bigint, floor_seq bigint, shards smallint[], life text
) returns table (seq bigint, xid xid8, snapshot pg_snapshot, top bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform chapar.check_life(open_window.life);
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
grant execute on function chapar.open_window(pg_snapshot, xid8, bigint, bigint, smallint[], text) to chapar_engine;

-- The transactions that were running at the last poll and whose rows are visible now. It asks one
-- index for the next transaction that has written anything, starting from each running id. The
-- planner must not choose: asked for rows of certain transactions, it may read all rows instead, at
-- each poll for as long as any transaction stays open on the server.
create function chapar.come_late(seen pg_snapshot, seen_xid xid8, floor_seq bigint) returns setof xid8
language plpgsql stable
set search_path = pg_catalog, pg_temp
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
grant execute on function chapar.come_late(pg_snapshot, xid8, bigint) to chapar_engine;

-- The range of numbers of their rows, up to the last number assigned at that poll: above `after`,
-- and not above `upto`. Called after the snapshot of a window, it covers all rows that the window
-- can see.
create function chapar.late_span(
    seen pg_snapshot, seen_xid xid8, seen_seq bigint, floor_seq bigint, out after bigint, out upto bigint
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
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
grant execute on function chapar.late_span(pg_snapshot, xid8, bigint, bigint) to chapar_engine;

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
call chapar.protect_own('chapar.idempotency'::regclass);

