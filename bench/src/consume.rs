//! How fast a consumer applies events, relative to the same statements written by hand, and the cost of its guarantees:
//! tenant isolation, one transaction per event, a poisoned key, memory.

mod feed;
mod hand;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chapar::{App, Chapar, Consumer, Cx, Event, Failure, Service, Store, StoreOptions};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

use self::feed::{Feed, Plan, Template};
use crate::append::backbone;
use crate::measure::{Contestant, Rounds, Spread, interleaved, table};
use crate::place::{self, Place};

/// Events in a transaction.
const BATCH: usize = 500;
const TENANTS: u64 = 20;
const KEYS: u64 = 10_000;
/// The keys beside the poisoned one.
const HEALTHY: u64 = 1000;
const CONSUMER: &str = "bench.bookings";

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// The database; a private one when none is given.
    pub store: Option<String>,
    /// How many rounds count.
    pub rounds: usize,
    /// How long each contestant runs in each of them.
    pub turn: Duration,
    /// How many messages memory is watched over.
    pub messages: u64,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// A handler per event over the same statements by hand.
    pub over_handwritten: f64,
    /// A handler per set over the same statements by hand.
    pub set_over_handwritten: f64,
    /// Twenty tenants with row-level security relative to one tenant without.
    pub rls_ratio: f64,
    /// Batches over one event per transaction.
    pub batch_over_single_1: f64,
    /// The rate of the other keys while one is poisoned, over the rate without.
    pub poison_throughput_ratio: f64,
    /// The most memory of the process over the messages that were watched, in MiB.
    pub peak_rss_mib: f64,
    /// How many those were.
    pub peak_rss_messages: u64,
    /// Events per second, a handler per event.
    pub events_per_s: f64,
    /// Events per second, a handler per set.
    pub set_events_per_s: f64,
    /// A message, without its headers.
    pub body_bytes: usize,
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
    /// Events per second.
    pub per_s: Spread,
    /// Processor time of this process per event, in microseconds.
    pub cpu_us: Spread,
    /// Processor time of the private database server per event, in microseconds; none for a
    /// server that was given.
    pub database_cpu_us: Option<Spread>,
}

const HAND: &str = "by hand, per event";
const EACH: &str = "consumer, per event";
const HAND_SET: &str = "by hand, in sets";
const SET: &str = "consumer, in sets";
const OFF: &str = "consumer, one tenant, no row-level security";
const SINGLE: &str = "consumer, one event per transaction";
const CLEAN: &str = "consumer, 1,000 keys";
const POISONED: &str = "consumer, 1,000 keys and a poisoned one";
const NAMES: [&str; 8] = [HAND, EACH, HAND_SET, SET, OFF, SINGLE, CLEAN, POISONED];

/// The event.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Modified {
    n: i64,
    booking: String,
    note: String,
}

impl Event for Modified {
    const SUBJECT: &'static str = crate::append::SUBJECT;
    const AGGREGATE: &'static str = "booking";

    fn aggregate_id(&self) -> String {
        self.booking.clone()
    }
}

/// What a handler writes for one event, and for a set.
const INSERT: &str =
    "insert into bench_bookings (tenant, n, booking, note) values ($1, $2, $3, $4)";
const INSERT_SET: &str = "insert into bench_bookings (tenant, n, booking, note) \
    select $1, e.n, e.booking, e.note \
    from unnest($2::bigint[], $3::text[], $4::text[]) as e(n, booking, note)";

async fn each(event: Modified, cx: &mut Cx) -> Result<(), Failure> {
    let tenant = cx.tenant().as_str().to_owned();
    let args = vec![tenant.into(), event.n.into(), event.booking.into(), event.note.into()];
    cx.tx().execute(INSERT, args).await?;
    Ok(())
}

async fn set(events: Vec<Modified>, cx: &mut Cx) -> Result<(), Failure> {
    let tenant = cx.tenant().as_str().to_owned();
    let tx = cx.tx().as_postgres().ok_or_else(|| Failure::terminal("this is PostgreSQL"))?;
    let (mut numbers, mut bookings, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        numbers.push(event.n);
        bookings.push(event.booking);
        notes.push(event.note);
    }
    let query = sqlx::query(INSERT_SET).bind(tenant).bind(numbers).bind(bookings).bind(notes);
    query.execute(&mut **tx).await?;
    Ok(())
}

async fn each_but_the_poisoned(event: Modified, cx: &mut Cx) -> Result<(), Failure> {
    if event.booking == feed::booking(HEALTHY) {
        return Err(Failure::terminal("this booking is poison"));
    }
    each(event, cx).await
}

fn consumer() -> Consumer {
    Consumer::named(CONSUMER).batch(BATCH).max_in_flight(2 * BATCH)
}

