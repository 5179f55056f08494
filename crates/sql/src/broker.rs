//! Counting the state of each event where a broker carries them, from the tables alone.
//!
//! The broker's cursors are not in the database, so what a consumer has skipped is derived from the
//! order of keys: a consumer that applied a later event of a key will not see the earlier one
//! again.

use jiff::Timestamp;

use crate::error::StoreError;
use crate::statement::Statement;
use crate::survey::Census;
use crate::tables::{Surveys, Tables};

/// A consumer and one of its topics.
pub type Subscribed = (String, String);

impl Surveys<'_> {
    /// The census of a run; see [`Surveys::census`] for a log in the store.
    pub async fn census_over_broker(
        &mut self,
        subscriptions: &[Subscribed],
    ) -> Result<Census, StoreError> {
        static PASSED: Statement = Statement::new(
            "select count(*) from chapar.outbox o where o.topic = $2 \
             and not exists (select 1 from chapar.inbox i \
                     where i.consumer = $1 and i.event_id = o.event_id and i.tenant = o.tenant) \
             and not exists (select 1 from chapar.dead_letters d \
                     where d.consumer = $1 and d.event_id = o.event_id and d.tenant = o.tenant) \
             and not exists (select 1 from chapar.parked p \
                     where p.consumer = $1 and p.event_id = o.event_id and p.tenant = o.tenant) \
             and not exists (select 1 from chapar.saga_stash t \
                     where t.consumer = $1 and t.event_id = o.event_id and t.tenant = o.tenant) \
             and exists (select 1 from chapar.outbox l join chapar.inbox i \
                     on i.consumer = $1 and i.event_id = l.event_id and i.tenant = l.tenant \
                     where l.topic = o.topic and l.ordering_key = o.ordering_key \
                     and l.seq > o.seq)",
        );
        let census = self.census().await?;
        let (waiting, _) = self.0.outbox_rows().waiting().await?;
        let mut lost = 0;
        for (consumer, topic) in subscriptions {
            lost += self.count_of(&PASSED, consumer, topic).await?;
        }
        Ok(Census {
            events_published: census.events_appended - waiting,
            lost,
            in_flight: waiting.max(self.unaccounted(subscriptions).await? - lost),
            ..census
        })
    }

    /// As [`Surveys::under_way`], plus the events that consumers have neither applied nor stored as
    /// dead letter, parked or stashed.
    pub async fn under_way_over_broker(
        &mut self,
        subscriptions: &[Subscribed],
        soon: Timestamp,
    ) -> Result<i64, StoreError> {
        match self.under_way(soon).await? {
            0 => self.unaccounted(subscriptions).await,
            some => Ok(some),
        }
    }

    async fn unaccounted(&mut self, subscriptions: &[Subscribed]) -> Result<i64, StoreError> {
        static UNACCOUNTED: Statement = Statement::new(
            "select count(*) from chapar.outbox o where o.topic = $2 \
             and not exists (select 1 from chapar.inbox i \
                     where i.consumer = $1 and i.event_id = o.event_id and i.tenant = o.tenant) \
             and not exists (select 1 from chapar.dead_letters d \
                     where d.consumer = $1 and d.event_id = o.event_id and d.tenant = o.tenant) \
             and not exists (select 1 from chapar.parked p \
                     where p.consumer = $1 and p.event_id = o.event_id and p.tenant = o.tenant) \
             and not exists (select 1 from chapar.saga_stash t \
                     where t.consumer = $1 and t.event_id = o.event_id and t.tenant = o.tenant)",
        );
        let mut sum = 0;
        for (consumer, topic) in subscriptions {
            sum += self.count_of(&UNACCOUNTED, consumer, topic).await?;
        }
        Ok(sum)
    }

    async fn count_of(
        &mut self,
        statement: &Statement,
        consumer: &str,
        topic: &str,
    ) -> Result<i64, StoreError> {
        let rows = self.0.query(statement, vec![consumer.into(), topic.into()]).await?;
        rows.first().map_or(Ok(0), |row| row.get(0))
    }
}
