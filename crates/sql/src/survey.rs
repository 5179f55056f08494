//! Counting the rows of each table, for the console and for the census of a run.

use jiff::Timestamp;

use crate::error::StoreError;
use crate::saga::SagaSummary;
use crate::statement::Statement;
use crate::tables::{OutboxRows, Surveys, Tables};

/// The current state, cheap enough to query every second.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Survey {
    pub outbox_waiting: i64,
    pub outbox_oldest: Option<Timestamp>,
    pub outbox_quarantined: i64,
    pub dead_letters: i64,
    pub parked: i64,
    pub effects_pending: i64,
    pub effects_stuck: i64,
    pub timers: i64,
    pub sagas: Vec<SagaSummary>,
}

/// The census of a run: how many events are where, counted by comparing tables. Slow on a large store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Census {
    pub events_appended: i64,
    pub events_published: i64,
    pub events_applied: i64,
    pub dead_letters: i64,
    pub parked: i64,
    /// Passed by a consumer's cursor but neither applied nor stored as dead letter, parked or
    /// stashed; or marked as published but missing in the log.
    pub lost: i64,
    /// Not arrived yet.
    pub in_flight: i64,
}

/// How many events a consumer has applied.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ConsumerCount {
    pub consumer: String,
    pub applied: i64,
}

/// The lag of the relay.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OutboxLag {
    /// Committed and not published.
    pub waiting: i64,
    /// The age of the oldest of them, in seconds.
    pub seconds: f64,
}

impl OutboxRows<'_> {
    /// The lag of the relay.
    pub async fn lag(&mut self, now: Timestamp) -> Result<OutboxLag, StoreError> {
        let (waiting, oldest) = self.waiting().await?;
        let age = oldest.map(|oldest| now.duration_since(oldest).as_secs_f64().max(0.0));
        Ok(OutboxLag { waiting, seconds: age.unwrap_or(0.0) })
    }

    pub(crate) async fn waiting(&mut self) -> Result<(i64, Option<Timestamp>), StoreError> {
        static WAITING: Statement = Statement::new(
            "select count(*), min(written_at) from (select written_at from chapar.outbox_waiting \
             union all select o.written_at from chapar.outbox_parked p join chapar.outbox o \
                 on o.seq = p.seq where p.quarantined_at is null) w",
        );
        let rows = self.0.query(&WAITING, vec![]).await?;
        rows.first().map_or(Ok((0, None)), |row| Ok((row.get(0)?, row.get(1)?)))
    }
}

