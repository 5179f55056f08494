//! `chapar outbox`: lag, parked and quarantined events, and publishing again.

mod republish;

use std::process::ExitCode;

use anyhow::{Result, bail};
use chapar::Store;
use chapar::ops::{Operator, Outbox, OutboxStatus, ParkedRow, QuarantineFilter};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::output::{Format, bold, dim, red};
use crate::store;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show how far the relays are behind.
    #[command(after_help = "\
Examples:
  chapar outbox status --store postgres://localhost/hotel
  chapar outbox status --store sqlite:hotel.db --format json")]
    Status(Target),
    /// List events that failed and are retried, with the events of their keys behind them.
    Parked(List),
    /// Show, release or drop events that failed permanently.
    #[command(subcommand)]
    Quarantine(Quarantine),
    /// Publish again, under the same ids, what a broker has lost.
    #[command(after_help = republish::EXAMPLES)]
    Republish(republish::Args),
    /// Give the outbox of a restored dump the transaction ids of its new cluster.
    #[command(after_help = "\
Stop producers or not, as you like; relays refuse to start before. Everything that was not published
where the dump was taken is published next.

Examples:
  chapar outbox rebase --reason 'moved to the new cluster' --store postgres://new/hotel
  chapar outbox rebase --ids-kept --reason 'pg_upgrade to 17' --store postgres://localhost/hotel")]
    Rebase(Rebase),
}

#[derive(Args)]
pub(crate) struct Rebase {
    /// The cluster was upgraded by pg_upgrade, which keeps transaction ids: the cursors stay.
    #[arg(long)]
    ids_kept: bool,

    /// Why; it is written to the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
pub(crate) enum Quarantine {
    /// List the first event of each blocked key.
    List(List),
    /// Show one event with everything that is known about it.
    #[command(after_help = "\
Examples:
  chapar outbox quarantine show 4711 --store postgres://localhost/hotel
  chapar outbox quarantine show 4711 --store sqlite:hotel.db --payload --format json")]
    Show(ShowRow),
    /// Let the relay retry an event, or many; they keep their places in the order of their keys.
    #[command(after_help = "\
Examples:
  chapar outbox quarantine release 4711 --reason 'schema repaired' --store postgres://localhost/hotel
  chapar outbox quarantine release --all --topic hotel.booking.confirmed.v1 --reason INC-42 --store …")]
    Release(Release),
    /// Never publish an event; the next of its key follows, and the event stays in the store.
    Drop(Decide),
}

#[derive(Args)]
pub(crate) struct Target {
    /// The store: sqlite:FILE or postgres://user@host/database.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL",
        default_value = store::database_url(), hide_default_value = true,
        required = store::is_required())]
    pub(crate) store: String,

    /// The output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,

    /// The most entries.
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
}

#[derive(Args)]
pub(crate) struct ShowRow {
    /// Its number, as shown by `list`.
    seq: i64,

    /// Show the body too, with the personal data in it.
    #[arg(long)]
    payload: bool,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Decide {
    /// Its number, as shown by `list`.
    seq: i64,

    /// Why; it is written to the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Release {
    /// Its number, as shown by `list`.
    #[arg(required_unless_present = "all")]
    seq: Option<i64>,

    /// Release every quarantined event that the filters select.
    #[arg(long, conflicts_with = "seq")]
    all: bool,

    /// Only events on this topic.
    #[arg(long, requires = "all", value_name = "TOPIC")]
    topic: Option<String>,

    /// Only events of this tenant.
    #[arg(long, requires = "all", value_name = "TENANT")]
    tenant: Option<String>,

    /// Only events whose error contains this text.
    #[arg(long, requires = "all", value_name = "TEXT")]
    error: Option<String>,

    /// Why; it is written to the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Status(target) => status(&target).await,
            Command::Parked(list) => parked(&list, false).await,
            Command::Quarantine(Quarantine::List(list)) => parked(&list, true).await,
            Command::Quarantine(Quarantine::Show(args)) => show_row(&args).await,
            Command::Quarantine(Quarantine::Release(decide)) => release(&decide).await,
            Command::Quarantine(Quarantine::Drop(decide)) => drop_row(&decide).await,
            Command::Republish(args) => republish::run(&args).await,
            Command::Rebase(args) => rebase(&args).await,
        }
    })
}

pub(crate) async fn open(target: &Target) -> Result<Store> {
    let store = store::open(&target.store).await?;
    store.check_schema().await?;
    Ok(store)
}

