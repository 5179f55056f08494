//! Reading the log: one process's part of a subscription.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chapar_core::machine::flight::{Flight, Key, Stale};
use chapar_core::port::{
    BoxFuture, Delivery, Position, Subscription, SubscriptionSpec, Token, TransportError,
};
use tokio::sync::Mutex;

use super::{SqlTransport, position, unavailable};
use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::from_json_pairs;
use crate::statement::Statement;
use crate::value::Row;

/// One process's part of a subscription.
pub(super) struct SqlSubscription {
    pub(super) transport: SqlTransport,
    pub(super) spec: SubscriptionSpec,
    started: Instant,
    state: Mutex<State>,
}

impl SqlSubscription {
    pub(super) fn new(transport: SqlTransport, spec: &SubscriptionSpec) -> Self {
        let state = Mutex::default();
        SqlSubscription { transport, spec: spec.clone(), started: Instant::now(), state }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) leased_at: Option<Instant>,
    flushed_at: Option<Instant>,
    turn: usize,
    pub(super) owned: BTreeMap<u32, Owned>,
}

/// A partition that this process owns.
pub(super) struct Owned {
    pub(super) epoch: i64,
    pub(super) flight: Flight<Delivery>,
    /// The cursor as the database has it.
    pub(super) flushed: u64,
    /// More than a fair share: nothing new is read from it.
    pub(super) leaving: bool,
}

impl State {
    /// Does something with the flight that a token belongs to.
    fn with(
        &mut self,
        token: &Token,
        act: impl FnOnce(&mut Flight<Delivery>, u32) -> Result<(), Stale>,
    ) -> Result<(), TransportError> {
        let (epoch, attempt) = token.delivery().ok_or(TransportError::Expired)?;
        let owned = self.owned.get_mut(&token.position.partition);
        let owned = owned.filter(|owned| owned.epoch == epoch).ok_or(TransportError::Expired)?;
        act(&mut owned.flight, attempt).map_err(|Stale| TransportError::Expired)
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
            // A lease that may be over is looked at first: another may have the message.
            self.keep_leases(&mut state).await.map_err(unavailable)?;
            let mut result = Ok(());
            for token in tokens {
                let offset = token.position.offset;
                let acked = state.with(token, |flight, n| flight.ack(offset, n).map(drop));
                result = result.and(acked);
            }
            self.flush(&mut state, false).await.map_err(unavailable)?;
            result
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a Token,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let not_before = self.started.elapsed() + delay;
            let mut state = self.state.lock().await;
            state.with(token, |flight, n| flight.nack(token.position.offset, n, not_before))
        })
    }

    fn extend<'a>(&'a self, tokens: &'a [Token]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.state.lock().await;
            self.keep_leases(&mut state).await.map_err(unavailable)?;
            let now = self.started.elapsed();
            if tokens.is_empty() {
                state.owned.values_mut().for_each(|owned| owned.flight.extend_all(now));
            }
            let mut result = Ok(());
            for token in tokens {
                let offset = token.position.offset;
                result = result.and(state.with(token, |flight, n| flight.extend(offset, n, now)));
            }
            result
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.state.lock().await;
            self.flush(&mut state, true).await.map_err(unavailable)?;
            state.owned.clear();
            state.leased_at = None;
            self.release().await.map_err(unavailable)
        })
    }
}

impl SqlSubscription {
    async fn poll(&self, max: usize) -> Result<Vec<Delivery>, StoreError> {
        // The epoch is read with the heads: whoever has lost a partition, or was sent elsewhere
        // by a seek, delivers nothing of it from then on.
        static HEADS: Statement = Statement::new(
            "select h.log_partition, h.next_offset, c.epoch from chapar.log_heads h \
             join chapar.cursors c on c.log_partition = h.log_partition \
             where c.subscription = $1 order by h.log_partition",
        );
        let mut state = self.state.lock().await;
        self.keep_leases(&mut state).await?;
        self.flush(&mut state, false).await?;
        let held: usize = state.owned.values().map(|owned| owned.flight.in_flight()).sum();
        let mut room = max.min(self.spec.max_in_flight.saturating_sub(held));
        let mut tx = self.transport.store.begin_read().await?;
        let mut conn = tx.conn();
        let mut deliveries = Vec::new();
        let mut heads = conn.query(&HEADS, vec![(&self.spec.name).into()]).await?;
        // Another partition comes first each time, so that a busy one does not starve the rest.
        state.turn = state.turn.wrapping_add(1);
        let first = state.turn % heads.len().max(1);
        heads.rotate_left(first);
        for row in &heads {
            let (head, epoch) = (position(row, 0)?, row.get::<i64>(2)?);
            let Some(owned) = state.owned.get_mut(&head.partition) else { continue };
            if owned.epoch != epoch {
                state.owned.remove(&head.partition);
                state.leased_at = None;
                continue;
            }
            if owned.leaving || room == 0 {
                continue;
            }
            self.read(&mut conn, owned, head, room).await?;
            let now = self.started.elapsed();
            for taken in owned.flight.take(room, now) {
                let token = Token::of(taken.item.token.position, epoch, taken.attempt);
                deliveries.push(Delivery { token, attempt: taken.attempt, ..taken.item });
                room -= 1;
            }
        }
        tx.rollback().await?;
        Ok(deliveries)
    }

    /// Reads on behind what is known, unless enough waits already.
    async fn read(
        &self,
        conn: &mut Conn<'_>,
        owned: &mut Owned,
        head: Position,
        room: usize,
    ) -> Result<(), StoreError> {
        static NEXT: Statement = Statement::new(
            "select log_partition, log_offset, topic, ordering_key, headers, body, published_at \
             from chapar.log where log_partition = $1 and log_offset > $2 and log_offset < $3 \
             and topic in (select topic from chapar.subscriptions where subscription = $4) \
             order by log_offset limit $5",
        );
        // What waits for its time must not keep others from being read, up to a point.
        let space = self.spec.max_in_flight.saturating_sub(owned.flight.waiting());
        let room = room.min(space);
        if room == 0 || owned.flight.read_to() + 1 >= head.offset {
            return Ok(());
        }
        let args = vec![
            head.partition.into(),
            (owned.flight.read_to() as i64).into(),
            (head.offset as i64).into(),
            (&self.spec.name).into(),
            (room as i64).into(),
        ];
        let rows = conn.query(&NEXT, args).await?;
        for row in &rows {
            let delivery = delivery(row)?;
            let offset = delivery.token.position.offset;
            let key = delivery.key.as_deref().map(Key::of);
            owned.flight.push(offset, key, delivery);
        }
        if rows.len() < room {
            // Nothing else below the head is for this subscription.
            owned.flight.skip_to(head.offset - 1);
        }
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
        let moved = state.owned.values().any(|owned| owned.flight.acked() > owned.flushed);
        if !moved {
            return Ok(());
        }
        let mut tx = self.transport.store.begin_engine().await?;
        for (partition, owned) in &mut state.owned {
            let acked = owned.flight.acked();
            if acked > owned.flushed {
                let args = vec![
                    (&self.spec.name).into(),
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

pub(super) fn delivery(row: &Row) -> Result<Delivery, StoreError> {
    let headers: String = row.get(4)?;
    let body: Bytes = row.get(5)?;
    Ok(Delivery {
        token: Token { position: position(row, 0)?, handle: None },
        topic: row.get(2)?,
        key: row.get(3)?,
        headers: from_json_pairs(&headers),
        body,
        attempt: 0,
        published_at: row.get(6)?,
    })
}
