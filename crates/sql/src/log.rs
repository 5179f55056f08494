//! The transport that needs no broker: a log in the database.
//!
//! Partitions have dense offsets. Publishing locks the head of a partition until commit, so
//! offsets become visible in their own order and a reader that has seen one has seen all before
//! it. A subscription keeps one cursor per partition, and one process at a time owns it, by a
//! lease with an epoch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chapar_core::port::{
    BoxFuture, Delivery, Features, Outgoing, Position, Receipt, SeekTo, Subscription,
    SubscriptionSpec, Token, TopicSpec, Transport, TransportError,
};
use serde_json::json;
use tokio::sync::Mutex;

use crate::append::{Append, hex};
use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::{from_json_pairs, to_json_pairs};
use crate::statement::Statement;
use crate::store::Store;
use crate::value::Row;

/// A transport in a store.
#[derive(Debug, Clone)]
pub struct SqlTransport {
    store: Store,
    owner: Arc<str>,
    lease: Duration,
}

impl SqlTransport {
    /// A transport in this store. `owner` names this process among others, and must differ
    /// between two that run at once.
    pub fn new(store: Store, owner: &str) -> Self {
        SqlTransport { store, owner: owner.into(), lease: Duration::from_secs(4) }
    }

    /// How long a process that has died keeps its partitions. Default 4 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }
}