async fn status(target: &Target) -> Result<ExitCode> {
    let store = open(target).await?;
    let OutboxStatus { lag, relays, keys_parked, keys_quarantined } =
        Outbox::of(&store).status().await?;
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
                "waiting": lag.waiting, "oldest_seconds": lag.seconds, "keys_parked": keys_parked,
                "keys_quarantined": keys_quarantined, "relays": relays,
            });
            println!("{}", serde_json::to_string_pretty(&status)?);
        }
        Format::Text => {
            println!("waiting      {} (the oldest for {:.1} s)", lag.waiting, lag.seconds);
            println!("parked       {keys_parked} keys");
            println!("quarantined  {keys_quarantined} keys");
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
    let rows = match quarantined {
        true => Outbox::of(&store).quarantined(list.limit).await?,
        false => Outbox::of(&store).parked(list.limit).await?,
    };
    match list.target.format {
        Format::Json => {
            let rows: Vec<_> = rows.iter().map(as_json).collect();
            println!("{}", serde_json::to_string_pretty(&rows)?);
        }
        Format::Text if rows.is_empty() => eprintln!("no events"),
        Format::Text => rows.iter().for_each(print),
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_row(args: &ShowRow) -> Result<ExitCode> {
    let store = open(&args.target).await?;
    let Some(row) = Outbox::of(&store).failure(args.seq).await? else {
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
            println!("{}", dim(&format!("see also: chapar trace {}", event.correlation_id)));
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
    let error = row.last_error.as_deref().unwrap_or("waits behind another event of its key");
    println!("    {} attempts, {} behind it: {error}", row.attempts, row.behind);
    if let Some(at) = row.next_attempt_at {
        println!("    {}", dim(&format!("next attempt at {at}")));
    }
}

async fn release(args: &Release) -> Result<ExitCode> {
    let store = open(&args.target).await?;
    let by = Operator { name: &operator(), reason: told(&args.reason)? };
    let Some(seq) = args.seq else {
        let Release { topic, tenant, error, .. } = args;
        let (topic, tenant, error) = (topic.clone(), tenant.clone(), error.clone());
        let filter = QuarantineFilter { tenant, topic, error };
        let released = Outbox::of(&store).release_all(&filter, by).await?;
        match args.target.format {
            Format::Json => println!("{}", json!({ "released": released })),
            Format::Text => {
                eprintln!("released {released} events: the relay retries them within a second");
            }
        }
        return Ok(ExitCode::SUCCESS);
    };
    let done = Outbox::of(&store).release(seq, by).await?;
    said(&args.target, seq, done, "released", "the relay retries it within a second")
}

async fn rebase(args: &Rebase) -> Result<ExitCode> {
    let store = open(&args.target).await?;
    let by = Operator { name: &operator(), reason: told(&args.reason)? };
    let Some(rebased) = Outbox::of(&store).rebase(args.ids_kept, by).await? else {
        bail!("the cursors of the outbox belong to this cluster; there is nothing to rebase");
    };
    match args.target.format {
        Format::Json => println!("{}", json!({ "waiting": rebased.waiting })),
        Format::Text => {
            eprintln!("rebased: {} events wait for a relay; start it now", rebased.waiting);
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn drop_row(decide: &Decide) -> Result<ExitCode> {
    let store = open(&decide.target).await?;
    let by = Operator { name: &operator(), reason: told(&decide.reason)? };
    let done = Outbox::of(&store).discard(decide.seq, by).await?;
    let then = "it is never published; the next of its key follows";
    said(&decide.target, decide.seq, done, "dropped", then)
}

pub(crate) fn told(reason: &str) -> Result<&str> {
    match reason.trim() {
        "" => bail!("--reason is empty; it is written to the audit log, so say why"),
        reason => Ok(reason),
    }
}

fn said(target: &Target, seq: i64, done: bool, what: &str, then: &str) -> Result<ExitCode> {
    if !done {
        bail!("{seq} is not in quarantine; `chapar outbox quarantine list` shows what is");
    }
    match target.format {
        Format::Json => println!("{}", json!({ "seq": seq, "outcome": what })),
        Format::Text => eprintln!("{what} {seq}: {then}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// The operator, as the operating system knows them: the user who logged in, also after `sudo`, or
/// else the owner of the process. Environment variables are not trusted: anyone can set them.
pub(crate) fn operator() -> String {
    let logged_in = std::fs::read_to_string("/proc/self/loginuid");
    let logged_in = logged_in.ok().and_then(|id| id.trim().parse().ok());
    let id = logged_in.filter(|id| *id != u32::MAX);
    let id = id.unwrap_or_else(|| rustix::process::getuid().as_raw());
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, user) = (fields.next()?, fields.nth(1)?);
        (user.parse() == Ok(id)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("user {id}"))
}
