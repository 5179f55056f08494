//! Retention: partitions ahead, old rows moved out, old intents deleted.

use std::time::Duration;

use crate::error::StoreError;
use crate::inbox;
use crate::outbox::micros;
use crate::store::{Backend, Store};

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
        Ok(kept)
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
