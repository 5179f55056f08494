//! The gate: compares the contracts of a system with the released ones.
//!
//! The caller supplies both states.

mod changelog;
mod identity;
mod released;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use base64::prelude::{BASE64_STANDARD, Engine};
use chapar_compat::proto::{self, Category};
use chapar_compat::{InputError, Report, Request, Severity, Verdict};
use chapar_core::bundle::Bundle;
use chapar_core::catalog::{Catalog, Encoding, Event, Kind, Place, Rule};
use serde::Serialize;
use serde_json::Value;

pub use self::changelog::CHANGELOG;
pub use self::released::{BundleError, Released};
use self::released::{Contract, path_of};
use crate::Loaded;

/// The `.proto` files of a system, by their path below `proto`.
pub type ProtoFiles = BTreeMap<String, Vec<u8>>;

/// One change, and its consequence for readers or writers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateFinding {
    /// The id of the rule.
    pub rule: String,
    /// Its severity for the verdict.
    pub severity: Severity,
    /// The event; empty if a mistake concerns no single event.
    pub subject: String,
    /// Where in the schema.
    pub pointer: String,
    /// The consequence.
    pub reason: String,
    /// An event that one side accepts and the other refuses.
    pub counterexample: Option<Value>,
    /// The steps to take.
    pub next: Vec<String>,
    /// Where the event is declared.
    #[serde(flatten)]
    pub place: Option<Place>,
}

/// The result of the gate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gate {
    /// The worst of the findings.
    pub verdict: Verdict,
    /// The worst first.
    pub findings: Vec<GateFinding>,
}

impl Gate {
    /// Compares the current contracts with the released ones.
    ///
    /// `audited` names the subjects whose events of the last 30 days were checked against a
    /// tightened range or pattern.
    pub fn compare(old: &Released, new: &Loaded, audited: &BTreeSet<String>) -> Gate {
        let mut work = Work { old, new, audited, findings: Vec::new() };
        work.unread();
        for (subject, contract) in &old.contracts {
            match new.catalog.event(subject) {
                Some(event) => work.kept(contract, event),
                None => work.removed(subject, contract),
            }
        }
        work.envelope();
        work.key_template();
        work.bumps();
        work.accepted_versions();
        work.consumers();
        work.mistakes();
        Gate::of(work.findings)
    }

    /// Adds changes in the Protobuf files, which belong to the system as a whole.
    pub fn compare_protos(
        self,
        catalog: &Catalog,
        old: &ProtoFiles,
        new: &ProtoFiles,
    ) -> Result<Gate, InputError> {
        if old.is_empty() || old == new {
            return Ok(self);
        }
        Ok(self.with_protos(catalog, &parsed(old)?, &parsed(new)?))
    }

    /// Adds changes in the Protobuf files since a bundle, which contains those that its messages
    /// need.
    pub fn compare_described(
        self,
        catalog: &Catalog,
        bundle: &Bundle,
        new: &ProtoFiles,
    ) -> Result<Gate, InputError> {
        let messages = bundle.contracts.iter().filter(|contract| contract.message.is_some());
        let sets: Vec<Vec<u8>> =
            messages.filter_map(|contract| BASE64_STANDARD.decode(&contract.schema).ok()).collect();
        if sets.is_empty() {
            return Ok(self);
        }
        let old = proto::Protos::described("the bundle", &sets)?;
        Ok(self.with_protos(catalog, &old, &parsed(new)?))
    }

