//! `chapar dlq replay`.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use chapar::ops::{Letters, Operator, Outlook, Progress};
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Select;
use crate::config::duration;
use crate::outbox::{Target, open, operator, told};
use crate::output::Format;
use crate::up::interrupted;

#[derive(Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    select: Select,

    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["dry_run", "resume"])]
    reason: Option<String>,

    /// Only show what would be done.
    #[arg(long)]
    dry_run: bool,

    /// The maximum rate in letters per second [default: unlimited].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,

    /// Resume a replay that was stopped.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["ids", "all", "dry_run"])]
    resume: Option<String>,

    /// Include letters older than the inbox's retention, whose events could be applied a second
    /// time.
    #[arg(long)]
    reapply: bool,

    /// How long to wait without progress of the consumers; 0s requests the replay and does not
    /// wait.
    #[arg(long, value_parser = duration, default_value = "30s", value_name = "TIME")]
    patience: Duration,

    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(args: Replay) -> Result<ExitCode> {
    let stop = interrupted();
    let letters = Letters::of(&open(&args.target).await?);
    let run = match args.resume {
        Some(run) => {
            letters.progress(&run).await?;
            run
        }
        None => {
            let filter = args.select.means()?;
            if args.dry_run {
                return would(&letters.outlook(&filter, args.reapply).await?, args.target.format);
            }
            let actor = operator();
            let by = Operator { name: &actor, reason: told(args.reason.as_deref().unwrap_or(""))? };
            if let [id] = filter.ids.as_slice()
                && !args.reapply
            {
                // For a single letter, report why it may not be replayed.
                letters.may_retry(id).await?;
            }
            let run = format!("{:x}", Timestamp::now().as_microsecond());
            letters.begin_replay(run, &filter, args.reapply, by).await?.id
        }
    };
    let mut bar = Bar::new();
    let progress = drive(&letters, &run, args.rate, args.patience, &stop, &mut bar).await;
    bar.clear();
    let progress = progress?;
    let stopped = stop.is_cancelled();
    match args.target.format {
        Format::Json => {
            let mut said = json!(progress);
            said["run"] = json!(run);
            said["stopped"] = json!(stopped);
            println!("{}", serde_json::to_string_pretty(&said)?);
        }
        Format::Text => {
            let Progress { asked, waiting, applied, failed, .. } = progress;
            eprintln!(
                "{asked} requested: {applied} applied, {failed} failed again, {waiting} waiting"
            );
        }
    }
    if progress.refused > 0 {
        eprintln!(
            "{} not replayed because of their class or age: schema-drift and consumer-bug need a \
             recorded fix (`chapar dlq classify --as CLASS --fix TEXT`), poison is never replayed, \
             and letters older than the inbox's retention need --reapply",
            progress.refused
        );
    }
    if stopped {
        eprintln!("stopped; resume with: chapar dlq replay --resume {run}");
        return Ok(ExitCode::from(130));
    }
    if progress.waiting > 0 && !args.patience.is_zero() {
        bail!(
            "{} letters wait, and no consumer has taken one up for {:?}; start it, or check with \
             `chapar consumers list` whether it is paused. The requests remain",
            progress.waiting,
            args.patience
        );
    }
    let well = progress.failed == 0 && progress.refused == 0;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Requests replays at a rate, and waits for their results.
async fn drive(
    letters: &Letters,
    run: &str,
    rate: Option<u64>,
    patience: Duration,
    stop: &CancellationToken,
    bar: &mut Bar,
) -> Result<Progress> {
    const LOOK: Duration = Duration::from_millis(100);
    // Polling counts the letters of the run: the more there are, the less often.
    let rest = |asked: i64| LOOK + Duration::from_micros(asked.clamp(0, 200_000) as u64 * 10);
    // Ten portions a second, or one letter at a time.
    let portion = rate.map_or(1000, |rate| (rate / 10).clamp(1, 1000));
    let pace = rate.map(|rate| Duration::from_secs_f64(portion as f64 / rate as f64));
    let (mut asking, mut next) = (true, Instant::now());
    let (mut before, mut moved) = (Progress::default(), Instant::now());
    let mut looked: Option<Instant> = None;
    loop {
        if asking && !stop.is_cancelled() && Instant::now() >= next {
            asking = letters.ask(run, portion as usize).await?.1;
            if let Some(pace) = pace {
                next += pace;
            }
        }
        let due = looked.is_none_or(|at| at.elapsed() >= rest(before.asked));
        if due || stop.is_cancelled() {
            looked = Some(Instant::now());
            let progress = letters.progress(run).await?;
            bar.show(&progress);
            if progress != before {
                (before, moved) = (progress, Instant::now());
            }
            let settled = !asking && (progress.waiting == 0 || moved.elapsed() >= patience);
            if settled || stop.is_cancelled() {
                return Ok(progress);
            }
        }
        let ready = asking && Instant::now() >= next;
        if !ready {
            let wait = if asking { LOOK.min(next - Instant::now()) } else { LOOK };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
    }
}

fn would(outlook: &Outlook, format: Format) -> Result<ExitCode> {
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(outlook)?),
        Format::Text => {
            println!("{} of {} letters would be replayed", outlook.replayed, outlook.selected);
            println!("{} events wait behind them", outlook.followers);
            for (count, what) in [
                (outlook.asked, "have a requested replay already"),
                (outlook.poison, "are poison, and never replayed"),
                (outlook.unfixed, "lack the recorded fix that their class requires"),
                (outlook.forgotten, "are older than the inbox's retention; see --reapply"),
            ] {
                if count > 0 {
                    println!("{count} {what}");
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A progress line on a terminal, once it takes longer than two seconds.
struct Bar {
    began: Instant,
    terminal: bool,
}

impl Bar {
    fn new() -> Self {
        Bar { began: Instant::now(), terminal: std::io::stderr().is_terminal() }
    }

    fn show(&self, progress: &Progress) {
        const WIDTH: i64 = 24;
        let seconds = self.began.elapsed().as_secs_f64();
        if !self.terminal || seconds < 2.0 {
            return;
        }
        let Progress { asked, applied, failed, .. } = *progress;
        let done = applied + failed;
        let full = (done * WIDTH / asked.max(1)).clamp(0, WIDTH) as usize;
        let (full, empty) = ("█".repeat(full), "░".repeat(WIDTH as usize - full));
        let rate = done as f64 / seconds;
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[2K{full}{empty} {done} of {asked}, {failed} failed again, {rate:.0} per second"
        );
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}
