//! How fast the relay is: relative to the same client publishing the same messages without a database, and relative to
//! the relays in the original code of two systems.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use async_nats::HeaderMap;
use async_nats::jetstream::{Context, context::ContextBuilder, message::PublishMessage};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::Serialize;
use sqlx::{Connection, PgConnection};

use crate::measure::{Contestant, Spread, interleaved, table};
use crate::naive::{self, Seed};
use crate::place::{self, Place, Relay};

const TOPIC: &str = "melmastoon.reservation.booking.modified.v1";
const STREAM: &str = "RESERVATION";
const KEYS: i64 = 10_000;
/// Acknowledgements that may be outstanding, for the raw client as for the relay.
const WINDOW: usize = 4000;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// This program, for the relays.
    pub program: PathBuf,
    /// The database; a private one when none is given.
    pub store: Option<String>,
    /// The broker; a private one when none is given.
    pub transport: Option<String>,
    /// How many events wait.
    pub events: i64,
    /// How many rounds count.
    pub rounds: usize,
    /// How long the naive relay runs in each of them.
    pub naive: Duration,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Relay over raw client.
    pub ratio: f64,
    /// The same with stamps on every event.
    pub ratio_stamped: f64,
    /// The relay.
    pub events_per_s: f64,
    /// The raw client.
    pub raw_per_s: f64,
    /// The relay over the bank's in its seed, 100 events every 100 ms.
    pub naive_factor: f64,
    /// The relay over the hotel's in its seed, which does not wait.
    pub naive_eager_factor: f64,
    /// The most memory that a relay had, in MiB.
    pub peak_rss_mib: f64,
    /// Relay and PostgreSQL together, per million events; nothing with a server that was given.
    pub cpu_s_per_million: Option<f64>,
    /// The rate with all events waiting over the rate with a tenth of them.
    pub backlog_ratio: f64,
    /// How many events.
    pub events: i64,
    /// A message on the wire, without its headers.
    pub body_bytes: usize,
    /// How many rounds.
    pub rounds: usize,
    /// Every contestant, in events per second.
    pub contestants: Vec<Line>,
}

/// A contestant.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// What it is.
    pub name: &'static str,
    /// Events per second.
    pub per_s: Spread,
    /// Over the raw client, within each round.
    pub over_raw: Spread,
}

const RAW: &str = "raw client";
const RELAY: &str = "relay";
const STAMPED: &str = "relay, stamped";
const TENTH: &str = "relay, a tenth waiting";
const NAIVE: &str = "the bank's, 100 ms tick";
const EAGER: &str = "the hotel's, eager";

/// Measures it.
pub fn run(options: &Options) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new()?;
    let bench = runtime.block_on(Bench::prepare(options))?;
    let sample = runtime.block_on(bench.sample())?;
    let body = String::from_utf8(sample.body.to_vec())?;
    let naive_rows = (options.naive.as_secs_f64() * 6000.0) as i64 + 1000;
    let peak = std::cell::Cell::new(0.0f64);
    let cpu = std::cell::RefCell::new(Vec::new());
    let relay = |stamped: bool, events: i64| {
        let bench = &bench;
        let (peak, cpu, runtime) = (&peak, &cpu, &runtime);
        move || {
            let run = runtime.block_on(bench.relay(stamped, events))?;
            peak.set(peak.get().max(run.peak_rss));
            if !stamped && events == bench.options.events {
                cpu.borrow_mut().extend(run.cpu_s_per_million);
            }
            Ok(run.per_s)
        }
    };
    let naive_relay = |seed: Seed| {
        let (bench, runtime, body) = (&bench, &runtime, &body);
        move || {
            runtime.block_on(async {
                naive::prepare(&bench.place.store, naive_rows, body).await?;
                naive::relay(&bench.place.store, &bench.context, options.naive, seed).await
            })
        }
    };
    let mut contestants = [
        Contestant::new(RAW, || runtime.block_on(bench.raw(&sample))),
        Contestant::new(RELAY, relay(false, options.events)),
        Contestant::new(STAMPED, relay(true, options.events)),
        Contestant::new(TENTH, relay(false, options.events / 10)),
        Contestant::new(NAIVE, naive_relay(Seed::Bank)),
        Contestant::new(EAGER, naive_relay(Seed::Hotel)),
    ];
    let rounds = interleaved(&mut contestants, options.rounds)?;
    let over = |name, other| rounds.over(name, other).map(|spread| spread.median);
    let of = |name| rounds.of(name).map(|spread| spread.median);
    let names = [RAW, RELAY, STAMPED, TENTH, NAIVE, EAGER];
    let line =
        |name| Some(Line { name, per_s: rounds.of(name)?, over_raw: rounds.over(name, RAW)? });
    let report = || {
        Some(Report {
            ratio: over(RELAY, RAW)?,
            ratio_stamped: over(STAMPED, RAW)?,
            events_per_s: of(RELAY)?,
            raw_per_s: of(RAW)?,
            naive_factor: over(RELAY, NAIVE)?,
            naive_eager_factor: over(RELAY, EAGER)?,
            peak_rss_mib: peak.get(),
            cpu_s_per_million: Spread::of(&cpu.borrow()).map(|spread| spread.median),
            backlog_ratio: over(RELAY, TENTH)?,
            events: options.events,
            body_bytes: sample.body.len(),
            rounds: rounds.len(),
            contestants: names.into_iter().map(line).collect::<Option<_>>()?,
        })
    };
    report().context("no round was run")
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
                    format!("{:.3}", line.over_raw.median),
                ]
            })
            .collect();
        let cpu = self.cpu_s_per_million.map_or("unknown".into(), |cpu| format!("{cpu:.1} s"));
        table(&["what", "events/s", "spread", "over raw"], &rows)
            + &format!(
                "\n{} events of {} bytes, {} rounds. At most {:.0} MiB; {cpu} of processor time \
                 per million for relay and database; a full backlog at {:.2} of the rate of a \
                 tenth.\n",
                self.events, self.body_bytes, self.rounds, self.peak_rss_mib, self.backlog_ratio
            )
    }
}

