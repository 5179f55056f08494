-- The processes of a subscription, whether they own a partition yet or not: a joiner is counted
-- when the others work out their fair share.
create table chapar_members (
    subscription text not null,
    owner        text not null,
    expires_at   integer not null,
    primary key (subscription, owner)
) strict, without rowid;
