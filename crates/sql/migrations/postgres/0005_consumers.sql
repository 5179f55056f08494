-- Marks: how far a consumer has come with a key, on each line that numbers count on (a topic with
-- the relay's stamps, or the versions of an aggregate). These rows do not expire: they distinguish
-- an old event from a new one after the inbox has forgotten it.
create table chapar.inbox_marks (
    consumer     text not null,
    tenant       text not null,
    ordering_key text not null,
    line         text not null,
    last_seq     bigint not null,
    primary key (consumer, tenant, ordering_key, line)
);
call chapar.protect('chapar.inbox_marks');

-- Holes: numbers before a mark that were left out and may still arrive.
create table chapar.inbox_holes (
    consumer     text not null,
    tenant       text not null,
    ordering_key text not null,
    line         text not null,
    low          bigint not null,
    high         bigint not null,
    primary key (consumer, tenant, ordering_key, line, low)
);
call chapar.protect('chapar.inbox_holes');

-- Where a consumer started on a topic: lower numbers are older than its subscription, and not
-- waited for.
create table chapar.inbox_floors (
    consumer  text not null,
    topic     text not null,
    first_seq bigint not null,
    since     timestamptz not null default clock_timestamp(),
    primary key (consumer, topic)
);
grant select, insert, update, delete on chapar.inbox_floors to chapar_engine;

-- Intents that a consumer has applied, and its responses.
create table chapar.inbox_intents (
    consumer        text not null,
    tenant          text not null,
    idempotency_key text not null,
    event_id        text not null,
    response        text,
    created_at      timestamptz not null default clock_timestamp(),
    primary key (consumer, tenant, idempotency_key)
);
create index inbox_intents_age on chapar.inbox_intents (created_at);
call chapar.protect('chapar.inbox_intents');

-- Consumers that an operator has paused.
create table chapar.pauses (
    consumer  text primary key,
    reason    text not null,
    paused_at timestamptz not null default clock_timestamp()
);
grant select, insert, update, delete on chapar.pauses to chapar_engine;
