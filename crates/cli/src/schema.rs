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
    /// Say whether a changed schema still fits: 0 compatible, 1 breaking or unknown, 2 unusable input.
    #[command(after_help = diff::EXAMPLES)]
    Diff(diff::Diff),
    /// Say whether the working tree keeps what was released: 0 fine, 1 breaking or unknown, 2 unusable input.
    #[command(after_help = check::EXAMPLES)]
    Check(check::Check),
    /// Check real events against the schemas of the working tree: 0 all fit, 1 not, 2 unusable input.
    #[command(after_help = audit::EXAMPLES)]
    Audit(audit::Audit),
    /// Put a system's contracts into one file that runtimes load.
    #[command(after_help = "\
Examples:
  chapar schema bundle --system melmastoon --out contracts.json
  chapar schema bundle --system melmastoon --after released.json --out contracts.json
  chapar schema bundle --system melmastoon | sha256sum")]
    Bundle {
        /// The system, a folder below `systems`.
        #[arg(long, value_name = "NAME")]
        system: String,
        /// Where `systems` lies.
        #[arg(long, value_name = "FOLDER", default_value = ".")]
        root: PathBuf,
        /// The bundle released before: events of its schemas are still on the way and stay known.
        #[arg(long, value_name = "FILE")]
        after: Option<PathBuf>,
        /// Where the bundle goes, instead of stdout.
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
            "nothing is released with mistakes; see `chapar catalog check --system {system}`"
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
