//! `chapar bench`: figures, measured side by side on this machine.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use chapar_bench::validate;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::output::{Format, red};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check a 1 KiB event, against the bare call of the JSON Schema validator.
    #[command(after_help = "\
Examples:
  chapar bench validate
  chapar bench validate --turn-ms 1000 --format json")]
    Validate(Validate),
}

#[derive(Args)]
pub(crate) struct Validate {
    /// How long each contestant runs in each of the five rounds, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..=60_000))]
    turn_ms: u64,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    if cfg!(debug_assertions) {
        eprintln!("{}: a debug build; measure with --release", red("warning"));
    }
    match command {
        Command::Validate(args) => {
            let turn = Duration::from_millis(args.turn_ms);
            let report = validate::run(melmastoon::CONTRACTS, turn)?;
            print(args.format, &report, || report.table())
        }
    }
}

fn print<T: Serialize>(
    format: Format,
    report: &T,
    table: impl FnOnce() -> String,
) -> Result<ExitCode> {
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(report)?),
        Format::Text => print!("{}", table()),
    }
    Ok(ExitCode::SUCCESS)
}
