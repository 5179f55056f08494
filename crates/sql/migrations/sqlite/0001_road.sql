-- The path of an event: outbox, log, inbox, dead letters, parked and stashed events.
--
-- The same tables as on PostgreSQL. Times are microseconds since 1970. SQLite has one writer at a
-- time, so a sequence number is also the order of commits; it has no row-level security, so tenants
-- are separated only by the statements.
create table chapar_settings (
    name  text primary key,
    value text not null
) strict;
insert into chapar_settings values ('key_template', '{tenant}:{aggregate_id}');

create table chapar_relays (
    epoch      integer primary key autoincrement,
    owner      text not null,
    expires_at integer not null
) strict;

create table chapar_shards (
    shard integer primary key,
    epoch integer,
    track integer not null
) strict;
with recursive n(i) as (values (0) union all select i + 1 from n where i < 63)
insert into chapar_shards (shard, track) select i, 1 from n;

create table chapar_tracks (
    track   integer not null,
    version integer not null,
    cursor  text not null,
    primary key (track, version)
) strict, without rowid;
insert into chapar_tracks values (1, 1, '{"after":0}');

create table chapar_outbox (
    seq             integer primary key autoincrement,
    event_id        text not null,
    tenant          text not null,
    topic           text not null,
    ordering_key    text,
    shard           integer not null,
    aggregate_type  text not null,
    aggregate_id    text not null,
    idempotency_key text,
    correlation_id  text not null,
    causation_id    text,
    sealed          integer not null,
    headers         text not null,
    body            blob not null,
    written_at      integer not null
) strict;
create index chapar_outbox_event on chapar_outbox (event_id);
create index chapar_outbox_correlation on chapar_outbox (correlation_id);

create table chapar_outbox_held (
    seq             integer primary key,
    event_id        text not null,
    tenant          text not null,
    topic           text not null,
    ordering_key    text,
    shard           integer not null,
    aggregate_type  text not null,
    aggregate_id    text not null,
    idempotency_key text,
    correlation_id  text not null,
    causation_id    text,
    sealed          integer not null,
    headers         text not null,
    body            blob not null,
    written_at      integer not null
) strict;

create table chapar_outbox_parked (
    seq             integer primary key,
    shard           integer not null,
    tenant          text not null,
    ordering_key    text,
    head            integer not null,
    attempts        integer not null default 0,
    first_failed_at integer,
    next_attempt_at integer,
    quarantined_at  integer,
    last_error      text,
    stamp           text
) strict;
create index chapar_outbox_parked_key on chapar_outbox_parked (ordering_key, seq);
create index chapar_outbox_parked_due on chapar_outbox_parked (shard, next_attempt_at)
    where head and quarantined_at is null;
create index chapar_outbox_parked_quarantine on chapar_outbox_parked (quarantined_at)
    where quarantined_at is not null;

create table chapar_outbox_unparked (
    seq     integer primary key,
    at      integer not null,
    dropped integer not null
) strict;

create table chapar_relayed (
    at    integer primary key,
    floor integer not null
) strict;

create table chapar_republish_requests (
    id        integer primary key autoincrement,
    asked_at  integer not null,
    actor     text not null,
    reason    text not null,
    since     integer not null,
    from_seq  integer not null,
    published integer not null default 0,
    parked    integer not null default 0,
    ended_at  integer,
    cancelled integer not null default 0
) strict;
create index chapar_republish_requests_open on chapar_republish_requests (id) where ended_at is null;

create table chapar_key_marks (
    ordering_key text not null,
    topic        text not null,
    seq          integer not null,
    primary key (ordering_key, topic)
) strict, without rowid;

create table chapar_earlier_marks (
    ordering_key text not null,
    topic        text not null,
    seq          integer not null,
    primary key (ordering_key, topic, seq)
) strict, without rowid;

create table chapar_marked (
    shard   integer not null,
    version integer not null,
    cursor  text not null,
    primary key (shard, version)
) strict, without rowid;

create view chapar_outbox_waiting as
select o.seq, o.shard, o.tenant, o.topic, o.written_at
from chapar_outbox o join chapar_shards s on s.shard = o.shard
where o.seq > (select min(t.cursor ->> 'after') from chapar_tracks t)
  and o.seq > (select t.cursor ->> 'after' from chapar_tracks t
               where t.track = s.track order by t.version desc limit 1);

create table chapar_idempotency (
    tenant       text not null,
    topic        text not null,
    key          text not null,
    event_id     text not null,
    payload_hash blob not null,
    created_at   integer not null,
    primary key (tenant, topic, key)
) strict, without rowid;

create table chapar_inbox (
    consumer     text not null,
    event_id     text not null,
    tenant       text not null,
    topic        text not null,
    received_at  integer not null,
    processed_at integer not null,
    result       text not null,
    attempts     integer not null default 1,
    primary key (consumer, event_id, tenant)
) strict, without rowid;
create index chapar_inbox_age on chapar_inbox (processed_at);

