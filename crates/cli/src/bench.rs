//! `chapar bench`: benchmarks with interleaved contestants, on this machine.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use chapar_bench::{append, consume, latency, letters, relay, seek, transport, validate};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::output::{Format, red};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Validate a 1 KiB event, compared with a bare call of the JSON Schema validator.
    #[command(after_help = "\
Examples:
  chapar bench validate
  chapar bench validate --turn-ms 1000 --format json")]
    Validate(Validate),
    /// Relay a backlog, compared with the bare client and with the relays of the original systems.
    #[command(after_help = "\
Examples:
  chapar bench relay
  chapar bench relay --events 200000 --rounds 2 --format json
  chapar bench relay --store postgres://localhost/empty --transport nats://localhost")]
    Relay(Relay),
    /// Append in a business transaction, compared with the transaction alone.
    #[command(after_help = "\
Examples:
  chapar bench append
  chapar bench append --turn-ms 1000 --rounds 2 --format json")]
    Append(Database),
    /// Latency from commit to the broker at a steady rate, compared with the transaction itself.
    #[command(after_help = "\
Examples:
  chapar bench latency --rate 2000
  chapar bench latency --rate 500 --turn-ms 5000 --format json")]
    Latency(Latency),
    /// Apply events in a consumer, compared with the same statements written by hand.
    #[command(after_help = "\
Examples:
  chapar bench consume
  chapar bench consume --turn-ms 1000 --rounds 2 --messages 100000 --format json")]
    Consume(Consume),
    /// Publish and read over an adapter, compared with the bare client library.
    #[command(after_help = "\
Examples:
  chapar bench transport
  chapar bench transport --transport nats://localhost --format json
  chapar bench transport --transport kafka://localhost
  chapar bench transport --transport pubsub://        a private emulator (feature pubsub)
  chapar bench transport --bytes 4096 --turn-ms 1000 --rounds 2")]
    Transport(Transport),
    /// Preview a seek over a long log, compared with counting its rows.
    #[command(after_help = "\
Examples:
  chapar bench seek
  chapar bench seek --events 200000 --rounds 3 --format json")]
    Seek(SeekBench),
    /// Query a million dead letters, and replay a hundred thousand of them.
    #[command(after_help = "\
Examples:
  chapar bench letters
  chapar bench letters --letters 100000 --replayed 10000 --format json")]
    Letters(Letters),
}

#[derive(Args)]
pub(crate) struct Letters {
    /// An empty PostgreSQL database [default: a private server].
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// The number of dead letters.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    letters: i64,

    /// The number of letters to replay.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    replayed: i64,

    /// How often each query is run.
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Args)]
pub(crate) struct SeekBench {
    /// The number of events in the log.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(i64).range(1000..=100_000_000))]
    events: i64,

    /// An empty PostgreSQL database [default: a private server].
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// The number of measured rounds.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Args)]
pub(crate) struct Database {
    /// An empty PostgreSQL database [default: a private server].
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// The number of measured rounds.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// How long each contestant runs in each round, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 4000,
        value_parser = clap::value_parser!(u64).range(100..=600_000))]
    turn_ms: u64,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Args)]
pub(crate) struct Consume {
    /// The number of messages over which memory is measured.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    messages: u64,

    #[command(flatten)]
    database: Database,
}

#[derive(Args)]
pub(crate) struct Latency {
    /// Transactions per second.
    #[arg(long, value_name = "N", default_value_t = 2000,
        value_parser = clap::value_parser!(u64).range(16..=100_000))]
    rate: u64,

    /// The length of a round, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 20_000,
        value_parser = clap::value_parser!(u64).range(100..=600_000))]
    turn_ms: u64,

    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
pub(crate) struct Place {
    /// An empty PostgreSQL database [default: a private server].
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// A NATS server [default: a private one].
    #[arg(long, value_name = "URL")]
    transport: Option<String>,

