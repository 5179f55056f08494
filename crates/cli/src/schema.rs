//! `chapar schema`: the contracts of events, compared and released.

mod audit;
pub(crate) mod check;
mod diff;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use chapar_core::bundle::Bundle;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Compare two versions of a schema: 0 compatible, 1 breaking or unknown, 2 unusable input.
    #[command(after_help = diff::EXAMPLES)]
    Diff(diff::Diff),
    /// Compare the working tree with the released contracts: 0 fine, 1 breaking or unknown, 2
    /// unusable input.
    #[command(after_help = check::EXAMPLES)]
    Check(check::Check),
    /// Validate real events against the schemas of the working tree: 0 all match, 1 not, 2 unusable
    /// input.
    #[command(after_help = audit::EXAMPLES)]
    Audit(audit::Audit),
    /// Write a system's contracts to a bundle, the file that runtimes load.
    #[command(after_help = "\
Examples:
  chapar schema bundle --system melmastoon --out contracts.json
  chapar schema bundle --system melmastoon --after released.json --out contracts.json
  chapar schema bundle --system melmastoon | sha256sum")]
    Bundle {
        /// The system: a folder in `systems`.
        #[arg(long, value_name = "NAME")]
        system: String,
        /// The folder that contains `systems`.
        #[arg(long, value_name = "FOLDER", default_value = ".")]
        root: PathBuf,
        /// The previously released bundle, whose schemas stay known because their events may be in
        /// transit.
        #[arg(long, value_name = "FILE")]
        after: Option<PathBuf>,
        /// The file to write instead of stdout.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Diff(args) => diff::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Bundle { system, root, after, out } => {
            bundle(&system, &root, after.as_deref(), out.as_deref())
        }
    }
}

fn bundle(system: &str, root: &Path, after: Option<&Path>, out: Option<&Path>) -> Result<ExitCode> {
    let loaded = chapar_catalog::load(&root.join("systems").join(system))?;
    if !loaded.mistakes.is_empty() {
        for mistake in &loaded.mistakes {
            eprintln!("{mistake}");
        }
        eprintln!(
            "a catalog with mistakes cannot be released; see `chapar catalog check --system {system}`"
        );
        return Ok(ExitCode::FAILURE);
    }
    let mut bundle = chapar_catalog::bundle(&loaded);
    if let Some(after) = after {
        let before =
            std::fs::read(after).with_context(|| format!("{} cannot be read", after.display()))?;
        let before: Bundle = serde_json::from_slice(&before)
            .with_context(|| format!("{} is not a bundle", after.display()))?;
        bundle.follow(&before);
    }
    let text = serde_json::to_string_pretty(&bundle)? + "\n";
    match out {
        None => print!("{text}"),
        Some(out) => {
            std::fs::write(out, text)
                .with_context(|| format!("{} cannot be written", out.display()))?;
            eprintln!("{}: {} contracts of {system}", out.display(), bundle.contracts.len());
        }
    }
    Ok(ExitCode::SUCCESS)
}
