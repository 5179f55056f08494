//! How long the preview of a seek takes, relative to counting the rows of the log.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use chapar::ops::{Seek, SeekTarget};
use chapar::{Store, StoreOptions};
use chapar_sql::{Scope, SqlTransport};
use serde::Serialize;
use sqlx::{Connection, PgConnection};

use crate::measure::{Contestant, Spread, interleaved, table};
use crate::place::Place;

const CONSUMER: &str = "bench";

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// The database; a private one when none is given.
    pub store: Option<String>,
    /// How many events lie in the log.
    pub events: i64,
    /// How many rounds count.
    pub rounds: usize,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// From the beginning, over all events: the median in seconds.
    pub preview_s: f64,
    /// How many events.
    pub events: i64,
    /// How many rounds.
    pub rounds: usize,
    /// Every contestant, in seconds.
    pub contestants: Vec<Line>,
}

/// A contestant.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// What it is.
    pub name: &'static str,
    /// Seconds.
    pub seconds: Spread,
}

const ALL: &str = "preview from the beginning";
const SCOPED: &str = "preview of one tenant";
const HALF: &str = "preview from a time half-way";
const COUNT: &str = "count(*) of the log";

/// Measures it.
pub fn run(options: &Options) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new()?;
    let bench = runtime.block_on(Bench::prepare(options))?;
    let half = runtime.block_on(bench.half_way())?;
    let seek = |to: SeekTarget, scope: Scope, expected: i64| {
        let (bench, runtime) = (&bench, &runtime);
        move || runtime.block_on(bench.preview(to.clone(), scope.clone(), expected))
    };
    let one = Scope { topics: vec![], tenants: vec!["t1".into()] };
    let (all, n) = (Scope::default(), options.events);
    let mut contestants = [
        Contestant::new(COUNT, || runtime.block_on(bench.count())),
        Contestant::new(ALL, seek(SeekTarget::Beginning, all.clone(), n)),
        Contestant::new(SCOPED, seek(SeekTarget::Beginning, one, n / 10)),
        Contestant::new(HALF, seek(half, all, n / 2)),
    ];
    let rounds = interleaved(&mut contestants, options.rounds)?;
    let line = |name| Some(Line { name, seconds: rounds.of(name)? });
    let contestants: Vec<Line> = [COUNT, ALL, SCOPED, HALF].into_iter().filter_map(line).collect();
    let preview_s = rounds.of(ALL).context("it was measured")?.median;
    Ok(Report { preview_s, events: options.events, rounds: options.rounds, contestants })
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let s = |value: f64| format!("{value:.3} s");
        let row = |Line { name, seconds }: &Line| {
            vec![
                (*name).to_owned(),
                s(seconds.median),
                format!("{} to {}", s(seconds.min), s(seconds.max)),
            ]
        };
        let rows: Vec<Vec<String>> = self.contestants.iter().map(row).collect();
        let head = format!("over {} events", self.events);
        table(&[&head, "median", "spread"], &rows)
    }
}

struct Bench {
    place: Place,
    store: Store,
    transport: SqlTransport,
}

impl Bench {
    /// A log of 8 partitions, ten tenants and four topics, of which three quarters are applied.
    async fn prepare(options: &Options) -> Result<Self> {
        let place = Place::of_database(options.store.as_deref()).await?;
        let mut db = PgConnection::connect(&place.store).await?;
        let fill = format!(
            "insert into chapar.log (log_partition, log_offset, event_id, tenant, topic, ordering_key, \
                 headers, body, published_at) \
             select i % 8, i / 8 + 1, '0192f3a1-5c1e-7b5a-9d5e-' || lpad(to_hex(i), 12, '0'), \
                 't' || (i / 8 % 10), 'melmastoon.bench.thing.happened' || (i % 4) || '.v1', \
                 't' || (i / 8 % 10) || ':' || (i % 10000), '[[\"content-type\",\"application/json\"]]', \
                 convert_to(rpad('{{\"n\":' || i || ',\"text\":\"', 600, md5(i::text)), 'UTF8'), \
                 timestamptz '2026-01-01' + i * interval '1 millisecond' \
             from generate_series(0, {} - 1) i",
            options.events
        );
        let statements = [
            fill,
            "update chapar.log_heads h set next_offset = (select max(log_offset) + 1 from chapar.log l \
                 where l.log_partition = h.log_partition)"
                .to_owned(),
            format!(
                "insert into chapar.inbox (consumer, event_id, tenant, topic, result) \
                 select '{CONSUMER}', event_id, tenant, topic, 'ok' from chapar.log where log_offset % 4 <> 0"
            ),
            format!(
                "insert into chapar.cursors (subscription, log_partition, acked_offset) \
                 select '{CONSUMER}', log_partition, next_offset - 1 from chapar.log_heads"
            ),
            format!(
                "insert into chapar.topic_readers (topic, subscription, service) \
                 select distinct topic, '{CONSUMER}', 'bench' from chapar.log"
            ),
            "vacuum analyze chapar.log".to_owned(),
            "vacuum analyze chapar.inbox".to_owned(),
        ];
        for statement in statements {
            sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut db).await?;
        }
        db.close().await?;
        let store = Store::open(&place.store, &StoreOptions::default()).await?;
        let transport = SqlTransport::new(store.clone(), "bench");
        Ok(Bench { place, store, transport })
    }

    async fn half_way(&self) -> Result<SeekTarget> {
        let mut tx = self.store.begin_engine().await?;
        const HALF: &str = "select min(published_at) + (max(published_at) - min(published_at)) / 2 \
             + interval '500 microseconds' from chapar.log";
        let row = tx.fetch_optional(HALF, vec![]).await?.context("there are events")?;
        Ok(SeekTarget::Time(row.get(0)?))
    }

    async fn preview(&self, to: SeekTarget, scope: Scope, expected: i64) -> Result<f64> {
        let seek = Seek { consumer: CONSUMER.into(), to, scope, reapply: true, topics: Vec::new() };
        let began = Instant::now();
        let preview = seek.preview(&self.store, &self.transport).await?;
        let took = began.elapsed().as_secs_f64();
        let near = (preview.events as i64 - expected).abs() <= 100;
        ensure!(near, "it counts {} events, not {expected}", preview.events);
        Ok(took)
    }

    async fn count(&self) -> Result<f64> {
        let mut db = PgConnection::connect(&self.place.store).await?;
        let began = Instant::now();
        sqlx::query("select count(*) from chapar.log").execute(&mut db).await?;
        let took = began.elapsed().as_secs_f64();
        db.close().await?;
        Ok(took)
    }
}
