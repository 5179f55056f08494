//! What an operator can see of parked rows and relays, and do about them.

use jiff::Timestamp;

use crate::audit::AuditEntry;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::Backend;
use crate::tables::{OutboxRows, Tables};

/// A row of the outbox that could not be published.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ParkedRow {
    pub seq: i64,
    pub event_id: String,
    pub topic: String,
    pub tenant: String,
    pub key: Option<String>,
    pub attempts: i64,
    pub first_failed_at: Option<Timestamp>,
    pub next_attempt_at: Option<Timestamp>,
    pub quarantined_at: Option<Timestamp>,
    pub last_error: Option<String>,
    /// The number of rows of its key that wait behind it.
    pub behind: i64,
}

/// Selects quarantined rows; an empty filter selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuarantineFilter {
    /// Of this tenant.
    pub tenant: Option<String>,
    /// On this topic.
    pub topic: Option<String>,
    /// Whose error contains this text.
    pub error: Option<String>,
}

impl OutboxRows<'_> {
    /// The first parked row of each key, quarantined or not, the oldest first.
    pub async fn parked(
        &mut self,
        quarantined: bool,
        limit: usize,
    ) -> Result<Vec<ParkedRow>, StoreError> {
        static PARKED: Statement = Statement::new(
            "select p.seq, o.event_id, o.topic, o.tenant, p.ordering_key, p.attempts, \
                 p.first_failed_at, p.next_attempt_at, p.quarantined_at, p.last_error, \
                 (select count(*) from chapar.outbox_parked b \
                     where b.ordering_key = p.ordering_key and b.seq > p.seq) \
             from chapar.outbox_parked p \
                 join (select * from chapar.outbox union all select * from chapar.outbox_held) o \
                 on o.seq = p.seq \
             where p.head and (p.quarantined_at is not null) = $1 order by p.seq limit $2",
        );
        let args = vec![quarantined.into(), (limit as i64).into()];
        let rows = self.0.query(&PARKED, args).await?;
        rows.iter().map(parked_row).collect()
    }

    /// Lets the relay retry a quarantined row. It keeps its place in the order of its key, and the
    /// rows behind it follow. Returns whether it was in quarantine.
    pub async fn release_quarantined(
        &mut self,
        seq: i64,
        actor: &str,
        reason: &str,
    ) -> Result<bool, StoreError> {
        static RELEASE: Statement = Statement::new(
            "update chapar.outbox_parked set quarantined_at = null, next_attempt_at = null, \
             attempts = 0, first_failed_at = null where seq = $1 and quarantined_at is not null",
        );
        if self.0.run(&RELEASE, vec![seq.into()]).await? == 0 {
            return Ok(false);
        }
        self.audit_row("outbox.release", seq, actor, reason).await?;
        Ok(true)
    }

    /// Lets the relay retry all quarantined rows that a filter selects; returns how many.
    pub async fn release_all_quarantined(
        &mut self,
        filter: &QuarantineFilter,
        actor: &str,
        reason: &str,
    ) -> Result<u64, StoreError> {
        static RELEASE: Statement = Statement::new(
            "update chapar.outbox_parked set quarantined_at = null, next_attempt_at = null, \
             attempts = 0, first_failed_at = null where quarantined_at is not null \
             and ($1::text is null or tenant = $1) and ($2::text is null or exists (select 1 from (select seq, topic \
                 from chapar.outbox union all select seq, topic from chapar.outbox_held) o \
                 where o.seq = chapar.outbox_parked.seq and o.topic = $2)) \
             and ($3::text is null or strpos(coalesce(last_error, ''), $3) > 0)",
        );
        let QuarantineFilter { tenant, topic, error } = filter;
        let args = vec![tenant.clone().into(), topic.clone().into(), error.clone().into()];
        let released = self.0.run(&RELEASE, args).await?;
        let detail = serde_json::json!({
            "tenant": tenant, "topic": topic, "error": error, "released": released,
        });
        let (action, detail) = ("outbox.release", detail.to_string());
        self.0
            .audit_log()
            .record(&AuditEntry { actor, action, target: "outbox", reason, detail: &detail })
            .await?;
        Ok(released)
    }

    /// Drops a quarantined row: it is never published, also by no republish request, and the next
    /// row of its key becomes the head. The event itself stays in the store. Returns whether it
    /// was in quarantine.
    pub async fn drop_quarantined(
        &mut self,
        seq: i64,
        actor: &str,
        reason: &str,
    ) -> Result<bool, StoreError> {
        static QUARANTINED: Statement = Statement::new(
            "select 1 from chapar.outbox_parked where seq = $1 and quarantined_at is not null",
        );
        self.stop_parking(seq).await?;
        if self.0.query(&QUARANTINED, vec![seq.into()]).await?.is_empty() {
            return Ok(false);
        }
        self.leave_parked(vec![seq], true).await?;
        self.audit_row("outbox.drop", seq, actor, reason).await?;
        Ok(true)
    }

    /// Keeps the relay that holds a row's shard from writing until commit, and its shard with it: a
    /// row that is parked meanwhile behind a head that goes would have no head.
    async fn stop_parking(&mut self, seq: i64) -> Result<(), StoreError> {
        const RELAY: &str = "select r.epoch from chapar.relays r where r.epoch = ( \
                 select s.epoch from chapar.outbox_parked p join chapar.shards s \
                     on s.shard = p.shard where p.seq = $1) for update";
        const SHARD: &str = "select s.epoch from chapar.shards s where s.shard = ( \
                 select p.shard from chapar.outbox_parked p where p.seq = $1) for update";
        if self.0.backend() == Backend::Sqlite {
            return Ok(());
        }
        loop {
            let relay = self.0.fetch(RELAY, vec![seq.into()]).await?;
            let relay: Option<i64> = relay.first().map(|row| row.get(0)).transpose()?;
            let shard = self.0.fetch(SHARD, vec![seq.into()]).await?;
            let Some(shard) = shard.first() else { return Ok(()) };
            let holder: Option<i64> = shard.get(0)?;
            // A holder without a row has lost its lease and writes nothing.
            if holder == relay || relay.is_none() && !self.is_a_lease(holder).await? {
                return Ok(());
            }
        }
    }

    async fn is_a_lease(&mut self, epoch: Option<i64>) -> Result<bool, StoreError> {
        static LEASE: Statement = Statement::new("select 1 from chapar.relays where epoch = $1");
        Ok(!self.0.query(&LEASE, vec![epoch.into()]).await?.is_empty())
    }

    async fn audit_row(
        &mut self,
        action: &str,
        seq: i64,
        actor: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        let target = format!("outbox/{seq}");
        self.0
            .audit_log()
            .record(&AuditEntry { actor, action, target: &target, reason, detail: "{}" })
            .await
    }
}