impl Transport for SqlTransport {
    fn features(&self) -> Features {
        Features {
            ordered_in_flight: true,
            seek_time: true,
            seek_position: true,
            delayed_nack: true,
            mebibyte: true,
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
                subscribe(&mut tx.conn(), spec).await.map_err(unavailable)?;
            }
            tx.commit().await.map_err(unavailable)
        })
    }

    fn publish(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>> {
        Box::pin(async move {
            // One transaction for all: either every message is durable, or none.
            match self.publish_all(&batch).await {
                Ok(receipts) => receipts.into_iter().map(Ok).collect(),
                Err(error) => {
                    let text = error.to_string();
                    let fail = |_| match error.is_retryable() {
                        true => Err(TransportError::Unavailable(text.clone())),
                        false => Err(TransportError::Refused(text.clone())),
                    };
                    batch.iter().map(fail).collect()
                }
            }
        })
    }

    fn subscribe<'a>(
        &'a self,
        spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        Box::pin(async move {
            self.apply(&[], std::slice::from_ref(spec)).await?;
            let subscription = SqlSubscription {
                transport: self.clone(),
                name: spec.name.clone(),
                max_in_flight: spec.max_in_flight,
                state: Mutex::new(State::default()),
            };
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
}

impl SqlTransport {
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

async fn subscribe(conn: &mut Conn<'_>, spec: &SubscriptionSpec) -> Result<(), StoreError> {
    static TOPIC: Statement = Statement::new(
        "insert into chapar.subscriptions (subscription, topic) values ($1, $2) on conflict do nothing",
    );
    static OTHERS: Statement = Statement::new(
        "delete from chapar.subscriptions where subscription = $1 and not (topic = any($2))",
    );
    // A new subscription starts with the first message that is kept: nothing is lost to one
    // that is set up late.
    static CURSORS: Statement = Statement::new(
        "insert into chapar.cursors (subscription, log_partition, acked_offset) \
         select $1, log_partition, 0 from chapar.log_heads where true on conflict do nothing",
    );
    for topic in &spec.topics {
        conn.run(&TOPIC, vec![(&spec.name).into(), topic.into()]).await?;
    }
    conn.run(&OTHERS, vec![(&spec.name).into(), spec.topics.clone().into()]).await?;
    conn.run(&CURSORS, vec![(&spec.name).into()]).await?;
    Ok(())
}

async fn seek(conn: &mut Conn<'_>, subscription: &str, to: SeekTo) -> Result<(), StoreError> {
    // A new epoch makes every owner read its cursor again before it acknowledges anything.
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

async fn publish(conn: &mut Conn<'_>, batch: &[Outgoing]) -> Result<Vec<Receipt>, StoreError> {
    static HEADS: Statement = Statement::new(
        "select log_partition, next_offset from chapar.log_heads order by log_partition",
    );
    static LOCK: Statement = Statement::new(
        "select log_partition, next_offset from chapar.log_heads where log_partition = any($1) \
         order by log_partition for update",
    );
    static KNOWN: Statement = Statement::new(
        "select event_id, log_partition, log_offset from chapar.log where event_id = any($1)",
    );
    static MOVE: Statement =
        Statement::new("update chapar.log_heads set next_offset = $2 where log_partition = $1");
    let partitions = conn.query(&HEADS, vec![]).await?.len() as u32;
    let home = |message: &Outgoing| {
        let key = message.key.clone().unwrap_or_else(|| message.id.to_string());
        u32::from(Append::shard(&key)) % partitions.max(1)
    };
    // Locks are taken in ascending order, so that two relays cannot deadlock.
    let touched: BTreeSet<u32> = batch.iter().map(home).collect();
    let touched: Vec<i64> = touched.into_iter().map(i64::from).collect();
    let mut heads = HashMap::new();
    for row in conn.query(&LOCK, vec![touched.into()]).await? {
        let head = position(&row, 0)?;
        heads.insert(head.partition, head.offset);
    }
    let ids = batch.iter().map(|message| message.id.to_string()).collect::<Vec<_>>();
    let mut known: HashMap<String, Position> = HashMap::new();
    for row in conn.query(&KNOWN, vec![ids.clone().into()]).await? {
        known.insert(row.get(0)?, position(&row, 1)?);
    }
    let mut receipts = Vec::with_capacity(batch.len());
    let mut fresh = Vec::new();
    for (message, id) in batch.iter().zip(ids) {
        if let Some(position) = known.get(&id) {
            receipts.push(Receipt { position: *position, duplicate: true });
            continue;
        }
        let partition = home(message);
        let head = heads.get_mut(&partition).expect("every touched partition is locked");
        let position = Position { partition, offset: *head };
        *head += 1;
        known.insert(id.clone(), position);
        fresh.push((id, message, position));
        receipts.push(Receipt { position, duplicate: false });
    }
    insert(conn, &fresh).await?;
    for (partition, head) in heads {
        conn.run(&MOVE, vec![partition.into(), (head as i64).into()]).await?;
    }
    Ok(receipts)
}

async fn insert(
    conn: &mut Conn<'_>,
    fresh: &[(String, &Outgoing, Position)],
) -> Result<(), StoreError> {
    const POSTGRES: &str = "insert into chapar.log (log_partition, log_offset, event_id, tenant, topic, \
         ordering_key, headers, body) select * from unnest($1::int[], $2::bigint[], $3::text[], \
         $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[])";
    static SQLITE: Statement = Statement::new(
        "insert into chapar.log (log_partition, log_offset, event_id, tenant, topic, ordering_key, \
         headers, body, published_at) select e.value ->> 0, e.value ->> 1, e.value ->> 2, \
         e.value ->> 3, e.value ->> 4, e.value ->> 5, e.value ->> 6, unhex(e.value ->> 7), \
         clock_timestamp() from json_each($1) e",
    );
    if let Conn::Postgres(conn) = conn {
        let column = |get: &dyn Fn(&(String, &Outgoing, Position)) -> String| {
            fresh.iter().map(get).collect::<Vec<String>>()
        };
        sqlx::query(POSTGRES)
            .bind(fresh.iter().map(|(_, _, p)| p.partition as i32).collect::<Vec<_>>())
            .bind(fresh.iter().map(|(_, _, p)| p.offset as i64).collect::<Vec<_>>())
            .bind(column(&|(id, _, _)| id.clone()))
            .bind(column(&|(_, m, _)| m.tenant.clone()))
            .bind(column(&|(_, m, _)| m.topic.clone()))
            .bind(fresh.iter().map(|(_, m, _)| m.key.clone()).collect::<Vec<_>>())
            .bind(column(&|(_, m, _)| to_json_pairs(&m.headers)))
            .bind(fresh.iter().map(|(_, m, _)| m.body.to_vec()).collect::<Vec<_>>())
            .execute(&mut **conn)
            .await?;
        return Ok(());
    }
    let row = |(id, message, position): &(String, &Outgoing, Position)| {
        json!([
            position.partition,
            position.offset,
            id,
            message.tenant,
            message.topic,
            message.key,
            to_json_pairs(&message.headers),
            hex(&message.body),
        ])
    };
    let rows: Vec<_> = fresh.iter().map(row).collect();
    conn.run(&SQLITE, vec![serde_json::Value::from(rows).to_string().into()]).await?;
    Ok(())
}

fn position(row: &Row, first: usize) -> Result<Position, StoreError> {
    Ok(Position {
        partition: row.get::<i64>(first)? as u32,
        offset: row.get::<i64>(first + 1)? as u64,
    })
}

/// One process's part of a subscription.
struct SqlSubscription {
    transport: SqlTransport,
    name: String,
    max_in_flight: usize,
    state: Mutex<State>,
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
            loop {
                let deliveries = self.poll(max).await.map_err(unavailable)?;
                let left = deadline.saturating_duration_since(Instant::now());
                if !deliveries.is_empty() || left.is_zero() {
                    return Ok(deliveries);
                }
                // A nudge comes from this process only: others are found by looking again.
                self.transport.store.nudged(left.min(Duration::from_millis(50))).await;
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
