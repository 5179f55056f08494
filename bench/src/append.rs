//! The cost of an append to its transaction, and what each guarantee adds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chapar::{Chapar, Draft, Payload, Producer, Store, StoreOptions, Tenant};
use chapar_core::Aggregate;
use chapar_core::dialect::MetadataJson;
use chapar_sql::Append;
use serde::Serialize;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use tokio::task::JoinSet;

use crate::measure::{Rounds, Spread, sliced, table};
use crate::place::Place;

pub(crate) const SUBJECT: &str = "melmastoon.reservation.booking.modified.v1";
const CONNECTIONS: [usize; 3] = [1, 8, 32];
/// Turns are this short, so that other load on the machine affects all contestants alike.
const SLICE: Duration = Duration::from_millis(200);

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
    /// The same for an append that is sent together with the commit, over `tokio-postgres`.
    pub pipelined_loss_1: f64,
    /// Over eight connections.
    pub pipelined_loss_8: f64,
    /// Over thirty-two.
    pub pipelined_loss_32: f64,
    /// On SQLite: a hundred events in a transaction relative to the bare insert of the same bytes.
    pub sqlite_over_bare: f64,
    /// How many rounds.
    pub rounds: usize,
    /// Every contestant.
    pub contestants: Vec<Line>,
}

/// A contestant.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// What it does in addition to the business row.
    pub name: &'static str,
    /// Over how many connections.
    pub connections: usize,
    /// Transactions per second.
    pub per_s: Spread,
    /// Its loss relative to the bare transaction of its driver, within each round.
    pub loss: Spread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Bare,
    Bytes,
    Unordered,
    Ordered,
    Full,
    OtherBare,
    Pipelined,
}

impl Way {
    const ALL: [Way; 7] = [
        Way::Bare,
        Way::Bytes,
        Way::Unordered,
        Way::Ordered,
        Way::Full,
        Way::OtherBare,
        Way::Pipelined,
    ];

    fn name(self) -> &'static str {
        match self {
            Way::Bare => "the business row alone",
            Way::Bytes => "1 KiB more, no guarantee",
            Way::Unordered => "append, unordered",
            Way::Ordered => "append, ordered",
            Way::Full => "append, ordered, idempotent",
            Way::OtherBare => "tokio-postgres, the row alone",
            Way::Pipelined => "the same, and all of append with the commit",
        }
    }

    /// What it is compared to.
    fn bare(self) -> Way {
        match self {
            Way::OtherBare | Way::Pipelined => Way::OtherBare,
            _ => Way::Bare,
        }
    }
}

/// A way over some connections.
struct Entry {
    name: &'static str,
    way: Way,
    connections: usize,
}

/// Measures it.
pub fn run(options: &Options) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new()?;
    let bench = Arc::new(runtime.block_on(Bench::prepare(options))?);
    let entries: Vec<Entry> = CONNECTIONS
        .into_iter()
        .flat_map(|connections| Way::ALL.map(|way| (way, connections)))
        .map(|(way, connections)| {
            let name = format!("{} × {connections}", way.name()).leak();
            Entry { name, way, connections }
        })
        .collect();
    let rounds = sliced(entries.iter().map(|entry| entry.name).collect(), options.rounds, || {
        runtime.block_on(bench.clone().round(options.turn))
    })?;
    let sqlite = sliced(vec!["bare", "append"], options.rounds, || {
        let turn = |append| runtime.block_on(sqlite(append, options.turn));
        Ok(vec![turn(false)?, turn(true)?])
    })?;
    report(&entries, &rounds, &sqlite).context("every contestant has run")
}

