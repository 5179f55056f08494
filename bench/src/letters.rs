//! Dead letters in large numbers: finding them, and replaying them with an interruption by Ctrl-C.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use chapar::{App, Chapar, Consumer, Cx, Envelope, Event, Failure, Producer, Service, Store};
use chapar::{StoreOptions, Tenant};
use chapar_core::dialect::MetadataJson;
use chapar_sql::SqlTransport;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{Connection, PgConnection};

use crate::measure::table;
use crate::place::{self, Place};

const CONSUMER: &str = "bench-service.letters";

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// This program, for the commands.
    pub program: PathBuf,
    /// The database; a private one when none is given.
    pub store: Option<String>,
    /// How many open letters there are.
    pub letters: i64,
    /// How many of them are replayed.
    pub replayed: i64,
    /// How often each question is asked.
    pub rounds: usize,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// How many open letters there were.
    pub letters: i64,
    /// How many were replayed.
    pub replayed: i64,
    /// Letters per second, from the command to the last one applied.
    pub replayed_per_s: f64,
    /// Letters that the consumer applied, each once.
    pub applied: i64,
    /// Letters still open that should have been replayed.
    pub lost: i64,
    /// Letters that were delivered more than once.
    pub repeated: i64,
    /// The most memory that the command had, in MiB.
    pub command_rss_mib: f64,
    /// By how much the memory of the consuming process grew in the second half, in MiB.
    pub consumer_growth_mib: f64,
    /// The slowest question, in seconds, with the start of the program.
    pub slowest_s: f64,
    /// Every question.
    pub questions: Vec<Question>,
}

/// A question, asked by the command.
#[derive(Debug, Clone, Serialize)]
pub struct Question {
    /// What was asked.
    pub asked: String,
    /// The slowest answer in seconds, with the start of the program.
    pub slowest_s: f64,
    /// How many lines came.
    pub answers: usize,
}

/// Measures it.
pub fn run(options: &Options) -> Result<Report> {
    ensure!(options.letters >= 1000, "--letters: at least 1000, or there is nothing to measure");
    ensure!(
        (100..=options.letters).contains(&options.replayed),
        "--replayed: at least 100, and no more than there are letters"
    );
    let runtime = tokio::runtime::Runtime::new()?;
    let place = runtime.block_on(Place::of_database(options.store.as_deref()))?;
    let store = runtime.block_on(Store::open(&place.store, &StoreOptions::default()))?;
    let chapar = backbone(store.clone())?;
    runtime.block_on(plant(&chapar, &place.store, options))?;
    let questions = ask(options, &place.store)?;
    let replay = runtime.block_on(replay(options, &place.store, &chapar))?;
    let slowest = questions.iter().map(|question| question.slowest_s).fold(0.0, f64::max);
    Ok(Report { slowest_s: slowest, questions, letters: options.letters, ..replay })
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .questions
            .iter()
            .map(|question| {
                let slowest = format!("{:.3}", question.slowest_s);
                vec![question.asked.clone(), slowest, question.answers.to_string()]
            })
            .collect();
        table(&["chapar dlq …", "slowest, s", "answers"], &rows)
            + &format!(
                "\n{} letters. {} replayed at {:.0} per second, with a Ctrl-C on the way: {} \
                 applied, {} lost, {} repeated. The command had at most {:.0} MiB, and the \
                 consumer grew by {:.1} MiB in the second half.\n",
                self.letters,
                self.replayed,
                self.replayed_per_s,
                self.applied,
                self.lost,
                self.repeated,
                self.command_rss_mib,
                self.consumer_growth_mib
            )
    }
}

#[derive(Serialize, Deserialize)]
struct Noted {
    note: String,
}

impl Event for Noted {
    const SUBJECT: &'static str = "melmastoon.reservation.booking.modified.v1";
    const AGGREGATE: &'static str = "booking";

    fn aggregate_id(&self) -> String {
        "planted".into()
    }

    fn intent(&self) -> Option<String> {
        Some("planted".into())
    }
}

fn backbone(store: Store) -> Result<Chapar> {
    let profile = chapar_testkit::profile("melmastoon");
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    Ok(Chapar::builder(store, profile, Arc::new(MetadataJson)).producer(producer).build())
}