    fn with_protos(self, catalog: &Catalog, old: &proto::Protos, new: &proto::Protos) -> Gate {
        let report = proto::diff(old, new, Category::File);
        let mut findings = self.findings;
        for found in report.findings {
            let name = found.pointer.rsplit(':').next().unwrap_or_default();
            // A message, or a field of one.
            let inside = |message: &str| {
                name.strip_prefix(message)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let event = catalog.events().find(
                |event| matches!(&event.encoding, Encoding::Protobuf(message) if inside(message)),
            );
            // Readers of other contexts keep the released constraints for as long as they like.
            let severity = match event {
                Some(event) if found.rule == proto::WIDENED && event.kind == Kind::Integration => {
                    Severity::Breaking
                }
                _ => found.severity,
            };
            let next = event.map_or_else(steps::shared, |event| {
                let version = event.subject.version();
                steps::bump(catalog, event, version.saturating_add(1))
            });
            findings.push(GateFinding {
                rule: found.rule,
                severity,
                subject: event.map(|event| event.subject.to_string()).unwrap_or_default(),
                pointer: found.pointer,
                reason: found.reason,
                counterexample: None,
                next,
                place: event.map(|event| event.place.clone()),
            });
        }
        Gate::of(findings)
    }

    /// Whether the change passes.
    pub fn passes(&self) -> bool {
        self.verdict == Verdict::Compatible
    }

    fn of(mut findings: Vec<GateFinding>) -> Gate {
        findings.sort_by(|a, b| {
            let key = |f: &GateFinding| (f.subject.clone(), f.pointer.clone(), f.rule.clone());
            b.severity.cmp(&a.severity).then_with(|| key(a).cmp(&key(b)))
        });
        let verdicts = findings.iter().map(|finding| match finding.severity {
            Severity::Note => Verdict::Compatible,
            Severity::Unknown => Verdict::Unknown,
            Severity::Audit | Severity::Breaking => Verdict::Breaking,
        });
        Gate { verdict: verdicts.max().unwrap_or(Verdict::Compatible), findings }
    }
}

fn parsed(files: &ProtoFiles) -> Result<proto::Protos, InputError> {
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    proto::Protos::parse(&files)
}

struct Work<'a> {
    old: &'a Released,
    new: &'a Loaded,
    audited: &'a BTreeSet<String>,
    findings: Vec<GateFinding>,
}

