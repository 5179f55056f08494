//! Sources of real events: a store, or a file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use chapar::ops::{KeptCursor, KeptEvent, Outbox};
use chapar_core::dialect::{MAX_MESSAGE, Message};
use chapar_core::{Envelope, Headers, Payload as Carried};
use serde_json::Value;

use super::Tally;
use crate::store;

/// The payload of an event.
pub(super) enum Payload {
    Json(Value),
    Unreadable(String),
}

/// Reads a file line by line; a line that is not an event is an error with its number.
pub(super) fn of_file(file: &Path, tally: &mut Tally<'_>) -> Result<()> {
    let name = file.display();
    let mut reader: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let open = File::open(file).with_context(|| format!("{name} cannot be read"))?;
        Box::new(BufReader::new(open))
    };
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        // One byte more than the maximum, so that a line that is too long is detected.
        let most = MAX_MESSAGE as u64 + 2;
        let read = reader.by_ref().take(most).read_until(b'\n', &mut line);
        if read.with_context(|| format!("{name}:{number}"))? == 0 {
            break;
        }
        ensure!(line.len() as u64 != most, "{name}:{number}: the line has over 16 MiB");
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let message = Message { topic: None, headers: Headers::new(), body: line.clone().into() };
        let envelope = match tally.dialect.decode(&message) {
            Ok(envelope) => envelope,
            Err(error) => bail!("{name}:{number}: {error}"),
        };
        if envelope.occurred_at >= tally.since {
            let subject = envelope.subject();
            tally.check(&subject, &envelope.id.to_string(), &payload(&envelope));
        }
    }
    Ok(())
}

/// Walks over the log and the outbox, a page at a time and without a long transaction.
pub(super) async fn of_store(url: &str, tally: &mut Tally<'_>) -> Result<()> {
    const PAGE: i64 = 500;
    let store = store::open(url).await?;
    store.check_schema().await?;
    let topics: Vec<String> = tally.schemas.keys().cloned().collect();
    let mut cursor = KeptCursor::default();
    while !cursor.is_at_end() {
        let (events, next) = Outbox::of(&store).kept(&topics, tally.since, cursor, PAGE).await?;
        cursor = next;
        for event in events {
            let carried = carried(&event, tally);
            tally.check(&event.topic, &event.event_id, &carried);
        }
    }
    store.close().await;
    Ok(())
}

fn carried(event: &KeptEvent, tally: &Tally<'_>) -> Payload {
    if !event.sealed {
        return match serde_json::from_slice(&event.body) {
            Ok(value) => Payload::Json(value),
            Err(error) => Payload::Unreadable(error.to_string()),
        };
    }
    let message = Message {
        topic: Some(event.topic.clone()),
        headers: event.headers.clone(),
        body: event.body.clone(),
    };
    match tally.dialect.decode(&message) {
        Ok(envelope) => payload(&envelope),
        Err(error) => Payload::Unreadable(error.to_string()),
    }
}

fn payload(envelope: &Envelope) -> Payload {
    let Carried::Json(raw) = &envelope.payload else {
        return Payload::Unreadable("the payload is not JSON".to_owned());
    };
    match serde_json::from_str(raw.get()) {
        Ok(value) => Payload::Json(value),
        Err(error) => Payload::Unreadable(error.to_string()),
    }
}
