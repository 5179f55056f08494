mod facts;
mod intents;
pub(crate) mod keep;
mod locks;
mod marks;
mod pauses;

use std::collections::HashSet;

use bytes::Bytes;
use chapar_core::Headers;
use jiff::Timestamp;
use sqlx::Row as _;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::{from_json_pairs, to_json_pairs};
use crate::statement::Statement;
use crate::tables::{Inbox, Stash};
use crate::value::Row;

pub use facts::InboxFacts;
pub(crate) use facts::batch_lock;
pub use marks::{InboxFloor, InboxHole, InboxMark, MarkPlace};
pub use pauses::{ConsumerCard, Hold, Pause, Paused};

/// A message as it arrived at a consumer, in the form in which dead letters, parked and stashed
/// events are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the tables")]
pub struct Arrival {
    pub event_id: String,
    pub tenant: String,
    pub topic: String,
    pub ordering_key: Option<String>,
    pub partition: u32,
    pub offset: u64,
    pub headers: Headers,
    pub body: Bytes,
}

/// A stashed event: it arrived before its saga started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct StashedArrival {
    pub id: i64,
    pub consumer: String,
    pub saga: String,
    pub key: String,
    pub arrival: Arrival,
}

impl Inbox<'_> {
    /// Claims events for a consumer; returns those that were not claimed before, or for which a
    /// re-apply was requested.
    ///
    /// The claim is part of this transaction and is rolled back with it. An uncommitted claim of
    /// another transaction is waited for.
    pub async fn claim(
        &mut self,
        consumer: &str,
        tenant: &str,
        events: &[(&str, &str)],
    ) -> Result<HashSet<String>, StoreError> {
        const POSTGRES: &str = "insert into chapar.inbox as i (consumer, event_id, tenant, topic, result) \
             select $1, e.id, $2, e.topic, 'ok' from unnest($3::text[], $4::text[]) as e(id, topic) \
             on conflict (consumer, event_id, tenant) do update set result = 'ok', attempts = i.attempts + 1, \
             processed_at = clock_timestamp() where i.result = 'reapply' returning event_id";
        // One statement for all: each statement is a round trip to SQLite's thread.
        static SQLITE: Statement = Statement::new(
            "insert into chapar.inbox as i (consumer, event_id, tenant, topic, received_at, processed_at, result) \
             select $1, e.value ->> 0, $2, e.value ->> 1, clock_timestamp(), clock_timestamp(), 'ok' \
             from json_each($3) e where true on conflict (consumer, event_id, tenant) do update \
             set result = 'ok', attempts = i.attempts + 1, processed_at = excluded.processed_at \
             where i.result = 'reapply' returning event_id",
        );
        // Sorted, so that two processes with overlapping batches lock in the same order.
        let mut events = events.to_vec();
        events.sort_unstable();
        events.dedup();
        let mut claimed = HashSet::new();
        if let Conn::Postgres(conn) = &mut self.0 {
            let (ids, topics): (Vec<&str>, Vec<&str>) = events.into_iter().unzip();
            let query = sqlx::query(POSTGRES).bind(consumer).bind(tenant).bind(ids).bind(topics);
            for row in query.fetch_all(&mut **conn).await? {
                claimed.insert(row.try_get(0)?);
            }
            return Ok(claimed);
        }
        let pairs = serde_json::to_string(&events).unwrap_or_else(|_| "[]".to_owned());
        let args = vec![consumer.into(), tenant.into(), pairs.into()];
        for row in self.0.query(&SQLITE, args).await? {
            claimed.insert(row.get(0)?);
        }
        Ok(claimed)
    }

    /// Records that an event had no effect, or another result than `ok`.
    pub async fn set_result(
        &mut self,
        consumer: &str,
        tenant: &str,
        event_id: &str,
        result: &str,
    ) -> Result<(), StoreError> {
        static SET: Statement = Statement::new(
            "update chapar.inbox set result = $4 \
             where consumer = $1 and tenant = $2 and event_id = $3",
        );
        let args = vec![consumer.into(), tenant.into(), event_id.into(), result.into()];
        self.0.run(&SET, args).await?;
        Ok(())
    }
}

