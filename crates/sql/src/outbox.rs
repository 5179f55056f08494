use std::time::Duration;

use chapar_core::port::{
    BoxFuture, LeaseLost, Outbox, OutboxError, OutboxRow, Outcome, Shard, ShardLease,
};

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::Store;
use crate::value::Row;

/// The outbox of a store, as the relay sees it.
#[derive(Debug, Clone)]
pub struct SqlOutbox(Store);

impl SqlOutbox {
    /// The outbox of this store.
    pub fn new(store: Store) -> Self {
        SqlOutbox(store)
    }
}

impl Outbox for SqlOutbox {
    fn lease<'a>(
        &'a self,
        owner: &'a str,
        shards: usize,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<ShardLease>, OutboxError>> {
        Box::pin(async move {
            let mut tx = self.0.begin_engine().await.map_err(store)?;
            let leases = lease(&mut tx.conn(), owner, shards, ttl).await.map_err(store)?;
            tx.commit().await.map_err(store)?;
            Ok(leases)
        })
    }

    fn release<'a>(
        &'a self,
        owner: &'a str,
        leases: &'a [ShardLease],
    ) -> BoxFuture<'a, Result<(), OutboxError>> {
        static RELEASE: Statement = Statement::new(
            "update chapar.shards set owner = null, expires_at = clock_timestamp() \
             where shard = $1 and epoch = $2",
        );
        static LEAVE: Statement = Statement::new("delete from chapar.relays where owner = $1");
        Box::pin(async move {
            let mut tx = self.0.begin_engine().await.map_err(store)?;
            for lease in leases {
                let args = vec![lease.shard.into(), lease.epoch.into()];
                tx.conn().run(&RELEASE, args).await.map_err(store)?;
            }
            tx.conn().run(&LEAVE, vec![owner.into()]).await.map_err(store)?;
            tx.commit().await.map_err(store)
        })
    }

    fn read<'a>(
        &'a self,
        leases: &'a [ShardLease],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OutboxRow>, OutboxError>> {
        Box::pin(async move {
            let mut tx = self.0.begin_read().await.map_err(store)?;
            let shards = leases.iter().map(|lease| i64::from(lease.shard)).collect();
            let rows = read(&mut tx.conn(), shards, limit).await.map_err(store)?;
            tx.rollback().await.map_err(store)?;
            Ok(rows)
        })
    }

    fn mark<'a>(
        &'a self,
        leases: &'a [ShardLease],
        outcomes: &'a [(i64, Outcome)],
    ) -> BoxFuture<'a, Result<(), OutboxError>> {
        Box::pin(async move {
            let mut tx = self.0.begin_engine().await.map_err(store)?;
            guard(&mut tx.conn(), leases).await?;
            mark(&mut tx.conn(), outcomes).await.map_err(store)?;
            tx.commit().await.map_err(store)
        })
    }
}

fn store(error: StoreError) -> OutboxError {
    OutboxError::Store(Box::new(error))
}

async fn lease(
    conn: &mut Conn<'_>,
    owner: &str,
    shards: usize,
    ttl: Duration,
) -> Result<Vec<ShardLease>, StoreError> {
    static JOIN: Statement = Statement::new(
        "insert into chapar.relays (owner, expires_at) \
         values ($1, clock_timestamp() + $2 * interval '1 microsecond') \
         on conflict (owner) do update set expires_at = excluded.expires_at",
    );
    static LIVE: Statement =
        Statement::new("select count(*) from chapar.relays where expires_at > clock_timestamp()");
    // Renewing keeps the epoch; taking, and coming back after the lease had run out, does not.
    static RENEW: Statement = Statement::new(
        "update chapar.shards set expires_at = clock_timestamp() + $2 * interval '1 microsecond' \
         where owner = $1 and expires_at > clock_timestamp()",
    );
    static GIVE_BACK: Statement = Statement::new(
        "update chapar.shards set owner = null, expires_at = clock_timestamp() \
         where shard in (select shard from chapar.shards where owner = $1 \
         order by shard desc limit $2)",
    );
    static TAKE: Statement = Statement::new(
        "update chapar.shards set owner = $1, epoch = epoch + 1, \
         expires_at = clock_timestamp() + $2 * interval '1 microsecond' \
         where shard in (select shard from chapar.shards where expires_at <= clock_timestamp() \
         order by shard limit $3 for update skip locked)",
    );
    static HELD: Statement = Statement::new(
        "select shard, epoch from chapar.shards where owner = $1 \
         and expires_at > clock_timestamp() order by shard",
    );
    let ttl = ttl.as_micros() as i64;
    conn.run(&JOIN, vec![owner.into(), ttl.into()]).await?;
    let live = match conn.query(&LIVE, vec![]).await?.first() {
        Some(row) => row.get::<i64>(0)?.max(1),
        None => 1,
    };
    let share = (shards as i64 + live - 1) / live;
    let held = conn.run(&RENEW, vec![owner.into(), ttl.into()]).await? as i64;
    if held > share {
        conn.run(&GIVE_BACK, vec![owner.into(), (held - share).into()]).await?;
    } else if held < share {
        conn.run(&TAKE, vec![owner.into(), ttl.into(), (share - held).into()]).await?;
    }
    let rows = conn.query(&HELD, vec![owner.into()]).await?;
    rows.iter()
        .map(|row| Ok(ShardLease { shard: row.get::<i64>(0)? as Shard, epoch: row.get(1)? }))
        .collect()
}