    /// The number of measured rounds.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Args)]
pub(crate) struct Relay {
    /// The number of events in the backlog.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    events: i64,

    /// How long each relay of the original systems runs in each round, in seconds.
    #[arg(long, value_name = "S", default_value_t = 20)]
    naive_seconds: u64,

    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
pub(crate) struct Transport {
    /// The broker: nats://host:port, kafka://host:port or pubsub://project. With an empty host a
    /// private server is started [default: a private NATS server]. Everything created on the broker
    /// is deleted afterwards.
    #[arg(long, value_name = "URL")]
    transport: Option<String>,

    /// The size of a message without its headers, in bytes.
    #[arg(long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u64).range(1..=(512 << 10)))]
    bytes: u64,

    /// The number of measured rounds.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// How long each contestant runs in each round, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 4000,
        value_parser = clap::value_parser!(u64).range(100..=600_000))]
    turn_ms: u64,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
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
        Command::Validate(args) => measure_validate(args),
        Command::Relay(args) => measure_relay(args),
        Command::Letters(args) => measure_letters(args),
        Command::Append(args) => measure_append(args),
        Command::Consume(args) => measure_consume(args),
        Command::Seek(args) => measure_seek(args),
        Command::Latency(args) => measure_latency(args),
        Command::Transport(args) => measure_transport(args),
    }
}

fn measure_validate(args: Validate) -> Result<ExitCode> {
    let turn = Duration::from_millis(args.turn_ms);
    let report = validate::run(melmastoon::CONTRACTS, turn)?;
    print(args.format, &report, || report.table())
}

fn measure_relay(args: Relay) -> Result<ExitCode> {
    let options = relay::Options {
        program: std::env::current_exe()?,
        store: args.place.store,
        transport: args.place.transport,
        events: args.events,
        rounds: args.place.rounds as usize,
        naive: Duration::from_secs(args.naive_seconds),
    };
    let report = relay::run(&options)?;
    print(args.place.format, &report, || report.table())
}

fn measure_letters(args: Letters) -> Result<ExitCode> {
    let options = letters::Options {
        program: std::env::current_exe()?,
        store: args.store,
        letters: args.letters,
        replayed: args.replayed,
        rounds: args.rounds as usize,
    };
    let report = letters::run(&options)?;
    print(args.format, &report, || report.table())
}

fn measure_append(args: Database) -> Result<ExitCode> {
    let options = append::Options {
        store: args.store,
        rounds: args.rounds as usize,
        turn: Duration::from_millis(args.turn_ms),
    };
    let report = append::run(&options)?;
    print(args.format, &report, || report.table())
}

fn measure_consume(Consume { messages, database: args }: Consume) -> Result<ExitCode> {
    let options = consume::Options {
        store: args.store,
        rounds: args.rounds as usize,
        turn: Duration::from_millis(args.turn_ms),
        messages,
    };
    let report = consume::run(&options)?;
    print(args.format, &report, || report.table())
}

fn measure_seek(args: SeekBench) -> Result<ExitCode> {
    let options =
        seek::Options { store: args.store, events: args.events, rounds: args.rounds as usize };
    let report = seek::run(&options)?;
    print(args.format, &report, || report.table())
}

fn measure_latency(args: Latency) -> Result<ExitCode> {
    let options = latency::Options {
        program: std::env::current_exe()?,
        store: args.place.store,
        transport: args.place.transport,
        rate: args.rate,
        rounds: args.place.rounds as usize,
        turn: Duration::from_millis(args.turn_ms),
    };
    let report = latency::run(&options)?;
    print(args.place.format, &report, || report.table())
}

fn measure_transport(args: Transport) -> Result<ExitCode> {
    let options = transport::Options {
        transport: args.transport,
        rounds: args.rounds as usize,
        turn: Duration::from_millis(args.turn_ms),
        bytes: args.bytes as usize,
    };
    let report = transport::run(&options)?;
    print(args.format, &report, || report.table())
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
