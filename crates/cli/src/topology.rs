//! `chapar topology`: compares a transport with the catalog, and sets it up.

mod files;
mod show;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use chapar::SqlTransport;
use chapar_catalog::inventory;
use chapar_core::port::{Difference, Pruning, Topology, Transport};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::catalog::{USAGE, Where, flawless, say, usage};
use crate::config::Config;
use crate::output::{self, Format};
use crate::store;
use crate::transport::{self, IN_THE_STORE};
use crate::up::process_name;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show how a transport differs from the catalog: 0 no difference, 1 differences, 2 could not
    /// be compared.
    #[command(after_help = PLAN)]
    Plan(Target),
    /// Create and change what the catalog declares: 0 all done, 1 something is left, 2 not started.
    #[command(after_help = APPLY)]
    Apply(Target),
    /// Terraform for Google Pub/Sub: topics, dead letters, subscriptions and rights.
    #[command(after_help = files::TERRAFORM)]
    Terraform(files::Terraform),
    /// Topics and access lists for Kafka's own tools.
    #[command(after_help = files::KAFKA)]
    Kafka(files::Kafka),
    /// Accounts, users and streams for a NATS server.
    #[command(after_help = files::NATS)]
    Nats(files::Nats),
}

const PLAN: &str = "\
Examples:
  chapar topology plan --system melmastoon --transport nats://operator@nats:4222
  chapar topology plan --system melmastoon --transport nats://nats:4222 --format json
  chapar topology plan --system melmastoon --transport sql: --store postgres://localhost/hotel

Exit code: 0 the transport matches the catalog, 1 something would be created or changed, 2 an error
in the catalog, the options or the transport. Objects that the catalog does not declare are listed,
and count only with --prune.";

const APPLY: &str = "\
Examples:
  chapar topology apply --system melmastoon --transport nats://operator@nats:4222
  chapar topology apply --system melmastoon --transport nats://operator@nats:4222 --prune

Nothing is deleted without --prune; a shorter retention deletes messages, and needs it too. What the
transport cannot change in place is left, with a hint on what to do. At the end the plan is made
again: exit code 0 if it is empty, 1 if something is left, 2 if nothing could be started.";

#[derive(Args)]
pub(crate) struct Target {
    #[command(flatten)]
    at: Where,

    /// The transport: nats://host:port, kafka://host:port, pubsub://project, or `sql:` for the log
    /// in --store.
    #[arg(long, env = "CHAPAR_TRANSPORT", hide_env_values = true, value_name = "URL")]
    transport: String,

    /// The store, for the transport `sql:`.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL",
        default_value = store::database_url(), hide_default_value = true)]
    store: Option<String>,

    /// Count what the catalog does not declare as a difference, and delete it with `apply`.
    #[arg(long)]
    prune: bool,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Target {
    fn pruning(&self) -> Pruning {
        if self.prune { Pruning::Delete } else { Pruning::Keep }
    }
}

pub(crate) fn run(command: Command, config: Config) -> Result<ExitCode> {
    let config = config.check()?;
    let (target, apply) = match command {
        Command::Plan(target) => (target, false),
        Command::Apply(target) => (target, true),
        Command::Terraform(args) => return files::terraform(&args),
        Command::Kafka(args) => return files::kafka(&args),
        Command::Nats(args) => return files::nats(&args, &config),
    };
    let loaded = match flawless(&target.at) {
        Ok(loaded) => loaded,
        Err(_) => return Ok(ExitCode::from(USAGE)),
    };
    let wanted = inventory::topology(&loaded);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let planned = async {
            let transport = open(&target, &config, &wanted.system).await?;
            let plan = transport.plan(&wanted).await?;
            anyhow::Ok((transport, plan))
        };
        match planned.await {
            Ok((transport, plan)) if apply => carry_out(&target, &*transport, &wanted, plan).await,
            Ok((_, plan)) => report(&target, &plan),
            Err(error) => Ok(usage(&format!("{error:#}"))),
        }
    })
}

async fn open(target: &Target, config: &Config, system: &str) -> Result<Arc<dyn Transport>> {
    let owner = process_name("topology");
    if target.transport != IN_THE_STORE {
        return transport::broker(&target.transport, &config.nats, &owner, system).await;
    }
    let Some(url) = &target.store else { bail!("give --store URL: `sql:` is a log in a store") };
    let store = store::open(url).await.context("--store")?;
    store.check_schema().await.context("--store")?;
    Ok(Arc::new(SqlTransport::new(store, &owner)))
}

fn report(target: &Target, plan: &[Difference]) -> Result<ExitCode> {
    let counts = plan.iter().any(|difference| difference.counts(target.pruning()));
    match target.format {
        Format::Json => {
            let plan = json!({ "differences": plan, "as_declared": !counts });
            say(&format!("{}\n", serde_json::to_string_pretty(&plan)?))?;
        }
        Format::Text => {
            say(&show::differences(plan))?;
            eprintln!("{}", show::summary(plan, target.pruning()));
        }
    }
    Ok(if counts { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn carry_out(
    target: &Target,
    transport: &dyn Transport,
    wanted: &Topology,
    plan: Vec<Difference>,
) -> Result<ExitCode> {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    let parts: Vec<Difference> = plan.iter().filter_map(|d| d.to_do(target.pruning())).collect();
    let progress = show::Progress::new(parts.len());
    for part in parts {
        progress.show(done.len() + failed.len());
        match transport.carry_out(wanted, &part).await {
            Ok(()) => done.push(part),
            Err(error) => failed.push((part, error.to_string())),
        }
    }
    progress.clear();
    let left = transport.plan(wanted).await.context("the check at the end")?;
    let counts = left.iter().any(|difference| difference.counts(target.pruning()));
    match target.format {
        Format::Json => {
            let failed: Vec<_> = failed
                .iter()
                .map(
                    |(part, error)| json!({ "kind": part.kind, "name": part.name, "error": error }),
                )
                .collect();
            let outcome =
                json!({ "done": done, "failed": failed, "left": left, "as_declared": !counts });
            say(&format!("{}\n", serde_json::to_string_pretty(&outcome)?))?;
        }
        Format::Text => {
            say(&show::done(&done))?;
            for (part, error) in &failed {
                eprintln!("{}", show::failed(part, error));
            }
            if !left.is_empty() {
                eprintln!("left:");
                output::eprint(format_args!("{}", show::differences(&left)));
            }
            eprintln!("{}", show::summary(&left, target.pruning()));
        }
    }
    Ok(if counts || !failed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