impl Work<'_> {
    fn add(
        &mut self,
        (rule, severity): (&str, Severity),
        (subject, place): (&str, Option<&Place>),
        reason: String,
        next: Vec<String>,
    ) {
        self.findings.push(GateFinding {
            rule: rule.to_owned(),
            severity,
            subject: subject.to_owned(),
            pointer: String::new(),
            reason,
            counterexample: None,
            next,
            place: place.cloned(),
        });
    }

    /// If an old event could not be read, its removal would go unnoticed.
    fn unread(&mut self) {
        for mistake in &self.old.unread {
            let reason = format!("the old side cannot be read in full: {}", mistake.message);
            let next = vec!["compare with another revision, or with a released bundle".to_owned()];
            let at = ("", Some(&mistake.place));
            self.add(("old-side-unreadable", Severity::Unknown), at, reason, next);
        }
    }

    fn kept(&mut self, old: &Contract, event: &Event) {
        let subject = event.subject.as_str();
        let at = (subject, Some(&event.place));
        if old.owner != event.owner {
            let reason = format!("its owner changed from {} to {}", old.owner, event.owner);
            let next = vec![
                format!("leave {subject} with {}", old.owner),
                format!("let {} publish an event of its own, under its own name", event.owner),
            ];
            self.add(("owner-changed", Severity::Breaking), at, reason, next);
        }
        if old.kind == Some(Kind::Integration) && event.kind == Kind::Domain {
            let reason = "an integration event became a domain event, whose rules promise its \
                          readers less"
                .to_owned();
            let next = vec![
                "say kind = \"integration\" again".to_owned(),
                "or deprecate it, and publish a domain event under another name".to_owned(),
            ];
            self.add(("kind-weakened", Severity::Breaking), at, reason, next);
        }
        self.identity(old, event);
        if event.encoding == Encoding::Json && old.message.is_none() {
            self.schema(old, event);
        }
    }

    fn schema(&mut self, old: &Contract, event: &Event) {
        let subject = event.subject.as_str();
        let at = (subject, Some(&event.place));
        let missing = |side: &str| format!("{side} has no usable schema for it");
        let again = || vec!["run `chapar catalog check` and repair what it finds".to_owned()];
        let Some(before) = &old.schema else {
            let reason = missing("the old side");
            return self.add(("schema-missing", Severity::Unknown), at, reason, again());
        };
        let Some(now) = self.new.schemas.get(subject) else {
            let reason = missing("the working tree");
            return self.add(("schema-missing", Severity::Unknown), at, reason, again());
        };
        if *before == now.text {
            return;
        }
        match self.diff(old, before, event, &now.text) {
            Ok(report) => self.changed(report, event),
            Err(error) => {
                let reason = format!("the two schemas cannot be compared: {error}");
                self.add(("schema-unusable", Severity::Unknown), at, reason, again());
            }
        }
    }

    fn diff(
        &self,
        old: &Contract,
        before: &str,
        event: &Event,
        now: &str,
    ) -> Result<Report, InputError> {
        let file = path_of(&self.new.catalog, event);
        let before = chapar_compat::Schema::parse(&file, before.as_bytes())?;
        let now = chapar_compat::Schema::parse(&file, now.as_bytes())?;
        // The stricter of the two kinds applies: released readers were promised the strict rules.
        let strict = event.kind == Kind::Integration || old.kind == Some(Kind::Integration);
        let kind =
            if strict { chapar_compat::Kind::Integration } else { chapar_compat::Kind::Domain };
        let audited = self.audited.contains(event.subject.as_str());
        let request = Request::new(&before, &now).kind(kind).audited(audited);
        let request = request.widened_enums(self.new.catalog.system.widened_enums);
        Ok(chapar_compat::diff(&request))
    }

    fn changed(&mut self, report: Report, event: &Event) {
        let catalog = &self.new.catalog;
        let next = self.old.latest(event.subject.event_type()).saturating_add(1);
        for found in report.findings {
            let (reason, steps) = match found.severity {
                Severity::Breaking => {
                    let reason = format!("{}; the change needs v{next}", found.reason);
                    (reason, steps::bump(catalog, event, next))
                }
                Severity::Audit => {
                    let reason = format!("{}; it needs an audit or v{next}", found.reason);
                    (reason, steps::audit(event, next))
                }
                Severity::Unknown => (found.reason, steps::undecided(next)),
                Severity::Note => (found.reason, steps::note(&found.rule)),
            };
            self.findings.push(GateFinding {
                rule: found.rule,
                severity: found.severity,
                subject: event.subject.to_string(),
                pointer: found.pointer,
                reason,
                counterexample: found.counterexample,
                next: steps,
                place: Some(event.place.clone()),
            });
        }
    }

    fn removed(&mut self, subject: &str, old: &Contract) {
        let at = (subject, old.place.as_ref());
        let readers = match &old.consumers {
            Some(consumers) if consumers.is_empty() => {
                let reason = "it is gone, and it had no consumers".to_owned();
                return self.add(("event-removed", Severity::Note), at, reason, Vec::new());
            }
            Some(consumers) => consumers.join(", "),
            None => "unknown consumers (a bundle does not list them)".to_owned(),
        };
        if old.deprecated {
            let reason = "it was deprecated and is gone".to_owned();
            let next = vec!["retire it only after 7 silent days without a subscription".to_owned()];
            self.add(("event-retired", Severity::Note), at, reason, next);
            return self.left_behind(subject, old);
        }
        let reason = format!("it is gone without having been deprecated; read by {readers}");
        let next = steps::removal(subject);
        self.add(("event-removed", Severity::Breaking), at, reason, next);
    }

    /// Consumers of a retired version that accept none of the remaining ones.
    fn left_behind(&mut self, subject: &str, old: &Contract) {
        let stays = |consumer: &str| {
            self.new.catalog.events().any(|event| {
                let heir = event.subject.event_type() == old.event_type
                    || old.replaced_by.as_deref() == Some(event.subject.as_str());
                heir && event.consumers.iter().any(|reader| reader.service == consumer)
            })
        };
        let left: Vec<String> = old.consumers.iter().flatten().cloned().collect();
        let left: Vec<String> = left.into_iter().filter(|consumer| !stays(consumer)).collect();
        for consumer in left {
            let reason = format!("{consumer} accepts v{}, which no longer exists", old.version);
            let next = vec![
                format!("keep {subject} until {consumer} has cut over"),
                "list it as a consumer of the replacement, or first take it off the old one"
                    .to_owned(),
            ];
            let at = (subject, old.place.as_ref());
            self.add(("accepted-version-gone", Severity::Breaking), at, reason, next);
        }
    }

    /// A new version must be published together with the one it replaces.
    fn bumps(&mut self) {
        let versions = self.new.catalog.versions();
        for (name, events) in versions {
            let latest = self.old.latest(name);
            let Some(top) = events.last().filter(|top| top.subject.version() > latest) else {
                continue;
            };
            // Version 0 does not exist: without an old version it is a new event.
            if latest == 0 {
                continue;
            }
            let subject = top.subject.as_str();
            let before = events.iter().find(|event| event.subject.version() == latest);
            let wrong = match before.map(|event| event.deprecated.as_ref()) {
                None => format!("v{latest} is gone, so there is nothing to publish beside it"),
                Some(None) => format!("v{latest} is not marked as deprecated"),
                Some(Some(deprecated)) if deprecated.replaced_by != subject => {
                    format!("v{latest} is replaced by {}, not by it", deprecated.replaced_by)
                }
                Some(Some(_)) if top.dual_publish.is_none() && top.encoding == Encoding::Json => {
                    format!(
                        "it has no dual_publish entry, so v{latest} would stop with its release"
                    )
                }
                Some(Some(_)) => continue,
            };
            let next = steps::dual_publish(latest, subject);
            let at = (subject, Some(&top.place));
            self.add(("bump-without-dual-publish", Severity::Breaking), at, wrong, next);
        }
    }

    fn accepted_versions(&mut self) {
        let versions = self.new.catalog.versions();
        for event in self.new.catalog.events() {
            let siblings = versions.get(event.subject.event_type());
            let there = |version: u32| {
                siblings.is_some_and(|all| all.iter().any(|one| one.subject.version() == version))
            };
            for consumer in &event.consumers {
                for gone in consumer.accepts.iter().filter(|version| !there(**version)) {
                    let service = &consumer.service;
                    let reason = format!("{service} accepts v{gone}, which no longer exists");
                    let next = vec![
                        format!("keep v{gone} until {service} has cut over"),
                        format!("or take {gone} out of what {service} accepts"),
                    ];
                    let at = (event.subject.as_str(), Some(&consumer.place));
                    self.add(("accepted-version-gone", Severity::Breaking), at, reason, next);
                }
            }
        }
    }

    /// The fields that consumers read must still be there, whichever service changed them.
    fn consumers(&mut self) {
        for breach in self.new.breaches() {
            self.findings.push(GateFinding {
                rule: "consumer-contract".to_owned(),
                severity: Severity::Breaking,
                reason: breach.message(),
                next: steps::consumer(&breach),
                subject: breach.subject,
                pointer: breach.pointer,
                counterexample: breach.example.map(|(_, payload)| payload),
                place: Some(breach.place),
            });
        }
        let kept: BTreeSet<(&str, &str)> = self.new.reads().collect();
        for (service, subject) in &self.old.reads {
            let listed = self.new.catalog.event(subject).filter(|event| {
                event.consumers.iter().any(|consumer| consumer.service == *service)
            });
            if let Some(event) = listed.filter(|_| !kept.contains(&(service, subject))) {
                let reason = format!("{service} still reads it, and its contract is gone");
                let next = vec![format!("put it back into consumers/{service}.toml")];
                let at = (subject.as_str(), Some(&event.place));
                self.add(("consumer-contract-withdrawn", Severity::Breaking), at, reason, next);
            }
        }
    }

    /// A catalog with mistakes may hide what the rules above look for.
    fn mistakes(&mut self) {
        for mistake in &self.new.mistakes {
            let said = |finding: &GateFinding| finding.place.as_ref() == Some(&mistake.place);
            if mistake.rule == Rule::AcceptedVersion && self.findings.iter().any(said) {
                continue;
            }
            let next = vec!["repair the catalog; `chapar catalog check` says the same".to_owned()];
            let rule = (mistake.rule.as_str(), Severity::Unknown);
            self.add(rule, ("", Some(&mistake.place)), mistake.message.clone(), next);
        }
    }
}
