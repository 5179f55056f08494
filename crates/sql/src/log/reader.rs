//! Reading the log without a subscription.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chapar_core::port::{BoxFuture, Kept, ReadFrom, Reader, TransportError};

use super::subscription::delivery;
use super::unavailable;
use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::Store;
use crate::tables::Tables;
use crate::value::Row;

/// Reads the partitions of the log.
pub(super) struct LogReader {
    store: Store,
    topics: Vec<String>,
    /// The next offset of each partition.
    next: BTreeMap<u32, i64>,
    /// The heads as they were when it was opened.
    heads: BTreeMap<u32, i64>,
    turn: usize,
}

impl LogReader {
    pub(super) async fn open(
        store: Store,
        topics: &[String],
        from: ReadFrom,
    ) -> Result<Self, StoreError> {
        let mut tx = store.begin_read().await?;
        let heads = tx.cursors().heads().await?;
        let mut next = BTreeMap::new();
        for (&partition, &head) in &heads {
            let first = match &from {
                ReadFrom::Beginning => 1,
                ReadFrom::End => head,
                ReadFrom::Time(at) => tx.cursors().offset_at(partition, *at).await?,
                ReadFrom::Behind(offsets) => {
                    offsets.get(&partition).map_or(1, |offset| *offset as i64 + 1)
                }
            };
            next.insert(partition, first);
        }
        tx.rollback().await?;
        Ok(LogReader { store, topics: topics.to_vec(), next, heads, turn: 0 })
    }

    async fn poll(&mut self, max: usize) -> Result<Vec<Kept>, StoreError> {
        let mut tx = self.store.begin_read().await?;
        let mut conn = tx.conn();
        let mut heads: Vec<(u32, i64)> = conn.cursors().heads().await?.into_iter().collect();
        // Start with another partition each time, so that a busy one does not starve the rest.
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn % heads.len().max(1);
        heads.rotate_left(first);
        let mut found = Vec::new();
        for (partition, head) in heads {
            let room = max - found.len();
            let next = self.next.entry(partition).or_insert(1);
            if room == 0 || *next >= head {
                continue;
            }
            let rows = stretch(&mut conn, partition, *next, head, &self.topics, room).await?;
            *next = match rows.last() {
                Some(last) if rows.len() == room => last.get::<i64>(1)? + 1,
                // No other message below the head is on these topics.
                _ => head,
            };
            for row in &rows {
                found.push(Kept { id: row.get(7)?, tenant: row.get(8)?, delivery: delivery(row)? });
            }
        }
        tx.rollback().await?;
        Ok(found)
    }
}

impl Reader for LogReader {
    fn read(
        &mut self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Kept>, TransportError>> {
        Box::pin(async move {
            let deadline = Instant::now() + wait;
            let mut nudges = self.store.nudges();
            loop {
                let found = self.poll(max).await.map_err(unavailable)?;
                let left = deadline.saturating_duration_since(Instant::now());
                if !found.is_empty() || left.is_zero() {
                    return Ok(found);
                }
                nudges.wait(left.min(Duration::from_millis(50))).await;
            }
        })
    }

    fn is_caught_up(&self) -> bool {
        self.heads
            .iter()
            .all(|(partition, head)| self.next.get(partition).is_some_and(|next| next >= head))
    }
}

async fn stretch(
    conn: &mut Conn<'_>,
    partition: u32,
    next: i64,
    head: i64,
    topics: &[String],
    room: usize,
) -> Result<Vec<Row>, StoreError> {
    static STRETCH: Statement = Statement::new(
        "select log_partition, log_offset, topic, ordering_key, headers, body, published_at, \
         event_id, tenant from chapar.log where log_partition = $1 and log_offset >= $2 \
         and log_offset < $3 and topic = any($4) order by log_offset limit $5",
    );
    let args = vec![
        partition.into(),
        next.into(),
        head.into(),
        topics.to_vec().into(),
        (room as i64).into(),
    ];
    conn.query(&STRETCH, args).await
}
