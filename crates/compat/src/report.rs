//! What was found, for people, programs and pull requests.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Proved.
    Compatible,
    /// Neither proved nor refuted.
    Unknown,
    /// Refuted, or against an evolution rule.
    Breaking,
}

/// What one finding means for the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; allowed.
    Note,
    /// Could not be decided.
    Unknown,
    /// Breaking, unless an audit of the last 30 days shows that no event is affected.
    Audit,
    /// Not allowed within a version.
    Breaking,
}

/// One change and its consequence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The id of the rule.
    pub rule: String,
    /// What it means for the verdict.
    pub severity: Severity,
    /// Where in the schema, as a JSON pointer; for Protobuf a file and a full name.
    pub pointer: String,
    /// What happens, to whom.
    pub reason: String,
    /// An event that the writing side accepts and the reading side refuses.
    pub counterexample: Option<Value>,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The worst of the findings.
    pub verdict: Verdict,
    /// The worst first.
    pub findings: Vec<Finding>,
    /// What to do about it.
    pub steps: Vec<String>,
    /// Steps of the proof; see [`BUDGET`](crate::BUDGET).
    #[serde(skip)]
    pub spent: u64,
}

impl Report {
    pub(crate) fn of(mut findings: Vec<Finding>, old_file: &str, spent: u64) -> Report {
        findings.sort_by(|a, b| {
            b.severity
                .cmp(&a.severity)
                .then_with(|| a.pointer.cmp(&b.pointer))
                .then_with(|| a.rule.cmp(&b.rule))
                .then_with(|| a.reason.cmp(&b.reason))
        });
        // Two messages that are gone from one file are two findings.
        findings
            .dedup_by(|b, a| a.rule == b.rule && a.pointer == b.pointer && a.reason == b.reason);
        let verdict = findings.iter().map(|finding| match finding.severity {
            Severity::Note => Verdict::Compatible,
            Severity::Unknown => Verdict::Unknown,
            Severity::Audit | Severity::Breaking => Verdict::Breaking,
        });
        let verdict = verdict.max().unwrap_or(Verdict::Compatible);
        let steps = steps(&findings, old_file);
        Report { verdict, findings, steps, spent }
    }

    /// Whether a gate lets the change through.
    pub fn passes(&self) -> bool {
        self.verdict == Verdict::Compatible
    }

    /// For a terminal.
    pub fn to_human(&self) -> String {
        let mut text = match self.verdict {
            Verdict::Compatible => "compatible\n".to_owned(),
            Verdict::Unknown => "unknown\n".to_owned(),
            Verdict::Breaking => "breaking\n".to_owned(),
        };
        for finding in &self.findings {
            let severity = match finding.severity {
                Severity::Note => "note",
                Severity::Unknown => "unknown",
                Severity::Audit => "audit",
                Severity::Breaking => "breaking",
            };
            let place = if finding.pointer.is_empty() { "#" } else { &finding.pointer };
            // Writing to a string does not fail.
            let _ = writeln!(text, "\n{severity}  {}  {place}\n  {}", finding.rule, finding.reason);
            if let Some(example) = &finding.counterexample {
                let _ = writeln!(text, "  for example {}", shortened(&example.to_string(), 400));
            }
        }
        if !self.steps.is_empty() {
            text.push_str("\nwhat to do\n");
            for (index, step) in self.steps.iter().enumerate() {
                let _ = writeln!(text, "  {}. {step}", index + 1);
            }
        }
        text
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Workflow commands that GitHub shows on the changed file.
    pub fn to_github(&self, file: &str) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let level = match finding.severity {
                Severity::Note => "notice",
                Severity::Unknown | Severity::Audit | Severity::Breaking => "error",
            };
            let mut message = format!(
                "{}: {}",
                if finding.pointer.is_empty() { "#" } else { &finding.pointer },
                finding.reason
            );
            if let Some(example) = &finding.counterexample {
                let _ = write!(message, "\nfor example {}", shortened(&example.to_string(), 1_000));
            }
            let _ = writeln!(
                text,
                "::{level} file={},title={}::{}",
                property(file),
                property(&finding.rule),
                escaped(&message)
            );
        }
        if !self.steps.is_empty() {
            let _ =
                writeln!(text, "::notice title=what to do::{}", escaped(&self.steps.join("\n")));
        }
        text
    }
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most).collect();
    format!("{start}…")
}

fn steps(findings: &[Finding], old_file: &str) -> Vec<String> {
    let has = |severity: Severity| findings.iter().any(|finding| finding.severity == severity);
    let mut steps = Vec::new();
    if has(Severity::Breaking) {
        let (this, next) = versions(old_file);
        if findings.iter().any(|finding| finding.rule == "event-type-changed") {
            steps.push("another event type is another subject: give it its own topic and its own subscriptions".to_owned());
        }
        steps.push(format!(
            "leave {this} as it is released and ship the change as {next}, on its own subject"
        ));
        steps.push(format!(
            "publish {this} and {next} side by side for one full release, two weeks at least"
        ));
        steps.push(format!("move every consumer to {next} in its own time"));
        steps.push(format!(
            "retire {this} once its subscriptions have seen no delivery for 7 days in a row"
        ));
    } else if has(Severity::Audit) {
        steps.push(
            "check the events of the last 30 days against the new schema, then say --audited"
                .to_owned(),
        );
        steps.push("if no event is outside the new range or pattern, repeat with --audited; otherwise ship a new version".to_owned());
    }
    if has(Severity::Unknown) && !has(Severity::Breaking) {
        steps.push(
            "split the change until each part is decided, or waive it with a reason".to_owned(),
        );
    }
    if findings
        .iter()
        .any(|finding| finding.rule == "enum-widened" && finding.severity == Severity::Note)
    {
        steps.push("document the new enum value in CHANGELOG.events.md".to_owned());
    }
    if findings.iter().any(|finding| finding.rule == "event-deprecated") {
        steps.push(
            "send the deprecation header, and keep publishing for at least one release".to_owned(),
        );
    }
    steps
}

/// `v3` and `v4` for `booking.confirmed.v3.json`; `v<n>` and `v<n+1>` where the name does not say.
fn versions(file: &str) -> (String, String) {
    let stated = file
        .split(['.', '/', '_', '-'])
        .rev()
        .find_map(|part| part.strip_prefix('v')?.parse::<u64>().ok());
    match stated.and_then(|version| Some((version, version.checked_add(1)?))) {
        Some((this, next)) => (format!("v{this}"), format!("v{next}")),
        None => ("v<n>".to_owned(), "v<n+1>".to_owned()),
    }
}