create table chapar_dead_letters (
    id               text primary key,
    consumer         text not null,
    event_id         text not null,
    tenant           text not null,
    topic            text not null,
    ordering_key     text,
    log_partition    integer not null,
    log_offset       integer not null,
    headers          text not null,
    body             blob not null,
    kind             text not null,
    error            text not null,
    fingerprint      text not null,
    attempts         integer not null,
    first_failed_at  integer not null,
    last_failed_at   integer not null,
    status           text not null default 'open',
    blocks_key       integer not null
) strict;
create index chapar_dead_letters_open on chapar_dead_letters (consumer, ordering_key) where status <> 'closed';
create unique index chapar_dead_letters_event on chapar_dead_letters (consumer, event_id, tenant);

create table chapar_parked (
    id            integer primary key autoincrement,
    consumer      text not null,
    ordering_key  text not null,
    event_id      text not null,
    tenant        text not null,
    topic         text not null,
    log_partition integer not null,
    log_offset    integer not null,
    headers       text not null,
    body          blob not null,
    parked_at     integer not null,
    unique (consumer, event_id, tenant)
) strict;
create index chapar_parked_key on chapar_parked (consumer, ordering_key, id);

create table chapar_sagas (
    saga           text not null,
    key            text not null,
    tenant         text not null,
    definition     integer not null,
    state          text not null,
    data           text not null,
    compensations  text not null,
    timers         text not null,
    version        integer not null,
    correlation_id text not null,
    started_at     integer not null,
    updated_at     integer not null,
    outcome        text,
    primary key (saga, key, tenant)
) strict;
-- Counting sagas by state and outcome reads this index alone.
create index chapar_sagas_state on chapar_sagas (saga, state, outcome);
create index chapar_sagas_started on chapar_sagas (started_at);

create table chapar_saga_history (
    saga       text not null,
    key        text not null,
    version    integer not null,
    tenant     text not null,
    at         integer not null,
    from_state text,
    to_state   text not null,
    cause      text not null,
    event_id   text,
    note       text not null,
    primary key (saga, key, tenant, version)
) strict, without rowid;

create table chapar_saga_stash (
    id            integer primary key autoincrement,
    consumer      text not null,
    saga          text not null,
    key           text not null,
    event_id      text not null,
    tenant        text not null,
    topic         text not null,
    log_partition integer not null,
    log_offset    integer not null,
    headers       text not null,
    body          blob not null,
    ordering_key  text,
    stashed_at    integer not null,
    expires_at    integer not null,
    unique (consumer, event_id, tenant)
) strict;
create index chapar_saga_stash_key on chapar_saga_stash (saga, key, tenant, id);
create index chapar_saga_stash_expiry on chapar_saga_stash (consumer, expires_at);

create table chapar_timers (
    saga       text not null,
    key        text not null,
    name       text not null,
    tenant     text not null,
    generation integer not null,
    due_at     integer not null,
    attempts   integer not null default 0,
    primary key (saga, key, tenant, name)
) strict, without rowid;
create index chapar_timers_due on chapar_timers (due_at);

create table chapar_effects (
    id              integer primary key autoincrement,
    kind            text not null,
    idempotency_key text not null,
    tenant          text not null,
    request         text not null,
    cause           blob not null,
    status          text not null default 'pending',
    attempts        integer not null default 0,
    first_failed_at integer,
    due_at          integer not null,
    held_until      integer,
    answer          text,
    recordings      integer not null default 0,
    last_error      text,
    created_at      integer not null,
    finished_at     integer,
    unique (tenant, kind, idempotency_key)
) strict;
create index chapar_effects_due on chapar_effects (due_at) where status = 'pending';
create index chapar_effects_stuck on chapar_effects (id) where status = 'stuck';

create table chapar_log_heads (
    log_partition integer primary key,
    next_offset   integer not null default 1
) strict;
with recursive n(i) as (values (0) union all select i + 1 from n where i < 7)
insert into chapar_log_heads (log_partition) select i from n;

create table chapar_log (
    log_partition integer not null,
    log_offset    integer not null,
    event_id      text not null,
    tenant        text not null,
    topic         text not null,
    ordering_key  text,
    headers       text not null,
    body          blob not null,
    published_at  integer not null,
    primary key (log_partition, log_offset),
    unique (event_id, tenant)
) strict;

create table chapar_subscriptions (
    subscription text not null,
    topic        text not null,
    primary key (subscription, topic)
) strict, without rowid;

create table chapar_cursors (
    subscription  text not null,
    log_partition integer not null,
    acked_offset  integer not null,
    owner         text,
    epoch         integer not null default 0,
    expires_at    integer not null default 0,
    primary key (subscription, log_partition)
) strict, without rowid;

create table chapar_audit_log (
    id     integer primary key autoincrement,
    at     integer not null,
    actor  text not null,
    action text not null,
    target text not null,
    reason text not null,
    detail text not null
) strict;
create trigger chapar_audit_log_no_update before update on chapar_audit_log
begin select raise(abort, 'the audit log is append-only'); end;
create trigger chapar_audit_log_no_delete before delete on chapar_audit_log
begin select raise(abort, 'the audit log is append-only'); end;
-- `insert or replace` deletes the row it replaces without asking the triggers above.
create trigger chapar_audit_log_no_replace before insert on chapar_audit_log
when exists (select 1 from chapar_audit_log l where l.id = new.id)
begin select raise(abort, 'the audit log is append-only'); end;
