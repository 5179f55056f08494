//! `cargo xtask servers`: the servers that tests use, for developers.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use chapar_testkit::servers::{self, Keeper, Kind, Listing};
use clap::{Args, Subcommand, ValueEnum};

use crate::interrupt::{Foreground, on_signal};
use crate::report::table;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    /// How to print the list.
    #[arg(long, value_enum, default_value = "table", global = true)]
    format: Format,
}

#[derive(Subcommand)]
enum Action {
    /// Show which servers this machine has (the default).
    List,
    /// Start servers and leave them running until Ctrl-C.
    Start {
        /// Which ones, such as `postgres nats`.
        #[arg(required = true)]
        servers: Vec<Kind>,
    },
    /// Get servers that are missing; without names, all of them.
    Obtain {
        /// Which ones.
        servers: Vec<Kind>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.action {
        None | Some(Action::List) => list(options.format),
        Some(Action::Start { servers }) => start(servers),
        Some(Action::Obtain { servers }) if servers.is_empty() => obtain(&Kind::ALL),
        Some(Action::Obtain { servers }) => obtain(servers),
    }
}

fn list(format: Format) -> Result<ExitCode> {
    let listings = servers::list();
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&listings)?),
        Format::Table => {
            let row = |listing: Listing| {
                let version = listing.version.unwrap_or_else(|| "-".into());
                let place = listing.place.or(listing.missing).unwrap_or_default();
                [listing.server.to_string(), version, listing.variable.to_owned(), place]
            };
            let rows: Vec<_> = listings.into_iter().map(row).collect();
            print!("{}", table(["server", "version", "variable", "place"], &rows));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start(kinds: &[Kind]) -> Result<ExitCode> {
    let keeper = Arc::new(Keeper::open().context("cannot listen for tests")?);
    let closing = Arc::clone(&keeper);
    on_signal(&Foreground::default(), move || closing.close())?;

    let lacking = servers::obtain(kinds, &|step| eprintln!("{step}"));
    if let Some(error) = lacking.first() {
        bail!("{error}");
    }
    for &kind in kinds {
        let server = keeper.server(kind)?;
        println!("export {}={}", kind.variable(), server.url());
        eprintln!("{kind} {} is running", server.version());
    }
    eprintln!("Ctrl-C stops them");
    loop {
        std::thread::park();
    }
}

fn obtain(kinds: &[Kind]) -> Result<ExitCode> {
    let lacking = servers::obtain(kinds, &|step| eprintln!("{step}"));
    for error in &lacking {
        eprintln!("{error}");
    }
    Ok(if lacking.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
