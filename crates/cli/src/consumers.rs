//! `chapar consumers`: listing, pausing, resuming and seeking consumers.

mod seek;

use std::process::ExitCode;

use anyhow::Result;
use chapar::ops::{ConsumerView, Consumers, Operator};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::config::Config;
use crate::outbox::{Target, open, operator, told};
use crate::output::{Format, bold, dim, red};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the consumers that have run on a store.
    #[command(after_help = "\
Examples:
  chapar consumers list --store postgres://localhost/hotel
  chapar consumers list --store sqlite:hotel.db --format json")]
    List(Target),
    /// Show one consumer: its topics, its lag, its dead letters and parked events.
    #[command(after_help = "\
Examples:
  chapar consumers show inventory-service.booking-held --store postgres://localhost/hotel")]
    Show(Show),
    /// Move a consumer's cursor back or forward; other consumers are not affected.
    #[command(after_help = seek::EXAMPLES)]
    Seek(seek::Args),
    /// Pause a consumer, in all its processes, within a second.
    #[command(after_help = "\
Examples:
  chapar consumers pause inventory-service.booking-held --store postgres://localhost/hotel \\
      --reason 'the stock table is being repaired, INC-42'

Running work is finished. New events wait in the transport, so a pause must be shorter than the
transport's retention.")]
    Pause(Decide),
    /// Resume a paused consumer.
    #[command(after_help = "\
Examples:
  chapar consumers resume inventory-service.booking-held --store postgres://localhost/hotel \\
      --reason 'repaired'")]
    Resume(Decide),
}

#[derive(Args)]
pub(crate) struct Show {
    /// The consumer's name, as `list` shows it.
    consumer: String,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Decide {
    /// The consumer's name, as `list` shows it.
    consumer: String,

    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(command: Command, config: Config) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::List(target) => list(&target).await,
            Command::Show(args) => show(&args).await,
            Command::Seek(args) => seek::run(&args, &config).await,
            Command::Pause(decide) => set(&decide, true).await,
            Command::Resume(decide) => set(&decide, false).await,
        }
    })
}

async fn list(target: &Target) -> Result<ExitCode> {
    let store = open(target).await?;
    let cards = Consumers::of(&store).list().await?;
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

async fn show(args: &Show) -> Result<ExitCode> {
    let (consumer, store) = (&args.consumer, open(&args.target).await?);
    let ConsumerView { card, topics, append_only, positions, behind, remembers_since } =
        Consumers::of(&store).show(consumer).await?;
    match args.target.format {
        Format::Json => {
            let shown = json!({
                "consumer": card.consumer, "service": card.service, "topics": topics,
                "append_only": append_only, "behind": behind, "last_seen": card.last_seen,
                "dead_letters": card.dead_letters, "parked": card.parked,
                "paused": card.paused, "paused_at": card.paused_at, "remembers_since": remembers_since,
                "positions": positions,
            });
            println!("{}", serde_json::to_string_pretty(&shown)?);
        }
        Format::Text => {
            println!("{}  of {}", bold(consumer), card.service);
            if append_only {
                println!("append-only   it never applies events again");
            }
            match behind {
                Some(lag) => println!("behind        {lag} events"),
                None => println!("behind        unknown; ask the broker"),
            }
            println!(
                "dead letters  {}, with {} parked behind them",
                card.dead_letters, card.parked
            );
            if let Some(since) = remembers_since {
                println!("inbox         remembers applied events since {since}");
            }
            println!("last seen     {}", card.last_seen);
            if let (Some(reason), Some(at)) = (&card.paused, card.paused_at) {
                println!("{}: {reason}", red(&format!("paused since {at}")));
            }
            for topic in &topics {
                println!("reads         {topic}");
            }
            for (partition, offset) in &positions {
                println!("{}", dim(&format!("partition {partition} acknowledged to {offset}")));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn set(decide: &Decide, pause: bool) -> Result<ExitCode> {
    let (consumer, reason) = (&decide.consumer, told(&decide.reason)?);
    let store = open(&decide.target).await?;
    let (consumers, actor) = (Consumers::of(&store), operator());
    let by = Operator { name: &actor, reason };
    let (outcome, then) = match pause {
        true => {
            consumers.pause(consumer, by).await?;
            ("paused", "it stops within a second")
        }
        false => {
            consumers.resume(consumer, by).await?;
            ("resumed", "it continues within a second")
        }
    };
    match decide.target.format {
        Format::Json => println!("{}", json!({ "consumer": consumer, "outcome": outcome })),
        Format::Text => eprintln!("{outcome} {consumer}: {then}"),
    }
    Ok(ExitCode::SUCCESS)
}
