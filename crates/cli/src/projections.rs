//! `chapar projections`: read models, and rebuilding them.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use chapar::Store;
use chapar::ops::{
    BuildKind, Operator, ProjectionCard, ask_for_build, list_projections, projection_card,
    withdraw_build,
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::outbox::{Target, open, operator, told};
use crate::output::{Format, bold, dim, red};
use crate::up::interrupted;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// The read models of a store.
    #[command(after_help = "\
Examples:
  chapar projections list --store postgres://localhost/hotel")]
    List(Target),
    /// Rebuild a read model; the old build is served until the new one is complete.
    #[command(after_help = "\
Examples:
  chapar projections rebuild bff-backoffice-service.arrivals --reason 'bug fixed, INC-42' \\
      --store postgres://localhost/hotel
  chapar projections rebuild bff-backoffice-service.arrivals --from-snapshot --reason 'a slip' \\
      --store postgres://localhost/hotel

The process that keeps the read model does the work. Ctrl-C only stops watching.")]
    Rebuild(Rebuild),
    /// Rebuild a read model, compare it with the served build, and discard it.
    #[command(after_help = "\
Examples:
  chapar projections game-day bff-backoffice-service.arrivals --store postgres://localhost/hotel

Exit code 1: they differ. Run it about once a month: it shows how long a rebuild takes before one is
needed.")]
    GameDay(GameDay),
}

#[derive(Args)]
pub(crate) struct Rebuild {
    /// The read model's name, as `list` shows it.
    projection: String,

    /// Start from the last snapshot instead of the first event.
    #[arg(long)]
    from_snapshot: bool,

    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct GameDay {
    /// The read model's name, as `list` shows it.
    projection: String,

    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT", default_value = "game day")]
    reason: String,

    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::List(target) => list(&target).await,
            Command::Rebuild(args) => {
                let kind = match args.from_snapshot {
                    true => BuildKind::FromSnapshot,
                    false => BuildKind::Rebuild,
                };
                build(&args.projection, kind, &args.reason, &args.target).await
            }
            Command::GameDay(args) => {
                build(&args.projection, BuildKind::GameDay, &args.reason, &args.target).await
            }
        }
    })
}

async fn list(target: &Target) -> Result<ExitCode> {
    let store = open(target).await?;
    let cards = list_projections(&store).await?;
    match target.format {
        Format::Json => {
            let cards: Vec<Value> = cards.iter().map(as_json).collect();
            println!("{}", serde_json::to_string_pretty(&cards)?);
        }
        Format::Text if cards.is_empty() => eprintln!("no read model is kept on this store"),
        Format::Text => cards.iter().for_each(print),
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(card: &ProjectionCard) -> Value {
    json!({
        "projection": card.projection, "build": card.build, "documents": card.docs,
        "events": card.events, "last_event_id": card.last_event, "last_at": card.last_at,
        "snapshot_every": card.snapshot_every, "snapshot_at": card.snapshot_at,
        "events_since_snapshot": card.since_snapshot, "building": card.wanted,
        "done": card.done, "total": card.total, "started_at": card.started_at,
        "finished_at": card.finished_at, "outcome": card.outcome,
        "seconds": card.micros.map(seconds), "differences": card.differences,
    })
}

fn print(card: &ProjectionCard) {
    println!("{}  {} documents", bold(&card.projection), card.docs);
    let last = card.last_event.as_deref().unwrap_or("none yet");
    println!("    {} events, the last is {last}", card.events);
    let snapshot = match card.snapshot_at {
        Some(at) => format!("snapshot of {at}, {} events ago", card.since_snapshot),
        None => format!("no snapshot yet; one every {} events", card.snapshot_every),
    };
    println!("    {}", dim(&snapshot));
    if let Some(wanted) = &card.wanted {
        println!("    {}", red(&format!("{wanted}: {} of {} events", card.done, card.total)));
    }
    if let (Some(outcome), Some(micros)) = (&card.outcome, card.micros) {
        println!("    {}", dim(&format!("last time {outcome} in {:.1} s", seconds(micros))));
    }
}

fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

async fn build(name: &str, kind: BuildKind, reason: &str, target: &Target) -> Result<ExitCode> {
    let stop = interrupted();
    let store = open(target).await?;
    ask_for_build(&store, name, kind, &operator(), told(reason)?).await?;
    let watch = watch(&store, name);
    let card = tokio::select! {
        card = watch => card?,
        () = stop.cancelled() => {
            eprintln!("\nthe build continues; `chapar projections list` shows its progress");
            return Ok(ExitCode::from(130));
        }
    };
    let outcome = card.outcome.as_deref().unwrap_or_default();
    let took = card.micros.map_or(0.0, seconds);
    if outcome.starts_with("failed") {
        bail!("{name} was not rebuilt, and the old build is still served: {outcome}");
    }
    match (target.format, card.differences) {
        (Format::Json, _) => println!("{}", serde_json::to_string_pretty(&as_json(&card))?),
        (Format::Text, Some(0)) => {
            println!("{name}: rebuilt in {took:.1} s from {} events, no differences", card.done);
        }
        (Format::Text, Some(some)) => {
            println!(
                "{name}: rebuilt in {took:.1} s; {}",
                red(&format!("{some} documents differ"))
            );
            eprintln!("`chapar projections rebuild {name}` serves the new documents");
        }
        (Format::Text, None) => {
            println!("{name}: {outcome} in {took:.1} s, {} documents", card.docs);
        }
    }
    let same = card.differences.unwrap_or(0) == 0;
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Follows a build to its end, with a progress bar once it takes longer than two seconds.
async fn watch(store: &Store, name: &str) -> Result<ProjectionCard> {
    const PATIENCE: Duration = Duration::from_secs(15);
    let (began, watched) = (Instant::now(), std::io::stderr().is_terminal());
    loop {
        let card = projection_card(store, name).await?;
        if card.wanted.is_none() {
            if watched {
                let _ = write!(std::io::stderr(), "\r\x1b[2K");
            }
            return Ok(card);
        }
        if card.owner.is_none() && began.elapsed() > PATIENCE {
            let by = Operator { name: &operator(), reason: "no process keeps the read model" };
            if withdraw_build(store, name, by).await? {
                bail!("no process that keeps {name} is running; start it, then ask again");
            }
        }
        if watched && began.elapsed() > Duration::from_secs(2) {
            let _ = write!(std::io::stderr(), "\r\x1b[2K{}", bar(&card, began.elapsed()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn bar(card: &ProjectionCard, elapsed: Duration) -> String {
    const WIDTH: usize = 30;
    let part = card.done as f64 / (card.total.max(1)) as f64;
    let full = ((part.clamp(0.0, 1.0)) * WIDTH as f64) as usize;
    let rate = card.done as f64 / elapsed.as_secs_f64();
    format!(
        "{}{} {} of {} events, {rate:.0} per second",
        "█".repeat(full),
        "░".repeat(WIDTH - full),
        card.done,
        card.total
    )
}