/// Measures it.
pub fn run(options: &Options) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new()?;
    let bench = runtime.block_on(Bench::prepare(options))?;
    // First, so that no other contestant has left memory behind.
    let plan = Plan { tenants: TENANTS, keys: KEYS, most: options.messages, time: Duration::MAX };
    runtime.block_on(bench.consume(SET, consumer().on_batch(set), plan))?;
    let peak_rss_mib = place::peak_rss(std::process::id()).unwrap_or(f64::NAN);
    bench.spent.borrow_mut().clear();

    let rounds = bench.rounds(&runtime)?;
    runtime.block_on(bench.policies(true))?;
    bench.report(&rounds, peak_rss_mib).context("no round was run")
}

/// Processor time of this process, and of the private database server if there is one.
type Cpu = (f64, Option<f64>);

struct Bench<'a> {
    options: &'a Options,
    place: Place,
    chapar: Chapar,
    template: Arc<Template>,
    /// Counts events, so that none is applied twice over the turns.
    next: Cell<u64>,
    /// By contestant, per event and turn.
    spent: RefCell<HashMap<&'static str, Vec<Cpu>>>,
}

impl<'a> Bench<'a> {
    async fn prepare(options: &'a Options) -> Result<Self> {
        const TABLE: &str = "create table bench_bookings (tenant text not null, \
            n bigint not null, booking text not null, note text not null, \
            primary key (tenant, n)); call chapar.protect('bench_bookings'::regclass)";
        // A batch saves waiting for the disk above all.
        let place = Place::of_durable_database(options.store.as_deref()).await?;
        let mut conn = PgConnection::connect(&place.store).await?;
        let made = sqlx::raw_sql(TABLE).execute(&mut conn).await;
        made.context("its table cannot be made; give an empty database")?;
        let chapar = backbone(Store::open(&place.store, &StoreOptions::default()).await?)?;
        let template = Arc::new(Template::sealed(&chapar, &mut conn).await?);
        conn.close().await?;
        let (next, spent) = (Cell::new(1), RefCell::default());
        Ok(Bench { options, place, chapar, template, next, spent })
    }

    fn rounds(&self, runtime: &tokio::runtime::Runtime) -> Result<Rounds> {
        let time = self.options.turn;
        let plan = Plan { tenants: TENANTS, keys: KEYS, most: u64::MAX, time };
        let one = Plan { tenants: 1, ..plan };
        let healthy = Plan { keys: HEALTHY, ..plan };
        let poisoned = Plan { keys: HEALTHY + 1, ..plan };
        type Make = fn() -> Consumer;
        let ours = |name, plan, make: Make| {
            Contestant::new(name, move || runtime.block_on(self.consume(name, make(), plan)))
        };
        let by_hand = |name, set| {
            Contestant::new(name, move || runtime.block_on(self.by_hand(name, set, plan)))
        };
        let mut contestants = [
            by_hand(HAND, false),
            ours(EACH, plan, || consumer().on(each)),
            by_hand(HAND_SET, true),
            ours(SET, plan, || consumer().on_batch(set)),
            ours(OFF, one, || consumer().on(each)),
            ours(SINGLE, plan, || consumer().batch(1).max_in_flight(BATCH / 5).on(each)),
            ours(CLEAN, healthy, || consumer().on(each_but_the_poisoned)),
            ours(POISONED, poisoned, || consumer().on(each_but_the_poisoned)),
        ];
        interleaved(&mut contestants, self.options.rounds)
    }

    /// Empties the tables and makes a feed.
    async fn begin(&self, name: &'static str, plan: Plan) -> Result<Feed> {
        self.policies(name != OFF).await?;
        let mut conn = PgConnection::connect(&self.place.store).await?;
        let empty = "truncate bench_bookings, chapar.inbox, chapar.dead_letters, chapar.parked";
        sqlx::raw_sql(empty).execute(&mut conn).await?;
        conn.close().await?;
        Ok(Feed::new(self.template.clone(), plan, self.next.get()))
    }

    async fn consume(&self, name: &'static str, consumer: Consumer, plan: Plan) -> Result<f64> {
        let feed = self.begin(name, plan).await?;
        let cpu = self.cpu();
        let app = App::new(self.chapar.clone(), Arc::new(feed.clone()), "bench").without_relay();
        let running =
            app.service(Service::new("inventory-service").consumer(consumer)).start().await?;
        let rate = feed.drained().await;
        running.stop(Duration::from_secs(10)).await;
        self.end(name, &feed, cpu, rate?).await
    }

    async fn by_hand(&self, name: &'static str, set: bool, plan: Plan) -> Result<f64> {
        let feed = self.begin(name, plan).await?;
        let cpu = self.cpu();
        hand::consume(&self.place.store, &feed, set).await?;
        let rate = feed.drained().await?;
        self.end(name, &feed, cpu, rate).await
    }

