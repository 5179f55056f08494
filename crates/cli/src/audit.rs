//! `chapar audit`: the audit log of operator actions.

use std::process::ExitCode;

use anyhow::Result;
use chapar::ops::{AuditFilter, AuditLine, audit_lines};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::dlq::moment;
use crate::outbox::{Target, open};
use crate::output::{Format, bold, dim};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the newest entries of the audit log, which is append-only.
    #[command(after_help = "\
Examples:
  chapar audit list --store postgres://localhost/hotel
  chapar audit list --store sqlite:hotel.db --action dead_letter --since 1d --format json
  chapar audit list --store sqlite:hotel.db --target 0198f2c4-5e6a-7b1c-8d2e-3f4a5b6c7d8e")]
    List(List),
}

#[derive(Args)]
pub(crate) struct List {
    /// Only entries of this actor.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,

    /// Only this action, such as dead_letter.delete, or a group of actions, such as dead_letter.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,

    /// Only entries about this object.
    #[arg(long, value_name = "ID|NAME")]
    target: Option<String>,

    /// At or after this time: 2h for two hours ago, or 2026-03-01T12:00:00Z.
    #[arg(long, value_parser = moment, value_name = "TIME")]
    since: Option<Timestamp>,

    /// Before this time.
    #[arg(long, value_parser = moment, value_name = "TIME")]
    until: Option<Timestamp>,

    /// The maximum number of entries.
    #[arg(long, default_value_t = 50, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limit: u64,

    /// Only entries older than this one, for the next page.
    #[arg(long, value_name = "NUMBER")]
    before: Option<i64>,

    #[command(flatten)]
    store: Target,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let Command::List(args) = command;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(list(args))
}

async fn list(args: List) -> Result<ExitCode> {
    let store = open(&args.store).await?;
    let filter = AuditFilter {
        actor: args.actor,
        action: args.action,
        target: args.target,
        since: args.since,
        until: args.until,
        before: args.before,
    };
    let lines = audit_lines(&store, &filter, args.limit as i64).await?;
    match args.store.format {
        Format::Json => {
            let lines: Vec<_> = lines.iter().map(as_json).collect();
            println!("{}", serde_json::to_string_pretty(&lines)?);
        }
        Format::Text if lines.is_empty() => eprintln!("no entries"),
        Format::Text => lines.iter().for_each(print),
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(line: &AuditLine) -> Value {
    json!({
        "id": line.id, "at": line.at, "actor": line.actor, "action": line.action,
        "target": line.target, "reason": line.reason,
        "detail": serde_json::from_str(&line.detail).unwrap_or_else(|_| json!(line.detail)),
    })
}

fn print(line: &AuditLine) {
    println!("{}  {}  {}  {}", line.at, bold(&line.action), line.actor, line.target);
    if !line.reason.is_empty() {
        println!("    {}", line.reason);
    }
    if line.detail != "{}" {
        println!("    {}", dim(&line.detail));
    }
}
