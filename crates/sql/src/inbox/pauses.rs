//! Pauses: consumers that an operator has stopped until they are resumed.

use jiff::Timestamp;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;

/// A consumer that has run on a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ConsumerCard {
    pub consumer: String,
    pub service: String,
    pub topics: i64,
    /// When it was last active, to the minute.
    pub last_seen: Timestamp,
    pub dead_letters: i64,
    pub parked: i64,
    /// The reason of its pause, if it is paused.
    pub paused: Option<String>,
    pub paused_at: Option<Timestamp>,
}

impl Conn<'_> {
    /// The consumers that have run on this store.
    pub async fn consumers(&mut self) -> Result<Vec<ConsumerCard>, StoreError> {
        static CONSUMERS: Statement = Statement::new(
            "select r.subscription, min(r.service), count(*), max(r.last_seen), \
             (select count(*) from chapar.dead_letters d where d.consumer = r.subscription \
              and d.status <> 'closed'), \
             (select count(*) from chapar.parked p where p.consumer = r.subscription), \
             (select reason from chapar.pauses z where z.consumer = r.subscription), \
             (select paused_at from chapar.pauses z where z.consumer = r.subscription) \
             from chapar.topic_readers r group by r.subscription order by r.subscription",
        );
        let rows = self.query(&CONSUMERS, vec![]).await?;
        let card = |row: &crate::Row| {
            Ok(ConsumerCard {
                consumer: row.get(0)?,
                service: row.get(1)?,
                topics: row.get(2)?,
                last_seen: row.get(3)?,
                dead_letters: row.get(4)?,
                parked: row.get(5)?,
                paused: row.get(6)?,
                paused_at: row.get(7)?,
            })
        };
        rows.iter().map(card).collect()
    }

    /// Pauses a consumer, in all its processes; false if it is already paused.
    pub async fn pause(&mut self, consumer: &str, reason: &str) -> Result<bool, StoreError> {
        static PAUSE: Statement = Statement::new(
            "insert into chapar.pauses (consumer, reason, paused_at) \
             values ($1, $2, clock_timestamp()) on conflict do nothing",
        );
        Ok(self.run(&PAUSE, vec![consumer.into(), reason.into()]).await? == 1)
    }

    /// Resumes a consumer; false if it was not paused.
    pub async fn resume(&mut self, consumer: &str) -> Result<bool, StoreError> {
        static RESUME: Statement = Statement::new("delete from chapar.pauses where consumer = $1");
        Ok(self.run(&RESUME, vec![consumer.into()]).await? == 1)
    }

    /// Whether a consumer is paused.
    pub async fn is_paused(&mut self, consumer: &str) -> Result<bool, StoreError> {
        static PAUSED: Statement =
            Statement::new("select 1 from chapar.pauses where consumer = $1");
        Ok(!self.query(&PAUSED, vec![consumer.into()]).await?.is_empty())
    }
}
