//! `chapar effects`: calls to the outside, and those whose outcome could not be recorded.

use std::process::ExitCode;

use anyhow::{Result, bail};
use chapar::ops::{
    EffectCard, EffectFilter, Operator, list_effects, retry_effect, retry_stuck_effects,
};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::outbox::{Target, open, operator, told};
use crate::output::{Format, bold, dim, red};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List effects, the oldest first: by default those that are stuck.
    #[command(after_help = "\
Examples:
  chapar effects list --store postgres://localhost/hotel
  chapar effects list --store sqlite:hotel.db --status pending --kind card.charge --format json")]
    List(List),
    /// Record the outcome of stuck effects again, or run one that waits for its next attempt now.
    #[command(after_help = "\
Examples:
  chapar effects retry 4711 --store postgres://localhost/hotel --reason 'column added, INC-42'
  chapar effects retry --all --kind card.charge --store postgres://localhost/hotel \\
      --reason 'column added, INC-42'

A stuck effect has the answer of its vendor: only the handler of the outcome runs again, and the vendor is not called.")]
    Retry(Retry),
}

#[derive(Args)]
pub(crate) struct List {
    /// Only effects with this status: stuck, pending, done or failed.
    #[arg(long, default_value = "stuck", value_parser = ["stuck", "pending", "done", "failed"])]
    status: String,

    #[command(flatten)]
    which: Which,

    /// The maximum number of effects.
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: u32,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Which {
    /// Only effects of this kind.
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,

    /// Only effects of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

#[derive(Args)]
pub(crate) struct Retry {
    /// The effect, by the number that `list` shows.
    #[arg(required_unless_present = "all", conflicts_with_all = ["all", "kind", "tenant"])]
    id: Option<i64>,

    /// All stuck effects, of one kind or tenant if given.
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    which: Which,

    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::List(args) => list(args).await,
            Command::Retry(args) => retry(args).await,
        }
    })
}

async fn list(args: List) -> Result<ExitCode> {
    let store = open(&args.target).await?;
    let Which { kind, tenant } = args.which;
    let filter = EffectFilter { status: Some(args.status), kind, tenant };
    let effects = list_effects(&store, &filter, args.limit.into()).await?;
    match args.target.format {
        Format::Json => {
            let effects: Vec<Value> = effects.iter().map(as_json).collect();
            println!("{}", serde_json::to_string_pretty(&effects)?);
        }
        Format::Text if effects.is_empty() => eprintln!("no effects match"),
        Format::Text => effects.iter().for_each(print),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(effect: &EffectCard) {
    let EffectCard { id, kind, key, status, tenant, attempts, .. } = effect;
    let status = if status == "stuck" { red(status) } else { status.clone() };
    println!("{id}  {}  {key}  {status}", bold(kind));
    let held = effect.held_until.is_some_and(|until| until > Timestamp::now());
    let next = match status.as_str() {
        "pending" if held => ", a worker has it".to_owned(),
        "pending" => format!(", due {}", effect.due_at),
        _ => String::new(),
    };
    let answered = if effect.answered { ", the vendor has answered" } else { "" };
    let about =
        format!("{tenant}, asked for {}, {attempts} calls{answered}{next}", effect.created_at);
    println!("    {}", dim(&about));
    if let Some(error) = &effect.last_error {
        println!("    {error}");
    }
}

fn as_json(effect: &EffectCard) -> Value {
    json!({
        "id": effect.id, "kind": effect.kind, "key": effect.key, "tenant": effect.tenant,
        "status": effect.status, "attempts": effect.attempts, "answered": effect.answered,
        "due_at": effect.due_at, "created_at": effect.created_at,
        "finished_at": effect.finished_at, "last_error": effect.last_error,
    })
}

async fn retry(args: Retry) -> Result<ExitCode> {
    let reason = told(&args.reason)?;
    let store = open(&args.target).await?;
    let name = operator();
    let by = Operator { name: &name, reason };
    let Which { kind, tenant } = args.which;
    let (retried, words) = match args.id {
        Some(id) => match retry_effect(&store, id, by).await? {
            Some(words) => (1, words),
            None => bail!(
                "effect {id} is neither stuck nor waiting for another attempt: it has \
                 ended, a worker has it, or there is none; `chapar effects list --status pending` \
                 shows what is open"
            ),
        },
        None => {
            let filter = EffectFilter { status: None, kind, tenant };
            let retried = retry_stuck_effects(&store, &filter, by).await?;
            (retried, format!("{retried} outcomes are recorded now, without another call"))
        }
    };
    match args.target.format {
        Format::Json => println!("{}", json!({ "outcome": "retried", "effects": retried })),
        Format::Text => eprintln!("{words}"),
    }
    Ok(ExitCode::SUCCESS)
}
