//! The site of a run: servers, breakable connections to them, and a folder for journals.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use chapar::{Store, StoreOptions};
use chapar_testkit::proxy::Proxy;
use chapar_testkit::servers::{Database, Instance, Kind, Launch, Postgres, free_port};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

use super::plan::{Fault, Options};
use super::world::{KEYS, SYSTEM, key};

/// What carries the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    /// The log in the database.
    Sql,
    Nats,
    Kafka,
}

pub(super) struct Site {
    pub(super) carrier: Carrier,
    /// The database server that is in use now.
    store: Mutex<String>,
    /// The broker, past all lines.
    pub(super) transport: String,
    /// A line for each relay, then one for each consumer.
    pub(super) lines: Vec<Line>,
    /// The line of writers and operators, which is never broken.
    pub(super) calm: Line,
    /// The id of this run in ids and keys, which distinguishes it from others on the same servers.
    pub(super) run: String,
    /// When a standby was promoted, in milliseconds; 0 if none was.
    pub(super) promoted: AtomicU64,
    folder: TempDir,
}

/// The private servers.
#[derive(Default)]
pub(super) struct Servers {
    pub(super) database: Option<Instance>,
    pub(super) standby: Option<Standby>,
    pub(super) broker: Option<Instance>,
    _own: Option<Database>,
}

/// A server that follows the database over a line of its own.
pub(super) struct Standby {
    pub(super) server: Instance,
    pub(super) line: Proxy,
}

/// The connections of one process to the servers.
pub(super) struct Line {
    pub(super) to_database: Proxy,
    pub(super) to_broker: Option<Proxy>,
    pub(super) store: String,
    pub(super) transport: String,
}

impl Site {
    /// Starts what was not given, and makes the tables.
    pub(super) async fn prepare(options: &Options, lines: usize) -> Result<(Self, Servers)> {
        let mut servers = Servers::default();
        let store = match &options.store {
            Some(store) if store.starts_with("postgres") => store.clone(),
            Some(store) => {
                bail!("--store {store}: several processes torture a server; give postgres://…")
            }
            None => {
                let server = blocking(|| database().start())?;
                let made = blocking(|| Postgres::from(&server).database("torture"))?;
                servers.database = Some(server);
                servers._own.insert(made).url().to_owned()
            }
        };
        let (carrier, transport, ways) = match options.transport.as_str() {
            "sql:" => (Carrier::Sql, "sql:".to_owned(), Vec::new()),
            "kafka" => {
                let (broker, transport, ways) = blocking(|| kafka(lines))?;
                servers.broker = Some(broker);
                (Carrier::Kafka, transport, ways)
            }
            given => {
                let transport = match given {
                    "nats" => {
                        // Acknowledged messages must be on disk: the broker will be killed.
                        let launch =
                            Launch::of(Kind::Nats).setting("jetstream.sync_interval", "always");
                        servers.broker.insert(blocking(|| launch.start())?).url().to_owned()
                    }
                    url if url.starts_with("nats://") => url.to_owned(),
                    other => bail!(
                        "--transport {other}: give sql:, nats, kafka or the address of a server, nats://…"
                    ),
                };
                let ways: Result<Vec<Way>> = (0..lines).map(|_| Way::to(&transport)).collect();
                (Carrier::Nats, transport, ways?)
            }
        };
        let mut ways = ways.into_iter();
        let lines: Result<Vec<Line>> =
            (0..lines).map(|_| Line::between(&store, &transport, ways.next())).collect();
        let site = Site {
            carrier,
            calm: Line::between(&store, &transport, None)?,
            store: Mutex::new(store),
            transport,
            lines: lines?,
            run: format!("{:08x}", fastrand::u32(..)),
            promoted: AtomicU64::new(0),
            folder: tempfile::Builder::new().prefix("chapar-torture-").tempdir()?,
        };
        site.make_tables().await?;
        if let (Some(primary), true) =
            (&servers.database, options.faults.contains(&Fault::PromoteStandby))
        {
            servers.standby = Some(blocking(|| Standby::of(primary))?);
        }
        Ok((site, servers))
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn key(&self, index: usize) -> String {
        key(&self.run, index)
    }

    pub(super) fn store(&self) -> String {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn connect(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.store()).await?)
    }

    /// From now on, everything goes to another server.
    pub(super) fn fail_over(&self, server: &Instance, at: u64) -> Result<()> {
        let old = self.store();
        let (start, end) = host(&old).context("the store names a host")?;
        let (from, to) = host(server.url()).context("a server has an address")?;
        let address = &server.url()[from..to];
        for line in self.lines.iter().chain([&self.calm]) {
            line.to_database.cut();
            line.to_database.redirect(address);
            line.to_database.heal();
        }
        let new = format!("{}{address}{}", &old[..start], &old[end..]);
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = new;
        self.promoted.store(at, Ordering::Relaxed);
        Ok(())
    }

