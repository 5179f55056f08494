//! `chapar consumers seek`: preview, confirmation, seek.

use std::process::ExitCode;

use anyhow::{Result, bail};
use chapar::ops::{Scope, Seek, SeekPreview, SeekTarget};
use chapar_core::port::Position;
use jiff::Timestamp;
use serde_json::json;

use crate::config::{Config, duration};
use crate::outbox::{Target, open, operator, told};
use crate::output::{Format, bold, confirmed, dim, red};
use crate::relay::system;
use crate::transport::{self, IN_THE_STORE};
use crate::up::process_name;

pub(super) const EXAMPLES: &str = "\
Examples:
  chapar consumers seek inventory-service.booking-held --to 2h --dry-run \\
      --store postgres://localhost/hotel
  chapar consumers seek search-service.listing --to beginning --reapply --tenant acme \\
      --type melmastoon.property.listing.published.v1 --reason 'index was lost, INC-42' --yes \\
      --store postgres://localhost/hotel
  chapar consumers seek new-service.bookings --to 2026-11-01T00:00:00Z \\
      --reads melmastoon.reservation.booking.confirmed.v1 --reason 'first start' --yes \\
      --store postgres://localhost/hotel --transport nats://localhost --profile melmastoon

Seeking back skips events that the inbox knows; --reapply applies them again. With a scope (--type,
--tenant) other events are not affected. An append-only consumer cannot be sought back.";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The consumer's name, as `list` shows it.
    consumer: String,

    /// The target: beginning, end, snapshot, a time (2026-11-01T08:00:00Z, or 2h for two hours
    /// ago), or PARTITION:OFFSET.
    #[arg(long, value_parser = target, value_name = "PLACE")]
    to: SeekTarget,

    /// Only events of this topic; can be repeated.
    #[arg(long = "type", value_name = "TOPIC")]
    types: Vec<String>,

    /// Only events of this tenant; can be repeated.
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<String>,

    /// Apply events again that were already applied.
    #[arg(long)]
    reapply: bool,

    /// A topic that a consumer which has not run yet will read; can be repeated.
    #[arg(long = "reads", value_name = "TOPIC")]
    reads: Vec<String>,

    /// Only show the preview.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,

    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,

    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,

    /// The transport: nats://host:port, kafka://host:port, pubsub://project, or `sql:` for the log
    /// in the same store.
    #[arg(long, env = "CHAPAR_TRANSPORT", hide_env_values = true, value_name = "URL",
        default_value = IN_THE_STORE)]
    transport: String,

    /// The system's profile, required for a broker: a shipped system or a TOML file.
    #[arg(long, env = "CHAPAR_PROFILE", value_name = "NAME|FILE")]
    profile: Option<String>,

    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(args: &Args, config: &Config) -> Result<ExitCode> {
    let reason = args.reason.as_deref().map(told).transpose()?;
    let store = open(&args.target).await?;
    let system = match &args.profile {
        Some(profile) => system(profile)?.0.name,
        None if args.transport == IN_THE_STORE => String::new(),
        None => bail!("a broker needs the name of the system: give --profile"),
    };
    let owner = process_name("seek");
    let transport = transport::open(&args.transport, &config.nats, &store, &owner, &system).await?;
    let seek = Seek {
        consumer: args.consumer.clone(),
        to: args.to.clone(),
        scope: Scope { topics: args.types.clone(), tenants: args.tenants.clone() },
        reapply: args.reapply,
        topics: args.reads.clone(),
    };
    let preview = seek.preview(&store, &*transport).await?;
    let json = args.target.format == Format::Json;
    if !json {
        say(&args.consumer, &preview, args.reapply);
    }
    let (Some(reason), false) = (reason, args.dry_run) else {
        if json {
            print(&args.consumer, &preview, false)?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    if !args.yes && !confirmed("do it?", "--yes to confirm, or --dry-run for a preview")? {
        bail!("nothing was done");
    }
    let done = seek.carry_out(&store, &*transport, &operator(), reason).await?;
    match json {
        true => print(&args.consumer, &done, true)?,
        false => eprintln!("{} continues from there within a second", args.consumer),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(consumer: &str, preview: &SeekPreview, done: bool) -> Result<()> {
    let mut shown = serde_json::to_value(preview)?;
    shown["consumer"] = json!(consumer);
    shown["done"] = json!(done);
    println!("{}", serde_json::to_string_pretty(&shown)?);
    Ok(())
}

fn say(consumer: &str, preview: &SeekPreview, reapply: bool) {
    println!("{}", bold(consumer));
    println!("events        {:>9}  would come", preview.events);
    println!("applied       {:>9}  were applied before", preview.applied);
    println!("to apply      {:>9}  would be applied", preview.to_apply);
    if reapply && preview.applied > 0 {
        let again = format!("{} of them were applied before, and would be again", preview.applied);
        println!("{:>23}  {}", "", red(&again));
    }
    if preview.forgotten > 0 {
        let forgotten =
            "are past its cursor, and the inbox has forgotten whether they were applied";
        println!("forgotten     {:>9}  {forgotten}", preview.forgotten);
    }
    if preview.outside > 0 {
        println!("outside       {:>9}  are not in the scope and not affected", preview.outside);
    }
    if preview.skipped > 0 {
        let skipped = red("were never applied, and would be skipped for good");
        println!("skipped       {:>9}  {skipped}", preview.skipped);
    }
    for (topic, count) in &preview.topics {
        let line = format!("{:>9} of {:>9}  {topic}", count.to_apply, count.events);
        println!("  {}", dim(&line));
    }
}

fn target(text: &str) -> Result<SeekTarget, String> {
    match text {
        "beginning" => return Ok(SeekTarget::Beginning),
        "end" => return Ok(SeekTarget::End),
        "snapshot" => return Ok(SeekTarget::Snapshot),
        _ => {}
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(SeekTarget::Time(at));
    }
    if let Some((partition, offset)) = text.split_once(':')
        && let (Ok(partition), Ok(offset)) = (partition.parse(), offset.parse())
    {
        return Ok(SeekTarget::Position(Position { partition, offset }));
    }
    let ago = duration(text).ok().and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    ago.map(SeekTarget::Time).ok_or_else(|| {
        "give beginning, end, snapshot, a time such as 2026-11-01T08:00:00Z or 2h, or \
         PARTITION:OFFSET"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_word_a_time_or_a_position() {
        assert_eq!(target("end"), Ok(SeekTarget::End));
        let at = Position { partition: 3, offset: 1500 };
        assert_eq!(target("3:1500"), Ok(SeekTarget::Position(at)));
        let at = "2026-11-01T08:00:00Z".parse().unwrap();
        assert_eq!(target("2026-11-01T08:00:00Z"), Ok(SeekTarget::Time(at)));
        assert!(matches!(target("2h"), Ok(SeekTarget::Time(at)) if at < Timestamp::now()));
        for wrong in ["", "yesterday", "3:", ":5", "-1h", "99999999d"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
