//! `chapar up`: the hotel's booking flow, live, in one process.

mod report;
mod road;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use chapar::ops::Outbox;
use chapar::{App, Chapar, Failure, Metrics, RunError, Running, Store};
use chapar_server::{Console, Facts};
use jiff::Timestamp;
use melmastoon::Generator;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Up, duration};
use crate::output::{Format, bold, dim};
use crate::store;
use crate::transport::{self, IN_THE_STORE, NatsConfig};
use report::Report;
use road::Road;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The SQLite file, created if missing [env: CHAPAR_FILE] [default: chapar.db].
    #[arg(long, value_name = "PATH", conflicts_with = "store")]
    file: Option<PathBuf>,

    /// A store instead of a file: sqlite:FILE or postgres://user@host/database [env: CHAPAR_STORE].
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// The transport: nats://host:port, kafka://host:port, pubsub://project, or `sql:` for the log
    /// in the store [default: sql:].
    #[arg(long, env = "CHAPAR_TRANSPORT", hide_env_values = true, value_name = "URL")]
    transport: Option<String>,

    /// The address of the console; port 0 chooses a free one [default: 127.0.0.1:7070].
    #[arg(long, env = "CHAPAR_LISTEN", value_name = "ADDRESS")]
    listen: Option<String>,

    /// Bookings per second [default: 5].
    #[arg(long, env = "CHAPAR_RATE", value_name = "N", allow_negative_numbers = true)]
    rate: Option<f64>,

    /// Stop after this long, such as 20s or 5m [default: run until Ctrl-C].
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,

    /// The seed of the traffic [default: 1].
    #[arg(long, env = "CHAPAR_SEED", value_name = "N")]
    seed: Option<u64>,

    /// The format of the report at the end.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  chapar up                                          on the file chapar.db, console on 127.0.0.1:7070
  chapar up --rate 50 --for 20s --format json        a short run with a report for programs
  chapar up --store postgres://me@localhost/hotel    the same code on PostgreSQL
  chapar up --transport nats://localhost:4222        events over NATS JetStream
  chapar up --transport kafka://localhost:9092       events over Kafka (feature kafka)
  chapar up --file /tmp/try.db --listen 127.0.0.1:0  a throw-away file and a free port

Started again on the same file, it continues where it stopped. Ctrl-C stops it cleanly.";

/// How long the last events may take to arrive after the traffic stops.
const DRAIN: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(10);

impl Args {
    /// Applies flags and environment over the file.
    pub(crate) fn over(self, mut config: Config) -> Result<(Config, Option<Duration>, Format)> {
        let up = &mut config.up;
        match (self.file, self.store) {
            (None, None) => place_from_env(up),
            (Some(file), _) => (up.file, up.store) = (file, None),
            (None, store) => up.store = store,
        }
        up.transport = self.transport.unwrap_or(std::mem::take(&mut up.transport));
        up.listen = self.listen.unwrap_or(std::mem::take(&mut up.listen));
        up.rate = self.rate.unwrap_or(up.rate);
        up.seed = self.seed.unwrap_or(up.seed);
        Ok((config.check()?, self.time, self.format))
    }
}

/// Read here and not by clap, which would take an exported `CHAPAR_STORE` for a conflict with the
/// flag `--file`.
fn place_from_env(up: &mut Up) {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(store) = set("CHAPAR_STORE").and_then(|store| store.into_string().ok()) {
        up.store = Some(store);
    } else if let Some(file) = set("CHAPAR_FILE") {
        (up.file, up.store) = (file.into(), None);
    }
}