    async fn make_tables(&self) -> Result<()> {
        let url = self.store();
        let store = Store::open(&url, &StoreOptions::default()).await?;
        store.migrate().await.context("the tables of Chapar cannot be made")?;
        let profile = chapar_testkit::profile(SYSTEM);
        store.set_rules(&profile, None).await?;
        store.close().await;
        let mut connection = self.connect().await?;
        sqlx::raw_sql("drop schema if exists rig cascade").execute(&mut connection).await?;
        sqlx::raw_sql(include_str!("schema.sql")).execute(&mut connection).await?;
        let keys: Vec<String> = (0..KEYS).map(|index| self.key(index)).collect();
        sqlx::query("insert into rig.counters (key) select unnest($1::text[])")
            .bind(keys)
            .execute(&mut connection)
            .await?;
        connection.close().await?;
        Ok(())
    }
}

/// The tenants that have a partition of their own, in processes that start from now on.
pub(super) fn move_tenant(folder: &Path, tenant: &str, partition: u32) -> Result<()> {
    let mut moved = moved_tenants(folder);
    moved.insert(tenant.to_owned(), partition);
    let mut text = "[nats.own_partitions]\n".to_owned();
    for (tenant, partition) in moved {
        writeln!(text, "{tenant:?} = {partition}")?;
    }
    // Relays and commands read this file; replaced at once, so that none reads a part of it.
    let file = folder.join("chapar.toml.new");
    std::fs::write(&file, text)?;
    std::fs::rename(file, folder.join("chapar.toml"))?;
    Ok(())
}

pub(super) fn moved_tenants(folder: &Path) -> BTreeMap<String, u32> {
    let text = std::fs::read_to_string(folder.join("chapar.toml")).unwrap_or_default();
    let line = |line: &str| {
        let (tenant, partition) = line.split_once(" = ")?;
        Some((tenant.trim_matches('"').to_owned(), partition.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// A database whose crashes are over in less than a second.
fn database() -> Launch {
    Launch::of(Kind::Postgres)
        .setting("deadlock_timeout", "200ms")
        .setting("shared_buffers", "256MB")
        .setting("max_wal_size", "4GB")
        .setting("recovery_init_sync_method", "syncfs")
}

/// A Kafka whose clients are told the address of the line they came by: a listener for each.
fn kafka(lines: usize) -> Result<(Instance, String, Vec<Way>)> {
    const OPTIONS: &str = "?session_seconds=3&partitions=6&replication=1";
    let (mut launch, mut ways) = (Launch::of(Kind::Kafka), Vec::new());
    for line in 0..lines {
        let port = free_port()?;
        let proxy = Proxy::to(&format!("127.0.0.1:{port}"))?;
        let seen_at = proxy.address().port();
        launch = launch.setting("+listener", format!("LINE{line} PLAINTEXT {port} {seen_at}"));
        let url = format!("kafka://{}{OPTIONS}", proxy.address());
        ways.push(Way { proxy, url });
    }
    let broker = launch.start()?;
    let url = format!("kafka://{}{OPTIONS}", broker.url());
    Ok((broker, url, ways))
}

impl Standby {
    fn of(primary: &Instance) -> Result<Self> {
        let way = Way::to(primary.url())?;
        let server = database().setting("+standby_of", way.url).start()?;
        Ok(Standby { server, line: way.proxy })
    }
}

/// A proxy, and the address of the server behind it.
struct Way {
    proxy: Proxy,
    url: String,
}

impl Way {
    fn to(url: &str) -> Result<Self> {
        let (start, end) = host(url).with_context(|| format!("{url} names no host and port"))?;
        let proxy = Proxy::to(&url[start..end])?;
        let url = format!("{}{}{}", &url[..start], proxy.address(), &url[end..]);
        Ok(Way { proxy, url })
    }
}

impl Line {
    fn between(store: &str, transport: &str, to_broker: Option<Way>) -> Result<Self> {
        let Way { proxy: to_database, url: store } = Way::to(store)?;
        let (to_broker, transport) = match to_broker {
            Some(Way { proxy, url }) => (Some(proxy), url),
            None => (None, transport.to_owned()),
        };
        Ok(Line { to_database, to_broker, store, transport })
    }

    pub(super) fn heal(&self) {
        self.to_database.heal();
        self.to_broker.iter().for_each(Proxy::heal);
    }
}

/// The position of `host:port` in a URL.
fn host(url: &str) -> Option<(usize, usize)> {
    let authority = url.find("://")? + 3;
    let end = url[authority..].find(['/', '?']).map_or(url.len(), |at| authority + at);
    let start = url[authority..end].rfind('@').map_or(authority, |at| authority + at + 1);
    url[start..end].contains(':').then_some((start, end))
}

/// The servers' functions block.
pub(super) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn the_host_of_a_url_is_found() {
        let of = |url: &'static str| host(url).map(|(start, end)| &url[start..end]);
        assert_eq!(of("postgres://u:p@h:1/d?x=y"), Some("h:1"));
        assert_eq!(of("nats://127.0.0.1:4222"), Some("127.0.0.1:4222"));
        assert_eq!(of("nats://nowhere"), None);
    }

    #[test]
    fn a_moved_tenant_stays_moved() {
        let folder = tempfile::tempdir().unwrap();
        move_tenant(folder.path(), "acme", 12).unwrap();
        move_tenant(folder.path(), "birch", 13).unwrap();
        let moved = [("acme".to_owned(), 12), ("birch".to_owned(), 13)];
        assert_eq!(moved_tenants(folder.path()), moved.into());
    }
}
