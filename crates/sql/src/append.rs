use std::collections::HashSet;

use bytes::Bytes;
use chapar_core::id::MAX_FOREIGN_ID;
use chapar_core::port::Shard;
use chapar_core::rules::{MAX_KEY, MAX_NAME};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::OutboxRows;

/// An event to be appended to the outbox.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the envelope and the table")]
pub struct Append {
    pub event_id: String,
    pub tenant: String,
    pub topic: String,
    pub ordering_key: Option<String>,
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub idempotency_key: Option<String>,
    pub payload_hash: [u8; 32],
    pub correlation_id: String,
    pub causation_id: Option<String>,
    /// Headers as a JSON array of pairs.
    pub headers: String,
    pub body: Bytes,
}

/// The result of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The event's id: the new one, or that of the first event with the same idempotency key.
    pub event_id: String,
    /// The same intent was appended before; nothing was written.
    pub repeated: bool,
}

impl Append {
    /// The hash by which two payloads are compared.
    pub fn hash(payload: &[u8]) -> [u8; 32] {
        Sha256::digest(payload).into()
    }

    /// Appends one event inside a PostgreSQL transaction of any driver, and returns its id or that
    /// of the first event with the same intent. The parameters are `event_id`, `tenant`, `topic`,
    /// `ordering_key`, [`home_shard`](Append::home_shard), `aggregate_type`, `aggregate_id`,
    /// `idempotency_key`, `payload_hash`, `correlation_id`, `causation_id`, `headers`, `body`.
    pub const CALL: &str = "select chapar.append($1::text, $2::text, $3::text, $4::text, $5::smallint, $6::text, \
         $7::text, $8::text, $9::bytea, $10::text, $11::text, true, $12::text, $13::bytea)";

    /// The event's shard, as stored in the column.
    pub fn home_shard(&self) -> i16 {
        self.home() as i16
    }

    /// Refuses parts that are too long for an index, for a stamp or for the headers of a broker. The
    /// outbox of PostgreSQL has the same limits as a constraint.
    fn check_sizes(&self) -> Result<(), StoreError> {
        let key = self.ordering_key.as_deref().unwrap_or_default();
        let intent = self.idempotency_key.as_deref().unwrap_or_default();
        let cause = self.causation_id.as_deref().unwrap_or_default();
        let parts = [
            ("event id", self.event_id.as_str(), MAX_FOREIGN_ID),
            ("tenant", &self.tenant, MAX_NAME),
            ("subject", &self.topic, MAX_NAME),
            ("ordering key", key, MAX_KEY),
            ("aggregate type", &self.aggregate_type, MAX_NAME),
            ("aggregate id", &self.aggregate_id, MAX_KEY),
            ("idempotency key", intent, MAX_KEY),
            ("correlation id", &self.correlation_id, MAX_FOREIGN_ID),
            ("causation id", cause, MAX_FOREIGN_ID),
            ("headers", &self.headers, MAX_HEADERS),
        ];
        match parts.iter().find(|(_, text, most)| text.len() > *most) {
            None => Ok(()),
            Some((part, text, most)) => Err(StoreError::TooLong(format!(
                "the {part} of an event on {} has {} bytes, at most {most} are allowed",
                self.topic.chars().take(100).collect::<String>(),
                text.len()
            ))),
        }
    }

    /// Sorts events into the order in which their keys must be locked.
    pub fn sort(events: &mut [Append]) {
        events.sort_by(|a, b| (a.home(), &a.ordering_key).cmp(&(b.home(), &b.ordering_key)));
    }

    /// The shard of an ordering key. `chapar.shard` in SQL computes the same.
    pub fn shard(key: &str) -> Shard {
        Shard::from(Sha256::digest(key.as_bytes())[0] % SHARDS)
    }
}

/// The most keys that one append locks individually. PostgreSQL has room for about 6,400 locks by
/// default, over all connections.
const MOST_KEY_LOCKS: usize = 500;

/// The most bytes of the headers of an event, as JSON.
const MAX_HEADERS: usize = 64 * 1024;

/// The number of shards of the key space. It never changes.
pub(crate) const SHARDS: u8 = 64;