pub(crate) fn run(args: Args, config: Config) -> Result<ExitCode> {
    let (config, time, format) = args.over(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(up(config, time, format))
}

async fn up(config: Config, time: Option<Duration>, format: Format) -> Result<ExitCode> {
    let interrupted = interrupted();
    let Config { up: config, nats, .. } = config;
    let listen: SocketAddr = config.listen.parse().with_context(|| {
        format!("--listen {:?} is not an address such as 127.0.0.1:7070", config.listen)
    })?;
    let (url, _alone) = place(&config)?;
    let store = store::open_or_create(&url).await?;
    store.migrate().await?;
    melmastoon::migrate(&store).await?;

    let hotel = melmastoon::Config {
        allocation_deadline: Duration::from_secs_f64(config.allocation_deadline_seconds),
        ..melmastoon::Config::default()
    };
    let chapar = melmastoon::backbone(store.clone());
    let (mut running, road) = start(&chapar, &hotel, &config, &nats, is_sqlite(&url)).await?;
    let metrics = running.metrics();

    let facts = Facts {
        running: "the hotel's booking flow".into(),
        transport: match &road {
            Road::Store => "sql: in the store, no broker".into(),
            Road::Broker(_) => transport::shown(&config.transport),
        },
        started_at: Timestamp::now(),
    };
    let console = Console::new(chapar.clone(), metrics.clone(), facts).bind(listen).await?;
    let address = console.address();
    let closing = CancellationToken::new();
    let console = tokio::spawn(console.serve(closing.clone()));
    announce(&store, address, &config, time);

    let started = Instant::now();
    let quiet = CancellationToken::new();
    let generator = Generator::new(&chapar, &hotel, config.seed);
    let tally = generator.tally();
    let traffic = tokio::spawn(traffic(generator, config.rate, quiet.clone()));
    let watch = tokio::spawn(watch(chapar.clone(), metrics.clone(), time, quiet.clone()));

    let ended = tokio::select! {
        ended = until_stopped(&mut running, &interrupted) => ended,
        () = sleep_or_for_ever(time) => Ok(()),
    };
    quiet.cancel();
    if let Err(failure) = traffic.await.context("the traffic generator panicked")? {
        bail!("the traffic generator failed: {failure}");
    }
    let seconds = started.elapsed().as_secs_f64();
    let lag = watch.await.unwrap_or_default();
    if ended.is_ok() {
        say("stopping: waiting for the last events");
        settle(&store, &road, &interrupted).await;
    }
    running.stop(STOP).await;
    closing.cancel();
    let _ = console.await;

    let report = Report::of(&store, &road, &metrics, &tally, seconds, lag).await?;
    report.print(format)?;
    store.close().await;
    ended?;
    Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts the hotel on its transport.
async fn start(
    chapar: &Chapar,
    hotel: &melmastoon::Config,
    config: &Up,
    nats: &NatsConfig,
    in_a_file: bool,
) -> Result<(Running, Road)> {
    // A file has one owner at a time, by the lock; a server may have several.
    let owner = match in_a_file {
        true => "up".to_owned(),
        false => process_name("up"),
    };
    let (carrier, system) = (&config.transport, &chapar.profile().name);
    let transport = match carrier.as_str() {
        IN_THE_STORE => transport::open(carrier, nats, chapar.store(), &owner, system).await?,
        // A broker outlives this process: after a kill and a restart it must see another owner.
        _ => transport::open(carrier, nats, chapar.store(), &process_name("up"), system).await?,
    };
    let mut app = melmastoon::app(App::new(chapar.clone(), transport, owner), hotel);
    if carrier != IN_THE_STORE {
        app = app.copy_dead_letters();
    }
    let road = Road::of(carrier, &app);
    let running = app.start().await.context("the subscriptions cannot be set up")?;
    Ok((running, road))
}

fn is_sqlite(url: &str) -> bool {
    url.starts_with("sqlite:")
}

/// The store's URL, and the lock that prevents a second `up` on the same file.
fn place(config: &Up) -> Result<(String, Option<File>)> {
    let url = match &config.store {
        Some(url) => url.clone(),
        None => format!("sqlite:{}", config.file.display()),
    };
    let file = match url.strip_prefix("sqlite:") {
        Some(":memory:") | None => return Ok((url, None)),
        Some(file) => file.trim_start_matches("//").split('?').next().unwrap_or(file).to_owned(),
    };
    let lock = format!("{file}.lock");
    let handle = File::options().create(true).truncate(false).write(true).open(&lock);
    let handle = handle.with_context(|| {
        let folder = Path::new(&file).parent().filter(|p| !p.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        format!("{file} cannot be used; check that {} exists and may be written", folder.display())
    })?;
    if handle.try_lock().is_err() {
        bail!("another `chapar up` is running on {file}; stop it, or choose another with --file");
    }
    Ok((url, Some(handle)))
}

/// Cancelled by the first Ctrl-C or SIGTERM; the second ends the process at once.
pub(crate) fn interrupted() -> CancellationToken {
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        signal().await;
        cancel.cancel();
        signal().await;
        eprintln!("stopped at once; unfinished work is repeated at the next start");
        std::process::exit(130);
    });
    token
}

/// Waits for Ctrl-C, or for a part of the process that fails for good, which is an error.
pub(crate) async fn until_stopped(
    running: &mut Running,
    interrupted: &CancellationToken,
) -> Result<(), RunError> {
    tokio::select! {
        () = interrupted.cancelled() => return Ok(()),
        ended = running.wait() => ended?,
    }
    // Every part has stopped by its failure policy: /readyz says so until an operator acts.
    interrupted.cancelled().await;
    Ok(())
}

async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

async fn traffic(generator: Generator, rate: f64, quiet: CancellationToken) -> Result<(), Failure> {
    if rate > 0.0 {
        return generator.run(rate, quiet).await;
    }
    quiet.cancelled().await;
    Ok(())
}

/// A process name that is unique, also after a restart.
pub(crate) fn process_name(role: &str) -> String {
    format!("{role}-{}-{}", std::process::id(), Timestamp::now().as_nanosecond())
}

async fn sleep_or_for_ever(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// The first screen: what runs, where to look, and what to try.
fn announce(store: &Store, address: SocketAddr, config: &Up, time: Option<Duration>) {
    let until = time.map_or("until Ctrl-C".to_owned(), |time| format!("for {time:?}"));
    let (rate, events) = (config.rate, transport::shown(&config.transport));
    let what = format!("the hotel runs: nine services, {rate} bookings per second, {until}");
    say(&format!("{} {what}", bold("chapar")));
    say(&format!("  console  {}", bold(&format!("http://{address}"))));
    say(&format!("  store    {}, events over {events}", store.url()));
    say(
        "  try      open the console and retry the dead letter: a guest's language has no template",
    );
    say("  try      kill -9 this process and start it again: nothing is lost or applied twice");
}

fn say(text: &str) {
    eprintln!("{text}");
}

/// Waits until nothing is in flight any more, with a limit.
async fn settle(store: &Store, road: &Road, interrupted: &CancellationToken) {
    let hurried = interrupted.is_cancelled();
    let limit = if hurried { STOP } else { DRAIN };
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        match road.under_way(store).await {
            Ok(0) => return,
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Shows a line of figures while it runs; returns the longest outbox lag, in seconds.
async fn watch(
    chapar: Chapar,
    metrics: Metrics,
    time: Option<Duration>,
    quiet: CancellationToken,
) -> f64 {
    let terminal = std::io::stderr().is_terminal();
    let started = Instant::now();
    let (mut longest, mut before) = (0.0f64, 0);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.tick().await;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = quiet.cancelled() => break,
        }
        let Ok(lag) = Outbox::of(chapar.store()).lag().await else { continue };
        longest = longest.max(lag.seconds);
        let published = metrics.published();
        if terminal {
            let left = time.map(|time| time.saturating_sub(started.elapsed()).as_secs());
            let left = left.map_or(String::new(), |s| format!(", {s} s left"));
            let line = format!(
                "{:>6} events/s, {} published, {} applied, lag {:.2} s{left}",
                published - before,
                published,
                metrics.applied(),
                lag.seconds
            );
            eprint!("\r\x1b[2K{}", dim(&line));
            let _ = std::io::stderr().flush();
        }
        before = published;
    }
    if terminal {
        eprint!("\r\x1b[2K");
    }
    longest
}
