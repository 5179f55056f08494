//! Messages without a broker: generated on demand, for consumers and for hand-written code alike, so that neither waits
//! for a network.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use chapar::{Chapar, Draft, Event as _, Id, Payload, Tenant};
use chapar_core::Aggregate;
use chapar_core::port::{
    AckToken, BoxFuture, Delivery, Features, Outgoing, Position, Receipt, SeekTo, Subscription,
    SubscriptionSpec, TopicSpec, Tracking, Transport, TransportError,
};
use jiff::Timestamp;
use sqlx::{PgConnection, Row};
use tokio::sync::Notify;

use super::Modified;

/// What a turn is fed with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) tenants: u64,
    pub(super) keys: u64,
    /// How many messages at most, and for how long.
    pub(super) most: u64,
    pub(super) time: Duration,
}

/// The bookings are numbered; the number is the key.
pub(super) fn booking(number: u64) -> String {
    format!("booking-{number:05}")
}

/// A message as the outbox holds it, with the places that differ between messages.
#[derive(Debug)]
pub(super) struct Template {
    topic: String,
    headers: Vec<(String, Vec<Piece>)>,
    body: Vec<Piece>,
    body_bytes: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Id,
    Tenant,
    Booking,
    Number,
}

impl Template {
    /// Appends an event, and reads the resulting row.
    pub(super) async fn sealed(chapar: &Chapar, conn: &mut PgConnection) -> Result<Self> {
        const MARKS: (&str, &str, i64) = ("tenant-mark", "booking-mark", 987_654_321);
        let (tenant, booking, n) = MARKS;
        let event = Modified { n, booking: booking.into(), note: "x".repeat(420) };
        let aggregate =
            Aggregate { kind: Modified::AGGREGATE.into(), id: booking.into(), version: None };
        let payload = Payload::json(&event)?;
        let of: Tenant = tenant.parse()?;
        let mut tx = chapar.begin(&of).await?;
        let draft = Draft::new(Modified::SUBJECT, aggregate, payload);
        chapar.append(&mut tx, &of, draft).await?;
        chapar.commit(tx).await?;
        let row =
            sqlx::query("select event_id, headers, body from chapar.outbox where tenant = $1")
                .bind(tenant)
                .fetch_one(conn)
                .await?;
        let id: String = row.try_get(0)?;
        let headers: Vec<(String, String)> = serde_json::from_str(row.try_get(1)?)?;
        let body = String::from_utf8(row.try_get(2)?)?;
        let number = n.to_string();
        let marks = [
            (id.as_str(), Piece::Id),
            (tenant, Piece::Tenant),
            (booking, Piece::Booking),
            (&number, Piece::Number),
        ];
        let body_bytes = body.len();
        let body = pieces(&body, &marks);
        ensure!(body.contains(&Piece::Id) && body.contains(&Piece::Tenant), "no such envelope");
        let headers = headers.into_iter().map(|(name, value)| (name, pieces(&value, &marks)));
        let topic = Modified::SUBJECT.to_owned();
        Ok(Template { topic, headers: headers.collect(), body, body_bytes })
    }

    pub(super) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// The `n`th message.
    fn delivery(&self, n: u64, plan: Plan) -> Delivery {
        let key = n % plan.keys;
        let filled = Filled {
            id: Id::uuid_v7(n, u128::from(n)).to_string(),
            tenant: format!("t{:02}", key % plan.tenants),
            booking: booking(key),
            number: n.to_string(),
        };
        let mut body = Vec::with_capacity(self.body_bytes + 64);
        filled.write(&self.body, &mut body);
        let header = |(name, value): &(String, Vec<Piece>)| {
            let mut text = Vec::new();
            filled.write(value, &mut text);
            (name.clone(), String::from_utf8(text).unwrap_or_default())
        };
        Delivery {
            token: AckToken::of(
                Position { partition: 0, offset: n },
                Tracking { epoch: 1, number: n, attempt: 1 },
            ),
            topic: self.topic.clone(),
            key: Some(format!("{}:{}", filled.tenant, filled.booking)),
            headers: self.headers.iter().map(header).collect(),
            body: body.into(),
            attempt: 1,
            published_at: Timestamp::UNIX_EPOCH,
        }
    }
}

struct Filled {
    id: String,
    tenant: String,
    booking: String,
    number: String,
}

impl Filled {
    fn write(&self, pieces: &[Piece], out: &mut Vec<u8>) {
        for piece in pieces {
            let text = match piece {
                Piece::Text(text) => text,
                Piece::Id => &self.id,
                Piece::Tenant => &self.tenant,
                Piece::Booking => &self.booking,
                Piece::Number => &self.number,
            };
            out.extend_from_slice(text.as_bytes());
        }
    }
}

