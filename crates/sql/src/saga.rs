use jiff::Timestamp;

use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::{Sagas, Timers};
use crate::value::Row;

/// A saga as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct SagaRow {
    pub saga: String,
    pub key: String,
    pub tenant: String,
    /// The version of the code that started it.
    pub definition: i64,
    pub state: String,
    /// The saga's own data as JSON.
    pub data: String,
    /// The recorded undo steps as JSON, oldest first.
    pub compensations: String,
    /// The generation of each armed timer as JSON.
    pub timers: String,
    /// Grows by one with every transition.
    pub version: i64,
    pub correlation_id: String,
    /// Set once it has ended; the row stays as a tombstone.
    pub outcome: Option<String>,
    /// Whether stashed events of it have not been applied yet.
    pub stashed: bool,
}

/// One transition.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct HistoryEntry {
    pub version: i64,
    pub at: Timestamp,
    pub from_state: Option<String>,
    pub to_state: String,
    pub cause: String,
    pub event_id: Option<String>,
    pub note: String,
}

/// How many sagas are in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SagaSummary {
    pub saga: String,
    pub state: String,
    /// None while they are open.
    pub outcome: Option<String>,
    pub count: i64,
}

/// A saga for operators: without its data, which may be personal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct SagaCard {
    pub saga: String,
    pub key: String,
    pub tenant: String,
    pub definition: i64,
    pub state: String,
    pub version: i64,
    pub correlation_id: String,
    pub started_at: Timestamp,
    pub updated_at: Timestamp,
    pub outcome: Option<String>,
}

/// A timer that is due, taken out of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct DueTimer {
    pub saga: String,
    pub key: String,
    pub name: String,
    pub tenant: String,
    pub generation: i64,
    pub due_at: Timestamp,
    /// How often it has fired and failed.
    pub attempts: i64,
}

