-- The readers of each topic, and when each was last active: a version of an event is retired only
-- after a week without an active subscription.
create table chapar.topic_readers (
    topic        text not null,
    subscription text not null,
    service      text not null,
    first_seen   timestamptz not null default clock_timestamp(),
    last_seen    timestamptz not null default clock_timestamp(),
    primary key (topic, subscription)
);
grant select, insert, update, delete on chapar.topic_readers to chapar_engine;

-- The consumers that have cut over from a topic to the next version, each recorded once.
create table chapar.cutovers (
    topic       text not null,
    service     text not null,
    recorded_at timestamptz not null default clock_timestamp(),
    primary key (topic, service)
);
grant select, insert on chapar.cutovers to chapar_engine;
