//! The transport that needs no broker: a log in the database.
//!
//! Partitions have dense offsets. Publishing locks the head of a partition until commit, so
//! offsets become visible in order, and a reader that has seen one has seen all before it. A
//! subscription has one cursor per partition. Which process owns it is decided by
//! [`chapar_core::machine::ownership`]; `lease` stores it in rows.

mod lease;
mod plan;
mod publish;
mod reader;
mod subscription;
pub(crate) mod topics;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use chapar_core::port::{
    BoxFuture, Difference, Features, Outgoing, Position, ReadFrom, Reader, Receipt, SeekTo,
    Subscription, SubscriptionSpec, TopicSpec, Topology, Transport, TransportError,
};

use self::publish::publish;
use self::reader::LogReader;
use self::subscription::SqlSubscription;
use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::Store;
use crate::tables::Tables;
use crate::value::Row;

/// A transport in a store.
#[derive(Debug, Clone)]
pub struct SqlTransport {
    store: Store,
    owner: Arc<str>,
    lease: Duration,
}

impl SqlTransport {
    /// A transport in this store. `owner` names this process, and must differ between processes
    /// that run at the same time.
    pub fn new(store: Store, owner: &str) -> Self {
        SqlTransport { store, owner: owner.into(), lease: Duration::from_secs(4) }
    }

    /// The lease: how long a crashed process keeps its partitions. A process that neither fetches
    /// nor calls [`Subscription::keep_alive`] for that long loses them too. Default 4 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }
}

impl Transport for SqlTransport {
    fn features(&self) -> Features {
        Features {
            ordered_in_flight: true,
            ordered_topics: true,
            seek_time: true,
            seek_position: true,
            delayed_nack: true,
            mebibyte: true,
            in_store: true,
        }
    }

    fn apply<'a>(
        &'a self,
        _topics: &'a [TopicSpec],
        subscriptions: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut tx = self.store.begin_engine().await.map_err(unavailable)?;
            for spec in subscriptions {
                topics::subscribe(&mut tx.conn(), spec).await.map_err(unavailable)?;
            }
            tx.commit().await.map_err(unavailable)
        })
    }

    fn publish(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>> {
        Box::pin(self.publish_or_divide(batch))
    }

    fn subscribe<'a>(
        &'a self,
        spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        Box::pin(async move {
            let subscription = SqlSubscription::new(self.clone(), spec);
            subscription.join().await.map_err(unavailable)?;
            Ok(Box::new(subscription) as Box<dyn Subscription>)
        })
    }

    fn seek<'a>(
        &'a self,
        subscription: &'a str,
        to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut tx = self.store.begin_engine().await.map_err(unavailable)?;
            seek(&mut tx.conn(), subscription, to).await.map_err(unavailable)?;
            tx.commit().await.map_err(unavailable)?;
            self.store.nudge();
            Ok(())
        })
    }

    fn plan<'a>(
        &'a self,
        wanted: &'a Topology,
    ) -> BoxFuture<'a, Result<Vec<Difference>, TransportError>> {
        Box::pin(self.differences(wanted))
    }

    fn carry_out<'a>(
        &'a self,
        _wanted: &'a Topology,
        difference: &'a Difference,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.settle(difference))
    }

    fn read<'a>(
        &'a self,
        topics: &'a [String],
        from: ReadFrom,
    ) -> BoxFuture<'a, Result<Box<dyn Reader>, TransportError>> {
        Box::pin(async move {
            let reader = LogReader::open(self.store.clone(), topics, from).await;
            Ok(Box::new(reader.map_err(unavailable)?) as Box<dyn Reader>)
        })
    }
}

