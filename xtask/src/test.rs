//! `cargo xtask test`: servers, suites, and a complete summary.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use chapar_testkit::servers::{self, Keeper, Kind, ServerError};
use clap::Args;

use crate::in_ci;
use crate::interrupt::{Foreground, on_signal};
use crate::report::Report;
use crate::suites::{self, Suite};

#[derive(Args)]
pub(crate) struct Options {
    /// Run only the suites whose name contains this; may be repeated.
    #[arg(long, value_name = "NAME")]
    suite: Vec<String>,
    /// Build with optimisations.
    #[arg(long)]
    release: bool,
    /// Use the servers that are there and obtain none.
    #[arg(long)]
    no_obtain: bool,
    /// Passed to every test program, such as a part of a test's name.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Obtains what building every cargo feature takes beside Rust.
pub(crate) fn obtain_tools() -> Result<()> {
    chapar_testkit::servers::build_tools().map_err(anyhow::Error::msg)
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !options.no_obtain {
        obtain_tools()?;
    }
    let keeper = Arc::new(Keeper::open().context("cannot listen for tests")?);
    let foreground = Foreground::default();
    let closing = Arc::clone(&keeper);
    on_signal(&foreground, move || closing.close())?;

    let mut cargo_options = vec!["--workspace", "--all-features"];
    cargo_options.extend(options.release.then_some("--release"));

    // Downloads wait for the network and the build for the CPU: concurrently they take half the
    // time.
    let obtaining = (!options.no_obtain).then(|| std::thread::spawn(obtain));
    let suites = suites::build(&cargo_options, &foreground)?;
    let lacking = match obtaining {
        Some(obtaining) => obtaining.join().unwrap_or_default(),
        None => Vec::new(),
    };
    if in_ci() && !lacking.is_empty() {
        bail!("CI=true, and these servers cannot be had:\n{}", lines(&lacking));
    }

    let mut report = Report::default();
    for suite in suites.iter().filter(|suite| options.wants(&suite.name)) {
        println!("\n== {}", suite.name);
        let outcome = suite.run(&options.arguments, keeper.environment(), &foreground)?;
        report.add(outcome, keeper.take_skips());
    }
    if options.wants("documentation") {
        println!("\n== documentation");
        let outcome = suites::run_doc_tests(
            &cargo_options,
            &options.arguments,
            keeper.environment(),
            &foreground,
        )?;
        report.add(outcome, keeper.take_skips());
    }
    if report.is_empty() {
        let known: Vec<&str> = suites.iter().map(|suite: &Suite| suite.name.as_str()).collect();
        bail!("no suite matches; there are {}, documentation", known.join(", "));
    }
    let used = keeper.used();
    keeper.close();
    print!("{}", report.print(&used, &lacking));
    Ok(if report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Options {
    fn wants(&self, suite: &str) -> bool {
        self.suite.is_empty() || self.suite.iter().any(|part| suite.contains(part.as_str()))
    }
}

fn obtain() -> Vec<ServerError> {
    let lacking = servers::obtain(&Kind::ALL, &|step| eprintln!("   servers: {step}"));
    for error in &lacking {
        eprintln!("   servers: {error}");
    }
    lacking
}

fn lines(errors: &[ServerError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