impl Sagas<'_> {
    /// Inserts a new saga; false if one of this key exists.
    pub async fn insert(&mut self, saga: &SagaRow) -> Result<bool, StoreError> {
        static INSERT: Statement = Statement::new(
            "insert into chapar.sagas (saga, key, tenant, definition, state, data, compensations, timers, \
             version, correlation_id, outcome, started_at, updated_at) values ($1, $2, $3, $4, $5, $6, \
             $7, $8, $9, $10, $11, clock_timestamp(), clock_timestamp()) on conflict do nothing",
        );
        let args = vec![
            (&saga.saga).into(),
            (&saga.key).into(),
            (&saga.tenant).into(),
            saga.definition.into(),
            (&saga.state).into(),
            (&saga.data).into(),
            (&saga.compensations).into(),
            (&saga.timers).into(),
            saga.version.into(),
            (&saga.correlation_id).into(),
            saga.outcome.as_deref().into(),
        ];
        Ok(self.0.run(&INSERT, args).await? == 1)
    }

    /// Reads a saga and locks it until the transaction ends. Whether there are stashed events is
    /// read for one consumer, since each applies its own.
    pub async fn load(
        &mut self,
        saga: &str,
        key: &str,
        tenant: &str,
        consumer: &str,
    ) -> Result<Option<SagaRow>, StoreError> {
        static LOAD: Statement = Statement::new(
            "select saga, key, tenant, definition, state, data, compensations, timers, version, \
             correlation_id, outcome, exists (select 1 from chapar.saga_stash t \
             where t.saga = s.saga and t.key = s.key and t.tenant = s.tenant and t.consumer = $4) \
             from chapar.sagas s where saga = $1 and key = $2 and tenant = $3 for update",
        );
        let args = vec![saga.into(), key.into(), tenant.into(), consumer.into()];
        let rows = self.0.query(&LOAD, args).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(SagaRow {
            saga: row.get(0)?,
            key: row.get(1)?,
            tenant: row.get(2)?,
            definition: row.get(3)?,
            state: row.get(4)?,
            data: row.get(5)?,
            compensations: row.get(6)?,
            timers: row.get(7)?,
            version: row.get(8)?,
            correlation_id: row.get(9)?,
            outcome: row.get(10)?,
            stashed: row.get(11)?,
        }))
    }

    /// Updates a saga whose version was `saga.version - 1`; false if it was not.
    pub async fn update(&mut self, saga: &SagaRow) -> Result<bool, StoreError> {
        static UPDATE: Statement = Statement::new(
            "update chapar.sagas set state = $3, data = $4, compensations = $5, version = $6, \
             outcome = $7, timers = $8, updated_at = clock_timestamp() \
             where saga = $1 and key = $2 and tenant = $9 and version = $6 - 1",
        );
        let args = vec![
            (&saga.saga).into(),
            (&saga.key).into(),
            (&saga.state).into(),
            (&saga.data).into(),
            (&saga.compensations).into(),
            saga.version.into(),
            saga.outcome.as_deref().into(),
            (&saga.timers).into(),
            (&saga.tenant).into(),
        ];
        Ok(self.0.run(&UPDATE, args).await? == 1)
    }

    /// Adds a transition to a saga's history.
    pub async fn add_history(
        &mut self,
        saga: &SagaRow,
        entry: &HistoryEntry,
    ) -> Result<(), StoreError> {
        static ADD: Statement = Statement::new(
            "insert into chapar.saga_history (saga, key, version, tenant, at, from_state, to_state, \
             cause, event_id, note) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        );
        let args = vec![
            (&saga.saga).into(),
            (&saga.key).into(),
            entry.version.into(),
            (&saga.tenant).into(),
            entry.at.into(),
            entry.from_state.as_deref().into(),
            (&entry.to_state).into(),
            (&entry.cause).into(),
            entry.event_id.as_deref().into(),
            (&entry.note).into(),
        ];
        self.0.run(&ADD, args).await?;
        Ok(())
    }

    /// The history of a saga, oldest first.
    pub async fn history(
        &mut self,
        saga: &str,
        key: &str,
        tenant: &str,
    ) -> Result<Vec<HistoryEntry>, StoreError> {
        static READ: Statement = Statement::new(
            "select version, at, from_state, to_state, cause, event_id, note \
             from chapar.saga_history where saga = $1 and key = $2 and tenant = $3 order by version",
        );
        let rows = self.0.query(&READ, vec![saga.into(), key.into(), tenant.into()]).await?;
        rows.iter()
            .map(|row| {
                Ok(HistoryEntry {
                    version: row.get(0)?,
                    at: row.get(1)?,
                    from_state: row.get(2)?,
                    to_state: row.get(3)?,
                    cause: row.get(4)?,
                    event_id: row.get(5)?,
                    note: row.get(6)?,
                })
            })
            .collect()
    }

    /// How many sagas are in each state, ended and open ones separately.
    pub async fn summary(&mut self) -> Result<Vec<SagaSummary>, StoreError> {
        static COUNT: Statement = Statement::new(
            "select saga, state, outcome, count(*) from chapar.sagas \
             group by saga, state, outcome order by saga, state, outcome",
        );
        let rows = self.0.query(&COUNT, vec![]).await?;
        rows.iter()
            .map(|row| {
                Ok(SagaSummary {
                    saga: row.get(0)?,
                    state: row.get(1)?,
                    outcome: row.get(2)?,
                    count: row.get(3)?,
                })
            })
            .collect()
    }

    /// The sagas that started last, newest first.
    pub async fn recent(&mut self, limit: i64) -> Result<Vec<SagaCard>, StoreError> {
        static RECENT: Statement = Statement::new(
            "select saga, key, tenant, definition, state, version, correlation_id, started_at, \
             updated_at, outcome from chapar.sagas order by started_at desc limit $1",
        );
        let rows = self.0.query(&RECENT, vec![limit.into()]).await?;
        rows.iter().map(card).collect()
    }

    /// Reads the sagas of a name without locking them. The name is a key, which several tenants may
    /// have, or the tenant and the key with a colon between them, which is one saga.
    pub async fn named(&mut self, saga: &str, name: &str) -> Result<Vec<SagaCard>, StoreError> {
        static NAMED: Statement = Statement::new(
            "select saga, key, tenant, definition, state, version, correlation_id, started_at, \
             updated_at, outcome from chapar.sagas where saga = $1 \
             and (key = $2 or (key = $4 and tenant = $3)) order by started_at desc",
        );
        // A tenant has no colon.
        let (tenant, key) = name.split_once(':').unwrap_or_default();
        let args = vec![saga.into(), name.into(), tenant.into(), key.into()];
        let cards: Result<Vec<SagaCard>, _> =
            self.0.query(&NAMED, args).await?.iter().map(card).collect();
        let mut cards = cards?;
        if let Some(exact) = cards.iter().position(|c| c.tenant == tenant && c.key == key) {
            return Ok(vec![cards.swap_remove(exact)]);
        }
        Ok(cards)
    }

    /// The undo steps of a saga that have not run, as JSON, oldest first.
    pub async fn compensations(
        &mut self,
        saga: &str,
        key: &str,
        tenant: &str,
    ) -> Result<String, StoreError> {
        static RECORDED: Statement = Statement::new(
            "select compensations from chapar.sagas where saga = $1 and key = $2 and tenant = $3",
        );
        let rows = self.0.query(&RECORDED, vec![saga.into(), key.into(), tenant.into()]).await?;
        rows.first().map_or_else(|| Ok("[]".to_owned()), |row| row.get(0))
    }
}

