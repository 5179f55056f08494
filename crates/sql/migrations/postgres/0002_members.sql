-- The processes of a subscription, with or without a partition: a new member counts when the others
-- compute their fair share.
create table chapar.members (
    subscription text not null,
    owner        text not null,
    expires_at   timestamptz not null,
    primary key (subscription, owner)
);
grant select, insert, update, delete on chapar.members to chapar_engine;
