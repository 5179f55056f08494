//! Slips of operators: a mistyped path, a forgotten flag, an exported variable, a missing right.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use chapar_testkit::{need, servers};

fn chapar(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    for name in ["CHAPAR_STORE", "CHAPAR_FILE", "CHAPAR_TRANSPORT", "DATABASE_URL"] {
        command.env_remove(name);
    }
    command
}

fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn run(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = chapar(folder, args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), said(&output))
}

/// A folder with a migrated store `a.db`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, said) = run(folder.path(), &["migrate", "apply", "--store", "sqlite:a.db"]);
    assert_eq!(code, Some(0), "{said}");
    folder
}

fn psql(store: &str, sql: &str) -> String {
    let output = Command::new("psql").args([store, "-Atqc", sql]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn every_letter_is_deleted_only_when_it_is_confirmed() {
    let folder = folder();
    let delete = ["dlq", "delete", "--all", "--reason", "clean-up", "--store", "sqlite:a.db"];
    let (code, _, said) = run(folder.path(), &delete);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nothing was done") && said.contains("--yes"), "{said}");
    let (code, _, said) = run(folder.path(), &[&delete[..], &["--yes"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let (code, out, said) =
        run(folder.path(), &["dlq", "delete", "--all", "--dry-run", "--store", "sqlite:a.db"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("would be deleted"), "{out}");
}

/// As in a script whose variable is not set.
#[test]
fn an_empty_filter_selects_nothing_and_is_an_error() {
    let folder = folder();
    for filter in ["--tenant", "--consumer", "--topic", "--group", "--error"] {
        let empty = format!("{filter}=");
        let delete = ["dlq", "delete", &empty, "--reason", "clean-up", "--store", "sqlite:a.db"];
        let (code, _, said) = run(folder.path(), &delete);
        assert_eq!(code, Some(2), "{filter}: {said}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_command_quietly() {
    let folder = folder();
    for args in [
        &["migrate", "status", "--store", "sqlite:a.db"][..],
        &["outbox", "status", "--store", "sqlite:a.db"],
        &["config"],
        &["audit", "list", "--store", "sqlite:a.db", "--format", "json"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = chapar(folder.path(), args).stdout(writer).output().unwrap();
        assert_eq!(said(&output), "", "{args:?}");
        // As a shell reports the signal: a script with `pipefail` does not take it for a success.
        assert_eq!(output.status.code(), Some(141), "{args:?}");
    }
}

#[test]
fn a_mistyped_path_is_an_error_and_no_new_file() {
    let folder = folder();
    for args in [
        &["outbox", "status"][..],
        &["migrate", "status"],
        &["dlq", "list"],
        &["find", "x"],
        &["relay", "--profile", "melmastoon"],
    ] {
        let (code, _, said) = run(folder.path(), &[args, &["--store", "sqlite:hotl.db"]].concat());
        assert!(matches!(code, Some(1 | 2)), "{args:?}: {said}");
        assert!(said.contains("sqlite:hotl.db") && said.contains("does not exist"), "{said}");
        assert!(!folder.path().join("hotl.db").exists(), "{args:?}");
    }
}

#[test]
fn a_new_file_is_for_its_owner_alone() {
    let folder = folder();
    let mode =
        |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("a.db"), 0o600);
    // A link to a file that is not there yet.
    std::os::unix::fs::symlink("target.db", folder.path().join("link.db")).unwrap();
    let (code, _, said) = run(folder.path(), &["migrate", "apply", "--store", "sqlite:link.db"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(mode("target.db"), 0o600);
    let uri = ["migrate", "apply", "--store", "sqlite:file:uri.db"];
    let (code, _, said) = run(folder.path(), &uri);
    assert!(code == Some(1) && said.contains("give the path itself"), "{said}");
}

#[test]
fn a_flag_beats_an_exported_variable() {
    let folder = folder();
    let config = |args: &[&str], name: &str, value: &str| {
        let output = chapar(folder.path(), &[&["config"], args].concat()).env(name, value).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = config(&["--file", "mine.db"], "CHAPAR_STORE", "postgres://db/production");
    assert!(shown.contains("mine.db") && !shown.contains("production"), "{shown}");
    let shown = config(&["--store", "sqlite:mine.db"], "CHAPAR_FILE", "other.db");
    assert!(shown.contains("sqlite:mine.db") && !shown.contains("other.db"), "{shown}");
    let shown = config(&[], "CHAPAR_STORE", "sqlite:mine.db");
    assert!(shown.contains("sqlite:mine.db"), "{shown}");
    // The demonstration writes a hotel; it must not be into the database of another program.
    let shown = config(&[], "DATABASE_URL", "postgres://db/production");
    assert!(!shown.contains("production"), "{shown}");
    let both = ["config", "--file", "a.db", "--store", "sqlite:b.db"];
    assert_eq!(run(folder.path(), &both).0, Some(2), "which of the two is not clear");
}

#[test]
fn one_variable_names_the_store_everywhere_and_the_usual_one_is_understood() {
    let folder = folder();
    for args in [&["migrate", "status"][..], &["outbox", "status"], &["find", "x"]] {
        for name in ["CHAPAR_STORE", "DATABASE_URL"] {
            let mut command = chapar(folder.path(), args);
            let output = command.env(name, "sqlite:a.db").output().unwrap();
            assert!(matches!(output.status.code(), Some(0 | 1)), "{name}: {}", said(&output));
            assert!(!said(&output).contains("error"), "{name}: {}", said(&output));
        }
        let mut command = chapar(folder.path(), args);
        command.env("DATABASE_URL", "sqlite:none.db").env("CHAPAR_STORE", "sqlite:a.db");
        let output = command.output().unwrap();
        assert!(!said(&output).contains("none.db"), "{}", said(&output));
        let (code, _, said) = run(folder.path(), args);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("--store <URL>"), "{said}");
    }
}

#[test]
fn the_status_of_migrations_is_an_exit_code() {
    let folder = folder();
    let status = |store: &str| run(folder.path(), &["migrate", "status", "--store", store]);
    assert_eq!(status("sqlite:a.db").0, Some(0));
    fs::write(folder.path().join("empty.db"), "").unwrap();
    let (code, out, _) = status("sqlite:empty.db");
    assert_eq!(code, Some(1), "something is pending: {out}");
    assert_eq!(status("sqlite:none.db").0, Some(2), "it could not be found out");
}

#[test]
fn a_server_that_refuses_connections_is_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let store = "postgres://me:secret@127.0.0.1:1/hotel";
    let (code, _, said) = run(folder.path(), &["outbox", "status", "--store", store]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no server accepts connections at 127.0.0.1:1"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn missing_rights_are_said_once_with_the_statements_that_grant_them() {
    let server = need!(servers::postgres());
    let database = server.database("rights").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = database.url();
    assert_eq!(run(folder.path(), &["migrate", "apply", "--store", store]).0, Some(0));
    let role = format!("Clerk_{}", database.name());
    psql(store, &format!("create role \"{role}\" login password 'x'"));
    let (_, place) = store.rsplit_once('@').unwrap();
    let clerk = format!("postgres://{role}:x@{place}");
    let (code, _, said) = run(folder.path(), &["outbox", "status", "--store", &clerk]);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.matches("permission denied").count(), 1, "{said}");
    let (_, grants) = said.split_once("administrator: ").expect(&said);
    let migrate = ["migrate", "apply", "--store", &clerk];
    let (code, _, refused) = run(folder.path(), &migrate);
    assert_eq!(code, Some(1), "{refused}");
    assert!(refused.contains("have an administrator run: grant chapar_owner to"), "{refused}");
    assert!(!refused.contains("at line"), "{refused}");
    psql(store, grants.trim());
    let (code, _, said) = run(folder.path(), &["outbox", "status", "--store", &clerk]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_line_of_the_configuration_is_not_quoted_in_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        "[up]\nstroe = \"postgres://me:secret@db/hotel\"\n",
        "[up]\nrate = \"secret\"\n",
        "[up]\nstore = \"postgres://me:secret@db/hotel\n",
        "[push]\non_failure = \"secret\"\n",
    ] {
        fs::write(folder.path().join("chapar.toml"), text).unwrap();
        let (code, _, said) = run(folder.path(), &["config"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("chapar.toml") && said.contains("line 2"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn the_configuration_is_printed_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[nats]\nmonitor = \"http://me:hunter2@nats:8222\"\n\n\
                [push]\nto = \"http://me:hunter2@shop:80\"\n";
    fs::write(folder.path().join("chapar.toml"), text).unwrap();
    let (code, out, said) = run(folder.path(), &["config"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("nats:8222") && !out.contains("hunter2"), "{out}");
}

#[test]
fn a_malformed_url_is_refused_without_its_secret() {
    let folder = tempfile::tempdir().unwrap();
    for store in [
        "postgres:me:secret@db/hotel",
        "postgress://me:secret@db/h",
        "me:secret@db/h",
        "host=db user=me password=secret",
        "postgres://127.0.0.1:1/h?pasword=secret",
    ] {
        let (code, _, said) = run(folder.path(), &["outbox", "status", "--store", store]);
        assert_eq!(code, Some(1), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn push_says_that_a_relay_is_needed_and_what_waits() {
    let server = need!(servers::postgres());
    let database = server.database("push_alone").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = database.url();
    assert_eq!(run(folder.path(), &["migrate", "apply", "--store", store]).0, Some(0));
    psql(
        store,
        "select set_config('app.tenant_id', 'acme', false); \
         select chapar.emit('melmastoon.reservation.booking.modified.v1', 'acme', 'k' || i, \
         jsonb_build_object('n', i), 'i' || i) from generate_series(1, 3) i",
    );
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    fs::write(folder.path().join("secret"), secret).unwrap();
    let mut args = vec!["push", "--store", store, "--profile", "melmastoon"];
    args.extend(["--subscription", "billing.bookings", "--listen", "127.0.0.1:0"]);
    args.extend(["--topic", "melmastoon.reservation.booking.modified.v1"]);
    args.extend(["--to", "http://127.0.0.1:1", "--secret-file", "secret"]);
    let mut child = chapar(folder.path(), &args).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.take_while(|line| !line.contains("stopping")).find(|l| l.contains("relay"));
    child.kill().unwrap();
    child.wait().unwrap();
    let said = said.expect("it says so");
    assert!(said.contains("no relay is running") && said.contains("3 events wait"), "{said}");
    assert!(said.contains("chapar relay"), "{said}");
}

/// The shell waits for the writer if it is told to, as the guide says.
#[test]
fn a_running_hotel_on_sqlite_can_be_written_by_the_shell() {
    let folder = tempfile::tempdir().unwrap();
    let args =
        ["up", "--file", "hotel.db", "--rate", "50", "--for", "6s", "--listen", "127.0.0.1:0"];
    let child = chapar(folder.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    let shell = |sql: &str| {
        let args = ["-cmd", ".timeout 10000", "hotel.db", sql];
        let output = Command::new("sqlite3").args(args).current_dir(folder.path()).output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while !shell("select 1 from chapar_outbox limit 1").0 {
        assert!(Instant::now() < deadline, "the hotel does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    for n in 0..20 {
        let insert = format!(
            "insert into chapar_audit_log (at, actor, action, target, reason, detail) \
             values ({n}, 'shell', 'note', 'hotel', 'by hand', '{{}}')"
        );
        let (done, said) = shell(&insert);
        assert!(done, "{said}");
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn control_characters_of_data_do_not_reach_the_terminal() {
    let folder = folder();
    let insert = "insert into chapar_audit_log (actor, action, target, reason, detail, at) \
                  values ('eve', 'a.b', 'x' || char(27) || ']0;owned' || char(7), \
                  char(155) || '2J' || char(13) || 'y', '{}', 0)";
    let insert = Command::new("sqlite3")
        .args(["-cmd", ".timeout 5000", "a.db", insert])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(insert.status.success(), "{}", String::from_utf8_lossy(&insert.stderr));
    for format in ["text", "json"] {
        let args = ["audit", "list", "--store", "sqlite:a.db", "--format", format];
        let (code, out, said) = run(folder.path(), &args);
        assert_eq!(code, Some(0), "{said}");
        assert!(out.contains("owned") && out.contains("\\u001b]0;"), "{out:?}");
        assert!(out.contains("\\u009b2J"), "{out:?}");
        assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{out:?}");
    }
    let (_, _, said) = run(folder.path(), &["dlq", "show", "\u{1b}[2J", "--store", "sqlite:a.db"]);
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

/// A NATS server without TLS that refuses every login; its port, and what a client sends first.
fn refusing_nats() -> (u16, JoinHandle<String>) {
    const INFO: &str =
        "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"max_payload\":1048576}\r\n";
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(INFO.as_bytes()).unwrap();
        let mut sent = [0; 4096];
        let length = stream.read(&mut sent).unwrap();
        stream.write_all(b"-ERR 'Authorization Violation'\r\n").unwrap();
        String::from_utf8_lossy(&sent[..length]).into_owned()
    });
    (port, server)
}

#[test]
fn a_password_does_not_travel_without_tls_to_another_machine_unless_asked_for() {
    let folder = folder();
    let relay = || {
        let (port, server) = refusing_nats();
        // Not a loopback address, though it leads to this machine.
        let transport = format!("nats://me:hunter2@0.0.0.0:{port}");
        let args = ["relay", "--store", "sqlite:a.db", "--profile", "melmastoon", "--transport"];
        let (code, _, said) = run(folder.path(), &[&args[..], &[&transport]].concat());
        assert_eq!(code, Some(1), "{said}");
        (server.join().unwrap(), said)
    };
    let (sent, said) = relay();
    assert!(!sent.contains("hunter2") && !sent.contains("CONNECT"), "{sent}");
    assert!(said.contains("without_tls = true"), "{said}");
    fs::write(folder.path().join("chapar.toml"), "[nats]\nwithout_tls = true\n").unwrap();
    let (sent, said) = relay();
    assert!(sent.contains("hunter2"), "{sent}");
    assert!(said.contains("refuses the credentials"), "{said}");
}

#[test]
fn the_password_of_a_broker_is_in_no_log() {
    let folder = folder();
    let (port, server) = refusing_nats();
    let address = format!("127.0.0.1:{port}");
    let transport = format!("nats://me:hunter2@{address}");
    let args = ["relay", "--store", "sqlite:a.db", "--profile", "melmastoon", "--log", "trace"];
    let args = [&args[..], &["--transport", &transport]].concat();
    let mut output = chapar(folder.path(), &args).output().unwrap();
    let sent = server.join().unwrap();
    assert!(sent.contains("hunter2"), "the server gets it: {sent}");
    output.stderr.extend(output.stdout.clone());
    let said = said(&output);
    assert!(said.contains("async_nats") && said.contains("refuses the credentials"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_secret_file_that_others_can_read_is_reported() {
    let folder = folder();
    let file = folder.path().join("secret");
    fs::write(&file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let args = ["push", "--store", "sqlite:none.db", "--profile", "melmastoon", "--subscription"];
    let args = [&args[..], &["a.b", "--topic", "melmastoon.reservation.booking.modified.v1"]];
    let args = [&args.concat()[..], &["--to", "http://x", "--secret-file", "secret"]].concat();
    for (mode, warned) in [(0o644, true), (0o600, false)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let (code, _, said) = run(folder.path(), &args);
        assert_eq!(code, Some(1), "{said}");
        assert_eq!(said.contains("chmod 600"), warned, "{said}");
    }
    let forward = [&args[..], &["--forward-header", "Authorization"]].concat();
    let (_, _, said) = run(folder.path(), &forward);
    assert!(said.contains("--forward-header") && said.contains("never sent"), "{said}");
}
