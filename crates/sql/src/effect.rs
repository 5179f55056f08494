use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::Backend;
use crate::tables::Effects;
use crate::value::Row;

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
    /// Until when no other worker takes it; also how a worker recognises that it still has it.
    pub held_until: Timestamp,
    /// The outcome of the call, if it was made and only recording the outcome failed.
    pub answer: Option<String>,
    /// How often recording the outcome has failed.
    pub recordings: i64,
}

/// What becomes of an effect whose outcome could not be recorded.
#[derive(Debug, Clone, Copy)]
pub struct Unrecorded<'a> {
    /// The outcome, so that the call is not made again.
    pub answer: &'a str,
    /// Whether the attempt counts.
    pub counts: bool,
    /// When recording is retried; none if an operator has to look at it.
    pub retry_at: Option<Timestamp>,
    /// Now, by the engine's clock.
    pub failed_at: Timestamp,
    /// Why it failed.
    pub error: &'a str,
}

/// An effect for operators: without its request and answer, which may be personal.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct EffectCard {
    pub id: i64,
    pub kind: String,
    pub key: String,
    pub tenant: String,
    /// `pending`, `done`, `failed`, or `stuck` if its outcome could not be recorded.
    pub status: String,
    pub attempts: i64,
    pub due_at: Timestamp,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub last_error: Option<String>,
    /// The envelope that caused it, as JSON.
    pub cause: Bytes,
    /// Until when a worker has it.
    pub held_until: Option<Timestamp>,
    /// Whether the call was made and only its outcome is still to be recorded.
    pub answered: bool,
}

impl Effects<'_> {
    /// Records an effect; recording it again with the same key changes nothing.
    pub async fn request(&mut self, effect: &NewEffect) -> Result<bool, StoreError> {
        const POSTGRES: &str = "select chapar.request_effect($1::text, $2::text, $3::text, $4::text, \
             $5::bytea, $6::timestamptz)";
        static SQLITE: Statement = Statement::new(
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
        match self.0.backend() {
            // A function of the owner: handlers run in the role of a service, which may not write here.
            Backend::Postgres => {
                let rows = self.0.fetch(POSTGRES, args).await?;
                rows.first().map_or(Ok(false), |row| row.get(0))
            }
            Backend::Sqlite => Ok(self.0.run(&SQLITE, args).await? == 1),
        }
    }

    /// Whether there are effects that are due.
    pub async fn waiting(
        &mut self,
        kinds: Vec<String>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        static WAITING: Statement = Statement::new(
            "select 1 from chapar.effects where status = 'pending' and due_at <= $1 \
             and kind = any($2) limit 1",
        );
        Ok(!self.0.query(&WAITING, vec![now.into(), kinds.into()]).await?.is_empty())
    }

    /// Takes at most `limit` due effects of these kinds and hides them for `hold`, so that no other
    /// worker takes them. If the worker dies, another takes them after that.
    pub async fn take(
        &mut self,
        kinds: Vec<String>,
        now: Timestamp,
        hold: Duration,
        limit: i64,
    ) -> Result<Vec<DueEffect>, StoreError> {
        static TAKE: Statement = Statement::new(
            "update chapar.effects set due_at = $2, held_until = $2, \
             attempts = attempts + case when answer is null then 1 else 0 end \
             where id in (select id from chapar.effects where status = 'pending' and due_at <= $1 \
             and kind = any($4) order by due_at, id limit $3 for update skip locked) \
             returning id, kind, idempotency_key, tenant, request, cause, attempts, \
             first_failed_at, held_until, answer, recordings",
        );
        let until = now.saturating_add(hold).unwrap_or(Timestamp::MAX);
        let args = vec![now.into(), until.into(), limit.into(), kinds.into()];
        let rows = self.0.query(&TAKE, args).await?;
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
                    held_until: row.get(8)?,
                    answer: row.get(9)?,
                    recordings: row.get(10)?,
                })
            })
            .collect()
    }

    /// Locks those of the effects until the transaction ends that the worker still has, and returns
    /// their numbers. The others were taken by another worker after their hold had expired, or have
    /// ended.
    pub async fn lock_held(&mut self, held: &[&DueEffect]) -> Result<Vec<i64>, StoreError> {
        static LOCK: Statement = Statement::new(
            "select id, held_until from chapar.effects where id = any($1) and status = 'pending' \
             order by id for update",
        );
        let ids: Vec<i64> = held.iter().map(|due| due.id).collect();
        let mut still = Vec::with_capacity(ids.len());
        for row in self.0.query(&LOCK, vec![ids.into()]).await? {
            let (id, until): (i64, Option<Timestamp>) = (row.get(0)?, row.get(1)?);
            if held.iter().any(|due| due.id == id && Some(due.held_until) == until) {
                still.push(id);
            }
        }
        Ok(still)
    }

    /// Marks effects as ended, with the reason of those that failed. The outcome is not kept: it
    /// is applied in this transaction.
    pub async fn finish(&mut self, ids: Vec<i64>, error: Option<&str>) -> Result<(), StoreError> {
        static FINISH: Statement = Statement::new(
            "update chapar.effects set status = $2, last_error = $3, answer = null, \
             held_until = null, finished_at = clock_timestamp() where id = any($1)",
        );
        if !ids.is_empty() {
            let status = if error.is_some() { "failed" } else { "done" };
            self.0.run(&FINISH, vec![ids.into(), status.into(), error.into()]).await?;
        }
        Ok(())
    }

    /// Postpones an effect whose call failed, if the worker still has it.
    pub async fn postpone(
        &mut self,
        due: &DueEffect,
        due_at: Timestamp,
        failed_at: Timestamp,
        error: &str,
    ) -> Result<(), StoreError> {
        static POSTPONE: Statement = Statement::new(
            "update chapar.effects set due_at = $2, last_error = $4, held_until = null, \
             first_failed_at = coalesce(first_failed_at, $3) \
             where id = $1 and status = 'pending' and held_until = $5",
        );
        let args = vec![
            due.id.into(),
            due_at.into(),
            failed_at.into(),
            error.into(),
            due.held_until.into(),
        ];
        self.0.run(&POSTPONE, args).await?;
        Ok(())
    }

    /// Keeps the outcome of a call that is still to be recorded and holds the effect until then, if
    /// the worker still has it. A worker that takes it later records the outcome, without a call.
    pub async fn keep_answer(
        &mut self,
        due: &DueEffect,
        answer: &str,
        until: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        static KEEP: Statement = Statement::new(
            "update chapar.effects set answer = $2, due_at = $3, held_until = $3 \
             where id = $1 and status = 'pending' and held_until = $4 returning held_until",
        );
        let args = vec![due.id.into(), answer.into(), until.into(), due.held_until.into()];
        let rows = self.0.query(&KEEP, args).await?;
        rows.first().map(|row| row.get(0)).transpose()
    }

    /// Notes that the outcome of an effect could not be recorded, if the worker still has it.
    pub async fn not_recorded(
        &mut self,
        due: &DueEffect,
        unrecorded: Unrecorded<'_>,
    ) -> Result<(), StoreError> {
        static NOTE: Statement = Statement::new(
            "update chapar.effects set answer = $2, recordings = recordings + $3, due_at = $4, \
             status = $5, last_error = $6, held_until = null, \
             first_failed_at = coalesce(first_failed_at, $7) \
             where id = $1 and status = 'pending' and held_until = $8",
        );
        let Unrecorded { answer, counts, retry_at, failed_at, error } = unrecorded;
        let args = vec![
            due.id.into(),
            answer.into(),
            i64::from(counts).into(),
            retry_at.unwrap_or(failed_at).into(),
            if retry_at.is_some() { "pending" } else { "stuck" }.into(),
            error.into(),
            failed_at.into(),
            due.held_until.into(),
        ];
        self.0.run(&NOTE, args).await?;
        Ok(())
    }
}