async fn read(
    conn: &mut Conn<'_>,
    shards: Vec<i64>,
    limit: usize,
) -> Result<Vec<OutboxRow>, StoreError> {
    // A key is blocked from its first row on that is not due or is quarantined. Such rows are
    // few, and have an index of their own.
    static READ: Statement = Statement::new(
        "with blocked as (select shard, ordering_key, min(seq) as seq from chapar.outbox \
             where published_at is null and (next_attempt_at is not null or quarantined_at is not null) \
             and (next_attempt_at > clock_timestamp() or quarantined_at is not null) \
             and ordering_key is not null group by shard, ordering_key) \
         select o.seq, o.event_id, o.topic, o.tenant, o.ordering_key, o.headers, o.body, o.attempts, \
             o.written_at, o.sealed, o.aggregate_type, o.aggregate_id, o.idempotency_key, \
             o.correlation_id, o.causation_id, o.first_failed_at, o.shard \
         from chapar.outbox o left join blocked b \
             on b.shard = o.shard and b.ordering_key = o.ordering_key and b.seq <= o.seq \
         where o.published_at is null and o.quarantined_at is null and o.shard = any($1) \
             and (o.next_attempt_at is null or o.next_attempt_at <= clock_timestamp()) \
             and b.seq is null \
         order by o.seq limit $2",
    );
    let rows = conn.query(&READ, vec![shards.into(), (limit as i64).into()]).await?;
    rows.iter().map(row).collect()
}

fn row(row: &Row) -> Result<OutboxRow, StoreError> {
    let headers: String = row.get(5)?;
    let sealed: bool = row.get(9)?;
    let event_id: String = row.get(1)?;
    Ok(OutboxRow {
        seq: row.get(0)?,
        shard: row.get::<i64>(16)? as Shard,
        event_id: event_id
            .parse()
            .map_err(|_| StoreError::Cell { column: 1, expected: "an event id" })?,
        topic: row.get(2)?,
        tenant: row.get(3)?,
        key: row.get(4)?,
        headers: if sealed { from_json_pairs(&headers) } else { Vec::new() },
        body: row.get(6)?,
        attempts: row.get::<i64>(7)? as u32,
        written_at: row.get(8)?,
        first_failed_at: row.get(15)?,
        draft: if sealed {
            None
        } else {
            Some(chapar_core::port::OutboxDraft {
                aggregate_type: row.get(10)?,
                aggregate_id: row.get(11)?,
                idempotency_key: row.get(12)?,
                correlation_id: row.get(13)?,
                causation_id: row.get(14)?,
                facts: headers,
            })
        },
    })
}

async fn guard(conn: &mut Conn<'_>, leases: &[ShardLease]) -> Result<(), OutboxError> {
    // The rows stay locked until commit: nobody takes a shard between this and the marks.
    static GUARD: Statement = Statement::new(
        "select shard, epoch from chapar.shards where shard = any($1) and owner is not null \
         order by shard for update",
    );
    let shards: Vec<i64> = leases.iter().map(|lease| i64::from(lease.shard)).collect();
    let rows = conn.query(&GUARD, vec![shards.into()]).await.map_err(store)?;
    let mut held = std::collections::HashMap::new();
    for row in rows {
        held.insert(row.get::<i64>(0).map_err(store)?, row.get::<i64>(1).map_err(store)?);
    }
    for lease in leases {
        if held.get(&i64::from(lease.shard)) != Some(&lease.epoch) {
            return Err(LeaseLost { shard: lease.shard, epoch: lease.epoch }.into());
        }
    }
    Ok(())
}

async fn mark(conn: &mut Conn<'_>, outcomes: &[(i64, Outcome)]) -> Result<(), StoreError> {
    static PUBLISHED: Statement = Statement::new(
        "update chapar.outbox set published_at = clock_timestamp() where seq = any($1)",
    );
    static RETRY: Statement = Statement::new(
        "update chapar.outbox set attempts = attempts + 1, next_attempt_at = $2, last_error = $3, \
         first_failed_at = coalesce(first_failed_at, clock_timestamp()) where seq = $1",
    );
    static QUARANTINE: Statement = Statement::new(
        "update chapar.outbox set attempts = attempts + 1, quarantined_at = clock_timestamp(), \
         last_error = $2, first_failed_at = coalesce(first_failed_at, clock_timestamp()) \
         where seq = $1",
    );
    let mut published = Vec::new();
    for (seq, outcome) in outcomes {
        match outcome {
            Outcome::Published => published.push(*seq),
            Outcome::Retry { at, error } => {
                let args = vec![(*seq).into(), (*at).into(), error.into()];
                conn.run(&RETRY, args).await?;
            }
            Outcome::Quarantine { error } => {
                conn.run(&QUARANTINE, vec![(*seq).into(), error.into()]).await?;
            }
        }
    }
    if !published.is_empty() {
        conn.run(&PUBLISHED, vec![published.into()]).await?;
    }
    Ok(())
}

/// Headers are kept as a JSON array of pairs: a broker's headers may repeat.
pub(crate) fn to_json_pairs(headers: &[(String, String)]) -> String {
    serde_json::to_string(headers).unwrap_or_else(|_| "[]".to_owned())
}

pub(crate) fn from_json_pairs(headers: &str) -> Vec<(String, String)> {
    serde_json::from_str(headers).unwrap_or_default()
}
