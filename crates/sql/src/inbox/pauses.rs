//! Pauses: consumers that an operator has stopped until they are resumed, or that a seek holds.

use std::time::Duration;

use jiff::Timestamp;

use crate::error::StoreError;
use crate::outbox::micros;
use crate::statement::Statement;
use crate::tables::Consumers;

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

impl Consumers<'_> {
    /// The consumers that have run on this store.
    pub async fn list(&mut self) -> Result<Vec<ConsumerCard>, StoreError> {
        static CONSUMERS: Statement = Statement::new(
            "select r.subscription, min(r.service), count(*), max(r.last_seen), \
             (select count(*) from chapar.dead_letters d where d.consumer = r.subscription \
              and d.status <> 'closed'), \
             (select count(*) from chapar.parked p where p.consumer = r.subscription), \
             (select reason from chapar.pauses z where z.consumer = r.subscription), \
             (select paused_at from chapar.pauses z where z.consumer = r.subscription) \
             from chapar.topic_readers r group by r.subscription order by r.subscription",
        );
        let rows = self.0.query(&CONSUMERS, vec![]).await?;
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

    /// Pauses a consumer, in all its processes; false if an operator has paused it already. A hold
    /// becomes a pause, which its seek does not end.
    pub async fn pause(&mut self, consumer: &str, reason: &str) -> Result<bool, StoreError> {
        static PAUSE: Statement = Statement::new(
            "insert into chapar.pauses as p (consumer, reason, paused_at) \
             values ($1, $2, clock_timestamp()) on conflict (consumer) do update \
             set reason = excluded.reason, paused_at = excluded.paused_at, holder = null, \
             expires_at = null where p.holder is not null",
        );
        Ok(self.0.run(&PAUSE, vec![consumer.into(), reason.into()]).await? == 1)
    }

    /// Resumes a consumer; false if it was not paused.
    pub async fn resume(&mut self, consumer: &str) -> Result<bool, StoreError> {
        static RESUME: Statement = Statement::new("delete from chapar.pauses where consumer = $1");
        Ok(self.0.run(&RESUME, vec![consumer.into()]).await? == 1)
    }

    /// Pauses a consumer for a seek, which has to extend the hold in time.
    pub async fn hold(&mut self, consumer: &str, hold: &Hold) -> Result<Paused, StoreError> {
        static HOLD: Statement = Statement::new(
            "insert into chapar.pauses as p (consumer, reason, paused_at, holder, expires_at) \
             values ($1, $2, clock_timestamp(), $3, \
                 clock_timestamp() + $4 * interval '1 microsecond') \
             on conflict (consumer) do update set reason = excluded.reason, \
             paused_at = excluded.paused_at, holder = excluded.holder, \
             expires_at = excluded.expires_at where p.expires_at <= clock_timestamp()",
        );
        let args = vec![
            consumer.into(),
            hold.reason.into(),
            hold.holder.as_str().into(),
            micros(hold.ttl).into(),
        ];
        if self.0.run(&HOLD, args).await? == 1 {
            return Ok(Paused::Held);
        }
        Ok(match self.holder(consumer).await? {
            Some((None, _)) => Paused::ByOperator,
            _ => Paused::ByAnother,
        })
    }

    /// Extends a hold; false if the consumer is not paused any more.
    pub async fn extend_hold(&mut self, consumer: &str, hold: &Hold) -> Result<bool, StoreError> {
        static EXTEND: Statement = Statement::new(
            "update chapar.pauses set expires_at = case when holder is not null \
             then clock_timestamp() + $3 * interval '1 microsecond' end \
             where consumer = $1 and (holder is null or holder = $2)",
        );
        let args = vec![consumer.into(), hold.holder.as_str().into(), micros(hold.ttl).into()];
        Ok(self.0.run(&EXTEND, args).await? == 1)
    }

    /// Ends a hold; a pause by an operator stays.
    pub async fn end_hold(&mut self, consumer: &str, hold: &Hold) -> Result<(), StoreError> {
        static END: Statement =
            Statement::new("delete from chapar.pauses where consumer = $1 and holder = $2");
        self.0.run(&END, vec![consumer.into(), hold.holder.as_str().into()]).await?;
        Ok(())
    }

    /// Ends a hold that was not extended in time; false if there is none.
    pub async fn end_abandoned_hold(&mut self, consumer: &str) -> Result<bool, StoreError> {
        static END: Statement = Statement::new(
            "delete from chapar.pauses where consumer = $1 and expires_at <= clock_timestamp()",
        );
        Ok(self.0.run(&END, vec![consumer.into()]).await? == 1)
    }

    /// Whether a consumer is paused.
    pub async fn pause_of(&mut self, consumer: &str) -> Result<Pause, StoreError> {
        Ok(match self.holder(consumer).await? {
            None => Pause::None,
            Some((_, true)) => Pause::Abandoned,
            Some(_) => Pause::InForce,
        })
    }

    /// The holder of a pause, if it is a hold, and whether it has expired.
    async fn holder(
        &mut self,
        consumer: &str,
    ) -> Result<Option<(Option<String>, bool)>, StoreError> {
        static HOLDER: Statement = Statement::new(
            "select holder, coalesce(expires_at <= clock_timestamp(), false) \
             from chapar.pauses where consumer = $1",
        );
        let rows = self.0.query(&HOLDER, vec![consumer.into()]).await?;
        rows.first().map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
    }
}

/// A pause that lasts as long as its holder extends it. A holder that died must not stop a consumer
/// for good.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Hold {
    pub holder: String,
    pub reason: &'static str,
    pub ttl: Duration,
}

/// What became of a request to hold a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// It is held.
    Held,
    /// An operator has paused it, which holds it as well.
    ByOperator,
    /// Another seek holds it.
    ByAnother,
}

/// The pause of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// It is not paused.
    None,
    /// It is paused.
    InForce,
    /// A seek held it, and did not extend the hold.
    Abandoned,
}
