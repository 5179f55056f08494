//! `chapar schema diff`: whether a changed schema is compatible.

use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use chapar_compat::proto::{self, Category, Protos};
use chapar_compat::{Direction, InputError, Kind, LARGEST, Report, Request, Schema, Writers};
use clap::{Args, ValueEnum};

use crate::output::red;

pub(super) const EXAMPLES: &str = "\
Examples:
  chapar schema diff released/booking.v1.json booking.v1.json
  chapar schema diff old.json new.json --kind integration --format github
  git show main:booking.v1.json | chapar schema diff - booking.v1.json --direction full
  chapar schema diff old/orders.proto orders.proto --category wire-json
  chapar schema diff old/orders.proto proto/orders.proto --proto-path proto";

#[derive(Args)]
pub(crate) struct Diff {
    /// The released schema: a .json or .proto file, or - for stdin.
    old: PathBuf,

    /// The new schema, or - for stdin.
    new: PathBuf,

    /// The direction of compatibility [default: backward for domain events, full for integration
    /// events].
    #[arg(long, value_enum)]
    direction: Option<DirectionName>,

    /// What producers may send in addition to what their schema declares.
    #[arg(long, value_enum, default_value = "declared")]
    writers: WritersName,

    /// The kind of event; integration events have stricter rules.
    #[arg(long, value_enum, default_value = "domain")]
    kind: KindName,

    /// An audit of the last 30 days found no event outside the tightened ranges and patterns.
    #[arg(long)]
    audited: bool,

    /// For .proto files: what must not change.
    #[arg(long, value_enum, default_value = "file")]
    category: CategoryName,

    /// For .proto files: a folder that imports are relative to. May be given several times.
    #[arg(long, value_name = "FOLDER")]
    proto_path: Vec<PathBuf>,

    /// The same for the released schema [default: as for the new one].
    #[arg(long, value_name = "FOLDER")]
    old_proto_path: Vec<PathBuf>,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Form,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DirectionName {
    /// New readers read old events.
    Backward,
    /// Old readers read new events.
    Forward,
    /// Both.
    Full,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WritersName {
    /// Only what their schema declares: producers are validated against its closed copy, and
    /// readers ignore the rest.
    Declared,
    /// Everything that the schema accepts as written.
    Any,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindName {
    /// Inside one context.
    Domain,
    /// Between contexts.
    Integration,
    /// Only set inclusion, without the evolution rules.
    Bare,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CategoryName {
    /// Generated code, file by file.
    File,
    /// The binary encoding and JSON.
    WireJson,
    /// The binary encoding.
    Wire,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// Annotations on a pull request.
    Github,
}

/// The exit code for input that cannot be compared, the same as for wrong usage.
const UNUSABLE: u8 = 2;

pub(super) fn run(args: &Diff) -> Result<ExitCode> {
    let report = match compared(args) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("{}: {error:#}", red("error"));
            return Ok(ExitCode::from(UNUSABLE));
        }
    };
    match args.format {
        Form::Text => print!("{}", report.to_human()),
        Form::Json => println!("{}", serde_json::to_string_pretty(&report.to_json())?),
        Form::Github => print!("{}", report.to_github(&args.new.display().to_string())),
    }
    Ok(if report.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn compared(args: &Diff) -> Result<Report> {
    anyhow::ensure!(
        !(is_stdin(&args.old) && is_stdin(&args.new)),
        "only one of the two can be read from stdin"
    );
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    let (old_name, new_name) = (args.old.display().to_string(), args.new.display().to_string());
    match (is_proto(&args.old), is_proto(&args.new)) {
        (Some(true), Some(false)) | (Some(false), Some(true)) => {
            Err(InputError::Mixed { old: old_name, new: new_name }.into())
        }
        (Some(true), _) | (_, Some(true)) => {
            // The rules about files compare names, and the same file has two paths here.
            let named = if is_stdin(&args.new) { &args.old } else { &args.new };
            let name =
                named.file_name().map_or("schema.proto".into(), |name| name.to_string_lossy());
            let parsed = |source: &[u8], folders: &[PathBuf], file: &str| {
                let folders = folders.to_vec();
                let import = move |name: &str| imported(&folders, name);
                Protos::parse_with(&[(&name, source)], import).with_context(|| file.to_owned())
            };
            let olds = if args.old_proto_path.is_empty() {
                &args.proto_path
            } else {
                &args.old_proto_path
            };
            let old = parsed(&old, olds, &old_name)?;
            let new = parsed(&new, &args.proto_path, &new_name)?;
            Ok(proto::diff(&old, &new, args.category()))
        }
        _ => {
            let (old, new) = (Schema::parse(&old_name, &old)?, Schema::parse(&new_name, &new)?);
            Ok(chapar_compat::diff(&args.request(&old, &new)))
        }
    }
}

impl Diff {
    fn request<'a>(&self, old: &'a Schema, new: &'a Schema) -> Request<'a> {
        let kind = match self.kind {
            KindName::Domain => Kind::Domain,
            KindName::Integration => Kind::Integration,
            KindName::Bare => Kind::Bare,
        };
        let writers = match self.writers {
            WritersName::Declared => Writers::Declared,
            WritersName::Any => Writers::Any,
        };
        let request = Request::new(old, new).kind(kind).writers(writers).audited(self.audited);
        match self.direction {
            None => request,
            Some(DirectionName::Backward) => request.direction(Direction::Backward),
            Some(DirectionName::Forward) => request.direction(Direction::Forward),
            Some(DirectionName::Full) => request.direction(Direction::Full),
        }
    }

    fn category(&self) -> Category {
        match self.category {
            CategoryName::File => Category::File,
            CategoryName::WireJson => Category::WireJson,
            CategoryName::Wire => Category::Wire,
        }
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The type by the file name; stdin has none.
fn is_proto(path: &Path) -> Option<bool> {
    (!is_stdin(path)).then(|| path.extension().is_some_and(|extension| extension == "proto"))
}

/// The file that an import names, in the first folder that has it.
fn imported(folders: &[PathBuf], name: &str) -> Option<Vec<u8>> {
    let inside = |part| matches!(part, Component::Normal(_));
    if !Path::new(name).components().all(inside) {
        return None;
    }
    folders.iter().find_map(|folder| read(&folder.join(name)).ok())
}

/// One byte more than the limit is enough to refuse the rest.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = LARGEST as u64 + 1;
    if is_stdin(path) {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes).context("stdin")?;
    } else {
        let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
        file.take(most).read_to_end(&mut bytes).with_context(|| path.display().to_string())?;
    }
    Ok(bytes)
}
