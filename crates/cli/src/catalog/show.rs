//! Tables, annotations and verdicts.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};

use anyhow::Result;
use chapar_catalog::Loaded;
use chapar_catalog::inventory::{Grant, Subscription, Topic};
use chapar_core::catalog::{Catalog, Place};
use serde::Serialize;
use serde_json::json;

use crate::output::{bold, dim, red};

/// A line of `chapar catalog list`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    subject: String,
    owner: String,
    kind: &'static str,
    retention: String,
    consumers: Vec<String>,
    trigger: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    residency: String,
    volume: &'static str,
    payload: &'static str,
    encoding: &'static str,
    deprecated: bool,
}

pub(super) fn rows(catalog: &Catalog) -> Vec<Row> {
    let mut rows: Vec<Row> = catalog
        .events()
        .map(|event| Row {
            subject: event.subject.to_string(),
            owner: event.owner.clone(),
            kind: event.kind.as_str(),
            retention: event.retention.clone(),
            consumers: catalog.readers(event).map(str::to_owned).collect(),
            trigger: event.trigger.clone(),
            key: event.key.clone(),
            residency: event.residency.clone().unwrap_or_else(|| "tenant".to_owned()),
            volume: event.volume.as_str(),
            payload: event.payload.as_str(),
            encoding: event.encoding.as_str(),
            deprecated: event.deprecated.is_some(),
        })
        .collect();
    rows.sort_by(|a, b| a.subject.cmp(&b.subject));
    rows
}

pub(super) fn events(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| {
        let old = if row.deprecated { " (deprecated)" } else { "" };
        vec![
            format!("{}{old}", row.subject),
            row.owner.clone(),
            row.kind.to_owned(),
            row.retention.clone(),
            row.consumers.join(", "),
        ]
    });
    table(["SUBJECT", "OWNER", "KIND", "RETENTION", "CONSUMERS"], lines)
}

pub(super) fn topics(topics: &[Topic]) -> String {
    let lines = topics.iter().map(|topic| {
        vec![
            topic.topic.clone(),
            topic.owner.clone(),
            topic.retention.clone(),
            topic.partitions.to_string(),
            topic.ordering_key.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    });
    table(["TOPIC", "OWNER", "RETENTION", "PARTITIONS", "ORDERING KEY"], lines)
}

pub(super) fn subscriptions(subscriptions: &[Subscription]) -> String {
    let lines = subscriptions.iter().map(|subscription| {
        vec![subscription.name.clone(), subscription.purpose.clone().unwrap_or_default()]
    });
    table(["SUBSCRIPTION", "FOR"], lines)
}

pub(super) fn grants(grants: &[Grant]) -> String {
    let lines = grants.iter().flat_map(|grant| {
        let publish = grant.publish.iter().map(|topic| ("publish", topic));
        let read = grant.read.iter().map(|topic| ("read", topic));
        let line = |(action, topic): (&str, &String)| {
            vec![grant.service.clone(), action.to_owned(), topic.clone()]
        };
        publish.chain(read).map(line).collect::<Vec<_>>()
    });
    table(["SERVICE", "MAY", "TOPIC"], lines)
}

pub(super) fn mistakes(systems: &[Loaded]) -> String {
    let mut text = String::new();
    for mistake in systems.iter().flat_map(|loaded| &loaded.mistakes) {
        let place = painted(bold, &mistake.place.to_string());
        let rule = painted(dim, &format!("[{}]", mistake.rule));
        text.push_str(&format!("{place}: {} {rule}\n", mistake.message));
    }
    text
}

pub(super) fn mistakes_json(systems: &[Loaded]) -> Result<String> {
    let systems: Vec<_> = systems
        .iter()
        .map(|loaded| {
            json!({
                "system": loaded.catalog.profile.name,
                "events": loaded.catalog.events().count(),
                "schemas": loaded.schemas.len(),
                "mistakes": loaded.mistakes,
            })
        })
        .collect();
    Ok(format!("{}\n", serde_json::to_string_pretty(&systems)?))
}

pub(super) fn annotations(systems: &[Loaded]) -> String {
    let mistakes = systems.iter().flat_map(|loaded| &loaded.mistakes);
    mistakes.map(|m| annotation(&m.place, m.rule.as_str(), &m.message)).collect()
}

/// A workflow command, which a pull request shows next to the line.
pub(crate) fn annotation(place: &Place, title: &str, message: &str) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let (file, line, column) = (property(&place.file), place.line, place.column);
    let (title, message) = (property(title), data(message));
    format!("::error file={file},line={line},col={column},title={title}::{message}\n")
}

/// The result of a check, in a line.
pub(super) fn verdict(loaded: &Loaded) -> String {
    let name = &loaded.catalog.profile.name;
    let events = counted(loaded.catalog.events().count(), "event");
    let services = counted(loaded.catalog.services.len(), "service");
    if loaded.mistakes.is_empty() {
        return format!("{name}: {events} of {services}, no mistakes");
    }
    let files: BTreeSet<&str> = loaded.mistakes.iter().map(|m| &*m.place.file).collect();
    let mistakes = red(&counted(loaded.mistakes.len(), "mistake"));
    format!("{name}: {mistakes} in {}", counted(files.len(), "file"))
}

pub(crate) fn error(text: &str) -> String {
    format!("{}: {text}", red("error"))
}

pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Columns as wide as their widest cell; the last one is never padded.
pub(crate) fn table<const N: usize>(
    head: [&str; N],
    lines: impl Iterator<Item = Vec<String>>,
) -> String {
    let lines: Vec<Vec<String>> = lines.collect();
    let mut widths = head.map(|cell| cell.chars().count());
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let row = |cells: &[String]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = painted(bold, &row(&head.map(str::to_owned)));
    text.push('\n');
    for line in &lines {
        text.push_str(&row(line));
        text.push('\n');
    }
    text
}

/// Colours if stdout is a terminal. The other helpers look at stderr only.
pub(crate) fn painted(paint: fn(&str) -> String, text: &str) -> String {
    if io::stdout().is_terminal() { paint(text) } else { text.to_owned() }
}
