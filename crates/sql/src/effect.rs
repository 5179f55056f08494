use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;

/// An effect: a call to a system outside that a handler requests.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct NewEffect {
    pub kind: String,
    pub idempotency_key: String,
    pub tenant: String,
    /// The request as JSON.
    pub request: String,
    /// The envelope of the event that caused it.
    pub cause: Vec<u8>,
    pub due_at: Timestamp,
}

/// An effect that is due, handed to one worker.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct DueEffect {
    pub id: i64,
    pub kind: String,
    pub idempotency_key: String,
    pub tenant: String,
    pub request: String,
    pub cause: Bytes,
    pub attempts: i64,
    pub first_failed_at: Option<Timestamp>,
}

impl Conn<'_> {
    /// Records an effect; recording it again with the same key changes nothing.
    pub async fn request_effect(&mut self, effect: &NewEffect) -> Result<bool, StoreError> {
        static REQUEST: Statement = Statement::new(
            "insert into chapar.effects (kind, idempotency_key, tenant, request, cause, due_at, created_at) \
             values ($1, $2, $3, $4, $5, $6, clock_timestamp()) on conflict do nothing",
        );
        let args = vec![
            (&effect.kind).into(),
            (&effect.idempotency_key).into(),
            (&effect.tenant).into(),
            (&effect.request).into(),
            effect.cause.as_slice().into(),
            effect.due_at.into(),
        ];
        Ok(self.run(&REQUEST, args).await? == 1)
    }

    /// Whether there are effects that are due.
    pub async fn effects_waiting(
        &mut self,
        kinds: Vec<String>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        static WAITING: Statement = Statement::new(
            "select 1 from chapar.effects where status = 'pending' and due_at <= $1 \
             and kind = any($2) limit 1",
        );
        Ok(!self.query(&WAITING, vec![now.into(), kinds.into()]).await?.is_empty())
    }

    /// Takes at most `limit` due effects of these kinds and hides them for `hold`, so that no other
    /// worker takes them. If the worker dies, another takes them after that.
    pub async fn take_effects(
        &mut self,
        kinds: Vec<String>,
        now: Timestamp,
        hold: Duration,
        limit: i64,
    ) -> Result<Vec<DueEffect>, StoreError> {
        static TAKE: Statement = Statement::new(
            "update chapar.effects set attempts = attempts + 1, due_at = $2 \
             where id in (select id from chapar.effects where status = 'pending' and due_at <= $1 \
             and kind = any($4) order by due_at, id limit $3 for update skip locked) \
             returning id, kind, idempotency_key, tenant, request, cause, attempts, first_failed_at",
        );
        let until = now.saturating_add(hold).unwrap_or(Timestamp::MAX);
        let args = vec![now.into(), until.into(), limit.into(), kinds.into()];
        let rows = self.query(&TAKE, args).await?;
        rows.iter()
            .map(|row| {
                Ok(DueEffect {
                    id: row.get(0)?,
                    kind: row.get(1)?,
                    idempotency_key: row.get(2)?,
                    tenant: row.get(3)?,
                    request: row.get(4)?,
                    cause: row.get(5)?,
                    attempts: row.get(6)?,
                    first_failed_at: row.get(7)?,
                })
            })
            .collect()
    }

    /// Marks an effect as finished; false if another worker has finished it before.
    pub async fn finish_effect(
        &mut self,
        id: i64,
        status: &str,
        error: Option<&str>,
    ) -> Result<bool, StoreError> {
        static FINISH: Statement = Statement::new(
            "update chapar.effects set status = $2, last_error = $3, finished_at = clock_timestamp() \
             where id = $1 and status = 'pending'",
        );
        Ok(self.run(&FINISH, vec![id.into(), status.into(), error.into()]).await? == 1)
    }

    /// Postpones an effect after a failure.
    pub async fn postpone_effect(
        &mut self,
        id: i64,
        due_at: Timestamp,
        failed_at: Timestamp,
        error: &str,
    ) -> Result<(), StoreError> {
        static POSTPONE: Statement = Statement::new(
            "update chapar.effects set due_at = $2, last_error = $4, \
             first_failed_at = coalesce(first_failed_at, $3) where id = $1 and status = 'pending'",
        );
        let args = vec![id.into(), due_at.into(), failed_at.into(), error.into()];
        self.run(&POSTPONE, args).await?;
        Ok(())
    }
}
