//! The command `chapar`: data on stdout, everything else on stderr.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the program that prints")]

// Instead of those of the standard library, which panic on a closed pipe and print control
// characters of data as they are.
macro_rules! print {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}
macro_rules! println {
    () => { $crate::output::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::eprint(format_args!("{}\n", format_args!($($text)*))) };
}

#[cfg(not(feature = "bench"))]
mod absent;
mod audit;
#[cfg(feature = "bench")]
mod bench;
mod catalog;
mod check;
mod config;
mod consumers;
mod dev;
mod dlq;
#[cfg(test)]
mod documented;
mod effects;
mod envelope;
mod find;
mod migrate;
mod outbox;
mod output;
mod profiles;
mod projections;
mod push;
mod relay;
mod sagas;
mod schema;
mod shell;
mod store;
mod tail;
mod topology;
#[cfg(feature = "bench")]
mod torture;
mod trace;
mod transport;
mod up;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// The event backbone for multi-tenant services.
#[derive(Parser)]
#[command(name = "chapar", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// The configuration file [default: chapar.toml, if it exists].
    #[arg(long, global = true, env = "CHAPAR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// The log filter for stderr: error, warn, info, debug, or a filter such as `chapar=debug`.
    #[arg(long, global = true, env = "CHAPAR_LOG", default_value = "warn", value_name = "FILTER")]
    log: String,

    /// Log as JSON, one object per line.
    #[arg(long, global = true, env = "CHAPAR_LOG_JSON")]
    log_json: bool,
}

const EXAMPLES: &str = "\
Examples:
  chapar up                                 the hotel on a SQLite file, with a console in the browser
  chapar up --rate 50 --for 20s --format json
  chapar check                              every policy over every system of the repository
  chapar up --store postgres://localhost/hotel --transport nats://localhost
  chapar envelope show event.json           an event, in any dialect
  chapar migrate status --store postgres://localhost/orders";

#[derive(Subcommand)]
enum Command {
    /// Run the hotel's booking flow, with live traffic and a console.
    Up(up::Args),
    /// Publish committed events to the transport, in a process of its own.
    Relay(relay::Args),
    /// Push events to a service in any language, over signed HTTP.
    Push(push::Args),
    /// Check systems, their contracts and their code against every policy: 0 fine, 1 not, 2 wrong
    /// usage.
    #[command(after_help = check::EXAMPLES)]
    Check(check::Args),
    /// Decode, convert and validate events in any dialect.
    #[command(subcommand)]
    Envelope(envelope::Command),
    /// Check a system's event catalog, and generate topics, grants, documents and types from it.
    #[command(subcommand)]
    Catalog(catalog::Command),
    /// Compare and release the contracts of a system.
    #[command(subcommand)]
    Schema(schema::Command),
    /// Compare a transport with the catalog, and set it up.
    #[command(subcommand)]
    Topology(topology::Command),
    /// Show unpublished, parked and quarantined events, and republish.
    #[command(subcommand)]
    Outbox(outbox::Command),
    /// List, show, seek, pause and resume consumers.
    #[command(subcommand)]
    Consumers(consumers::Command),
    /// List, show, retry and cancel sagas.
    #[command(subcommand)]
    Sagas(sagas::Command),
    /// List calls to the outside, and retry those that are stuck.
    #[command(subcommand)]
    Effects(effects::Command),
    /// List and rebuild read models.
    #[command(subcommand)]
    Projections(projections::Command),
    /// Show everything that one request set in motion, with its times.
    #[command(after_help = trace::EXAMPLES)]
    Trace(trace::Args),
    /// Find an event, correlation, aggregate, idempotency key, saga or dead letter.
    #[command(after_help = find::EXAMPLES)]
    Find(find::Args),
    /// Follow events as they are published, with personal data removed.
    #[command(after_help = tail::EXAMPLES)]
    Tail(tail::Args),
    /// Find, classify, fix, replay and close dead letters.
    #[command(subcommand)]
    Dlq(dlq::Command),
    /// Show the audit log: who did what, when and why.
    #[command(subcommand)]
    Audit(audit::Command),
    /// Apply the migrations of a store.
    #[command(subcommand)]
    Migrate(migrate::Command),
    /// Tools for local development: a receiver of pushed events.
    #[command(subcommand)]
    Dev(dev::Command),
    /// Benchmark Chapar against the same work without it.
    #[cfg(feature = "bench")]
    #[command(subcommand)]
    Bench(bench::Command),
    /// Test the guarantees under faults.
    #[cfg(feature = "bench")]
    Torture(torture::Args),
    /// Benchmark Chapar (only in a program built with --features bench).
    #[cfg(not(feature = "bench"))]
    Bench(absent::Args),
    /// Test the guarantees under faults (only in a program built with --features bench).
    #[cfg(not(feature = "bench"))]
    Torture(absent::Args),
    /// A process of `torture`.
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    TortureWorker(chapar_bench::torture::Worker),
    /// Print a completion script for a shell.
    Completions(shell::Completions),
    /// Write man pages to a folder.
    #[command(hide = true)]
    Man(shell::Man),
    /// Print the configuration in force: defaults, file, environment and the flags of `up`.
    Config(up::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(&cli.log, cli.log_json);
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}: {}", output::red("error"), output::report(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let config = config::Config::load(cli.config.as_deref())?;
    match cli.command {
        Command::Up(args) => up::run(args, config),
        Command::Relay(args) => relay::run(args, config),
        Command::Push(args) => push::run(args, config),
        Command::Dev(command) => dev::run(command),
        Command::Check(args) => check::run(&args),
        Command::Envelope(command) => envelope::run(command),
        Command::Catalog(command) => catalog::run(command),
        Command::Schema(command) => schema::run(command),
        Command::Topology(command) => topology::run(command, config),
        Command::Outbox(command) => outbox::run(command),
        Command::Consumers(command) => consumers::run(command, config),
        Command::Sagas(command) => sagas::run(command),
        Command::Effects(command) => effects::run(command),
        Command::Projections(command) => projections::run(command),
        Command::Trace(args) => trace::run(&args),
        Command::Find(args) => find::run(&args),
        Command::Tail(args) => tail::run(&args, &config),
        Command::Dlq(command) => dlq::run(command),
        Command::Audit(command) => audit::run(command),
        Command::Migrate(command) => migrate::run(command),
        #[cfg(feature = "bench")]
        Command::Bench(command) => bench::run(command),
        #[cfg(feature = "bench")]
        Command::Torture(args) => torture::run(args),
        #[cfg(not(feature = "bench"))]
        Command::Bench(_) | Command::Torture(_) => absent::run(),
        #[cfg(feature = "bench")]
        Command::TortureWorker(worker) => torture::work(worker),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
        Command::Config(args) => config::print(args.over(config)?.0),
    }
}

fn start_logging(filter: &str, json: bool) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|error| {
        eprintln!("--log {filter}: {error}; logging warnings only");
        EnvFilter::new("warn")
    });
    // At trace level the NATS client prints the password that it sends.
    let filter = match "async_nats::connection=info".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    if json { builder.json().flatten_event(true).init() } else { builder.init() }
}
