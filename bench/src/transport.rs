//! The cost of an adapter relative to the client library it uses: the same messages in the same window, published and
//! read by either, interleaved.
//!
//! A broker is selected by its URL: a module opens both and implements `Bare`.

#[cfg(feature = "kafka")]
mod kafka;
mod nats;
#[cfg(feature = "pubsub")]
mod pubsub;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use chapar_core::port::{Outgoing, SubscriptionSpec, TopicSpec, Transport};
use chapar_core::{Headers, Id};
use chapar_testkit::servers::{Instance, Kind, Launch};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::Serialize;

use crate::measure::{Contestant, Rounds, Spread, interleaved, table};

/// Messages that may wait for their acknowledgement, in either direction and for either contestant: as many as in the
/// relay.
const WINDOW: usize = 4000;
/// The number of keys, so that messages in the window have different ones.
const KEYS: u64 = 10_000;
/// How many messages one call of the adapter publishes; enough calls run concurrently to fill the window.
const CHUNK: usize = 250;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// The broker; a private NATS server by default, and a private one of its kind if the host is empty.
    pub transport: Option<String>,
    /// How many rounds count.
    pub rounds: usize,
    /// How long each contestant runs in each of them.
    pub turn: Duration,
    /// How large a body is.
    pub bytes: usize,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The kind of broker.
    pub transport: &'static str,
    /// Our adapter over the bare client, publishing.
    pub publish_ratio: f64,
    /// Our adapter over the bare client, reading and acknowledging.
    pub subscribe_ratio: f64,
    /// Messages per second that our adapter published.
    pub publish_per_s: f64,
    /// Messages per second that our adapter read.
    pub subscribe_per_s: f64,
    /// A message on the wire, without its headers.
    pub body_bytes: usize,
    /// How many messages may wait for their acknowledgement.
    pub window: usize,
    /// How many rounds.
    pub rounds: usize,
    /// Every contestant.
    pub contestants: Vec<Line>,
}

/// A contestant.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// What it is.
    pub name: &'static str,
    /// Messages per second.
    pub per_s: Spread,
    /// Over the bare client doing the same, within each round.
    pub over_bare: Spread,
}

const BARE_PUBLISH: &str = "publish, bare client";
const PUBLISH: &str = "publish, adapter";
const BARE_READ: &str = "subscribe, bare client";
const READ: &str = "subscribe, adapter";

/// The bare client library.
///
/// # Contract
/// Messages are those of [`Load`], byte for byte as the adapter encodes them, in the same place. At most [`WINDOW`]
/// wait for their acknowledgement.
trait Bare {
    /// About as many messages as are read in a turn, and their number of keys; a contestant that is done starts over.
    fn backlog(&self) -> (u64, u64) {
        (200_000, KEYS)
    }

    /// Publishes until the turn is over and everything is acknowledged; returns how many.
    fn publish<'a>(&'a self, load: &'a Load, turn: Duration) -> LocalBoxFuture<'a, Result<u64>>;

    /// Reads so many messages from the beginning and acknowledges each.
    fn read<'a>(&'a self, load: &'a Load, messages: u64) -> LocalBoxFuture<'a, Result<Read>>;

    /// Empties the topic, so that one turn does not slow down the next.
    fn empty<'a>(&'a self, load: &'a Load) -> LocalBoxFuture<'a, Result<()>>;

    /// Deletes everything that was created on the broker.
    fn leave<'a>(&'a self, loads: &'a [&'a Load]) -> LocalBoxFuture<'a, Result<()>>;
}

/// How much was read, and how long it took from the first message on.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    messages: u64,
    time: Duration,
}

/// What is published and read.
struct Load {
    topic: String,
    keys: u64,
    headers: Headers,
    bodies: Vec<Bytes>,
}

/// The number of different bodies. A single one would compress to almost nothing on the wire.
const BODIES: usize = 997;

impl Load {
    fn new(topic: String, keys: u64, bytes: usize) -> Self {
        let headers = Headers::from([
            ("eventType", "bench.message.sent"),
            ("eventVersion", "1"),
            ("idempotencyKey", "k:1"),
        ]);
        let mut dice = fastrand::Rng::with_seed(1);
        let mut body = || (0..bytes).map(|_| dice.alphanumeric() as u8).collect::<Vec<u8>>();
        let bodies = (0..BODIES).map(|_| Bytes::from(body())).collect();
        Load { topic, keys, headers, bodies }
    }

    fn tenant(n: u64) -> String {
        format!("t{}", n % 20)
    }

    fn key(&self, n: u64) -> String {
        let key = n % self.keys;
        format!("t{}:k{key}", key % 20)
    }

