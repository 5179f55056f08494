//! The steps to take after a finding.

use chapar_core::catalog::{Catalog, Encoding, Event};

use super::released::path_of;
use crate::Breach;

/// A breaking change needs a version of its own.
pub(super) fn bump(catalog: &Catalog, event: &Event, next: u32) -> Vec<String> {
    let this = event.subject.version();
    let heir = format!("{}.v{next}", event.subject.event_type());
    let mut steps = Vec::new();
    if event.encoding == Encoding::Json {
        let old = path_of(catalog, event);
        let folder = old.rsplit_once('/').map_or("", |(folder, _)| folder);
        steps.push(format!("put {old} back as it was released"));
        steps.push(format!("add {folder}/v{next}.json with the change, and an event {heir}"));
    } else {
        steps.push(format!("put the message of v{this} back as it was released"));
        steps.push(format!("add a message for v{next} with the change, and an event {heir}"));
    }
    steps.extend(dual_publish(this, &heir));
    steps
}

/// A consumer contract is broken: ask the consumer first.
pub(super) fn consumer(breach: &Breach) -> Vec<String> {
    let (consumer, subject) = (&breach.consumer, &breach.subject);
    let what = if breach.pointer.is_empty() { "what was" } else { breach.pointer.as_str() };
    vec![
        format!("keep {what} in {subject} as {consumer} reads it"),
        format!("or let {consumer} change consumers/{consumer}.toml first, and release it"),
        "or ship the change as the next version, published beside this one".to_owned(),
    ]
}

/// The window of dual publication.
pub(super) fn dual_publish(this: u32, heir: &str) -> Vec<String> {
    let next = heir.rsplit('.').next().unwrap_or(heir);
    vec![
        format!(
            "say dual_publish on the event of {next}: the window, and how it becomes v{this} again"
        ),
        format!(
            "say deprecated = {{ since = <date>, replaced_by = \"{heir}\" }} on the event of v{this}"
        ),
        format!(
            "retire v{this} with `chapar catalog cutover --retire`, once every consumer has cut over \
             and after 7 silent days without a subscription"
        ),
    ]
}

/// A range or a pattern may be tightened if no recent event is outside it.
pub(super) fn audit(event: &Event, next: u32) -> Vec<String> {
    vec![
        format!(
            "run `chapar schema audit --since 30d --subject {}` over the events of each store",
            event.subject
        ),
        format!(
            "where none is outside, repeat with --audited {}; otherwise ship v{next}",
            event.subject
        ),
    ]
}

pub(super) fn undecided(next: u32) -> Vec<String> {
    vec![format!("split the change until each part is decided, or ship it as v{next}")]
}

pub(super) fn note(rule: &str) -> Vec<String> {
    match rule {
        "enum-widened" => {
            vec!["document it in CHANGELOG.events.md: --changelog writes the entry".to_owned()]
        }
        _ => Vec::new(),
    }
}

/// Messages and files that several events share.
pub(super) fn shared() -> Vec<String> {
    vec!["put it back, and give the change a message or a file of its own".to_owned()]
}

pub(super) fn removal(subject: &str) -> Vec<String> {
    vec![
        format!("put {subject} back, with its schema"),
        "mark it as deprecated with its replacement, and keep publishing it for at least one \
         release"
            .to_owned(),
        "retire it after 7 silent days without a subscription".to_owned(),
    ]
}
