//! Tracing: the events of a correlation, and the state of each.

use bytes::Bytes;
use jiff::Timestamp;

use crate::error::StoreError;
use crate::saga::SagaCard;
use crate::statement::Statement;
use crate::tables::{Letters, LogCursors, OutboxRows, Sagas, Story, Tables};
use crate::value::Row;

/// An event of a correlation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the outbox")]
pub struct StoryEvent {
    pub seq: i64,
    pub event_id: String,
    pub causation_id: Option<String>,
    pub correlation_id: String,
    pub topic: String,
    pub tenant: String,
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub idempotency_key: Option<String>,
    pub written_at: Timestamp,
    /// When the log received it; unknown on a broker.
    pub published_at: Option<Timestamp>,
    /// Why it could not be published so far.
    pub parked: Option<String>,
}

/// What a consumer did with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the inbox")]
pub struct Reception {
    pub event_id: String,
    pub consumer: String,
    pub tenant: String,
    pub processed_at: Timestamp,
    pub result: String,
}

/// An event that is a dead letter, parked or stashed at a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct HeldEvent {
    pub event_id: String,
    pub consumer: String,
    pub tenant: String,
    /// `dead letter`, `parked` or `stash`.
    pub kind: String,
    /// The id of a dead letter.
    pub letter: Option<String>,
    pub status: String,
    pub error: String,
    pub since: Timestamp,
}

/// A row of the outbox that could not be published, with all its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the tables")]
pub struct OutboxFailure {
    pub event: StoryEvent,
    pub ordering_key: Option<String>,
    /// As JSON.
    pub headers: String,
    pub body: Bytes,
    pub attempts: i64,
    pub first_failed_at: Option<Timestamp>,
    pub next_attempt_at: Option<Timestamp>,
    pub quarantined_at: Option<Timestamp>,
    /// The numbers of the first rows of its key that wait behind it.
    pub behind: Vec<i64>,
}

/// The statement for events that match a condition, including those in `outbox_held`.
macro_rules! concat_events {
    ($where:literal) => {
        concat!(
            "select o.seq, o.event_id, o.causation_id, o.correlation_id, o.topic, o.tenant, \
             o.aggregate_type, o.aggregate_id, o.idempotency_key, o.written_at, \
             (select l.published_at from chapar.log l where l.event_id = o.event_id), \
             (select coalesce(p.last_error, 'waits behind another of its key') \
                 from chapar.outbox_parked p where p.seq = o.seq) \
             from (select seq, event_id, causation_id, correlation_id, topic, tenant, \
                 aggregate_type, aggregate_id, idempotency_key, written_at \
                 from chapar.outbox where ",
            $where,
            " union all select seq, event_id, causation_id, correlation_id, topic, tenant, \
                 aggregate_type, aggregate_id, idempotency_key, written_at \
                 from chapar.outbox_held where ",
            $where,
            ") o order by o.seq limit $2"
        )
    };
}

