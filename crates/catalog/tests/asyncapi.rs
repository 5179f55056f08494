//! The AsyncAPI documents please the official parser.
//!
//! It comes from npm on the first run. Where there is no npm the test is skipped by name, and
//! fails where `CI=true`.
#![allow(clippy::unwrap_used, reason = "a test may stop here")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use chapar_catalog::{asyncapi, inventory, load};
use serde_json::{Value, json};

#[test]
fn the_official_parser_accepts_every_system() {
    let checker = match checker() {
        Ok(checker) => checker,
        Err(reason) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("{reason}"),
        Err(reason) => {
            eprintln!("skipped the_official_parser_accepts_every_system: {reason}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("node");
    command.current_dir(&checker).arg("check.mjs");
    let mut expected = Vec::new();
    for system in ["melmastoon", "learning", "meridian"] {
        let loaded = load(&systems().join(system)).unwrap();
        let document = asyncapi::document(&loaded);
        let file = folder.path().join(format!("{system}.json"));
        fs::write(&file, document.to_string()).unwrap();
        command.arg(file);
        let channels = loaded.catalog.events().count();
        let reads = inventory::subscriptions(&loaded.catalog).len();
        expected.push(json!({"channels": channels, "operations": channels + reads, "errors": []}));
    }
    // One that is wrong shows that the parser would have said so.
    let wrong = folder.path().join("wrong.json");
    fs::write(&wrong, json!({"asyncapi": "3.0.0", "channels": []}).to_string()).unwrap();
    let output = command.arg(wrong).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(said[..3], expected, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!said[3]["errors"].as_array().unwrap().is_empty());
}

#[test]
fn an_example_is_a_whole_message_around_the_payload() {
    let hotel = load(&systems().join("melmastoon")).unwrap();
    let document = asyncapi::document(&hotel);
    let message = &document["components"]["messages"]["melmastoon.billing.folio.closed.v1"];
    let example = &message["examples"][0]["payload"];
    assert_eq!(example["eventType"], "melmastoon.billing.folio.closed");
    assert_eq!(example["metadata"]["retentionClass"], "cold");
    assert_eq!(example["payload"]["balance"]["amountMinor"], 2000);
    assert_eq!(hotel.envelope.unwrap().refusals(example), [""; 0]);
}

fn systems() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems")
}

/// A folder with the parser and the script that asks it.
fn checker() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/asyncapi");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("asyncapi");
    fs::create_dir_all(&folder).unwrap();
    for file in ["package.json", "check.mjs"] {
        fs::copy(source.join(file), folder.join(file)).unwrap();
    }
    if folder.join("node_modules/@asyncapi/parser/package.json").is_file() {
        return Ok(folder);
    }
    let install = ["install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"];
    let output = Command::new("npm").args(install).current_dir(&folder).output();
    let output = output.map_err(|error| format!("npm does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("npm install: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(folder)
}
