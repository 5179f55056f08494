alter table chapar_dead_letters add column class text;
alter table chapar_dead_letters add column tries integer not null default 0;
alter table chapar_dead_letters add column retry_at integer;
alter table chapar_dead_letters add column deferred integer not null default 0;
alter table chapar_dead_letters add column fix text;
alter table chapar_dead_letters add column fixed integer not null default 0;
alter table chapar_dead_letters add column edited_headers text;
alter table chapar_dead_letters add column edited_body blob;
alter table chapar_dead_letters add column edited_by text;
alter table chapar_dead_letters add column edited_at integer;
alter table chapar_dead_letters add column run text;
alter table chapar_dead_letters add column outcome text;
alter table chapar_dead_letters add column note text;
alter table chapar_dead_letters add column closed_by text;
alter table chapar_dead_letters add column closed_at integer;
alter table chapar_dead_letters add column exported_at integer;

update chapar_dead_letters set outcome = 'applied', closed_at = last_failed_at where status = 'closed';

create index chapar_dead_letters_group on chapar_dead_letters
    (fingerprint, last_failed_at, id, tenant, class, fixed, status, first_failed_at) where status <> 'closed';
create index chapar_dead_letters_tenant on chapar_dead_letters
    (tenant, last_failed_at, id, fingerprint, class) where status <> 'closed';
create index chapar_dead_letters_time on chapar_dead_letters (last_failed_at, id) where status <> 'closed';
create index chapar_dead_letters_asked on chapar_dead_letters (consumer, id) where status = 'replay';
create index chapar_dead_letters_edited on chapar_dead_letters (consumer) where edited_body is not null;
create index chapar_dead_letters_run on chapar_dead_letters (run, status) where run is not null;
create index chapar_dead_letters_closed on chapar_dead_letters (closed_at, id) where status = 'closed';

create table chapar_dead_letter_groups (
    fingerprint text primary key,
    consumer    text not null,
    topic       text not null,
    kind        text not null,
    shape       text not null
) strict, without rowid;
create trigger chapar_dead_letters_grouped after insert on chapar_dead_letters
begin
    insert into chapar_dead_letter_groups (fingerprint, consumer, topic, kind, shape)
    values (new.fingerprint, new.consumer, new.topic, new.kind, substr(new.error, 1, 500))
    on conflict do nothing;
end;
insert into chapar_dead_letter_groups (fingerprint, consumer, topic, kind, shape)
select fingerprint, consumer, topic, kind, substr(error, 1, 500) from chapar_dead_letters where true
on conflict do nothing;

create table chapar_replay_runs (
    id           text primary key,
    actor        text not null,
    reason       text not null,
    selection    text not null,
    reapply      integer not null,
    started_at   integer not null,
    cursor_group text not null,
    cursor_at    integer not null,
    cursor_id    text not null,
    asked        integer not null default 0,
    refused      integer not null default 0,
    finished_at  integer
) strict, without rowid;

create table chapar_dead_letter_copies (
    letter text primary key
) strict, without rowid;
