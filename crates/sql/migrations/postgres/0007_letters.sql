-- Triage of dead letters: classes and fixes, edits, replay runs, and the note with which a letter
-- is closed.
alter table chapar.dead_letters
    add column class          text,
    -- Failed attempts of the replay under way, and when the next one is due.
    add column tries          integer not null default 0,
    add column retry_at       timestamptz,
    -- It has never been open: it is still retried, outside of the consumer's window.
    add column deferred       boolean not null default false,
    -- The recorded fix, if its class requires one for a replay.
    add column fix            text,
    add column fixed          boolean not null default false,
    -- The edited message, delivered instead of the original, which is kept.
    add column edited_headers text,
    add column edited_body    bytea,
    add column edited_by      text,
    add column edited_at      timestamptz,
    add column run            text,
    add column outcome        text,
    add column note           text,
    add column closed_by      text,
    add column closed_at      timestamptz,
    -- A letter is deleted only after it has been exported.
    add column exported_at    timestamptz;
-- Bodies are stored out of line: a change of status does not copy them, and a count does not read
-- them.
alter table chapar.dead_letters set (toast_tuple_target = 128);

update chapar.dead_letters set outcome = 'applied', closed_at = last_failed_at where status = 'closed';

-- Counting groups, and listing one of them, reads this index alone.
create index dead_letters_group on chapar.dead_letters (fingerprint, last_failed_at, id)
    include (tenant, class, fixed, status, first_failed_at) where status <> 'closed';
create index dead_letters_tenant on chapar.dead_letters (tenant, last_failed_at, id)
    include (fingerprint, class) where status <> 'closed';
create index dead_letters_time on chapar.dead_letters (last_failed_at, id) where status <> 'closed';
create index dead_letters_asked on chapar.dead_letters (consumer, id) where status = 'replay';
create index dead_letters_edited on chapar.dead_letters (consumer) where edited_body is not null;
create index dead_letters_run on chapar.dead_letters (run, status) where run is not null;
create index dead_letters_closed on chapar.dead_letters (closed_at, id) where status = 'closed';

-- Groups: failures of one consumer, topic and kind that differ only in numbers, ids and quoted
-- values. The shape is the error without those, so it reveals nothing about a tenant. Rows are
-- never updated.
create table chapar.dead_letter_groups (
    fingerprint text primary key,
    consumer    text not null,
    topic       text not null,
    kind        text not null,
    shape       text not null
);
grant select, insert on chapar.dead_letter_groups to chapar_engine;

-- A letter without its group would match no filter, so the group is inserted with it.
create function chapar.group_dead_letter() returns trigger
language plpgsql
security definer set search_path = pg_catalog, pg_temp
as $$
begin
    insert into chapar.dead_letter_groups (fingerprint, consumer, topic, kind, shape)
    values (new.fingerprint, new.consumer, new.topic, new.kind, left(new.error, 500))
    on conflict do nothing;
    return new;
end
$$;
create trigger dead_letters_grouped after insert on chapar.dead_letters
    for each row execute function chapar.group_dead_letter();

insert into chapar.dead_letter_groups (fingerprint, consumer, topic, kind, shape)
select fingerprint, consumer, topic, kind, left(error, 500) from chapar.dead_letters
on conflict do nothing;

-- Replays of many letters. The cursor moves in the transaction that requests them, so a stopped run
-- resumes where it was and requests none twice.
create table chapar.replay_runs (
    id           text primary key,
    actor        text not null,
    reason       text not null,
    selection    text not null,
    reapply      boolean not null,
    started_at   timestamptz not null,
    cursor_group text not null,
    cursor_at    timestamptz not null,
    cursor_id    text not null,
    asked        bigint not null default 0,
    refused      bigint not null default 0,
    finished_at  timestamptz
);
grant select, insert, update on chapar.replay_runs to chapar_engine;

-- Letters that are still to be copied to the broker.
create table chapar.dead_letter_copies (
    letter text primary key
);
grant select, insert, delete on chapar.dead_letter_copies to chapar_engine;
