//! `chapar relay`: runs a relay as a process of its own.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use chapar::{App, BundleSource, Chapar, Producer, Profile, Registry, Store, StoreOptions};
use chapar_core::dialect::Dialect;
use chapar_server::Ops;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, duration};
use crate::transport;
use crate::up::{interrupted, process_name, until_stopped};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The store whose outbox is published: sqlite:FILE or postgres://user@host/database.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL")]
    store: String,

    /// Where events are published: nats://host:port, pubsub://project, or `sql:` for the log in the same
    /// store [default: sql:].
    #[arg(long, env = "CHAPAR_TRANSPORT", hide_env_values = true, value_name = "URL")]
    transport: Option<String>,

    /// The system's profile: a preset (melmastoon, learning, invoicing) or a TOML file.
    #[arg(long, env = "CHAPAR_PROFILE", value_name = "NAME|FILE")]
    profile: String,

    /// The released contracts for events of chapar.emit: a file, https://, gs:// or s3://.
    #[arg(long, env = "CHAPAR_CONTRACTS", value_name = "FILE|URL")]
    contracts: Option<String>,

    /// The address of /healthz, /readyz and /metrics; port 0 picks a free one.
    #[arg(long, env = "CHAPAR_LISTEN", default_value = "127.0.0.1:7071", value_name = "ADDRESS")]
    listen: String,

    /// Topics whose events get an order stamp. With --contracts, topics that need one get it by
    /// themselves, on a transport that does not keep the order across topics.
    #[arg(long, value_name = "TOPIC")]
    stamp: Vec<String>,

    /// How long to wait after SIGTERM for what is in flight.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    drain: Duration,
}

const EXAMPLES: &str = "\
Examples:
  chapar relay --store postgres://relay@db/hotel --profile melmastoon
  chapar relay --store postgres://relay@db/hotel --profile melmastoon --transport nats://nats:4222
  chapar relay --store postgres://relay@db/hotel --profile melmastoon --listen 127.0.0.1:0
  chapar relay --store postgres://relay@db/hotel --profile melmastoon \\
      --contracts https://contracts.example.org/hotel.json

The bearer token for --contracts is read from CHAPAR_CONTRACTS_TOKEN, or from the file named by
CHAPAR_CONTRACTS_TOKEN_FILE.

Several relays share the work; a relay that dies is replaced within five seconds.
Each uses at most 14 connections, for any number of tenants.";

pub(crate) fn run(args: Args, mut config: Config) -> Result<ExitCode> {
    config.relay.transport =
        args.transport.clone().unwrap_or(std::mem::take(&mut config.relay.transport));
    let config = config.check()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(relay(args, config))
}

async fn relay(args: Args, config: Config) -> Result<ExitCode> {
    let interrupted = interrupted();
    let listen: SocketAddr = args.listen.parse().with_context(|| {
        format!("--listen {:?} is not an address such as 127.0.0.1:7071", args.listen)
    })?;
    let (profile, dialect) = system(&args.profile)?;
    let registry = match &args.contracts {
        Some(place) => {
            let source: BundleSource = place.parse().context("--contracts")?;
            Some(Registry::open(source.token_from_env()).await.context("--contracts")?)
        }
        None => None,
    };
    let store = Store::open(&args.store, &StoreOptions::default()).await?;
    store.check_connection().await?;
    store.check_schema().await?;
    store.check_engine_role().await?;
    let owner = process_name("relay");
    let producer = Producer { service: "chapar-relay".into(), ..Producer::default() };
    let url = &config.relay.transport;
    let transport = transport::open(url, &config.nats, &store, &owner, &profile.name).await?;
    let mut builder = Chapar::builder(store.clone(), profile, dialect).producer(producer);
    if let Some(registry) = registry {
        builder = builder.registry(registry);
    }
    let chapar = builder.build();
    let mut running =
        App::new(chapar.clone(), transport, owner.clone()).stamp(args.stamp).start().await?;

    let closing = CancellationToken::new();
    let ops = Ops::new(chapar, running.metrics()).health(running.health());
    let (address, server) = ops.bind(listen, closing.clone()).await?;
    let server = tokio::spawn(server);
    eprintln!("relaying {} as {owner}", store.url());
    eprintln!("  to       {}", transport::shown(url));
    eprintln!("  health   http://{address}/healthz, /readyz, /metrics");

    let ended = until_stopped(&mut running, &interrupted).await;
    eprintln!("stopping: waiting for what is in flight");
    running.stop(args.drain).await;
    closing.cancel();
    let _ = server.await;
    store.close().await;
    ended?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn system(name: &str) -> Result<(Profile, Arc<dyn Dialect>)> {
    let profile = profile(name)?;
    let dialect = profile.dialect().context(
        "a relay for Protobuf events runs inside the service, which has the descriptors",
    )?;
    Ok((profile, dialect))
}

/// Loads a profile by the name of a preset or of a file.
pub(crate) fn profile(name: &str) -> Result<Profile> {
    if let Some(profile) = Profile::builtin(name) {
        return Ok(profile);
    }
    let text = std::fs::read_to_string(name).with_context(|| {
        format!(
            "--profile {name:?} is neither a preset ({}) nor a file",
            Profile::BUILTIN.join(", ")
        )
    })?;
    Profile::from_toml(&text).with_context(|| name.to_owned())
}
