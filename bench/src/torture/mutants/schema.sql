drop schema if exists mutant cascade;
create schema mutant;

-- Rows that count as published.
create table mutant.marks (seq bigint primary key);

-- How far a relay believes to be.
create table mutant.cursor (
    seq      bigint not null default 0,
    xid      xid8 not null default '0',
    low      bigint not null default 0,
    -- Nothing is visible in it.
    snapshot pg_snapshot not null default '1:1:'
);
insert into mutant.cursor default values;

-- A lease, and a queue with dense places.
create table mutant.lease (owner text, expires_at timestamptz not null default '-infinity', place bigint not null default 0);
insert into mutant.lease default values;
create table mutant.queue (place bigint primary key, seq bigint not null unique);

-- The transaction of a row, where the outbox does not keep it by itself.
alter table chapar.outbox add column if not exists xid xid8 default pg_current_xact_id();
