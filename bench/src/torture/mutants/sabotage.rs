//! Changes to the database of a run, made by its superuser, that take a guard of the engine away.

use super::Mutant;

/// The statements of a mutant; none if it is a process.
pub(super) fn of(mutant: Mutant) -> Option<&'static str> {
    Some(match mutant {
        Mutant::TopicNotAdded => {
            "create function rig.forget() returns trigger language plpgsql as $$
             begin return case when new.topic like '%.confirmed.v1'
                               and new.subscription = 'torture.ledger' then null else new end; end $$;
             create trigger forget before insert or update on chapar.subscriptions
             for each row execute function rig.forget()"
        }
        Mutant::TroubleIsRefusal => {
            "create function rig.stumble() returns trigger language plpgsql as $$
             begin
                 if extract(epoch from clock_timestamp())::bigint % 4 = 0 then
                     raise exception 'the disk is busy' using errcode = 'data_exception';
                 end if;
                 return new;
             end $$;
             create trigger stumble before insert on chapar.log
             for each row execute function rig.stumble()"
        }
        _ => return None,
    })
}
