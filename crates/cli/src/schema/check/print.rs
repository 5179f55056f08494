//! Output of the gate, as text, JSON and pull request annotations.

use std::fmt::Write as _;

use anyhow::Result;
use chapar_catalog::gate::{Gate, GateFinding};
use chapar_compat::{Severity, Verdict};

use super::bypass::Bypass;
use super::{Check, Form};

pub(super) fn out(args: &Check, gate: &Gate, bypass: Option<&Bypass<'_>>) -> Result<()> {
    let text = match args.format {
        Form::Text => text(args, gate),
        Form::Json => json(args, gate, bypass)?,
        Form::Github => github(gate, bypass),
    };
    print!("{text}");
    Ok(())
}

fn json(args: &Check, gate: &Gate, bypass: Option<&Bypass<'_>>) -> Result<String> {
    let mut report = serde_json::to_value(gate)?;
    report["system"] = args.system.as_str().into();
    report["against"] = args.against.as_str().into();
    if let Some(bypass) = bypass {
        report["bypass"] = bypass.to_json();
    }
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn text(args: &Check, gate: &Gate) -> String {
    let verdict = match gate.verdict {
        Verdict::Compatible => "compatible",
        Verdict::Unknown => "unknown",
        Verdict::Breaking => "breaking",
    };
    // Writing to a string does not fail.
    let mut text = String::new();
    let _ = writeln!(text, "{verdict}: {} against {}", args.system, args.against);
    for (index, finding) in gate.findings.iter().enumerate() {
        let severity = match finding.severity {
            Severity::Note => "note",
            Severity::Unknown => "unknown",
            Severity::Audit => "audit",
            Severity::Breaking => "breaking",
        };
        let _ = writeln!(text, "\n{severity}  {}  {}", finding.rule, named(finding));
        if let Some(place) = &finding.place {
            let _ = writeln!(text, "  {}:{}", place.file, place.line);
        }
        let _ = writeln!(text, "  {}", finding.reason);
        if let Some(example) = &finding.counterexample {
            let _ = writeln!(text, "  for example {}", shortened(&example.to_string()));
        }
        // Several changes of one schema share their steps, which are printed once, after the last.
        let repeated = gate.findings.get(index + 1).is_some_and(|following| {
            following.subject == finding.subject && following.next == finding.next
        });
        if !repeated && !finding.next.is_empty() {
            text.push_str("  what to do\n");
            for (number, step) in finding.next.iter().enumerate() {
                let _ = writeln!(text, "    {}. {step}", number + 1);
            }
        }
    }
    text
}

/// Workflow commands, which a pull request shows next to the event.
fn github(gate: &Gate, bypass: Option<&Bypass<'_>>) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut text = String::new();
    for finding in &gate.findings {
        let level = if finding.severity == Severity::Note { "notice" } else { "error" };
        let place = finding.place.as_ref().map_or_else(String::new, |place| {
            format!("file={},line={},", property(&place.file), place.line)
        });
        let mut message = format!("{}: {}", named(finding), finding.reason);
        if let Some(example) = &finding.counterexample {
            let _ = write!(message, "\nfor example {}", shortened(&example.to_string()));
        }
        for (number, step) in finding.next.iter().enumerate() {
            let _ = write!(message, "\n{}. {step}", number + 1);
        }
        let title = property(&finding.rule);
        let _ = writeln!(text, "::{level} {place}title={title}::{}", data(&message));
    }
    if let Some(bypass) = bypass {
        let _ = writeln!(text, "::warning title=bypass::{}", data(&bypass.sentence()));
    }
    text
}

fn named(finding: &GateFinding) -> String {
    let parts = [finding.subject.as_str(), finding.pointer.as_str()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "the catalog".to_owned() } else { parts.join(" ") }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 400;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start}…")
}