struct Bench<'a> {
    options: &'a Options,
    place: Place,
    context: Context,
}

struct Sample {
    headers: HeaderMap,
    body: Bytes,
}

struct Ran {
    per_s: f64,
    peak_rss: f64,
    cpu_s_per_million: Option<f64>,
}

impl<'a> Bench<'a> {
    async fn prepare(options: &'a Options) -> Result<Self> {
        ensure!(options.events >= 1000, "--events: at least 1000, or there is nothing to measure");
        let place = Place::prepare(options.store.as_deref(), options.transport.as_deref()).await?;
        let client = async_nats::connect(&place.transport).await?;
        let context = ContextBuilder::new().max_ack_inflight(WINDOW).build(client);
        let bench = Bench { options, place, context };
        bench.fill().await?;
        Ok(bench)
    }

    /// Rows as an append would have written them: sealed, 1 KiB each.
    async fn fill(&self) -> Result<()> {
        const FILL: &str = "insert into chapar.outbox (event_id, tenant, topic, ordering_key, \
            shard, aggregate_type, aggregate_id, correlation_id, sealed, headers, body) \
            select id, 't' || n % 20, $2, key, chapar.shard(key), 'booking', 'k' || n % $3, id, true, \
                $4, convert_to(replace(replace($5, '{id}', id), '{tenant}', 't' || n % 20), 'UTF8') \
            from generate_series(1, $1) n, lateral (select chapar.uuid_v7() as id, \
                't' || n % 20 || ':k' || n % $3 as key) k";
        let mut conn = PgConnection::connect(&self.place.store).await?;
        sqlx::query("set role chapar_engine").execute(&mut conn).await?;
        let last: i64 = sqlx::query_scalar("select last_value from chapar.outbox_seq")
            .fetch_one(&mut conn)
            .await?;
        if last > 1 {
            bail!("the outbox of this store is in use; give an empty database");
        }
        let payload = "x".repeat(560);
        let body = format!(
            "{{\"eventId\":\"{{id}}\",\"eventType\":\"melmastoon.reservation.booking.modified\",\
             \"eventVersion\":1,\"schemaUri\":\"schemas://melmastoon/reservation/booking/modified/v1\",\
             \"tenantId\":\"{{tenant}}\",\"correlationId\":\"{{id}}\",\
             \"occurredAt\":\"2026-01-01T00:00:00.000Z\",\
             \"producer\":{{\"service\":\"reservation-service\",\"instance\":\"1\"}},\
             \"payload\":{{\"note\":\"{payload}\"}}}}"
        );
        let headers = "[[\"eventType\",\"melmastoon.reservation.booking.modified\"],\
            [\"eventVersion\",\"1\"],[\"idempotencyKey\",\"k:1\"]]";
        let mut left = self.options.events;
        while left > 0 {
            let rows = left.min(20_000);
            sqlx::query(FILL)
                .bind(rows)
                .bind(TOPIC)
                .bind(KEYS)
                .bind(headers)
                .bind(&body)
                .execute(&mut conn)
                .await?;
            left -= rows;
        }
        for tidy in ["reset role", "vacuum analyze chapar.outbox", "checkpoint"] {
            sqlx::raw_sql(tidy).execute(&mut conn).await?;
        }
        conn.close().await?;
        Ok(())
    }