impl Surveys<'_> {
    /// How much work is still pending: events to publish or apply, and effects and timers that are
    /// due before `soon`.
    pub async fn under_way(&mut self, soon: Timestamp) -> Result<i64, StoreError> {
        static UNDER_WAY: Statement = Statement::new(
            "select (select count(*) from chapar.outbox_waiting) \
             + (select count(*) from chapar.outbox_parked p where p.head \
                 and p.quarantined_at is null) \
             + (select count(*) from chapar.cursors c join chapar.log_heads h \
                 on h.log_partition = c.log_partition where c.acked_offset < h.next_offset - 1) \
             + (select count(*) from chapar.effects where status = 'pending') \
             + (select count(*) from chapar.timers where due_at <= $1)",
        );
        let rows = self.0.query(&UNDER_WAY, vec![soon.into()]).await?;
        rows.first().map_or(Ok(0), |row| row.get(0))
    }

    /// The current state.
    pub async fn counts(&mut self) -> Result<Survey, StoreError> {
        static QUARANTINED: Statement = Statement::new(
            "select count(*) from chapar.outbox_parked where quarantined_at is not null",
        );
        static LETTERS: Statement =
            Statement::new("select count(*) from chapar.dead_letters where status <> 'closed'");
        static PARKED: Statement = Statement::new("select count(*) from chapar.parked");
        static EFFECTS: Statement =
            Statement::new("select count(*) from chapar.effects where status = 'pending'");
        static STUCK: Statement =
            Statement::new("select count(*) from chapar.effects where status = 'stuck'");
        static TIMERS: Statement = Statement::new("select count(*) from chapar.timers");
        let (outbox_waiting, outbox_oldest) = self.0.outbox_rows().waiting().await?;
        Ok(Survey {
            outbox_waiting,
            outbox_oldest,
            outbox_quarantined: self.count(&QUARANTINED).await?,
            dead_letters: self.count(&LETTERS).await?,
            parked: self.count(&PARKED).await?,
            effects_pending: self.count(&EFFECTS).await?,
            effects_stuck: self.count(&STUCK).await?,
            timers: self.count(&TIMERS).await?,
            sagas: self.0.sagas().summary().await?,
        })
    }

    /// The census of a run: how many events are where.
    pub async fn census(&mut self) -> Result<Census, StoreError> {
        static APPENDED: Statement = Statement::new("select count(*) from chapar.outbox");
        static PUBLISHED: Statement = Statement::new("select count(*) from chapar.log");
        static APPLIED: Statement = Statement::new("select count(*) from chapar.inbox");
        static LETTERS: Statement =
            Statement::new("select count(*) from chapar.dead_letters where status <> 'closed'");
        static PARKED: Statement = Statement::new("select count(*) from chapar.parked");
        static UNLOGGED: Statement = Statement::new(
            "select count(*) from chapar.outbox o \
             where not exists (select 1 from chapar.log l where l.event_id = o.event_id and l.tenant = o.tenant) \
             and not exists (select 1 from chapar.outbox_waiting w where w.seq = o.seq) \
             and not exists (select 1 from chapar.outbox_parked p where p.seq = o.seq)",
        );
        static UNACCOUNTED: Statement = Statement::new(
            "select count(*) from chapar.subscriptions s \
             join chapar.log l on l.topic = s.topic \
             join chapar.cursors c on c.subscription = s.subscription \
                 and c.log_partition = l.log_partition and l.log_offset <= c.acked_offset \
             where not exists (select 1 from chapar.inbox i \
                     where i.consumer = s.subscription and i.event_id = l.event_id and i.tenant = l.tenant) \
               and not exists (select 1 from chapar.dead_letters d where d.consumer = s.subscription \
                     and d.log_partition = l.log_partition and d.log_offset = l.log_offset) \
               and not exists (select 1 from chapar.parked p \
                     where p.consumer = s.subscription and p.event_id = l.event_id and p.tenant = l.tenant) \
               and not exists (select 1 from chapar.saga_stash t \
                     where t.consumer = s.subscription and t.event_id = l.event_id and t.tenant = l.tenant)",
        );
        static WAITING: Statement = Statement::new(
            "select (select count(*) from chapar.outbox_waiting) \
             + (select count(*) from chapar.outbox_parked where quarantined_at is null)",
        );
        static UNREAD: Statement = Statement::new(
            "select count(*) from chapar.subscriptions s \
             join chapar.log l on l.topic = s.topic \
             join chapar.cursors c on c.subscription = s.subscription \
                 and c.log_partition = l.log_partition and l.log_offset > c.acked_offset \
             where not exists (select 1 from chapar.inbox i \
                     where i.consumer = s.subscription and i.event_id = l.event_id and i.tenant = l.tenant)",
        );
        Ok(Census {
            events_appended: self.count(&APPENDED).await?,
            events_published: self.count(&PUBLISHED).await?,
            events_applied: self.count(&APPLIED).await?,
            dead_letters: self.count(&LETTERS).await?,
            parked: self.count(&PARKED).await?,
            lost: self.count(&UNLOGGED).await? + self.count(&UNACCOUNTED).await?,
            in_flight: self.count(&WAITING).await? + self.count(&UNREAD).await?,
        })
    }

    /// How many events each consumer has applied.
    pub async fn consumer_counts(&mut self) -> Result<Vec<ConsumerCount>, StoreError> {
        static COUNTS: Statement = Statement::new(
            "select consumer, count(*) from chapar.inbox group by consumer order by consumer",
        );
        let rows = self.0.query(&COUNTS, vec![]).await?;
        rows.iter()
            .map(|row| Ok(ConsumerCount { consumer: row.get(0)?, applied: row.get(1)? }))
            .collect()
    }

    async fn count(&mut self, statement: &Statement) -> Result<i64, StoreError> {
        let rows = self.0.query(statement, vec![]).await?;
        rows.first().map_or(Ok(0), |row| row.get(0))
    }
}
