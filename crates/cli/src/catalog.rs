//! `chapar catalog`: a system's events, and what is generated from them.

mod cutover;
pub(crate) mod show;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use chapar_catalog::{Loaded, asyncapi, docs, graph, inventory, rust};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::output::Format;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Report every mistake with file and line, of one system or of all.
    Check(Check),
    /// List the events: subject, owner, kind, retention, consumers.
    List(Target),
    /// The topics to create, as `topics.json`.
    Topics(Target),
    /// The subscriptions to create, named `<consumer-service>.<topic-short>.sub`.
    Subscriptions(Target),
    /// Which service may publish and read which topic.
    Grants(Target),
    /// An AsyncAPI 3 document of the whole system.
    Asyncapi(Target),
    /// A documentation site of the events, written to the folder of --out.
    Docs(Target),
    /// A graph of which service publishes to which, as SVG.
    Graph(Target),
    /// The payloads as Rust types, generated from the schemas.
    #[command(after_help = "\
Examples:
  chapar catalog rust --system melmastoon --out systems/melmastoon/src/events/generated.rs
  chapar catalog rust --dir systems/melmastoon | diff - systems/melmastoon/src/events/generated.rs")]
    Rust(Target),
    /// Show which consumers still read an old version, and retire it: 0 done, 1 refused.
    #[command(after_help = cutover::EXAMPLES)]
    Cutover(cutover::Args),
}

#[derive(Args)]
pub(crate) struct Where {
    /// The system: a folder in `systems` under the root.
    #[arg(long, value_name = "NAME", conflicts_with = "dir")]
    pub(crate) system: Option<String>,

    /// The folder of the system.
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,

    /// The folder that contains `systems`.
    #[arg(long, value_name = "PATH", default_value = ".")]
    root: PathBuf,
}

#[derive(Args)]
pub(crate) struct Target {
    #[command(flatten)]
    at: Where,

    /// The form of the output [default: text, and json where --out is given].
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// The file to write instead of stdout.
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    at: Where,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: CheckFormat,
}

/// The forms of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// Annotations of a pull request.
    Github,
}

/// An error before anything could be checked; exits with the code for wrong usage.
pub(crate) const USAGE: u8 = 2;

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Check(check) => run_check(&check),
        Command::List(target) => with(&target, |loaded| {
            let rows = show::rows(&loaded.catalog);
            emit(&target, &rows, || show::events(&rows))
        }),
        Command::Topics(target) => with(&target, |loaded| {
            let topics = inventory::topics(loaded);
            emit(&target, &topics, || show::topics(&topics.topics))
        }),
        Command::Subscriptions(target) => with(&target, |loaded| {
            let subscriptions = inventory::subscriptions(&loaded.catalog);
            emit(&target, &subscriptions, || show::subscriptions(&subscriptions))
        }),
        Command::Grants(target) => with(&target, |loaded| {
            let grants = inventory::grants(&loaded.catalog);
            emit(&target, &grants, || show::grants(&grants))
        }),
        Command::Asyncapi(target) => with(&target, |loaded| {
            let document = serde_json::to_string_pretty(&asyncapi::document(loaded))?;
            write_out(&target, &format!("{document}\n"))
        }),
        Command::Graph(target) => {
            with(&target, |loaded| write_out(&target, &graph::svg(&loaded.catalog)))
        }
        Command::Rust(target) => with(&target, |loaded| write_out(&target, &rust::source(loaded))),
        Command::Cutover(args) => cutover::run(&args),
        Command::Docs(target) => {
            let Some(folder) = target.out.clone() else {
                eprintln!("{}", show::error("give --out FOLDER for the site"));
                return Ok(ExitCode::from(USAGE));
            };
            with(&target, |loaded| {
                let site = docs::site(loaded)?;
                write_site(&folder, &site)?;
                eprintln!("{} pages in {}", site.len(), folder.join("index.html").display());
                Ok(())
            })
        }
    }
}

