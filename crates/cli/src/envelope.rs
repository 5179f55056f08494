//! `chapar envelope`: an event in a file or a pipe, decoded, converted and validated.

mod print;
mod wire;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use chapar_core::profile::DialectName;
use chapar_core::{Code, Envelope, Profile, Violation, rules};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use self::wire::{Dialect, Source};
use crate::output::{Format, dim, print_bytes, red};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print every field of an event, in any dialect.
    #[command(after_help = SHOW)]
    Show(Show),
    /// Convert an event to another dialect.
    #[command(after_help = CONVERT)]
    Convert(Convert),
    /// Validate an event against the rules of its system.
    #[command(after_help = VALIDATE)]
    Validate(Validate),
}

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    source: Source,

    /// The dialect of the event [default: detected].
    #[arg(long, value_enum, value_name = "DIALECT")]
    from: Option<Dialect>,

    /// Read CloudEvents that break the specification's rules about attributes.
    #[arg(long)]
    lenient: bool,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Args)]
pub(crate) struct Convert {
    #[command(flatten)]
    source: Source,

    /// The dialect to read.
    #[arg(long, value_enum, value_name = "DIALECT")]
    from: Dialect,

    /// Read CloudEvents that break the specification's rules about attributes.
    #[arg(long)]
    lenient: bool,

    /// The dialect to write.
    #[arg(long, value_enum, value_name = "DIALECT")]
    to: Dialect,

    /// The spelling of headers when writing, if it differs from reading.
    #[arg(long, value_enum, value_name = "BINDING")]
    to_binding: Option<wire::BindingName>,

    /// Write to this file instead of stdout.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Validate {
    #[command(flatten)]
    source: Source,

    /// The dialect of the event [default: detected].
    #[arg(long, value_enum, value_name = "DIALECT")]
    from: Option<Dialect>,

    /// Read CloudEvents that break the specification's rules about attributes.
    #[arg(long)]
    lenient: bool,

