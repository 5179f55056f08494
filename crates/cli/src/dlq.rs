//! `chapar dlq`: triage of dead letters.

mod edit;
mod replay;
mod show;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use chapar::ops::{LetterFilter, Letters, LettersChanged, Operator, TriageError};
use chapar_core::machine::failure::{FailureClass, FailureKind};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use crate::config::duration;
use crate::outbox::{Target, open, operator, told};
use crate::output::{Format, confirmed, print_bytes};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the open dead letters, newest first.
    #[command(after_help = "\
Examples:
  chapar dlq list --store sqlite:hotel.db
  chapar dlq list --store postgres://localhost/hotel --consumer inventory-service.booking-held \\
      --error 'room 12 is taken' --since 2h
  chapar dlq list --store postgres://localhost/hotel --closed

In --error a number or a quoted value matches any.")]
    List(List),
    /// Group the letters by consumer, topic, kind and error, ignoring ids.
    #[command(after_help = "\
Examples:
  chapar dlq groups --store postgres://localhost/hotel
  chapar dlq groups --store postgres://localhost/hotel --tenant kabul-grand --format json")]
    Groups(Groups),
    /// Show one letter with its message, headers and error.
    #[command(after_help = "\
Examples:
  chapar dlq show 0198f2c4-5e6a-7b1c-8d2e-3f4a5b6c7d8e --store sqlite:hotel.db")]
    Show(Show),
    /// Classify letters; the class decides whether they may be replayed.
    #[command(after_help = "\
Examples:
  chapar dlq classify --group 5b1f3c0d9e8a7766 --as consumer-bug --reason 'INC-42' \\
      --store postgres://localhost/hotel
  chapar dlq classify --group 5b1f3c0d9e8a7766 --as consumer-bug --fix 'released 1.4.2' \\
      --reason 'INC-42' --store postgres://localhost/hotel

  schema-drift   producer and consumer disagree: replayed only after a fix is recorded
  consumer-bug   the handler is wrong: replayed only after a fix is recorded
  vendor-outage  a dependency was unavailable: always replayed
  poison         states something impossible: never replayed
  none           removes the class

When a replay fails, the recorded fix is removed.")]
    Classify(Classify),
    /// Replay letters: their consumers apply them again, through the inbox.
    #[command(after_help = "\
Examples:
  chapar dlq replay 0198f2c4-5e6a-7b1c-8d2e-3f4a5b6c7d8e --reason 'template added' --store sqlite:hotel.db
  chapar dlq replay --class vendor-outage --since 6h --dry-run --store postgres://localhost/hotel
  chapar dlq replay --group 5b1f3c0d9e8a7766 --rate 500 --reason 'INC-42' \\
      --store postgres://localhost/hotel
  chapar dlq replay --resume 1d0c5f9a7b3e2 --store postgres://localhost/hotel

Each letter waits for its key's turn, and its followers are applied after it, in order. Ctrl-C stops
the replay and prints how to resume it: no letter is skipped or taken twice, also after a crash. A
letter that fails again is open again. Exit code: 0 if all were applied, 1 if one failed or was
refused because of its class (see `classify --fix`) or age (see --reapply).")]
    Replay(replay::Replay),
    /// Correct an event and replay it.
    #[command(after_help = "\
Examples:
  chapar dlq show ID --payload --profile melmastoon --store sqlite:hotel.db > payload.json
  chapar dlq edit-and-replay ID --payload payload.json --profile melmastoon \\
      --contracts contracts.json --reason 'INC-42: the rate was in afghani' --store sqlite:hotel.db

The event keeps its id, and the letter keeps the original. The edited event must match the contract.")]
    EditAndReplay(edit::Edit),
    /// Close letters and keep their events for investigation; their followers go on.
    #[command(after_help = "\
Examples:
  chapar dlq quarantine --class poison --reason 'defect BOOK-311' --store postgres://localhost/hotel")]
    Quarantine(Close),
    /// Close letters and erase their events; their followers go on.
    #[command(after_help = "\
Examples:
  chapar dlq delete 0198f2c4-5e6a-7b1c-8d2e-3f4a5b6c7d8e --reason 'signed off by compliance' \\
      --store postgres://localhost/hotel

The record of the letter stays, with who deleted it and why. --all asks for confirmation; in a script
give --yes.")]
    Delete(Delete),
}