    /// Resets the relays, so that the last `events` wait again, with a new stream that has no duplicate window.
    async fn rewind(&self, events: i64) -> Result<()> {
        const REWIND: &str = "update chapar.shards set epoch = null, track = 1; \
            delete from chapar.relays; delete from chapar.tracks; \
            delete from chapar.marked; delete from chapar.key_marks; \
            delete from chapar.earlier_marks;";
        let _ = self.context.delete_stream(STREAM).await;
        let mut conn = PgConnection::connect(&self.place.store).await?;
        let done = self.options.events - events;
        let cursor = format!(
            "{{\"seen\":\"1:1:\",\"seen_xid\":1,\"seen_seq\":{done},\"seen_top\":{done},\"after\":0,\"floor\":{done},\
             \"floor_xid\":1,\"floor_next\":{done}}}"
        );
        sqlx::raw_sql("set role chapar_engine").execute(&mut conn).await?;
        sqlx::raw_sql(REWIND).execute(&mut conn).await?;
        sqlx::query("insert into chapar.tracks values (1, 1, $1)")
            .bind(cursor)
            .execute(&mut conn)
            .await?;
        conn.close().await?;
        Ok(())
    }

    fn start(&self, stamped: bool) -> Result<Relay> {
        let stamp = ["--stamp", TOPIC];
        Relay::start(&self.options.program, &self.place, if stamped { &stamp } else { &[] })
    }

    async fn relay(&self, stamped: bool, events: i64) -> Result<Ran> {
        self.rewind(events).await?;
        let before = self.place.database_cpu();
        let relay = self.start(stamped)?;
        let pid = relay.id();
        let per_s = self.until_published(events).await?;
        let spent = || Some(self.place.database_cpu()? - before? + place::cpu(pid, false)?);
        let cpu_s_per_million = spent().map(|spent| spent * 1e6 / events as f64);
        let peak_rss = place::peak_rss(pid).unwrap_or(f64::NAN);
        drop(relay);
        Ok(Ran { per_s, peak_rss, cpu_s_per_million })
    }

    /// Waits until the stream has that many; the rate is between its first and its last.
    async fn until_published(&self, events: i64) -> Result<f64> {
        let mut silent = 0;
        let mut last = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let Ok(stream) = self.context.get_stream(STREAM).await else {
                silent += 1;
                ensure!(silent < 300, "nothing was published within 30 s");
                continue;
            };
            let state = stream.cached_info().state.clone();
            silent = if state.messages == last { silent + 1 } else { 0 };
            ensure!(silent < 300, "only {last} of {events} were published, and no more for 30 s");
            last = state.messages;
            if state.messages >= events as u64 {
                let time = state.last_timestamp - state.first_timestamp;
                return Ok(events as f64 / time.as_seconds_f64());
            }
        }
    }

    /// A message as the relay publishes it.
    async fn sample(&self) -> Result<Sample> {
        self.rewind(1000.min(self.options.events)).await?;
        let relay = self.start(false)?;
        self.until_published(1000.min(self.options.events)).await?;
        drop(relay);
        let stream = self.context.get_stream(STREAM).await?;
        let message = stream.get_raw_message(1).await?;
        Ok(Sample { headers: message.headers, body: message.payload })
    }

    /// The same client, the same bytes and headers, and no database.
    async fn raw(&self, sample: &Sample) -> Result<f64> {
        let _ = self.context.delete_stream(STREAM).await;
        let config = async_nats::jetstream::stream::Config {
            name: STREAM.into(),
            subjects: vec!["melmastoon.reservation.>".into()],
            allow_direct: true,
            ..Default::default()
        };
        self.context.create_stream(config).await?;
        let mut acks = FuturesUnordered::new();
        for n in 0..self.options.events {
            let mut headers = sample.headers.clone();
            headers.insert("Nats-Msg-Id", format!("{:032x}-{n:03x}", n));
            let message = PublishMessage::build().headers(headers).payload(sample.body.clone());
            let subject = format!("{TOPIC}.p{}", n % 12);
            acks.push(self.context.send_publish(subject, message).await?.into_future());
            if acks.len() >= WINDOW {
                acks.next().await.transpose()?;
            }
        }
        while let Some(ack) = acks.next().await {
            ack?;
        }
        self.until_published(self.options.events).await
    }
}
