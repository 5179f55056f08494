//! `chapar push`: pushes events to a service in any language, over HTTP.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use chapar::ops::{Outbox, OutboxStatus};
use chapar::{App, BundleSource, Chapar, Consumer, Endpoint, Producer, Registry, Service, Store};
use chapar_core::machine::failure::FailurePolicy;
use chapar_core::webhook::Secrets;
use chapar_server::Ops;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, duration};
use crate::output::red;
use crate::relay::system;
use crate::store;
use crate::transport::{self, IN_THE_STORE};
use crate::up::{interrupted, process_name, until_stopped};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The store of inbox and dead letters: sqlite:FILE or postgres://user@host/database.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL",
        default_value = store::database_url(), hide_default_value = true,
        required = store::is_required())]
    store: String,

    /// The transport: nats://host:port, kafka://host:port, pubsub://project, or `sql:` for the log
    /// in the same store [default: sql:].
    #[arg(long, env = "CHAPAR_TRANSPORT", hide_env_values = true, value_name = "URL")]
    transport: Option<String>,

    /// The system's profile: melmastoon, learning, invoicing, or a TOML file.
    #[arg(long, env = "CHAPAR_PROFILE", value_name = "NAME|FILE")]
    profile: String,

    /// The released contracts that events must match: a file, https://, gs:// or s3://.
    #[arg(long, env = "CHAPAR_CONTRACTS", value_name = "FILE|URL")]
    contracts: Option<String>,

    /// The consumer's name, such as billing-service.bookings; the part before the first dot is the
    /// service.
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,

    /// A topic to push; can be repeated.
    #[arg(long, value_name = "TOPIC")]
    topic: Vec<String>,

    /// The service: http://host:port or https://host, optionally with a path prefix.
    #[arg(long, env = "CHAPAR_PUSH_TO", value_name = "URL")]
    to: Option<String>,

    /// The file with the secret shared with the service; during a rotation both, one per line.
    #[arg(long, env = "CHAPAR_PUSH_SECRET_FILE", value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// The maximum number of concurrent calls, each for another key [default: 16].
    #[arg(long, value_name = "N")]
    calls: Option<usize>,

    /// The maximum number of attempts per event, including the first [default: 7].
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,

    /// The shortest pause between attempts; it doubles each time [default: 10s].
    #[arg(long, value_parser = duration, value_name = "TIME")]
    min_backoff: Option<Duration>,

    /// The longest pause between attempts [default: 10m].
    #[arg(long, value_parser = duration, value_name = "TIME")]
    max_backoff: Option<Duration>,

    /// The timeout of a call [default: 30s].
    #[arg(long, value_parser = duration, value_name = "TIME")]
    timeout: Option<Duration>,

    /// The failure policy for an event that failed for good [default: park-key].
    #[arg(long, value_enum, value_name = "POLICY")]
    on_failure: Option<OnFailure>,

    /// Push events without keeping the order of keys.
    #[arg(long)]
    unordered: bool,

    /// A further header of the events to send along; can be repeated. Always sent are content-type,
    /// traceparent, tracestate, ce-* and chapar-*.
    #[arg(long, value_name = "NAME")]
    forward_header: Vec<String>,

    /// The address of /healthz, /readyz and /metrics; port 0 chooses a free one.
    #[arg(long, env = "CHAPAR_LISTEN", default_value = "127.0.0.1:7072", value_name = "ADDRESS")]
    listen: String,

    /// The time for running calls to finish after SIGTERM.
    #[arg(long, default_value = "35s", value_parser = duration, value_name = "TIME")]
    drain: Duration,
}

const EXAMPLES: &str = "\
Examples:
  chapar push --store postgres://push@db/hotel --profile melmastoon \\
      --subscription billing-service.bookings --topic melmastoon.reservation.booking.confirmed.v1 \\
      --to http://billing:8080 --secret-file billing.secret
  chapar push --store sqlite:push.db --transport nats://nats:4222 --profile melmastoon \\
      --config billing.toml

Each event is a POST to <URL>/internal/events/<topic without the system's name>, signed according to
Standard Webhooks. 2xx: applied. 400, 410, 413, 415 and 422: a dead letter at once. Anything else:
retried, and then a dead letter. `chapar dev receive` is a receiver for trying it.

Make a secret with: (umask 077; echo whsec_$(openssl rand -base64 32) > billing.secret)

Several processes of one subscription share its keys. It reads what a relay has published: run
`chapar relay`, or a service with a relay, beside it.";