    fn id(n: u64) -> Id {
        Id::uuid_v7(n, u128::from(n))
    }

    fn body(&self, n: u64) -> Bytes {
        self.bodies[n as usize % self.bodies.len()].clone()
    }

    fn message(&self, n: u64) -> Outgoing {
        Outgoing {
            id: Load::id(n),
            topic: self.topic.clone(),
            tenant: Load::tenant(n),
            key: Some(self.key(n)),
            headers: self.headers.clone(),
            body: self.body(n),
        }
    }
}

/// Measures it.
pub fn run(options: &Options) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new()?;
    let field = runtime.block_on(Field::enter(options))?;
    let measured = runtime.block_on(field.prepare()).and_then(|()| field.rounds(&runtime));
    // A given broker is left as it was, also after a failure.
    let left = runtime.block_on(field.bare.leave(&[&field.write, &field.read]));
    let rounds = measured?;
    left?;
    field.report(&rounds).context("no round was run")
}

struct Field<'a> {
    options: &'a Options,
    kind: &'static str,
    ours: Arc<dyn Transport>,
    bare: Box<dyn Bare>,
    write: Load,
    read: Load,
    /// The prefix of everything created on the broker.
    run: String,
    /// Counts messages, so that no id is used twice.
    next: Cell<u64>,
    /// How many messages there are to read.
    backlog: Cell<u64>,
    _server: Option<Instance>,
}

