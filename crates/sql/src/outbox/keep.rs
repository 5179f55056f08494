//! Retention: partitions ahead, old rows moved out, old intents deleted.

use std::time::Duration;

use crate::error::StoreError;
use crate::inbox;
use crate::outbox::micros;
use crate::statement::Statement;
use crate::store::{Backend, Store};
use crate::tables::Tables;

/// The retention of what is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// How long published rows stay in the outbox. Then they are moved to the held rows, from
    /// where they can still be published again.
    pub published: Duration,
    /// How long a repeated intent returns the first event instead of creating another.
    pub intents: Duration,
    /// How long consumers remember the events that they applied.
    pub inbox: Duration,
    /// How long consumers remember the intents that they carried out, and their responses.
    pub responses: Duration,
    /// The number of events in a partition of the outbox, on PostgreSQL.
    pub rows_per_partition: i64,
}

const HOUR: Duration = Duration::from_secs(3600);
/// Notes deleted per transaction.
const AT_ONCE: i64 = 5000;

impl Default for Keep {
    fn default() -> Self {
        Keep {
            published: 30 * 24 * HOUR,
            intents: 7 * 24 * HOUR,
            inbox: 30 * 24 * HOUR,
            responses: 7 * 24 * HOUR,
            rows_per_partition: 1_000_000,
        }
    }
}

/// The result of [`Store::keep_house`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// New partitions.
    pub added: i64,
    /// Partitions, or rows on SQLite, that were moved out.
    pub moved_out: i64,
    /// Intents that were deleted.
    pub intents: i64,
    /// Applied events that were deleted from inboxes.
    pub inbox: i64,
    /// Intents that were deleted from inboxes.
    pub responses: i64,
    /// Notes that were deleted: about rows that are gone, and on how far the relays were.
    pub notes: i64,
    /// Parked keys that had no first row, and have one again.
    pub repaired: i64,
}

impl Keep {
    /// Refuses a retention that is too short for a guarantee.
    pub fn check(&self) -> Result<(), StoreError> {
        let refuse = |what: String| Err(StoreError::Retention(what));
        // A broker may lose what it has acknowledged, and it takes an operator a while to notice
        // and to republish.
        if self.published < HOUR {
            return refuse(format!(
                "published events are kept for {:?}; keep them for at least an hour, so that \
                 they can be published again when a broker has lost them",
                self.published
            ));
        }
        if self.intents < HOUR {
            return refuse(format!(
                "intents are kept for {:?}; keep them for at least an hour, so that a caller's \
                 retries find the first event",
                self.intents
            ));
        }
        if self.rows_per_partition < 1000 {
            return refuse("a partition of the outbox takes at least 1000 rows".into());
        }
        inbox::keep::check(self)
    }
}

impl Store {
    /// Runs retention: moves out old published rows, deletes old intents and inbox entries, and
    /// keeps an empty partition ahead. It does not wait long for locks: the next call catches up.
    pub async fn keep_house(&self, keep: &Keep) -> Result<Kept, StoreError> {
        keep.check()?;
        let mut kept = match self.backend() {
            Backend::Postgres => self.keep_postgres(keep).await?,
            Backend::Sqlite => self.keep_sqlite(keep).await?,
        };
        (kept.inbox, kept.responses) = self.keep_inbox(keep).await?;
        kept.notes = self.keep_notes(keep).await?;
        kept.repaired = self.repair_parked().await?;
        Ok(kept)
    }

    /// Deletes what is noted about rows of the outbox that are gone, because the partitions that
    /// held them were dropped. As long as a row is there it can be published again, and its notes
    /// say whether and with which stamp.
    async fn keep_notes(&self, keep: &Keep) -> Result<i64, StoreError> {
        static OLDEST: Statement = Statement::new(
            "select min(o.seq) from (select min(seq) as seq from chapar.outbox \
             union all select min(seq) from chapar.outbox_held) o",
        );
        static UNPARKED: Statement = Statement::new(
            "delete from chapar.outbox_unparked where seq in (select seq \
             from chapar.outbox_unparked where seq < $1 order by seq limit $2)",
        );
        // Without a note the relays begin with the oldest row, which is above the floor.
        static RELAYED: Statement = Statement::new(
            "delete from chapar.relayed where at in (select at from chapar.relayed \
             where floor < $1 order by at limit $2)",
        );
        // The last mark below the oldest row is in the stamps of the rows after it.
        static MARKS: Statement = Statement::new(
            "delete from chapar.earlier_marks where (ordering_key, topic, seq) in ( \
             select e.ordering_key, e.topic, e.seq from chapar.earlier_marks e \
             where e.seq < $1 and (exists (select 1 from chapar.earlier_marks l \
                     where l.ordering_key = e.ordering_key and l.topic = e.topic \
                     and l.seq > e.seq and l.seq < $1) \
                 or exists (select 1 from chapar.key_marks m \
                     where m.ordering_key = e.ordering_key and m.topic = e.topic \
                     and m.seq < $1)) limit $2)",
        );
        let mut notes = self.thin_out_relayed(keep).await?;
        let mut tx = self.begin_relay().await?;
        let rows = tx.conn().query(&OLDEST, vec![]).await?;
        tx.commit().await?;
        let oldest: Option<i64> = rows.first().map_or(Ok(None), |row| row.get(0))?;
        // Looking for marks reads all of them, and most of the time no row has gone.
        let Some(oldest) = oldest.filter(|oldest| self.is_unswept(*oldest)) else {
            return Ok(notes);
        };
        for delete in [&UNPARKED, &RELAYED, &MARKS] {
            loop {
                let mut tx = self.begin_relay().await?;
                let gone = tx.conn().run(delete, vec![oldest.into(), AT_ONCE.into()]).await?;
                tx.commit().await?;
                notes += gone as i64;
                if (gone as i64) < AT_ONCE {
                    break;
                }
            }
        }
        self.set_swept(oldest);
        Ok(notes)
    }

