//! What an operator can see of parked rows and relays, and do about them.

use jiff::Timestamp;

use crate::audit::AuditEntry;
use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;

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

impl Conn<'_> {
    /// The first parked row of each key, quarantined or not, the oldest first.
    pub async fn parked_rows(
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
        let rows = self.query(&PARKED, args).await?;
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
        if self.run(&RELEASE, vec![seq.into()]).await? == 0 {
            return Ok(false);
        }
        self.audit_row("outbox.release", seq, actor, reason).await?;
        Ok(true)
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
        if self.query(&QUARANTINED, vec![seq.into()]).await?.is_empty() {
            return Ok(false);
        }
        self.leave_parked(vec![seq], true).await?;
        self.audit_row("outbox.drop", seq, actor, reason).await?;
        Ok(true)
    }

    async fn audit_row(
        &mut self,
        action: &str,
        seq: i64,
        actor: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        let target = format!("outbox/{seq}");
        self.audit(&AuditEntry { actor, action, target: &target, reason, detail: "{}" }).await
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

impl Conn<'_> {
    /// The relays whose lease has not expired.
    pub async fn relays(&mut self) -> Result<Vec<RelayCard>, StoreError> {
        static RELAYS: Statement = Statement::new(
            "select r.epoch, r.owner, r.expires_at, \
                 (select count(*) from chapar.shards s where s.epoch = r.epoch) \
             from chapar.relays r where r.expires_at > clock_timestamp() order by r.epoch",
        );
        let rows = self.query(&RELAYS, vec![]).await?;
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
