-- The processes of a subscription, whether they own a partition yet or not: a joiner is counted
-- when the others work out their fair share.
create table chapar.members (
    subscription text not null,
    owner        text not null,
    expires_at   timestamptz not null,
    primary key (subscription, owner)
);
grant select, insert, update, delete on chapar.members to chapar_engine;
