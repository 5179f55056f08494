//! Every command that a document or a `--help` shows can be given as it stands there, and those that
//! look at a store or a file are run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Output};

use crate::shell::{blocks, calls, documented, lines, pages, root};

const PROGRAM: &str = env!("CARGO_BIN_EXE_chapar");

/// Clap checks names and values of flags before it answers `--help`. A unit test of the program
/// checks that nothing is missing either.
#[test]
fn every_command_in_the_documents_is_understood() {
    let desk = Desk::new();
    let mut shown = 0;
    for (page, command) in documented() {
        // Torture and benchmarks are behind a cargo feature.
        let optional = ["bench", "torture"].iter().any(|name| command.contains(name));
        if optional && !cfg!(feature = "bench") {
            continue;
        }
        let output = desk.run(&format!("{command} --help"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{page}: {command}\n{said}");
        shown += 1;
    }
    assert!(shown > 60, "only {shown} commands found: are blocks still marked `sh`?");
}

/// What a sentence names may be shortened (`chapar dlq replay ID --fix …`), so only names are checked.
#[test]
fn every_command_and_flag_in_a_sentence_exists() {
    let desk = Desk::new();
    let mut helps: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut help = |path: &str| {
        let known = helps.entry(path.to_owned()).or_insert_with(|| {
            let output = desk.run(&format!("{path} --help"));
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        });
        known.clone()
    };
    let mut shown = 0;
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        // Spans of code in the odd pieces; blocks have three marks and are checked elsewhere.
        let sentences: String = text.split("```").step_by(2).collect();
        for span in sentences.split('`').skip(1).step_by(2) {
            let words: Vec<&str> = span.split_whitespace().collect();
            let optional = matches!(words.get(1), Some(&("bench" | "torture")));
            if words.first() != Some(&"chapar") || (optional && !cfg!(feature = "bench")) {
                continue;
            }
            let mut path = "chapar".to_owned();
            let mut said = help(&path).unwrap();
            for word in &words[1..] {
                let is_command = |name: &str| {
                    let listed = said.split("Commands:\n").nth(1).unwrap_or_default();
                    let listed = listed.split("\n\n").next().unwrap_or_default();
                    listed.lines().any(|line| line.split_whitespace().next() == Some(name))
                };
                if !is_command(word) {
                    break;
                }
                path = format!("{path} {word}");
                said = help(&path).unwrap();
            }
            let bare = path == "chapar" && words.len() > 1 && !words[1].starts_with(['-', '…']);
            let unknown = words.iter().filter_map(|word| {
                let flag = word.split(['=', '…', ',', ')']).next().unwrap_or_default();
                let known = !flag.starts_with("--") || said.contains(flag);
                (!known).then_some(flag)
            });
            let unknown: Vec<&str> = unknown.collect();
            if bare || !unknown.is_empty() {
                wrong.push(format!("{page}: `{}`: {unknown:?} of {path}", words.join(" ")));
            }
            shown += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(shown > 60, "only {shown} commands found");
}

#[test]
fn every_example_in_the_help_is_understood() {
    let desk = Desk::new();
    let mut shown = 0;
    for (of, command) in examples(&desk) {
        let output = desk.run(&format!("{command} --help"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "chapar {of} --help: {command}\n{said}");
        shown += 1;
    }
    assert!(shown > 40, "only {shown} examples found");
}

/// Commands that start a server, wait for a broker or take long have tests of their own.
const ELSEWHERE: [&str; 8] = ["up", "relay", "push", "dev", "tail", "topology", "bench", "torture"];

#[test]
fn the_commands_of_the_documents_do_what_they_say_or_say_why_not() {
    let desk = Desk::new();
    desk.fill();
    let mut run = BTreeSet::new();
    for (page, command) in documented() {
        let name = command.split_whitespace().nth(1).unwrap_or_default().to_owned();
        if ELSEWHERE.contains(&name.as_str()) {
            continue;
        }
        let output = desk.run(&on_the_desk(&command));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Some wait for a program that is not running here, until they are interrupted.
        let code = output.status.code();
        let waited = matches!(code, Some(124 | 130));
        // Some have nothing to compare with: the desk is no Git repository.
        let usage = code == Some(2) && said.contains("Usage:");
        let done = waited || (matches!(code, Some(0..=2)) && !usage);
        assert!(done, "{page}: {command}\n{code:?}\n{said}");
        let silent = said.trim().is_empty() && output.stdout.is_empty();
        assert!(code == Some(0) || waited || !silent, "{page}: {command} fails silently");
        assert!(!said.contains("panicked"), "{page}: {command}\n{said}");
        run.insert(name);
    }
    for name in ["audit", "consumers", "dlq", "envelope", "find", "outbox", "projections", "sagas"]
    {
        assert!(run.contains(name), "no document shows chapar {name}");
    }
}

/// What is not a call of `chapar`: programs of the examples, which tests of theirs run, chores,
/// which a test of `xtask` parses, and a few commands of the shell, which are run here.
#[test]
fn every_other_command_is_one_that_a_test_knows() {
    let desk = Desk::new();
    desk.fill();
    let programs = fs::read_to_string(root().join("examples/tests/programs.rs")).unwrap();
    for block in blocks().iter().filter(|block| block.kind == "sh") {
        // A quoted argument may go over lines.
        if block.text.starts_with("sqlite3 ") {
            desk.repairs(&block.text);
            continue;
        }
        for line in lines(&block.text).iter().filter(|line| calls(line).is_empty()) {
            if let Some(program) = line.strip_prefix("cargo run -p chapar-examples --bin ") {
                let tested = programs.contains(&format!("CARGO_BIN_EXE_{program}\""));
                assert!(
                    tested,
                    "{}: examples/tests/programs.rs does not run {program}",
                    block.place
                );
            } else if line.starts_with("(umask 077; echo whsec_") {
                assert!(desk.run_script(line).status.success(), "{}: {line}", block.place);
                let secret = fs::read_to_string(desk.folder.path().join("billing.secret")).unwrap();
                assert!(secret.trim().parse::<chapar::Secrets>().is_ok(), "{secret}");
            } else {
                let known = line.starts_with("cargo xtask ") || line == "createdb hotel";
                assert!(known, "{}: no test knows this command: {line}", block.place);
            }
        }
    }
}

/// A folder with the files that documents name, and `chapar` on the path.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fixtures = root().join("crates/core/tests/fixtures");
        std::os::unix::fs::symlink(PROGRAM, folder.path().join("chapar")).unwrap();
        std::os::unix::fs::symlink(root().join("crates"), folder.path().join("crates")).unwrap();
        std::os::unix::fs::symlink(root().join("systems"), folder.path().join("systems")).unwrap();
        let copies = [
            (fixtures.join("melmastoon/booking_confirmed.json"), "event.json"),
            (root().join("systems/melmastoon/contracts.json"), "contracts.json"),
            (root().join("systems/melmastoon/contracts.json"), "released.json"),
        ];
        for (from, to) in copies {
            fs::copy(&from, folder.path().join(to))
                .unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        }
        // The fixture is the message after its topic and an empty line.
        let bank = fs::read(fixtures.join("meridian/account_created.msg")).unwrap();
        let body = bank.windows(2).position(|pair| pair == b"\n\n").unwrap() + 2;
        fs::write(folder.path().join("message.bin"), &bank[body..]).unwrap();
        fs::write(folder.path().join("payload.json"), "{}").unwrap();
        let event = fs::read_to_string(fixtures.join("melmastoon/booking_confirmed.json")).unwrap();
        fs::write(folder.path().join("archive.jsonl"), event.replace('\n', "") + "\n").unwrap();
        Desk { folder }
    }

    /// A hotel that has run for a while.
    fn fill(&self) {
        let store = self.store();
        let hotel = ["--listen", "127.0.0.1:0", "--rate", "20", "--for", "5s"];
        let output = Command::new(PROGRAM)
            .args(["up", "--store", &store])
            .args(hotel)
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }

    /// Carries out the statement that an operator types into `sqlite3`, on the hotel's file.
    fn repairs(&self, shell: &str) {
        let statement = shell.split('"').nth(1).unwrap_or_else(|| panic!("{shell}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = chapar::Store::open(&self.store(), &Default::default()).await.unwrap();
            let mut tx = store.begin_raw().await.unwrap();
            let statement: &'static str = statement.to_owned().leak();
            assert_eq!(tx.execute(statement, vec![]).await.unwrap(), 1, "{statement}");
            tx.commit().await.unwrap();
        });
    }

    fn run_script(&self, script: &str) -> Output {
        Command::new("sh").args(["-c", script]).current_dir(self.folder.path()).output().unwrap()
    }

    fn store(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("hotel.db").display())
    }

    fn run(&self, command: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new("timeout")
            .args(["--signal=INT", "--kill-after=20", "5", "sh", "-c", &format!("exec {command}")])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.folder.path().display()))
            .env("CHAPAR_STORE", self.store())
            // Examples in a help are not wrapped.
            .env("COLUMNS", "1000")
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap()
    }
}

