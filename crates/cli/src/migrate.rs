//! `chapar migrate`: a store's tables.

use std::process::ExitCode;

use anyhow::{Context, Result};
use chapar::ops::Operator;
use chapar::{BundleSource, Registry, Store, ops};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::outbox::operator;
use crate::output::{Format, bold, red, report};
use crate::profiles;
use crate::store;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print the SQL that `apply` would run.
    Plan(Target),
    /// Apply the pending migrations; does nothing if there are none.
    #[command(after_help = "\
With --profile, and --contracts for the events and their owners, `chapar.emit` refuses a broken rule
in the caller's transaction from the first event on. Apps and `chapar relay` write the same rules
when they start.

Examples:
  chapar migrate apply --store sqlite:shop.db
  chapar migrate apply --store postgres://localhost/hotel --profile melmastoon --contracts contracts.json")]
    Apply(Apply),
    /// Show which migrations are applied and which are pending: 0 none is pending, 1 some are, 2 it
    /// could not be found out.
    Status(Target),
}

#[derive(Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    target: Target,

    /// The system whose rules `chapar.emit` checks: a shipped system or a TOML file.
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,

    /// The released contracts with its events: a file, https://, gs:// or s3://.
    #[arg(long, requires = "profile", value_name = "PLACE")]
    contracts: Option<String>,
}

#[derive(Args)]
pub(crate) struct Target {
    /// The store: sqlite:FILE or postgres://user@host/database.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL",
        default_value = store::database_url(), hide_default_value = true,
        required = store::is_required())]
    store: String,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Plan(target) => plan(&target).await,
            Command::Apply(args) => apply(&args).await,
            Command::Status(target) => match status(&target).await {
                Ok(code) => Ok(code),
                Err(error) => {
                    eprintln!("{}: {}", red("error"), report(&error));
                    Ok(ExitCode::from(2))
                }
            },
        }
    })
}

async fn open(target: &Target) -> Result<Store> {
    Ok(store::open(&target.store).await?)
}

async fn plan(target: &Target) -> Result<ExitCode> {
    let plan = match store::missing_file(&target.store) {
        // Everything is pending in a new file, which only `apply` creates.
        Some(file) => {
            eprintln!("{file} does not exist; `chapar migrate apply` creates it");
            store::open_or_create("sqlite::memory:").await?.migration_plan().await?
        }
        None => open(target).await?.migration_plan().await?,
    };
    match target.format {
        Format::Json => {
            let steps: Vec<_> = plan
                .iter()
                .map(|(version, name, sql)| json!({ "version": version, "name": name, "sql": sql }))
                .collect();
            println!("{}", serde_json::to_string_pretty(&steps)?);
        }
        Format::Text if plan.is_empty() => eprintln!("nothing to apply"),
        Format::Text => {
            for (version, name, sql) in plan {
                println!("-- migration {version}: {name}\n{sql}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn apply(args: &Apply) -> Result<ExitCode> {
    let target = &args.target;
    // What is wrong in a file is found before anything is changed.
    let profile = args.profile.as_deref().map(profiles::load).transpose()?;
    let registry = match &args.contracts {
        Some(place) => {
            let source: BundleSource = place.parse().context("--contracts")?;
            Some(Registry::open(source.token_from_env()).await.context("--contracts")?)
        }
        None => None,
    };
    let store = store::open_or_create(&target.store).await?;
    let applied = store.migrate().await?;
    if let Some(profile) = &profile {
        let actor = operator();
        let by = Operator { name: &actor, reason: "chapar migrate apply" };
        ops::write_rules(&store, profile, registry.as_ref(), by).await?;
    }
    match target.format {
        Format::Json => println!("{}", json!({ "store": store.url(), "applied": applied })),
        Format::Text if applied.is_empty() => eprintln!("{} is up to date", store.url()),
        Format::Text => {
            let versions: Vec<String> = applied.iter().map(i64::to_string).collect();
            eprintln!("{}: applied migration {}", store.url(), versions.join(", "));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn status(target: &Target) -> Result<ExitCode> {
    let store = open(target).await?;
    let status = store.schema_status().await?;
    let pending = !status.pending.is_empty();
    match target.format {
        Format::Json => {
            let missing: Vec<_> = status
                .pending
                .iter()
                .map(|(version, name)| json!({ "version": version, "name": name }))
                .collect();
            let status =
                json!({ "store": store.url(), "applied": status.applied, "pending": missing });
            println!("{status}");
        }
        Format::Text => {
            println!("{}", bold(store.url()));
            for version in &status.applied {
                println!("  {version:>4}  applied");
            }
            for (version, name) in &status.pending {
                println!("  {version:>4}  missing  {name}");
            }
        }
    }
    Ok(if pending { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
