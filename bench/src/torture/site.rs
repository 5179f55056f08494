//! The site of a run: servers, breakable connections to them, and a folder for journals.

use std::path::Path;

use anyhow::{Context, Result, bail};
use chapar::{Profile, Store, StoreOptions};
use chapar_testkit::proxy::Proxy;
use chapar_testkit::servers::{Database, Instance, Kind, Launch, Postgres};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

use super::plan::Options;

/// The subject of every event of a run.
pub(super) const TOPIC: &str = "melmastoon.reservation.booking.modified.v1";
/// Its stream.
pub(super) const STREAM: &str = "RESERVATION";
/// Its profile.
pub(super) const SYSTEM: &str = "melmastoon";
pub(super) const TENANT: &str = "acme";
pub(super) const KEYS: usize = 24;

pub(super) struct Site {
    pub(super) store: String,
    pub(super) transport: String,
    pub(super) lines: Vec<Line>,
    /// The id of this run in ids and keys, which distinguishes it from others on the same servers.
    pub(super) run: String,
    folder: TempDir,
}

/// The private servers.
#[derive(Default)]
pub(super) struct Servers {
    pub(super) database: Option<Instance>,
    pub(super) broker: Option<Instance>,
    _own: Option<Database>,
}

/// The connections of one relay to the servers.
pub(super) struct Line {
    pub(super) to_database: Proxy,
    pub(super) to_broker: Proxy,
    pub(super) store: String,
    pub(super) transport: String,
}

impl Site {
    /// Starts what was not given, and makes the tables.
    pub(super) async fn prepare(options: &Options, relays: usize) -> Result<(Self, Servers)> {
        let mut servers = Servers::default();
        let store = match &options.store {
            Some(store) if store.starts_with("postgres") => store.clone(),
            Some(store) => {
                bail!("--store {store}: several processes torture a server; give postgres://…")
            }
            None => {
                let server = blocking(|| {
                    Launch::of(Kind::Postgres).setting("deadlock_timeout", "200ms").start()
                })?;
                let made = blocking(|| Postgres::from(&server).database("torture"))?;
                servers.database = Some(server);
                servers._own.insert(made).url().to_owned()
            }
        };
        let transport = match &options.transport {
            Some(transport) if transport.starts_with("nats://") => transport.clone(),
            Some(transport) => bail!("--transport {transport}: the rig knows nats:// only"),
            None => {
                // Acknowledged messages must be on disk: the broker will be killed.
                let launch = Launch::of(Kind::Nats).setting("jetstream.sync_interval", "always");
                servers.broker.insert(blocking(|| launch.start())?).url().to_owned()
            }
        };
        let lines: Result<Vec<Line>> =
            (0..relays).map(|_| Line::between(&store, &transport)).collect();
        let folder = tempfile::Builder::new().prefix("chapar-torture-").tempdir()?;
        let run = format!("{:08x}", fastrand::u32(..));
        let site = Site { store, transport, lines: lines?, run, folder };
        site.make_tables().await?;
        Ok((site, servers))
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn key(&self, index: usize) -> String {
        key(&self.run, index)
    }

    pub(super) async fn connect(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.store).await?)
    }

    async fn make_tables(&self) -> Result<()> {
        let store = Store::open(&self.store, &StoreOptions::default()).await?;
        store.migrate().await.context("the tables of Chapar cannot be made")?;
        let profile = Profile::builtin(SYSTEM).context("the profile is built in")?;
        store.set_key_template(profile.key_template.as_str()).await?;
        store.close().await;
        let mut connection = self.connect().await?;
        sqlx::raw_sql("drop schema if exists rig cascade").execute(&mut connection).await?;
        sqlx::raw_sql(include_str!("schema.sql")).execute(&mut connection).await?;
        for index in 0..KEYS {
            sqlx::query("insert into rig.counters (key) values ($1)")
                .bind(self.key(index))
                .execute(&mut connection)
                .await?;
        }
        connection.close().await?;
        Ok(())
    }
}

/// The name of a key in a run.
pub(super) fn key(run: &str, index: usize) -> String {
    format!("{run}-k{index}")
}

impl Line {
    fn between(store: &str, transport: &str) -> Result<Self> {
        let to = |url: &str| -> Result<(Proxy, String)> {
            let (start, end) =
                host(url).with_context(|| format!("{url} names no host and port"))?;
            let proxy = Proxy::to(&url[start..end])?;
            let through = format!("{}{}{}", &url[..start], proxy.address(), &url[end..]);
            Ok((proxy, through))
        };
        let (to_database, store) = to(store)?;
        let (to_broker, transport) = to(transport)?;
        Ok(Line { to_database, to_broker, store, transport })
    }

    pub(super) fn heal(&self) {
        self.to_database.heal();
        self.to_broker.heal();
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
    use super::*;

    #[test]
    fn the_host_of_a_url_is_found() {
        let of = |url: &'static str| host(url).map(|(start, end)| &url[start..end]);
        assert_eq!(of("postgres://u:p@h:1/d?x=y"), Some("h:1"));
        assert_eq!(of("nats://127.0.0.1:4222"), Some("127.0.0.1:4222"));
        assert_eq!(of("nats://nowhere"), None);
    }
}
