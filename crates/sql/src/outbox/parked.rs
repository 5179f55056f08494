//! Rows that could not be published, and the rows of their keys behind them.

use std::collections::HashSet;

use chapar_core::port::{Fate, OutboxRow, Park, Settled, Tried};
use jiff::Timestamp;
use serde_json::json;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::read::common_row;
use crate::statement::Statement;
use crate::store::Backend;
use crate::tables::{OutboxRows, Tables};

/// Parks rows. The first parked row of a key is its head.
pub(super) async fn park(conn: &mut Conn<'_>, parks: &[Park]) -> Result<(), StoreError> {
    const POSTGRES: &str = "insert into chapar.outbox_parked (seq, shard, tenant, ordering_key, \
             head, attempts, first_failed_at, next_attempt_at, quarantined_at, last_error, stamp) \
         select o.seq, o.shard, o.tenant, o.ordering_key, o.ordering_key is null \
                 or (row_number() over (partition by o.ordering_key order by o.seq) = 1 \
                     and not exists (select from chapar.outbox_parked p \
                         where p.ordering_key = o.ordering_key and p.seq < o.seq)), \
             (e ->> 1)::int, case when (e ->> 1)::int > 0 then clock_timestamp() end, \
             timestamptz 'epoch' + (e ->> 2)::bigint * interval '1 microsecond', \
             case when (e ->> 3)::bool then clock_timestamp() end, e ->> 4, e ->> 5 \
         from jsonb_array_elements($1::text::jsonb) e \
             join (select seq, shard, tenant, ordering_key from chapar.outbox union all \
                 select seq, shard, tenant, ordering_key from chapar.outbox_held) o \
             on o.seq = (e ->> 0)::bigint \
         on conflict (seq) do nothing";
    static SQLITE: Statement = Statement::new(
        "insert into chapar.outbox_parked (seq, shard, tenant, ordering_key, head, attempts, \
             first_failed_at, next_attempt_at, quarantined_at, last_error, stamp) \
         select o.seq, o.shard, o.tenant, o.ordering_key, o.ordering_key is null \
                 or (row_number() over (partition by o.ordering_key order by o.seq) = 1 \
                     and not exists (select 1 from chapar.outbox_parked p \
                         where p.ordering_key = o.ordering_key and p.seq < o.seq)), \
             e.value ->> 1, case when e.value ->> 1 > 0 then clock_timestamp() end, \
             e.value ->> 2, case when e.value ->> 3 then clock_timestamp() end, \
             e.value ->> 4, e.value ->> 5 \
         from json_each($1) e \
             join (select seq, shard, tenant, ordering_key from chapar.outbox union all \
                 select seq, shard, tenant, ordering_key from chapar.outbox_held) o \
             on o.seq = e.value ->> 0 \
         where true on conflict (seq) do nothing",
    );
    // A republished row comes before the rows of its key that were parked already.
    static ONE_HEAD: Statement = Statement::new(
        "update chapar.outbox_parked set head = false where head and ordering_key in \
             (select ordering_key from chapar.outbox_parked where seq = any($1)) \
         and exists (select 1 from chapar.outbox_parked p \
             where p.ordering_key = chapar.outbox_parked.ordering_key \
             and p.seq < chapar.outbox_parked.seq)",
    );
    if parks.is_empty() {
        return Ok(());
    }
    let row = |park: &Park| {
        let (attempts, next, quarantined, error) = match &park.fate {
            Fate::Behind => (0, None, false, None),
            Fate::Retry { at, error } => (1, Some(at.as_microsecond()), false, Some(error)),
            Fate::Quarantine { error } => (1, None, true, Some(error)),
        };
        let error = error.map(|error| storable(error));
        json!([park.seq, attempts, next, quarantined, error, park.stamp])
    };
    let rows = serde_json::Value::from_iter(parks.iter().map(row)).to_string();
    match conn.backend() {
        Backend::Postgres => conn.execute(POSTGRES, vec![rows.into()]).await?,
        Backend::Sqlite => conn.run(&SQLITE, vec![rows.into()]).await?,
    };
    let seqs: Vec<i64> = parks.iter().map(|park| park.seq).collect();
    conn.run(&ONE_HEAD, vec![seqs.into()]).await?;
    Ok(())
}

/// Parks rows one by one. A row whose error or stamp the database refuses is parked without them.
pub(super) async fn park_row_by_row(conn: &mut Conn<'_>, parks: &[Park]) -> Result<(), StoreError> {
    for row in parks {
        conn.execute("savepoint one_row", vec![]).await?;
        let parked = park(conn, std::slice::from_ref(row)).await;
        if !parked.as_ref().is_err_and(StoreError::is_of_data) {
            parked?;
            continue;
        }
        conn.execute("rollback to savepoint one_row", vec![]).await?;
        let unspoken = || "it failed, and what was said about it cannot be stored".to_owned();
        let fate = match &row.fate {
            Fate::Behind => Fate::Behind,
            Fate::Retry { at, .. } => Fate::Retry { at: *at, error: unspoken() },
            Fate::Quarantine { .. } => Fate::Quarantine { error: unspoken() },
        };
        park(conn, &[Park { seq: row.seq, fate, stamp: None }]).await?;
    }
    Ok(())
}

/// An error as it is stored: not without end, and without the character that no text may have.
fn storable(error: &str) -> String {
    const MOST: usize = 4096;
    let end = error.floor_char_boundary(MOST);
    error[..end].replace('\0', "\u{fffd}")
}

