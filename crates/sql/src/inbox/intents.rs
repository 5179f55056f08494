//! Intents that a consumer has applied, and its responses.

use std::collections::HashSet;

use sqlx::Row as _;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::Backend;
use crate::tables::Inbox;

impl Inbox<'_> {
    /// Claims intents for a consumer, given as idempotency key and event; returns the keys that
    /// were not claimed before. An uncommitted claim of another transaction is waited for.
    pub async fn take_intents(
        &mut self,
        consumer: &str,
        tenant: &str,
        mut intents: Vec<(&str, &str)>,
    ) -> Result<HashSet<String>, StoreError> {
        const POSTGRES: &str = "insert into chapar.inbox_intents (consumer, tenant, idempotency_key, event_id) \
             select $1, $2, e.key, e.id from unnest($3::text[], $4::text[]) as e(key, id) \
             on conflict do nothing returning idempotency_key";
        static SQLITE: Statement = Statement::new(
            "insert into chapar.inbox_intents (consumer, tenant, idempotency_key, event_id, created_at) \
             select $1, $2, e.value ->> 0, e.value ->> 1, clock_timestamp() from json_each($3) e where true \
             on conflict do nothing returning idempotency_key",
        );
        if intents.is_empty() {
            return Ok(HashSet::new());
        }
        // Sorted, so that two processes with overlapping batches lock in the same order.
        intents.sort_unstable();
        let mut claimed = HashSet::new();
        if let Conn::Postgres(conn) = &mut self.0 {
            let (keys, ids): (Vec<&str>, Vec<&str>) = intents.into_iter().unzip();
            let query = sqlx::query(POSTGRES).bind(consumer).bind(tenant).bind(keys).bind(ids);
            for row in query.fetch_all(&mut **conn).await? {
                claimed.insert(row.try_get(0)?);
            }
            return Ok(claimed);
        }
        let pairs = serde_json::to_string(&intents).unwrap_or_else(|_| "[]".to_owned());
        for row in self.0.query(&SQLITE, vec![consumer.into(), tenant.into(), pairs.into()]).await?
        {
            claimed.insert(row.get(0)?);
        }
        Ok(claimed)
    }

    /// Stores a consumer's response to an intent; false if it has not claimed it.
    pub async fn set_response(
        &mut self,
        consumer: &str,
        tenant: &str,
        key: &str,
        response: &str,
    ) -> Result<bool, StoreError> {
        const POSTGRES: &str = "select chapar.respond($1::text, $2::text, $3::text, $4::text)";
        static SQLITE: Statement = Statement::new(
            "update chapar.inbox_intents set response = $4 \
             where consumer = $1 and tenant = $2 and idempotency_key = $3",
        );
        let args = vec![consumer.into(), tenant.into(), key.into(), response.into()];
        match self.0.backend() {
            Backend::Postgres => {
                let rows = self.0.fetch(POSTGRES, args).await?;
                rows.first().map_or(Ok(false), |row| row.get(0))
            }
            Backend::Sqlite => Ok(self.0.run(&SQLITE, args).await? == 1),
        }
    }

    /// A consumer's response to an intent, if it has one.
    pub async fn response(
        &mut self,
        consumer: &str,
        tenant: &str,
        key: &str,
    ) -> Result<Option<String>, StoreError> {
        static GET: Statement = Statement::new(
            "select response from chapar.inbox_intents \
             where consumer = $1 and tenant = $2 and idempotency_key = $3",
        );
        let rows = self.0.query(&GET, vec![consumer.into(), tenant.into(), key.into()]).await?;
        rows.first().map_or(Ok(None), |row| row.get(0))
    }
}
