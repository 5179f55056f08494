-- The time of the engine's clock, which `:now` binds.
alter table manual_key_queue
    alter column queued_at type timestamptz using to_timestamp(queued_at / 1000000.0);
