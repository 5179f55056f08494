//! The summary at the end of a run.

use std::fmt::Write;

use chapar_testkit::servers::{Endpoint, ServerError, Skip};

use crate::suites::Outcome;

/// The results of all suites.
#[derive(Default)]
pub(crate) struct Report {
    suites: Vec<(Outcome, Vec<Skip>)>,
}

impl Report {
    /// Adds a suite and the tests in it that were skipped, which libtest counts as passed.
    pub(crate) fn add(&mut self, mut outcome: Outcome, mut skips: Vec<Skip>) {
        skips.sort_by(|one, other| one.test.cmp(&other.test));
        skips.dedup_by(|one, other| one.test == other.test);
        outcome.tally.passed = outcome.tally.passed.saturating_sub(skips.len());
        let ignored = outcome.tally.ignored.drain(..);
        skips.extend(ignored.map(|test| Skip { test, reason: "#[ignore]".into() }));
        self.suites.push((outcome, skips));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.suites.is_empty()
    }

    pub(crate) fn failed(&self) -> usize {
        self.suites.iter().map(|(outcome, _)| outcome.tally.failed).sum()
    }

    /// Suites with their times, servers, skipped tests with the reason, failures; the counts are
    /// alone on the last line.
    pub(crate) fn print(&self, used: &[Endpoint], lacking: &[ServerError]) -> String {
        let mut text = String::from("\n");
        let rows: Vec<_> = self
            .suites
            .iter()
            .filter(|(outcome, skips)| {
                outcome.tally.passed + outcome.tally.failed + skips.len() > 0
            })
            .map(|(Outcome { suite, tally, took }, skips)| {
                let seconds = format!("{:.1}", took.as_secs_f64());
                [
                    suite.clone(),
                    tally.passed.to_string(),
                    tally.failed.to_string(),
                    skips.len().to_string(),
                    seconds,
                ]
            })
            .collect();
        text += &table(["suite", "passed", "failed", "skipped", "seconds"], &rows);

        let servers: Vec<_> = used
            .iter()
            .map(|server| {
                let origin = if server.is_given() {
                    server.kind().variable()
                } else {
                    "started for this run"
                };
                [server.kind().to_string(), server.version().to_owned(), origin.to_owned()]
            })
            .collect();
        if !servers.is_empty() {
            text.push('\n');
            text += &table(["server", "version", "origin"], &servers);
        }

        section(&mut text, "missing servers", lacking.iter().map(ToString::to_string));
        let skips = self.suites.iter().flat_map(|(outcome, skips)| {
            skips.iter().map(|skip| format!("{}: {}: {}", outcome.suite, skip.test, skip.reason))
        });
        section(&mut text, "skipped", skips);
        let failures = self.suites.iter().flat_map(|(outcome, _)| {
            outcome.tally.failures.iter().map(|test| format!("{}: {test}", outcome.suite))
        });
        section(&mut text, "failed", failures);

        let passed: usize = self.suites.iter().map(|(outcome, _)| outcome.tally.passed).sum();
        let skipped: usize = self.suites.iter().map(|(_, skips)| skips.len()).sum();
        let _ = write!(text, "\n{passed} passed, {} failed", self.failed());
        if skipped > 0 {
            let _ = write!(text, ", {skipped} skipped");
        }
        text.push('\n');
        text
    }
}

/// Columns as wide as their content, the last one ragged.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(head);
    for row in rows {
        text += &line(row.each_ref().map(String::as_str));
    }
    text
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _ = writeln!(text, "\n{title}:");
    }
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::suites::Tally;

    #[test]
    fn a_skipped_test_does_not_count_as_passed() {
        let mut report = Report::default();
        let tally = Tally {
            passed: 3,
            failed: 1,
            ignored: vec!["later".into()],
            failures: vec!["b".into()],
        };
        let skip = Skip { test: "core::needs_kafka".into(), reason: "kafka is missing".into() };
        report.add(
            Outcome { suite: "core".into(), tally, took: Duration::from_millis(1234) },
            vec![skip.clone(), skip],
        );
        let text = report.print(&[], &[]);
        assert!(text.contains("core   2       1       2        1.2"), "{text}");
        assert!(text.contains("core: core::needs_kafka: kafka is missing"), "{text}");
        assert_eq!(text.lines().last(), Some("2 passed, 1 failed, 2 skipped"));
    }
}
