//! The processes of a run other than our relays.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use chapar::{Chapar, Producer, SqlTransport, Store, StoreOptions, Transport};
use chapar_core::dialect::MetadataJson;
use chapar_transports::OpenOptions;
use chapar_transports::nats::{Nats, NatsOptions};
use tokio_util::sync::CancellationToken;

use super::consumer::Release;
use super::mutants::{self, Mutant};
use super::site::moved_tenants;
use super::world::SYSTEM;
use super::writer::Manner;
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
    Writer(Manner),
    /// Applies events.
    Consumer(Release),
    /// Relays wrongly.
    Mutant { name: Mutant },
}

/// Runs a process of a run until it is asked to end.
pub async fn work(worker: Worker, stop: CancellationToken) -> Result<()> {
    match worker.task.clone() {
        Task::Writer(manner) => writer::run(worker, manner, stop).await,
        Task::Consumer(release) => consumer::run(worker, release, stop).await,
        Task::Mutant { name } => mutants::run(name, worker, stop).await,
    }
}

impl Worker {
    pub(super) fn owner(&self, kind: &str) -> String {
        format!("{kind}-{}-{}", self.index, self.life)
    }

    pub(super) async fn backbone(&self) -> Result<Chapar> {
        let store = Store::open(&self.store, &StoreOptions::default()).await?;
        let profile = chapar_testkit::profile(SYSTEM);
        let producer = Producer { service: "torture".into(), ..Producer::default() };
        Ok(Chapar::builder(store, profile, Arc::new(MetadataJson)).producer(producer).build())
    }

    pub(super) async fn transport(&self, kind: &str, store: &Store) -> Result<Arc<dyn Transport>> {
        let owner = self.owner(kind);
        if self.transport == "sql:" {
            return Ok(Arc::new(SqlTransport::new(store.clone(), &owner)));
        }
        let nats =
            NatsOptions { own_partitions: moved_tenants(&self.folder), ..NatsOptions::default() };
        let options = OpenOptions { owner, system: SYSTEM.into(), nats };
        Ok(chapar_transports::open(&self.transport, options).await?)
    }

    /// NATS, which is what wrong relays publish to.
    pub(super) async fn broker(&self, kind: &str) -> Result<Nats> {
        let options = NatsOptions {
            owner: self.owner(kind),
            prefix: Some(SYSTEM.into()),
            ..NatsOptions::default()
        };
        Ok(Nats::connect(&self.transport, options).await?)
    }
}
