//! The public interface is a list that a person can read: `crates/chapar/api.txt`. A change of it
//! is a change of that file, which a reviewer sees.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The modules that users can name, with the file of each.
const MODULES: [(&str, &str); 5] = [
    ("chapar", "src/lib.rs"),
    ("chapar::ops", "src/ops/mod.rs"),
    ("chapar::prelude", "src/prelude.rs"),
    ("chapar::saga", "src/saga/mod.rs"),
    ("chapar::testing", "src/testing.rs"),
];

#[test]
fn the_public_interface_is_the_list_in_api_txt() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut items = BTreeSet::new();
    for (module, file) in MODULES {
        let source = fs::read_to_string(folder.join(file)).unwrap();
        let names = re_exported(&source).into_iter().chain(declared(&source));
        items.extend(names.map(|name| format!("{module}::{name}")));
    }
    let found: String = items.iter().map(|item| format!("{item}\n")).collect();
    let listed = fs::read_to_string(folder.join("api.txt")).unwrap_or_default();
    if std::env::var_os("UPDATE_API").is_some() {
        fs::write(folder.join("api.txt"), &found).unwrap();
        return;
    }
    assert_eq!(listed, found, "write the list again with UPDATE_API=1 and review the difference");
}

/// Nothing is re-exported whole: every name stands in the list.
#[test]
fn nothing_is_re_exported_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (module, file) in MODULES {
        let source = fs::read_to_string(folder.join(file)).unwrap();
        for line in source.lines().filter(|line| line.starts_with("pub use")) {
            assert!(!line.contains("*") && !line.contains(" as "), "{module}: {line}");
        }
    }
}

/// The names in `pub use path::{A, B};` and `pub use path::C;`.
fn re_exported(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    for statement in source.split("\npub use ").skip(1) {
        let statement = &statement[..statement.find(';').unwrap()];
        let list = match statement.split_once('{') {
            Some((_, list)) => list.trim_end().trim_end_matches('}'),
            None => statement.rsplit("::").next().unwrap(),
        };
        let list = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.extend(list.map(str::to_owned));
    }
    names
}

/// The names of items that the file itself declares at its top level.
fn declared(source: &str) -> Vec<String> {
    const KINDS: [&str; 8] =
        ["struct ", "enum ", "trait ", "fn ", "async fn ", "type ", "const ", "mod "];
    let item = |line: &str| {
        let rest = line.strip_prefix("pub ")?;
        let name = KINDS.iter().find_map(|kind| rest.strip_prefix(kind))?;
        let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
        Some(name[..end].to_owned()).filter(|name| name != "__macro")
    };
    source.lines().filter_map(item).collect()
}
