//! Reading the log: one process's part of a subscription.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chapar_core::machine::flight::{Flight, Key, Stale};
use chapar_core::machine::ownership::{Member, NotOwner};
use chapar_core::port::{
    AckToken, BoxFuture, Delivery, Position, Subscription, SubscriptionSpec, Tracking,
    TransportError,
};
use tokio::sync::Mutex;

use super::{SqlTransport, position, unavailable};
use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::from_json_pairs;
use crate::statement::Statement;
use crate::tables::Tables;
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
        let member = Member::new(&transport.owner, transport.lease);
        let state = Mutex::new(State { member, flushed_at: None, turn: 0 });
        SqlSubscription { transport, spec: spec.clone(), started: Instant::now(), state }
    }

    /// The time by this process's monotonic clock.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

pub(super) struct State {
    pub(super) member: Member<u32, Owned>,
    flushed_at: Option<Instant>,
    turn: usize,
}

/// What is kept for a partition that this process owns.
pub(super) struct Owned {
    pub(super) flight: Flight<Delivery>,
    /// The cursor as the database has it.
    pub(super) flushed: u64,
}

impl State {
    /// Applies `act` to the partition of a delivery, if this process still owns it.
    fn with(
        &mut self,
        token: &AckToken,
        now: Duration,
        act: impl FnOnce(&mut Flight<Delivery>, Tracking) -> Result<(), Stale>,
    ) -> Result<(), TransportError> {
        let tracking = token.tracking()?;
        let owned = self.member.admit(&token.position.partition, tracking.epoch, now);
        let owned = owned.map_err(|NotOwner| TransportError::Expired)?;
        act(&mut owned.flight, tracking).map_err(|Stale| TransportError::Expired)
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
                // A nudge comes from this process only; what others publish is found by polling.
                nudges.wait(left.min(Duration::from_millis(50))).await;
            }
        })
    }

    fn fetch_oldest(&self, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        // All messages of a key are in one partition and come in their order, so none waits for
        // one that is not delivered yet.
        self.fetch(0, wait)
    }

    fn ack<'a>(&'a self, tokens: &'a [AckToken]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.state.lock().await;
            // Renew a lease that is due first: another process may own the partition.
            self.keep_leases(&mut state).await.map_err(unavailable)?;
            let (mut result, now) = (Ok(()), self.now());
            for token in tokens {
                let ack = |flight: &mut Flight<_>, delivery: Tracking| {
                    flight.ack(delivery.number, delivery.attempt).map(drop)
                };
                result = result.and(state.with(token, now, ack));
            }
            self.flush_if_due(&mut state).await.map_err(unavailable)?;
            result
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a AckToken,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.state.lock().await;
            self.keep_leases(&mut state).await.map_err(unavailable)?;
            let now = self.now();
            state.with(token, now, |flight, delivery| {
                flight.nack(delivery.number, delivery.attempt, now + delay)
            })
        })
    }

    fn keep_alive(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.state.lock().await;
            self.keep_leases(&mut state).await.map_err(unavailable)?;
            let now = self.now();
            let owned = state.member.held_mut().items_mut();
            owned.for_each(|owned| owned.flight.extend_all(now));
            Ok(())
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            let mut state = self.state.lock().await;
            self.flush(&mut state).await.map_err(unavailable)?;
            state.member.leave();
            self.release().await.map_err(unavailable)
        })
    }
}

