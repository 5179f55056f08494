//! PostgreSQL, from the distribution's package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::recipe::{self, Found, Missing, Signal, Site, is_executable, on_path, run, version_of};
use super::{Endpoint, Instance, Kind, ServerError};

/// A PostgreSQL server and its superuser.
#[derive(Debug, Clone)]
pub struct Postgres(Endpoint);

impl Postgres {
    /// A handle on a server that answers there.
    pub fn at(endpoint: Endpoint) -> Self {
        Self(endpoint)
    }

    /// The superuser's address, `postgres://user:password@host:port/database`.
    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// The server's version, such as `15.14`.
    pub fn version(&self) -> &str {
        self.0.version()
    }

    /// Creates an empty database of its own for a test; `hint` makes its name readable in logs.
    pub fn database(&self, hint: &str) -> Result<Database, ServerError> {
        let name = unique_name(hint);
        sql(self.url(), &format!("create database {name}"))
            .map_err(|reason| ServerError::broken(Kind::Postgres, reason))?;
        Ok(Database { url: with_database(self.url(), &name), name, server: self.0.clone() })
    }
}

impl Database {
    /// Dumps this database and restores it as one of its own on another server.
    pub fn restore_on(&self, other: &Postgres) -> Result<Database, ServerError> {
        let broken = |reason: String| ServerError::broken(Kind::Postgres, reason);
        let restored = other.database("restored")?;
        let tool = |name: &str| program_dir().map_or(PathBuf::from(name), |dir| dir.join(name));
        let dump = run(Command::new(tool("pg_dump")).arg("--dbname").arg(&self.url));
        let dump = dump.map_err(broken)?;
        let file = tempfile::NamedTempFile::new().map_err(|error| broken(error.to_string()))?;
        fs::write(file.path(), dump).map_err(|error| broken(error.to_string()))?;
        run(Command::new(tool("psql"))
            .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file"])
            .arg(file.path())
            .arg(&restored.url))
        .map_err(broken)?;
        Ok(restored)
    }
}

impl From<&Instance> for Postgres {
    fn from(instance: &Instance) -> Self {
        Self(instance.endpoint().clone())
    }
}

/// A database that one test owns.
#[derive(Debug)]
pub struct Database {
    url: String,
    name: String,
    server: Endpoint,
}

impl Database {
    /// The superuser's address of this database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Our own server is deleted with its databases; one that was given has to be cleaned up.
        if self.server.is_given() {
            let _ = sql(
                self.server.url(),
                &format!("drop database if exists {} with (force)", self.name),
            );
        }
    }
}

/// The setting of a server that starts as an asynchronous standby of another.
const STANDBY_OF: &str = "+standby_of";

pub(super) struct Recipe;

impl recipe::Recipe for Recipe {
    fn find(&self) -> Result<Found, Missing> {
        let packages = vec!["postgresql"];
        let path = program_dir().ok_or(Missing {
            reason: "no `initdb` in PATH or /usr/lib/postgresql".into(),
            packages: packages.clone(),
        })?;
        let version = version_of(&path.join("postgres")).ok_or(Missing {
            reason: format!("{} has no working `postgres`", path.display()),
            packages,
        })?;
        if rustix::process::geteuid().is_root()
            && (on_path("setpriv").is_none() || server_user().is_none())
        {
            let reason = "PostgreSQL refuses to run as root, and there is no user `postgres` or no `setpriv`".into();
            return Err(Missing { reason, packages: vec!["postgresql", "util-linux"] });
        }
        Ok(Found { version, path })
    }

    fn prepare(&self, site: &Site) -> Result<(), String> {
        give_to_server_user(&site.dir)?;
        if let Some((_, primary)) = site.settings.iter().find(|(name, _)| name == STANDBY_OF) {
            run(unprivileged(&site.found.path.join("pg_basebackup"))
                .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", primary])
                .arg("-D")
                .arg(data(site))
                .current_dir("/"))?;
            return Ok(());
        }
        run(unprivileged(&site.found.path.join("initdb"))
            .args([
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "-D",
            ])
            .arg(data(site))
            .current_dir("/"))?;
        Ok(())
    }