impl SqlTransport {
    /// Publishes a batch in one transaction. If the database refuses the data, the batch is divided
    /// until the message that it refuses is alone; later messages of its key wait.
    async fn publish_or_divide(
        &self,
        batch: Vec<Outgoing>,
    ) -> Vec<Result<Receipt, TransportError>> {
        let mut answers: Vec<Result<Receipt, TransportError>> = Vec::with_capacity(batch.len());
        let mut failed: HashSet<&str> = HashSet::new();
        let mut parts = vec![batch.as_slice()];
        while let Some(part) = parts.pop() {
            let behind =
                |message: &Outgoing| message.key.as_deref().is_some_and(|key| failed.contains(key));
            let error = if part.iter().any(behind) {
                None
            } else {
                match self.publish_all(part).await {
                    Ok(receipts) => {
                        answers.extend(receipts.into_iter().map(Ok));
                        continue;
                    }
                    Err(error) => Some(error),
                }
            };
            if part.len() > 1 && error.as_ref().is_none_or(StoreError::is_of_data) {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
                continue;
            }
            failed.extend(part.iter().filter_map(|message| message.key.as_deref()));
            let refused = error.as_ref().is_some_and(StoreError::is_of_data);
            let text = error.map_or_else(
                || "an earlier message of its key was not published".to_owned(),
                |error| error.to_string(),
            );
            answers.extend(part.iter().map(|_| match refused {
                true => Err(TransportError::Refused(text.clone())),
                false => Err(TransportError::Unavailable(text.clone())),
            }));
        }
        answers
    }

    async fn publish_all(&self, batch: &[Outgoing]) -> Result<Vec<Receipt>, StoreError> {
        let mut tx = self.store.begin_engine().await?;
        let receipts = publish(&mut tx.conn(), batch).await?;
        tx.commit().await?;
        self.store.nudge();
        Ok(receipts)
    }
}

fn unavailable(error: StoreError) -> TransportError {
    TransportError::Unavailable(error.to_string())
}

async fn seek(conn: &mut Conn<'_>, subscription: &str, to: SeekTo) -> Result<(), StoreError> {
    // The new epoch ends all deliveries, and makes the next owner start at the new cursor.
    static TO_OFFSET: Statement = Statement::new(
        "update chapar.cursors set acked_offset = $3, owner = null, epoch = epoch + 1, \
         expires_at = clock_timestamp() where subscription = $1 and log_partition = $2",
    );
    static TO_END: Statement = Statement::new(
        "update chapar.cursors as c set acked_offset = (select next_offset - 1 from chapar.log_heads h \
         where h.log_partition = c.log_partition), owner = null, epoch = epoch + 1, \
         expires_at = clock_timestamp() where subscription = $1",
    );
    static TO_START: Statement = Statement::new(
        "update chapar.cursors set acked_offset = 0, owner = null, epoch = epoch + 1, \
         expires_at = clock_timestamp() where subscription = $1",
    );
    static TO_TIME: Statement = Statement::new(
        "update chapar.cursors as c set acked_offset = coalesce((select min(log_offset) - 1 \
         from chapar.log l where l.log_partition = c.log_partition and l.published_at >= $2), \
         (select next_offset - 1 from chapar.log_heads h where h.log_partition = c.log_partition)), \
         owner = null, epoch = epoch + 1, expires_at = clock_timestamp() where subscription = $1",
    );
    let partition = match &to {
        SeekTo::Position(position) => Some(position.partition),
        _ => None,
    };
    topics::start_at_cursor(conn, subscription, partition).await?;
    match to {
        SeekTo::Beginning => conn.run(&TO_START, vec![subscription.into()]).await?,
        SeekTo::End => conn.run(&TO_END, vec![subscription.into()]).await?,
        SeekTo::Time(at) => conn.run(&TO_TIME, vec![subscription.into(), at.into()]).await?,
        SeekTo::Position(position) => {
            let before = (position.offset as i64).saturating_sub(1);
            let args = vec![subscription.into(), position.partition.into(), before.into()];
            conn.run(&TO_OFFSET, args).await?
        }
    };
    Ok(())
}

fn position(row: &Row, first: usize) -> Result<Position, StoreError> {
    Ok(Position {
        partition: row.get::<i64>(first)? as u32,
        offset: row.get::<i64>(first + 1)? as u64,
    })
}
