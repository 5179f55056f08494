//! `chapar schema`, as a team lead puts it into CI.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::{Command, Output};

fn chapar(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chapar")).args(args).current_dir(folder).output().unwrap()
}

fn diff(old: &str, new: &str, args: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("old.json"), old).unwrap();
    std::fs::write(folder.path().join("new.json"), new).unwrap();
    let output =
        chapar(folder.path(), &[&["schema", "diff", "old.json", "new.json"], args].concat());
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

const OLD: &str = r#"{"type": "object", "required": ["id"],
    "properties": {"id": {"type": "string"}, "note": {"type": "string"}}}"#;

#[test]
fn a_compatible_change_passes_and_a_breaking_one_names_rule_place_and_counterexample() {
    let added = OLD.replace(r#""note""#, r#""more": {"type": "string"}, "note""#);
    let (code, said) = diff(OLD, &added, &["--kind", "integration"]);
    assert_eq!(code, 0, "{said}");
    let required = OLD.replace(r#"["id"]"#, r#"["id", "note"]"#);
    let (code, said) = diff(OLD, &required, &["--format", "json"]);
    assert_eq!(code, 1, "{said}");
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["verdict"], "breaking", "{said}");
    let finding = &report["findings"][0];
    for field in ["rule", "pointer", "reason", "counterexample"] {
        assert!(!finding[field].is_null(), "{field}: {said}");
    }
}

#[test]
fn unusable_input_is_told_apart_from_a_broken_contract() {
    assert_eq!(diff(OLD, "{", &[]).0, 2);
    assert_eq!(diff(OLD, r#"{"$ref": "https://example.com/x.json"}"#, &[]).0, 2);
}

#[test]
fn a_bundle_is_released_only_without_mistakes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = chapar(&root, &["schema", "bundle", "--system", "melmastoon"]);
    assert!(output.status.success());
    let bundle: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(bundle["contracts"].as_array().unwrap().len(), 82);
    let missing = chapar(&root, &["schema", "bundle", "--system", "nowhere"]);
    assert!(!missing.status.success() && missing.stdout.is_empty());
}

#[test]
fn a_bundle_keeps_the_schemas_that_were_released_before_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let first = chapar(&root, &["schema", "bundle", "--system", "melmastoon"]);
    let mut before: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    before["contracts"][0]["uri"] = "schemas://a#sha256-00".into();
    before["contracts"][0]["earlier"] = serde_json::json!(["schemas://a#sha256-11"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), before.to_string()).unwrap();
    let path = file.path().display().to_string();
    let next = chapar(&root, &["schema", "bundle", "--system", "melmastoon", "--after", &path]);
    let bundle: serde_json::Value = serde_json::from_slice(&next.stdout).unwrap();
    let earlier = serde_json::json!(["schemas://a#sha256-11", "schemas://a#sha256-00"]);
    assert_eq!(bundle["contracts"][0]["earlier"], earlier);
    assert_eq!(bundle["contracts"][1].get("earlier"), None, "what did not change has none");
}

#[test]
fn a_relay_without_its_contracts_does_not_start() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let relay = |contracts: &str| {
        let store = ["relay", "--store", "sqlite::memory:", "--profile", "melmastoon"];
        let output = chapar(&root, &[&store[..], &["--contracts", contracts]].concat());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(relay("ftp://a/b").contains("write a path, https://, gs:// or s3://"));
    assert!(relay("nowhere.json").contains("cannot read nowhere.json"));
    assert!(relay("README.md").contains("the bundle cannot be read"));
}
