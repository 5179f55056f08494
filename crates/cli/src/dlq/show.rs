//! Output of dead letters and groups, as text and JSON.

use chapar::ops::{DeadLetter, LetterGroup};
use serde_json::{Value, json};

use crate::output::{bold, dim, red};

/// A letter without its event.
pub(super) fn brief(letter: &DeadLetter) -> Value {
    json!({
        "id": letter.id, "group": letter.fingerprint, "consumer": letter.consumer,
        "topic": letter.arrival.topic, "tenant": letter.arrival.tenant,
        "key": letter.arrival.ordering_key, "event_id": letter.arrival.event_id,
        "partition": letter.arrival.partition, "offset": letter.arrival.offset,
        "kind": letter.kind, "error": letter.error, "attempts": letter.attempts,
        "first_failed_at": letter.first_failed_at, "last_failed_at": letter.last_failed_at,
        "status": letter.status, "class": letter.class, "fix": letter.fix,
        "blocks_key": letter.blocks_key, "followers": letter.followers,
        "edited": letter.edited.is_some(), "run": letter.run, "outcome": letter.outcome,
        "note": letter.note, "closed_by": letter.closed_by, "closed_at": letter.closed_at,
    })
}

/// A letter with its original and its edited event.
pub(super) fn whole(letter: &DeadLetter) -> Value {
    let mut whole = brief(letter);
    whole["headers"] = json!(letter.arrival.headers);
    whole["body"] = body(&letter.arrival.body);
    if let Some(edited) = &letter.edited {
        whole["edited"] = json!({
            "by": edited.by, "at": edited.at, "headers": edited.headers,
            "body": body(&edited.body),
        });
    }
    whole
}

fn body(bytes: &[u8]) -> Value {
    match (serde_json::from_slice::<Value>(bytes), std::str::from_utf8(bytes)) {
        (Ok(value), _) => value,
        (_, Ok(text)) => json!(text),
        _ => json!({ "hex": hex(bytes) }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn line(letter: &DeadLetter) {
    let key = letter.arrival.ordering_key.as_deref().unwrap_or("no key");
    println!("{}  {}  {key}", bold(&letter.id), letter.consumer);
    println!("    {}: {}", letter.kind, red(&letter.error));
    println!("    {}", dim(&standing(letter)));
}

fn standing(letter: &DeadLetter) -> String {
    let mut text = match (&letter.outcome, letter.closed_at, &letter.closed_by) {
        (Some(outcome), Some(at), Some(by)) => format!("{outcome} at {at} by {by}"),
        (Some(outcome), Some(at), None) => format!("{outcome} at {at}"),
        _ if letter.status == "replay" => "replay requested".to_owned(),
        _ => format!("failed at {}", letter.last_failed_at),
    };
    text += &format!(", {} attempts, {} behind it", letter.attempts, letter.followers);
    match (&letter.class, &letter.fix) {
        (Some(class), Some(_)) => text += &format!(", {class} with a fix"),
        (Some(class), None) => text += &format!(", {class}"),
        _ => {}
    }
    if letter.edited.is_some() {
        text += ", edited";
    }
    text
}

pub(super) fn page(letter: &DeadLetter) {
    let arrival = &letter.arrival;
    let row = |name: &str, value: &str| println!("{name:<12} {value}");
    row("letter", &bold(&letter.id));
    row("status", &standing(letter));
    row("group", &letter.fingerprint);
    row("consumer", &letter.consumer);
    row("topic", &arrival.topic);
    row("place", &format!("partition {}, offset {}", arrival.partition, arrival.offset));
    row("tenant", &arrival.tenant);
    row("key", arrival.ordering_key.as_deref().unwrap_or("none"));
    row("event", &arrival.event_id);
    row("kind", &letter.kind);
    row("class", letter.class.as_deref().unwrap_or("not classified"));
    if let Some(fix) = &letter.fix {
        row("fix", fix);
    }
    if let Some(note) = &letter.note {
        row("note", note);
    }
    row("failed", &format!("{} – {}", letter.first_failed_at, letter.last_failed_at));
    println!("\nError");
    // Causes are joined by ": "; each gets a line.
    for (depth, cause) in letter.error.split(": ").enumerate() {
        println!("  {}{}", "  ".repeat(depth.min(8)), red(cause));
    }
    println!("\nHeaders");
    if arrival.headers.is_empty() {
        println!("  none");
    }
    for (name, value) in &arrival.headers {
        println!("  {name}: {value}");
    }
    println!("\nMessage");
    message(&arrival.body);
    if let Some(edited) = &letter.edited {
        println!("\nEdited by {} at {}", edited.by, edited.at);
        message(&edited.body);
    }
}

fn message(bytes: &[u8]) {
    let shown = match body(bytes) {
        _ if bytes.is_empty() => "erased".to_owned(),
        Value::String(text) => text,
        value => serde_json::to_string_pretty(&value).unwrap_or_default(),
    };
    shown.lines().for_each(|line| println!("  {line}"));
}

pub(super) fn group_json(group: &LetterGroup) -> Value {
    json!({
        "group": group.fingerprint, "consumer": group.consumer, "topic": group.topic,
        "kind": group.kind, "letters": group.letters, "asked": group.asked,
        "first_failed_at": group.first_failed_at, "last_failed_at": group.last_failed_at,
        "class": group.class, "classified": group.classified, "mixed": group.mixed,
        "fixed": group.fixed, "error": group.error,
    })
}

pub(super) fn group(group: &LetterGroup) {
    println!("{}  {} letters  {}", bold(&group.fingerprint), group.letters, group.consumer);
    println!("    {}: {}", group.kind, red(&group.error));
    let mut text = format!("{}, last at {}", group.topic, group.last_failed_at);
    match &group.class {
        Some(_) if group.mixed => text += ", of several classes",
        Some(class) if group.classified < group.letters => text += &format!(", in part {class}"),
        Some(class) => text += &format!(", {class}"),
        None => {}
    }
    if group.fixed > 0 {
        text += &format!(", {} with a fix", group.fixed);
    }
    if group.asked > 0 {
        text += &format!(", {} with a requested replay", group.asked);
    }
    println!("    {}", dim(&text));
}