impl OutboxRows<'_> {
    /// Appends events inside this transaction, all or none.
    ///
    /// Keys are locked in sorted order, so two transactions that append to the same keys wait for
    /// each other and do not deadlock. Within a key the given order is kept. Results are in the
    /// given order.
    ///
    /// On PostgreSQL a key that another transaction holds for too long is
    /// [`StoreError::Unavailable`]: roll back and retry.
    pub async fn append(&mut self, events: &[Append]) -> Result<Vec<Appended>, StoreError> {
        events.iter().try_for_each(Append::check_sizes)?;
        let mut order: Vec<usize> = (0..events.len()).collect();
        let place = |n: &usize| (events[*n].home(), &events[*n].ordering_key);
        order.sort_by(|a, b| place(a).cmp(&place(b)));
        let sorted: Vec<&Append> = order.iter().map(|n| &events[*n]).collect();
        let ids = match &mut self.0 {
            Conn::Postgres(_) => self.append_postgres(&sorted).await?,
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => self.append_sqlite(&sorted).await?,
        };
        let mut appended: Vec<(usize, Appended)> = order
            .into_iter()
            .zip(ids)
            .map(|(n, event_id)| {
                (n, Appended { repeated: event_id != events[n].event_id, event_id })
            })
            .collect();
        appended.sort_by_key(|(n, _)| *n);
        Ok(appended.into_iter().map(|(_, answer)| answer).collect())
    }

    async fn append_postgres(&mut self, events: &[&Append]) -> Result<Vec<String>, StoreError> {
        const APPEND: &str = "select chapar.append(event_id, tenant, topic, ordering_key, shard, \
             aggregate_type, aggregate_id, idempotency_key, payload_hash, correlation_id, \
             causation_id, true, headers, body, $14::boolean) \
             from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], \
             $6::text[], $7::text[], $8::text[], $9::bytea[], $10::text[], $11::text[], \
             $12::text[], $13::bytea[]) as e(event_id, tenant, topic, ordering_key, shard, \
             aggregate_type, aggregate_id, idempotency_key, payload_hash, correlation_id, \
             causation_id, headers, body)";
        if let [event] = events {
            return Ok(vec![self.append_one(event).await?]);
        }
        let whole_shards = self.lock_whole_shards(events).await?;
        let Conn::Postgres(conn) = &mut self.0 else { return Ok(Vec::new()) };
        let texts = |get: fn(&Append) -> &String| -> Vec<String> {
            events.iter().map(|event| get(event).clone()).collect()
        };
        let options = |get: fn(&Append) -> &Option<String>| -> Vec<Option<String>> {
            events.iter().map(|event| get(event).clone()).collect()
        };
        let shards: Vec<i16> = events.iter().map(|event| event.home() as i16).collect();
        let hashes: Vec<Vec<u8>> = events.iter().map(|e| e.payload_hash.to_vec()).collect();
        let bodies: Vec<Vec<u8>> = events.iter().map(|e| e.body.to_vec()).collect();
        let ids = sqlx::query_scalar(APPEND)
            .bind(texts(|e| &e.event_id))
            .bind(texts(|e| &e.tenant))
            .bind(texts(|e| &e.topic))
            .bind(options(|e| &e.ordering_key))
            .bind(shards)
            .bind(texts(|e| &e.aggregate_type))
            .bind(texts(|e| &e.aggregate_id))
            .bind(options(|e| &e.idempotency_key))
            .bind(hashes)
            .bind(texts(|e| &e.correlation_id))
            .bind(options(|e| &e.causation_id))
            .bind(texts(|e| &e.headers))
            .bind(bodies)
            .bind(whole_shards)
            .fetch_all(&mut **conn)
            .await?;
        Ok(ids)
    }

    /// Appends one event, the common case.
    async fn append_one(&mut self, event: &Append) -> Result<String, StoreError> {
        let Conn::Postgres(conn) = &mut self.0 else { return Ok(String::new()) };
        let id = sqlx::query_scalar(Append::CALL)
            .bind(&event.event_id)
            .bind(&event.tenant)
            .bind(&event.topic)
            .bind(&event.ordering_key)
            .bind(event.home_shard())
            .bind(&event.aggregate_type)
            .bind(&event.aggregate_id)
            .bind(&event.idempotency_key)
            .bind(event.payload_hash.as_slice())
            .bind(&event.correlation_id)
            .bind(&event.causation_id)
            .bind(&event.headers)
            .bind(&*event.body)
            .fetch_one(&mut **conn)
            .await?;
        Ok(id)
    }

    /// Locks whole shards for a batch with very many keys, whose own locks would exhaust the
    /// server's shared memory; returns whether it did.
    async fn lock_whole_shards(&mut self, events: &[&Append]) -> Result<bool, StoreError> {
        const LOCK: &str = "select chapar.lock_shards($1::bigint[]::integer[])";
        let mut keys: Vec<_> = events.iter().filter_map(|e| e.ordering_key.as_ref()).collect();
        keys.dedup();
        if keys.len() <= MOST_KEY_LOCKS {
            return Ok(false);
        }
        let mut shards: Vec<i64> = keys.iter().map(|key| i64::from(Append::shard(key))).collect();
        shards.dedup();
        self.0.fetch(LOCK, vec![shards.into()]).await?;
        Ok(true)
    }

    async fn append_sqlite(&mut self, events: &[&Append]) -> Result<Vec<String>, StoreError> {
        // One statement for all events: each statement is a round trip to SQLite's thread.
        static INSERT: Statement = Statement::new(
            "insert into chapar.outbox (event_id, tenant, topic, ordering_key, shard, \
             aggregate_type, aggregate_id, idempotency_key, correlation_id, causation_id, sealed, \
             headers, body, written_at) \
             select e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4, \
             e.value ->> 5, e.value ->> 6, e.value ->> 7, e.value ->> 8, e.value ->> 9, 1, \
             e.value ->> 10, unhex(e.value ->> 11), clock_timestamp() from json_each($1) e \
             order by e.key",
        );
        let ids = self.claim_intents(events).await?;
        let fresh = events.iter().zip(&ids).filter(|(event, id)| event.event_id == **id);
        let rows: Vec<_> = fresh
            .map(|(event, _)| {
                json!([
                    event.event_id,
                    event.tenant,
                    event.topic,
                    event.ordering_key,
                    event.home(),
                    event.aggregate_type,
                    event.aggregate_id,
                    event.idempotency_key,
                    event.correlation_id,
                    event.causation_id,
                    event.headers,
                    hex(&event.body),
                ])
            })
            .collect();
        if !rows.is_empty() {
            self.0.run(&INSERT, vec![serde_json::Value::from(rows).to_string().into()]).await?;
        }
        Ok(ids)
    }

    /// The id of each event, or of the first one with the same intent and payload.
    async fn claim_intents(&mut self, events: &[&Append]) -> Result<Vec<String>, StoreError> {
        static CLAIM: Statement = Statement::new(
            "insert into chapar.idempotency (tenant, topic, key, event_id, payload_hash, created_at) \
             select e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, \
             unhex(e.value ->> 4), clock_timestamp() from json_each($1) e where true \
             order by e.key on conflict do nothing returning event_id",
        );
        static FIRST: Statement = Statement::new(
            "select event_id, payload_hash from chapar.idempotency \
             where tenant = $1 and topic = $2 and key = $3",
        );
        let intents: Vec<_> = events
            .iter()
            .filter_map(|event| {
                let key = event.idempotency_key.as_ref()?;
                let hash = hex(&event.payload_hash);
                Some(json!([event.tenant, event.topic, key, event.event_id, hash]))
            })
            .collect();
        let mut claimed = HashSet::new();
        if !intents.is_empty() {
            let intents = serde_json::Value::from(intents).to_string();
            for row in self.0.query(&CLAIM, vec![intents.into()]).await? {
                claimed.insert(row.get::<String>(0)?);
            }
        }
        let mut ids = Vec::with_capacity(events.len());
        for event in events {
            let Some(key) = &event.idempotency_key else {
                ids.push(event.event_id.clone());
                continue;
            };
            if claimed.contains(&event.event_id) {
                ids.push(event.event_id.clone());
                continue;
            }
            let intent = vec![(&event.tenant).into(), (&event.topic).into(), key.into()];
            let rows = self.0.query(&FIRST, intent).await?;
            let first = rows.first().ok_or(StoreError::Cell { column: 0, expected: "a row" })?;
            let (id, hash): (String, Bytes) = (first.get(0)?, first.get(1)?);
            if hash != event.payload_hash.as_slice() {
                return Err(StoreError::IdempotencyConflict(format!(
                    "the idempotency key {key} of {} was used for another payload, in event {id}",
                    event.topic
                )));
            }
            ids.push(id);
        }
        Ok(ids)
    }
}

/// Bytes as hex in a JSON text, for SQLite's `unhex`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

impl Append {
    fn home(&self) -> Shard {
        Append::shard(self.ordering_key.as_deref().unwrap_or(&self.event_id))
    }
}
