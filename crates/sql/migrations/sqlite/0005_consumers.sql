-- Marks: how far a consumer has come with a key, on each line that numbers count on (a topic with
-- the relay's stamps, or the versions of an aggregate). These rows do not expire: they distinguish
-- an old event from a new one after the inbox has forgotten it.
create table chapar_inbox_marks (
    consumer     text not null,
    tenant       text not null,
    ordering_key text not null,
    line         text not null,
    last_seq     integer not null,
    primary key (consumer, ordering_key, tenant, line)
) strict, without rowid;

-- Holes: numbers before a mark that were left out and may still arrive.
create table chapar_inbox_holes (
    consumer     text not null,
    tenant       text not null,
    ordering_key text not null,
    line         text not null,
    low          integer not null,
    high         integer not null,
    primary key (consumer, tenant, ordering_key, line, low)
) strict, without rowid;

-- Where a consumer started on a topic: lower numbers are older than its subscription, and not
-- waited for.
create table chapar_inbox_floors (
    consumer  text not null,
    topic     text not null,
    first_seq integer not null,
    since     integer not null,
    primary key (consumer, topic)
) strict, without rowid;

-- Intents that a consumer has applied, and its responses.
create table chapar_inbox_intents (
    consumer        text not null,
    tenant          text not null,
    idempotency_key text not null,
    event_id        text not null,
    response        text,
    created_at      integer not null,
    primary key (consumer, tenant, idempotency_key)
) strict, without rowid;
create index chapar_inbox_intents_age on chapar_inbox_intents (created_at);

-- Consumers that are paused: by an operator until they are resumed, or by a seek that names itself
-- as the holder. A hold that is not extended in time was abandoned, and the consumer ends it.
create table chapar_pauses (
    consumer   text primary key,
    reason     text not null,
    paused_at  integer not null,
    holder     text,
    expires_at integer
) strict, without rowid;

create table chapar_consumer_epochs (
    consumer text primary key,
    epoch    integer not null
) strict;
