//! `cargo xtask servers` as a developer uses it, and as a developer's machine treats it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use chapar_testkit::servers::{Kind, Launch};
use chapar_testkit::{Browser, need};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn an_owner_killed_with_9_leaves_no_server_and_no_data_behind() {
    // The hardest ones: a server under another user, a JVM, a driver with a browser of many processes.
    let kinds = [Kind::Postgres, Kind::PubSub, Kind::Chromium];
    for kind in kinds {
        need!(Launch::of(kind).start().map(drop));
    }
    let mut owner = Owner::start(&kinds);
    let endpoint = serde_json::json!({
        "kind": "chromium", "url": owner.url(Kind::Chromium), "version": "", "given": true,
    });
    let browser =
        Browser::open(&serde_json::from_value(endpoint).expect("an endpoint")).expect("a window");

    assert!(owner.remains().len() > kinds.len(), "the servers run: {:?}", owner.remains());
    owner.process.kill().expect("the owner runs");
    owner.process.wait().expect("the owner ends");
    owner.assert_nothing_remains();
    drop(browser);
}

#[test]
fn ctrl_c_stops_the_servers() {
    need!(Launch::of(Kind::Redis).start().map(drop));
    let mut owner = Owner::start(&[Kind::Redis]);
    kill_process(Pid::from_child(&owner.process), Signal::INT).expect("the owner runs");
    let status = owner.process.wait().expect("the owner ends");
    assert_eq!(status.code(), Some(130));
    owner.assert_nothing_remains();
}

#[test]
fn a_variable_points_tests_at_a_server_that_already_runs() {
    let redis = need!(Launch::of(Kind::Redis).start());
    let mut other = Command::new(env!("CARGO_BIN_EXE_xtask"));
    other.env(Kind::Redis.variable(), redis.url());
    let listed = list(&mut other);
    assert_eq!(entry(&listed, "redis")["place"], redis.url());
    assert_eq!(entry(&listed, "redis")["version"], redis.version());
}

#[test]
fn a_variable_that_points_nowhere_is_said_to() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.env(Kind::Redis.variable(), "redis://127.0.0.1:1");
    let listed = list(&mut command);
    let said = entry(&listed, "redis")["missing"].to_string();
    assert!(said.contains("CHAPAR_TEST_REDIS=redis://127.0.0.1:1 does not answer"), "{said}");
}

#[test]
fn a_missing_server_is_named_with_what_to_install() {
    let nowhere = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.env("PATH", nowhere.path()).env("CHAPAR_CACHE", nowhere.path());
    let listed = list(&mut command);
    for (server, package) in
        [("redis", "redis-server"), ("prometheus", "prometheus"), ("kafka", "maven")]
    {
        let said = entry(&listed, server)["missing"].to_string();
        assert!(said.contains(&format!("{server} is missing")) && said.contains(package), "{said}");
    }
}

#[test]
fn an_unknown_server_is_refused_with_the_known_ones() {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["servers", "start", "oracle"])
        .output()
        .expect("xtask runs");
    let said = String::from_utf8_lossy(&stderr);
    assert!(!status.success() && said.contains("postgres, nats, kafka"), "{said}");
}

/// `cargo xtask servers start`, with its temporary files in a folder of its own, by which whatever it leaves is known.
struct Owner {
    process: Child,
    folder: tempfile::TempDir,
    exports: Vec<String>,
}

impl Owner {
    fn start(kinds: &[Kind]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("chapar-owner-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir()
            .expect("a folder");
        let mut process = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["servers", "start"])
            .args(kinds.iter().map(|kind| kind.name()))
            .env("TMPDIR", folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("xtask runs");
        let lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let exports: Vec<String> =
            lines.take(kinds.len()).map(|line| line.expect("a line")).collect();
        assert_eq!(exports.len(), kinds.len(), "{exports:?}");
        Self { process, folder, exports }
    }

    fn url(&self, kind: Kind) -> &str {
        let prefix = format!("export {}=", kind.variable());
        self.exports.iter().find_map(|line| line.strip_prefix(&prefix)).expect("its address")
    }

    /// Living processes that work in, or were started for, the owner's folder; and what lies in it.
    fn remains(&self) -> Vec<String> {
        let marker = self.folder.path().display().to_string();
        let processes =
            std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        let living = processes
            .filter(|process| belongs_to(process, &marker))
            .map(|path| path.display().to_string());
        let files = std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        living.chain(files.map(|file| file.path().display().to_string())).collect()
    }

    fn assert_nothing_remains(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.remains().is_empty() {
            assert!(Instant::now() < deadline, "left behind: {:?}", self.remains());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A zombie has no command line, no environment and no folder, so it has no owner.
fn belongs_to(process: &Path, marker: &str) -> bool {
    let folder: PathBuf = std::fs::read_link(process.join("cwd")).unwrap_or_default();
    let mentions = |file: &str| {
        let bytes = std::fs::read(process.join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(marker)
    };
    folder.starts_with(marker) || mentions("cmdline") || mentions("environ")
}

fn list(command: &mut Command) -> serde_json::Value {
    let output = command.args(["servers", "--format", "json"]).output().expect("xtask runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn entry<'a>(listed: &'a serde_json::Value, server: &str) -> &'a serde_json::Value {
    let entries = listed.as_array().expect("a list");
    entries.iter().find(|entry| entry["server"] == server).expect("the server's entry")
}