impl SqlSubscription {
    async fn poll(&self, max: usize) -> Result<Vec<Delivery>, StoreError> {
        // The epoch is read with the heads: a process that has lost a partition, or whose cursor
        // was moved by a seek, delivers nothing from it any more.
        static HEADS: Statement = Statement::new(
            "select h.log_partition, h.next_offset, c.epoch from chapar.log_heads h \
             join chapar.cursors c on c.log_partition = h.log_partition \
             where c.subscription = $1 order by h.log_partition",
        );
        let mut state = self.state.lock().await;
        self.keep_leases(&mut state).await?;
        self.flush_if_due(&mut state).await?;
        let State { member, turn, .. } = &mut *state;
        let in_flight: usize = member.held().items().map(|owned| owned.flight.in_flight()).sum();
        let mut room = max.min(self.spec.max_in_flight.saturating_sub(in_flight));
        let mut tx = self.transport.store.begin_read().await?;
        let mut conn = tx.conn();
        let mut heads = BTreeMap::new();
        for row in conn.query(&HEADS, vec![(&self.spec.name).into()]).await? {
            let (head, epoch) = (position(&row, 0)?, row.get::<i64>(2)? as u64);
            if member.held().get(&head.partition).is_some_and(|held| held.epoch != epoch) {
                member.lost(&head.partition);
            }
            heads.insert(head.partition, head);
        }
        *turn = turn.wrapping_add(1);
        let mut deliveries = Vec::new();
        for partition in member.held().deliverable(*turn) {
            let Some(head) = heads.get(&partition).filter(|_| room > 0) else { continue };
            let Some(held) = member.held_mut().get_mut(&partition) else { continue };
            self.read(&mut conn, &mut held.item, *head, room).await?;
            for taken in held.item.flight.take(room, self.now()) {
                let (number, attempt) = (taken.offset, taken.attempt);
                let tracking = Tracking { epoch: held.epoch, number, attempt };
                let token = AckToken::of(taken.item.token.position, tracking);
                deliveries.push(Delivery { token, attempt, ..taken.item });
                room -= 1;
            }
        }
        tx.rollback().await?;
        Ok(deliveries)
    }

    /// Reads more messages of a partition, unless enough wait to be delivered already.
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
             and not exists (select 1 from chapar.topic_starts s where s.subscription = $4 \
             and s.topic = chapar.log.topic and s.log_partition = $1 and s.tenant = chapar.log.tenant \
             and s.ordering_key = chapar.log.ordering_key and s.behind_offset > log_offset) \
             order by log_offset limit $5",
        );
        // Messages that wait for their retry must not stop others from being read, up to a limit.
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
            // No other message below the head is for this subscription.
            owned.flight.skip_to(head.offset - 1);
        }
        Ok(())
    }

    /// Writes cursors at intervals, and not at every acknowledgement: losing the last few costs
    /// redeliveries, which the inbox removes.
    async fn flush_if_due(&self, state: &mut State) -> Result<(), StoreError> {
        const EVERY: Duration = Duration::from_millis(200);
        match state.flushed_at {
            Some(at) if at.elapsed() < EVERY => Ok(()),
            _ => self.flush(state).await,
        }
    }

    /// Writes the cursors that have moved. The epoch guards them: a process that has lost a
    /// partition changes nothing.
    async fn flush(&self, state: &mut State) -> Result<(), StoreError> {
        static FLUSH: Statement = Statement::new(
            "update chapar.cursors set acked_offset = $3 \
             where subscription = $1 and log_partition = $2 and epoch = $4",
        );
        state.flushed_at = Some(Instant::now());
        let moved = |owned: &Owned| owned.flight.acked() > owned.flushed;
        if !state.member.held().items().any(moved) {
            return Ok(());
        }
        let mut tx = self.transport.store.begin_engine().await?;
        for (partition, held) in state.member.held_mut().iter_mut() {
            let acked = held.item.flight.acked();
            if moved(&held.item) {
                let args = vec![
                    (&self.spec.name).into(),
                    (*partition).into(),
                    (acked as i64).into(),
                    (held.epoch as i64).into(),
                ];
                tx.conn().run(&FLUSH, args).await?;
                held.item.flushed = acked;
            }
        }
        tx.commit().await
    }
}

pub(super) fn delivery(row: &Row) -> Result<Delivery, StoreError> {
    let headers: String = row.get(4)?;
    let body: Bytes = row.get(5)?;
    Ok(Delivery {
        token: AckToken::unacknowledgeable(position(row, 0)?),
        topic: row.get(2)?,
        key: row.get(3)?,
        headers: from_json_pairs(&headers),
        body,
        attempt: 0,
        published_at: row.get(6)?,
    })
}
