//! `chapar check`: every policy over every system of a repository.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use chapar_catalog::Loaded;
use chapar_catalog::gate::Gate;
use chapar_catalog::policy::{self, Findings, Offence};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::catalog::{self, Where, show};
use crate::output::{bold, red};
use crate::schema::check as contracts;

pub(crate) const EXAMPLES: &str = "\
Examples:
  chapar check                                  all systems, against the main branch
  chapar check --system melmastoon --against released.json
  chapar check --dir systems/melmastoon --alone --format github

Each policy has a code and a page: docs/errors/README.md";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: Where,

    /// The released contracts to compare with: a bundle file, or a Git revision [default: the pull
    /// request's base, else the origin's main branch, else HEAD].
    #[arg(long, value_name = "REVISION|FILE")]
    against: Option<String>,

    /// Compare contracts with nothing.
    #[arg(long, conflicts_with = "against")]
    alone: bool,

    /// A subject whose events of the last 30 days all match its tightened ranges and patterns.
    #[arg(long, value_name = "SUBJECT")]
    audited: Vec<String>,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Form,
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

/// One system and its findings.
struct Checked {
    loaded: Loaded,
    against: Option<String>,
    findings: Findings,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let checked = match checked(args) {
        Ok(checked) => checked,
        Err(error) => return Ok(catalog::usage(&format!("{error:#}"))),
    };
    let offences = || checked.iter().flat_map(|system| &system.findings.offences);
    catalog::say(&match args.format {
        Form::Text => offences().map(line).collect(),
        Form::Github => {
            offences().map(|o| show::annotation(&o.place, o.code.as_str(), &o.message)).collect()
        }
        Form::Json => {
            let systems: Vec<Value> = checked.iter().map(to_json).collect();
            serde_json::to_string_pretty(&systems)? + "\n"
        }
    })?;
    if args.format != Form::Json {
        for system in &checked {
            eprintln!("{}", verdict(system));
        }
    }
    let fine = offences().next().is_none();
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn checked(args: &Args) -> Result<Vec<Checked>> {
    let folders = catalog::folders(&args.at).map_err(anyhow::Error::msg)?;
    let mut checked = Vec::new();
    for folder in folders {
        let loaded = chapar_catalog::load(&folder)?;
        let (against, gate) = compared(args, &folder, &loaded)?.unzip();
        let findings = policy::check(&folder, &loaded, gate.as_ref())?;
        checked.push(Checked { loaded, against, findings });
    }
    for subject in &args.audited {
        let known = |system: &Checked| system.loaded.catalog.event(subject).is_some();
        anyhow::ensure!(checked.iter().any(known), "--audited {subject}: there is no such event");
    }
    Ok(checked)
}

/// The comparison with the released contracts; none if there are none.
fn compared(args: &Args, folder: &Path, loaded: &Loaded) -> Result<Option<(String, Gate)>> {
    if args.alone {
        return Ok(None);
    }
    let Some((root, name)) = home(folder) else {
        anyhow::ensure!(
            args.against.is_none(),
            "{} is not a folder in `systems`, so there is nothing to compare it with; use --alone",
            folder.display()
        );
        return Ok(None);
    };
    let Some(against) = args.against.clone().or_else(|| contracts::git::base(&root)) else {
        return Ok(None);
    };
    let audited: BTreeSet<String> = args.audited.iter().cloned().collect();
    let gate = contracts::compare(&root, &name, &against, loaded, &audited)?;
    Ok(Some((against, gate)))
}

/// The root of the repository and the name of a system, from `<root>/systems/<name>`.
fn home(folder: &Path) -> Option<(PathBuf, String)> {
    let name = folder.file_name()?.to_str()?.to_owned();
    let systems = folder.parent().filter(|parent| parent.ends_with("systems"))?;
    let root = systems.parent()?;
    let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    Some((root.to_owned(), name))
}

fn line(offence: &Offence) -> String {
    let place = show::painted(bold, &offence.place.to_string());
    let code = show::painted(red, offence.code.as_str());
    format!("{place}: {code} {}\n", offence.message)
}

fn to_json(system: &Checked) -> Value {
    json!({
        "system": system.loaded.catalog.profile.name,
        "events": system.loaded.catalog.events().count(),
        "files": system.findings.files,
        "against": system.against,
        "offences": system.findings.offences,
    })
}

fn verdict(system: &Checked) -> String {
    let name = &system.loaded.catalog.profile.name;
    let offences = &system.findings.offences;
    let events = show::counted(system.loaded.catalog.events().count(), "event");
    let files = show::counted(system.findings.files, "file");
    let against = match &system.against {
        Some(against) => format!("against {against}"),
        None => "with nothing to compare contracts with".to_owned(),
    };
    if offences.is_empty() {
        return format!("{name}: {events} and {files} of code {against}, every policy is kept");
    }
    let codes: BTreeSet<&str> = offences.iter().map(|offence| offence.code.as_str()).collect();
    let codes = codes.into_iter().collect::<Vec<_>>().join(", ");
    let count = red(&show::counted(offences.len(), "offence"));
    format!("{name}: {count} {against}; see docs/errors for {codes}")
}
