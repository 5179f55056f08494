-- The processes of a subscription, with or without a partition: a new member counts when the others
-- compute their fair share.
create table chapar.members (
    subscription text not null,
    owner        text not null,
    expires_at   timestamptz not null,
    -- What this process can handle, as a JSON array. One that lacks a topic of the subscription owns
    -- no partition while another has them all.
    topics       text not null,
    primary key (subscription, owner)
);
grant select, insert, update, delete on chapar.members to chapar_engine;

-- Topics that no process of a subscription reads any more, and how far each partition was then. When
-- a process reads the topic again, its events since then are delivered.
create table chapar.dropped_topics (
    subscription  text not null,
    topic         text not null,
    log_partition integer not null,
    acked_offset  bigint not null,
    primary key (subscription, topic, log_partition)
);
grant select, insert, update, delete on chapar.dropped_topics to chapar_engine;

-- Where the keys of a topic start that came to a running subscription: behind the last event of the
-- key, of whichever topic, that had been applied by then.
create table chapar.topic_starts (
    subscription  text not null,
    topic         text not null,
    log_partition integer not null,
    tenant        text not null,
    ordering_key  text not null,
    behind_offset bigint not null,
    primary key (subscription, topic, log_partition, tenant, ordering_key)
);
call chapar.protect_own('chapar.topic_starts'::regclass);
