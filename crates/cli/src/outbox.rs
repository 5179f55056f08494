//! `chapar outbox`: what waits to be published, what could not be, and what is published again.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use chapar::{Chapar, Producer, Store, StoreOptions};
use chapar_sql::ParkedRow;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use crate::config::{Config, duration};
use crate::output::{Format, bold, dim, red};
use crate::relay::system;
use crate::transport;
use crate::up::{interrupted, process_name};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// How far the relays are behind.
    #[command(after_help = "\
Examples:
  chapar outbox status --store postgres://localhost/hotel
  chapar outbox status --store sqlite:hotel.db --format json")]
    Status(Target),
    /// Events that failed and are tried again, each with those of its key that wait behind it.
    Parked(List),
    /// Events that failed for good.
    #[command(subcommand)]
    Quarantine(Quarantine),
    /// Publish again, under the same ids, what a broker has lost.
    #[command(after_help = "\
Examples:
  chapar outbox republish --store postgres://localhost/hotel --profile melmastoon \\
      --transport nats://localhost --since 2h --reason 'disk of nats-1 was lost, INC-42'

Whoever has applied an event skips it. Events that wait or are parked are left to the relay.
Ctrl-C stops it; it then says where to go on.")]
    Republish(Republish),
}

#[derive(Subcommand)]
pub(crate) enum Quarantine {
    /// The first of each key.
    List(List),
    /// One of them, with all that is known of it.
    #[command(after_help = "\
Examples:
  chapar outbox quarantine show 4711 --store postgres://localhost/hotel
  chapar outbox quarantine show 4711 --store sqlite:hotel.db --payload --format json")]
    Show(ShowRow),
    /// Let the relay try one again; it keeps its place in the order of its key.
    Release(Decide),
    /// Give one up for good; the next of its key moves up, and the event stays in the store.
    Drop(Decide),
}

#[derive(Args)]
pub(crate) struct Target {
    /// The store: sqlite:FILE or postgres://user@host/database.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL")]
    pub(crate) store: String,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,

    /// The most lines.
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
}

#[derive(Args)]
pub(crate) struct ShowRow {
    /// Its number, as `list` shows it.
    seq: i64,

    /// Show the bytes as well, personal data included.
    #[arg(long)]
    payload: bool,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Decide {
    /// Its number, as `list` shows it.
    seq: i64,

    /// Why; it is written to the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Republish {
    /// How far back, such as 30m or 2h.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    since: Duration,

    /// Go on behind this row; a run that stopped has said which.
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    after: i64,

    /// Why; it is written to the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Where to: nats://host:port, or `sql:` for the log in the same store.
    #[arg(long, env = "CHAPAR_TRANSPORT", hide_env_values = true, value_name = "URL")]
    transport: String,

    /// The system's profile: a preset or a TOML file.
    #[arg(long, env = "CHAPAR_PROFILE", value_name = "NAME|FILE")]
    profile: String,

    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(command: Command, config: Config) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Status(target) => status(&target).await,
            Command::Parked(list) => parked(&list, false).await,
            Command::Quarantine(Quarantine::List(list)) => parked(&list, true).await,
            Command::Quarantine(Quarantine::Show(args)) => show_row(&args).await,
            Command::Quarantine(Quarantine::Release(decide)) => release(&decide).await,
            Command::Quarantine(Quarantine::Drop(decide)) => drop_row(&decide).await,
            Command::Republish(args) => republish(&args, &config).await,
        }
    })
}

pub(crate) async fn open(target: &Target) -> Result<Store> {
    let store = Store::open(&target.store, &StoreOptions::default()).await?;
    store.check_schema().await?;
    Ok(store)
}

