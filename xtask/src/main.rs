//! Development tasks. `cargo xtask test` runs every test.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool prints")]

mod dist;
mod interrupt;
mod report;
mod screenshot;
mod servers;
mod suites;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own chores", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Obtain the servers that are missing, then run every test.
    Test(test::Options),
    /// Obtain what building every cargo feature takes beside Rust.
    Tools,
    /// List, obtain or start the servers that tests talk to.
    Servers(servers::Options),
    /// Make the archive that is released: program, completions and man pages.
    Dist(dist::Options),
    /// Take the README's picture of the console, in a real browser.
    Screenshot(screenshot::Options),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Test(options) => test::run(&options),
        Chore::Tools => test::obtain_tools().map(|()| ExitCode::SUCCESS),
        Chore::Servers(options) => servers::run(&options),
        Chore::Dist(options) => dist::run(&options),
        Chore::Screenshot(options) => screenshot::run(&options),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// The root of the workspace: the one that `cargo xtask` was called in, since two clones may share a target folder.
fn root() -> PathBuf {
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("..")
}

/// Whether a skipped test or a missing server is an error.
fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chore_in_the_documents_is_one() {
        let mut parsed = 0;
        for page in ["README.md", "CONTRIBUTING.md"] {
            let text = std::fs::read_to_string(root().join(page)).expect("the page is there");
            for line in text.lines().filter(|line| line.starts_with("cargo xtask ")) {
                let words = line.split(" # ").next().unwrap_or_default().split_whitespace().skip(1);
                let chore = Arguments::try_parse_from(words);
                assert!(chore.is_ok(), "{page}: {line}\n{:?}", chore.err());
                parsed += 1;
            }
        }
        assert!(parsed > 7, "only {parsed} chores found");
    }
}
