//! Output of an envelope, as text and as canonical JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use chapar_core::{Actor, Envelope, Id, Payload, Producer, Tenant, TraceContext};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Every field of an envelope, one per line; a dash if it is not set.
pub(super) fn table(e: &Envelope) -> String {
    let mut table = Table(String::new());
    table.row("subject", Some(e.subject()));
    table.row("id", Some(format!("{} ({})", e.id, kind(&e.id))));
    table.row("tenant", Some(e.tenant.to_string()));
    table.row("occurred at", Some(e.occurred_at.to_string()));
    table.row("ingested at", e.ingested_at.map(|at| at.to_string()));
    table.row("written at", e.written_at.map(|at| at.to_string()));
    table.row("correlation", Some(e.correlation.to_string()));
    table.row("causation", e.causation.as_ref().map(Id::to_string));
    table.row("actor", e.actor.as_ref().map(actor));
    table.row("producer", Some(producer(&e.producer)).filter(|text| !text.is_empty()));
    table.row("source", e.source.clone());
    table.row("aggregate", e.aggregate.as_ref().map(aggregate));
    table.row("ordering key", e.ordering_key.clone());
    table.row("idempotency key", e.idempotency_key.clone());
    table.row("schema", e.schema.clone());
    table.row("content type", e.content_type.clone());
    table.row("retention", e.retention.clone());
    table.row("residency", e.residency.clone());
    table.row("offline replay", Some(if e.offline_replay { "yes" } else { "no" }.to_owned()));
    table.row("AI provenance", e.ai_provenance.as_ref().map(Value::to_string));
    table.row("outbox id", e.outbox_id.as_ref().map(Id::to_string));
    table.row("traceparent", e.trace.as_ref().map(|trace| trace.traceparent.clone()));
    table.row("tracestate", e.trace.as_ref().and_then(|trace| trace.tracestate.clone()));
    table.group("metadata", "", &e.metadata);
    table.group("unknown fields", "kept as they came", &e.extensions);
    table.payload(e);
    table.0
}

/// Every field of an envelope under its canonical name.
pub(super) fn json(e: &Envelope) -> String {
    let (payload, payload_hex) = match &e.payload {
        Payload::Json(raw) => (Some(&**raw), None),
        Payload::Bytes(bytes) => (None, Some(hex(bytes))),
    };
    let canonical = Canonical {
        id: &e.id,
        event_type: &e.event_type,
        version: e.version,
        subject: e.subject(),
        schema: e.schema.as_deref(),
        tenant: &e.tenant,
        correlation: &e.correlation,
        causation: e.causation.as_ref(),
        actor: e.actor.as_ref(),
        occurred_at: e.occurred_at,
        ingested_at: e.ingested_at,
        written_at: e.written_at,
        producer: &e.producer,
        source: e.source.as_deref(),
        content_type: e.content_type.as_deref(),
        idempotency_key: e.idempotency_key.as_deref(),
        ordering_key: e.ordering_key.as_deref(),
        aggregate: e.aggregate.as_ref().map(|aggregate| CanonicalAggregate {
            kind: &aggregate.kind,
            id: &aggregate.id,
            version: aggregate.version,
        }),
        retention: e.retention.as_deref(),
        residency: e.residency.as_deref(),
        offline_replay: e.offline_replay,
        ai_provenance: e.ai_provenance.as_ref(),
        outbox_id: e.outbox_id.as_ref(),
        trace: e.trace.as_ref(),
        metadata: &e.metadata,
        extensions: &e.extensions,
        payload,
        payload_hex,
    };
    let compact = serde_json::to_string(&canonical).expect("memory takes every JSON value");
    indented(&compact) + "\n"
}

/// A text without terminal control sequences.
pub(super) fn clean(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_direction(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[derive(Serialize)]
struct Canonical<'e> {
    id: &'e Id,
    event_type: &'e str,
    version: u32,
    subject: String,
    schema: Option<&'e str>,
    tenant: &'e Tenant,
    correlation: &'e Id,
    causation: Option<&'e Id>,
    actor: Option<&'e Actor>,
    occurred_at: Timestamp,
    ingested_at: Option<Timestamp>,
    written_at: Option<Timestamp>,
    producer: &'e Producer,
    source: Option<&'e str>,
    content_type: Option<&'e str>,
    idempotency_key: Option<&'e str>,
    ordering_key: Option<&'e str>,
    aggregate: Option<CanonicalAggregate<'e>>,
    retention: Option<&'e str>,
    residency: Option<&'e str>,
    offline_replay: bool,
    ai_provenance: Option<&'e Value>,
    outbox_id: Option<&'e Id>,
    trace: Option<&'e TraceContext>,
    metadata: &'e BTreeMap<String, Value>,
    extensions: &'e BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'e RawValue>,
    /// A payload that is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
}

#[derive(Serialize)]
struct CanonicalAggregate<'e> {
    #[serde(rename = "type")]
    kind: &'e str,
    id: &'e str,
    version: Option<i64>,
}

struct Table(String);

impl Table {
    fn row(&mut self, name: &str, value: Option<String>) {
        let value = value.as_deref().map_or_else(|| "-".to_owned(), clean);
        self.line(format_args!("{name:<17}{value}"));
    }

