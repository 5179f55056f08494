//! Every block of the README and the guide is run, compiled, read by the reader it is for, or
//! compared with a file that a test runs.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use chapar_core::Profile;
use chapar_core::catalog::{Catalog, ConsumerContract, Mistake, Rule, Source, System};
use chapar_testkit::{need, servers};

use crate::shell::{Block, blocks, root};

/// The blocks of the README and the guide.
fn guide() -> impl Iterator<Item = Block> {
    let promised = |page: &str| page == "README.md" || page.starts_with("docs/guide/");
    blocks().into_iter().filter(move |block| promised(&block.page))
}

fn of_kind(kind: &str) -> impl Iterator<Item = Block> {
    guide().filter(move |block| block.kind == kind)
}

fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_block_is_of_a_kind_that_a_test_looks_at() {
    let compiled = file("crates/chapar/src/lib.rs");
    for Block { place, page, kind, text } in guide() {
        match kind.as_str() {
            // The tests beside this one, and `commands`.
            "sh" | "sql" | "toml" | "python" | "proto" | "rust,compared" => {}
            "rust" | "rust,no_run" => {
                let listed = compiled.contains(&format!("\"{page}\");"));
                assert!(listed, "{place}: add page!(…, {page:?}) to crates/chapar/src/lib.rs");
            }
            // What a program prints.
            "text" => {
                let command = text.lines().find(|line| {
                    let line = line.trim_start_matches("$ ");
                    ["chapar ", "cargo ", "psql "].iter().any(|name| line.starts_with(name))
                });
                assert!(command.is_none(), "{place}: mark it `sh`: {command:?}");
            }
            other => panic!("{place}: no test looks at a block marked {other:?}"),
        }
    }
}

#[test]
fn code_that_cannot_be_compiled_here_is_that_of_a_test() {
    for block in of_kind("rust,compared") {
        assert_eq!(block.page, "docs/guide/pubsub.md", "{}: compare it here", block.place);
        assert_eq!(block.text, file("crates/cli/tests/pushed/mod.rs"), "{}", block.place);
    }
    for block in of_kind("python") {
        let sample = file("examples/emit/emit.py");
        let sample =
            sample.replace("sys.argv[1]", "url").replace("event_id = connection", "connection");
        let sample = sample.replace(").fetchone()[0]", ")");
        assert!(sample.contains(&block.text), "{}: examples/emit/emit.py differs", block.place);
    }
}

#[test]
fn fields_of_protobuf_are_those_of_the_bank() {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let bank = "systems/meridian/proto/meridian/events/v1/current_account_events.proto";
    let bank = squeezed(&file(bank));
    for block in of_kind("proto") {
        for field in squeezed(&block.text).split_inclusive("]; ") {
            assert!(bank.contains(field.trim()), "{}: {field}", block.place);
        }
    }
}

