//! A newcomer's first steps: a new crate, the README's blocks pasted into it, `cargo run`.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The first block of the README in this language that contains a text.
fn block(language: &str, with: &str) -> String {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut blocks = readme.split("\n```").skip(1).step_by(2).map(str::to_owned);
    let found = blocks.find(|block| block.starts_with(language) && block.contains(with));
    let found = found.unwrap_or_else(|| panic!("README.md has no {language} block with {with}"));
    found.split_once('\n').unwrap().1.to_owned() + "\n"
}

#[test]
fn the_readme_shows_the_example_as_it_is() {
    let example = include_str!("../src/bin/invoicing.rs");
    assert_eq!(block("rust", "InvoiceCreated"), example, "copy it into README.md");
}

#[test]
fn the_readmes_code_runs_in_a_crate_of_its_own() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("newcomer");
    fs::create_dir_all(folder.join("src")).unwrap();
    let dependencies = block("toml", "[dependencies]");
    let here = root().join("crates/chapar");
    assert!(dependencies.contains("../chapar/crates/chapar"), "{dependencies}");
    let dependencies = dependencies.replace("../chapar/crates/chapar", here.to_str().unwrap());
    let package = "[package]\nname = \"newcomer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n";
    // The last table keeps it out of the workspace that its folder lies in.
    let manifest = format!("{package}{dependencies}\n[workspace]\n");
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("src/main.rs"), block("rust", "InvoiceCreated")).unwrap();
    // The versions that the workspace was tested with.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["run", "--quiet"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        // Only the output is looked at: debug information would cost time for nothing.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env_remove("CHAPAR_STORE")
        .env_remove("CHAPAR_TRANSPORT")
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let expected = "booked: inv-1, inv-2, inv-3\nin the dead letters: 1\n";
    assert_eq!(printed, expected);
}
