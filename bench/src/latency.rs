//! How long an event takes from its commit to the broker, at a steady rate.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use async_nats::jetstream::consumer::{DeliverPolicy, pull::OrderedConfig};
use chapar::{Store, StoreOptions};
use futures_util::StreamExt;
use serde::Serialize;
use sqlx::postgres::PgPoolOptions;

use crate::append::{backbone, business, draft, tenant};
use crate::measure::{Spread, table};
use crate::place::{Place, Relay};

const STREAM: &str = "RESERVATION";

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// This program, for the relay.
    pub program: PathBuf,
    /// The database; a private one when none is given.
    pub store: Option<String>,
    /// The broker; a private one when none is given.
    pub transport: Option<String>,
    /// Transactions per second.
    pub rate: u64,
    /// How many rounds.
    pub rounds: usize,
    /// How long each of them is.
    pub turn: Duration,
}

/// What was measured, in milliseconds: medians over the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// From commit to the broker, for half of the events.
    pub p50_ms: f64,
    /// For 99 of a hundred.
    pub p99_ms: f64,
    /// The business transaction with its append, for 99 of a hundred.
    pub transaction_p99_ms: f64,
    /// The one over the other, within each round.
    pub p99_over_transaction: f64,
    /// Transactions per second that were reached.
    pub rate: f64,
    /// How many rounds.
    pub rounds: usize,
    /// The rounds.
    pub spread: Spreads,
}

/// How far the rounds are apart.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "as in the report")]
pub struct Spreads {
    pub p50_ms: Spread,
    pub p99_ms: Spread,
    pub transaction_p99_ms: Spread,
    pub p99_over_transaction: Spread,
}

/// Measures it.
pub fn run(options: &Options) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(measure(options))
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let row = |name: &str, spread: &Spread| {
            vec![
                name.to_owned(),
                format!("{:.2}", spread.median),
                format!("{:.2} – {:.2}", spread.min, spread.max),
            ]
        };
        let rows = [
            row("commit to broker, p50", &self.spread.p50_ms),
            row("commit to broker, p99", &self.spread.p99_ms),
            row("transaction, p99", &self.spread.transaction_p99_ms),
            row("p99 over transaction", &self.spread.p99_over_transaction),
        ];
        table(&["what", "ms", "spread"], &rows)
            + &format!("\nmedian of {} rounds at {:.0} per second.\n", self.rounds, self.rate)
    }
}

async fn measure(options: &Options) -> Result<Report> {
    let place =
        Place::prepare_durable(options.store.as_deref(), options.transport.as_deref()).await?;
    let store = Store::open(&place.store, &StoreOptions::default()).await?;
    let mut tx = store.begin_raw().await?;
    let table = "create table if not exists bench_orders (id bigint primary key, tenant text not null, note text not null)";
    tx.execute(table, vec![]).await?;
    tx.commit().await?;
    let _relay = Relay::start(&options.program, &place, &[])?;
    let mut rounds: [Vec<f64>; 5] = Default::default();
    let mut next = 1_000_000_000u64;
    // The first round warms up.
    for round in 0..=options.rounds {
        let figures = turn(options, &place, &store, &mut next).await?;
        if round > 0 {
            for (all, figure) in rounds.iter_mut().zip(figures) {
                all.push(figure);
            }
        }
    }
    let spread = |n: usize| Spread::of(&rounds[n]).context("no round was run");
    let (p50, p99, transaction, over) = (spread(0)?, spread(1)?, spread(2)?, spread(3)?);
    Ok(Report {
        p50_ms: p50.median,
        p99_ms: p99.median,
        transaction_p99_ms: transaction.median,
        p99_over_transaction: over.median,
        rate: spread(4)?.median,
        rounds: options.rounds,
        spread: Spreads {
            p50_ms: p50,
            p99_ms: p99,
            transaction_p99_ms: transaction,
            p99_over_transaction: over,
        },
    })
}