/// Heads that are due, and some of the rows right behind them.
pub(super) async fn due(
    conn: &mut Conn<'_>,
    epoch: i64,
    limit: usize,
) -> Result<Vec<OutboxRow>, StoreError> {
    static HEADS: Statement = Statement::new(
        "select p.seq, p.ordering_key from chapar.outbox_parked p \
         join chapar.shards s on s.shard = p.shard and s.epoch = $1 \
         where p.head and p.quarantined_at is null \
             and (p.next_attempt_at is null or p.next_attempt_at <= clock_timestamp()) \
         order by p.next_attempt_at, p.seq limit $2",
    );
    static ROWS: Statement = Statement::new(
        "select o.seq, o.event_id, o.topic, o.tenant, o.ordering_key, o.headers, o.body, \
             o.written_at, case when o.sealed then null else json_build_array(o.aggregate_type, \
             o.aggregate_id, o.idempotency_key, o.correlation_id, o.causation_id)::text end, \
             p.attempts, p.first_failed_at, p.stamp, p.head, p.next_attempt_at, p.quarantined_at \
         from chapar.outbox_parked p \
             join (select * from chapar.outbox union all select * from chapar.outbox_held) o \
             on o.seq = p.seq \
         where p.seq = any($1) or p.ordering_key = any($2) order by p.seq limit $3",
    );
    let heads = conn.query(&HEADS, vec![epoch.into(), (limit as i64).into()]).await?;
    if heads.is_empty() {
        return Ok(Vec::new());
    }
    let mut seqs: Vec<i64> = Vec::with_capacity(heads.len());
    let mut keys: Vec<String> = Vec::new();
    for head in &heads {
        seqs.push(head.get(0)?);
        keys.extend(head.get::<Option<String>>(1)?);
    }
    let args = vec![seqs.into(), keys.into(), (limit as i64).into()];
    let mut rows = Vec::new();
    let mut stuck: HashSet<Option<String>> = HashSet::new();
    for row in conn.query(&ROWS, args).await? {
        let mut read = common_row(&row)?;
        let (head, next): (bool, Option<Timestamp>) = (row.get(12)?, row.get(13)?);
        let quarantined: Option<Timestamp> = row.get(14)?;
        // A row that failed itself, or waits for an operator, blocks the rows behind it.
        if !head && (next.is_some() || quarantined.is_some() || stuck.contains(&read.key)) {
            stuck.insert(read.key);
            continue;
        }
        read.tried = Tried {
            attempts: u32::try_from(row.get::<i64>(9)?).unwrap_or(u32::MAX),
            first_failed_at: row.get(10)?,
        };
        read.stamp = row.get(11)?;
        rows.push(read);
    }
    Ok(rows)
}

/// Records the outcome for parked rows; the next row of a key becomes its head.
pub(super) async fn settle(
    conn: &mut Conn<'_>,
    settled: &[(i64, Settled)],
) -> Result<(), StoreError> {
    static FAILED: Statement = Statement::new(
        "update chapar.outbox_parked set attempts = attempts + $2, next_attempt_at = $3, \
         last_error = $4, first_failed_at = coalesce(first_failed_at, clock_timestamp()), \
         quarantined_at = case when $5 then clock_timestamp() end where seq = $1",
    );
    let mut published = Vec::new();
    for (seq, settled) in settled {
        let (fate, counts) = match settled {
            Settled::Published => {
                published.push(*seq);
                continue;
            }
            Settled::Failed { fate, counts } => (fate, i64::from(*counts)),
        };
        let (next, error, quarantined) = match fate {
            Fate::Behind => continue,
            Fate::Retry { at, error } => (Some(*at), error, false),
            Fate::Quarantine { error } => (None, error, true),
        };
        let error = storable(error);
        let args =
            vec![(*seq).into(), counts.into(), next.into(), error.into(), quarantined.into()];
        conn.run(&FAILED, args).await?;
    }
    conn.outbox_rows().leave_parked(published, false).await
}

impl OutboxRows<'_> {
    /// Removes rows that were published or dropped; the next row of each key becomes its head.
    pub(crate) async fn leave_parked(
        &mut self,
        seqs: Vec<i64>,
        dropped: bool,
    ) -> Result<(), StoreError> {
        static NOTE: Statement = Statement::new(
            "insert into chapar.outbox_unparked (seq, at, dropped) \
             select seq, clock_timestamp(), $2 from chapar.outbox_parked where seq = any($1) \
             on conflict (seq) do update set at = excluded.at, dropped = excluded.dropped",
        );
        static LEAVE: Statement = Statement::new(
            "delete from chapar.outbox_parked where seq = any($1) returning ordering_key",
        );
        static MOVE_UP: Statement = Statement::new(
            "update chapar.outbox_parked set head = true where seq in (select min(seq) \
             from chapar.outbox_parked where ordering_key = any($1) group by ordering_key)",
        );
        if seqs.is_empty() {
            return Ok(());
        }
        self.0.run(&NOTE, vec![seqs.clone().into(), dropped.into()]).await?;
        let rows = self.0.query(&LEAVE, vec![seqs.into()]).await?;
        let mut keys: Vec<String> = Vec::with_capacity(rows.len());
        for row in rows {
            keys.extend(row.get::<Option<String>>(0)?);
        }
        keys.sort();
        keys.dedup();
        if !keys.is_empty() {
            self.0.run(&MOVE_UP, vec![keys.into()]).await?;
        }
        Ok(())
    }
}
