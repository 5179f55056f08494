-- The processes of a subscription, with or without a partition: a new member counts when the others
-- compute their fair share.
create table chapar_members (
    subscription text not null,
    owner        text not null,
    expires_at   integer not null,
    topics       text not null,
    primary key (subscription, owner)
) strict, without rowid;

create table chapar_dropped_topics (
    subscription  text not null,
    topic         text not null,
    log_partition integer not null,
    acked_offset  integer not null,
    primary key (subscription, topic, log_partition)
) strict, without rowid;

create table chapar_topic_starts (
    subscription  text not null,
    topic         text not null,
    log_partition integer not null,
    tenant        text not null,
    ordering_key  text not null,
    behind_offset integer not null,
    primary key (subscription, topic, log_partition, tenant, ordering_key)
) strict, without rowid;
