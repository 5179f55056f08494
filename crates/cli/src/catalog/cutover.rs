//! `chapar catalog cutover`: consumers of an old version, and its retirement.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};
use chapar::Store;
use chapar::ops::{Departure, Operator, Versions};
use chapar_catalog::Loaded;
use chapar_catalog::cutover::{Cutover, Reader, Seen, cutovers};
use clap::builder::NonEmptyStringValueParser;
use jiff::Timestamp;
use serde_json::json;

use super::{Where, show};
use crate::output::Format;
use crate::store;

pub(super) const EXAMPLES: &str = "\
Examples:
  chapar catalog cutover --system melmastoon
  chapar catalog cutover --system melmastoon --store postgres://localhost/orders --by 'A. Lead'
  chapar catalog cutover --system melmastoon --store postgres://localhost/orders --by 'A. Lead' \\
      --retire melmastoon.reservation.booking.held.v1";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: Where,

    /// The store that records active subscriptions, and has the audit log.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL",
        default_value = store::database_url(), hide_default_value = true)]
    store: Option<String>,

    /// The operator who records cutovers or retires a version; for the audit log.
    #[arg(long, value_name = "NAME", requires = "store",
        value_parser = NonEmptyStringValueParser::new())]
    by: Option<String>,

    /// The reason, for the audit log.
    #[arg(
        long,
        value_name = "TEXT",
        requires = "by",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,

    /// Retire this version; refused while a consumer reads it.
    #[arg(long, value_name = "SUBJECT", requires = "by")]
    retire: Option<String>,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let loaded = match super::flawless(&args.at) {
        Ok(loaded) => loaded,
        Err(code) => return Ok(code),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(cut_over(args, &loaded)) {
        Ok(code) => Ok(code),
        // A store that cannot be read counts as a refusal.
        Err(error) => Ok(super::usage(&format!("{error:#}"))),
    }
}

async fn cut_over(args: &Args, loaded: &Loaded) -> Result<ExitCode> {
    let store = match &args.store {
        Some(url) => Some(store::open(url).await?),
        None => None,
    };
    let seen = match &store {
        Some(store) => Some(seen(store, loaded).await?),
        None => None,
    };
    let found = cutovers(loaded, seen.as_ref(), Timestamp::now());
    let by = args.by.as_deref().map(|name| Operator { name, reason: args.reason.trim() });
    let code = match (&args.retire, by, &store) {
        (Some(subject), Some(by), Some(store)) => retire(args, store, &found, subject, by).await?,
        (None, by, store) => {
            say(args, &found)?;
            if let (Some(by), Some(store)) = (by, store) {
                record(store, &found, by).await?;
            }
            ExitCode::SUCCESS
        }
        // clap enforces that the options come together.
        _ => super::usage("--retire needs --by and --store"),
    };
    if let Some(store) = store {
        store.close().await;
    }
    Ok(code)
}

async fn seen(store: &Store, loaded: &Loaded) -> Result<Seen> {
    store.check_schema().await?;
    let deprecated = loaded.catalog.events().filter(|event| event.deprecated.is_some());
    let subjects: Vec<String> = deprecated.map(|event| event.subject.to_string()).collect();
    let mut seen = BTreeMap::new();
    for (subject, readers) in Versions::of(store).readers(&subjects).await? {
        let readers = readers.into_iter().map(|reader| Reader {
            subscription: reader.subscription,
            service: reader.service,
            last_seen: reader.last_seen,
        });
        seen.insert(subject, readers.collect());
    }
    Ok(seen)
}

/// Each consumer that has cut over gets one entry in the audit log.
async fn record(store: &Store, found: &[Cutover], by: Operator<'_>) -> Result<()> {
    let departures = found.iter().flat_map(|cutover| {
        let left = cutover.consumers.iter().filter(|stand| stand.cut_over());
        left.map(|stand| Departure {
            subject: cutover.subject.clone(),
            replaced_by: cutover.replaced_by.clone(),
            service: stand.service.clone(),
        })
    });
    let recorded = Versions::of(store).record_cutovers(departures.collect(), by).await;
    for Departure { subject, service, .. } in recorded.context("the cutover was not recorded")? {
        eprintln!("recorded: {service} has left {subject}");
    }
    Ok(())
}

async fn retire(
    args: &Args,
    store: &Store,
    found: &[Cutover],
    subject: &str,
    by: Operator<'_>,
) -> Result<ExitCode> {
    let cutover = found.iter().find(|cutover| cutover.subject == subject);
    let cutover = cutover.with_context(|| {
        format!("{subject} is not deprecated in the catalog, so it cannot be retired")
    })?;
    say(args, std::slice::from_ref(cutover))?;
    if !cutover.blockers.is_empty() {
        eprintln!("{}", show::error(&format!("{subject} is not retired")));
        return Ok(ExitCode::FAILURE);
    }
    let detail = json!({ "replacedBy": cutover.replaced_by, "until": cutover.until });
    let retired = Versions::of(store).retire(subject, &detail, by).await;
    retired.context("the retirement could not be recorded, so it was not done")?;
    eprintln!("{subject} is retired, and the audit log records it. Remaining steps:");
    for (number, step) in [
        format!("remove {subject} and its schema from the catalog"),
        format!("remove dual_publish from {}", cutover.replaced_by),
        "release the contracts, and delete the topic at the broker".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        eprintln!("  {}. {step}", number + 1);
    }
    Ok(ExitCode::SUCCESS)
}

fn say(args: &Args, found: &[Cutover]) -> Result<()> {
    let text = match args.format {
        Format::Json => serde_json::to_string_pretty(found)? + "\n",
        Format::Text if found.is_empty() => {
            eprintln!("no version is deprecated");
            String::new()
        }
        Format::Text => found.iter().map(table).collect::<Vec<_>>().join("\n"),
    };
    super::say(&text)
}

fn table(cutover: &Cutover) -> String {
    let Cutover { subject, replaced_by, since, until, .. } = cutover;
    let mut text = format!("{subject} → {replaced_by}, both from {since} to {until}\n");
    let lines = cutover.consumers.iter().map(|stand| {
        let reads = match (stand.reads_old, stand.reads_new) {
            (true, true) => "both",
            (true, false) => "old",
            _ => "new",
        };
        let last = cutover.readers.iter().filter(|reader| reader.service == stand.service);
        let last = last.map(|reader| reader.last_seen).max();
        let last = last.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"));
        let gone = if stand.cut_over() { "yes" } else { "no" };
        vec![stand.service.clone(), reads.to_owned(), last, gone.to_owned()]
    });
    text += &show::table(["CONSUMER", "READS", "LAST SEEN ON OLD", "CUT OVER"], lines);
    if cutover.blockers.is_empty() {
        text += &format!("{subject} may be retired\n");
    }
    for blocker in &cutover.blockers {
        text += &format!("cannot be retired: {blocker}\n");
    }
    text
}
