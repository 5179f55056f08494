//! The processes of a run other than our relays.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use chapar::{Chapar, Producer, Profile, Store, StoreOptions};
use chapar_core::dialect::Melmastoon;
use chapar_transports::nats::{Nats, NatsOptions};
use tokio_util::sync::CancellationToken;

use super::mutants::{self, Mutant};
use super::plan::Fault;
use super::site::SYSTEM;
use super::{consumer, writer};

/// A process of a run.
#[derive(Debug, Clone, clap::Args)]
pub struct Worker {
    #[command(subcommand)]
    task: Task,

    /// The store.
    #[arg(long, global = true, default_value = "")]
    pub(super) store: String,
    /// The transport.
    #[arg(long, global = true, default_value = "")]
    pub(super) transport: String,
    /// The folder for journals.
    #[arg(long, global = true, default_value = ".")]
    pub(super) folder: PathBuf,
    /// The run.
    #[arg(long, global = true, default_value = "")]
    pub(super) run: String,
    /// Which of its kind this is.
    #[arg(long, global = true, default_value_t = 0)]
    pub(super) index: usize,
    /// Its life, from 1.
    #[arg(long, global = true, default_value_t = 1)]
    pub(super) life: u32,
    /// The seed of its random numbers.
    #[arg(long, global = true, default_value_t = 1)]
    pub(super) seed: u64,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Task {
    /// Commits business rows and events.
    Writer {
        /// What it does beside short transactions.
        #[arg(long, default_value = "none")]
        habits: String,
        /// Appends through the library alone, so that every row is a whole message.
        #[arg(long)]
        sealed: bool,
    },
    /// Applies events.
    Consumer,
    /// Relays wrongly.
    Mutant { name: Mutant },
}

/// Runs a process of a run until it is asked to end.
pub async fn work(worker: Worker, stop: CancellationToken) -> Result<()> {
    match worker.task.clone() {
        Task::Writer { habits, sealed } => {
            let habits = Fault::list(&habits).map_err(anyhow::Error::msg)?;
            writer::run(worker, habits, sealed, stop).await
        }
        Task::Consumer => consumer::run(worker, stop).await,
        Task::Mutant { name } => mutants::run(name, worker, stop).await,
    }
}

impl Worker {
    pub(super) fn owner(&self, kind: &str) -> String {
        format!("{kind}-{}-{}", self.index, self.life)
    }

    pub(super) async fn backbone(&self) -> Result<Chapar> {
        let store = Store::open(&self.store, &StoreOptions::default()).await?;
        let profile = Profile::builtin(SYSTEM).context("the profile is built in")?;
        let producer = Producer { service: "torture".into(), ..Producer::default() };
        Ok(Chapar::builder(store, profile, Arc::new(Melmastoon)).producer(producer).build())
    }

    pub(super) async fn broker(&self, kind: &str) -> Result<Nats> {
        let options = NatsOptions {
            owner: self.owner(kind),
            prefix: Some(SYSTEM.into()),
            ..NatsOptions::default()
        };
        Ok(Nats::connect(&self.transport, options).await?)
    }
}
