//! `chapar push` as separate processes, to `chapar dev receive` and to the receivers of the guide.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chapar_core::webhook::Secrets;
use chapar_testkit::servers::{self, Kind, Launch, free_port};
use chapar_testkit::{http, need};
use serde_json::Value;

const TOPIC: &str = "melmastoon.reservation.booking.modified.v1";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_c2VjcmV0LW9mLWEtcm90YXRlZC1lbmRwb2ludA==";
const LIMIT: Duration = Duration::from_secs(60);

fn chapar(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    command.args(args).stdin(Stdio::null());
    command
}

/// A process of ours that says its address, on whichever of its outputs, and is gone with this value.
struct Process {
    child: Child,
    address: String,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::new(Mutex::new(Vec::new()));
        let outputs: [(Box<dyn Read + Send>, _); 2] = [
            (Box::new(child.stdout.take().unwrap()), lines.clone()),
            (Box::new(child.stderr.take().unwrap()), said.clone()),
        ];
        for (output, kept) in outputs {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    kept.lock().unwrap().push(line);
                }
            });
        }
        let mut process = Process { child, address: String::new(), lines };
        eventually("it says its address", || {
            let all: Vec<String> =
                [&process.lines, &said].iter().flat_map(|l| l.lock().unwrap().clone()).collect();
            if let Some(status) = process.child.try_wait().unwrap() {
                panic!("it ended with {status}: {all:?}");
            }
            // Of a push it is the last, that of its health.
            let own =
                |line: &&String| line.contains("http://127.0.0.1:") && !line.contains("  to  ");
            let Some(line) = all.iter().find(own) else { return false };
            let (_, rest) = line.split_once("http://").unwrap();
            let end = rest.find(['/', ',']).unwrap_or(rest.len());
            process.address = format!("http://{}", &rest[..end]);
            true
        });
        process
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn terminate(mut self) {
        self.signal("-TERM");
        assert!(self.child.wait().unwrap().success(), "it drains and ends well");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A store with a relay beside it, and a folder for the secret.
struct Place {
    database: servers::Database,
    folder: tempfile::TempDir,
    secret: String,
    _relay: Process,
}

impl Place {
    fn open(server: &servers::Postgres, name: &str) -> Self {
        Self::over(server, name, "sql:")
    }

    fn over(server: &servers::Postgres, name: &str, transport: &str) -> Self {
        Self::stamped(server, name, transport, &[])
    }

    /// Its relay stamps the events of some topics with their order.
    fn stamped(server: &servers::Postgres, name: &str, transport: &str, topics: &[&str]) -> Self {
        let database = server.database(name).unwrap();
        let store = database.url();
        assert!(chapar(&["migrate", "apply", "--store", store]).status().unwrap().success());
        let mut relay = chapar(&["relay", "--store", store, "--profile", "melmastoon"]);
        relay.args(["--listen", "127.0.0.1:0", "--transport", transport]);
        relay.args(topics.iter().flat_map(|topic| ["--stamp", topic]));
        let relay = Process::start(&mut relay);
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret").display().to_string();
        std::fs::write(&secret, format!("# of the tests\n{SECRET}\n")).unwrap();
        Place { database, folder, secret, _relay: relay }
    }

    fn push(&self, to: &str, more: &[&str]) -> Process {
        let store = self.database.url();
        let args = [
            "push",
            "--store",
            store,
            "--profile",
            "melmastoon",
            "--subscription",
            "billing-service.changes",
            "--topic",
            TOPIC,
            "--to",
            to,
            "--secret-file",
            &self.secret,
            "--listen",
            "127.0.0.1:0",
            "--min-backoff",
            "50ms",
            "--max-backoff",
            "200ms",
            "--timeout",
            "5s",
        ];
        Process::start(&mut chapar(&[&args[..], more].concat()))
    }

    fn receive(&self, more: &[&str]) -> Process {
        let args = ["dev", "receive", "--listen", "127.0.0.1:0", "--secret-file", &self.secret];
        Process::start(&mut chapar(&[&args[..], &["--format", "json"], more].concat()))
    }

    fn ask(&self, sql: &str) -> String {
        let output = Command::new("psql").args([self.database.url(), "-Atqc", sql]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Commits events `from..=to` of ten keys, each key in ascending order.
    fn emit(&self, from: u32, to: u32) {
        self.emit_on(&[TOPIC], from, to);
    }

    /// The same, each event on the next of some topics.
    fn emit_on(&self, topics: &[&str], from: u32, to: u32) {
        let (list, count) = (topics.join("','"), topics.len());
        self.ask(&format!(
            "select set_config('app.tenant_id', 'acme', false); \
             select count(chapar.emit((array['{list}'])[1 + i % {count}], 'acme', 'k' || (i % 10), jsonb_build_object('n', i), \
             'i' || i)) from generate_series({from}, {to}) i"
        ));
    }

    fn applied(&self) -> String {
        self.ask("select count(*) from chapar.inbox where consumer = 'billing-service.changes'")
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIMIT, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// What a receiver has applied, by key: each once, and in order.
fn assert_each_once_and_in_order(numbers: &[i64], count: i64) {
    let mut keys: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for n in numbers {
        keys.entry(n % 10).or_default().push(*n);
    }
    for (key, numbers) in &keys {
        let expected: Vec<i64> = (1..=count).filter(|n| n % 10 == *key).collect();
        assert_eq!(numbers, &expected, "key k{key}");
    }
    assert_eq!(numbers.len() as i64, count);
}

fn received(receiver: &Process, outcome: &str) -> Vec<i64> {
    let lines = receiver.lines.lock().unwrap();
    let parsed = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let wanted = parsed.filter(|line| line["outcome"] == outcome);
    wanted.map(|line| line["payload"]["n"].as_i64().unwrap()).collect()
}

#[test]
fn two_processes_push_in_order_to_a_failing_service_and_one_is_killed() {
    let server = need!(servers::postgres());
    let place = Place::open(&server, "push_two");
    let receiver = place.receive(&["--fail-every", "7", "--status", "503"]);
    let one = place.push(&receiver.address, &[]);
    let other = place.push(&receiver.address, &[]);
    place.emit(1, 150);
    eventually("some are applied", || !received(&receiver, "applied").is_empty());
    drop(one);
    place.emit(151, 300);
    eventually("all are applied", || place.applied() == "300");
    assert_each_once_and_in_order(&received(&receiver, "applied"), 300);
    assert!(received(&receiver, "failed").len() >= 42);
    assert_eq!(place.ask("select count(*) from chapar.dead_letters"), "0");
    let metrics = http("GET", &format!("{}/metrics", other.address), None).unwrap().text();
    assert!(metrics.contains("melmastoon_events_consumed_total "), "{metrics}");
    assert_eq!(http("GET", &format!("{}/readyz", other.address), None).unwrap().status, 200);
    other.terminate();
    receiver.terminate();
}

#[test]
fn what_a_broker_carries_is_pushed_as_well() {
    let server = need!(servers::postgres());
    // Its own, since the topics are those of other tests too.
    let nats = need!(Launch::of(Kind::Nats).start());
    let url = nats.url();
    let place = Place::over(&server, "push_nats", url);
    let receiver = place.receive(&["--fail-every", "5"]);
    let push = place.push(&receiver.address, &["--transport", url]);
    place.emit(1, 50);
    eventually("all are applied", || place.applied() == "50");
    assert_each_once_and_in_order(&received(&receiver, "applied"), 50);
    push.terminate();
}

/// The topics of a booking know nothing of one another in Pub/Sub: the stamps of the relay carry
/// the order. A process that was frozen wakes up with events that others have pushed since.
#[cfg(feature = "pubsub")]
#[test]
fn three_topics_over_pubsub_keep_their_order_while_one_process_is_killed_and_one_frozen() {
    const TOPICS: [&str; 3] = [
        TOPIC,
        "melmastoon.reservation.booking.held.v1",
        "melmastoon.reservation.booking.confirmed.v1",
    ];
    let server = need!(servers::postgres());
    let pubsub = need!(Launch::of(Kind::PubSub).start());
    let url = format!("pubsub://push-order?emulator={}&lease=3", pubsub.url());
    let place = Place::stamped(&server, "push_pubsub", &url, &TOPICS);
    let receiver = place.receive(&["--fail-every", "11", "--status", "503"]);
    let more = ["--transport", &url, "--topic", TOPICS[1], "--topic", TOPICS[2]];
    let [victim, sleeper, heir] = [(); 3].map(|()| place.push(&receiver.address, &more));
    let applied = || received(&receiver, "applied").len();
    place.emit_on(&TOPICS, 1, 200);
    eventually("some are applied", || applied() > 20);
    sleeper.signal("-STOP");
    place.emit_on(&TOPICS, 201, 400);
    eventually("more are applied", || applied() > 100);
    drop(victim);
    place.emit_on(&TOPICS, 401, 500);
    eventually("the heir has what they had", || applied() > 400);
    sleeper.signal("-CONT");
    place.emit_on(&TOPICS, 501, 600);
    eventually("all are applied", || place.applied() == "600");
    assert_each_once_and_in_order(&received(&receiver, "applied"), 600);
    assert_eq!(place.ask("select count(*) from chapar.dead_letters"), "0");
    sleeper.terminate();
    heir.terminate();
}

#[test]
fn a_service_that_refuses_an_event_gets_it_once_and_the_rest_of_its_key_waits() {
    let server = need!(servers::postgres());
    let place = Place::open(&server, "push_422");
    let receiver = place.receive(&["--status", "422"]);
    let push = place.push(&receiver.address, &[]);
    place.emit(1, 20);
    let letters = "select count(*) from chapar.dead_letters where error like '%answered 422%'";
    eventually("each key has a letter", || place.ask(letters) == "10");
    eventually("the others wait", || place.ask("select count(*) from chapar.parked") == "10");
    assert_eq!(received(&receiver, "failed").len(), 10);
    push.terminate();
}

#[test]
fn a_secret_is_changed_by_signing_with_both() {
    let server = need!(servers::postgres());
    let place = Place::open(&server, "push_rotate");
    let receiver = place.receive(&[]);
    std::fs::write(&place.secret, format!("{OTHER_SECRET}\n")).unwrap();
    let wrong = place.push(&receiver.address, &["--attempts", "1000"]);
    place.emit(1, 1);
    let refused = || {
        let lines = receiver.lines.lock().unwrap();
        lines.iter().any(|line| line.contains("no signature fits") && line.contains("401"))
    };
    eventually("the other secret is refused", refused);
    assert_eq!(place.ask("select count(*) from chapar.dead_letters"), "0", "401 is tried again");
    wrong.terminate();
    std::fs::write(&place.secret, format!("{OTHER_SECRET}\n{SECRET}\n")).unwrap();
    let both = place.push(&receiver.address, &[]);
    eventually("one of the signatures fits", || place.applied() == "1");
    both.terminate();
}

#[test]
fn a_wrong_set_up_is_refused_with_words_and_without_the_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (secret, bad) = (file("secret", SECRET), file("bad", "whsec_c2hvcnQ="));
    let store = format!("sqlite:{}", folder.path().join("push.db").display());
    assert!(chapar(&["migrate", "apply", "--store", &store]).status().unwrap().success());
    let base = ["push", "--store", &store, "--profile", "melmastoon", "--listen", "127.0.0.1:0"];
    let full = |topic, to, secret| {
        ["--subscription", "b.c", "--topic", topic, "--to", to, "--secret-file", secret]
    };
    let to = "http://127.0.0.1:1";
    let cases: [(&[&str], &str); 9] = [
        (&[], "--subscription NAME"),
        (&["--subscription", "b.c"], "--topic TOPIC"),
        (&full("hotel.x", to, &secret), "--topic hotel.x"),
        (&full(TOPIC, "127.0.0.1:8080", &secret), "write it as http://host:port"),
        (&full(TOPIC, "http://me:geheim@x", &secret), "leave the login out"),
        (&full(TOPIC, to, &bad), "line 1 is no secret"),
        (&full(TOPIC, to, "/nowhere"), "cannot be read"),
        (&[&full(TOPIC, to, &secret)[..], &["--calls", "0"]].concat(), "use 1 to 256"),
        (&[&full(TOPIC, to, &secret)[..], &["--min-backoff", "1h"]].concat(), "longer than"),
    ];
    for (args, expected) in cases {
        let output = chapar(&[&base[..], args].concat()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
        assert!(!said.contains("c2hvcnQ") && !said.contains("geheim"), "{said}");
    }
    for args in [&["--status", "99"][..], &["--fail-every", "0"], &["--listen", "here"]] {
        let receive = ["dev", "receive", "--secret-file", &secret];
        let output = chapar(&[&receive[..], args].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
    }
}

#[test]
fn the_configuration_file_says_what_flags_do_not() {
    let server = need!(servers::postgres());
    let place = Place::open(&server, "push_file");
    let receiver = place.receive(&[]);
    let config = place.folder.path().join("billing.toml");
    let (to, secret) = (&receiver.address, &place.secret);
    let text = format!(
        "[push]\nsubscription = \"billing-service.changes\"\ntopics = [\"{TOPIC}\"]\n\
         to = \"{to}\"\nsecret_file = \"{secret}\"\nmin_backoff_seconds = 0.1\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = config.display().to_string();
    let push = Process::start(&mut chapar(&[
        "push",
        "--store",
        place.database.url(),
        "--profile",
        "melmastoon",
        "--config",
        &config,
        "--listen",
        "127.0.0.1:0",
    ]));
    place.emit(1, 5);
    eventually("all are applied", || place.applied() == "5");
    push.terminate();
}

/// Sends a signed message by hand, and reads the status and the body of the answer.
fn post(
    address: &str,
    id: &str,
    timestamp: i64,
    signed: &[u8],
    sent: &[u8],
    secret: &str,
) -> (u16, String) {
    let secrets: Secrets = secret.parse().unwrap();
    let signature = secrets.sign(id, &timestamp.to_string(), signed);
    let authority = address.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(authority).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(
        stream,
        "POST /internal/events/reservation.booking.modified.v1 HTTP/1.1\r\nHost: {authority}\r\n\
         Connection: close\r\nContent-Type: application/json\r\nwebhook-id: {id}\r\n\
         webhook-timestamp: {timestamp}\r\nwebhook-signature: {signature}\r\nContent-Length: {}\r\n\r\n",
        sent.len()
    )
    .unwrap();
    stream.write_all(sent).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

/// What every receiver must reject.
fn assert_turns_liars_away(address: &str) {
    let now = jiff::Timestamp::now().as_second();
    let body = br#"{"payload":{"n":0}}"#;
    assert_eq!(post(address, "liar-1", now, body, body, SECRET).0, 200);
    assert_eq!(post(address, "liar-1", now + 1, body, body, SECRET).0, 200, "a later attempt");
    let other = br#"{"payload":{"n":9}}"#;
    for (what, (status, answer)) in [
        ("forged", post(address, "liar-2", now, body, body, OTHER_SECRET)),
        ("changed on the way", post(address, "liar-2", now, body, other, SECRET)),
        ("replayed", post(address, "liar-1", now, body, body, SECRET)),
        ("another body under the id", post(address, "liar-1", now + 2, other, other, SECRET)),
        ("stale", post(address, "liar-2", now - 310, body, body, SECRET)),
        ("of the future", post(address, "liar-2", now + 310, body, body, SECRET)),
    ] {
        assert_eq!(status, 401, "{what}: {answer}");
    }
}

#[test]
fn the_receiver_on_ones_own_machine_turns_liars_away() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let args = ["dev", "receive", "--listen", "127.0.0.1:0", "--secret-file"];
    let receiver =
        Process::start(&mut chapar(&[&args[..], &[&secret.display().to_string()]].concat()));
    assert_turns_liars_away(&receiver.address);
    // They come through a pipe, after the answers.
    eventually("it prints what it did", || {
        let lines = receiver.lines.lock().unwrap().join("\n");
        lines.contains("401 refused") && lines.contains("200 duplicate")
    });
}

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/push").join(path)
}

/// Whether a language is on this machine. It is no server of the tests and nothing here installs
/// it, so that without it the test is skipped by name.
fn speaks(language: &str, probe: &[&str], test: &str) -> bool {
    let output = Command::new(probe[0]).args(&probe[1..]).output();
    let found = output.is_ok_and(|output| output.status.success());
    if !found {
        // Past libtest's capture, which would hide it.
        let _ = writeln!(std::io::stderr(), "skipped push::{test}: {language} is missing");
    }
    found
}

/// Runs a receiver against `chapar push`, kills it half-way, and starts it again on its port.
fn try_receiver(
    name: &str,
    start: impl Fn(u16, &str, &str) -> Command,
    read: fn(&str) -> Vec<i64>,
) {
    let server = match servers::postgres() {
        Ok(server) => server,
        Err(error) => return servers::skip(name, &error),
    };
    let place = Place::open(&server, &format!("push_{name}"));
    let kept = place.folder.path().join("kept").display().to_string();
    // A port that was free a moment ago, since the receiver must come back to it.
    let port = free_port().unwrap();
    let receiver = Process::start(&mut start(port, &place.secret, &kept));
    let push = place.push(&receiver.address, &["--attempts", "100"]);
    place.emit(1, 60);
    eventually("some are applied", || read(&kept).len() > 5);
    drop(receiver);
    place.emit(61, 100);
    let receiver = Process::start(&mut start(port, &place.secret, &kept));
    eventually("all are applied", || place.applied() == "100");
    assert_each_once_and_in_order(&read(&kept), 100);
    push.terminate();
    assert_turns_liars_away(&receiver.address);
}

/// The numbers in a journal of JSON lines.
fn journal(kept: &str) -> Vec<i64> {
    let text = std::fs::read_to_string(kept).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| line["payload"]["n"].as_i64()).filter(|n| *n > 0).collect()
}

#[test]
fn a_receiver_in_python_applies_each_event_once_and_in_order() {
    let test = "a_receiver_in_python_applies_each_event_once_and_in_order";
    if !speaks("python3", &["python3", "-c", "import sqlite3"], test) {
        return;
    }
    fn python(port: u16, secret: &str, kept: &str) -> Command {
        let mut command = Command::new("python3");
        command.arg(example("python/receiver.py")).args([&port.to_string(), secret, kept]);
        command
    }
    fn read(kept: &str) -> Vec<i64> {
        let script = "import json, sqlite3, sys\n\
            rows = sqlite3.connect(sys.argv[1]).execute('select payload from applied order by n')\n\
            print([json.loads(payload)['n'] for payload, in rows])";
        let output = Command::new("python3").args(["-c", script, kept]).output().unwrap();
        let numbers: Vec<i64> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        numbers.into_iter().filter(|n| *n > 0).collect()
    }
    try_receiver("python", python, read);
}

#[test]
fn a_receiver_in_go_applies_each_event_once_and_in_order() {
    let test = "a_receiver_in_go_applies_each_event_once_and_in_order";
    if !speaks("go", &["go", "version"], test) {
        return;
    }
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join("receiver");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(example("go"));
    let output = build.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let go = |port: u16, secret: &str, kept: &str| {
        let mut command = Command::new(&program);
        command.args([&port.to_string(), secret, kept]);
        command
    };
    try_receiver("go", go, journal);
}

#[test]
fn a_receiver_in_typescript_applies_each_event_once_and_in_order() {
    let test = "a_receiver_in_typescript_applies_each_event_once_and_in_order";
    if !speaks("node with npm", &["npm", "--version"], test) {
        return;
    }
    let built = tempfile::tempdir().unwrap();
    let program = compile(built.path());
    let node = |port: u16, secret: &str, kept: &str| {
        let mut command = Command::new("node");
        command.arg(&program).args([&port.to_string(), secret, kept]);
        command
    };
    try_receiver("typescript", node, journal);
}

/// Checks and compiles the receiver; a Node that strips types would not check them.
fn compile(into: &Path) -> PathBuf {
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    };
    let cache = servers::npm_packages("typescript").unwrap();
    let compiler = cache.join("node_modules/typescript/bin/tsc");
    run(Command::new("node")
        .arg(compiler)
        .arg("--project")
        .arg(example("typescript"))
        .arg("--typeRoots")
        .arg(cache.join("node_modules/@types"))
        .arg("--outDir")
        .arg(into));
    into.join("receiver.mjs")
}
