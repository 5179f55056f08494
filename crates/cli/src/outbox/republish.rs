//! `chapar outbox republish`: asks the relays to publish again, and watches them.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use chapar::ops::{Operator, Outbox};
use chapar::{RepublishRequest, Store};
use clap::Subcommand;
use serde_json::json;

use super::{Target, open, operator, told};
use crate::config::duration;
use crate::output::{Format, dim, red};
use crate::store;
use crate::up::interrupted;

pub(crate) const EXAMPLES: &str = "\
Examples:
  chapar outbox republish --since 2h --reason 'disk of nats-1 was lost, INC-42' \\
      --store postgres://localhost/hotel
  chapar outbox republish list --store postgres://localhost/hotel
  chapar outbox republish watch 7 --store postgres://localhost/hotel
  chapar outbox republish cancel 7 --reason 'wrong store' --store postgres://localhost/hotel

The running relays publish the events again, with the ids and the order stamps they had. Consumers
skip what they have applied. New events of a shard wait until its republished ones are out.
Ctrl-C leaves the request running.";

// The arguments without a subcommand are optional here and required by clap: a subcommand lifts
// that.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Everything that was published within this time, such as 30m or 2h.
    #[arg(long, required = true, value_parser = duration, value_name = "TIME")]
    since: Option<Duration>,

    /// Why; it is written to the audit log.
    #[arg(long, required = true, value_name = "TEXT")]
    reason: Option<String>,

    /// Return at once instead of watching the request.
    #[arg(long)]
    detach: bool,

    /// The store: sqlite:FILE or postgres://user@host/database.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL",
        default_value = store::database_url(), hide_default_value = true,
        required = store::is_required())]
    store: Option<String>,

    /// The output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Subcommand)]
enum Command {
    /// List the latest requests.
    List(super::List),
    /// Watch a request until it is done.
    Watch(Watch),
    /// Cancel a request; what was published again stays published.
    Cancel(Cancel),
}

#[derive(clap::Args)]
struct Watch {
    /// The number of the request.
    request: i64,

    #[command(flatten)]
    target: Target,
}

#[derive(clap::Args)]
struct Cancel {
    /// The number of the request.
    request: i64,

    /// Why; it is written to the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Some(Command::List(args)) => list(args).await,
        Some(Command::Watch(args)) => {
            watch(&open(&args.target).await?, args.request, args.target.format).await
        }
        Some(Command::Cancel(args)) => cancel(args).await,
        None => ask(args).await,
    }
}

async fn ask(args: &Args) -> Result<ExitCode> {
    let (Some(since), Some(reason), Some(store)) = (args.since, &args.reason, &args.store) else {
        bail!("--since, --reason and --store are required");
    };
    let reason = told(reason)?;
    let store = open(&Target { store: store.clone(), format: args.format }).await?;
    let by = Operator { name: &operator(), reason };
    let request = Outbox::of(&store).republish(since, by).await?;
    if !args.detach {
        return watch(&store, request, args.format).await;
    }
    let Some(asked) = find(&store, request).await? else { bail!("request {request} is gone") };
    match args.format {
        Format::Json => println!("{}", as_json(&asked)),
        Format::Text => {
            eprintln!("asked to republish, as request {request}");
            warn_without_relay(&store).await?;
            hint(request);
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(list: &super::List) -> Result<ExitCode> {
    let store = open(&list.target).await?;
    let requests = Outbox::of(&store).republish_requests(list.limit).await?;
    match list.target.format {
        Format::Json => {
            let requests: Vec<_> = requests.iter().map(as_json).collect();
            println!("{}", serde_json::to_string_pretty(&requests)?);
        }
        Format::Text if requests.is_empty() => eprintln!("no requests"),
        Format::Text => {
            for request in &requests {
                println!("{:<6} {}", request.id, summary(request));
                let RepublishRequest { asked_at, actor, since, reason, .. } = request;
                let asked = format!("asked {asked_at} by {actor}, since {since}: {reason}");
                println!("       {}", dim(&asked));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn cancel(args: &Cancel) -> Result<ExitCode> {
    let reason = told(&args.reason)?;
    let store = open(&args.target).await?;
    let by = Operator { name: &operator(), reason };
    let cancelled = Outbox::of(&store).cancel_republish(args.request, by).await?;
    let Some(request) = find(&store, args.request).await?.filter(|_| cancelled) else {
        bail!(
            "request {} is not running; `chapar outbox republish list` shows the requests",
            args.request
        );
    };
    match args.target.format {
        Format::Json => println!("{}", as_json(&request)),
        Format::Text => {
            eprintln!("cancelled request {}; the relays stop within seconds", request.id)
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Polls a request until it ends, or until Ctrl-C.
async fn watch(store: &Store, id: i64, format: Format) -> Result<ExitCode> {
    let stop = interrupted();
    let (began, terminal) = (Instant::now(), std::io::stderr().is_terminal());
    let mut warned = false;
    let request = loop {
        let Some(request) = find(store, id).await? else {
            bail!("there is no request {id}; `chapar outbox republish list` shows the requests");
        };
        if request.ended_at.is_some() || stop.is_cancelled() {
            break request;
        }
        // A relay that is just starting has a lease within seconds.
        if !warned && began.elapsed() > Duration::from_secs(3) {
            warned = warn_without_relay(store).await?;
        }
        if terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[2Krequest {id}: {} …", summary(&request));
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(250)) => {}
        }
    };
    if terminal {
        let _ = write!(std::io::stderr(), "\r\x1b[2K");
    }
    match format {
        Format::Json => println!("{}", as_json(&request)),
        Format::Text => eprintln!("request {id}: {}", summary(&request)),
    }
    if request.ended_at.is_none() {
        eprintln!("the request keeps running");
        hint(id);
        return Ok(ExitCode::from(130));
    }
    Ok(if request.cancelled { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn find(store: &Store, id: i64) -> Result<Option<RepublishRequest>> {
    Ok(Outbox::of(store).republish_request(id).await?)
}

/// Says so if no relay has a lease; returns whether it did.
async fn warn_without_relay(store: &Store) -> Result<bool> {
    let none = Outbox::of(store).relays().await?.is_empty();
    if none {
        eprintln!("{}", red("no relay is running; the request waits until one is started"));
    }
    Ok(none)
}

fn hint(id: i64) {
    eprintln!("  watch it:  chapar outbox republish watch {id}");
    eprintln!("  cancel it: chapar outbox republish cancel {id} --reason …");
}

fn state(request: &RepublishRequest) -> &'static str {
    match request.ended_at {
        None => "running",
        Some(_) if request.cancelled => "cancelled",
        Some(_) => "done",
    }
}

fn summary(request: &RepublishRequest) -> String {
    let RepublishRequest { published, parked, .. } = request;
    let parked = match parked {
        0 => String::new(),
        parked => format!(", {parked} refused and parked"),
    };
    let state = match state(request) {
        "running" => format!("{:.0} %", request.share * 100.0),
        other => other.to_owned(),
    };
    format!("{state}, {published} published again{parked}")
}

fn as_json(request: &RepublishRequest) -> serde_json::Value {
    json!({
        "request": request.id, "state": state(request), "published": request.published,
        "parked": request.parked, "share": request.share, "since": request.since,
        "asked_at": request.asked_at, "ended_at": request.ended_at, "actor": request.actor,
        "reason": request.reason,
    })
}
