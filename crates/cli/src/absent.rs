//! Commands that are not in this build, because they depend on the test servers.

use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Any arguments, ignored.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _told: Vec<String>,
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    anyhow::bail!(
        "this program was built without benchmarks and torture; build it with --features bench"
    )
}
