//! `chapar torture`: tests the guarantees under faults.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use chapar_bench::torture::{self, Fault, Mutant, Options, Report, Verdict, Worker};

use crate::output::{Format, bold, dim, red};
use crate::up::interrupted;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A PostgreSQL database for this run alone; tables of the schema `rig` in it are dropped
    /// [default: a private server].
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// What carries the events: sql: for the log in the database, nats or kafka for a private
    /// broker, or the address of a NATS server.
    #[arg(long, value_name = "sql:|nats|kafka|URL", default_value = "nats")]
    transport: String,

    /// How many events are written per second, as far as the machine can [default: 2600, and 60
    /// with a wrong relay].
    #[arg(long, value_name = "N")]
    rate: Option<f64>,

    /// How long faults are injected, in seconds; events in flight then may still arrive.
    #[arg(long, default_value_t = 60.0, value_name = "N")]
    seconds: f64,

    /// The seed of the schedule [default: random, and reported].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// The faults: all, none, or a comma-separated list.
    #[arg(long, default_value = "all", value_name = "LIST", value_parser = faults)]
    faults: Faults,

    /// Run a wrong relay instead of ours, or ours on a sabotaged database; the guide lists them.
    #[arg(long, value_name = "NAME")]
    mutant: Option<Mutant>,

    /// Stop as soon as a guarantee is broken for good.
    #[arg(long)]
    until_violation: bool,

    /// Keep the servers of a violated run until Ctrl-C, and print their addresses.
    #[arg(long)]
    hold: bool,

    /// The form of the report.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// A newtype: clap would otherwise expect repeated options for a list.
#[derive(Clone)]
struct Faults(BTreeSet<Fault>);

fn faults(text: &str) -> Result<Faults, String> {
    Fault::list(text).map(Faults)
}

const EXAMPLES: &str = "\
Examples:
  chapar torture --seconds 60 --format json             everything, on private servers
  chapar torture --seconds 30 --faults kill-relay,crash-database --seed 7
  chapar torture --transport sql: --faults kill-backend,operators,deploys
  chapar torture --mutant sequence-cursor --until-violation
                                                        a relay that loses events, and is detected

Faults: kill-relay, kill-consumer, kill-writer, freeze-relay, freeze-consumer, crash-database, quick-crash,
kill-backend, promote-standby, restart-broker, cut-broker, slow-broker, half-open-broker, lost-ack-broker,
cut-database, slow-database, half-open-database, lost-ack-database, foreign-transaction, read-only, isolation,
deploys, operators, long-transactions, rollbacks, lock-order-races, async-commits, large-rows, hostile-rows.

Exits with 0 if every guarantee held and with 1 if one was broken. `kill -9` is a process crash, not a power cut.";

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    if !(args.seconds.is_finite() && (1.0..=86_400.0).contains(&args.seconds)) {
        bail!("--seconds {} makes no sense; use 1 to 86400", args.seconds);
    }
    let slow = args.mutant.is_some_and(Mutant::is_a_relay);
    let rate = args.rate.unwrap_or(if slow { 60.0 } else { 2600.0 });
    if !(rate.is_finite() && (1.0..=1e6).contains(&rate)) {
        bail!("--rate {rate} makes no sense; use 1 to 1000000");
    }
    let options = Options {
        program: std::env::current_exe()?,
        store: args.store,
        transport: args.transport,
        seconds: args.seconds,
        seed: args.seed.unwrap_or_else(seed),
        rate,
        faults: args.faults.0,
        mutant: args.mutant,
        until_violation: args.until_violation,
        hold: args.hold,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let began = Instant::now();
    let say = move |text: &str| {
        eprintln!("{} {text}", dim(&format!("{:6.1} s", began.elapsed().as_secs_f64())));
    };
    say(&format!("seed {}", options.seed));
    let report = runtime.block_on(async { torture::run(&options, interrupted(), &say).await })?;
    match args.format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Format::Text => print_text(&report),
    }
    Ok(match report.verdict {
        Verdict::Held => ExitCode::SUCCESS,
        Verdict::Violated => ExitCode::FAILURE,
        Verdict::Interrupted => ExitCode::from(130),
    })
}

pub(crate) fn work(worker: Worker) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { torture::work(worker, interrupted()).await })?;
    Ok(ExitCode::SUCCESS)
}

/// A random seed that is short enough to type.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::from(now.map_or(1, |now| now.subsec_nanos()) % 1_000_000)
}

fn print_text(report: &Report) {
    let verdict = match report.verdict {
        Verdict::Held => bold("every guarantee held"),
        Verdict::Violated => red("a guarantee was broken"),
        Verdict::Interrupted => bold("interrupted: no result"),
    };
    println!("{verdict} (seed {})", report.seed);
    for (name, count) in [
        ("acknowledged", report.acknowledged),
        ("fate unknown", report.unknown),
        ("forgotten", report.forgotten),
        ("lost", report.lost),
        ("phantom", report.phantom),
        ("applied twice", report.applied_twice),
        ("out of order", report.out_of_order),
        ("unparked followers", report.unparked_followers),
        ("wrongly held", report.wrongly_held),
        ("resurrected", report.resurrected),
        ("parked", report.parked),
    ] {
        println!("  {name:<20} {count:>10}");
    }
    let per_second = report.acknowledged_per_second;
    println!("  {:<20} {per_second:>10.0}", "acknowledged/s");
    println!("  {:<20} {:>10}", "duplicates removed", report.duplicates_removed);
    match report.drained_after {
        Some(seconds) => println!("  {:<20} {seconds:>10.1} s", "all arrived after"),
        None => println!("  {:<20} {:>10}", "all arrived after", "never"),
    }
    println!("faults");
    for (name, toll) in &report.faults {
        let what: Vec<String> =
            toll.interrupted.iter().map(|(what, count)| format!("{count} {what}")).collect();
        println!("  {name:<20} {:>4} times, interrupting {}", toll.fired, what.join(", "));
    }
    for name in &report.left_out {
        println!("  {name:<20} left out: there is no such server, or it is not ours to break");
    }
    for example in &report.examples {
        println!("  {example}");
    }
}
