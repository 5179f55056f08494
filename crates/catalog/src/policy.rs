//! The policies of a system, each with a code: what no catalog, contract or code of a service may
//! do.
//!
//! Declarations in the catalog are exact. Code is scanned as text, not parsed: literal occurrences
//! are found; what only running the program could tell is not, and is refused at run time.

mod chains;
mod code;
mod requests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use chapar_compat::Severity;
use chapar_core::catalog::{Mistake, Place, Rule};
use serde::{Serialize, Serializer};

use crate::gate::{Gate, GateFinding};
use crate::{LoadError, Loaded};

macro_rules! policies {
    ($($(#[$doc:meta])* $policy:ident = $code:literal,)*) => {
        /// A policy. A code never changes its meaning; each has a page in `docs/errors`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Policy { $($(#[$doc])* $policy,)* }

        impl Policy {
            /// Every policy.
            pub const ALL: &[Policy] = &[$(Policy::$policy,)*];

            /// The stable code, such as `CH2001`.
            pub fn as_str(self) -> &'static str {
                match self { $(Policy::$policy => $code,)* }
            }
        }
    };
}

policies! {
    /// An invalid catalog, schema or contract.
    Catalog = "CH2000",
    /// A topic that code or a consumer names and the catalog lacks.
    Unregistered = "CH2001",
    /// A service publishes an event of another service.
    NotOwner = "CH2002",
    /// An event without a tenant, outside the allow-list.
    Untenanted = "CH2003",
    /// A cross-tenant topic or reader outside the register.
    CrossTenant = "CH2004",
    /// An AI event without provenance.
    Provenance = "CH2005",
    /// An event without an idempotency key, where the system requires one.
    IdempotencyKey = "CH2006",
    /// A released contract changed in a way that needs a new version, or that could not be decided.
    BreakingChange = "CH2007",
    /// A broken consumer contract.
    ConsumerContract = "CH2008",
    /// A synchronous chain of calls that is too long.
    SynchronousChain = "CH2009",
    /// An event used as a request or a reply.
    RequestReply = "CH2010",
    /// Vendor code outside its adapter.
    VendorCode = "CH2011",
    /// A new version that is not published together with the one it replaces.
    DualPublish = "CH2012",
}

/// A violation of a policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Offence {
    /// The position.
    #[serde(flatten)]
    pub place: Place,
    /// The policy.
    pub code: Policy,
    /// What is wrong, and what to do.
    pub message: String,
}

/// The result of a check.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Findings {
    /// How many files of code were scanned.
    pub files: usize,
    /// All offences, by file and line.
    pub offences: Vec<Offence>,
}

/// Checks a system against every policy. `gate` is its comparison with the released contracts, if
/// there is one.
pub fn check(folder: &Path, loaded: &Loaded, gate: Option<&Gate>) -> Result<Findings, LoadError> {
    let mut found = Found::default();
    for mistake in &loaded.mistakes {
        found.add(policy_of(mistake.rule), &mistake.place, &mistake.message);
    }
    for breach in loaded.breaches() {
        found.add(Policy::ConsumerContract, &breach.place, breach.message());
    }
    chains::check(&loaded.catalog, &mut found);
    requests::check(loaded, &mut found);
    let files = code::check(folder, &loaded.catalog, &mut found)?;
    for finding in gate.iter().flat_map(|gate| &gate.findings) {
        found.changed(finding, folder);
    }
    Ok(Findings { files, offences: found.0.into_iter().collect() })
}

/// Offences in the order of files and lines, each once.
#[derive(Default)]
struct Found(BTreeSet<Offence>);

impl Found {
    fn add(&mut self, code: Policy, place: &Place, message: impl Into<String>) {
        let Mistake { place, message, .. } = place.mistake(Rule::WrongValue, message);
        self.0.insert(Offence { place, code, message });
    }

    fn changed(&mut self, finding: &GateFinding, folder: &Path) {
        // Mistakes and breaches are already reported under the code of their policy.
        let known = Rule::ALL.iter().any(|rule| rule.as_str() == finding.rule)
            || finding.rule == "consumer-contract";
        if known || finding.severity == Severity::Note {
            return;
        }
        let code = match finding.rule.as_str() {
            "bump-without-dual-publish" => Policy::DualPublish,
            _ => Policy::BreakingChange,
        };
        let start = || Place::start(folder.join("catalog.toml").display().to_string());
        let place = finding.place.clone().unwrap_or_else(start);
        let at = [finding.subject.as_str(), finding.pointer.as_str()].join(" ");
        let message = format!("{}: {} [{}]", at.trim(), finding.reason, finding.rule);
        self.add(code, &place, message);
    }
}

fn policy_of(rule: Rule) -> Policy {
    match rule {
        Rule::Unregistered => Policy::Unregistered,
        Rule::Owner => Policy::NotOwner,
        Rule::Untenanted => Policy::Untenanted,
        Rule::CrossTenant => Policy::CrossTenant,
        Rule::Provenance => Policy::Provenance,
        _ => Policy::Catalog,
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