impl Timers<'_> {
    /// The armed timers of a saga, next first.
    pub async fn of_saga(
        &mut self,
        saga: &str,
        key: &str,
        tenant: &str,
    ) -> Result<Vec<DueTimer>, StoreError> {
        static ARMED: Statement = Statement::new(
            "select saga, key, name, tenant, generation, due_at, attempts from chapar.timers \
             where saga = $1 and key = $2 and tenant = $3 order by due_at",
        );
        let rows = self.0.query(&ARMED, vec![saga.into(), key.into(), tenant.into()]).await?;
        rows.iter().map(timer).collect()
    }

    /// Arms a timer and replaces the armed one of the same name.
    pub async fn arm(&mut self, timer: &DueTimer) -> Result<(), StoreError> {
        static ARM: Statement = Statement::new(
            "insert into chapar.timers (saga, key, name, tenant, generation, due_at) \
             values ($1, $2, $3, $4, $5, $6) on conflict (saga, key, tenant, name) do update set \
             generation = excluded.generation, due_at = excluded.due_at, attempts = 0",
        );
        let args = vec![
            (&timer.saga).into(),
            (&timer.key).into(),
            (&timer.name).into(),
            (&timer.tenant).into(),
            timer.generation.into(),
            timer.due_at.into(),
        ];
        self.0.run(&ARM, args).await?;
        Ok(())
    }

    /// Disarms a timer.
    pub async fn disarm(
        &mut self,
        saga: &str,
        key: &str,
        tenant: &str,
        name: &str,
    ) -> Result<(), StoreError> {
        static DISARM: Statement = Statement::new(
            "delete from chapar.timers where saga = $1 and key = $2 and tenant = $3 and name = $4",
        );
        self.0.run(&DISARM, vec![saga.into(), key.into(), tenant.into(), name.into()]).await?;
        Ok(())
    }

    /// The timers that are due, the longest first, without taking them. `handled` names them as
    /// `saga/timer`: a process leaves those alone that it has no handler for.
    pub async fn due(
        &mut self,
        handled: Vec<String>,
        now: Timestamp,
        limit: i64,
    ) -> Result<Vec<DueTimer>, StoreError> {
        static DUE: Statement = Statement::new(
            "select saga, key, name, tenant, generation, due_at, attempts from chapar.timers \
             where due_at <= $1 and saga || '/' || name = any($3) order by due_at limit $2",
        );
        let rows = self.0.query(&DUE, vec![now.into(), limit.into(), handled.into()]).await?;
        rows.iter().map(timer).collect()
    }

    /// Takes a timer; false if another process has, or if it was armed again meanwhile.
    ///
    /// The saga must be locked before: a transition of the saga also changes its timers, and
    /// locking in different order would deadlock. The timer is deleted in this transaction, so it
    /// fires exactly once.
    pub async fn take(&mut self, timer: &DueTimer) -> Result<bool, StoreError> {
        static TAKE: Statement = Statement::new(
            "delete from chapar.timers where saga = $1 and key = $2 and name = $3 and generation = $4 \
             and tenant = $5",
        );
        let args = vec![
            (&timer.saga).into(),
            (&timer.key).into(),
            (&timer.name).into(),
            timer.generation.into(),
            (&timer.tenant).into(),
        ];
        Ok(self.0.run(&TAKE, args).await? == 1)
    }

    /// Puts a timer off after an attempt that failed, which may count. It is never dropped.
    pub async fn postpone(
        &mut self,
        timer: &DueTimer,
        due_at: Timestamp,
        attempts: i64,
    ) -> Result<(), StoreError> {
        static POSTPONE: Statement = Statement::new(
            "update chapar.timers set due_at = $5, attempts = $6 \
             where saga = $1 and key = $2 and name = $3 and generation = $4 and tenant = $7",
        );
        let args = vec![
            (&timer.saga).into(),
            (&timer.key).into(),
            (&timer.name).into(),
            timer.generation.into(),
            due_at.into(),
            attempts.into(),
            (&timer.tenant).into(),
        ];
        self.0.run(&POSTPONE, args).await?;
        Ok(())
    }

    /// When the next timer is due.
    pub async fn next(&mut self) -> Result<Option<Timestamp>, StoreError> {
        static NEXT: Statement =
            Statement::new("select due_at from chapar.timers order by due_at limit 1");
        let rows = self.0.query(&NEXT, vec![]).await?;
        rows.first().map(|row| row.get(0)).transpose()
    }
}

pub(crate) fn card(row: &Row) -> Result<SagaCard, StoreError> {
    Ok(SagaCard {
        saga: row.get(0)?,
        key: row.get(1)?,
        tenant: row.get(2)?,
        definition: row.get(3)?,
        state: row.get(4)?,
        version: row.get(5)?,
        correlation_id: row.get(6)?,
        started_at: row.get(7)?,
        updated_at: row.get(8)?,
        outcome: row.get(9)?,
    })
}

fn timer(row: &Row) -> Result<DueTimer, StoreError> {
    Ok(DueTimer {
        saga: row.get(0)?,
        key: row.get(1)?,
        name: row.get(2)?,
        tenant: row.get(3)?,
        generation: row.get(4)?,
        due_at: row.get(5)?,
        attempts: row.get(6)?,
    })
}
