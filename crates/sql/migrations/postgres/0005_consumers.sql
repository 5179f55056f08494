-- Marks: how far a consumer has come with a key, on each line that numbers count on (a topic with
-- the relay's stamps, or the versions of an aggregate). These rows do not expire: they distinguish
-- an old event from a new one after the inbox has forgotten it.
create table chapar.inbox_marks (
    consumer     text not null,
    tenant       text not null,
    ordering_key text not null,
    line         text not null,
    last_seq     bigint not null,
    primary key (consumer, ordering_key, tenant, line)
);
call chapar.protect_own('chapar.inbox_marks'::regclass);

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
call chapar.protect_own('chapar.inbox_holes'::regclass);

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
call chapar.protect_own('chapar.inbox_intents'::regclass);

-- Stores a consumer's response to an intent, in the transaction of its handler; false if it has not
-- claimed the intent.
create function chapar.respond(consumer text, tenant text, idempotency_key text, response text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform chapar.check_tenant(respond.tenant);
    update chapar.inbox_intents i set response = respond.response
    where i.consumer = respond.consumer and i.tenant = respond.tenant
      and i.idempotency_key = respond.idempotency_key;
    return found;
end
$$;
grant execute on function chapar.respond(text, text, text, text) to chapar_app, chapar_engine;

-- Consumers that are paused: by an operator until they are resumed, or by a seek that names itself
-- as the holder. A hold that is not extended in time was abandoned, and the consumer ends it.
create table chapar.pauses (
    consumer   text primary key,
    reason     text not null,
    paused_at  timestamptz not null default clock_timestamp(),
    holder     text,
    expires_at timestamptz
);
grant select, insert, update, delete on chapar.pauses to chapar_engine;

-- How often an operator has moved a consumer over its topics. A process discards what it fetched
-- before the last move.
create table chapar.consumer_epochs (
    consumer text primary key,
    epoch    bigint not null
);
grant select, insert, update on chapar.consumer_epochs to chapar_engine;