impl Story<'_> {
    /// The events of a correlation, in the order they were written; at most `limit`.
    pub async fn events(
        &mut self,
        correlation: &str,
        limit: i64,
    ) -> Result<Vec<StoryEvent>, StoreError> {
        static EVENTS: Statement = Statement::new(concat_events!("correlation_id = $1"));
        let rows = self.0.query(&EVENTS, vec![correlation.into(), limit.into()]).await?;
        rows.iter().map(event).collect()
    }

    /// An event, by its id.
    pub async fn event(&mut self, id: &str) -> Result<Option<StoryEvent>, StoreError> {
        static EVENT: Statement = Statement::new(concat_events!("event_id = $1"));
        let rows = self.0.query(&EVENT, vec![id.into(), 1i64.into()]).await?;
        rows.first().map(event).transpose()
    }

    /// The events of an aggregate. There is no index by aggregate: all kept events are read.
    pub async fn of_aggregate(
        &mut self,
        id: &str,
        limit: i64,
    ) -> Result<Vec<StoryEvent>, StoreError> {
        static EVENTS: Statement = Statement::new(concat_events!("aggregate_id = $1"));
        let rows = self.0.query(&EVENTS, vec![id.into(), limit.into()]).await?;
        rows.iter().map(event).collect()
    }

    /// Inbox results of some events.
    pub async fn receptions(&mut self, events: Vec<String>) -> Result<Vec<Reception>, StoreError> {
        static RECEPTIONS: Statement = Statement::new(
            "select i.event_id, i.consumer, i.tenant, i.processed_at, i.result \
             from (select distinct subscription from chapar.topic_readers) r \
             join chapar.inbox i on i.consumer = r.subscription \
             where i.event_id = any($1) order by i.processed_at",
        );
        let rows = self.0.query(&RECEPTIONS, vec![events.into()]).await?;
        let reception = |row: &Row| {
            Ok(Reception {
                event_id: row.get(0)?,
                consumer: row.get(1)?,
                tenant: row.get(2)?,
                processed_at: row.get(3)?,
                result: row.get(4)?,
            })
        };
        rows.iter().map(reception).collect()
    }

    /// The dead letters, parked and stashed rows of some events, including closed dead letters.
    pub async fn held_events(&mut self, events: Vec<String>) -> Result<Vec<HeldEvent>, StoreError> {
        static HELD: Statement = Statement::new(
            "select event_id, consumer, tenant, 'dead letter', id, status, error, first_failed_at \
             from chapar.dead_letters where event_id = any($1) \
             union all select event_id, consumer, tenant, 'parked', null, 'waiting', \
             'waits behind a dead letter of its key', parked_at \
             from chapar.parked where event_id = any($1) \
             union all select event_id, consumer, tenant, 'stash', null, 'waiting', \
             'came before its saga', stashed_at from chapar.saga_stash where event_id = any($1)",
        );
        let rows = self.0.query(&HELD, vec![events.into()]).await?;
        let held = |row: &Row| {
            Ok(HeldEvent {
                event_id: row.get(0)?,
                consumer: row.get(1)?,
                tenant: row.get(2)?,
                kind: row.get(3)?,
                letter: row.get(4)?,
                status: row.get(5)?,
                error: row.get(6)?,
                since: row.get(7)?,
            })
        };
        rows.iter().map(held).collect()
    }

    /// The events that were appended under an idempotency key: tenant, topic, event, when.
    pub async fn with_intent(
        &mut self,
        key: &str,
    ) -> Result<Vec<(String, String, String, Timestamp)>, StoreError> {
        static APPENDED: Statement = Statement::new(
            "select tenant, topic, event_id, created_at from chapar.idempotency \
             where key = $1 limit 100",
        );
        let rows = self.0.query(&APPENDED, vec![key.into()]).await?;
        let found = |row: &Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        rows.iter().map(found).collect()
    }
}

impl OutboxRows<'_> {
    /// A row of the outbox that is parked or in quarantine.
    pub async fn failure(&mut self, seq: i64) -> Result<Option<OutboxFailure>, StoreError> {
        static ROW: Statement = Statement::new(
            "select o.event_id, o.ordering_key, o.headers, o.body, p.attempts, p.first_failed_at, \
             p.next_attempt_at, p.quarantined_at from chapar.outbox_parked p \
             join (select * from chapar.outbox union all select * from chapar.outbox_held) o \
             on o.seq = p.seq where p.seq = $1",
        );
        static BEHIND: Statement = Statement::new(
            "select seq from chapar.outbox_parked where ordering_key = $1 and seq > $2 \
             order by seq limit 20",
        );
        let rows = self.0.query(&ROW, vec![seq.into()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let Some(event) = self.0.story().event(&row.get::<String>(0)?).await? else {
            return Ok(None);
        };
        let ordering_key: Option<String> = row.get(1)?;
        let args = vec![ordering_key.as_deref().into(), seq.into()];
        let behind = self.0.query(&BEHIND, args).await?;
        Ok(Some(OutboxFailure {
            event,
            ordering_key,
            headers: row.get(2)?,
            body: row.get(3)?,
            attempts: row.get(4)?,
            first_failed_at: row.get(5)?,
            next_attempt_at: row.get(6)?,
            quarantined_at: row.get(7)?,
            behind: behind.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?,
        }))
    }
}

impl LogCursors<'_> {
    /// How many events a subscription of the log has not acknowledged.
    pub async fn lag(&mut self, subscription: &str) -> Result<i64, StoreError> {
        static LAG: Statement = Statement::new(
            "select count(*) from chapar.cursors c join chapar.log l \
             on l.log_partition = c.log_partition and l.log_offset > c.acked_offset \
             join chapar.subscriptions s on s.subscription = c.subscription and s.topic = l.topic \
             where c.subscription = $1",
        );
        let rows = self.0.query(&LAG, vec![subscription.into()]).await?;
        rows.first().map_or(Ok(0), |row| row.get(0))
    }
}