    /// Of what is noted every minute on how far the relays are, one note a day is enough for a
    /// request to publish again what is older than `published`: it covers a day more.
    async fn thin_out_relayed(&self, keep: &Keep) -> Result<i64, StoreError> {
        const POSTGRES: &str = "delete from chapar.relayed r \
             where r.at < clock_timestamp() - $1 * interval '1 microsecond' \
             and exists (select from chapar.relayed b where b.at < r.at \
                 and b.at >= date_trunc('day', r.at, 'UTC'))";
        const SQLITE: &str = "delete from chapar_relayed as r \
             where r.at < cast(unixepoch('subsec') * 1000000 as integer) - $1 \
             and exists (select 1 from chapar_relayed b where b.at < r.at \
                 and b.at >= r.at - r.at % 86400000000)";
        let sql = if self.backend() == Backend::Postgres { POSTGRES } else { SQLITE };
        let mut tx = self.begin_relay().await?;
        let gone = tx.execute(sql, vec![micros(keep.published).into()]).await?;
        tx.commit().await?;
        Ok(gone as i64)
    }

    /// Makes the first parked row of a key its head where none is. No transaction of ours leaves a
    /// key like that; rows that were changed by hand, or by an earlier version, would wait for ever.
    async fn repair_parked(&self) -> Result<i64, StoreError> {
        static HEADLESS: Statement = Statement::new(
            "update chapar.outbox_parked set head = true where seq in (select min(p.seq) \
             from chapar.outbox_parked p where p.ordering_key is not null group by p.ordering_key \
             having max(case when p.head then 1 else 0 end) = 0)",
        );
        let mut tx = self.begin_relay().await?;
        let repaired = tx.conn().run(&HEADLESS, vec![]).await?;
        tx.commit().await?;
        Ok(repaired as i64)
    }

    async fn keep_postgres(&self, keep: &Keep) -> Result<Kept, StoreError> {
        const EXTEND: &str = "select chapar.extend_outbox($1)";
        const MOVE_OUT: &str = "select chapar.move_out_outbox( \
             (select min((cursor::jsonb ->> 'floor')::bigint) from \
                 (select cursor from chapar.tracks union all select cursor from chapar.marked) c), \
             $1 * interval '1 microsecond')";
        const FORGET: &str = "delete from chapar.idempotency where ctid = any(array( \
             select ctid from chapar.idempotency \
             where created_at < clock_timestamp() - $1 * interval '1 microsecond' limit 10000))";
        let mut kept = Kept::default();
        let mut tx = self.begin_relay().await?;
        let rows = tx.fetch(EXTEND, vec![keep.rows_per_partition.into()]).await?;
        kept.added = rows.first().map_or(Ok(0), |row| row.get(0))?;
        tx.commit().await?;
        loop {
            let mut tx = self.begin_relay().await?;
            let rows = tx.fetch(MOVE_OUT, vec![micros(keep.published).into()]).await?;
            tx.commit().await?;
            let name: Option<String> = rows.first().map_or(Ok(None), |row| row.get(0))?;
            if name.is_none() {
                break;
            }
            kept.moved_out += 1;
        }
        loop {
            let mut tx = self.begin_relay().await?;
            let gone = tx.execute(FORGET, vec![micros(keep.intents).into()]).await?;
            tx.commit().await?;
            kept.intents += gone as i64;
            if gone < 10_000 {
                return Ok(kept);
            }
        }
    }

    async fn keep_sqlite(&self, keep: &Keep) -> Result<Kept, StoreError> {
        // In small batches: SQLite has one writer at a time.
        const HOLD: &str = "insert into chapar_outbox_held select o.* from chapar_outbox o \
             where o.seq <= (select min(cursor ->> 'after') from \
                 (select cursor from chapar_tracks union all select cursor from chapar_marked)) \
             and o.written_at < cast(unixepoch('subsec') * 1000000 as integer) - $1 \
             and not exists (select 1 from chapar_outbox_parked p where p.seq = o.seq) \
             order by o.seq limit 1000";
        const LEAVE: &str = "delete from chapar_outbox where seq in (select h.seq \
             from chapar_outbox_held h join chapar_outbox o on o.seq = h.seq)";
        const FORGET: &str = "delete from chapar_idempotency where (tenant, topic, key) in ( \
             select tenant, topic, key from chapar_idempotency \
             where created_at < cast(unixepoch('subsec') * 1000000 as integer) - $1 limit 1000)";
        let mut kept = Kept::default();
        loop {
            let mut tx = self.begin_engine().await?;
            let held = tx.execute(HOLD, vec![micros(keep.published).into()]).await?;
            if held > 0 {
                tx.execute(LEAVE, vec![]).await?;
            }
            let gone = tx.execute(FORGET, vec![micros(keep.intents).into()]).await?;
            tx.commit().await?;
            kept.moved_out += held as i64;
            kept.intents += gone as i64;
            if held < 1000 && gone < 1000 {
                return Ok(kept);
            }
        }
    }
}