#[derive(Args)]
#[command(next_help_heading = "Which letters")]
pub(crate) struct Filter {
    /// Of this group, by its fingerprint as `groups` shows it.
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), value_name = "FINGERPRINT")]
    group: Option<String>,

    /// Of this consumer.
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), value_name = "NAME")]
    consumer: Option<String>,

    /// Of this topic.
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), value_name = "TOPIC")]
    topic: Option<String>,

    /// Of this tenant.
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), value_name = "TENANT")]
    tenant: Option<String>,

    /// Of this kind: undecodable, schema_invalid, rule_violation, transient or timeout.
    #[arg(long, value_parser = kind, value_name = "KIND")]
    kind: Option<FailureKind>,

    /// With this text in the error; numbers and quoted values match any.
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), value_name = "TEXT")]
    error: Option<String>,

    /// Of this class: schema-drift, vendor-outage, poison or consumer-bug.
    #[arg(long, value_parser = class, value_name = "CLASS")]
    class: Option<FailureClass>,

    /// Last failed at or after this time: 2h for two hours ago, or 2026-03-01T12:00:00Z.
    #[arg(long, value_parser = moment, value_name = "TIME")]
    since: Option<Timestamp>,

    /// Last failed before this time.
    #[arg(long, value_parser = moment, value_name = "TIME")]
    until: Option<Timestamp>,
}

#[derive(Args)]
pub(crate) struct Select {
    /// The letters, by their ids.
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    #[command(flatten)]
    filter: Filter,

    /// Every open letter.
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    filter: Filter,

    /// List the letters closed last instead; takes no filters.
    #[arg(long)]
    closed: bool,

    /// The maximum number of letters.
    #[arg(long, default_value_t = 50, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,

    /// Continue after the previous page, which printed this value.
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Groups {
    #[command(flatten)]
    filter: Filter,

    /// The maximum number of groups.
    #[arg(long, default_value_t = 50, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Show {
    /// The letter's id, as `list` shows it.
    id: String,

    /// Print only the payload, as JSON, for editing.
    #[arg(long, conflicts_with = "message")]
    payload: bool,

    /// Print only the message, byte for byte.
    #[arg(long)]
    message: bool,

    /// The system's profile, a shipped system or a TOML file: needed for --payload.
    #[arg(
        long,
        env = "CHAPAR_PROFILE",
        value_name = "NAME|FILE",
        required_if_eq("payload", "true")
    )]
    profile: Option<String>,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Classify {
    #[command(flatten)]
    select: Select,

    /// The class.
    #[arg(long = "as", value_parser = class_or_none, value_name = "CLASS")]
    judged: ClassOrNone,

    /// How the cause was fixed, for schema-drift and consumer-bug.
    #[arg(long, value_name = "TEXT")]
    fix: Option<String>,

    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,

    /// Only show what would be done.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Close {
    #[command(flatten)]
    select: Select,

    /// The note stored with the closed letters, and written to the audit log.
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,

    /// Only show what would be done.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    close: Close,

    /// Do not ask for confirmation with --all.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ClassOrNone(Option<FailureClass>);

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::List(args) => list(args).await,
            Command::Groups(args) => groups(args).await,
            Command::Show(args) => show(args).await,
            Command::Classify(args) => classify(args).await,
            Command::Replay(args) => replay::run(args).await,
            Command::EditAndReplay(args) => edit::run(args).await,
            Command::Quarantine(args) => quarantine(args).await,
            Command::Delete(args) => delete(args).await,
        }
    })
}

impl Filter {
    fn means(self) -> LetterFilter {
        LetterFilter {
            ids: Vec::new(),
            group: self.group,
            consumer: self.consumer,
            topic: self.topic,
            tenant: self.tenant,
            kind: self.kind.map(|kind| kind.as_str().to_owned()),
            error: self.error,
            class: self.class.map(|class| class.as_str().to_owned()),
            since: self.since,
            until: self.until,
        }
    }
}

impl Select {
    fn means(self) -> Result<LetterFilter> {
        let filter = LetterFilter { ids: self.ids, ..self.filter.means() };
        if filter.is_empty() && !self.all {
            return Err(TriageError::NothingSelected.into());
        }
        Ok(filter)
    }
}

