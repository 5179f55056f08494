-- The business tables of the run: what writers commit and what consumers have applied. The engine does not know them.
create schema if not exists rig;

-- One row per committed write; written first, so that a transaction has its id long before it locks a key.
create table rig.written (id text primary key);

-- The number of commits per key. The transaction that holds the row is the next to commit.
create table rig.counters (key text primary key, n bigint not null default 0);

-- A list per consumer and key, which grows by one under the lock of its length.
create table rig.lists (consumer text not null, key text not null, len bigint not null, primary key (consumer, key));
create table rig.applied (
    consumer text not null, key text not null, place bigint not null, id text not null,
    primary key (consumer, key, place)
);

grant usage on schema rig to chapar_app;
grant all on all tables in schema rig to chapar_app;
