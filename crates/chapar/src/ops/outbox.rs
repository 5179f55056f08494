//! The outbox: what waits in it, what failed, and publishing again.

use std::time::Duration;

use chapar_sql::{
    KeptCursor, KeptEvent, OutboxFailure, OutboxLag, ParkedRow, QuarantineFilter, Rebased,
    RelayCard, RepublishRequest, Store, StoreError, Tables,
};
use jiff::Timestamp;

use super::Operator;

/// The outbox of a store, for operators.
#[derive(Debug, Clone)]
pub struct Outbox {
    store: Store,
}

/// How far the relays are behind.
#[derive(Debug, Clone)]
pub struct OutboxStatus {
    /// What is committed and not published.
    pub lag: OutboxLag,
    /// The relays that hold a lease.
    pub relays: Vec<RelayCard>,
    /// Keys whose first event failed and is retried.
    pub keys_parked: usize,
    /// Keys whose first event failed permanently.
    pub keys_quarantined: usize,
}

impl Outbox {
    /// The outbox of a store.
    pub fn of(store: &Store) -> Self {
        Outbox { store: store.clone() }
    }

    /// The lag, the running relays and the number of blocked keys.
    pub async fn status(&self) -> Result<OutboxStatus, StoreError> {
        const ALL: usize = usize::MAX >> 1;
        let mut tx = self.store.begin_read().await?;
        let lag = tx.outbox_rows().lag(Timestamp::now()).await?;
        let relays = tx.outbox_rows().relays().await?;
        let keys_parked = tx.outbox_rows().parked(false, ALL).await?.len();
        let keys_quarantined = tx.outbox_rows().parked(true, ALL).await?.len();
        tx.rollback().await?;
        Ok(OutboxStatus { lag, relays, keys_parked, keys_quarantined })
    }

    /// How many events are committed and not published, and since when.
    pub async fn lag(&self) -> Result<OutboxLag, StoreError> {
        let mut tx = self.store.begin_read().await?;
        let lag = tx.outbox_rows().lag(Timestamp::now()).await?;
        tx.rollback().await?;
        Ok(lag)
    }

    /// The relays that hold a lease.
    pub async fn relays(&self) -> Result<Vec<RelayCard>, StoreError> {
        let mut tx = self.store.begin_read().await?;
        let relays = tx.outbox_rows().relays().await?;
        tx.rollback().await?;
        Ok(relays)
    }

    /// The first event of each key that failed and is retried.
    pub async fn parked(&self, limit: usize) -> Result<Vec<ParkedRow>, StoreError> {
        self.heads(false, limit).await
    }

    /// The first event of each key that failed permanently.
    pub async fn quarantined(&self, limit: usize) -> Result<Vec<ParkedRow>, StoreError> {
        self.heads(true, limit).await
    }

    async fn heads(&self, quarantined: bool, limit: usize) -> Result<Vec<ParkedRow>, StoreError> {
        let mut tx = self.store.begin_read().await?;
        let rows = tx.outbox_rows().parked(quarantined, limit).await?;
        tx.rollback().await?;
        Ok(rows)
    }

    /// A parked or quarantined event with everything that is known about it.
    pub async fn failure(&self, seq: i64) -> Result<Option<OutboxFailure>, StoreError> {
        let mut tx = self.store.begin_read().await?;
        let row = tx.outbox_rows().failure(seq).await?;
        tx.rollback().await?;
        Ok(row)
    }

    /// Has the relay retry a quarantined event, which keeps its place in the order of its key.
    /// Returns whether it was in quarantine.
    pub async fn release(&self, seq: i64, by: Operator<'_>) -> Result<bool, StoreError> {
        let mut tx = self.store.begin_engine().await?;
        let done = tx.outbox_rows().release_quarantined(seq, by.name, by.reason).await?;
        tx.commit().await?;
        Ok(done)
    }

    /// Has the relay retry all quarantined events that a filter selects; returns how many.
    pub async fn release_all(
        &self,
        filter: &QuarantineFilter,
        by: Operator<'_>,
    ) -> Result<u64, StoreError> {
        let mut tx = self.store.begin_engine().await?;
        let released = tx.outbox_rows().release_all_quarantined(filter, by.name, by.reason).await?;
        tx.commit().await?;
        Ok(released)
    }

    /// Gives up a quarantined event; the next of its key follows. Returns whether it was in
    /// quarantine.
    pub async fn discard(&self, seq: i64, by: Operator<'_>) -> Result<bool, StoreError> {
        let mut tx = self.store.begin_engine().await?;
        let done = tx.outbox_rows().drop_quarantined(seq, by.name, by.reason).await?;
        tx.commit().await?;
        Ok(done)
    }

    /// Gives the outbox of a restored dump, or of a copy by logical replication, cursors with the
    /// ids of its new cluster: everything that was not published is published next. With
    /// `ids_kept`, after `pg_upgrade`, only the cluster is recorded. Returns `None` if the cursors
    /// belong to this cluster.
    pub async fn rebase(
        &self,
        ids_kept: bool,
        by: Operator<'_>,
    ) -> Result<Option<Rebased>, StoreError> {
        let mut tx = self.store.begin_engine().await?;
        let rebased = tx.outbox_rows().rebase(ids_kept, by.name, by.reason).await?;
        tx.commit().await?;
        Ok(rebased)
    }

    /// Asks the relays to publish again what was published within the time `ago`. Returns the
    /// number of the request.
    pub async fn republish(&self, ago: Duration, by: Operator<'_>) -> Result<i64, StoreError> {
        let mut tx = self.store.begin_engine().await?;
        let id = tx.outbox_rows().ask_to_republish(ago, by.name, by.reason).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// The progress of a request.
    pub async fn republish_request(&self, id: i64) -> Result<Option<RepublishRequest>, StoreError> {
        let mut tx = self.store.begin_read().await?;
        let request = tx.outbox_rows().republish_request(id).await?;
        tx.rollback().await?;
        Ok(request)
    }

    /// The latest requests.
    pub async fn republish_requests(
        &self,
        limit: usize,
    ) -> Result<Vec<RepublishRequest>, StoreError> {
        let mut tx = self.store.begin_read().await?;
        let requests = tx.outbox_rows().republish_requests(limit).await?;
        tx.rollback().await?;
        Ok(requests)
    }

    /// Cancels a request; what was published again stays published. Returns whether it was running.
    pub async fn cancel_republish(&self, id: i64, by: Operator<'_>) -> Result<bool, StoreError> {
        let mut tx = self.store.begin_engine().await?;
        let cancelled = tx.outbox_rows().cancel_republish(id, by.name, by.reason).await?;
        tx.commit().await?;
        Ok(cancelled)
    }

    /// A page of the events that the log and the outbox still have, and where the next page begins.
    pub async fn kept(
        &self,
        topics: &[String],
        since: Timestamp,
        from: KeptCursor,
        limit: i64,
    ) -> Result<(Vec<KeptEvent>, KeptCursor), StoreError> {
        let mut tx = self.store.begin_engine().await?;
        let page = tx.outbox_rows().kept(topics, since, from, limit).await?;
        tx.rollback().await?;
        Ok(page)
    }
}
