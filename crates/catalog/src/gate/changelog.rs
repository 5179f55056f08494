//! The changelog of events: which values enums got within a version.

use chapar_compat::Severity;
use chapar_core::catalog::{Catalog, Kind};

use super::{Gate, GateFinding};

/// The name of the file in the folder of a system.
pub const CHANGELOG: &str = "CHANGELOG.events.md";

impl Gate {
    /// The entries that the changelog lacks, without their dates.
    pub fn undocumented(&self, changelog: &str) -> Vec<String> {
        let entries = self.findings.iter().filter(|found| is_growth(found)).map(entry);
        entries.filter(|entry| !changelog.contains(entry.as_str())).collect()
    }

    /// Refuses a grown enum of an integration event without an entry: the entry is how its readers
    /// learn of the value.
    pub fn documented(mut self, catalog: &Catalog, changelog: &str) -> Gate {
        let missing = self.undocumented(changelog);
        for found in self.findings.iter_mut().filter(|found| is_growth(found)) {
            let event = catalog.event(&found.subject);
            let shared = event.is_some_and(|event| event.kind == Kind::Integration);
            if shared && catalog.system.widened_enums && missing.contains(&entry(found)) {
                found.severity = Severity::Breaking;
                found.reason.push_str(&format!("; {CHANGELOG} has no entry about it"));
                found.next =
                    vec!["run it again with --changelog, which writes the entry".to_owned()];
            }
        }
        Gate::of(self.findings)
    }
}

fn is_growth(found: &GateFinding) -> bool {
    found.rule == "enum-widened" && found.severity == Severity::Note
}

fn entry(found: &GateFinding) -> String {
    let what = found.reason.split(": ").next().unwrap_or_default();
    format!("`{}` {}: {what}", found.subject, found.pointer)
}
