//! `chapar consumers`: who consumes, and who is to rest.

use std::process::ExitCode;

use anyhow::{Result, bail};
use chapar::AuditEntry;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::outbox::{Target, open, operator, told};
use crate::output::{Format, bold, dim, red};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// The consumers that have run on a store.
    #[command(after_help = "\
Examples:
  chapar consumers list --store postgres://localhost/hotel
  chapar consumers list --store sqlite:hotel.db --format json")]
    List(Target),
    /// Let a consumer rest, in all its processes, within a second.
    #[command(after_help = "\
Examples:
  chapar consumers pause inventory-service.booking-held --store postgres://localhost/hotel \\
      --reason 'the stock table is being repaired, INC-42'

What it has begun is finished. What comes meanwhile waits in the transport, so a pause must be
shorter than the transport keeps events.")]
    Pause(Decide),
    /// Let a consumer go on.
    #[command(after_help = "\
Examples:
  chapar consumers resume inventory-service.booking-held --store postgres://localhost/hotel \\
      --reason 'repaired'")]
    Resume(Decide),
}

#[derive(Args)]
pub(crate) struct Decide {
    /// Its name, as `list` shows it.
    consumer: String,

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
            Command::List(target) => list(&target).await,
            Command::Pause(decide) => set(&decide, true).await,
            Command::Resume(decide) => set(&decide, false).await,
        }
    })
}

async fn list(target: &Target) -> Result<ExitCode> {
    let store = open(target).await?;
    let mut tx = store.begin_read().await?;
    let cards = tx.conn().consumers().await?;
    match target.format {
        Format::Json => {
            let cards: Vec<_> = cards
                .iter()
                .map(|card| {
                    json!({
                        "consumer": card.consumer, "service": card.service, "topics": card.topics,
                        "last_seen": card.last_seen, "dead_letters": card.dead_letters,
                        "parked": card.parked, "paused": card.paused, "paused_at": card.paused_at,
                    })
                })
                .collect();
            println!("{}", serde_json::to_string_pretty(&cards)?);
        }
        Format::Text if cards.is_empty() => eprintln!("no consumer has run on this store"),
        Format::Text => {
            for card in &cards {
                let (letters, parked) = (card.dead_letters, card.parked);
                println!("{}  {} topics", bold(&card.consumer), card.topics);
                println!("    {letters} dead letters, {parked} parked behind them");
                println!("    {}", dim(&format!("last seen {}", card.last_seen)));
                if let (Some(reason), Some(at)) = (&card.paused, card.paused_at) {
                    println!("    {}: {reason}", red(&format!("paused since {at}")));
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn set(decide: &Decide, pause: bool) -> Result<ExitCode> {
    let (consumer, reason) = (&decide.consumer, told(&decide.reason)?);
    let store = open(&decide.target).await?;
    let mut tx = store.begin_engine().await?;
    let known = tx.conn().consumers().await?;
    if !known.iter().any(|card| card.consumer == *consumer) {
        bail!(
            "no consumer {consumer} has run on this store; `chapar consumers list` shows who has"
        );
    }
    let changed = match pause {
        true => tx.conn().pause(consumer, reason).await?,
        false => tx.conn().resume(consumer).await?,
    };
    if !changed {
        let stands = if pause { "is paused already" } else { "is not paused" };
        bail!("{consumer} {stands}");
    }
    let (action, outcome, then) = match pause {
        true => ("consumer.pause", "paused", "it rests within a second"),
        false => ("consumer.resume", "resumed", "it goes on within a second"),
    };
    let actor = operator();
    let entry = AuditEntry { actor: &actor, action, target: consumer, reason, detail: "{}" };
    tx.conn().audit(&entry).await?;
    tx.commit().await?;
    match decide.target.format {
        Format::Json => println!("{}", json!({ "consumer": consumer, "outcome": outcome })),
        Format::Text => eprintln!("{outcome} {consumer}: {then}"),
    }
    Ok(ExitCode::SUCCESS)
}