fn report(entries: &[Entry], rounds: &Rounds, sqlite: &Rounds) -> Option<Report> {
    let named = |way: Way, connections: usize| {
        let entry = entries.iter().find(|e| e.way == way && e.connections == connections);
        entry.map(|entry| entry.name)
    };
    let loss = |way: Way, connections| {
        let over = rounds.over(named(way, connections)?, named(way.bare(), connections)?)?;
        Some(Spread { median: 1.0 - over.median, min: 1.0 - over.max, max: 1.0 - over.min })
    };
    let line = |entry: &Entry| {
        Some(Line {
            name: entry.way.name(),
            connections: entry.connections,
            per_s: rounds.of(entry.name)?,
            loss: loss(entry.way, entry.connections)?,
        })
    };
    let full = |connections| Some(loss(Way::Full, connections)?.median);
    let pipelined = |connections| Some(loss(Way::Pipelined, connections)?.median);
    Some(Report {
        loss_1: full(1)?,
        loss_8: full(8)?,
        loss_32: full(32)?,
        pipelined_loss_1: pipelined(1)?,
        pipelined_loss_8: pipelined(8)?,
        pipelined_loss_32: pipelined(32)?,
        sqlite_over_bare: sqlite.over("append", "bare")?.median,
        rounds: rounds.len(),
        contestants: entries.iter().map(line).collect::<Option<_>>()?,
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
                    format!("{:.2}", line.loss.median),
                    format!("{:.2} – {:.2}", line.loss.min, line.loss.max),
                ]
            })
            .collect();
        table(
            &["with the transaction goes", "connections", "per second", "spread", "loss", "spread"],
            &rows,
        ) + &format!(
            "\nmedian of {} rounds in turns. SQLite, 100 events in a transaction: {:.2} of the \
                 bare insert of the same bytes.\n",
            self.rounds, self.sqlite_over_bare
        )
    }
}

struct Bench {
    _place: Place,
    chapar: Chapar,
    next: AtomicU64,
    note: String,
    /// One for each number of connections.
    pools: Vec<PgPool>,
    clients: Vec<Arc<Other>>,
}

/// A connection of another driver.
struct Other {
    client: tokio_postgres::Client,
    business: tokio_postgres::Statement,
    append: tokio_postgres::Statement,
}

/// Begins as a service does, with its tenant in the same round trip. Tenants here need no quoting.
pub(crate) fn begin(tenant: &Tenant) -> String {
    format!("begin; set local app.tenant_id = '{tenant}'")
}

const BUSINESS: &str = "insert into bench_orders (id, tenant, note) values ($1, $2, $3)";

impl Bench {
    async fn prepare(options: &Options) -> Result<Self> {
        let place = Place::of_durable_database(options.store.as_deref()).await?;
        let store = Store::open(&place.store, &StoreOptions::default()).await?;
        let chapar = backbone(store)?;
        let mut tx = chapar.store().begin_raw().await?;
        for table in [
            "create table if not exists bench_orders (id bigint primary key, tenant text not null, note text not null)",
            "create table if not exists bench_bytes (id bigint generated always as identity primary key, key text not null, body bytea not null)",
        ] {
            tx.execute(table, vec![]).await?;
        }
        tx.commit().await?;
        let mut pools = Vec::new();
        for connections in CONNECTIONS {
            let most = connections as u32;
            let pool = PgPoolOptions::new().max_connections(most).min_connections(most);
            pools.push(pool.connect(&place.store).await?);
        }
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS[CONNECTIONS.len() - 1] {
            clients.push(Arc::new(Other::connect(&place.store).await?));
        }
        let note = "x".repeat(420);
        Ok(Bench { _place: place, chapar, next: AtomicU64::new(0), note, pools, clients })
    }

    /// Runs all contestants in turns of one slice until each has had its time; returns the transactions per second of
    /// each.
    async fn round(self: Arc<Self>, time: Duration) -> Result<Vec<f64>> {
        let slices = (time.as_secs_f64() / SLICE.as_secs_f64()).ceil().max(1.0) as u32;
        let mut rates = Vec::new();
        for at in 0..CONNECTIONS.len() {
            let mut done = [0u64; Way::ALL.len()];
            let mut taken = [Duration::ZERO; Way::ALL.len()];
            for _ in 0..slices {
                for (n, way) in Way::ALL.into_iter().enumerate() {
                    let began = Instant::now();
                    done[n] += self.clone().slice(way, at).await?;
                    taken[n] += began.elapsed();
                }
            }
            rates.extend(done.iter().zip(taken).map(|(n, time)| *n as f64 / time.as_secs_f64()));
        }
        Ok(rates)
    }

