//! A running server that one owner holds.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::guard::Guard;
use super::ports::free_ports;
use super::recipe::{Recipe, Signal, Site, tail};
use super::{Endpoint, Kind, ServerError};
use super::{keeper, obtain};

/// Long enough for a JVM on a busy machine with two cores.
const READY_WITHIN: Duration = Duration::from_secs(90);
const STOPPED_WITHIN: Duration = Duration::from_secs(20);

/// A server about to be started for one test alone.
///
/// ```no_run
/// use chapar_testkit::servers::{Kind, Launch};
///
/// let mut postgres = Launch::of(Kind::Postgres).setting("fsync", "on").start()?;
/// postgres.kill();
/// postgres.restart()?;
/// # Ok::<(), chapar_testkit::servers::ServerError>(())
/// ```
#[derive(Clone)]
pub struct Launch {
    pub(super) recipe: &'static dyn Recipe,
    kind: Kind,
    settings: Vec<(String, String)>,
}

impl Launch {
    /// The server with the settings that shared ones have.
    pub fn of(kind: Kind) -> Self {
        Self { recipe: kind.recipe(), kind, settings: Vec::new() }
    }

    /// Adds a setting in the server's own words: a PostgreSQL parameter (`fsync` is off unless set;
    /// `+standby_of` with the address of another server makes an asynchronous standby), a line of the NATS
    /// configuration (`jetstream.` in front puts it into that block), a Kafka property (`+listener` adds a
    /// listener `NAME PROTOCOL PORT ADVERTISED`, `+scram` a user), a Redis directive. For Prometheus it is a scrape job
    /// and its target.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Starts it and returns when it serves clients.
    pub fn start(self) -> Result<Instance, ServerError> {
        let Launch { recipe, kind, settings } = self;
        let found = recipe.find().map_err(|missing| obtain::missing(kind, missing))?;
        let broken = |what: &str, error: std::io::Error| {
            ServerError::broken(kind, format!("{what}: {error}"))
        };

        // A port is free when it is chosen, not when the server binds it: lose that race at most twice.
        let mut attempts = 3;
        loop {
            attempts -= 1;
            let dir = tempfile::Builder::new()
                .prefix(&format!("chapar-{kind}-"))
                .tempdir()
                .map_err(|error| broken("no temporary folder", error))?;
            let site = Site {
                dir: dir.path().to_owned(),
                ports: free_ports(recipe.ports()).map_err(|error| broken("no free port", error))?,
                settings: settings.clone(),
                found: found.clone(),
            };
            let guard = Guard::over(dir.path(), recipe.discard_signal())
                .map_err(|error| broken("no guard", error))?;
            let endpoint = Endpoint {
                kind,
                url: recipe.url(site.port()),
                version: found.version.clone(),
                given: false,
            };
            let mut instance = Instance { recipe, endpoint, site, server: None, guard, _dir: dir };
            instance
                .recipe
                .prepare(&instance.site)
                .map_err(|reason| ServerError::broken(kind, reason))?;
            match instance.run(READY_WITHIN) {
                Ok(()) => {
                    keeper::report_use(&instance.endpoint);
                    return Ok(instance);
                }
                Err(Stumble::PortTaken(_)) if attempts > 0 => {}
                Err(stumble) => return Err(ServerError::broken(kind, stumble.reason())),
            }
        }
    }
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launch").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A running server; it is ended and its data removed when this value is dropped.
pub struct Instance {
    recipe: &'static dyn Recipe,
    endpoint: Endpoint,
    site: Site,
    server: Option<Child>,
    guard: Guard,
    // Last, so that the folder is deleted after the guard has ended the processes that write to it.
    _dir: TempDir,
}

impl Instance {
    /// Where it answers; the same after a restart.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The address in the form that the server's clients expect.
    pub fn url(&self) -> &str {
        self.endpoint.url()
    }

    /// The server's version.
    pub fn version(&self) -> &str {
        self.endpoint.version()
    }

