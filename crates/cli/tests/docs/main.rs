//! The repository holds together: every rule has its page, every link leads somewhere, and the
//! layers of the code are kept.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod blocks;
mod commands;
mod shell;

use std::fs;
use std::path::{Path, PathBuf};

use chapar::ops::TriageError;
use chapar_catalog::policy::Policy;
use chapar_core::Code;

use crate::shell::{markdown, root};

#[test]
fn every_rule_and_policy_has_a_page_and_the_index_lists_it() {
    let folder = root().join("docs/errors");
    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    let rules = Code::ALL.iter().map(|code| code.as_str());
    let policies = Policy::ALL.iter().map(|policy| policy.as_str());
    for code in rules.chain(policies).chain(TriageError::CODES) {
        let page = fs::read_to_string(folder.join(format!("{code}.md")));
        let page = page.unwrap_or_else(|error| panic!("docs/errors/{code}.md: {error}"));
        assert!(page.starts_with(&format!("# {code}: ")), "the title of {code}.md names the code");
        for part in ["## What it means", "## Example", "## How to fix it"] {
            assert!(page.contains(part), "{code}.md lacks {part:?}");
        }
        assert!(index.contains(&format!("({code}.md)")), "the index lacks {code}");
    }
}

/// Operators' actions are audited because `chapar::ops` is their only way to the tables.
#[test]
fn the_command_line_and_the_server_reach_the_tables_only_through_ops() {
    let mut found = Vec::new();
    for folder in ["crates/cli/src", "crates/server/src"] {
        for file in rust(&root().join(folder)) {
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in text.lines().enumerate() {
                if line.trim_start().starts_with("//") {
                    continue;
                }
                if line.contains("chapar_sql") || line.split(is_sign).any(|word| word == "Tables") {
                    found.push(format!("{}:{}: {line}", file.display(), number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "use chapar::ops instead:\n{}", found.join("\n"));
}

fn is_sign(c: char) -> bool {
    !c.is_alphanumeric() && c != '_'
}

/// The Rust files under a folder.
fn rust(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(rust(&path)),
            false if path.extension().is_some_and(|end| end == "rs") => files.push(path),
            false => {}
        }
    }
    files
}

#[test]
fn every_decision_is_in_the_index() {
    let folder = root().join("docs/decisions");
    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    for page in markdown(&folder) {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name == "README.md" || index.contains(&format!("({name})")), "{name}");
    }
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let root = root();
    let tops = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
    let mut pages: Vec<PathBuf> = tops.iter().map(|name| root.join(name)).collect();
    pages.extend(markdown(&root.join("docs")));
    let mut broken = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        for target in links(&text) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !elsewhere && !file.is_empty() && !page.parent().unwrap().join(file).exists() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn links_in_code_do_not_count() {
    let text = "see [a](b.md#c) and ![d](e.png), not `[f](g)`\n```text\n[h](i)\n```\n[j](k)";
    assert_eq!(links(text), ["b.md#c", "e.png", "k"]);
}

/// The targets of `[text](target)` outside of code and comments.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || line.starts_with("<!--") {
            continue;
        }
        let prose = line.split('`').step_by(2).collect::<Vec<_>>().join("_");
        let targets = prose.split("](").skip(1);
        links.extend(targets.filter_map(|rest| rest.split_once(')')).map(|(to, _)| to.to_owned()));
    }
    links
}