/// A block runs as a service does: a login with `chapar_app`, inside of one transaction of its
/// page, which is rolled back. What an administrator does is done as one.
#[test]
fn every_statement_runs_on_postgresql() {
    let server = need!(servers::postgres());
    let database = server.database("guide").unwrap();
    let migrated = Command::new(env!("CARGO_BIN_EXE_chapar"))
        .args(["migrate", "apply", "--store", database.url()])
        .output()
        .unwrap();
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    let orders =
        "create table orders (tenant text not null, id text primary key, total bigint not null);
         call chapar.protect('orders'::regclass);\n";
    let mut scripts: Vec<(String, String)> = Vec::new();
    for block in of_kind("sql") {
        if block.page == "docs/guide/producing.md" {
            assert!(file("examples/emit/emit.sql").contains(&block.text), "{}", block.place);
        }
        let administrator =
            ["create ", "grant ", "call "].iter().any(|start| block.text.starts_with(start));
        let role = if administrator { "reset role;\n" } else { "set local role chapar_app;\n" };
        let statements = block.text.replace("begin;\n", "").replace("commit;\n", "");
        let statements = format!("{role}{statements}");
        match scripts.last_mut().filter(|(page, _)| *page == block.page) {
            Some((_, script)) => script.push_str(&statements),
            None => {
                let own = if block.page.ends_with("producing.md") { orders } else { "" };
                scripts.push((block.page, format!("{own}{statements}")));
            }
        }
    }
    for (page, script) in scripts {
        let mut psql = Command::new("psql")
            .args([database.url(), "-q", "-v", "ON_ERROR_STOP=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let script = format!("begin;\n{script}reset role;\nrollback;\n");
        psql.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = psql.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{page}:\n{said}\n{script}");
    }
}

#[test]
fn every_file_is_read_by_its_reader() {
    let profile = || Profile::from_toml(&file("systems/melmastoon/profile.toml")).unwrap();
    for Block { place, text, .. } in of_kind("toml") {
        for (name, text) in files(&text) {
            let source = || Source::new(name.as_str(), text.as_str());
            let first = text.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
            let table = first.split(']').next().unwrap_or_default().trim_start_matches('[');
            if first == "[dependencies]" {
                // A test of the examples builds a crate with the README's.
                assert!(file("README.md").contains(&text), "{place}: the README has others");
            } else if ["up", "relay", "push", "nats"].contains(&table.split('.').next().unwrap()) {
                configuration(&place, &text);
            } else if name == "catalog.toml" || text.starts_with("profile =") {
                part_without_mistakes(&place, System::read(&source()).1);
            } else if name.starts_with("consumers/") {
                without_mistakes(&place, ConsumerContract::read(&source(), &profile()).1);
            } else if name.starts_with("catalog/") || text.starts_with("service =") {
                let source = Source::new("catalog/reservation-service.toml", text.as_str());
                service(&place, source, profile());
            } else if first == "[[events]]" {
                let text = format!("service = \"pricing-service\"\n\n{text}");
                service(&place, Source::new("catalog/pricing-service.toml", text), profile());
            } else if first.starts_with("name =") {
                Profile::from_toml(&text).unwrap_or_else(|error| panic!("{place}: {error}"));
            } else {
                panic!("{place}: no reader is known for a file that begins with {first:?}");
            }
        }
    }
}

/// The files that a block shows, each under a comment with its name.
fn files(text: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let named =
            line.strip_prefix("# ").filter(|name| name.ends_with(".toml") && !name.contains(' '));
        match (named, files.last_mut()) {
            (Some(name), _) => files.push((name.to_owned(), String::new())),
            (None, None) => files.push((String::new(), format!("{line}\n"))),
            (None, Some((_, text))) => text.push_str(&format!("{line}\n")),
        }
    }
    files
}

fn service(place: &str, source: Source, profile: Profile) {
    part_without_mistakes(place, Catalog::read(System::default(), profile, &[source]).1);
}

/// Of a file of which the document shows a part, fields may be missing, but none is unknown or
/// wrong.
fn part_without_mistakes(place: &str, mut mistakes: Vec<Mistake>) {
    mistakes.retain(|mistake| mistake.rule != Rule::MissingField);
    without_mistakes(place, mistakes);
}

fn without_mistakes(place: &str, mistakes: Vec<Mistake>) {
    let said: Vec<String> =
        mistakes.iter().map(|m| format!("{} ({})", m.message, m.rule.as_str())).collect();
    assert!(said.is_empty(), "{place}: {}", said.join("\n"));
}

/// `chapar config` reads the file and checks its values.
fn configuration(place: &str, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    for text in alternatives(text) {
        let path = folder.path().join("chapar.toml");
        fs::write(&path, &text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_chapar"))
            .args(["--config", path.to_str().unwrap(), "config"])
            .current_dir(folder.path())
            .env_remove("CHAPAR_STORE")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{place}: {said}\n{text}");
    }
}

/// A file with `# and one of these` stands for one file per setting below it; `# with` joins a
/// setting to the next.
fn alternatives(text: &str) -> Vec<String> {
    let Some((common, rest)) = text.split_once("# and one of these") else {
        return vec![text.to_owned()];
    };
    let mut files = vec![String::new()];
    for line in rest.lines().skip(1) {
        let file = files.last_mut().expect("there is one from the start");
        file.push_str(&format!("{line}\n"));
        if !line.ends_with("# with") {
            files.push(String::new());
        }
    }
    files.retain(|file| !file.is_empty());
    files.iter().map(|file| format!("{common}\n{file}")).collect()
}
