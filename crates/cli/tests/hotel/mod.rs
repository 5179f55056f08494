//! The real program on a store of its own, whose tables are read independently.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use chapar_testkit::servers;
use serde_json::Value;

pub(crate) struct Hotel {
    store: String,
    file: Option<PathBuf>,
    _place: Box<dyn std::any::Any>,
}

pub(crate) struct Running {
    child: Child,
    errors: mpsc::Receiver<String>,
}

impl Hotel {
    pub(crate) fn on_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hotel = Self::at(&folder.path().join("hotel.db"));
        Hotel { _place: Box::new(folder), ..hotel }
    }

    /// On a file in the caller's folder.
    pub(crate) fn at(file: &Path) -> Self {
        let store = format!("sqlite:{}", file.display());
        Hotel { store, file: Some(file.to_owned()), _place: Box::new(()) }
    }

    pub(crate) fn on_postgres(server: &servers::Postgres) -> Self {
        let database = server.database("hotel").unwrap();
        Hotel { store: database.url().to_owned(), file: None, _place: Box::new(database) }
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_chapar"))
            .args(["up", "--listen", "127.0.0.1:0", "--store", &self.store])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Keep reading, or the program would block on a full pipe.
        let (send, errors) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).for_each(|line| drop(send.send(line)));
        });
        Running { child, errors }
    }

    /// Runs without new bookings until nothing is on its way; returns the report. On a slow
    /// machine one run may not be enough: the leases of the dead must run out first.
    pub(crate) fn finish(&self) -> Value {
        self.finish_with(&[])
    }

    /// Whatever was on its way at the end of a run arrives. What a process had taken when it was
    /// killed comes only when the broker no longer waits for it.
    pub(crate) fn arrives(&self, report: &Value, transport: &str) {
        if report["in_flight"] != 0 {
            let finished = self.finish_with(&["--transport", transport]);
            assert_eq!(finished["in_flight"], 0, "{finished:#}");
            assert_eq!(finished["lost"], 0, "{finished:#}");
        }
    }

    /// The same with other arguments, such as a transport.
    pub(crate) fn finish_with(&self, args: &[&str]) -> Value {
        let mut report = Value::Null;
        let args = [args, &["--rate", "0", "--for", "6s", "--format", "json"]].concat();
        for _ in 0..20 {
            report = self.start(&args).report();
            if report["in_flight"] == 0 && report["audit"]["sagas_open"] == 0 {
                break;
            }
        }
        report
    }

    /// The URL of its store.
    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    /// Waits until so many more events have reached the last of its services.
    pub(crate) fn wait_for_more(&self, facts: i64) {
        let count = || self.books().ask("select count(*) from analytics_facts");
        let count = || count().parse::<i64>().unwrap();
        let (wanted, limit) = (count() + facts, Instant::now() + Duration::from_secs(120));
        while count() < wanted {
            assert!(Instant::now() < limit, "the hotel does not get going");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn books(&self) -> Books {
        Books { store: self.store.clone(), file: self.file.clone() }
    }
}

impl Running {
    /// Waits until it has announced its console; returns the address.
    pub(crate) fn wait_until_ready(&mut self) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.errors.recv_timeout(Duration::from_secs(60)) {
            if let Some((_, address)) = line.split_once("console  ") {
                return address.trim().to_owned();
            }
            seen.push(line);
        }
        panic!("it did not start:\n{}", seen.join("\n"));
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ctrl-C, and then the report.
    pub(crate) fn interrupt(self) -> Value {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success());
        self.report()
    }

    pub(crate) fn report(mut self) -> Value {
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let status = self.child.wait().unwrap();
        let errors: Vec<String> = self.errors.iter().collect();
        assert!(status.success(), "{status}: {text}\n{}", errors.join("\n"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Drop for Running {
    /// A failed test leaves no process behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the tables say, asked by the databases' own programs: no code of ours in between.
pub(crate) struct Books {
    store: String,
    file: Option<PathBuf>,
}

impl Books {
    pub(crate) fn check(&self) {
        for (rule, query) in RULES {
            assert_eq!(self.ask(query), "0", "{rule}");
        }
    }

    pub(crate) fn ask(&self, query: &str) -> String {
        let output = match &self.file {
            Some(file) => Command::new("python3")
                .args(["-c", SQLITE, &file.display().to_string(), query])
                .output(),
            None => Command::new("psql").args([&self.store, "-Atqc", query]).output(),
        };
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Books {
    /// Changes something behind the hotel's back.
    pub(crate) fn run(&self, statement: &str) {
        let output = match &self.file {
            Some(file) => Command::new("python3")
                .args(["-c", SQLITE_RUN, &file.display().to_string(), statement])
                .output(),
            None => Command::new("psql").args([&self.store, "-Atqc", statement]).output(),
        };
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

const SQLITE_RUN: &str = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); \
    db.execute(sys.argv[2]); db.commit()";

const SQLITE: &str =
    "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone()[0])";

const RULES: &[(&str, &str)] = &[
    (
        "a room was sold twice for one night",
        "select count(*) from (select 1 from reservations a join reservations b \
         on a.tenant = b.tenant and a.property = b.property and a.room = b.room and a.id < b.id \
         and a.first_night < b.first_night + b.nights and b.first_night < a.first_night + a.nights \
         where a.state like 'confirmed%' and b.state like 'confirmed%') x",
    ),
    (
        "a confirmed booking lacks its room",
        "select count(*) from reservations r where state like 'confirmed%' and nights <> \
         (select count(*) from inventory_allocations a where a.tenant = r.tenant and a.reservation = r.id)",
    ),
    (
        "a cancelled booking keeps a room",
        "select count(*) from reservations r join inventory_allocations a \
         on a.tenant = r.tenant and a.reservation = r.id where r.state = 'cancelled'",
    ),
    (
        "a folio does not balance",
        "select count(*) from (select 1 from billing_ledger group by tenant, folio having sum(amount_minor) <> 0) x",
    ),
    (
        "a confirmed booking has not exactly one folio",
        "select count(*) from reservations r where state like 'confirmed%' and 1 <> \
         (select count(*) from billing_folios f where f.tenant = r.tenant and f.reservation = r.id)",
    ),
    (
        "a fact was applied twice",
        "select count(*) from (select 1 from analytics_facts group by event_id having count(*) > 1) x",
    ),
    (
        "a payment was captured twice",
        "select count(*) from (select 1 from payment_captures group by tenant, reservation having count(*) > 1) x",
    ),
    (
        "a key was issued twice",
        "select count(*) from (select 1 from lock_keys group by tenant, reservation having count(*) > 1) x",
    ),
    (
        "a booking is still held",
        "select count(*) from reservations where state not like 'confirmed%' and state <> 'cancelled'",
    ),
];
