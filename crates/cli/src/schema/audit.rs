//! `chapar schema audit`: a range may be tightened if no real event is outside it.

mod events;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chapar_catalog::{Loaded, Schema};
use chapar_core::dialect::Dialect;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use self::events::Payload;
use crate::config::duration;
use crate::output::{Format, red};
use crate::store;

pub(super) const EXAMPLES: &str = "\
Examples:
  chapar schema audit --system melmastoon --since 30d --store postgres://localhost/orders
  chapar schema audit --system melmastoon --subject melmastoon.reservation.booking.held.v1 \\
      --events archive.jsonl --since 90d
  zcat archive.jsonl.gz | chapar schema audit --system melmastoon --events -

A file holds one event per line, as it is on the wire. Only the counts and a few examples are kept
in memory.";

#[derive(clap::Args)]
pub(crate) struct Audit {
    /// The system: a folder in `systems`.
    #[arg(long, value_name = "NAME")]
    system: String,

    /// The folder that contains `systems`.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    root: PathBuf,

    /// Only events of this subject [default: every subject].
    #[arg(long, value_name = "SUBJECT")]
    subject: Vec<String>,

    /// Skip events older than this.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration)]
    since: Duration,

    /// The store whose log and outbox are read.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL",
        default_value = store::database_url(), hide_default_value = true)]
    store: Option<String>,

    /// A file to read instead, one event per line; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,

    /// The maximum number of examples per subject.
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    examples: usize,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// The result for the events of one subject.
#[derive(Debug, Default, Serialize)]
struct Count {
    checked: u64,
    failed: u64,
    examples: Vec<Example>,
}

/// An event that the schema refuses.
#[derive(Debug, Serialize)]
struct Example {
    event: String,
    pointer: String,
    reason: String,
}

pub(super) fn run(args: &Audit) -> Result<ExitCode> {
    match audited(args) {
        Ok(code) => Ok(code),
        Err(error) => {
            eprintln!("{}: {error:#}", red("error"));
            Ok(ExitCode::from(super::check::USAGE))
        }
    }
}

fn audited(args: &Audit) -> Result<ExitCode> {
    let folder = args.root.join("systems").join(&args.system);
    let loaded = chapar_catalog::load(&folder)?;
    let since = Timestamp::now().checked_sub(args.since).context("--since is too long ago")?;
    let mut tally = Tally::new(args, &loaded, since)?;
    match (&args.events, &args.store) {
        (Some(file), _) => events::of_file(file, &mut tally)?,
        (None, Some(url)) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(events::of_store(url, &mut tally))?;
        }
        (None, None) => anyhow::bail!("give --store or --events"),
    }
    tally.report(args)
}

/// Counts matching and failing events.
struct Tally<'a> {
    schemas: BTreeMap<String, &'a Schema>,
    dialect: Arc<dyn Dialect>,
    since: Timestamp,
    most_examples: usize,
    counts: BTreeMap<String, Count>,
    checked: u64,
    failed: u64,
    progress: Instant,
}

/// The interval of progress messages.
const SAY_EVERY: Duration = Duration::from_secs(2);

impl<'a> Tally<'a> {
    fn new(args: &Audit, loaded: &'a Loaded, since: Timestamp) -> Result<Self> {
        let profile = &loaded.catalog.profile;
        let dialect = profile.dialect().with_context(|| {
            format!(
                "{} speaks Protobuf, and audits read JSON; ship a new version instead",
                profile.name
            )
        })?;
        let mut schemas = BTreeMap::new();
        for subject in &args.subject {
            ensure!(
                loaded.catalog.event(subject).is_some(),
                "--subject {subject}: no such event in {}",
                args.system
            );
        }
        for event in loaded.catalog.events() {
            let subject = event.subject.to_string();
            if !args.subject.is_empty() && !args.subject.contains(&subject) {
                continue;
            }
            let schema = loaded.schemas.get(&subject).with_context(|| {
                format!("{subject} has no usable schema; see `chapar catalog check`")
            })?;
            schemas.insert(subject, schema);
        }
        Ok(Tally {
            schemas,
            dialect,
            since,
            most_examples: args.examples,
            counts: BTreeMap::new(),
            checked: 0,
            failed: 0,
            progress: Instant::now(),
        })
    }

    /// Validates one event.
    fn check(&mut self, subject: &str, event: &str, payload: &Payload) {
        let Some(schema) = self.schemas.get(subject) else { return };
        let refusal = match payload {
            Payload::Json(payload) => schema.first_refusal(payload),
            Payload::Unreadable(why) => Some((String::new(), why.clone())),
        };
        let count = self.counts.entry(subject.to_owned()).or_default();
        count.checked += 1;
        self.checked += 1;
        if let Some((pointer, reason)) = refusal {
            count.failed += 1;
            self.failed += 1;
            if count.examples.len() < self.most_examples {
                let event = event.to_owned();
                count.examples.push(Example { event, pointer, reason: shortened(&reason) });
            }
        }
        // Reading the clock for each event would be most of the work.
        if self.checked.is_multiple_of(256) && self.progress.elapsed() >= SAY_EVERY {
            self.progress = Instant::now();
            eprintln!("{} events checked, {} do not fit", self.checked, self.failed);
        }
    }

    fn report(&self, args: &Audit) -> Result<ExitCode> {
        let text = match args.format {
            Format::Json => {
                let subjects: Vec<Value> = self.counts.iter().map(subject_json).collect();
                let report = json!({
                    "system": args.system,
                    "since": self.since,
                    "checked": self.checked,
                    "failed": self.failed,
                    "subjects": subjects,
                });
                serde_json::to_string_pretty(&report)? + "\n"
            }
            Format::Text => self.counts.iter().map(subject_text).collect(),
        };
        crate::catalog::say(&text)?;
        let (failed, checked) = (self.failed, self.checked);
        eprintln!("{failed} of {checked} events since {:.0} do not fit", self.since);
        if checked == 0 {
            eprintln!("no events found, so nothing is proved: check --store, --events and --since");
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn subject_json((subject, count): (&String, &Count)) -> Value {
    let Count { checked, failed, examples } = count;
    json!({ "subject": subject, "checked": checked, "failed": failed, "examples": examples })
}

fn subject_text((subject, count): (&String, &Count)) -> String {
    let mut text = format!("{subject}: {} of {} do not fit\n", count.failed, count.checked);
    for Example { event, pointer, reason } in &count.examples {
        let pointer = if pointer.is_empty() { "the payload" } else { pointer };
        text += &format!("  {event}  {pointer}: {reason}\n");
    }
    text
}

fn shortened(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
