-- The readers of each topic, and when each was last active: a version of an event is retired only
-- after a week without an active subscription.
create table chapar_topic_readers (
    topic        text not null,
    subscription text not null,
    service      text not null,
    first_seen   integer not null,
    last_seen    integer not null,
    primary key (topic, subscription)
) strict, without rowid;

-- The consumers that have cut over from a topic to the next version, each recorded once.
create table chapar_cutovers (
    topic       text not null,
    service     text not null,
    recorded_at integer not null,
    primary key (topic, service)
) strict, without rowid;