/// One round: p50, p99, the transaction's p99, the ratio, and the rate.
async fn turn(options: &Options, place: &Place, store: &Store, next: &mut u64) -> Result<[f64; 5]> {
    const HANDS: u64 = 16;
    let chapar = backbone(store.clone())?;
    let client = async_nats::connect(&place.transport).await?;
    let context = async_nats::jetstream::new(client);
    let pool = PgPoolOptions::new().max_connections(HANDS as u32).connect(&place.store).await?;
    let first = *next;
    let each = (options.turn.as_secs_f64() * options.rate as f64 / HANDS as f64) as u64;
    let total = each * HANDS;
    *next += total;
    let note = Arc::new("x".repeat(420));
    // The stream is created with the first event.
    let last = match context.get_stream(STREAM).await {
        Ok(stream) => stream.cached_info().state.last_sequence,
        Err(_) => 0,
    };
    let arrived = tokio::spawn(read(context, total, last + 1));
    let began = Instant::now();
    let mut hands = tokio::task::JoinSet::new();
    for hand in 0..HANDS {
        let (pool, chapar, note) = (pool.clone(), chapar.clone(), note.clone());
        let gap = Duration::from_secs_f64(HANDS as f64 / options.rate as f64);
        let offset = gap.mul_f64(hand as f64 / HANDS as f64);
        hands.spawn(async move {
            let mut times = Vec::with_capacity(each as usize);
            for round in 0..each {
                tokio::time::sleep_until((began + offset + gap * round as u32).into()).await;
                let n = first + round * HANDS + hand;
                let started = Instant::now();
                let begin = crate::append::begin(&tenant(n)?);
                let mut tx = pool.begin_with(sqlx::AssertSqlSafe(begin)).await?;
                business(&mut tx, n as i64).await?;
                chapar.append(&mut tx, &tenant(n)?, draft(n, &note)?).await?;
                tx.commit().await?;
                times.push((n, started.elapsed(), Instant::now()));
            }
            anyhow::Ok(times)
        });
    }
    let mut committed = HashMap::new();
    let mut transactions = Vec::new();
    while let Some(hand) = hands.join_next().await {
        for (n, took, at) in hand?? {
            transactions.push(took.as_secs_f64() * 1e3);
            committed.insert(n, at);
        }
    }
    let rate = total as f64 / began.elapsed().as_secs_f64();
    let mut delays = Vec::new();
    for (n, at) in arrived.await?? {
        let commit = committed.get(&n).context("an event arrived that was not committed")?;
        delays.push(at.saturating_duration_since(*commit).as_secs_f64() * 1e3);
    }
    let (p50, p99) = (percentile(&mut delays, 50), percentile(&mut delays, 99));
    let transaction = percentile(&mut transactions, 99);
    Ok([p50, p99, transaction, p99 / transaction, rate])
}

/// The events of a round as they arrive at a reader of the broker's log: slightly later than the acknowledgement
/// itself.
async fn read(
    context: async_nats::jetstream::Context,
    total: u64,
    start_sequence: u64,
) -> Result<Vec<(u64, Instant)>> {
    let stream = loop {
        match context.get_stream(STREAM).await {
            Ok(stream) => break stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let deliver_policy = DeliverPolicy::ByStartSequence { start_sequence };
    let config = OrderedConfig { deliver_policy, ..Default::default() };
    let mut messages = stream.create_consumer(config).await?.messages().await?;
    let mut seen = Vec::with_capacity(total as usize);
    while (seen.len() as u64) < total {
        let message = tokio::time::timeout(Duration::from_secs(30), messages.next()).await;
        let message = message.context("an event has not arrived within 30 s")?;
        let message = message.context("the broker has ended the stream")??;
        let at = Instant::now();
        let body = std::str::from_utf8(&message.payload)?;
        let (_, number) = body.split_once("\"n\":").context("not one of ours")?;
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        seen.push((digits.parse()?, at));
    }
    ensure!(seen.len() as u64 == total, "events are missing");
    Ok(seen)
}

fn percentile(figures: &mut [f64], percent: usize) -> f64 {
    figures.sort_by(f64::total_cmp);
    let at = figures.len() * percent / 100;
    figures.get(at.min(figures.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
