//! `chapar sagas`: inspecting, retrying and cancelling sagas.

use std::process::ExitCode;

use anyhow::Result;
use chapar::ops::{
    SagaCard, SagaFilter, SagaView, Waiting, cancel_saga, list_sagas, retry_saga, view_saga,
};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::outbox::{Target, open, operator, told};
use crate::output::{Format, bold, dim, red};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the newest sagas.
    #[command(after_help = "\
Examples:
  chapar sagas list --store postgres://localhost/hotel --outcome stuck
  chapar sagas list --store sqlite:hotel.db --saga booking --outcome open --format json")]
    List(List),
    /// Show one saga: its history, what it waits for, the next timer and what happens then.
    #[command(after_help = "\
Examples:
  chapar sagas show booking R-1234 --store postgres://localhost/hotel")]
    Show(Which),
    /// Replay the dead letters of a saga, and run its open effects now.
    #[command(after_help = "\
Examples:
  chapar sagas retry booking R-1234 --store postgres://localhost/hotel \\
      --reason 'the lock vendor is back, INC-42'")]
    Retry(Decide),
    /// Cancel a saga: run its undo steps and end it.
    #[command(after_help = "\
Examples:
  chapar sagas cancel booking R-1234 --store postgres://localhost/hotel \\
      --reason 'the guest has called'
  chapar sagas cancel booking R-1234 --abandon --store postgres://localhost/hotel \\
      --reason 'undone by hand, INC-42'

The program that runs the saga does it, as declared with Saga::cancelled_by_operator. With --abandon the saga just
ends, and the steps to undo by hand are printed.")]
    Cancel(Cancel),
}

#[derive(Args)]
pub(crate) struct List {
    /// Only sagas of this kind.
    #[arg(long, value_name = "NAME")]
    saga: Option<String>,

    /// Only sagas in this state.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,

    /// Only sagas with this outcome: open, stuck, completed, compensated or partial.
    #[arg(long, value_parser = ["open", "stuck", "completed", "compensated", "partial"])]
    outcome: Option<String>,

    /// The maximum number of sagas.
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: u32,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Which {
    /// The kind of saga, as `list` shows it.
    saga: String,

    /// The saga's key.
    key: String,

    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Decide {
    #[command(flatten)]
    which: Which,

    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

#[derive(Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    decide: Decide,

    /// End it without running the program's undo steps.
    #[arg(long)]
    abandon: bool,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::List(args) => list(args).await,
            Command::Show(args) => show(&args).await,
            Command::Retry(args) => retry(&args).await,
            Command::Cancel(args) => cancel(&args).await,
        }
    })
}