    fn group(&mut self, name: &str, remark: &str, fields: &BTreeMap<String, Value>) {
        if fields.is_empty() {
            return self.row(name, None);
        }
        self.line(format_args!("{}", format!("{name:<17}{remark}").trim_end()));
        for (name, value) in fields {
            self.line(format_args!("  {:<15}{}", clean(name), clean(&value.to_string())));
        }
    }

    fn payload(&mut self, e: &Envelope) {
        let size = e.payload.as_bytes().len();
        match &e.payload {
            Payload::Json(raw) => {
                self.line(format_args!("{:<17}JSON, {size} bytes", "payload"));
                let text = indented(raw.get());
                for line in text.lines() {
                    self.line(format_args!("  {}", clean(line.trim_end())));
                }
            }
            Payload::Bytes(bytes) => {
                const SHOWN: usize = 256;
                let media_type = e.content_type.as_deref().unwrap_or("unknown media type");
                let media_type = clean(media_type);
                self.line(format_args!("{:<17}{media_type}, {size} bytes", "payload"));
                match std::str::from_utf8(bytes) {
                    Ok(text) => text.lines().for_each(|line| {
                        self.line(format_args!("  {}", clean(line)));
                    }),
                    Err(_) => {
                        let more = if size > SHOWN { " …" } else { "" };
                        let hex = hex(&bytes[..size.min(SHOWN)]);
                        self.line(format_args!("  {hex}{more}"));
                    }
                }
            }
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

fn kind(id: &Id) -> &'static str {
    match id {
        Id::Uuid(_) => "UUID",
        Id::Ulid(_) => "ULID",
        Id::Foreign(_) => "foreign",
    }
}

fn actor(actor: &Actor) -> String {
    let kind = serde_json::to_value(actor.kind).unwrap_or_default();
    format!("{} {}", kind.as_str().unwrap_or_default(), actor.id)
}

fn producer(producer: &Producer) -> String {
    let instance = ["instance", &producer.instance];
    let commit = ["commit", &producer.commit];
    let region = ["region", producer.region.as_deref().unwrap_or_default()];
    let more = [instance, commit, region].into_iter().filter(|[_, value]| !value.is_empty());
    let more = more.map(|pair| pair.join(" "));
    let parts = std::iter::once(producer.service.clone()).filter(|text| !text.is_empty());
    parts.chain(more).collect::<Vec<_>>().join(", ")
}

fn aggregate(aggregate: &chapar_core::Aggregate) -> String {
    let mut text = format!("{} {}", aggregate.kind, aggregate.id).trim().to_owned();
    if let Some(version) = aggregate.version {
        text += &format!(", version {version}");
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Characters that change the text direction.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// JSON with a line for each value. Digits of numbers, escapes and the order of keys are kept.
///
/// Line breaks and indentation are bounded by the length of the text: what comes after that is
/// written without them, so a few megabytes of brackets stay a few megabytes.
fn indented(json: &str) -> String {
    const STEP: &str = "  ";
    // Deeper than this, lines would consist of indentation only.
    const DEEPEST: usize = 32;
    let mut room = json.len() + 64 * 1024;
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    let mut opened = false;
    let mut turn = |out: &mut String, depth: usize| {
        let steps = depth.min(DEEPEST);
        room = room.saturating_sub(1 + steps * STEP.len());
        if room > 0 {
            out.push('\n');
            out.push_str(&STEP.repeat(steps));
        }
    };
    for c in json.chars() {
        if quoted {
            out.push(c);
            quoted = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        if c.is_ascii_whitespace() {
            continue;
        }
        let closes = matches!(c, '}' | ']');
        if closes {
            depth = depth.saturating_sub(1);
        }
        if opened != closes {
            turn(&mut out, depth);
        }
        opened = matches!(c, '{' | '[');
        out.push(c);
        match c {
            '"' => quoted = true,
            '{' | '[' => depth += 1,
            ',' => turn(&mut out, depth),
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_json_keeps_digits_escapes_and_order() {
        let text = r#"{ "b": [1.50, {}, [] ,"x,:{\"\\"], "a" :{"c":-1e400}}"#;
        let expected = "{\n  \"b\": [\n    1.50,\n    {},\n    [],\n    \"x,:{\\\"\\\\\"\n  ],\n  \
                        \"a\": {\n    \"c\": -1e400\n  }\n}";
        assert_eq!(indented(text), expected);
    }

    #[test]
    fn indentation_does_not_multiply_what_is_shown() {
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        let wide = "[".repeat(32) + &"1,".repeat(1_000_000) + "1" + &"]".repeat(32);
        for json in [deep, wide] {
            let shown = indented(&json);
            assert!(shown.len() <= 2 * json.len() + 64 * 1024, "{} of {}", shown.len(), json.len());
            let bare: String = shown.split_whitespace().collect();
            assert!(bare == json, "nothing but white space is added");
        }
    }

    #[test]
    fn a_shown_text_cannot_steer_the_terminal() {
        assert_eq!(clean("a\x1b[31mb\u{202e}c\u{9b}"), "a\\u{1b}[31mb\\u{202e}c\\u{9b}");
        assert_eq!(clean("café 🦀"), "café 🦀");
    }
}