    async fn slice(self: Arc<Self>, way: Way, at: usize) -> Result<u64> {
        let began = Instant::now();
        let mut hands = JoinSet::new();
        for hand in 0..CONNECTIONS[at] {
            let bench = self.clone();
            hands.spawn(async move {
                let mut done = 0u64;
                while began.elapsed() < SLICE {
                    match way {
                        Way::OtherBare | Way::Pipelined => {
                            bench.other_transaction(&bench.clients[hand], way).await?;
                        }
                        _ => bench.transaction(&bench.pools[at], way, hand).await?,
                    }
                    done += 1;
                }
                anyhow::Ok(done)
            });
        }
        let mut done = 0;
        while let Some(hand) = hands.join_next().await {
            done += hand??;
        }
        Ok(done)
    }

    async fn transaction(&self, pool: &PgPool, way: Way, hand: usize) -> Result<()> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let mut tx = pool.begin_with(AssertSqlSafe(begin(&tenant(n)?))).await?;
        business(&mut tx, n as i64).await?;
        match way {
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
                self.chapar.append(&mut tx, &tenant(n)?, draft).await?;
            }
            _ => {}
        }
        tx.commit().await?;
        Ok(())
    }

    /// The commit does not wait for the answer to the append: if that fails, it rolls back.
    async fn other_transaction(&self, on: &Other, way: Way) -> Result<()> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let (tenant, note) = (tenant(n)?, "two nights, late arrival");
        on.client.batch_execute(&begin(&tenant)).await?;
        on.client.execute(&on.business, &[&(n as i64), &tenant.as_str(), &note]).await?;
        if way == Way::OtherBare {
            on.client.batch_execute("commit").await?;
            return Ok(());
        }
        let draft = draft(n, &self.note)?.idempotency_key(format!("b{n}:modified"));
        let events = self.chapar.prepare(&tenant, [draft])?;
        let event = events.first().context("a draft gives an event")?;
        let (shard, hash, body) = (event.home_shard(), &event.payload_hash[..], &event.body[..]);
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 13] = [
            &event.event_id,
            &event.tenant,
            &event.topic,
            &event.ordering_key,
            &shard,
            &event.aggregate_type,
            &event.aggregate_id,
            &event.idempotency_key,
            &hash,
            &event.correlation_id,
            &event.causation_id,
            &event.headers,
            &body,
        ];
        let append = on.client.query_one(&on.append, &parameters);
        let (appended, committed) = tokio::join!(append, on.client.batch_execute("commit"));
        appended?;
        committed?;
        Ok(())
    }
}

impl Other {
    async fn connect(url: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        let business = client.prepare(BUSINESS).await?;
        let append = client.prepare(Append::CALL).await?;
        Ok(Other { client, business, append })
    }
}

/// A service of a system with optional idempotency keys.
pub(crate) fn backbone(store: Store) -> Result<Chapar> {
    let mut profile = chapar_testkit::profile("melmastoon");
    profile.idempotency = chapar_core::profile::IdempotencyRule::Optional;
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    Ok(Chapar::builder(store, profile, Arc::new(MetadataJson)).producer(producer).build())
}

pub(crate) async fn business(tx: &mut Transaction<'_, Postgres>, n: i64) -> Result<()> {
    sqlx::query(BUSINESS)
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
    Ok(Draft::new(SUBJECT, aggregate, Payload::json(&payload)?))
}

/// The tenant whose event number `n` is.
pub(crate) fn tenant(n: u64) -> Result<Tenant> {
    Ok(format!("t{}", n % 20).parse()?)
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
    let tenant = tenant(0)?;
    let (began, mut n) = (Instant::now(), 0u64);
    while began.elapsed() < time {
        let mut tx = store.begin(tenant.as_str()).await?;
        if append {
            let drafts: Result<Vec<Draft>> = (n..n + EVENTS).map(|n| draft(n, &note)).collect();
            chapar.append_batch(&mut tx, &tenant, drafts?).await?;
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