    fn command(&self, site: &Site) -> Command {
        let port = site.port().to_string();
        let ours = [
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            // TCP only: the folder's path may be longer than a socket's name may be.
            ("unix_socket_directories", ""),
            ("max_connections", "200"),
            ("wal_level", "logical"),
            // Durable against a killed server, which is what tests do; not against a machine that loses power.
            ("fsync", "off"),
        ];
        let theirs = site.settings.iter().filter(|(name, _)| name != STANDBY_OF);
        let theirs = theirs.map(|(name, value)| (name.as_str(), value.as_str()));
        let mut command = unprivileged(&site.found.path.join("postgres"));
        command.arg("-D").arg(data(site));
        for (name, value) in ours.into_iter().chain(theirs) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://postgres:postgres@127.0.0.1:{port}/postgres")
    }

    fn probe(&self, url: &str) -> Result<Option<String>, String> {
        let said = sql(url, "show server_version")?;
        Ok(said.split_whitespace().next().map(str::to_owned))
    }

    fn stop_signal(&self) -> Signal {
        Signal::INT
    }

    /// Immediate shutdown: unlike SIGKILL it gives the shared memory back to the system.
    fn discard_signal(&self) -> Signal {
        Signal::QUIT
    }
}

/// Runs one statement with `psql` and returns the bare values it prints.
fn sql(url: &str, statement: &str) -> Result<String, String> {
    let psql = program_dir()
        .map(|dir| dir.join("psql"))
        .filter(|psql| is_executable(psql))
        .or_else(|| on_path("psql"))
        .ok_or("no `psql`: install Debian's postgresql-client")?;
    run(Command::new(psql)
        .args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            "--command",
            statement,
        ])
        .arg(url)
        .env("PGCONNECT_TIMEOUT", "10"))
}

/// The newest server that Debian installed, else the one in `PATH`.
fn program_dir() -> Option<PathBuf> {
    let major = |dir: &Path| dir.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
    fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|bin| is_executable(&bin.join("initdb")))
        .max_by_key(|bin| major(bin))
        .or_else(|| on_path("initdb")?.canonicalize().ok()?.parent().map(Path::to_owned))
}

/// What root has made for a server that does not run as root.
pub(crate) fn give_to_server_user(place: &Path) -> Result<(), String> {
    match server_user().filter(|_| rustix::process::geteuid().is_root()) {
        Some((user, group)) => std::os::unix::fs::chown(place, Some(user), Some(group))
            .map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

/// PostgreSQL refuses root, so root starts it as the user that the package made for it.
pub(super) fn unprivileged(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(program);
    command
}

/// User and group id of `postgres`.
fn server_user() -> Option<(u32, u32)> {
    let accounts = fs::read_to_string("/etc/passwd").ok()?;
    let account = accounts.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = account.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn data(site: &Site) -> PathBuf {
    site.dir.join("data")
}

/// A name that no other test has, in this process or another, on a server that may outlive them all.
fn unique_name(hint: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let readable: String = hint
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .take(30)
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("t_{readable}_{:x}_{now:x}_{count:x}", std::process::id())
}

/// The same server and parameters, another database.
fn with_database(url: &str, name: &str) -> String {
    let (address, parameters) = match url.split_once('?') {
        Some((address, parameters)) => (address, format!("?{parameters}")),
        None => (url, String::new()),
    };
    let authority = address.find("://").map_or(0, |at| at + 3);
    let end = address[authority..].find('/').map_or(address.len(), |at| authority + at);
    format!("{}/{name}{parameters}", &address[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_replaces_the_one_in_the_address() {
        assert_eq!(
            with_database("postgres://u:p@h:1/old?sslmode=disable", "new"),
            "postgres://u:p@h:1/new?sslmode=disable"
        );
        assert_eq!(with_database("postgres://h", "new"), "postgres://h/new");
    }

    #[test]
    fn names_differ_and_fit_into_an_identifier() {
        let hint = "A hint; with \"odd\" characters, longer than thirty";
        let (one, other) = (unique_name(hint), unique_name(hint));
        assert_ne!(one, other);
        assert!(
            one.len() < 64 && one.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
            "{one}"
        );
    }
}
