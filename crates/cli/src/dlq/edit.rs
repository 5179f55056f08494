//! `chapar dlq edit-and-replay`.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use chapar::ops::{self, DeadLetter, Letters, Operator};
use chapar::{BundleSource, Chapar, Producer, Profile, Registry};
use chapar_core::dialect::{Dialect, Message};
use clap::Args;
use serde_json::json;

use crate::outbox::{Target, open, operator, told};
use crate::output::Format;
use crate::profiles;

#[derive(Args)]
pub(crate) struct Edit {
    /// The id of the dead letter.
    id: String,

    /// A file with the corrected payload as JSON; - is stdin.
    #[arg(long, value_name = "FILE", required_unless_present = "message")]
    payload: Option<String>,

    /// A file with the whole message, if the original cannot be decoded; - is stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    message: Option<String>,

    /// The system's profile: a shipped system or a TOML file.
    #[arg(long, env = "CHAPAR_PROFILE", value_name = "NAME|FILE")]
    profile: String,

    /// The released contracts that the event must match: a file, https://, gs:// or s3://.
    #[arg(long, env = "CHAPAR_CONTRACTS", value_name = "PLACE")]
    contracts: String,

    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,

    /// Only validate the edited event, and print the message as it would be delivered.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(args: Edit) -> Result<ExitCode> {
    let store = open(&args.target).await?;
    let (profile, dialect) = system(&args.profile)?;
    let source: BundleSource = args.contracts.parse().context("--contracts")?;
    let registry = Registry::open(source.token_from_env()).await.context("--contracts")?;
    let letters = Letters::of(&store);
    let chapar = Chapar::builder(store, profile, dialect)
        .producer(Producer { service: "chapar-dlq".into(), ..Producer::default() })
        .registry(registry)
        .build();
    let edit = match (&args.payload, &args.message) {
        (Some(file), _) => {
            let text = String::from_utf8(read(file)?).with_context(|| file.clone())?;
            ops::Edit::Payload(text)
        }
        (None, file) => ops::Edit::Message(read(file.as_deref().unwrap_or("-"))?.into()),
    };
    if args.dry_run {
        let letter = letters.get(&args.id).await?;
        let (_, message) = letters.edited(&chapar, &letter, &edit)?;
        println!("{}", String::from_utf8_lossy(&message.body));
        return Ok(ExitCode::SUCCESS);
    }
    let actor = operator();
    let by = Operator { name: &actor, reason: told(args.reason.as_deref().unwrap_or(""))? };
    letters.edit_and_replay(&chapar, &args.id, &edit, by).await?;
    match args.target.format {
        Format::Json => println!("{}", json!({ "id": args.id, "outcome": "replay" })),
        Format::Text => {
            eprintln!("edited {}: its consumer replays it within a second", args.id);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The payload of a letter, formatted for editing.
pub(super) fn payload(letter: &DeadLetter, profile: &str) -> Result<String> {
    let (_, dialect) = system(profile)?;
    let arrival = letter.to_deliver();
    let message =
        Message { topic: Some(arrival.topic), headers: arrival.headers, body: arrival.body };
    let envelope = dialect.decode(&message).context(
        "the message cannot be decoded, so it has no payload; use --message and edit the whole message",
    )?;
    let value: serde_json::Value = envelope.payload.parse()?;
    Ok(serde_json::to_string_pretty(&value)?)
}

fn system(name: &str) -> Result<(Profile, Arc<dyn Dialect>)> {
    let profile = profiles::load(name)?;
    let dialect = profile
        .dialect()
        .context("Protobuf events are edited by a program that has their descriptors")?;
    Ok((profile, dialect))
}

fn read(file: &str) -> Result<Vec<u8>> {
    if file != "-" {
        return std::fs::read(file).with_context(|| format!("{file} cannot be read"));
    }
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).context("stdin cannot be read")?;
    Ok(bytes)
}