impl Stash<'_> {
    /// Stashes an event that arrived before its saga, until the saga starts or until `expires_at`.
    pub async fn put(
        &mut self,
        consumer: &str,
        saga: &str,
        key: &str,
        arrival: &Arrival,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        static STASH: Statement = Statement::new(
            "insert into chapar.saga_stash (consumer, saga, key, event_id, tenant, topic, log_partition, \
             log_offset, headers, body, ordering_key, stashed_at, expires_at) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, clock_timestamp(), $12) \
             on conflict do nothing",
        );
        let mut args = vec![consumer.into(), saga.into(), key.into()];
        args.extend(arrival.columns());
        args.extend([arrival.ordering_key.as_deref().into(), expires_at.into()]);
        self.0.run(&STASH, args).await?;
        Ok(())
    }

    /// Takes the stashed events of a saga, in order of arrival.
    pub async fn take(
        &mut self,
        consumer: &str,
        saga: &str,
        key: &str,
        tenant: &str,
    ) -> Result<Vec<StashedArrival>, StoreError> {
        static TAKE: Statement = Statement::new(
            "delete from chapar.saga_stash where consumer = $1 and saga = $2 and key = $3 \
             and tenant = $4 \
             returning id, consumer, saga, key, event_id, tenant, topic, log_partition, log_offset, \
             headers, body, ordering_key",
        );
        let args = vec![consumer.into(), saga.into(), key.into(), tenant.into()];
        let rows = self.0.query(&TAKE, args).await?;
        stashed(rows)
    }

    /// The stashed events of a consumer whose saga has started meanwhile, in order of arrival.
    pub async fn of_started(
        &mut self,
        consumer: &str,
        limit: i64,
    ) -> Result<Vec<StashedArrival>, StoreError> {
        static STARTED: Statement = Statement::new(
            "select id, consumer, saga, key, event_id, tenant, topic, log_partition, log_offset, \
             headers, body, ordering_key from chapar.saga_stash t where consumer = $1 \
             and exists (select 1 from chapar.sagas s where s.saga = t.saga and s.key = t.key \
             and s.tenant = t.tenant) \
             order by id limit $2",
        );
        stashed(self.0.query(&STARTED, vec![consumer.into(), limit.into()]).await?)
    }

    /// Removes a stashed event; false if it is not stashed any more.
    pub async fn remove(&mut self, id: i64) -> Result<bool, StoreError> {
        static REMOVE: Statement = Statement::new("delete from chapar.saga_stash where id = $1");
        Ok(self.0.run(&REMOVE, vec![id.into()]).await? == 1)
    }

    /// Locks the events that are still stashed, until this transaction ends.
    pub async fn lock(&mut self, ids: Vec<i64>) -> Result<HashSet<i64>, StoreError> {
        static LOCK: Statement = Statement::new(
            "select id from chapar.saga_stash where id = any($1) order by id for update",
        );
        let rows = self.0.query(&LOCK, vec![ids.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Whether a consumer has stashed events that have expired.
    pub async fn has_expired(
        &mut self,
        consumer: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        static EXPIRED: Statement = Statement::new(
            "select 1 from chapar.saga_stash where consumer = $1 and expires_at <= $2 limit 1",
        );
        Ok(!self.0.query(&EXPIRED, vec![consumer.into(), now.into()]).await?.is_empty())
    }

    /// Takes at most `limit` expired stashed events of a consumer.
    pub async fn take_expired(
        &mut self,
        consumer: &str,
        now: Timestamp,
        limit: i64,
    ) -> Result<Vec<StashedArrival>, StoreError> {
        static TAKE: Statement = Statement::new(
            "delete from chapar.saga_stash where id in (select id from chapar.saga_stash \
             where consumer = $1 and expires_at <= $2 order by id limit $3 for update skip locked) \
             returning id, consumer, saga, key, event_id, tenant, topic, log_partition, log_offset, \
             headers, body, ordering_key",
        );
        stashed(self.0.query(&TAKE, vec![consumer.into(), now.into(), limit.into()]).await?)
    }
}

impl Inbox<'_> {
    /// Whether a consumer has applied an event.
    pub async fn is_applied(
        &mut self,
        consumer: &str,
        tenant: &str,
        event_id: &str,
    ) -> Result<bool, StoreError> {
        static APPLIED: Statement = Statement::new(
            "select 1 from chapar.inbox where consumer = $1 and tenant = $2 and event_id = $3 \
             and result <> 'reapply'",
        );
        let args = vec![consumer.into(), tenant.into(), event_id.into()];
        Ok(!self.0.query(&APPLIED, args).await?.is_empty())
    }
}

impl Arrival {
    /// `event_id, tenant, topic, log_partition, log_offset, headers, body`
    pub(crate) fn columns(&self) -> [crate::Value; 7] {
        [
            (&self.event_id).into(),
            (&self.tenant).into(),
            (&self.topic).into(),
            self.partition.into(),
            (self.offset as i64).into(),
            to_json_pairs(&self.headers).into(),
            (&self.body).into(),
        ]
    }

    /// Reads [`Arrival::columns`] and the ordering key, starting at column `first`.
    pub(crate) fn from_row(row: &Row, first: usize) -> Result<Self, StoreError> {
        Ok(Arrival {
            event_id: row.get(first)?,
            tenant: row.get(first + 1)?,
            topic: row.get(first + 2)?,
            partition: row.get::<i64>(first + 3)? as u32,
            offset: row.get::<i64>(first + 4)? as u64,
            headers: from_json_pairs(&row.get::<String>(first + 5)?),
            body: row.get(first + 6)?,
            ordering_key: row.get(first + 7)?,
        })
    }
}

fn stashed(rows: Vec<Row>) -> Result<Vec<StashedArrival>, StoreError> {
    let mut stashed = rows
        .iter()
        .map(|row| {
            Ok(StashedArrival {
                id: row.get(0)?,
                consumer: row.get(1)?,
                saga: row.get(2)?,
                key: row.get(3)?,
                arrival: Arrival::from_row(row, 4)?,
            })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    // RETURNING has no guaranteed order.
    stashed.sort_by_key(|arrival| arrival.id);
    Ok(stashed)
}
