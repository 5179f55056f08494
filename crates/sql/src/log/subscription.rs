//! Reading the log: one process's part of a subscription.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chapar_core::port::{BoxFuture, Delivery, Position, Subscription, Token, TransportError};
use tokio::sync::Mutex;

use super::{SqlTransport, position, unavailable};
use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::from_json_pairs;
use crate::statement::Statement;
use crate::value::Row;

/// One process's part of a subscription.
pub(super) struct SqlSubscription {
    transport: SqlTransport,
    name: String,
    max_in_flight: usize,
    state: Mutex<State>,
}

impl SqlSubscription {
    pub(super) fn new(transport: SqlTransport, name: String, max_in_flight: usize) -> Self {
        SqlSubscription { transport, name, max_in_flight, state: Mutex::default() }
    }
}

#[derive(Default)]
struct State {
    leased_at: Option<Instant>,
    flushed_at: Option<Instant>,
    owned: BTreeMap<u32, Owned>,
}

/// A partition that this process owns.
struct Owned {
    epoch: i64,
    /// Everything up to here has been looked at.
    read_to: u64,
    /// Delivered and not acknowledged.
    in_flight: BTreeSet<u64>,
    /// To be delivered again, not before then.
    again: BTreeMap<u64, (Instant, u32)>,
    /// The cursor as the database has it.
    flushed: u64,
}

impl Owned {
    /// Everything up to here is acknowledged.
    fn acked(&self) -> u64 {
        let first = self.in_flight.first().copied();
        let again = self.again.keys().next().copied();
        match first.into_iter().chain(again).min() {
            Some(offset) => offset - 1,
            None => self.read_to,
        }
    }
}

impl Subscription for SqlSubscription {
    fn fetch(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(async move {
            let deadline = Instant::now() + wait;
            let mut nudges = self.transport.store.nudges();
            loop {
                let deliveries = self.poll(max).await.map_err(unavailable)?;
                let left = deadline.saturating_duration_since(Instant::now());
                if !deliveries.is_empty() || left.is_zero() {
                    return Ok(deliveries);
                }
                // A nudge comes from this process only: others are found by looking again.
                nudges.wait(left.min(Duration::from_millis(50))).await;
            }
        })
    }

    fn ack<'a>(&'a self, tokens: &'a [Token]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.state.lock().await;
            let mut ours = true;
            for token in tokens {
                match state.owned.get_mut(&token.position.partition) {
                    Some(owned) if token.handle.as_deref() == Some(&*owned.epoch.to_string()) => {
                        owned.in_flight.remove(&token.position.offset);
                        owned.again.remove(&token.position.offset);
                    }
                    _ => ours = false,
                }
            }
            self.flush(&mut state, false).await.map_err(unavailable)?;
            if ours { Ok(()) } else { Err(TransportError::Expired) }
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a Token,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.state.lock().await;
            let owned = state.owned.get_mut(&token.position.partition);
            let owned = owned.ok_or(TransportError::Expired)?;
            if owned.in_flight.remove(&token.position.offset) {
                let attempt = owned.again.get(&token.position.offset).map_or(1, |(_, n)| *n);
                owned.again.insert(token.position.offset, (Instant::now() + delay, attempt + 1));
            }
            Ok(())
        })
    }

    fn extend<'a>(&'a self, tokens: &'a [Token]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.state.lock().await;
            self.keep_leases(&mut state).await.map_err(unavailable)?;
            let ours = |token: &Token| state.owned.contains_key(&token.position.partition);
            if tokens.iter().all(ours) { Ok(()) } else { Err(TransportError::Expired) }
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        static RELEASE: Statement = Statement::new(
            "update chapar.cursors set owner = null, expires_at = clock_timestamp() \
             where subscription = $1 and owner = $2",
        );
        Box::pin(async move {
            let mut state = self.state.lock().await;
            self.flush(&mut state, true).await.map_err(unavailable)?;
            state.owned.clear();
            state.leased_at = None;
            let mut tx = self.transport.store.begin_engine().await.map_err(unavailable)?;
            let args = vec![(&self.name).into(), (&*self.transport.owner).into()];
            tx.conn().run(&RELEASE, args).await.map_err(unavailable)?;
            tx.commit().await.map_err(unavailable)
        })
    }
}

impl SqlSubscription {
    async fn poll(&self, max: usize) -> Result<Vec<Delivery>, StoreError> {
        static HEADS: Statement =
            Statement::new("select log_partition, next_offset from chapar.log_heads");
        let mut state = self.state.lock().await;
        self.keep_leases(&mut state).await?;
        self.flush(&mut state, false).await?;
        let held: usize = state.owned.values().map(|owned| owned.in_flight.len()).sum();
        let mut room = max.min(self.max_in_flight.saturating_sub(held));
        let mut tx = self.transport.store.begin_read().await?;
        let mut conn = tx.conn();
        let mut deliveries = Vec::new();
        for row in conn.query(&HEADS, vec![]).await? {
            let head = position(&row, 0)?;
            let Some(owned) = state.owned.get_mut(&head.partition) else { continue };
            if room == 0 {
                break;
            }
            let found = self.read(&mut conn, owned, head, room).await?;
            room -= found.len();
            deliveries.extend(found);
        }
        tx.rollback().await?;
        Ok(deliveries)
    }

