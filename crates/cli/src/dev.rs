//! `chapar dev`: tools for local development.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use chapar_core::Envelope;
use chapar_core::dialect::{CloudEvents, Dialect, FlatJson, Message, MetadataJson};
use chapar_core::webhook::ID;
use chapar_server::{Answer, Received, Receiver, Trouble};
use clap::{Args, Subcommand};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::output::Format;
use crate::push::secrets;
use crate::up::interrupted;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Receive pushed events, verify their signatures, and print them.
    #[command(after_help = RECEIVE)]
    Receive(Receive),
}

#[derive(Args)]
pub(crate) struct Receive {
    /// The address to listen on; port 0 chooses a free one.
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    listen: String,

    /// The file with the secret that `chapar push` signs with.
    #[arg(long, env = "CHAPAR_PUSH_SECRET_FILE", value_name = "FILE")]
    secret_file: PathBuf,

    /// Simulate failures: answer this status to every event, or to those of --fail-every.
    #[arg(long, value_name = "CODE")]
    status: Option<u16>,

    /// Simulate failures: fail every Nth event, with 500 unless --status is given.
    #[arg(long, value_name = "N")]
    fail_every: Option<u64>,

    /// The form of the output: a line, or a JSON object, per message.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

const RECEIVE: &str = "\
Examples:
  (umask 077; echo whsec_$(openssl rand -base64 32) > dev.secret)
  chapar dev receive --secret-file dev.secret
  chapar dev receive --secret-file dev.secret --fail-every 3 --status 503
  chapar dev receive --secret-file dev.secret --listen 127.0.0.1:0 --format json

A forged signature, a replayed message, a changed body and a time that is off by more than five
minutes get 401 with the reason. A duplicate gets 200 and is not applied again. The memory of past
events ends with the command.";

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let Command::Receive(args) = command;
    let trouble = match (args.status, args.fail_every) {
        (None, None) => None,
        (_, Some(0)) => bail!("--fail-every 0 makes no sense; 1 fails every event"),
        (status, every) => {
            let status = status.unwrap_or(500);
            if !(200..=599).contains(&status) {
                bail!("--status {status} is no answer; use 200 to 599");
            }
            Some(Trouble { status, every: every.unwrap_or(1) })
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(receive(args, trouble))
}

async fn receive(args: Receive, trouble: Option<Trouble>) -> Result<ExitCode> {
    let interrupted = interrupted();
    let listen: SocketAddr = args.listen.parse().with_context(|| {
        format!("--listen {:?} is not an address such as 127.0.0.1:8080", args.listen)
    })?;
    let format = args.format;
    let receiver = Receiver::new(secrets(&args.secret_file)?, trouble, move |received| {
        // A closed stdout does not stop the receiver.
        let _ = writeln!(std::io::stdout(), "{}", line(received, format));
    });
    let closing = CancellationToken::new();
    let (address, server) = receiver.bind(listen, closing.clone()).await?;
    let server = tokio::spawn(server);
    eprintln!("receiving at http://{address}/internal/events/<topic>");
    interrupted.cancelled().await;
    closing.cancel();
    let _ = server.await;
    Ok(ExitCode::SUCCESS)
}

fn line(received: &Received, format: Format) -> String {
    let header = |wanted: &str| {
        received.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    };
    let id = header(ID).unwrap_or("-");
    let (outcome, reason) = match &received.outcome {
        Answer::Applied => ("applied", None),
        Answer::Duplicate => ("duplicate", None),
        Answer::Trouble => ("failed", Some("on purpose".to_owned())),
        Answer::Refused(refusal) => ("refused", Some(refusal.to_string())),
    };
    let envelope = envelope(received);
    let key = envelope.as_ref().and_then(|envelope| envelope.ordering_key.as_deref());
    let tenant = envelope.as_ref().map(|envelope| envelope.tenant.as_str());
    let payload = envelope
        .as_ref()
        .map(|envelope| String::from_utf8_lossy(envelope.payload.as_bytes()).into_owned());
    let (status, topic, bytes) = (received.status, &received.topic, received.body.len());
    if format == Format::Json {
        return json!({
            "status": status, "outcome": outcome, "reason": reason, "topic": topic, "id": id,
            "tenant": tenant, "key": key, "bytes": bytes,
            "payload": payload.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok()),
        })
        .to_string();
    }
    let mut text = format!("{status} {outcome:<9} {topic}  {id}");
    match (tenant, payload) {
        (Some(tenant), Some(payload)) => {
            const MOST: usize = 120;
            let cut: String = payload.chars().take(MOST).collect();
            let more = if payload.chars().nth(MOST).is_some() { "…" } else { "" };
            text.push_str(&format!("  {tenant} {}  {cut}{more}", key.unwrap_or("-")));
        }
        _ => text.push_str(&format!("  {bytes} bytes in an unknown dialect")),
    }
    if let Some(reason) = reason {
        text.push_str(&format!("  ({reason})"));
    }
    // Escape control characters: the sender could write terminal escape sequences.
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn envelope(received: &Received) -> Option<Envelope> {
    let message = Message {
        topic: None,
        headers: received.headers.iter().cloned().collect(),
        body: received.body.clone(),
    };
    let dialects: [&dyn Dialect; 3] = [&MetadataJson, &FlatJson, &CloudEvents::Structured];
    dialects.iter().find_map(|dialect| dialect.decode(&message).ok())
}
