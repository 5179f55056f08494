-- The business of the run: what writers commit and what consumers have applied. None of it is known to the engine.
create schema if not exists rig;

-- One row per committed write; written first, so that a transaction has its number long before it locks a key.
create table rig.written (id text primary key);

-- How many commits a key has had. Whoever holds the row is the next to commit.
create table rig.counters (key text primary key, n bigint not null default 0);

-- Per consumer and key a list, which grows by one under the lock of its length.
create table rig.lists (consumer text not null, key text not null, len bigint not null, primary key (consumer, key));
create table rig.applied (
    consumer text not null, key text not null, place bigint not null, id text not null,
    primary key (consumer, key, place)
);

grant usage on schema rig to chapar_app;
grant all on all tables in schema rig to chapar_app;