    /// The process id of the running server.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    /// Crashes the server as `kill -9` does and returns when it is gone. Its data stays.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Shuts the server down cleanly and waits for that. Its data stays.
    pub fn stop(&mut self) {
        self.end(self.recipe.stop_signal());
    }

    /// Starts the server again, on the same port and data, after stopping it if it runs.
    pub fn restart(&mut self) -> Result<(), ServerError> {
        self.stop();
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            match self.run(deadline.saturating_duration_since(Instant::now())) {
                Ok(()) => return Ok(()),
                // What the crashed server held is given back within moments.
                Err(Stumble::PortTaken(_)) if Instant::now() < deadline => pause(),
                Err(stumble) => {
                    return Err(ServerError::broken(self.endpoint.kind, stumble.reason()));
                }
            }
        }
    }

    /// The last lines that the server printed.
    pub fn log(&self) -> String {
        let text = fs::read(self.log_file()).unwrap_or_default();
        tail(&String::from_utf8_lossy(&text), 30)
    }

    fn run(&mut self, patience: Duration) -> Result<(), Stumble> {
        let failed =
            |what: &str, error: std::io::Error| Stumble::Failed(format!("{what}: {error}"));
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())
            .map_err(|error| failed("no log file", error))?;
        let printed_before = log.metadata().map(|meta| meta.len()).unwrap_or(0);
        let errors: File = log.try_clone().map_err(|error| failed("no log file", error))?;
        let mut command = self.recipe.command(&self.site);
        command.stdin(Stdio::null()).stdout(log).stderr(errors).current_dir(&self.site.dir);
        let server =
            self.guard.spawn(&mut command).map_err(|error| failed("it did not start", error))?;
        self.server = Some(server);
        self.until_ready(patience, printed_before)
    }

    fn until_ready(&mut self, patience: Duration, printed_before: u64) -> Result<(), Stumble> {
        let deadline = Instant::now() + patience;
        loop {
            let answer = self.recipe.probe(&self.endpoint.url);
            if let Some(status) = self.ended() {
                return Err(self.stumble(
                    &format!("it ended with {status} before it was ready"),
                    printed_before,
                ));
            }
            match answer {
                Ok(version) => {
                    if let Some(version) = version {
                        self.endpoint.version = version;
                    }
                    return Ok(());
                }
                Err(reason) if Instant::now() > deadline => {
                    let stumble = self.stumble(
                        &format!("not ready after {patience:?}: {reason}"),
                        printed_before,
                    );
                    self.end(Signal::KILL);
                    return Err(stumble);
                }
                Err(_) => pause(),
            }
        }
    }

    fn ended(&mut self) -> Option<String> {
        let status = self.server.as_mut()?.try_wait().ok().flatten()?;
        self.server = None;
        Some(status.to_string())
    }

    fn stumble(&self, reason: &str, printed_before: u64) -> Stumble {
        let text = fs::read(self.log_file()).unwrap_or_default();
        let start = usize::try_from(printed_before).unwrap_or(0).min(text.len());
        let log = tail(&String::from_utf8_lossy(&text[start..]), 30);
        let said = log.to_lowercase();
        let reason = format!("{reason}; its log ends with\n{log}");
        if said.contains("in use") { Stumble::PortTaken(reason) } else { Stumble::Failed(reason) }
    }

    fn end(&mut self, signal: Signal) {
        if let Some(mut server) = self.server.take() {
            self.guard.end(&mut server, signal, STOPPED_WITHIN);
        }
    }

    fn log_file(&self) -> PathBuf {
        self.site.dir.join("server.log")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.end(self.recipe.discard_signal());
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("endpoint", &self.endpoint)
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

/// Why one start failed.
enum Stumble {
    /// A port, or the shared memory of a server that has just crashed, was still in use.
    PortTaken(String),
    Failed(String),
}

impl Stumble {
    fn reason(self) -> String {
        match self {
            Stumble::PortTaken(reason) | Stumble::Failed(reason) => reason,
        }
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}