async fn list(args: List) -> Result<ExitCode> {
    let store = open(&args.target).await?;
    let filter = SagaFilter { saga: args.saga, state: args.state, outcome: args.outcome };
    let cards = list_sagas(&store, &filter, args.limit.into()).await?;
    match args.target.format {
        Format::Json => {
            let cards: Vec<Value> = cards.iter().map(as_json).collect();
            println!("{}", serde_json::to_string_pretty(&cards)?);
        }
        Format::Text if cards.is_empty() => eprintln!("no sagas match"),
        Format::Text => {
            for card in &cards {
                println!("{}  {}  {}", bold(&card.saga), card.key, said(card));
                let about = format!(
                    "{}, started {}, last moved {}",
                    card.tenant, card.started_at, card.updated_at
                );
                println!("    {}", dim(&about));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn said(card: &SagaCard) -> String {
    match card.outcome.as_deref() {
        None => card.state.clone(),
        Some("stuck") => red(&format!("{} (stuck)", card.state)),
        Some(outcome) => format!("{} ({outcome})", card.state),
    }
}

fn as_json(card: &SagaCard) -> Value {
    json!({
        "saga": card.saga, "key": card.key, "tenant": card.tenant, "state": card.state,
        "outcome": card.outcome, "definition": card.definition, "version": card.version,
        "correlation_id": card.correlation_id, "started_at": card.started_at,
        "updated_at": card.updated_at,
    })
}

async fn show(args: &Which) -> Result<ExitCode> {
    let store = open(&args.target).await?;
    let view = view_saga(&store, &args.saga, &args.key).await?;
    match args.target.format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&view_json(&view))?),
        Format::Text => print(&view),
    }
    Ok(ExitCode::SUCCESS)
}

fn view_json(view: &SagaView) -> Value {
    let history: Vec<Value> = view
        .history
        .iter()
        .map(|step| {
            json!({
                "version": step.version, "at": step.at, "from": step.from_state,
                "to": step.to_state, "cause": step.cause, "event_id": step.event_id,
                "note": step.note,
            })
        })
        .collect();
    let waiting = |waiting: &Waiting| match waiting {
        Waiting::Timer(timer, does) => json!({
            "for": "timer", "name": timer.name, "due_at": timer.due_at,
            "then": does.as_ref().map(|d| d.does.clone()),
            "handled_by": does.as_ref().map(|d| d.service.clone()),
        }),
        Waiting::Effect(effect) => json!({
            "for": "effect", "kind": effect.kind, "key": effect.key, "status": effect.status,
            "attempts": effect.attempts, "due_at": effect.due_at,
            "last_error": effect.last_error,
        }),
        Waiting::Held(held) => json!({
            "for": held.kind, "id": held.letter, "consumer": held.consumer,
            "event_id": held.event_id, "status": held.status, "error": held.error,
            "since": held.since,
        }),
        Waiting::Outbox { event_id, topic, error } => json!({
            "for": "outbox", "event_id": event_id, "topic": topic, "error": error,
        }),
    };
    let mut shown = as_json(&view.card);
    shown["history"] = history.into();
    shown["waits_for"] = view.waits_for.iter().map(waiting).collect();
    shown["compensations"] = json!(view.compensations);
    shown
}

fn print(view: &SagaView) {
    let card = &view.card;
    println!("{}  {}  {}", bold(&card.saga), card.key, said(card));
    println!("tenant       {}", card.tenant);
    println!("correlation  {}", card.correlation_id);
    println!("history");
    for step in &view.history {
        let from = step.from_state.as_deref().filter(|from| *from != step.to_state);
        let moved = match from {
            Some(from) => format!("{from} → {}", step.to_state),
            None => step.to_state.clone(),
        };
        println!("  {}  {moved}: {}", dim(&step.at.to_string()), step.note);
        println!("  {}", dim(&format!("    by {}", step.cause)));
    }
    let under_way = matches!(card.outcome.as_deref(), None | Some("stuck"));
    for step in view.compensations.iter().rev().filter(|_| under_way) {
        println!("to undo      {step}");
    }
    match view.waits_for.is_empty() {
        true if under_way => println!("{}", red("waits for an event; nothing else is armed")),
        true => println!("waits for nothing"),
        false if under_way => println!("waits for"),
        false => println!("has ended; still pending"),
    }
    for waiting in &view.waits_for {
        println!("  {}", describe(waiting));
    }
}

fn describe(waiting: &Waiting) -> String {
    match waiting {
        Waiting::Timer(timer, does) => {
            let left = timer.due_at.duration_since(Timestamp::now()).as_secs_f64();
            let when = match left {
                left if left >= 0.0 => format!("in {left:.0} s"),
                left => format!("due for {:.0} s", -left),
            };
            let then = match does {
                None => red("no program has declared a handler for it"),
                Some(d) if d.does.is_empty() => format!("{} handles it", d.service),
                Some(d) => format!("then: {} ({})", d.does, d.service),
            };
            format!("the timer {}, {when} ({}); {then}", timer.name, timer.due_at)
        }
        Waiting::Effect(effect) => {
            let error = effect.last_error.as_deref().unwrap_or("not tried yet");
            let (kind, key, attempts) = (&effect.kind, &effect.key, effect.attempts);
            let held = effect.held_until.is_some_and(|until| until > Timestamp::now());
            match effect.status.as_str() {
                "stuck" => {
                    red(&format!("the outcome of {kind} {key}, which cannot be recorded: {error}"))
                }
                _ if held => format!("the call {kind} {key}, which a worker makes now"),
                _ => {
                    let due = effect.due_at;
                    format!("the call {kind} {key}, {attempts} attempts, next {due}: {error}")
                }
            }
        }
        Waiting::Held(held) => {
            let id = held.letter.as_deref().unwrap_or_default();
            red(&format!("{} {id} of {}: {}", held.kind, held.consumer, held.error))
        }
        Waiting::Outbox { event_id, topic, error } => {
            red(&format!("{topic} {event_id} to be published: {error}"))
        }
    }
}

async fn retry(args: &Decide) -> Result<ExitCode> {
    let (which, reason) = (&args.which, told(&args.reason)?);
    let store = open(&which.target).await?;
    let set_going = retry_saga(&store, &which.saga, &which.key, &operator(), reason).await?;
    match which.target.format {
        Format::Json => println!("{}", json!({ "outcome": "retried", "set_going": set_going })),
        Format::Text => set_going.iter().for_each(|line| eprintln!("{line}")),
    }
    Ok(ExitCode::SUCCESS)
}

async fn cancel(args: &Cancel) -> Result<ExitCode> {
    let (which, reason) = (&args.decide.which, told(&args.decide.reason)?);
    let store = open(&which.target).await?;
    let Which { saga, key, .. } = which;
    let left = cancel_saga(&store, saga, key, args.abandon, &operator(), reason).await?;
    match which.target.format {
        Format::Json => {
            let outcome = if args.abandon { "abandoned" } else { "cancelling" };
            println!("{}", json!({ "outcome": outcome, "to_undo_by_hand": left }));
        }
        Format::Text if !args.abandon => {
            eprintln!("{saga} {key} is being cancelled; `chapar sagas show` shows the result")
        }
        Format::Text => {
            eprintln!("{saga} {key} has ended as partial");
            left.iter()
                .rev()
                .for_each(|step| eprintln!("{}", red(&format!("undo by hand: {step}"))));
        }
    }
    Ok(ExitCode::SUCCESS)
}