    async fn read(
        &self,
        conn: &mut Conn<'_>,
        owned: &mut Owned,
        head: Position,
        room: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        static NEXT: Statement = Statement::new(
            "select log_partition, log_offset, topic, ordering_key, headers, body, published_at \
             from chapar.log where log_partition = $1 and log_offset > $2 and log_offset < $3 \
             and topic in (select topic from chapar.subscriptions where subscription = $4) \
             order by log_offset limit $5",
        );
        static ONE: Statement = Statement::new(
            "select log_partition, log_offset, topic, ordering_key, headers, body, published_at \
             from chapar.log where log_partition = $1 and log_offset = $2",
        );
        let mut deliveries = Vec::new();
        let now = Instant::now();
        let due: Vec<u64> =
            owned.again.iter().filter(|(_, (at, _))| *at <= now).map(|(o, _)| *o).collect();
        for offset in due.into_iter().take(room) {
            let Some((_, attempt)) = owned.again.remove(&offset) else { continue };
            let rows =
                conn.query(&ONE, vec![head.partition.into(), (offset as i64).into()]).await?;
            for row in rows {
                owned.in_flight.insert(offset);
                deliveries.push(delivery(&row, owned.epoch, attempt)?);
            }
        }
        let room = room - deliveries.len();
        if room == 0 || owned.read_to + 1 >= head.offset {
            return Ok(deliveries);
        }
        let args = vec![
            head.partition.into(),
            (owned.read_to as i64).into(),
            (head.offset as i64).into(),
            (&self.name).into(),
            (room as i64).into(),
        ];
        let rows = conn.query(&NEXT, args).await?;
        for row in &rows {
            let delivery = delivery(row, owned.epoch, 1)?;
            owned.in_flight.insert(delivery.token.position.offset);
            owned.read_to = delivery.token.position.offset;
            deliveries.push(delivery);
        }
        if rows.len() < room {
            // Nothing else below the head is for this subscription.
            owned.read_to = head.offset - 1;
        }
        Ok(deliveries)
    }

    /// Renews what this process owns, and takes what nobody does.
    async fn keep_leases(&self, state: &mut State) -> Result<(), StoreError> {
        static RENEW: Statement = Statement::new(
            "update chapar.cursors set expires_at = clock_timestamp() + $3 * interval '1 microsecond' \
             where subscription = $1 and owner = $2 and expires_at > clock_timestamp()",
        );
        static TAKE: Statement = Statement::new(
            "update chapar.cursors set owner = $2, epoch = epoch + 1, \
             expires_at = clock_timestamp() + $3 * interval '1 microsecond' \
             where subscription = $1 and log_partition in (select log_partition from chapar.cursors \
             where subscription = $1 and expires_at <= clock_timestamp() for update skip locked)",
        );
        static HELD: Statement = Statement::new(
            "select log_partition, acked_offset, epoch from chapar.cursors \
             where subscription = $1 and owner = $2",
        );
        let lease = self.transport.lease;
        if state.leased_at.is_some_and(|at| at.elapsed() < lease / 3) {
            return Ok(());
        }
        let asked_at = Instant::now();
        let mut tx = self.transport.store.begin_engine().await?;
        let mut conn = tx.conn();
        let ttl = lease.as_micros() as i64;
        let args = || vec![(&self.name).into(), (&*self.transport.owner).into(), ttl.into()];
        conn.run(&RENEW, args()).await?;
        conn.run(&TAKE, args()).await?;
        let mut held = BTreeMap::new();
        for row in conn.query(&HELD, args().into_iter().take(2).collect()).await? {
            let (partition, acked, epoch) =
                (row.get::<i64>(0)? as u32, row.get::<i64>(1)? as u64, row.get::<i64>(2)?);
            let owned = match state.owned.remove(&partition) {
                Some(owned) if owned.epoch == epoch => owned,
                // Taken anew: everything after the cursor is delivered again.
                _ => Owned {
                    epoch,
                    read_to: acked,
                    in_flight: BTreeSet::new(),
                    again: BTreeMap::new(),
                    flushed: acked,
                },
            };
            held.insert(partition, owned);
        }
        tx.commit().await?;
        state.owned = held;
        state.leased_at = Some(asked_at);
        Ok(())
    }

    /// Writes cursors down. Losing the last few costs redeliveries, which the inbox removes, so
    /// it is done now and then and not at every acknowledgement.
    async fn flush(&self, state: &mut State, now: bool) -> Result<(), StoreError> {
        static FLUSH: Statement = Statement::new(
            "update chapar.cursors set acked_offset = $3 \
             where subscription = $1 and log_partition = $2 and epoch = $4",
        );
        const EVERY: Duration = Duration::from_millis(200);
        if !now && state.flushed_at.is_some_and(|at| at.elapsed() < EVERY) {
            return Ok(());
        }
        state.flushed_at = Some(Instant::now());
        let moved = state.owned.values().any(|owned| owned.acked() > owned.flushed);
        if !moved {
            return Ok(());
        }
        let mut tx = self.transport.store.begin_engine().await?;
        for (partition, owned) in &mut state.owned {
            let acked = owned.acked();
            if acked > owned.flushed {
                let args = vec![
                    (&self.name).into(),
                    (*partition).into(),
                    (acked as i64).into(),
                    owned.epoch.into(),
                ];
                tx.conn().run(&FLUSH, args).await?;
                owned.flushed = acked;
            }
        }
        tx.commit().await
    }
}

fn delivery(row: &Row, epoch: i64, attempt: u32) -> Result<Delivery, StoreError> {
    let headers: String = row.get(4)?;
    let body: Bytes = row.get(5)?;
    Ok(Delivery {
        token: Token { position: position(row, 0)?, handle: Some(epoch.to_string().into()) },
        topic: row.get(2)?,
        key: row.get(3)?,
        headers: from_json_pairs(&headers),
        body,
        attempt,
        published_at: row.get(6)?,
    })
}