/// The names of the failure policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnFailure {
    /// A dead letter; later events of its key are parked.
    ParkKey,
    /// A dead letter; its key goes on.
    SkipToDlq,
    /// A dead letter; its key goes on and is flagged.
    PassAndFlag,
    /// The subscription stops.
    Stop,
}

/// `[push]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Push {
    /// The transport.
    pub(crate) transport: String,
    /// The consumer's name.
    subscription: String,
    /// The topics.
    topics: Vec<String>,
    /// The service.
    pub(crate) to: String,
    /// The file with its secret.
    secret_file: PathBuf,
    /// The maximum number of concurrent calls.
    calls: usize,
    /// Attempts per event.
    attempts: u32,
    /// The shortest pause.
    min_backoff_seconds: f64,
    /// The longest pause.
    max_backoff_seconds: f64,
    /// The timeout of a call.
    timeout_seconds: f64,
    /// The failure policy.
    on_failure: Option<OnFailure>,
    /// Whether events are pushed without keeping the order of keys.
    unordered: bool,
    /// Further headers of the events to send along.
    forward_headers: Vec<String>,
}

impl Default for Push {
    fn default() -> Self {
        Push {
            transport: IN_THE_STORE.into(),
            subscription: String::new(),
            topics: Vec::new(),
            to: String::new(),
            secret_file: PathBuf::new(),
            calls: 16,
            attempts: 7,
            min_backoff_seconds: 10.0,
            max_backoff_seconds: 600.0,
            timeout_seconds: 30.0,
            on_failure: None,
            unordered: false,
            forward_headers: Vec::new(),
        }
    }
}

impl Push {
    /// Flags override the file.
    fn under(mut self, args: &Args) -> Self {
        fn over<T>(place: &mut T, flag: Option<T>) {
            if let Some(flag) = flag {
                *place = flag;
            }
        }
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        over(&mut self.transport, args.transport.clone());
        over(&mut self.subscription, args.subscription.clone());
        over(&mut self.topics, Some(args.topic.clone()).filter(|topics| !topics.is_empty()));
        over(&mut self.to, args.to.clone());
        over(&mut self.secret_file, args.secret_file.clone());
        over(&mut self.calls, args.calls);
        over(&mut self.attempts, args.attempts);
        over(&mut self.min_backoff_seconds, seconds(args.min_backoff));
        over(&mut self.max_backoff_seconds, seconds(args.max_backoff));
        over(&mut self.timeout_seconds, seconds(args.timeout));
        over(&mut self.on_failure, args.on_failure.map(Some));
        self.unordered |= args.unordered;
        self.forward_headers.extend(args.forward_header.iter().cloned());
        self
    }

    /// Refuses invalid values; missing ones are reported by the command that needs them.
    pub(crate) fn check(&self) -> Result<()> {
        transport::check(&self.transport)?;
        for (name, value) in [
            ("min_backoff", self.min_backoff_seconds),
            ("max_backoff", self.max_backoff_seconds),
            ("timeout", self.timeout_seconds),
        ] {
            if !(value.is_finite() && value > 0.0 && value <= 86_400.0) {
                bail!("a {name} of {value} s makes no sense; use more than 0 s and at most a day");
            }
        }
        if self.min_backoff_seconds > self.max_backoff_seconds {
            bail!(
                "the shortest pause is longer than the longest; change min_backoff or max_backoff"
            );
        }
        if !(1..=256).contains(&self.calls) {
            bail!("{} calls at once make no sense; use 1 to 256", self.calls);
        }
        if self.attempts == 0 {
            bail!("an event needs one attempt at least");
        }
        Ok(())
    }

    fn missing(&self) -> Result<()> {
        for (missing, flag, field) in [
            (self.subscription.is_empty(), "--subscription NAME", "subscription"),
            (self.topics.is_empty(), "--topic TOPIC", "topics"),
            (self.to.is_empty(), "--to URL", "to"),
            (self.secret_file.as_os_str().is_empty(), "--secret-file FILE", "secret_file"),
        ] {
            if missing {
                bail!("give {flag}, or `{field}` under [push] in the configuration");
            }
        }
        Ok(())
    }