fn pieces(text: &str, marks: &[(&str, Piece)]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    loop {
        let next = marks.iter().filter_map(|(mark, piece)| Some((rest.find(mark)?, mark, piece)));
        let Some((at, mark, piece)) = next.min_by_key(|(at, ..)| *at) else { break };
        pieces.extend([Piece::Text(rest[..at].to_owned()), piece.clone()]);
        rest = &rest[at + mark.len()..];
    }
    pieces.push(Piece::Text(rest.to_owned()));
    pieces
}

/// A source of messages for one turn. Cheap to clone.
#[derive(Clone)]
pub(super) struct Feed(Arc<Shared>);

struct Shared {
    template: Arc<Template>,
    plan: Plan,
    first: u64,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    began: Option<Instant>,
    given: u64,
    acknowledged: u64,
    last: Option<Instant>,
}

impl Feed {
    pub(super) fn new(template: Arc<Template>, plan: Plan, first: u64) -> Self {
        let (state, changed) = (Mutex::default(), Notify::new());
        Feed(Arc::new(Shared { template, plan, first, state, changed }))
    }

    /// The next messages; none once the turn is over.
    pub(super) fn take(&self, max: usize) -> Vec<Delivery> {
        let Shared { template, plan, first, .. } = &*self.0;
        let range = {
            let mut state = self.state();
            let began = *state.began.get_or_insert_with(Instant::now);
            let left = if began.elapsed() < plan.time { plan.most - state.given } else { 0 };
            let from = first + state.given;
            state.given += left.min(max as u64);
            from..first + state.given
        };
        range.map(|n| template.delivery(n, *plan)).collect()
    }

    pub(super) fn acknowledge(&self, messages: usize) {
        let mut state = self.state();
        state.acknowledged += messages as u64;
        state.last = Some(Instant::now());
        self.0.changed.notify_waiters();
    }

    /// How many messages were given out.
    pub(super) fn given(&self) -> u64 {
        self.state().given
    }

    /// Waits until the turn is over and everything is acknowledged; returns messages per second.
    pub(super) async fn drained(&self) -> Result<f64> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let mut before = 0;
        loop {
            let changed = self.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the state is read, so that no change is missed.
            changed.as_mut().enable();
            {
                let state = self.state();
                let over = state.began.is_some_and(|began| began.elapsed() >= self.0.plan.time)
                    || state.given == self.0.plan.most;
                if over && state.acknowledged == state.given {
                    let (began, last) =
                        state.began.zip(state.last).context("nothing was consumed")?;
                    return Ok(state.given as f64 / (last - began).as_secs_f64());
                }
            }
            if tokio::time::timeout(PATIENCE, changed).await.is_err() {
                let (given, done) = (self.given(), self.state().acknowledged);
                ensure!(done > before, "{done} of {given} were applied, and no more for a minute");
                before = done;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

const ONE_WAY: TransportError = TransportError::Unsupported("do anything but deliver");

impl Transport for Feed {
    fn features(&self) -> Features {
        Features { ordered_topics: true, ..Features::default() }
    }

    fn apply<'a>(
        &'a self,
        _topics: &'a [TopicSpec],
        _subscriptions: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async { Ok(()) })
    }

    fn publish(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>> {
        Box::pin(async move { batch.iter().map(|_| Err(ONE_WAY)).collect() })
    }

    fn subscribe<'a>(
        &'a self,
        _spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        Box::pin(async { Ok(Box::new(self.clone()) as Box<dyn Subscription>) })
    }

    fn seek<'a>(
        &'a self,
        _subscription: &'a str,
        _to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async { Err(ONE_WAY) })
    }
}

impl Subscription for Feed {
    fn fetch(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(async move {
            let taken = self.take(max);
            if taken.is_empty() {
                tokio::time::sleep(wait).await;
            }
            Ok(taken)
        })
    }

    fn fetch_oldest(&self, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        self.fetch(0, wait)
    }

    fn ack<'a>(&'a self, tokens: &'a [AckToken]) -> BoxFuture<'a, Result<(), TransportError>> {
        self.acknowledge(tokens.len());
        Box::pin(async { Ok(()) })
    }

    fn nack<'a>(
        &'a self,
        _token: &'a AckToken,
        _delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async { Err(ONE_WAY) })
    }

    fn keep_alive(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async { Ok(()) })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async { Ok(()) })
    }
}