impl<'a> Field<'a> {
    async fn enter(options: &'a Options) -> Result<Self> {
        ensure!(options.bytes > 0, "--bytes: at least 1");
        let mut server = None;
        let url = options.transport.clone().unwrap_or_else(|| "nats://".into());
        let private = match url.as_str() {
            "nats://" => Some((Kind::Nats, "")),
            "kafka://" => Some((Kind::Kafka, "kafka://")),
            "pubsub://" => Some((Kind::PubSub, "pubsub://bench?emulator=")),
            _ => None,
        };
        let url = match private {
            None => url,
            Some((kind, before)) => {
                let started = tokio::task::block_in_place(|| Launch::of(kind).start())?;
                format!("{before}{}", server.insert(started).url())
            }
        };
        let run = format!("{:08x}", fastrand::u32(..));
        let (kind, ours, bare) = match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("nats" | "tls") => nats::open(&url, &run).await?,
            #[cfg(feature = "kafka")]
            Some("kafka") => kafka::open(&url, &run).await?,
            #[cfg(feature = "pubsub")]
            Some("pubsub") => pubsub::open(&url, &run).await?,
            _ => bail!(
                "--transport {url}: there is no bare client to compare with; use nats://host:port \
                 or, in a build with them, kafka://host:port and pubsub://project"
            ),
        };
        let load = |part, keys| {
            Load::new(format!("chapar-bench-{part}-{run}.sent.v1"), keys, options.bytes)
        };
        let (write, read) = (load("write", KEYS), load("read", bare.backlog().1));
        let (next, backlog) = (Cell::new(0), Cell::new(0));
        Ok(Field { options, kind, ours, bare, write, read, run, next, backlog, _server: server })
    }

    /// Creates the topics, and the backlog that is read in every round.
    async fn prepare(&self) -> Result<()> {
        let topic = |load: &Load| TopicSpec {
            name: load.topic.clone(),
            partitions: 12,
            retention: Duration::from_secs(24 * 3600),
        };
        self.ours.apply(&[topic(&self.write), topic(&self.read)], &[]).await?;
        let (turn, backlog) = (self.options.turn, self.bare.backlog().0);
        let enough = |n| n >= backlog || (n >= 5000 && turn < Duration::from_secs(1));
        self.backlog.set(self.publish(&self.read, |n, _| enough(n)).await?);
        Ok(())
    }

    fn rounds(&self, runtime: &tokio::runtime::Runtime) -> Result<Rounds> {
        let turn = self.options.turn;
        let published = |contestant: LocalBoxFuture<'_, Result<u64>>| {
            runtime.block_on(async {
                self.bare.empty(&self.write).await?;
                let began = Instant::now();
                let sent = contestant.await?;
                Ok(sent as f64 / began.elapsed().as_secs_f64())
            })
        };
        let turns = Cell::new(0u64);
        let mut contestants = [
            Contestant::new(BARE_PUBLISH, || published(self.bare.publish(&self.write, turn))),
            Contestant::new(PUBLISH, || {
                published(Box::pin(self.publish(&self.write, move |_, taken| taken >= turn)))
            }),
            Contestant::new(BARE_READ, || {
                runtime
                    .block_on(self.over_and_over(|messages| self.bare.read(&self.read, messages)))
            }),
            Contestant::new(READ, || {
                runtime.block_on(self.over_and_over(|messages| {
                    turns.set(turns.get() + 1);
                    Box::pin(self.subscribe(turns.get(), messages))
                }))
            }),
        ];
        interleaved(&mut contestants, self.options.rounds)
    }

    /// Publishes until `enough`, of the number and the time so far; returns how many.
    async fn publish(&self, load: &Load, enough: impl Fn(u64, Duration) -> bool) -> Result<u64> {
        let began = Instant::now();
        let (mut sent, mut acknowledged) = (0u64, 0u64);
        // A call has at most one message of a key.
        let chunk = (CHUNK as u64).min(load.keys);
        let mut calls = FuturesUnordered::new();
        loop {
            while calls.len() < WINDOW / CHUNK && !enough(sent, began.elapsed()) {
                let first = self.next.replace(self.next.get() + chunk);
                let batch = (first..first + chunk).map(|n| load.message(n)).collect();
                calls.push(self.ours.publish(batch));
                sent += chunk;
            }
            let Some(receipts) = calls.next().await else { return Ok(acknowledged) };
            for receipt in receipts {
                ensure!(!receipt?.duplicate, "the broker took a new message for an old one");
                acknowledged += 1;
            }
        }
    }

    /// Reads the backlog repeatedly, for at least a turn; returns messages per second. Always whole backlogs: a broker
    /// may be slower at the beginning of a backlog than at its end.
    async fn over_and_over<'f>(
        &self,
        mut read: impl FnMut(u64) -> LocalBoxFuture<'f, Result<Read>>,
    ) -> Result<f64> {
        let mut all = Read::default();
        while all.time < self.options.turn {
            let one = read(self.backlog.get()).await?;
            ensure!(one.messages > 1, "nothing was delivered");
            all.messages += one.messages;
            all.time += one.time;
        }
        Ok(all.messages as f64 / all.time.as_secs_f64())
    }

    /// The adapter's part of [`Bare::read`]: acknowledges a batch while the next is fetched, as
    /// a consumer does.
    async fn subscribe(&self, turn: u64, messages: u64) -> Result<Read> {
        let spec = SubscriptionSpec {
            name: format!("bench-{}-{turn}", self.run),
            topics: vec![self.read.topic.clone()],
            ack_deadline: Duration::from_secs(60),
            max_in_flight: WINDOW,
        };
        let subscription = self.ours.subscribe(&spec).await?;
        let (mut began, mut read, mut tokens) = (None, Read::default(), Vec::new());
        let mut silent = 0;
        while read.messages < messages {
            let fetch = subscription.fetch(WINDOW / 2, Duration::from_secs(1));
            let (fetched, acked) = tokio::join!(fetch, subscription.ack(&tokens));
            acked?;
            let fetched = fetched?;
            silent = if fetched.is_empty() { silent + 1 } else { 0 };
            ensure!(silent < 30, "only {} of {messages} were delivered", read.messages);
            tokens = fetched.into_iter().map(|delivery| delivery.token).collect();
            read.messages += tokens.len() as u64;
            began.get_or_insert_with(Instant::now);
        }
        subscription.ack(&tokens).await?;
        read.time = began.map_or(read.time, |began| began.elapsed());
        subscription.close().await?;
        Ok(read)
    }

    fn report(&self, rounds: &Rounds) -> Option<Report> {
        let line = |name, bare| {
            Some(Line { name, per_s: rounds.of(name)?, over_bare: rounds.over(name, bare)? })
        };
        let (publish, read) = (line(PUBLISH, BARE_PUBLISH)?, line(READ, BARE_READ)?);
        Some(Report {
            transport: self.kind,
            publish_ratio: publish.over_bare.median,
            subscribe_ratio: read.over_bare.median,
            publish_per_s: publish.per_s.median,
            subscribe_per_s: read.per_s.median,
            body_bytes: self.options.bytes,
            window: WINDOW,
            rounds: rounds.len(),
            contestants: vec![
                line(BARE_PUBLISH, BARE_PUBLISH)?,
                publish,
                line(BARE_READ, BARE_READ)?,
                read,
            ],
        })
    }
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .contestants
            .iter()
            .map(|line| {
                vec![
                    line.name.to_owned(),
                    format!("{:.0}", line.per_s.median),
                    format!("{:.0} – {:.0}", line.per_s.min, line.per_s.max),
                    format!("{:.3}", line.over_bare.median),
                ]
            })
            .collect();
        table(&["what", "messages/s", "spread", "over bare"], &rows)
            + &format!(
                "\n{}, messages of {} bytes, at most {} without an acknowledgement, {} rounds in \
                 turns.\n",
                self.transport, self.body_bytes, self.window, self.rounds
            )
    }
}