impl Sagas<'_> {
    /// The sagas of a correlation.
    pub async fn of_story(&mut self, correlation: &str) -> Result<Vec<SagaCard>, StoreError> {
        static SAGAS: Statement = Statement::new(
            "select saga, key, tenant, definition, state, version, correlation_id, started_at, \
             updated_at, outcome from chapar.sagas where correlation_id = $1 order by started_at",
        );
        let rows = self.0.query(&SAGAS, vec![correlation.into()]).await?;
        rows.iter().map(crate::saga::card).collect()
    }

    /// The sagas with a key, of any kind.
    pub async fn with_key(&mut self, key: &str) -> Result<Vec<SagaCard>, StoreError> {
        static SAGAS: Statement = Statement::new(
            "select saga, key, tenant, definition, state, version, correlation_id, started_at, \
             updated_at, outcome from chapar.sagas where key = $1 order by started_at limit 100",
        );
        let rows = self.0.query(&SAGAS, vec![key.into()]).await?;
        rows.iter().map(crate::saga::card).collect()
    }

    /// The newest sagas, filtered by kind, state or outcome where given; the outcome `open` means
    /// not ended.
    pub async fn list(
        &mut self,
        saga: Option<&str>,
        state: Option<&str>,
        outcome: Option<&str>,
        limit: i64,
    ) -> Result<Vec<SagaCard>, StoreError> {
        static SAGAS: Statement = Statement::new(
            "select saga, key, tenant, definition, state, version, correlation_id, started_at, \
             updated_at, outcome from chapar.sagas where ($1::text is null or saga = $1) \
             and ($2::text is null or state = $2) \
             and ($3::text is null or coalesce(outcome, 'open') = $3) \
             order by started_at desc limit $4",
        );
        let args = vec![saga.into(), state.into(), outcome.into(), limit.into()];
        let rows = self.0.query(&SAGAS, args).await?;
        rows.iter().map(crate::saga::card).collect()
    }
}

impl Letters<'_> {
    /// A dead letter, by its own id: its consumer, event, tenant, status, error and time.
    pub async fn card(&mut self, id: &str) -> Result<Option<HeldEvent>, StoreError> {
        static LETTER: Statement = Statement::new(
            "select event_id, consumer, tenant, status, error, first_failed_at \
             from chapar.dead_letters where id = $1",
        );
        let rows = self.0.query(&LETTER, vec![id.into()]).await?;
        let letter = |row: &Row| {
            Ok(HeldEvent {
                event_id: row.get(0)?,
                consumer: row.get(1)?,
                tenant: row.get(2)?,
                kind: "dead letter".to_owned(),
                letter: Some(id.to_owned()),
                status: row.get(3)?,
                error: row.get(4)?,
                since: row.get(5)?,
            })
        };
        rows.first().map(letter).transpose()
    }
}

fn event(row: &Row) -> Result<StoryEvent, StoreError> {
    Ok(StoryEvent {
        seq: row.get(0)?,
        event_id: row.get(1)?,
        causation_id: row.get(2)?,
        correlation_id: row.get(3)?,
        topic: row.get(4)?,
        tenant: row.get(5)?,
        aggregate_type: row.get(6)?,
        aggregate_id: row.get(7)?,
        idempotency_key: row.get(8)?,
        written_at: row.get(9)?,
        published_at: row.get(10)?,
        parked: row.get(11)?,
    })
}