/// Letters as consumers would have left them: of 40 groups and 50 tenants, 1 KiB each. Those of the first group can be
/// replayed; there are as many as requested.
async fn plant(chapar: &Chapar, store: &str, options: &Options) -> Result<()> {
    const PLANT: &str = "insert into chapar.dead_letters (id, consumer, event_id, tenant, topic, \
        log_partition, log_offset, headers, body, ordering_key, kind, error, fingerprint, class, \
        attempts, first_failed_at, last_failed_at, blocks_key) \
        select chapar.uuid_v7(), case when g = 0 then $1 else 'service-' || g % 8 || '.planted' end, \
            id, tenant, case when g = 0 then $2 else 'melmastoon.planted.topic.t' || g % 4 || '.v1' end, \
            n % 12, n, replace(replace($3, $5, id), $6, tenant), \
            convert_to(replace(replace($4, $5, id), $6, tenant), 'UTF8'), tenant || ':k' || n, \
            case when g % 2 = 0 then 'transient' else 'rule_violation' end, \
            'vendor ' || chr((97 + g % 26)::int) || chr((97 + g / 26)::int) || ' said no to request ' || n, \
            'planted-' || g, case when g = 0 then 'vendor_outage' when g % 3 = 0 then 'poison' end, 7, \
            at, at, true \
        from generate_series($7, $8) n, lateral (select chapar.uuid_v7() as id, 't' || n % 50 as tenant, \
            case when n <= $9 then 0 else 1 + n % 39 end as g, \
            clock_timestamp() - (n * 7919 % 100000) * interval '10 seconds' as at) x";
    const GROUPS: &str = "insert into chapar.dead_letter_groups (fingerprint, consumer, topic, kind, shape) \
        select 'planted-' || g, case when g = 0 then $1 else 'service-' || g % 8 || '.planted' end, \
            case when g = 0 then $2 else 'melmastoon.planted.topic.t' || g % 4 || '.v1' end, \
            case when g % 2 = 0 then 'transient' else 'rule_violation' end, \
            'vendor ' || chr((97 + g % 26)::int) || chr((97 + g / 26)::int) || ' said no to request #' \
        from generate_series(0, 39) g";
    let note = Noted { note: "x".repeat(560) };
    let tenant: Tenant = "planted-tenant".parse()?;
    let event = chapar.prepare(&tenant, [note])?.pop().context("one was made")?;
    let (id, headers) = (&event.event_id, &event.headers);
    let body = String::from_utf8(event.body.to_vec())?;
    let mut conn = PgConnection::connect(store).await?;
    sqlx::query("set role chapar_engine").execute(&mut conn).await?;
    let there: i64 =
        sqlx::query_scalar("select count(*) from chapar.dead_letters").fetch_one(&mut conn).await?;
    if there > 0 {
        bail!("there are dead letters in this store; give an empty database");
    }
    sqlx::query(GROUPS).bind(CONSUMER).bind(Noted::SUBJECT).execute(&mut conn).await?;
    let mut from = 1;
    while from <= options.letters {
        let to = options.letters.min(from + 4_999);
        sqlx::query(PLANT)
            .bind(CONSUMER)
            .bind(Noted::SUBJECT)
            .bind(headers)
            .bind(&body)
            .bind(id)
            .bind(tenant.as_str())
            .bind(from)
            .bind(to)
            .bind(options.replayed)
            .execute(&mut conn)
            .await?;
        from = to + 1;
    }
    for tidy in ["reset role", "vacuum analyze chapar.dead_letters", "checkpoint"] {
        sqlx::raw_sql(tidy).execute(&mut conn).await?;
    }
    conn.close().await?;
    Ok(())
}

/// Every filter by itself and some together, each as its own run of the program.
fn ask(options: &Options, store: &str) -> Result<Vec<Question>> {
    const QUESTIONS: [&[&str]; 14] = [
        &["groups"],
        &["groups", "--tenant", "t7"],
        &["groups", "--consumer", "service-3.planted", "--since", "2d"],
        &["list"],
        &["list", "--consumer", "service-3.planted"],
        &["list", "--topic", "melmastoon.planted.topic.t2.v1"],
        &["list", "--tenant", "t7"],
        &["list", "--kind", "transient"],
        &["list", "--error", "vendor fa said no to request 7"],
        &["list", "--class", "poison"],
        &["list", "--since", "2d", "--until", "1d"],
        &["list", "--group", "planted-17", "--tenant", "t7"],
        &["list", "--tenant", "t7", "--class", "poison", "--kind", "rule-violation"],
        &["list", "--tenant", "no-such-tenant", "--consumer", "service-3.planted"],
    ];
    let mut questions = Vec::new();
    for question in QUESTIONS {
        let (mut slowest, mut answers) = (0.0f64, 0);
        for _ in 0..options.rounds.max(1) {
            let began = Instant::now();
            let output = command(options, store, question).stderr(Stdio::inherit()).output()?;
            slowest = slowest.max(began.elapsed().as_secs_f64());
            let said = answer(&output)?;
            let lines = said.as_array().or_else(|| said["letters"].as_array());
            answers = lines.map_or(0, Vec::len);
        }
        questions.push(Question { asked: question.join(" "), slowest_s: slowest, answers });
    }
    Ok(questions)
}

