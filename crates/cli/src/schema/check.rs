//! `chapar schema check`: the gate for changed contracts in CI.

mod bypass;
pub(crate) mod git;
mod print;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use chapar_catalog::Loaded;
use chapar_catalog::gate::{CHANGELOG, Gate, ProtoFiles, Released};
use chapar_core::bundle::Bundle;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use crate::output::red;
use crate::store;

pub(super) const EXAMPLES: &str = "\
Examples:
  chapar schema check --system melmastoon --against origin/main
  chapar schema check --system melmastoon --against contracts.json --format github
  chapar schema check --system melmastoon --against main \\
      --bypass-lead 'A. Lead' --bypass-incident INC-42 --store postgres://localhost/orders";

#[derive(Args)]
pub(crate) struct Check {
    /// The system: a folder in `systems`.
    #[arg(long, value_name = "NAME")]
    system: String,

    /// The folder that contains `systems`.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    root: PathBuf,

    /// The released contracts to compare with: a bundle file, or a Git revision.
    #[arg(long, value_name = "REVISION|FILE")]
    against: String,

    /// A subject whose events of the last 30 days all match its tightened ranges and patterns.
    #[arg(long, value_name = "SUBJECT")]
    audited: Vec<String>,

    /// Write an entry in the system's CHANGELOG.events.md for each enum that got values.
    #[arg(long)]
    changelog: bool,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Form,

    /// The lead who approves the breaking change.
    #[arg(long, value_name = "NAME", requires = "bypass_incident",
        value_parser = NonEmptyStringValueParser::new())]
    bypass_lead: Option<String>,

    /// The incident that requires it.
    #[arg(long, value_name = "REF", requires = "bypass_lead",
        value_parser = NonEmptyStringValueParser::new())]
    bypass_incident: Option<String>,

    /// The store whose audit log records the bypass.
    #[arg(long, env = "CHAPAR_STORE", hide_env_values = true, value_name = "URL",
        default_value = store::database_url(), hide_default_value = true)]
    store: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// Annotations on a pull request.
    Github,
}

/// The exit code if contracts cannot be compared or a bypass cannot be recorded, the same as for
/// wrong usage.
pub(super) const USAGE: u8 = 2;

pub(super) fn run(args: &Check) -> Result<ExitCode> {
    match checked(args) {
        Ok(code) => Ok(code),
        Err(error) => {
            eprintln!("{}: {error:#}", red("error"));
            Ok(ExitCode::from(USAGE))
        }
    }
}

fn checked(args: &Check) -> Result<ExitCode> {
    // Checked first: a bypass that cannot be recorded must not pass.
    let bypass = bypass::Bypass::asked(args)?;
    let gate = compared(args)?;
    let bypass = match bypass {
        Some(bypass) if !gate.passes() => {
            bypass.record(args, &gate)?;
            Some(bypass)
        }
        Some(_) => {
            eprintln!("nothing to bypass: no contract is broken; nothing was recorded");
            None
        }
        None => None,
    };
    print::out(args, &gate, bypass.as_ref())?;
    let fine = gate.passes() || bypass.is_some();
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn compared(args: &Check) -> Result<Gate> {
    let folder = args.root.join("systems").join(&args.system);
    let new = chapar_catalog::load(&folder)?;
    for subject in &args.audited {
        anyhow::ensure!(
            new.catalog.event(subject).is_some(),
            "--audited {subject}: no such event in {}",
            folder.display()
        );
    }
    let audited: BTreeSet<String> = args.audited.iter().cloned().collect();
    let gate = compare(&args.root, &args.system, &args.against, &new, &audited)?;
    let file = folder.join(CHANGELOG);
    let mut changelog = std::fs::read_to_string(&file).unwrap_or_default();
    if args.changelog {
        record(&gate, &file, &mut changelog)?;
    }
    Ok(gate.documented(&new.catalog, &changelog))
}

/// Adds the missing entries to the changelog of events.
fn record(gate: &Gate, file: &Path, changelog: &mut String) -> Result<()> {
    let missing = gate.undocumented(changelog);
    if missing.is_empty() {
        return Ok(());
    }
    if changelog.is_empty() {
        changelog.push_str("# Changes of events within their versions\n\n");
    } else if !changelog.ends_with('\n') {
        changelog.push('\n');
    }
    let today = jiff::Timestamp::now().to_string();
    let today = today.split('T').next().unwrap_or_default();
    for entry in &missing {
        changelog.push_str(&format!("- {today} {entry}\n"));
    }
    std::fs::write(file, &*changelog).with_context(|| file.display().to_string())?;
    eprintln!("{} entries written to {}", missing.len(), file.display());
    Ok(())
}

/// Compares a system below the root with a bundle if such a file exists, else with a Git revision.
pub(crate) fn compare(
    root: &Path,
    system: &str,
    against: &str,
    new: &Loaded,
    audited: &BTreeSet<String>,
) -> Result<Gate> {
    let folder = root.join("systems").join(system);
    let file = Path::new(against);
    if file.is_file() {
        let bundle = std::fs::read(file).with_context(|| file.display().to_string())?;
        let bundle: Bundle = serde_json::from_slice(&bundle)
            .with_context(|| format!("{} is not a bundle", file.display()))?;
        let old = Released::of_bundle(&bundle, &new.catalog.profile)
            .with_context(|| file.display().to_string())?;
        let gate = Gate::compare(&old, new, audited);
        if !new.catalog.profile.speaks_protobuf() {
            return Ok(gate);
        }
        let now = protos(&folder.join("proto"))?;
        return Ok(gate.compare_described(&new.catalog, &bundle, &now)?);
    }
    let tree = git::Tree::checkout(root, against, system)?;
    let Some(old_folder) = tree.system() else {
        eprintln!("{against} has no system {system}: everything is new");
        return Ok(Gate::compare(&Released::default(), new, audited));
    };
    let old = chapar_catalog::load(&old_folder)?;
    let gate = Gate::compare(&Released::of_catalog(&old), new, audited);
    let gate = with_protos(gate, new, &old_folder, &folder)?;
    Ok(relocated(gate, &old_folder, &folder))
}

/// Protobuf contracts are compared file by file, independently of the events that use them.
fn with_protos(gate: Gate, new: &Loaded, old_folder: &Path, folder: &Path) -> Result<Gate> {
    if !new.catalog.profile.speaks_protobuf() {
        return Ok(gate);
    }
    let (old, now) = (protos(&old_folder.join("proto"))?, protos(&folder.join("proto"))?);
    Ok(gate.compare_protos(&new.catalog, &old, &now)?)
}

fn protos(root: &Path) -> Result<ProtoFiles> {
    let mut found = ProtoFiles::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            // Links are not followed: they may form cycles.
            if entry.file_type()?.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "proto") {
                let name = path.strip_prefix(root)?.display().to_string().replace('\\', "/");
                let bytes = std::fs::read(&path).with_context(|| format!("cannot read {name}"))?;
                found.insert(name, bytes);
            }
        }
    }
    Ok(found)
}

/// A removed event was declared in a temporary copy: map its position to the working tree.
fn relocated(mut gate: Gate, copy: &Path, folder: &Path) -> Gate {
    for place in gate.findings.iter_mut().filter_map(|finding| finding.place.as_mut()) {
        let moved = Path::new(&*place.file).strip_prefix(copy).map(|rest| folder.join(rest));
        if let Ok(path) = moved {
            let path = path.strip_prefix(".").unwrap_or(&path);
            place.file = path.display().to_string().replace('\\', "/").into();
        }
    }
    gate
}