fn run_check(check: &Check) -> Result<ExitCode> {
    let folders = match folders(&check.at) {
        Ok(folders) => folders,
        Err(complaint) => return Ok(usage(&complaint)),
    };
    let mut systems = Vec::new();
    for folder in folders {
        match chapar_catalog::load(&folder) {
            Ok(loaded) => systems.push(loaded),
            Err(error) => return Ok(usage(&format!("{:#}", anyhow::Error::new(error)))),
        }
    }
    let found = systems.iter().any(|loaded| !loaded.mistakes.is_empty());
    say(&match check.format {
        CheckFormat::Json => show::mistakes_json(&systems)?,
        CheckFormat::Github => show::annotations(&systems),
        CheckFormat::Text => show::mistakes(&systems),
    })?;
    if check.format != CheckFormat::Json {
        for loaded in &systems {
            eprintln!("{}", show::verdict(loaded));
        }
    }
    Ok(if found { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs a command on one system without mistakes.
fn with(target: &Target, work: impl FnOnce(&Loaded) -> Result<()>) -> Result<ExitCode> {
    match flawless(&target.at) {
        Ok(loaded) => work(&loaded).map(|()| ExitCode::SUCCESS),
        Err(code) => Ok(code),
    }
}

/// Loads one system without mistakes. A catalog with mistakes must not be applied to a broker.
pub(crate) fn flawless(at: &Where) -> Result<Loaded, ExitCode> {
    let folder = match folders(at).as_deref() {
        Ok([folder]) => folder.clone(),
        Ok(several) => {
            let names: Vec<_> = several.iter().filter_map(|f| f.file_name()?.to_str()).collect();
            return Err(usage(&format!("give --system: one of {}", names.join(", "))));
        }
        Err(complaint) => return Err(usage(complaint)),
    };
    let loaded = chapar_catalog::load(&folder)
        .map_err(|error| usage(&format!("{:#}", anyhow::Error::new(error))))?;
    if !loaded.mistakes.is_empty() {
        let mistakes = show::mistakes(std::slice::from_ref(&loaded));
        crate::output::eprint(format_args!("{mistakes}"));
        eprintln!("{}", show::verdict(&loaded));
        return Err(ExitCode::FAILURE);
    }
    Ok(loaded)
}

/// The selected folders; never empty.
pub(crate) fn folders(at: &Where) -> Result<Vec<PathBuf>, String> {
    if let Some(folder) = &at.dir {
        return Ok(vec![folder.clone()]);
    }
    let systems = at.root.join("systems");
    let all = known(&systems);
    let names =
        || all.iter().filter_map(|f| f.file_name()?.to_str()).collect::<Vec<_>>().join(", ");
    match &at.system {
        Some(name) => {
            match all.iter().find(|f| f.file_name().is_some_and(|n| n == name.as_str())) {
                Some(folder) => Ok(vec![folder.clone()]),
                None if all.is_empty() => Err(format!("{} holds no system", systems.display())),
                None => Err(format!("there is no system {name:?}, only {}", names())),
            }
        }
        None if all.is_empty() => Err(format!(
            "{} holds no system; give --dir, or --root and --system",
            systems.display()
        )),
        None => Ok(all),
    }
}

fn known(systems: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(systems) else { return Vec::new() };
    let folders = entries.flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> =
        folders.filter(|folder| folder.join("catalog.toml").is_file()).collect();
    folders.sort();
    folders
}

pub(crate) fn usage(complaint: &str) -> ExitCode {
    eprintln!("{}", show::error(complaint));
    ExitCode::from(USAGE)
}

/// Writes JSON or a table.
fn emit<T: Serialize>(target: &Target, data: &T, table: impl FnOnce() -> String) -> Result<()> {
    let default = if target.out.is_some() { Format::Json } else { Format::Text };
    let text = match target.format.unwrap_or(default) {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(data)?),
        Format::Text => table(),
    };
    write_out(target, &text)
}

fn write_out(target: &Target, text: &str) -> Result<()> {
    match &target.out {
        Some(path) => {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        }
        None => say(text),
    }
}

pub(crate) fn write_site(folder: &Path, site: &BTreeMap<String, String>) -> Result<()> {
    for (name, text) in site {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot create {}", parent.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// To stdout; a reader that closes the pipe early is not an error.
pub(crate) fn say(text: &str) -> Result<()> {
    print!("{text}");
    Ok(())
}