fn command(options: &Options, store: &str, args: &[&str]) -> Command {
    let mut command = Command::new(&options.program);
    command.arg("dlq").args(args).args(["--store", store, "--format", "json"]);
    command.stdin(Stdio::null());
    command
}

fn answer(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "the command failed: {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// An empty handler: only the delivery is measured.
async fn take(_: Arc<Envelope>, _: &mut Cx) -> Result<(), Failure> {
    Ok(())
}

/// Replays the first group with the command, which is interrupted and resumed.
async fn replay(options: &Options, store: &str, chapar: &Chapar) -> Result<Report> {
    const APPLIED: &str = "select count(*) from chapar.inbox where consumer = $1";
    const LEFT: &str =
        "select count(*) from chapar.dead_letters where consumer = $1 and status <> 'closed'";
    let consumer = Consumer::named(CONSUMER).on_any(&[Noted::SUBJECT], take).lanes(4).batch(500);
    let transport = Arc::new(SqlTransport::new(chapar.store().clone(), "bench"));
    let app = App::new(chapar.clone(), transport, "bench").without_relay();
    let running = app.service(Service::new("bench-service").consumer(consumer)).start().await?;
    let mut conn = PgConnection::connect(store).await?;
    sqlx::query("set role chapar_engine").execute(&mut conn).await?;
    let mut count = async |sql: &'static str| -> Result<i64> {
        Ok(sqlx::query_scalar(sql).bind(CONSUMER).fetch_one(&mut conn).await?)
    };

    let began = Instant::now();
    let args = ["replay", "--group", "planted-0", "--reason", "measured", "--patience", "60s"];
    let mut first = command(options, store, &args).stdout(Stdio::piped()).spawn()?;
    let mut rss = 0.0f64;
    let limit = Instant::now() + Duration::from_secs(600);
    let delivered = running.metrics().consumer(CONSUMER);
    while first.try_wait()?.is_none() && (delivered.applied() as i64) < options.replayed / 3 {
        rss = rss.max(place::peak_rss(first.id()).unwrap_or(0.0));
        ensure!(Instant::now() < limit, "a third was not applied within ten minutes");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    interrupt(&first);
    let stopped = first.wait_with_output()?;
    let said: Value = serde_json::from_slice(&stopped.stdout)?;
    let run = said["run"].as_str().context("a replay says what it is called")?.to_owned();
    let half = place::peak_rss(std::process::id()).unwrap_or(0.0);
    let args = ["replay", "--resume", &run, "--patience", "60s"];
    let mut second = command(options, store, &args).stdout(Stdio::piped()).spawn()?;
    while second.try_wait()?.is_none() {
        rss = rss.max(place::peak_rss(second.id()).unwrap_or(0.0));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    let ended = answer(&second.wait_with_output()?)?;
    let grown = place::peak_rss(std::process::id()).unwrap_or(0.0) - half;
    let (applied, lost) = (count(APPLIED).await?, count(LEFT).await?);
    let repeated = delivered.applied() as i64 - applied + delivered.duplicates() as i64;
    running.stop(Duration::from_secs(10)).await;
    ensure!(ended["asked"] == options.replayed, "asked for {} letters", ended["asked"]);
    Ok(Report {
        letters: 0,
        replayed: options.replayed,
        replayed_per_s: options.replayed as f64 / seconds,
        applied,
        lost,
        repeated,
        command_rss_mib: rss,
        consumer_growth_mib: grown.max(0.0),
        slowest_s: 0.0,
        questions: Vec::new(),
    })
}

fn interrupt(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::INT);
    }
}