async fn list(args: List) -> Result<ExitCode> {
    let letters = Letters::of(&open(&args.target).await?);
    let (found, next) = if args.closed {
        let filter = args.filter.means();
        anyhow::ensure!(filter.is_empty(), "--closed takes no filters");
        (letters.closed(args.limit as usize).await?, None)
    } else {
        let (filter, after) = (args.filter.means(), args.after.as_deref());
        let page = letters.list(&filter, after, args.limit as usize).await?;
        (page.letters, page.next)
    };
    match args.target.format {
        Format::Json => {
            let letters: Vec<_> = found.iter().map(show::brief).collect();
            let page = json!({ "letters": letters, "next": next });
            println!("{}", serde_json::to_string_pretty(&page)?);
        }
        Format::Text if found.is_empty() => eprintln!("no open dead letters"),
        Format::Text => {
            found.iter().for_each(show::line);
            if let Some(next) = next {
                eprintln!("there may be more: --after {next}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn groups(args: Groups) -> Result<ExitCode> {
    let letters = Letters::of(&open(&args.target).await?);
    let groups = letters.groups(&args.filter.means(), args.limit as usize).await?;
    match args.target.format {
        Format::Json => {
            let groups: Vec<_> = groups.iter().map(show::group_json).collect();
            println!("{}", serde_json::to_string_pretty(&groups)?);
        }
        Format::Text if groups.is_empty() => eprintln!("no open dead letters"),
        Format::Text => groups.iter().for_each(show::group),
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(args: Show) -> Result<ExitCode> {
    let letter = Letters::of(&open(&args.target).await?).get(&args.id).await?;
    if args.message {
        print_bytes(&letter.to_deliver().body);
    } else if args.payload {
        let profile = args.profile.as_deref().context("--payload needs --profile")?;
        println!("{}", edit::payload(&letter, profile)?);
    } else {
        match args.target.format {
            Format::Json => println!("{}", serde_json::to_string_pretty(&show::whole(&letter))?),
            Format::Text => show::page(&letter),
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn classify(args: Classify) -> Result<ExitCode> {
    let letters = Letters::of(&open(&args.target).await?);
    let filter = args.select.means()?;
    if args.dry_run {
        return would(&letters, &filter, args.target.format, "be classified").await;
    }
    let actor = operator();
    let by = Operator { name: &actor, reason: told(args.reason.as_deref().unwrap_or(""))? };
    let fix = args.fix.as_deref().map(told).transpose()?;
    let settled = letters.classify(&filter, args.judged.0, fix, by).await?;
    said(&settled, args.target.format, "classified", "")
}

async fn quarantine(args: Close) -> Result<ExitCode> {
    let letters = Letters::of(&open(&args.target).await?);
    let filter = args.select.means()?;
    if args.dry_run {
        return would(&letters, &filter, args.target.format, "be quarantined").await;
    }
    let actor = operator();
    let by = Operator { name: &actor, reason: told(args.reason.as_deref().unwrap_or(""))? };
    let settled = letters.quarantine(&filter, by).await?;
    said(&settled, args.target.format, "quarantined", GO_ON)
}

async fn delete(args: Delete) -> Result<ExitCode> {
    let Delete { close: args, yes } = args;
    let letters = Letters::of(&open(&args.target).await?);
    let all = args.select.all;
    let filter = args.select.means()?;
    if args.dry_run {
        return would(&letters, &filter, args.target.format, "be deleted").await;
    }
    let actor = operator();
    let by = Operator { name: &actor, reason: told(args.reason.as_deref().unwrap_or(""))? };
    if all && !yes {
        let selected = letters.outlook(&filter, true).await?.selected;
        let question = format!("delete {selected} dead letters, and erase their events?");
        if !confirmed(&question, "--yes to confirm, or --dry-run for a preview")? {
            bail!("nothing was done");
        }
    }
    let settled = letters.delete(&filter, by).await?;
    said(&settled, args.target.format, "deleted", GO_ON)
}

const GO_ON: &str = "; the events parked behind them go on";

async fn would(
    letters: &Letters,
    filter: &LetterFilter,
    format: Format,
    what: &str,
) -> Result<ExitCode> {
    let outlook = letters.outlook(filter, true).await?;
    let (selected, followers) = (outlook.selected, outlook.followers);
    match format {
        Format::Json => println!("{}", json!({ "selected": selected, "followers": followers })),
        Format::Text => {
            println!("{selected} would {what}; {followers} events wait behind them");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn said(settled: &LettersChanged, format: Format, what: &str, then: &str) -> Result<ExitCode> {
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(settled)?),
        Format::Text if settled.changed == 0 => eprintln!("nothing was {what}: no letter matches"),
        Format::Text => {
            eprintln!("{what} {} of {} letters{then}", settled.changed, settled.selected);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn kind(text: &str) -> Result<FailureKind, String> {
    const KINDS: [FailureKind; 5] = [
        FailureKind::Undecodable,
        FailureKind::SchemaInvalid,
        FailureKind::RuleViolation,
        FailureKind::Transient,
        FailureKind::Timeout,
    ];
    let name = text.replace('-', "_");
    KINDS.into_iter().find(|kind| kind.as_str() == name).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.as_str()).collect();
        format!("{text:?} is not a failure kind; use one of {}", known.join(", "))
    })
}

fn class(text: &str) -> Result<FailureClass, String> {
    FailureClass::named(text).ok_or_else(|| {
        let known: Vec<_> =
            FailureClass::ALL.iter().map(|class| class.as_str().replace('_', "-")).collect();
        format!("{text:?} is not a class; use one of {}", known.join(", "))
    })
}

fn class_or_none(text: &str) -> Result<ClassOrNone, String> {
    if text == "none" { Ok(ClassOrNone(None)) } else { class(text).map(|c| ClassOrNone(Some(c))) }
}

/// A time, or how long ago.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let ago = duration(text).map_err(|_| {
        format!("{text:?} is neither a time ago such as 2h nor one such as 2026-03-01T12:00:00Z")
    })?;
    Timestamp::now().saturating_sub(ago).map_err(|_| format!("{text:?} is too long ago"))
}
