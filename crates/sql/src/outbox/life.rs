//! The lives of a store: between a crash, a failover or a restore and the next one, numbers are
//! given out once.

use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::cursor::At;
use crate::store::{Backend, Store};
use crate::tables::Tables;

/// The life that a lease is taken in.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// Names it in reads and writes.
    pub(super) id: String,
    /// Names it in stamps.
    pub(super) number: u32,
}

/// Where the database is, and where its cursors belong.
pub(super) struct Whereabouts {
    life: Option<String>,
    /// `chapar.home` has its row.
    settled: bool,
    number: i64,
    known: (Option<String>, Option<i64>),
    here: (Option<String>, Option<i64>),
    /// The id of this transaction.
    pub(super) xid: u64,
}

/// The current life of the store. The first relay that comes after a crash or a failover begins a
/// new one: what the holders of earlier leases remember is void.
pub(super) async fn enter(conn: &mut Conn<'_>) -> Result<Life, StoreError> {
    if conn.backend() == Backend::Sqlite {
        return Ok(Life::default());
    }
    let at = whereabouts(conn).await?;
    at.check(conn).await?;
    let same_timeline = at.known.1 == at.here.1;
    if let (Some(id), true) = (&at.life, same_timeline) {
        return Ok(Life { id: id.clone(), number: stamped(at.number) });
    }
    if same_timeline {
        begin(conn).await?
    } else {
        replace(conn).await?
    }
    let at = whereabouts(conn).await?;
    let id = at.life.ok_or(StoreError::Cell { column: 0, expected: "the life of the store" })?;
    Ok(Life { id, number: stamped(at.number) })
}

/// Ends the current life and begins a new one.
pub(super) async fn replace(conn: &mut Conn<'_>) -> Result<(), StoreError> {
    conn.execute("delete from chapar.life", vec![]).await?;
    begin(conn).await
}

/// Begins and counts a new life. Leases run out in their own time: their holders may still be
/// publishing.
async fn begin(conn: &mut Conn<'_>) -> Result<(), StoreError> {
    // A commit that is not flushed could be undone by a crash, together with the number.
    const SURE: &str = "set local synchronous_commit = on";
    const BEGIN: &str = "insert into chapar.life (id) values (gen_random_uuid()::text) \
         on conflict do nothing";
    // At least the minutes since 2026, so that two copies of a store that went on separately
    // differ. The first life of a store is 0, which stamps do not mention.
    const COUNT: &str = "insert into chapar.home as h (system, timeline, life) \
         select w.system, w.timeline, n.minutes from chapar.whereabouts() w, \
             (select (extract(epoch from clock_timestamp() - timestamptz '2026-01-01 00:00Z') \
                 / 60)::bigint as minutes) n \
         on conflict (one) do update set system = excluded.system, timeline = excluded.timeline, \
             life = greatest(h.life + 1, excluded.life)";
    conn.execute(SURE, vec![]).await?;
    // Another relay may do the same at this moment: this waits for it.
    if conn.execute(BEGIN, vec![]).await? > 0 {
        conn.execute(COUNT, vec![]).await?;
    }
    Ok(())
}

/// Refuses positions from another life.
pub(super) async fn check(conn: &mut Conn<'_>, life: &str) -> Result<(), StoreError> {
    if conn.backend() == Backend::Postgres {
        conn.fetch("select chapar.check_life($1)", vec![life.into()]).await?;
    }
    Ok(())
}

pub(super) async fn whereabouts(conn: &mut Conn<'_>) -> Result<Whereabouts, StoreError> {
    const WHERE: &str = "select l.id, h.life, h.system, h.timeline::bigint, w.system, \
             w.timeline::bigint, pg_current_xact_id()::text \
         from chapar.whereabouts() w left join chapar.home h on true left join chapar.life l on true";
    let rows = conn.fetch(WHERE, vec![]).await?;
    let row = rows.first().ok_or(StoreError::Cell { column: 0, expected: "the store's home" })?;
    let xid: String = row.get(6)?;
    Ok(Whereabouts {
        life: row.get(0)?,
        settled: row.get::<Option<i64>>(1)?.is_some(),
        number: row.get::<Option<i64>>(1)?.unwrap_or(0),
        known: (row.get(2)?, row.get(3)?),
        here: (row.get(4)?, row.get(5)?),
        xid: xid.parse().unwrap_or(u64::MAX),
    })
}

impl Whereabouts {
    /// Refuses cursors of another cluster.
    pub(super) async fn check(&self, conn: &mut Conn<'_>) -> Result<(), StoreError> {
        if !self.settled {
            let found = "chapar.home is empty, so the cluster of this database is not known";
            return Err(StoreError::Moved(found.into()));
        }
        // A provider may hide the cluster.
        if let (Some(from), Some(here)) = (&self.known.0, &self.here.0)
            && from != here
        {
            return Err(StoreError::Moved(format!(
                "this database comes from the cluster {from} and is on {here}"
            )));
        }
        self.check_ids(conn).await
    }

    /// Refuses cursors that are ahead of the cluster's transaction ids.
    pub(super) async fn check_ids(&self, conn: &mut Conn<'_>) -> Result<(), StoreError> {
        const CURSORS: &str = "select cursor from chapar.tracks";
        const NOW: &str = "select pg_snapshot_xmax(pg_current_snapshot())::text";
        let mut beyond = 0;
        for row in conn.fetch(CURSORS, vec![]).await? {
            beyond = At::parse_text(&row.get::<String>(0)?)?.last_xid().max(beyond);
        }
        if beyond <= self.xid {
            return Ok(());
        }
        // Another relay may have moved on since this transaction has its id.
        let now = conn.fetch(NOW, vec![]).await?;
        let now: String = now.first().map_or(Ok(String::new()), |row| row.get(0))?;
        if now.parse().is_ok_and(|now: u64| beyond <= now) {
            return Ok(());
        }
        Err(StoreError::Moved(format!(
            "a cursor of the outbox is at transaction {beyond}, and the cluster is at {now}"
        )))
    }
}

impl Store {
    /// Refuses an outbox that a relay could not read without missing events: one whose cursors
    /// belong to another cluster, or whose sequence gives out numbers in advance.
    pub async fn check_outbox(&self) -> Result<(), StoreError> {
        const CACHE: &str =
            "select seqcache from pg_sequence where seqrelid = 'chapar.outbox_seq'::regclass";
        if self.backend() == Backend::Sqlite {
            return Ok(());
        }
        let mut tx = self.begin_engine().await?;
        let cache = tx.fetch(CACHE, vec![]).await?;
        let cache: i64 = cache.first().map_or(Ok(1), |row| row.get(0))?;
        if cache > 1 {
            return Err(StoreError::CachedSequence(cache));
        }
        let whereabouts = whereabouts(&mut tx.conn()).await?;
        whereabouts.check(&mut tx.conn()).await?;
        tx.rollback().await
    }
}

fn stamped(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
