//! `chapar relay`: runs a relay as a process of its own.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use chapar::{App, BundleSource, Chapar, Producer, Profile, Registry};
use chapar_core::dialect::Dialect;
use chapar_server::Ops;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, duration};
use crate::profiles;
use crate::store;
use crate::transport;
use crate::up::{interrupted, process_name, until_stopped};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The store whose outbox is published: sqlite:FILE or postgres://user@host/database.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL",
        default_value = store::database_url(), hide_default_value = true,
        required = store::is_required())]
    store: String,

    /// Where events are published: nats://host:port, kafka://host:port, pubsub://project, or `sql:`
    /// for the log in the same store [default: sql:].
    #[arg(long, env = "CHAPAR_TRANSPORT", hide_env_values = true, value_name = "URL")]
    transport: Option<String>,

    /// The system's profile: melmastoon, learning, invoicing, or a TOML file.
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
    let store = store::open(&args.store).await?;
    store.check_connection().await?;
    store.check_schema().await?;
    store.check_engine_role().await?;
    store.check_outbox().await?;
    let owner = process_name("relay");
    let producer = Producer { service: "chapar-relay".into(), ..Producer::default() };
    let url = &config.relay.transport;
    let transport = transport::open(url, &config.nats, &store, &owner, &profile.name).await?;
    let mut builder = Chapar::builder(store.clone(), profile, dialect).producer(producer);
    if let Some(registry) = registry {
        builder = builder.registry(registry);
    }
    let chapar = builder.build();
    let app = App::new(chapar.clone(), transport, owner.clone()).stamp(args.stamp);
    let shown =
        format!("relaying {} as {owner}\n  to       {}", store.url(), transport::shown(url));
    serve(app, chapar, &shown, listen, args.drain, &interrupted).await
}

/// Runs the relay until it is interrupted; an error if a part of it keeps failing.
async fn serve(
    app: App,
    chapar: Chapar,
    shown: &str,
    listen: SocketAddr,
    drain: Duration,
    interrupted: &CancellationToken,
) -> Result<ExitCode> {
    let mut running = app.start().await?;
    let store = chapar.store().clone();
    let closing = CancellationToken::new();
    let ops = Ops::new(chapar, running.metrics()).health(running.health());
    let (address, server) = ops.bind(listen, closing.clone()).await?;
    let server = tokio::spawn(server);
    eprintln!("{shown}");
    eprintln!("  health   http://{address}/healthz, /readyz, /metrics");

    let ended = until_stopped(&mut running, interrupted).await;
    eprintln!("stopping: waiting for what is in flight");
    running.stop(drain).await;
    closing.cancel();
    let _ = server.await;
    store.close().await;
    ended?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn system(name: &str) -> Result<(Profile, Arc<dyn Dialect>)> {
    let profile = profiles::load(name)?;
    let dialect = profile.dialect().context(
        "a relay for Protobuf events runs inside the service, which has the descriptors",
    )?;
    Ok((profile, dialect))
}

#[cfg(test)]
mod tests {
    use chapar::prelude::*;
    use chapar::{SqlTransport, Store, StoreOptions};
    use chapar_core::port::{
        BoxFuture, Features, Outgoing, Receipt, SeekTo, Subscription, SubscriptionSpec, TopicSpec,
        Transport, TransportError,
    };

    use super::*;

    #[derive(Event, Serialize, Deserialize)]
    #[event("shop.order.placed", id = order)]
    struct OrderPlaced {
        order: String,
    }

    /// A broker whose client panics at every message.
    struct Faulty(SqlTransport);

    impl Transport for Faulty {
        fn features(&self) -> Features {
            self.0.features()
        }

        fn apply<'a>(
            &'a self,
            topics: &'a [TopicSpec],
            subscriptions: &'a [SubscriptionSpec],
        ) -> BoxFuture<'a, Result<(), TransportError>> {
            self.0.apply(topics, subscriptions)
        }

        fn publish(&self, _: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>> {
            panic!("the client of the broker has a bug")
        }

        fn subscribe<'a>(
            &'a self,
            spec: &'a SubscriptionSpec,
        ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
            self.0.subscribe(spec)
        }

        fn seek<'a>(
            &'a self,
            subscription: &'a str,
            to: SeekTo,
        ) -> BoxFuture<'a, Result<(), TransportError>> {
            self.0.seek(subscription, to)
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_relay_that_keeps_dying_ends_with_an_error_that_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("relay.db").display());
        let store = Store::open(&url, &StoreOptions::default()).await.unwrap();
        store.migrate().await.unwrap();
        let profile = Profile::named("shop");
        let dialect = profile.dialect().unwrap();
        let chapar = Chapar::builder(store.clone(), profile, dialect).build();
        let tenant: Tenant = "acme".parse().unwrap();
        let placed = async |cx: &mut Cx| cx.emit(OrderPlaced { order: "o1".into() }).await;
        chapar.command(&tenant).run(placed).await.unwrap();

        let transport = Arc::new(Faulty(SqlTransport::new(store, "test")));
        let app = App::new(chapar.clone(), transport, "test").give_up_after(2);
        let any = "127.0.0.1:0".parse().unwrap();
        let ended = serve(app, chapar, "", any, Duration::ZERO, &CancellationToken::new()).await;
        let error = ended.expect_err("main prints it and exits with 1").to_string();
        assert!(error.starts_with("relay failed 2 times in a row: "), "{error}");
        assert!(error.contains("the client of the broker has a bug"), "{error}");
    }
}
