//! `chapar migrate`: a store's tables.

use std::process::ExitCode;

use anyhow::Result;
use chapar_sql::{Store, StoreOptions};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::output::{Format, bold};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print the SQL that `apply` would run.
    Plan(Target),
    /// Apply the pending migrations; does nothing if there are none.
    Apply(Target),
    /// Show which migrations are applied and which are pending.
    Status(Target),
}

#[derive(Args)]
pub(crate) struct Target {
    /// The store: sqlite:FILE or postgres://user@host/database.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
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
            Command::Apply(target) => apply(&target).await,
            Command::Status(target) => status(&target).await,
        }
    })
}

async fn open(target: &Target) -> Result<Store> {
    Ok(Store::open(&target.store, &StoreOptions::default()).await?)
}

async fn plan(target: &Target) -> Result<ExitCode> {
    let plan = open(target).await?.migration_plan().await?;
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

async fn apply(target: &Target) -> Result<ExitCode> {
    let store = open(target).await?;
    let applied = store.migrate().await?;
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
    match target.format {
        Format::Json => {
            let pending: Vec<_> = status
                .pending
                .iter()
                .map(|(version, name)| json!({ "version": version, "name": name }))
                .collect();
            let status =
                json!({ "store": store.url(), "applied": status.applied, "pending": pending });
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
    Ok(ExitCode::SUCCESS)
}
