//! The servers of a benchmark: given ones, or private ones.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use chapar::{Store, StoreOptions};
use chapar_testkit::servers::{Database, Instance, Kind, Launch, Postgres};

/// A PostgreSQL database and, where it is asked for, a NATS server.
pub(crate) struct Place {
    /// The database.
    pub(crate) store: String,
    /// The broker.
    pub(crate) transport: String,
    database: Option<Instance>,
    _made: Option<Database>,
    _broker: Option<Instance>,
}

impl Place {
    /// Takes what is given and starts the rest; Chapar's tables are created.
    pub(crate) async fn prepare(store: Option<&str>, transport: Option<&str>) -> Result<Self> {
        Place::of_database(store).await?.with_broker(transport)
    }

    /// The same, with a database whose commits wait for the disk.
    pub(crate) async fn prepare_durable(
        store: Option<&str>,
        transport: Option<&str>,
    ) -> Result<Self> {
        Place::of_durable_database(store).await?.with_broker(transport)
    }

    fn with_broker(mut self, transport: Option<&str>) -> Result<Self> {
        self.transport = match transport {
            Some(transport) if transport.starts_with("nats://") => transport.to_owned(),
            Some(transport) => bail!("--transport {transport}: this is measured on nats://…"),
            None => {
                let launch = Launch::of(Kind::Nats);
                let server = tokio::task::block_in_place(|| launch.start())?;
                self._broker.insert(server).url().to_owned()
            }
        };
        Ok(self)
    }

    /// The database alone.
    pub(crate) async fn of_database(store: Option<&str>) -> Result<Self> {
        Place::set_up(store, &[]).await
    }

    /// The database alone, whose commits wait for the disk.
    pub(crate) async fn of_durable_database(store: Option<&str>) -> Result<Self> {
        Place::set_up(store, &[("fsync", "on")]).await
    }

    async fn set_up(store: Option<&str>, settings: &[(&str, &str)]) -> Result<Self> {
        let (mut database, mut made) = (None, None);
        let store = match store {
            Some(store) if store.starts_with("postgres") => store.to_owned(),
            Some(store) => {
                bail!("--store {store}: this is measured on PostgreSQL; give postgres://…")
            }
            None => {
                let mut launch = Launch::of(Kind::Postgres)
                    .setting("shared_buffers", "512MB")
                    .setting("max_wal_size", "8GB")
                    .setting("max_connections", "120");
                for (name, value) in settings {
                    launch = launch.setting(*name, *value);
                }
                let server = tokio::task::block_in_place(|| launch.start())?;
                let own =
                    tokio::task::block_in_place(|| Postgres::from(&server).database("bench"))?;
                database = Some(server);
                made.insert(own).url().to_owned()
            }
        };
        let open = Store::open(&store, &StoreOptions::default()).await?;
        open.migrate().await.context("the tables of Chapar cannot be made")?;
        open.close().await;
        let transport = String::new();
        Ok(Place { store, transport, database, _made: made, _broker: None })
    }

    /// The processor time of the private database server so far, in seconds.
    pub(crate) fn database_cpu(&self) -> Option<f64> {
        let server = self.database.as_ref()?.pid()?;
        let mut total = cpu(server, true)?;
        for entry in std::fs::read_dir("/proc").ok()?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if parent(pid) == Some(server) {
                total += cpu(pid, false).unwrap_or(0.0);
            }
        }
        Some(total)
    }
}

/// The CPU time of a process, including that of its reaped children.
pub(crate) fn cpu(pid: u32, children: bool) -> Option<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let fields = stat(pid)?;
    // Fields 14 to 17 of proc(5) are 11 to 14 behind the name.
    let own: u64 = (11..=12).filter_map(|n| fields.get(n)?.parse::<u64>().ok()).sum();
    let buried: u64 = (13..=14).filter_map(|n| fields.get(n)?.parse::<u64>().ok()).sum();
    Some((own + if children { buried } else { 0 }) as f64 / TICKS_PER_SECOND)
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// The fields after the name, which may contain any character.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// The most memory that a process has had, in MiB.
pub(crate) fn peak_rss(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<f64>().ok()? / 1024.0)
}

/// A relay in a process of its own, which ends with the benchmark in any case.
pub(crate) struct Relay(Child);

impl Relay {
    pub(crate) fn start(program: &Path, place: &Place, more: &[&str]) -> Result<Self> {
        let child = Command::new(program)
            .args(["relay", "--profile", "melmastoon", "--listen", "127.0.0.1:0"])
            .args(["--store", &place.store, "--transport", &place.transport])
            .args(more)
            .env("CHAPAR_LOG", "error")
            .stderr(Stdio::null())
            .spawn();
        Ok(Relay(child.context("the relay does not start")?))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
