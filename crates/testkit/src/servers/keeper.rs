//! One owner of the shared servers for a run of many test programs.
//!
//! The keeper listens on a Unix socket whose path it hands to the test programs in `CHAPAR_TEST_KEEPER`. A program
//! writes one JSON line per connection and reads one back.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::guard::Guard;
use super::recipe::Signal;
use super::shared::{Shelf, given};
use super::{Endpoint, Kind, ServerError};

/// The environment variable that tells a test program where its keeper listens.
const VARIABLE: &str = "CHAPAR_TEST_KEEPER";

/// A test that did not run, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// The test's path, such as `chapar_sql::outbox::an_event_survives`.
    pub test: String,
    /// What it lacked.
    pub reason: String,
}

/// Owns the shared servers of a run; they end with it.
#[derive(Debug)]
pub struct Keeper {
    state: Arc<State>,
    socket: PathBuf,
    _guard: Guard,
    _dir: TempDir,
}

impl Keeper {
    /// Starts to listen. No server starts before a test asks for it.
    pub fn open() -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("chapar-keeper-").tempdir()?;
        let guard = Guard::over(dir.path(), Signal::KILL)?;
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket)?;
        let state = Arc::new(State {
            shelf: Mutex::new(Some(Arc::new(Shelf::new()))),
            notes: Mutex::default(),
        });
        let serving = Arc::clone(&state);
        std::thread::Builder::new().name("keeper".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&serving);
                // A client without an answer starts its own server, so a refused thread costs time, not truth.
                let _ = std::thread::Builder::new().spawn(move || state.serve(stream));
            }
        })?;
        Ok(Self { state, socket, _guard: guard, _dir: dir })
    }

    /// The environment variable, and its value, that leads a test program to this keeper.
    pub fn environment(&self) -> (&'static str, &Path) {
        (VARIABLE, &self.socket)
    }

    /// A shared server, as a test would get it.
    pub fn server(&self, kind: Kind) -> Result<Endpoint, ServerError> {
        self.state.server(kind)
    }

    /// The servers that tests used so far: one entry for each version of each server.
    pub fn used(&self) -> Vec<Endpoint> {
        let mut used = self.state.notes().used.clone();
        if let Some(shelf) = self.state.shelf() {
            used.extend(shelf.running().cloned());
        }
        used.sort_by(|one, other| identity(one).cmp(&identity(other)));
        used.dedup_by(|one, other| identity(one) == identity(other));
        used
    }

    /// The tests that were skipped since this was last asked.
    pub fn take_skips(&self) -> Vec<Skip> {
        std::mem::take(&mut self.state.notes().skips)
    }

    /// Ends the servers now; later requests get none. Dropping the keeper does the same.
    pub fn close(&self) {
        let shelf = lock(&self.state.shelf).take();
        drop(shelf);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.close();
    }
}

fn identity(server: &Endpoint) -> (Kind, &str, bool) {
    (server.kind, &server.version, server.given)
}

/// Asks the run's keeper for a server; `None` where there is no keeper.
pub(super) fn ask(kind: Kind) -> Option<Result<Endpoint, ServerError>> {
    match call(&Request::Server(kind))? {
        Ok(Reply::Server(answer)) => Some(answer),
        Ok(Reply::Noted) => None,
        Err(error) => {
            Some(Err(ServerError::broken(kind, format!("the keeper of this run is gone: {error}"))))
        }
    }
}

/// Lets the keeper list a server that it did not start. Without a keeper there is no list.
pub(super) fn report_use(endpoint: &Endpoint) {
    let _ = call(&Request::Used(endpoint.clone()));
}

/// Lets the keeper count a skipped test; `false` where there is no keeper.
pub(super) fn report_skip(skip: &Skip) -> bool {
    matches!(call(&Request::Skipped(skip.clone())), Some(Ok(_)))
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Server(Kind),
    Used(Endpoint),
    Skipped(Skip),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Server(Result<Endpoint, ServerError>),
    Noted,
}

#[derive(Debug)]
struct State {
    shelf: Mutex<Option<Arc<Shelf>>>,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    used: Vec<Endpoint>,
    skips: Vec<Skip>,
}

impl State {
    fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let reply = match serde_json::from_str(&line)? {
            Request::Server(kind) => Reply::Server(self.server(kind)),
            Request::Used(endpoint) => {
                self.note_use(endpoint);
                Reply::Noted
            }
            Request::Skipped(skip) => {
                self.notes().skips.push(skip);
                Reply::Noted
            }
        };
        let mut stream = &stream;
        writeln!(stream, "{}", serde_json::to_string(&reply)?)
    }

    fn server(&self, kind: Kind) -> Result<Endpoint, ServerError> {
        if let Some(endpoint) = given(kind) {
            let endpoint = endpoint?;
            self.note_use(endpoint.clone());
            return Ok(endpoint);
        }
        match self.shelf() {
            Some(shelf) => shelf.get(kind),
            None => Err(ServerError::broken(kind, "the run is ending")),
        }
    }

    fn note_use(&self, endpoint: Endpoint) {
        let mut notes = self.notes();
        if !notes.used.contains(&endpoint) {
            notes.used.push(endpoint);
        }
    }

    /// A copy of the handle, so that one slow start does not hold up the tests that want another server.
    fn shelf(&self) -> Option<Arc<Shelf>> {
        lock(&self.shelf).clone()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.notes)
    }
}

fn call(request: &Request) -> Option<io::Result<Reply>> {
    let socket = std::env::var_os(VARIABLE)?;
    let exchange = || {
        let mut stream = UnixStream::connect(socket)?;
        writeln!(stream, "{}", serde_json::to_string(request)?)?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    Some(exchange())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
