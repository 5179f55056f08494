-- The processes of a subscription, with or without a partition: a new member counts when the others
-- compute their fair share.
create table chapar_members (
    subscription text not null,
    owner        text not null,
    expires_at   integer not null,
    primary key (subscription, owner)
) strict, without rowid;