async fn status(target: &Target) -> Result<ExitCode> {
    let store = open(target).await?;
    let mut tx = store.begin_read().await?;
    let lag = tx.conn().outbox_lag(Timestamp::now()).await?;
    let relays = tx.conn().relays().await?;
    let parked = tx.conn().parked_rows(false, usize::MAX >> 1).await?.len();
    let quarantined = tx.conn().parked_rows(true, usize::MAX >> 1).await?.len();
    match target.format {
        Format::Json => {
            let relays: Vec<_> = relays
                .iter()
                .map(|relay| {
                    json!({ "owner": relay.owner, "epoch": relay.epoch, "shards": relay.shards,
                            "expires_at": relay.expires_at })
                })
                .collect();
            let status = json!({
                "waiting": lag.waiting, "oldest_seconds": lag.seconds, "keys_parked": parked,
                "keys_quarantined": quarantined, "relays": relays,
            });
            println!("{}", serde_json::to_string_pretty(&status)?);
        }
        Format::Text => {
            println!("waiting      {} (the oldest for {:.1} s)", lag.waiting, lag.seconds);
            println!("parked       {parked} keys");
            println!("quarantined  {quarantined} keys");
            for relay in &relays {
                let shards = relay.shards;
                println!(
                    "relay        {} with {shards} shards, epoch {}",
                    relay.owner, relay.epoch
                );
            }
            if relays.is_empty() {
                println!("{}", red("no relay is running; start `chapar relay`"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn parked(list: &List, quarantined: bool) -> Result<ExitCode> {
    let store = open(&list.target).await?;
    let mut tx = store.begin_read().await?;
    let rows = tx.conn().parked_rows(quarantined, list.limit).await?;
    match list.target.format {
        Format::Json => {
            let rows: Vec<_> = rows.iter().map(as_json).collect();
            println!("{}", serde_json::to_string_pretty(&rows)?);
        }
        Format::Text if rows.is_empty() => eprintln!("nothing"),
        Format::Text => rows.iter().for_each(print),
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_row(args: &ShowRow) -> Result<ExitCode> {
    let store = open(&args.target).await?;
    let mut tx = store.begin_read().await?;
    let Some(row) = tx.conn().outbox_failure(args.seq).await? else {
        bail!("{} is not parked; `chapar outbox quarantine list` shows what is", args.seq);
    };
    let event = &row.event;
    let body = args.payload.then(|| String::from_utf8_lossy(&row.body).into_owned());
    let headers: serde_json::Value = serde_json::from_str(&row.headers).unwrap_or_default();
    match args.target.format {
        Format::Json => {
            let shown = json!({
                "seq": args.seq, "event_id": event.event_id, "topic": event.topic,
                "tenant": event.tenant, "key": row.ordering_key,
                "aggregate_type": event.aggregate_type, "aggregate_id": event.aggregate_id,
                "idempotency_key": event.idempotency_key, "correlation_id": event.correlation_id,
                "causation_id": event.causation_id, "written_at": event.written_at,
                "attempts": row.attempts, "first_failed_at": row.first_failed_at,
                "next_attempt_at": row.next_attempt_at, "quarantined_at": row.quarantined_at,
                "error": event.parked, "behind": row.behind, "headers": headers,
                "body_bytes": row.body.len(), "body": body,
            });
            println!("{}", serde_json::to_string_pretty(&shown)?);
        }
        Format::Text => {
            println!("{}  {}  {}", bold(&args.seq.to_string()), event.topic, event.event_id);
            let said = |name: &str, text: Option<String>| {
                if let Some(text) = text {
                    println!("{name:<12} {text}");
                }
            };
            said("tenant", Some(event.tenant.clone()));
            said("key", row.ordering_key.clone());
            said("aggregate", Some(format!("{} {}", event.aggregate_type, event.aggregate_id)));
            said("intent", event.idempotency_key.clone());
            said("correlation", Some(event.correlation_id.clone()));
            said("causation", event.causation_id.clone());
            said("written", Some(event.written_at.to_string()));
            said("error", event.parked.as_deref().map(red));
            said("attempts", Some(row.attempts.to_string()));
            said("first failed", row.first_failed_at.map(|at| at.to_string()));
            said("next attempt", row.next_attempt_at.map(|at| at.to_string()));
            said("quarantined", row.quarantined_at.map(|at| at.to_string()));
            if !row.behind.is_empty() {
                let behind: Vec<String> = row.behind.iter().map(i64::to_string).collect();
                said("behind it", Some(behind.join(", ")));
            }
            said("headers", Some(headers.to_string()));
            said(
                "body",
                Some(
                    body.unwrap_or_else(|| {
                        format!("{} bytes; --payload shows them", row.body.len())
                    }),
                ),
            );
            println!("{}", dim(&format!("chapar trace {} tells its story", event.correlation_id)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(row: &ParkedRow) -> serde_json::Value {
    json!({
        "seq": row.seq, "event_id": row.event_id, "topic": row.topic, "tenant": row.tenant,
        "key": row.key, "attempts": row.attempts, "first_failed_at": row.first_failed_at,
        "next_attempt_at": row.next_attempt_at, "quarantined_at": row.quarantined_at,
        "last_error": row.last_error, "behind": row.behind,
    })
}

fn print(row: &ParkedRow) {
    let key = row.key.as_deref().unwrap_or("no key");
    println!("{}  {}  {}  {key}", bold(&row.seq.to_string()), row.topic, row.tenant);
    let error = row.last_error.as_deref().unwrap_or("waits behind another");
    println!("    {} attempts, {} behind it: {error}", row.attempts, row.behind);
    if let Some(at) = row.next_attempt_at {
        println!("    {}", dim(&format!("next attempt at {at}")));
    }
}

async fn release(decide: &Decide) -> Result<ExitCode> {
    let store = open(&decide.target).await?;
    let mut tx = store.begin_engine().await?;
    let done =
        tx.conn().release_quarantined(decide.seq, &operator(), told(&decide.reason)?).await?;
    tx.commit().await?;
    said(decide, done, "released", "the relay tries it within a second")
}

async fn drop_row(decide: &Decide) -> Result<ExitCode> {
    let store = open(&decide.target).await?;
    let mut tx = store.begin_engine().await?;
    let done = tx.conn().drop_quarantined(decide.seq, &operator(), told(&decide.reason)?).await?;
    tx.commit().await?;
    said(decide, done, "dropped", "the next of its key moves up; the event stays in the store")
}

pub(crate) fn told(reason: &str) -> Result<&str> {
    match reason.trim() {
        "" => bail!("--reason is empty; say why, it is written to the audit log"),
        reason => Ok(reason),
    }
}

fn said(decide: &Decide, done: bool, what: &str, then: &str) -> Result<ExitCode> {
    let seq = decide.seq;
    if !done {
        bail!("{seq} is not in quarantine; `chapar outbox quarantine list` shows what is");
    }
    match decide.target.format {
        Format::Json => println!("{}", json!({ "seq": seq, "outcome": what })),
        Format::Text => eprintln!("{what} {seq}: {then}"),
    }
    Ok(ExitCode::SUCCESS)
}

async fn republish(args: &Republish, config: &Config) -> Result<ExitCode> {
    let stop = interrupted();
    let store = open(&args.target).await?;
    let (profile, dialect) = system(&args.profile)?;
    let owner = process_name("republish");
    let transport =
        transport::open(&args.transport, &config.nats, &store, &owner, &profile.name).await?;
    let producer = Producer { service: "chapar-relay".into(), ..Producer::default() };
    let chapar = Chapar::builder(store, profile, dialect).producer(producer).build();
    let since = Timestamp::now().saturating_sub(args.since).context("--since is too far back")?;
    let (began, watched) = (Instant::now(), std::io::stderr().is_terminal());
    let reason = told(&args.reason)?;
    let done = chapar
        .republish(&*transport, since, args.after, &operator(), reason, |done| {
            if watched && began.elapsed() > Duration::from_secs(2) {
                let rate = done.taken as f64 / began.elapsed().as_secs_f64();
                let _ = write!(
                    std::io::stderr(),
                    "\r\x1b[2K{} published again, {rate:.0} per second …",
                    done.taken
                );
            }
            !stop.is_cancelled()
        })
        .await?;
    if watched {
        let _ = write!(std::io::stderr(), "\r\x1b[2K");
    }
    match args.target.format {
        Format::Json => println!(
            "{}",
            json!({ "taken": done.taken, "duplicates": done.duplicates, "last": done.last,
                    "stopped": stop.is_cancelled() })
        ),
        Format::Text => {
            eprintln!("{} published again, {} were still there", done.taken, done.duplicates);
        }
    }
    if stop.is_cancelled() {
        eprintln!("stopped; go on with --after {}", done.last);
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::SUCCESS)
}

/// Who does it, as the operating system knows them: who has logged in, which stays with them as
/// somebody else, or whose process it is. The environment is only what somebody says.
pub(crate) fn operator() -> String {
    let logged_in = std::fs::read_to_string("/proc/self/loginuid");
    let logged_in = logged_in.ok().and_then(|id| id.trim().parse().ok());
    let nobody = |id: &u32| *id == u32::MAX;
    let id = logged_in.filter(|id| !nobody(id));
    let id = id.unwrap_or_else(|| rustix::process::getuid().as_raw());
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, user) = (fields.next()?, fields.nth(1)?);
        (user.parse() == Ok(id)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("user {id}"))
}
