//! Set-up files of brokers: what they say does not change unseen, and Terraform reads them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use chapar_catalog::setup::{self, Files};
use chapar_catalog::{Loaded, load};
use serde_json::Value;
use support::House;

fn house() -> Loaded {
    let house = House::new();
    let catalog = fs::read_to_string(house.path().join("catalog.toml")).unwrap();
    let accounts = "publisher = \"{service}-publisher@house-prod.iam\"\n\n\
                    [[sinks]]\nname = \"warehouse@house-prod.iam\"\n\
                    subjects = [\"melmastoon.search_aggregation.*\"]\n";
    fs::write(house.path().join("catalog.toml"), format!("{catalog}{accounts}")).unwrap();
    let loaded = load(house.path()).unwrap();
    assert!(loaded.mistakes.is_empty(), "{:?}", loaded.mistakes);
    loaded
}

fn hotel() -> Loaded {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/melmastoon")).unwrap()
}

/// Compares with what was last agreed on; `CHAPAR_BLESS=1` agrees on what there is.
fn is_as_agreed(folder: &str, files: &Files) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder);
    for (name, text) in files.iter().filter(|(name, _)| !name.ends_with("main.tf")) {
        let file = folder.join(name);
        if std::env::var_os("CHAPAR_BLESS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, text).unwrap();
        }
        let agreed = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(*text, agreed, "{} differs", file.display());
    }
    let there = fs::read_dir(&folder).unwrap().count();
    let expected = files.keys().filter(|name| !name.ends_with("main.tf")).count();
    assert_eq!(there, expected, "{}", folder.display());
}

#[test]
fn the_files_are_as_agreed() {
    is_as_agreed("terraform", &setup::terraform(&house(), &["inventory-service".into()]).unwrap());
    is_as_agreed("kafka", &setup::kafka(&house(), 3, &["ada".into()]));
}

#[test]
fn a_push_to_somebody_who_reads_nothing_is_refused() {
    let said = setup::terraform(&house(), &["spa-service".into()]).unwrap_err().to_string();
    assert!(said.contains("spa-service") && said.contains("inventory-service"), "{said}");
}

#[test]
fn nobody_but_the_owner_publishes_and_audit_reads_everything() {
    let files = setup::terraform(&hotel(), &[]).unwrap();
    let access: BTreeMap<String, Value> = serde_json::from_str(&files["access.json"]).unwrap();
    assert_eq!(access.len(), 82);
    let audit = "serviceAccount:audit-service-subscriber@melmastoon-prod.iam.gserviceaccount.com";
    for (topic, access) in &access {
        assert_eq!(access["publishers"].as_array().unwrap().len(), 1, "{topic}");
        assert!(access["subscribers"].as_array().unwrap().contains(&audit.into()), "{topic}");
    }
    let held = &access["melmastoon.reservation.booking.held.v1"]["publishers"][0];
    let owner =
        "serviceAccount:reservation-service-publisher@melmastoon-prod.iam.gserviceaccount.com";
    assert_eq!(held, owner);
}

/// A fresh folder with a module in it.
fn module(name: &str, files: &Files) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    for (file, text) in files {
        fs::write(folder.join(file), text).unwrap();
    }
    folder
}

fn terraform(folder: &Path, args: &[&str], input: &str) -> Option<Output> {
    use std::io::Write;
    let mut child = Command::new("terraform")
        .args(args)
        .current_dir(folder)
        .env("TF_CLI_CONFIG_FILE", "/dev/null")
        .env("CHECKPOINT_DISABLE", "1")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(input.as_bytes()).ok()?;
    child.wait_with_output().ok()
}

/// Says by name what was not tried. No registry of packages has Terraform or its providers, so
/// that this is no failure in CI either.
fn skipped(test: &str, why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped setup::{test}: {why}");
}

#[test]
fn terraform_finds_the_module_well_formed_and_computes_from_the_lists() {
    const TEST: &str = "terraform_finds_the_module_well_formed_and_computes_from_the_lists";
    let files = setup::terraform(&house(), &["inventory-service".into()]).unwrap();
    let folder = module("terraform", &files);
    let Some(formatted) = terraform(&folder, &["fmt", "-check", "-diff"], "") else {
        return skipped(TEST, "there is no terraform in PATH");
    };
    let said = String::from_utf8_lossy(&formatted.stdout);
    assert!(formatted.status.success(), "terraform fmt would change: {said}");

    // The expressions, without the resources, which need the provider.
    let (_, main) = files["main.tf"].split_once("locals {").unwrap();
    let (locals, _) = main.split_once("\n}\n").unwrap();
    let locals: String =
        locals.lines().filter(|line| !line.contains("data.")).map(|l| format!("{l}\n")).collect();
    let mut parts = files.clone();
    parts.insert("main.tf".into(), format!("locals {{{locals}}}\n"));
    let folder = module("terraform-locals", &parts);
    let asked = "jsonencode([local.accounts, keys(local.subscriptions), local.dead_letters])\n";
    let output = terraform(&folder, &["console", "-var", "project=house"], asked).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: String = serde_json::from_str(said.trim()).unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    let subscriber = "serviceAccount:inventory-service-subscriber@house.iam.gserviceaccount.com";
    assert_eq!(said[0]["inventory-service-subscriber"], subscriber);
    let sink = "serviceAccount:warehouse@house-prod.iam.gserviceaccount.com";
    assert_eq!(said[0][sink], sink);
    assert_eq!(said[1].as_array().unwrap().len(), 6, "{said}");
    assert_eq!(said[2].as_array().unwrap().len(), 4, "{said}");

    let folder = module("terraform-validate", &files);
    let initialized = terraform(&folder, &["init", "-backend=false", "-input=false"], "").unwrap();
    if !initialized.status.success() {
        return skipped(&format!("{TEST} (validate)"), "the google provider cannot be had");
    }
    let validated = terraform(&folder, &["validate", "-no-color"], "").unwrap();
    assert!(validated.status.success(), "{}", String::from_utf8_lossy(&validated.stderr));
}
