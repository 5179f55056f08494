//! Commands that are not in this build: they start servers, and bring everything with them that tests need for it.

use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whatever it was told.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _told: Vec<String>,
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    anyhow::bail!(
        "this program was built without benchmarks and torture; build it with --features bench"
    )
}