    fn consumer(&self, endpoint: &Endpoint) -> Consumer {
        let seconds = Duration::from_secs_f64;
        let mut consumer = Consumer::named(&self.subscription)
            .push(self.topics.iter().cloned(), endpoint)
            .lanes(self.calls)
            .retry(self.attempts)
            .backoff(seconds(self.min_backoff_seconds), seconds(self.max_backoff_seconds))
            .timeout(seconds(self.timeout_seconds));
        if self.unordered {
            consumer = consumer.unordered();
        }
        match self.on_failure {
            None => consumer,
            Some(policy) => consumer.on_failure(match policy {
                OnFailure::ParkKey => FailurePolicy::ParkKey,
                OnFailure::SkipToDlq => FailurePolicy::SkipToDlq,
                OnFailure::PassAndFlag => FailurePolicy::PassAndFlag,
                OnFailure::Stop => FailurePolicy::Stop,
            }),
        }
    }
}

pub(crate) fn run(args: Args, mut config: Config) -> Result<ExitCode> {
    config.push = config.push.under(&args);
    let config = config.check()?;
    config.push.missing()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(push(args, config))
}

/// The secrets in a file.
pub(crate) fn secrets(file: &Path) -> Result<Secrets> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("--secret-file {} cannot be read", file.display()))?;
    // A pipe or a mounted secret may have any mode; what matters is who can read a plain file.
    let others = fs::metadata(file).is_ok_and(|meta| {
        meta.is_file() && std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o077 != 0
    });
    if others {
        let file = file.display();
        eprintln!("{}", red(&format!("{file} can be read by others; run: chmod 600 {file}")));
    }
    text.parse().with_context(|| format!("--secret-file {}", file.display()))
}

/// Says so if no process publishes the outbox of this store: `push` itself does not.
async fn warn_without_relay(store: &Store, transport: &str) -> Result<()> {
    let OutboxStatus { lag, relays, .. } = Outbox::of(store).status().await?;
    let waiting = lag.waiting;
    if relays.is_empty() && (waiting > 0 || transport == IN_THE_STORE) {
        let said =
            format!("no relay is running on this store; {waiting} events wait in its outbox");
        eprintln!("  {}; push does not publish, start `chapar relay`", red(&said));
    }
    Ok(())
}

async fn push(args: Args, config: Config) -> Result<ExitCode> {
    let interrupted = interrupted();
    let settings = &config.push;
    let listen: SocketAddr = args.listen.parse().with_context(|| {
        format!("--listen {:?} is not an address such as 127.0.0.1:7072", args.listen)
    })?;
    let endpoint = Endpoint::new(&settings.to, secrets(&settings.secret_file)?).context("--to")?;
    let endpoint = endpoint.forward(&settings.forward_headers).context("--forward-header")?;
    let (profile, dialect) = system(&args.profile)?;
    for topic in &settings.topics {
        profile.subject(topic).with_context(|| format!("--topic {topic}"))?;
    }
    let store = store::open(&args.store).await?;
    store.check_schema().await?;
    store.check_engine_role().await?;
    let owner = process_name("push");
    let url = &settings.transport;
    let transport = transport::open(url, &config.nats, &store, &owner, &profile.name).await?;
    let producer = Producer { service: "chapar-push".into(), ..Producer::default() };
    let mut builder = Chapar::builder(store.clone(), profile, dialect).producer(producer);
    if let Some(place) = &args.contracts {
        let source: BundleSource = place.parse().context("--contracts")?;
        builder =
            builder.registry(Registry::open(source.token_from_env()).await.context("--contracts")?);
    }
    let chapar = builder.build();
    let name = &settings.subscription;
    let service = name.split('.').next().unwrap_or(name);
    let mut running = App::new(chapar.clone(), transport, owner)
        .without_relay()
        .service(Service::new(service).consumer(settings.consumer(&endpoint)))
        .start()
        .await?;

    let closing = CancellationToken::new();
    let ops = Ops::new(chapar.clone(), running.metrics()).health(running.health());
    let (address, server) = ops.bind(listen, closing.clone()).await?;
    let server = tokio::spawn(server);
    eprintln!("pushing {} from {}", name, transport::shown(url));
    for topic in &settings.topics {
        eprintln!("  to       {}", endpoint.address(chapar.profile(), topic));
    }
    eprintln!("  health   http://{address}/healthz, /readyz, /metrics");
    warn_without_relay(&store, url).await?;

    let ended = until_stopped(&mut running, &interrupted).await;
    eprintln!("stopping: finishing what is under way");
    running.stop(args.drain).await;
    closing.cancel();
    let _ = server.await;
    store.close().await;
    ended?;
    Ok(ExitCode::SUCCESS)
}
