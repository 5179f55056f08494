//! `buf` is the judge: over generated pairs of files it must name the same rules, in each category.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod protos;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use chapar_compat::proto::{Category, LEFT_OUT, Protos, diff};
use chapar_testkit::servers;
use serde_json::Value;

const PAIRS: u64 = 160;

type Broken = BTreeMap<String, BTreeSet<String>>;

#[test]
fn buf_names_the_same_rules_for_generated_pairs() {
    let Some(buf) = buf() else { return };
    let dir = tempfile::tempdir().unwrap();
    let pairs: Vec<(String, String, String)> = (0..PAIRS)
        .map(|seed| {
            let (old, new) = protos::pair(seed);
            (format!("p{seed}.proto"), old, new)
        })
        .collect();
    let mut seen = BTreeSet::new();
    for (category, name) in
        [(Category::File, "FILE"), (Category::WireJson, "WIRE_JSON"), (Category::Wire, "WIRE")]
    {
        let theirs = judged(&buf, &dir.path().join(name), name, &pairs);
        for (file, old, new) in &pairs {
            let parsed = |source: &str| {
                Protos::parse(&[(file, source.as_bytes())])
                    .unwrap_or_else(|error| panic!("{error}\n{source}"))
            };
            let report = diff(&parsed(old), &parsed(new), category);
            let ours: BTreeSet<String> =
                report.findings.iter().map(|finding| finding.rule.clone()).collect();
            let theirs = theirs.get(file).cloned().unwrap_or_default();
            assert_eq!(ours, theirs, "{name} {file}\n--- old\n{old}\n--- new\n{new}");
            seen.extend(ours);
        }
    }
    assert!(seen.len() >= 25, "the pairs break too few rules: {seen:?}");
}

fn judged(buf: &Path, dir: &Path, category: &str, pairs: &[(String, String, String)]) -> Broken {
    for side in ["old", "new"] {
        fs::create_dir_all(dir.join(side)).unwrap();
        let config = format!("version: v2\nbreaking:\n  use:\n    - {category}\n");
        fs::write(dir.join(side).join("buf.yaml"), config).unwrap();
    }
    for (file, old, new) in pairs {
        fs::write(dir.join("old").join(file), old).unwrap();
        fs::write(dir.join("new").join(file), new).unwrap();
    }
    let output = Command::new(buf)
        .args(["breaking", "new", "--against", "old", "--error-format", "json"])
        .current_dir(dir)
        .env("BUF_CACHE_DIR", dir.join("cache"))
        .output()
        .unwrap();
    let problems = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        [0, 100].contains(&output.status.code().unwrap_or(-1)) && problems.is_empty(),
        "{problems}"
    );
    let mut broken = Broken::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (path, rule) =
            (line["path"].as_str().unwrap_or_default(), line["type"].as_str().unwrap());
        assert_ne!(rule, "COMPILE", "{line}");
        if !LEFT_OUT.contains(&rule) {
            let file = path.rsplit('/').next().unwrap_or(path).to_owned();
            broken.entry(file).or_default().insert(rule.to_owned());
        }
    }
    broken
}

/// The binary out of its npm package, fetched once; the test is skipped by name where it cannot be had.
fn buf() -> Option<PathBuf> {
    match servers::npm_packages("buf") {
        Ok(packages) => Some(packages.join("node_modules/.bin/buf")),
        Err(why) => {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "buf is missing (CI=true allows no skipped test): {why}"
            );
            eprintln!("skipped buf_names_the_same_rules_for_generated_pairs: {why}");
            None
        }
    }
}
