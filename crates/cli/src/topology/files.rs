//! Set-up files for teams that manage a broker with other tools.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use chapar_catalog::{inventory, setup};
use chapar_transports::nats::setup_files;
use clap::Args;

use crate::catalog::{Where, flawless, say, write_site};
use crate::config::Config;

pub(super) const TERRAFORM: &str = "\
Examples:
  chapar topology terraform --system melmastoon --out infrastructure/pubsub
  chapar topology terraform --system melmastoon --push inventory-service --out infrastructure/pubsub

Subscriptions are pulled unless --push names their service; the folder is a module whose variables
are the project, its number and, for pushes, the address of each service.";

pub(super) const KAFKA: &str = "\
Examples:
  chapar topology kafka --system meridian --out infrastructure/kafka
  chapar topology kafka --system meridian --operator ada --out infrastructure/kafka
  chapar topology kafka --system meridian --replication 1 --out deploy/local";

pub(super) const NATS: &str = "\
Examples:
  chapar topology nats --system learning --out infrastructure/nats

Include accounts.conf in the server's configuration, and let `chapar topology apply` create the
streams with `isolated = true` under [nats]. Each service then runs with `service = \"NAME\"` there.";

#[derive(Args)]
struct Out {
    #[command(flatten)]
    at: Where,

    /// The folder to write to [default: stdout].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Terraform {
    #[command(flatten)]
    out: Out,

    /// A service that gets its events by push instead of pull.
    #[arg(long, value_name = "SERVICE")]
    push: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Kafka {
    #[command(flatten)]
    out: Out,

    /// Replicas of each topic; one fewer must be in sync.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    replication: u16,

    /// A user who may order consumers to seek, and may read every topic.
    #[arg(long, value_name = "USER")]
    operator: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Nats {
    #[command(flatten)]
    out: Out,
}

pub(super) fn terraform(args: &Terraform) -> Result<ExitCode> {
    write(&args.out, |loaded| Ok(setup::terraform(loaded, &args.push)?))
}

pub(super) fn kafka(args: &Kafka) -> Result<ExitCode> {
    write(&args.out, |loaded| Ok(setup::kafka(loaded, args.replication, &args.operator)))
}

pub(super) fn nats(args: &Nats, config: &Config) -> Result<ExitCode> {
    write(&args.out, |loaded| {
        let wanted = inventory::topology(loaded);
        Ok(setup_files(&wanted, &config.nats.options("topology", &wanted.system))?)
    })
}

fn write(
    out: &Out,
    files: impl FnOnce(&chapar_catalog::Loaded) -> Result<BTreeMap<String, String>>,
) -> Result<ExitCode> {
    let loaded = match flawless(&out.at) {
        Ok(loaded) => loaded,
        Err(code) => return Ok(code),
    };
    let files = files(&loaded)?;
    match &out.out {
        Some(folder) => {
            write_site(folder, &files)?;
            eprintln!("{} files in {}", files.len(), folder.display());
        }
        None => {
            for (name, text) in &files {
                say(&format!("# --- {name}\n{text}"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
