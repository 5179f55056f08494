//! What an append costs the transaction it is part of, and what each guarantee adds to that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chapar::core::Aggregate;
use chapar::core::dialect::Melmastoon;
use chapar::{Chapar, Draft, Payload, Producer, Profile, Store, StoreOptions};
use serde::Serialize;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres, Transaction};
use tokio::task::JoinSet;

use crate::measure::{Contestant, Spread, interleaved, table};
use crate::place::Place;

pub(crate) const SUBJECT: &str = "melmastoon.reservation.booking.modified.v1";
const CONNECTIONS: [usize; 3] = [1, 8, 32];

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// The database; a private one when none is given.
    pub store: Option<String>,
    /// How many rounds count.
    pub rounds: usize,
    /// How long each contestant runs in each of them.
    pub turn: Duration,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What one connection loses, from 0 to 1.
    pub loss_1: f64,
    /// What eight lose.
    pub loss_8: f64,
    /// What thirty-two lose.
    pub loss_32: f64,
    /// On SQLite, a hundred events in a transaction over the bare insert of the same bytes.
    pub sqlite_over_bare: f64,
    /// How many rounds.
    pub rounds: usize,
    /// Every contestant.
    pub contestants: Vec<Line>,
}

/// A contestant.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// What it does beside the business row.
    pub name: &'static str,
    /// Over how many connections.
    pub connections: usize,
    /// Transactions per second.
    pub per_s: Spread,
    /// What it loses against the bare transaction, within each round.
    pub loss: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Bare,
    Bytes,
    Unordered,
    Ordered,
    Full,
}

impl Way {
    const ALL: [Way; 5] = [Way::Bare, Way::Bytes, Way::Unordered, Way::Ordered, Way::Full];

    fn name(self) -> &'static str {
        match self {
            Way::Bare => "the business row alone",
            Way::Bytes => "1 KiB more, no guarantee",
            Way::Unordered => "append, unordered",
            Way::Ordered => "append, ordered",
            Way::Full => "append, ordered, idempotent",
        }
    }
}

/// Measures it.
pub fn run(options: &Options) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new()?;
    let bench = Arc::new(runtime.block_on(Bench::prepare(options))?);
    let mut names: Vec<(&'static str, Way, usize)> = Vec::new();
    for connections in CONNECTIONS {
        for way in Way::ALL {
            let name = format!("{} × {connections}", way.name()).leak();
            names.push((name, way, connections));
        }
    }
    let mut contestants: Vec<Contestant<'_>> = names
        .iter()
        .map(|(name, way, connections)| {
            let (bench, runtime) = (bench.clone(), &runtime);
            Contestant::new(name, move || {
                runtime.block_on(bench.clone().turn(*way, *connections, options.turn))
            })
        })
        .collect();
    contestants
        .push(Contestant::new("sqlite, bare", || runtime.block_on(sqlite(false, options.turn))));
    contestants
        .push(Contestant::new("sqlite, append", || runtime.block_on(sqlite(true, options.turn))));
    let rounds = interleaved(&mut contestants, options.rounds)?;
    drop(contestants);
    let mut losses: BTreeMap<(usize, Way), f64> = BTreeMap::new();
    let mut lines = Vec::new();
    for (name, way, connections) in &names {
        let bare = names.iter().find(|(_, way, n)| *way == Way::Bare && n == connections);
        let (bare, ..) = bare.context("the bare one runs too")?;
        let over = rounds.over(name, bare).context("it ran")?;
        let loss = 1.0 - over.median;
        losses.insert((*connections, *way), loss);
        let per_s = rounds.of(name).context("it ran")?;
        lines.push(Line { name: way.name(), connections: *connections, per_s, loss });
    }
    let loss = |connections| losses.get(&(connections, Way::Full)).copied().unwrap_or(f64::NAN);
    let sqlite = rounds.over("sqlite, append", "sqlite, bare").context("SQLite ran")?;
    Ok(Report {
        loss_1: loss(1),
        loss_8: loss(8),
        loss_32: loss(32),
        sqlite_over_bare: sqlite.median,
        rounds: rounds.len(),
        contestants: lines,
    })
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
                    line.connections.to_string(),
                    format!("{:.0}", line.per_s.median),
                    format!("{:.0} – {:.0}", line.per_s.min, line.per_s.max),
                    format!("{:.2}", line.loss),
                ]
            })
            .collect();
        table(&["with the transaction goes", "connections", "per second", "spread", "loss"], &rows)
            + &format!(
                "\nmedian of {} rounds in turns. SQLite, 100 events in a transaction: {:.2} of the \
                 bare insert of the same bytes.\n",
                self.rounds, self.sqlite_over_bare
            )
    }
}

struct Bench {
    place: Place,
    chapar: Chapar,
    next: AtomicU64,
    note: String,
}

