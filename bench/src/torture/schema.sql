-- The business tables of the run: what writers commit and what consumers have applied. The engine does not know them.
create schema if not exists rig;

-- One row per committed transaction; written first, so that it has its id long before it locks a key.
create table rig.written (tx text primary key);

-- The number of commits per key. The transaction that holds the row is the next to commit.
create table rig.counters (key text primary key, n bigint not null default 0) with (fillfactor = 40);

-- A list per consumer and key, which grows by one under the lock of its length.
create table rig.lists (
    consumer text not null, key text not null, len bigint not null, primary key (consumer, key)
) with (fillfactor = 40);
create table rig.applied (
    consumer text not null, key text not null, place bigint not null, id text not null,
    at timestamptz not null default clock_timestamp()
);

-- Events whose message does not say which write it is about.
create table rig.unreadable (event_id text primary key, id text not null, key text not null);

grant usage on schema rig to chapar_app;
grant all on all tables in schema rig to chapar_app;
