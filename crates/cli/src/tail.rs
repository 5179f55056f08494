//! `chapar tail`: events as they are published.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use chapar::ops::{Consumers, Redaction, Shown, Tail};
use chapar_core::port::ReadFrom;
use jiff::Timestamp;

use crate::config::{Config, duration};
use crate::outbox::{Target, open};
use crate::output::{Format, bold, dim};
use crate::profiles;
use crate::relay::system;
use crate::transport::{self, IN_THE_STORE};
use crate::up::{interrupted, process_name};

pub(crate) const EXAMPLES: &str = "\
Examples:
  chapar tail --store postgres://localhost/hotel --profile melmastoon --tenant acme
  chapar tail --topic 'melmastoon.reservation.*' --since 10m --format json \\
      --store postgres://localhost/hotel --transport nats://localhost --profile melmastoon

Fields that the contracts mark as personal or do not declare are not shown. Without a contract the
payload is withheld. Ctrl-C stops it.";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this topic, or all topics with the prefix before a *; can be repeated.
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,

    /// Only this tenant; can be repeated.
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<String>,

    /// Start this long ago, such as 10m, instead of now.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    since: Option<Duration>,

    /// Stop after this many events.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// The bundle with the contracts of the system [default: that of the system, if it is shipped].
    #[arg(long, value_name = "FILE")]
    contracts: Option<PathBuf>,

    /// The transport: nats://host:port, kafka://host:port, or `sql:` for the log in the same store.
    #[arg(long, env = "CHAPAR_TRANSPORT", hide_env_values = true, value_name = "URL",
        default_value = IN_THE_STORE)]
    transport: String,

    /// The system's profile: a shipped system or a TOML file.
    #[arg(long, env = "CHAPAR_PROFILE", value_name = "NAME|FILE")]
    profile: String,

    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args, config: &Config) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(follow(args, config))
}

async fn follow(args: &Args, config: &Config) -> Result<ExitCode> {
    let stop = interrupted();
    let store = open(&args.target).await?;
    let (profile, dialect) = system(&args.profile)?;
    let redaction = redaction(args)?;
    let known = Consumers::of(&store).topics_read().await?;
    let topics = topics(&args.topics, known)?;
    let owner = process_name("tail");
    let transport =
        transport::open(&args.transport, &config.nats, &store, &owner, &profile.name).await?;
    let from = match args.since {
        None => ReadFrom::End,
        Some(since) => {
            ReadFrom::Time(Timestamp::now().checked_sub(since).context("--since is too far back")?)
        }
    };
    let tenants = args.tenants.clone();
    let mut tail = Tail::open(&*transport, dialect, redaction, &topics, tenants, from).await?;
    if args.target.format == Format::Text {
        eprintln!("{}", dim(&format!("following {} topics; Ctrl-C ends it", topics.len())));
    }
    let (mut shown, most) = (0, args.limit.unwrap_or(usize::MAX));
    while shown < most && !stop.is_cancelled() {
        let next = tokio::select! {
            next = tail.next((most - shown).min(500), Duration::from_millis(500)) => next?,
            () = stop.cancelled() => break,
        };
        for event in next {
            print(&event, args.target.format)?;
            shown += 1;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn redaction(args: &Args) -> Result<Redaction> {
    let bundle = match &args.contracts {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("--contracts {} cannot be read", file.display()))?,
        None => match profiles::shipped(&args.profile).and_then(|system| system.contracts) {
            Some(bundle) => bundle.to_owned(),
            None => return Ok(Redaction::default()),
        },
    };
    Redaction::from_bundle(&bundle).context("--contracts is not a bundle")
}

/// The selected topics; patterns, or none at all, select among the topics that consumers read.
fn topics(wanted: &[String], known: Vec<String>) -> Result<Vec<String>> {
    let mut topics = Vec::new();
    for wanted in wanted {
        match wanted.strip_suffix('*') {
            None => topics.push(wanted.clone()),
            Some(begin) => {
                let before = topics.len();
                topics.extend(known.iter().filter(|topic| topic.starts_with(begin)).cloned());
                if topics.len() == before {
                    bail!("no consumer reads a topic that begins with {begin:?}; name it in full");
                }
            }
        }
    }
    match (wanted.is_empty(), known.is_empty()) {
        (true, true) => {
            bail!("no consumer has run on this store, so no topic is known: give --topic")
        }
        (true, false) => Ok(known),
        (false, _) => Ok(topics),
    }
}

fn print(event: &Shown, format: Format) -> Result<()> {
    if format == Format::Json {
        println!("{}", serde_json::to_string(event)?);
        return Ok(());
    }
    let at = event.published_at.strftime("%H:%M:%S%.3f");
    let key = event.key.as_deref().unwrap_or("no key");
    println!("{}  {}  {}  {key}", dim(&at.to_string()), bold(&event.topic), event.tenant);
    match (&event.payload, &event.unreadable) {
        (Some(payload), _) => println!("    {payload}"),
        (None, Some(why)) => println!("    unreadable: {why}"),
        (None, None) => {
            println!("    {}", dim("payload withheld: no contract says which fields are personal"));
        }
    }
    Ok(())
}