    fn cpu(&self) -> Cpu {
        let own = place::cpu(std::process::id(), false).unwrap_or(f64::NAN);
        (own, self.place.database_cpu())
    }

    /// Checks that every event was applied exactly once; returns the rate.
    async fn end(&self, name: &'static str, feed: &Feed, before: Cpu, rate: f64) -> Result<f64> {
        const COUNT: &str = "select (select count(*) from bench_bookings), \
            (select count(*) from chapar.inbox), (select count(*) from chapar.dead_letters) \
            + (select count(*) from chapar.parked)";
        let after = self.cpu();
        let given = feed.given();
        self.next.set(self.next.get() + given);
        let mut conn = PgConnection::connect(&self.place.store).await?;
        let (rows, claims, held): (i64, i64, i64) =
            sqlx::query_as(COUNT).fetch_one(&mut conn).await?;
        conn.close().await?;
        ensure!(rows == claims, "{name}: {claims} claims and {rows} rows");
        ensure!(rows + held == given as i64, "{name}: {given} given, {rows} applied");
        ensure!((held > 0) == (name == POISONED), "{name}: {held} held");
        let per_event = |seconds: f64| seconds * 1e6 / given as f64;
        let database = after.1.zip(before.1).map(|(after, before)| per_event(after - before));
        let spent = (per_event(after.0 - before.0), database);
        self.spent.borrow_mut().entry(name).or_default().push(spent);
        Ok(rate * rows as f64 / given as f64)
    }

    /// Row-level security on or off, for every table that a turn touches.
    async fn policies(&self, on: bool) -> Result<()> {
        let mut conn = PgConnection::connect(&self.place.store).await?;
        for table in ["bench_bookings", "chapar.inbox", "chapar.dead_letters", "chapar.parked"] {
            let (enable, force) = if on { ("enable", "force") } else { ("disable", "no force") };
            for change in [enable, force] {
                let alter = format!("alter table {table} {change} row level security");
                sqlx::raw_sql(sqlx::AssertSqlSafe(alter)).execute(&mut conn).await?;
            }
        }
        Ok(conn.close().await?)
    }

    fn report(&self, rounds: &Rounds, peak_rss_mib: f64) -> Option<Report> {
        let over = |name, other| rounds.over(name, other).map(|spread| spread.median);
        let of = |name| rounds.of(name).map(|spread| spread.median);
        let spent = self.spent.borrow();
        let line = |name| {
            // The first is the round that warms up.
            let spent = spent.get(name)?.get(1..)?;
            let own: Vec<f64> = spent.iter().map(|(own, _)| *own).collect();
            let database: Option<Vec<f64>> = spent.iter().map(|(_, database)| *database).collect();
            let database_cpu_us = database.and_then(|figures| Spread::of(&figures));
            Some(Line { name, per_s: rounds.of(name)?, cpu_us: Spread::of(&own)?, database_cpu_us })
        };
        Some(Report {
            over_handwritten: over(EACH, HAND)?,
            set_over_handwritten: over(SET, HAND_SET)?,
            rls_ratio: over(EACH, OFF)?,
            batch_over_single_1: over(EACH, SINGLE)?,
            poison_throughput_ratio: over(POISONED, CLEAN)?,
            peak_rss_mib,
            peak_rss_messages: self.options.messages,
            events_per_s: of(EACH)?,
            set_events_per_s: of(SET)?,
            body_bytes: self.template.body_bytes(),
            rounds: rounds.len(),
            contestants: NAMES.into_iter().map(line).collect::<Option<_>>()?,
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
                let database = line
                    .database_cpu_us
                    .map_or("unknown".into(), |spread| format!("{:.1}", spread.median));
                vec![
                    line.name.to_owned(),
                    format!("{:.0}", line.per_s.median),
                    format!("{:.0} – {:.0}", line.per_s.min, line.per_s.max),
                    format!("{:.1}", line.cpu_us.median),
                    database,
                ]
            })
            .collect();
        let head = ["what", "events/s", "spread", "µs of processor", "of the database's"];
        table(&head, &rows)
            + &format!(
                "\n{} events in a transaction, {TENANTS} tenants, bodies of {} bytes, one worker, \
                 {} rounds in turns.\n\
                 over by hand {:.2}, in sets {:.2}; row-level security {:.2} of without; batches \
                 {:.1} times single events; with a poisoned key {:.2} of without; at most {:.0} MiB \
                 over {} messages.\n",
                BATCH,
                self.body_bytes,
                self.rounds,
                self.over_handwritten,
                self.set_over_handwritten,
                self.rls_ratio,
                self.batch_over_single_1,
                self.poison_throughput_ratio,
                self.peak_rss_mib,
                self.peak_rss_messages
            )
    }
}