fn parked_row(row: &crate::value::Row) -> Result<ParkedRow, StoreError> {
    Ok(ParkedRow {
        seq: row.get(0)?,
        event_id: row.get(1)?,
        topic: row.get(2)?,
        tenant: row.get(3)?,
        key: row.get(4)?,
        attempts: row.get(5)?,
        first_failed_at: row.get(6)?,
        next_attempt_at: row.get(7)?,
        quarantined_at: row.get(8)?,
        last_error: row.get(9)?,
        behind: row.get(10)?,
    })
}

/// A relay that holds a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RelayCard {
    pub epoch: i64,
    pub owner: String,
    pub expires_at: Timestamp,
    pub shards: i64,
}

impl OutboxRows<'_> {
    /// The relays whose lease has not expired.
    pub async fn relays(&mut self) -> Result<Vec<RelayCard>, StoreError> {
        static RELAYS: Statement = Statement::new(
            "select r.epoch, r.owner, r.expires_at, \
                 (select count(*) from chapar.shards s where s.epoch = r.epoch) \
             from chapar.relays r where r.expires_at > clock_timestamp() order by r.epoch",
        );
        let rows = self.0.query(&RELAYS, vec![]).await?;
        rows.iter()
            .map(|row| {
                Ok(RelayCard {
                    epoch: row.get(0)?,
                    owner: row.get(1)?,
                    expires_at: row.get(2)?,
                    shards: row.get(3)?,
                })
            })
            .collect()
    }
}