/// The command without its store, which the environment names, and with an answer to questions.
fn on_the_desk(command: &str) -> String {
    let mut words = command.split(' ').peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word == "--store" {
            words.next();
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// The examples of every command's help, with the command's name.
fn examples(desk: &Desk) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut waiting = vec![String::new()];
    while let Some(of) = waiting.pop() {
        let output = desk.run(&format!("chapar {of} --help"));
        let help = String::from_utf8(output.stdout).unwrap();
        let section = |title: &str| help.split(title).nth(1).unwrap_or_default().to_owned();
        let commands = section("\nCommands:\n");
        let commands = commands.split("\n\n").next().unwrap_or_default();
        for line in
            commands.lines().filter(|line| line.starts_with("  ") && !line[2..].starts_with(' '))
        {
            if let Some(name) = line.split_whitespace().next().filter(|name| *name != "help") {
                waiting.push(format!("{of} {name}").trim().to_owned());
            }
        }
        // An explanation stands behind some of them, in a column of its own.
        let shown: Vec<String> = section("Examples:\n")
            .lines()
            .map(|line| line.trim_start().split("  ").next().unwrap_or_default().to_owned())
            .collect();
        let shown = shown.join("\n").replace("--store …", "");
        found.extend(calls(&shown).into_iter().map(|call| (of.clone(), call)));
    }
    found
}