    /// The event's contract declares it thin: its payload may have any size.
    #[arg(long)]
    thin: bool,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

const SHOW: &str = "\
JSON is recognised by its fields: `specversion` says cloudevents, `producedBy` or `actorId`
metadata-json, a `source` object or `partitionKey` flat-json. Lines of `ce-` or `ce_` headers say
cloudevents-binary. Protobuf says nothing of itself: give --from inline-protobuf and --topic.

The text shows numbers and the order of keys as they are in the payload. Fields that no dialect
knows are listed as unknown; they are kept when the event is converted.

Exit status: 0 shown, 1 not an event of the dialect, 2 wrong usage.

Examples:
  chapar envelope show event.json
  curl -s https://host/event | chapar envelope show --format json
  chapar envelope show --from inline-protobuf --topic current-account.account-created.v1 event.bin";

const CONVERT: &str = "\
Binary-mode CloudEvents are read and written as text: one header per line as `Name: value`, an
empty line, then the body as it is. --binding says how the headers are spelled.

An inline-protobuf message is the bare Protobuf bytes; reading one needs --topic, and writing one prints
its topic on stderr. Its payload becomes JSON in the other dialects but cloudevents-binary, and stays
Protobuf in cloudevents-binary.

Exit status: 0 written, 1 the event cannot be decoded or encoded, 2 wrong usage.

Examples:
  chapar envelope convert booking.json --from metadata-json --to cloudevents
  chapar envelope convert booking.json --from metadata-json --to cloudevents-binary --binding kafka
  chapar envelope convert --from inline-protobuf --topic current-account.account-created.v1 \\
      --to flat-json --out account.json < account.bin";

const VALIDATE: &str = "\
The rules are those of a system that writes the dialect unless --profile names another: melmastoon
for metadata-json, learning for flat-json, meridian for inline-protobuf, invoicing for cloudevents.
Every broken rule is listed, each with its code and its page in docs/errors/. With --topic the
event must also match that topic.

Exit status: 0 valid, 1 invalid, 2 wrong usage.

Examples:
  chapar envelope validate booking.json
  chapar envelope validate --profile our-system.toml --format json event.json
  chapar envelope validate --thin snapshot.json";

/// Why a command failed.
enum Trouble {
    /// The event is invalid: exit status 1.
    Event(String),
    /// Wrong usage: exit status 2.
    Usage(String),
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let done = match command {
        Command::Show(args) => show(&args),
        Command::Convert(args) => convert(&args),
        Command::Validate(args) => validate(&args),
    };
    let (reason, status) = match done {
        Ok(code) => return Ok(code),
        Err(Trouble::Event(reason)) => (reason, 1),
        Err(Trouble::Usage(reason)) => (reason, 2),
    };
    let reason: Vec<String> = reason.lines().map(print::clean).collect();
    say(&format!("{}: {}", red("error"), reason.join("\n")));
    Ok(ExitCode::from(status))
}

fn show(args: &Show) -> Result<ExitCode, Trouble> {
    let input = args.source.read()?;
    let dialect = args.source.dialect(args.from, &input)?;
    if args.from.is_none() {
        note(&format!("read as {}", name(dialect)));
    }
    let mut profile = args.source.profile(dialect)?;
    profile.lenient_reading |= args.lenient;
    let envelope = args.source.decode(dialect, &profile, input)?;
    let readable = args.source.readable(dialect, &profile, &envelope)?;
    let text = match args.format {
        Format::Text => print::table(&readable),
        Format::Json => print::json(&readable),
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn convert(args: &Convert) -> Result<ExitCode, Trouble> {
    if args.to == Dialect::InlineProtobuf && args.out.is_none() && io::stdout().is_terminal() {
        let reason = "Protobuf does not belong on a terminal; give --out FILE or redirect stdout";
        return Err(Trouble::Usage(reason.into()));
    }
    let input = args.source.read()?;
    let mut profile = args.source.profile(args.from)?;
    profile.lenient_reading |= args.lenient;
    let mut envelope = args.source.decode(args.from, &profile, input)?;
    let carries_bytes = matches!(args.to, Dialect::InlineProtobuf | Dialect::CloudeventsBinary);
    if args.from == Dialect::InlineProtobuf && !carries_bytes {
        envelope = args.source.readable(args.from, &profile, &envelope)?;
        note("the Protobuf payload is written as JSON; fields its description lacks are left out");
    }
    let written = args.source.encode(args.to, args.to_binding, &envelope)?;
    if let Some(topic) = written.topic {
        note(&format!("its topic is {topic}"));
    }
    match &args.out {
        None => print(&written.bytes)?,
        Some(file) => std::fs::write(file, &written.bytes).map_err(|error| {
            Trouble::Usage(format!("{} cannot be written: {error}", file.display()))
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The output of `validate --format json`.
#[derive(Serialize)]
struct Validation {
    valid: bool,
    dialect: String,
    profile: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Why it cannot be decoded in this dialect.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    violations: Vec<BrokenRule>,
}

#[derive(Serialize)]
struct BrokenRule {
    code: &'static str,
    reason: String,
    page: String,
}

fn validate(args: &Validate) -> Result<ExitCode, Trouble> {
    let input = args.source.read()?;
    let dialect = args.source.dialect(args.from, &input)?;
    let mut profile = args.source.profile(dialect)?;
    profile.lenient_reading |= args.lenient;
    let mut verdict = Validation {
        valid: false,
        dialect: name(dialect),
        profile: profile.name.clone(),
        subject: None,
        id: None,
        error: None,
        violations: Vec::new(),
    };
    let envelope = match args.source.decode(dialect, &profile, input) {
        Ok(envelope) => envelope,
        Err(Trouble::Event(reason)) if args.format == Format::Json => {
            verdict.error = Some(reason);
            print_json(&verdict)?;
            return Ok(ExitCode::from(1));
        }
        Err(trouble) => return Err(trouble),
    };
    let mut broken: Vec<Violation> = Vec::new();
    if let Err(violations) = rules::check(&envelope, &profile, args.thin) {
        broken.extend(violations.iter().cloned());
    }
    if let Some(topic) = &args.source.topic {
        let topic = profile
            .subject(topic)
            .map_err(|error| Trouble::Usage(format!("--topic: {error}\n{}", error.pointer())))?;
        if let Err(violations) = rules::check_topic(&envelope, &topic) {
            broken.extend(violations.iter().cloned());
        }
    }
    broken.sort_by_key(|violation| violation.code.as_str());
    verdict.valid = broken.is_empty();
    verdict.subject = Some(envelope.subject());
    verdict.id = Some(envelope.id.to_string());
    verdict.violations = broken.iter().map(finding).collect();
    match args.format {
        Format::Json => print_json(&verdict)?,
        Format::Text => print(told(&verdict, &envelope, &profile).as_bytes())?,
    }
    Ok(if verdict.valid { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn finding(violation: &Violation) -> BrokenRule {
    let code = violation.code.as_str();
    BrokenRule { code, reason: violation.reason.clone(), page: format!("docs/errors/{code}.md") }
}

/// The result as text.
fn told(verdict: &Validation, envelope: &Envelope, profile: &Profile) -> String {
    let subject = print::clean(&envelope.subject());
    if verdict.valid {
        return format!("valid: {subject} keeps every rule of {}\n", profile.name);
    }
    let rules = match verdict.violations.len() {
        1 => "1 rule".to_owned(),
        many => format!("{many} rules"),
    };
    let mut text = format!("invalid: {subject} breaks {rules} of {}\n", profile.name);
    for finding in &verdict.violations {
        text += &format!("\n  {}  {}\n", finding.code, print::clean(&finding.reason));
        if finding.code == Code::SubjectMalformed.as_str()
            && let Err(error) = profile.subject(&envelope.subject())
        {
            for line in error.pointer().lines() {
                text += &format!("          {}\n", print::clean(line));
            }
        }
        text += &format!("          see {}\n", finding.page);
    }
    text
}

/// The name of a dialect on the command line.
fn name(dialect: Dialect) -> String {
    let value = dialect.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn print_json<T: Serialize>(value: &T) -> Result<(), Trouble> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Trouble::Usage(format!("the answer cannot be written: {error}")))?;
    print(format!("{text}\n").as_bytes())
}

fn print(bytes: &[u8]) -> Result<(), Trouble> {
    print_bytes(bytes);
    Ok(())
}

fn note(text: &str) {
    say(&dim(&format!("note: {text}")));
}

/// Writes a line to stderr, and ignores a closed one.
fn say(line: &str) {
    eprintln!("{line}");
}