impl Bench {
    async fn prepare(options: &Options) -> Result<Self> {
        let place = Place::of_database(options.store.as_deref()).await?;
        let store = Store::open(&place.store, &StoreOptions::default()).await?;
        let chapar = backbone(store)?;
        let bench = Bench { place, chapar, next: AtomicU64::new(0), note: "x".repeat(420) };
        let mut tx = bench.chapar.store().begin_raw().await?;
        for table in [
            "create table if not exists bench_orders (id bigint primary key, tenant text not null, note text not null)",
            "create table if not exists bench_bytes (id bigint generated always as identity primary key, key text not null, body bytea not null)",
        ] {
            tx.execute(table, vec![]).await?;
        }
        tx.commit().await?;
        Ok(bench)
    }

    /// Runs transactions on some connections for a while; returns how many per second.
    async fn turn(self: Arc<Self>, way: Way, connections: usize, time: Duration) -> Result<f64> {
        let most = connections as u32;
        let pool = PgPoolOptions::new()
            .max_connections(most)
            .min_connections(most)
            .connect(&self.place.store)
            .await?;
        let began = Instant::now();
        let mut hands = JoinSet::new();
        for hand in 0..connections {
            let (bench, pool) = (self.clone(), pool.clone());
            hands.spawn(async move {
                let mut done = 0u64;
                while began.elapsed() < time {
                    bench.transaction(&pool, way, hand).await?;
                    done += 1;
                }
                anyhow::Ok(done)
            });
        }
        let mut done = 0;
        while let Some(hand) = hands.join_next().await {
            done += hand??;
        }
        let rate = done as f64 / began.elapsed().as_secs_f64();
        pool.close().await;
        Ok(rate)
    }

    async fn transaction(&self, pool: &PgPool, way: Way, hand: usize) -> Result<()> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let mut tx = pool.begin().await?;
        business(&mut tx, n as i64).await?;
        match way {
            Way::Bare => {}
            Way::Bytes => {
                sqlx::query("insert into bench_bytes (key, body) values ($1, $2)")
                    .bind(format!("k{hand}"))
                    .bind(vec![b'x'; 1024])
                    .execute(&mut *tx)
                    .await?;
            }
            Way::Unordered | Way::Ordered | Way::Full => {
                let mut draft = draft(n, &self.note)?;
                draft = match way {
                    Way::Unordered => draft.unordered(),
                    Way::Full => draft.idempotency_key(format!("b{n}:modified")),
                    _ => draft,
                };
                self.chapar.append(&mut tx, draft).await?;
            }
        }
        tx.commit().await?;
        Ok(())
    }
}

/// A service of a system that leaves idempotency keys to its services.
pub(crate) fn backbone(store: Store) -> Result<Chapar> {
    let mut profile = Profile::builtin("melmastoon").context("the profile is built in")?;
    profile.idempotency = chapar::core::profile::IdempotencyRule::Optional;
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    Ok(Chapar::builder(store, profile, Arc::new(Melmastoon)).producer(producer).build())
}

pub(crate) async fn business(tx: &mut Transaction<'_, Postgres>, n: i64) -> Result<()> {
    sqlx::query("insert into bench_orders (id, tenant, note) values ($1, $2, $3)")
        .bind(n)
        .bind(format!("t{}", n % 20))
        .bind("two nights, late arrival")
        .execute(&mut **tx)
        .await?;
    Ok(())
}

pub(crate) fn draft(n: u64, note: &str) -> Result<Draft> {
    let aggregate =
        Aggregate { kind: "booking".into(), id: format!("b{}", n % 10_000), version: None };
    let payload = serde_json::json!({ "n": n, "note": note });
    Ok(Draft::new(SUBJECT, format!("t{}", n % 20).parse()?, aggregate, Payload::json(&payload)?))
}

/// A hundred events in a transaction, or the bare insert of the same bytes.
async fn sqlite(append: bool, time: Duration) -> Result<f64> {
    const EVENTS: u64 = 100;
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("bench.db").display());
    let store = Store::open(&url, &StoreOptions::default()).await?;
    store.migrate().await?;
    let chapar = backbone(store.clone())?;
    let mut tx = store.begin_raw().await?;
    tx.execute("create table bare (seq integer primary key, id text, key text, body blob)", vec![])
        .await?;
    tx.commit().await?;
    let note = "x".repeat(420);
    let (began, mut n) = (Instant::now(), 0u64);
    while began.elapsed() < time {
        let mut tx = store.begin("t0").await?;
        if append {
            let drafts: Result<Vec<Draft>> = (n..n + EVENTS).map(|n| draft(n, &note)).collect();
            chapar.append_batch(&mut tx, drafts?).await?;
        } else {
            for n in n..n + EVENTS {
                let args = vec![
                    format!("e{n}").into(),
                    format!("k{n}").into(),
                    (&bytes::Bytes::from(vec![b'x'; 1024])).into(),
                ];
                tx.execute("insert into bare (id, key, body) values ($1, $2, $3)", args).await?;
            }
        }
        tx.commit().await?;
        n += EVENTS;
    }
    let rate = n as f64 / began.elapsed().as_secs_f64();
    store.close().await;
    Ok(rate)
}