macro_rules! cards {
    ($which:literal) => {
        concat!(
            "select id, kind, idempotency_key, tenant, status, attempts, due_at, created_at, \
             finished_at, last_error, cause, held_until, answer is not null from chapar.effects ",
            $which
        )
    };
}

/// What an operator sees and does.
impl Effects<'_> {
    /// Effects by status, kind and tenant, the oldest first.
    pub async fn list(
        &mut self,
        status: Option<&str>,
        kind: Option<&str>,
        tenant: Option<&str>,
        limit: i64,
    ) -> Result<Vec<EffectCard>, StoreError> {
        static LIST: Statement = Statement::new(cards!(
            "where ($1::text is null or status = $1) and ($2::text is null or kind = $2) \
             and ($3::text is null or tenant = $3) order by id limit $4"
        ));
        let args = vec![status.into(), kind.into(), tenant.into(), limit.into()];
        let rows = self.0.query(&LIST, args).await?;
        rows.iter().map(card).collect()
    }

    /// One effect.
    pub async fn card(&mut self, id: i64) -> Result<Option<EffectCard>, StoreError> {
        static CARD: Statement = Statement::new(cards!("where id = $1"));
        let rows = self.0.query(&CARD, vec![id.into()]).await?;
        rows.first().map(card).transpose()
    }

    /// The effects that a tenant requested in some time, at most 10,000.
    pub async fn between(
        &mut self,
        tenant: &str,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<EffectCard>, StoreError> {
        static EFFECTS: Statement = Statement::new(cards!(
            "where tenant = $1 and created_at >= $2 and created_at <= $3 \
             order by created_at limit 10000"
        ));
        let rows = self.0.query(&EFFECTS, vec![tenant.into(), from.into(), to.into()]).await?;
        rows.iter().map(card).collect()
    }

    /// Makes an effect due now that waits for its next attempt, or whose outcome could not be
    /// recorded. False if it has ended, is due already, or a worker has it: a second worker must
    /// not make its call at the same time.
    pub async fn hurry(&mut self, id: i64, now: Timestamp) -> Result<bool, StoreError> {
        static HURRY: Statement = Statement::new(
            "update chapar.effects set due_at = $2, \
             recordings = case when status = 'stuck' then 0 else recordings end, \
             status = 'pending' where id = $1 and (held_until is null or held_until <= $2) \
             and (status = 'stuck' or (status = 'pending' and due_at > $2))",
        );
        Ok(self.0.run(&HURRY, vec![id.into(), now.into()]).await? == 1)
    }
}

fn card(row: &Row) -> Result<EffectCard, StoreError> {
    Ok(EffectCard {
        id: row.get(0)?,
        kind: row.get(1)?,
        key: row.get(2)?,
        tenant: row.get(3)?,
        status: row.get(4)?,
        attempts: row.get(5)?,
        due_at: row.get(6)?,
        created_at: row.get(7)?,
        finished_at: row.get(8)?,
        last_error: row.get(9)?,
        cause: row.get(10)?,
        held_until: row.get(11)?,
        answered: row.get(12)?,
    })
}
