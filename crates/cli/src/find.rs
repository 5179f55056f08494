//! `chapar find`: looks up any id.

use std::process::ExitCode;

use anyhow::Result;
use chapar::ops::find;

use crate::output::{Format, bold, dim};
use crate::trace::Stores;

pub(crate) const EXAMPLES: &str = "\
Examples:
  chapar find R-1234 --store postgres://localhost/hotel
  chapar find 'R-1234:held' --store sqlite:hotel.db --format json

It looks for an event id, a correlation id, an aggregate id, an idempotency key, the key of a saga
and the id of a dead letter. Exit code 1: nothing found.";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The id or key to look for.
    wanted: String,

    #[command(flatten)]
    stores: Stores,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut found = Vec::new();
        for store in args.stores.open().await? {
            found.extend(find(&store, &args.wanted).await?);
        }
        match args.stores.format {
            Format::Json => println!("{}", serde_json::to_string_pretty(&found)?),
            Format::Text => {
                for finding in &found {
                    println!("{}  {}", bold(finding.found_as), finding.what);
                    let at = finding.at.map(|at| at.to_string()).unwrap_or_default();
                    println!("    {}", dim(&format!("{}, {at}; {}", finding.tenant, finding.next)));
                }
                if found.is_empty() {
                    eprintln!("nothing found for {}", args.wanted);
                }
            }
        }
        Ok(if found.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    })
}
