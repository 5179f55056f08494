//! `chapar catalog`, driven as a user would.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

#[test]
fn every_system_of_the_repository_is_without_mistakes() {
    let output = chapar(&root(), &["check"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, ""), "{}", err(&output));
    assert!(err(&output).contains("melmastoon: 82 events of 21 services, no mistakes"));
}

#[test]
fn a_list_in_json_has_every_subject_with_owner_kind_retention_and_consumers() {
    let output = chapar(&root(), &["list", "--system", "melmastoon", "--format", "json"]);
    let events: Value = serde_json::from_str(&out(&output)).unwrap();
    let events = events.as_array().unwrap();
    assert_eq!(events.len(), 82);
    for event in events {
        for field in ["subject", "owner", "kind", "retention"] {
            assert!(event[field].as_str().is_some_and(|text| !text.is_empty()), "{event}");
        }
        assert!(event["consumers"].is_array(), "{event}");
    }
}

#[test]
fn a_table_is_aligned_and_without_colours_in_a_pipe() {
    let table = out(&chapar(&root(), &["list", "--system", "melmastoon"]));
    let column = table.find("OWNER").unwrap();
    assert!(table.lines().all(|line| line.as_bytes()[column - 1] == b' '), "{table}");
    assert!(!table.contains('\x1b'));
}

#[test]
fn mistakes_are_said_in_three_forms_and_fail() {
    let (_folder, house) = house("volume = \"loud\"");
    let house = house.to_str().unwrap();
    let text = chapar(&root(), &["check", "--dir", house]);
    assert_eq!(code(&text), 1);
    let place = format!("{house}/catalog/pricing-service.toml:8:10: volume \"loud\" is not one of");
    assert!(out(&text).contains(&place), "{}", out(&text));
    assert!(err(&text).contains("in 2 files"), "{}", err(&text));

    let github = chapar(&root(), &["check", "--dir", house, "--format", "github"]);
    let line = format!(
        "::error file={house}/catalog/pricing-service.toml,line=8,col=10,title=wrong-value::"
    );
    assert!(out(&github).contains(&line), "{}", out(&github));

    let json = chapar(&root(), &["check", "--dir", house, "--format", "json"]);
    let report: Value = serde_json::from_str(&out(&json)).unwrap();
    let mistakes = report[0]["mistakes"].as_array().unwrap();
    let loud = mistakes.iter().find(|mistake| mistake["rule"] == "wrong-value").unwrap();
    assert_eq!((&loud["line"], &loud["column"]), (&8.into(), &10.into()));
}

#[test]
fn nothing_is_generated_from_a_catalog_with_mistakes() {
    let (folder, house) = house("volume = \"low\"");
    let file = folder.path().join("topics.json");
    let args = ["topics", "--dir", house.to_str().unwrap(), "--out", file.to_str().unwrap()];
    assert_eq!(code(&chapar(&root(), &args)), 1);
    assert!(!file.exists());
}

#[test]
fn what_is_generated_goes_where_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    for (command, name, start) in [
        ("topics", "topics.json", "{"),
        ("subscriptions", "subscriptions.json", "["),
        ("grants", "grants.json", "["),
        ("asyncapi", "asyncapi.json", "{"),
        ("graph", "graph.svg", "<svg"),
    ] {
        let file = folder.path().join(name);
        let path = file.to_str().unwrap();
        let output = chapar(&root(), &[command, "--system", "melmastoon", "--out", path]);
        assert_eq!(code(&output), 0, "{command}: {}", err(&output));
        assert!(fs::read_to_string(file).unwrap().starts_with(start), "{command}");
    }
    let site = folder.path().join("site");
    let output =
        chapar(&root(), &["docs", "--system", "melmastoon", "--out", site.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(site.join("events/melmastoon.file.uploaded.v1.html").is_file());
}

#[test]
fn a_wrong_usage_says_what_there_is() {
    let unknown = chapar(&root(), &["list", "--system", "hotel"]);
    assert_eq!(code(&unknown), 2);
    assert!(err(&unknown).contains("melmastoon"), "{}", err(&unknown));
    let several = chapar(&root(), &["topics"]);
    assert_eq!(code(&several), 2);
    assert!(err(&several).contains("--system"), "{}", err(&several));
    assert_eq!(code(&chapar(&root(), &["docs", "--system", "melmastoon"])), 2);
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(code(&chapar(empty.path(), &["check"])), 2);
    assert_eq!(code(&chapar(&root(), &["check", "--dir", "no/such/folder"])), 2);
}

/// A system whose one event lacks its schema.
fn house(volume: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let house = folder.path().join("house");
    fs::create_dir_all(house.join("catalog")).unwrap();
    fs::copy(root().join("systems/melmastoon/profile.toml"), house.join("profile.toml")).unwrap();
    let system = "title = \"House\"\nsummary = \"A house.\"\nversion = \"1\"\n\
                  readers = []\n";
    fs::write(house.join("catalog.toml"), system).unwrap();
    let service = format!(
        "service = \"pricing-service\"\nsummary = \"Prices.\"\n\n[[events]]\n\
         subject = \"melmastoon.pricing.quote.expired.v1\"\ntrigger = \"It expired.\"\n\
         kind = \"domain\"\n{volume}\nkey = \"quoteId\"\nretention = \"warm\"\n"
    );
    fs::write(house.join("catalog/pricing-service.toml"), service).unwrap();
    (folder, house)
}

fn chapar(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
    command.arg("catalog").args(args).current_dir(folder).output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
