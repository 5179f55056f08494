//! Republishing, the operator's side: requests are asked for, watched and cancelled here. The
//! relays carry them out.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::audit::AuditEntry;
use crate::error::StoreError;
use crate::outbox::{micros, republish};
use crate::statement::Statement;
use crate::tables::{OutboxRows, Tables};
use crate::value::Row;

/// A request to publish events again.
#[derive(Debug, Clone, PartialEq)]
pub struct RepublishRequest {
    /// Its number.
    pub id: i64,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// Who asked.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// It covers everything that was published since then.
    pub since: Timestamp,
    /// Events that the transport has taken again so far.
    pub published: i64,
    /// Events that it did not take: they are parked with their keys, and retried.
    pub parked: i64,
    /// When it was done or cancelled.
    pub ended_at: Option<Timestamp>,
    /// Whether it was cancelled.
    pub cancelled: bool,
    /// The share of the outbox that is done, from 0 to 1.
    pub share: f64,
}

macro_rules! requests {
    ($which:literal) => {
        concat!(
            "select id, asked_at, actor, reason, since, published, parked, ended_at, cancelled \
             from chapar.republish_requests ",
            $which
        )
    };
}

impl OutboxRows<'_> {
    /// Asks the relays to publish everything again that was published within the time `ago`, by
    /// the database's clock. Returns the number of the request.
    ///
    /// It may cover more: how far the relays are is noted once a minute.
    pub async fn ask_to_republish(
        &mut self,
        ago: Duration,
        actor: &str,
        reason: &str,
    ) -> Result<i64, StoreError> {
        static SINCE: Statement =
            Statement::new("select clock_timestamp() - $1 * interval '1 microsecond'");
        static FLOOR: Statement = Statement::new(
            "select floor from chapar.relayed where at <= $1 order by at desc limit 1",
        );
        // What an earlier request has published again since then was published since then. The
        // minute is for a relay that has not noticed a cancellation.
        static EARLIER: Statement = Statement::new(
            "select min(since), min(from_seq) from chapar.republish_requests \
             where ended_at is null or (published > 0 and ended_at >= $1)",
        );
        static ASK: Statement = Statement::new(
            "insert into chapar.republish_requests (asked_at, actor, reason, since, from_seq) \
             values (clock_timestamp(), $1, $2, $3, $4) returning id",
        );
        let missing = StoreError::Cell { column: 0, expected: "a time" };
        let rows = self.0.query(&SINCE, vec![micros(ago).into()]).await?;
        let mut since: Timestamp = rows.first().ok_or(missing)?.get(0)?;
        let rows = self.0.query(&FLOOR, vec![since.into()]).await?;
        let mut from: i64 = rows.first().map_or(Ok(0), |row| row.get(0))?;
        let margin = since.saturating_sub(Duration::from_secs(60)).unwrap_or(since);
        if let Some(row) = self.0.query(&EARLIER, vec![margin.into()]).await?.first()
            && let Some(earlier) = row.get::<Option<Timestamp>>(0)?
        {
            since = since.min(earlier);
            from = from.min(row.get(1)?);
        }
        let args = vec![actor.into(), reason.into(), since.into(), from.into()];
        let rows = self.0.query(&ASK, args).await?;
        let missing = StoreError::Cell { column: 0, expected: "the number of a request" };
        let id: i64 = rows.first().ok_or(missing)?.get(0)?;
        let detail = json!({ "since": since, "above": from }).to_string();
        self.audit_request("outbox.republish", id, actor, reason, &detail).await?;
        Ok(id)
    }

    /// Ends a request before it is done; the relays notice within seconds. Returns whether there
    /// was one to cancel.
    pub async fn cancel_republish(
        &mut self,
        id: i64,
        actor: &str,
        reason: &str,
    ) -> Result<bool, StoreError> {
        static CANCEL: Statement = Statement::new(
            "update chapar.republish_requests set ended_at = clock_timestamp(), cancelled = $2 \
             where id = $1 and ended_at is null",
        );
        if self.0.run(&CANCEL, vec![id.into(), true.into()]).await? == 0 {
            return Ok(false);
        }
        self.audit_request("outbox.republish.cancel", id, actor, reason, "{}").await?;
        Ok(true)
    }

    /// A request, by its number.
    pub async fn republish_request(
        &mut self,
        id: i64,
    ) -> Result<Option<RepublishRequest>, StoreError> {
        static ONE: Statement = Statement::new(requests!("where id = $1"));
        let rows = self.0.query(&ONE, vec![id.into()]).await?;
        match rows.first() {
            Some(row) => Ok(Some(self.request(row).await?)),
            None => Ok(None),
        }
    }

    /// The latest requests, newest first.
    pub async fn republish_requests(
        &mut self,
        limit: usize,
    ) -> Result<Vec<RepublishRequest>, StoreError> {
        static LATEST: Statement = Statement::new(requests!("order by id desc limit $1"));
        let mut requests = Vec::new();
        for row in self.0.query(&LATEST, vec![(limit as i64).into()]).await? {
            requests.push(self.request(&row).await?);
        }
        Ok(requests)
    }

    async fn request(&mut self, row: &Row) -> Result<RepublishRequest, StoreError> {
        let mut request = RepublishRequest {
            id: row.get(0)?,
            asked_at: row.get(1)?,
            actor: row.get(2)?,
            reason: row.get(3)?,
            since: row.get(4)?,
            published: row.get(5)?,
            parked: row.get(6)?,
            ended_at: row.get(7)?,
            cancelled: row.get(8)?,
            share: 1.0,
        };
        if request.ended_at.is_none() {
            let shares = republish::shares(&mut self.0, request.id).await?;
            request.share = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        }
        Ok(request)
    }

    async fn audit_request(
        &mut self,
        action: &str,
        id: i64,
        actor: &str,
        reason: &str,
        detail: &str,
    ) -> Result<(), StoreError> {
        let target = format!("outbox/republish/{id}");
        self.0
            .audit_log()
            .record(&AuditEntry { actor, action, target: &target, reason, detail })
            .await
    }
}
