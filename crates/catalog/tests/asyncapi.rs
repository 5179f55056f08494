//! The AsyncAPI documents please the official parser.
//!
//! It comes from npm on the first run. Where there is no npm the test is skipped by name, and
//! fails where `CI=true`.
#![allow(clippy::unwrap_used, reason = "a test may stop here")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use chapar_catalog::{asyncapi, inventory, load};
use chapar_core::catalog::PayloadStyle;
use chapar_core::dialect::Message;
use chapar_core::rules;
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

#[test]
fn every_example_is_an_event_of_its_owner_that_keeps_every_rule() {
    let mut tried = 0;
    for system in ["melmastoon", "learning", "meridian"] {
        let loaded = load(&systems().join(system)).unwrap();
        let document = asyncapi::document(&loaded);
        let Some(schema) = &loaded.envelope else { continue };
        let profile = &loaded.catalog.profile;
        let dialect = profile.dialect().unwrap();
        let mut ids = BTreeSet::new();
        for event in loaded.catalog.events() {
            let subject = event.subject.as_str();
            let examples = document["components"]["messages"][subject]["examples"].as_array();
            for example in examples.unwrap() {
                let example = &example["payload"];
                assert_eq!(schema.refusals(example), [""; 0], "{subject}");
                let payload = &example["payload"];
                assert_eq!(loaded.schemas[subject].refusals(payload), [""; 0], "{subject}");
                let message = Message::from_body(example.to_string());
                let envelope = dialect.decode(&message).unwrap();
                let thin = event.payload == PayloadStyle::Thin;
                assert_eq!(rules::check(&envelope, profile, thin), Ok(()), "{subject}");
                assert_eq!(rules::check_topic(&envelope, &event.subject), Ok(()), "{subject}");
                assert_eq!(envelope.producer.service, event.owner, "{subject}");
                assert_eq!(envelope.schema, loaded.schema_uri(subject), "{subject}");
                // A payload that names a tenant decides, because both must agree.
                let platform = event.untenanted && payload.get("tenantId").is_none();
                assert_eq!(envelope.tenant.is_platform(), platform, "{subject}");
                assert_eq!(envelope.ai_provenance.is_some(), event.provenance, "{subject}");
                assert!(ids.insert(envelope.id.to_string()), "{subject}: an id of another event");
                tried += 1;
            }
        }
    }
    assert!(tried >= 82, "{tried}");
}

fn systems() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems")
}

/// A folder with the parser and the script that asks it.
fn checker() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/asyncapi");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("asyncapi");
    fs::create_dir_all(&folder).unwrap();
    for file in ["package.json", "package-lock.json", "check.mjs"] {
        fs::copy(source.join(file), folder.join(file)).unwrap();
    }
    if folder.join("node_modules/@asyncapi/parser/package.json").is_file() {
        return Ok(folder);
    }
    // By the hashes of the lock file: a package that differs is refused.
    let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
    let output = Command::new("npm").args(install).current_dir(&folder).output();
    let output = output.map_err(|error| format!("npm does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("npm ci: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(folder)
}
