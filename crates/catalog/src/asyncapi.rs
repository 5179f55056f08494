//! The catalog as an AsyncAPI 3 document.

mod example;

use chapar_core::catalog::{Encoding, Event};
use serde_json::{Map, Value, json};

use crate::Loaded;
use crate::inventory::{dead_letter, ordering_key};

/// The whole system in one document: a channel per topic, a `send` per owner, a `receive` per
/// reader, each tagged with the service that does it.
///
/// Schemas are inlined, because a reference inside one would resolve against the document's root.
pub fn document(loaded: &Loaded) -> Value {
    let catalog = &loaded.catalog;
    let mut channels = Map::new();
    let mut operations = Map::new();
    let mut messages = Map::new();
    for event in catalog.events() {
        let subject = event.subject.as_str();
        let short = catalog.short(subject);
        channels.insert(subject.to_owned(), channel(loaded, event));
        messages.insert(subject.to_owned(), message(loaded, event));
        let send = operation("send", subject, &event.owner, &event.trigger);
        operations.insert(format!("{}.send.{short}", event.owner), send);
        for reader in catalog.readers(event) {
            let consumer = event.consumers.iter().find(|consumer| consumer.service == reader);
            let purpose = consumer.and_then(|consumer| consumer.purpose.as_deref());
            let receive = operation("receive", subject, reader, purpose.unwrap_or("Reads it."));
            operations.insert(format!("{reader}.receive.{short}"), receive);
        }
    }
    let services = catalog
        .services
        .iter()
        .map(|service| json!({ "name": service.name, "description": service.summary }));
    let mut components = json!({ "messages": messages });
    if let Some(envelope) = &loaded.envelope {
        components["schemas"] = json!({ "envelope": envelope.inlined() });
    }
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": catalog.system.title,
            "version": catalog.system.version,
            "description": catalog.system.summary,
            "tags": services.collect::<Vec<_>>(),
        },
        "defaultContentType": content_type(catalog.profile.speaks_protobuf()),
        "channels": channels,
        "operations": operations,
        "components": components,
    })
}

fn channel(loaded: &Loaded, event: &Event) -> Value {
    let subject = event.subject.as_str();
    let residency = event.residency.as_deref().unwrap_or("tenant");
    json!({
        "address": subject,
        "description": event.trigger,
        "messages": { "event": { "$ref": format!("#/components/messages/{subject}") } },
        "x-owner": event.owner,
        "x-retention": event.retention,
        "x-residency": residency,
        "x-volume": event.volume.as_str(),
        "x-ordering-key": ordering_key(&loaded.catalog, event),
        "x-dead-letter-topic": dead_letter(&loaded.catalog, event),
    })
}

fn operation(action: &str, subject: &str, service: &str, summary: &str) -> Value {
    json!({
        "action": action,
        "summary": summary,
        "tags": [{ "name": service }],
        "channel": { "$ref": format!("#/channels/{subject}") },
        "messages": [{ "$ref": format!("#/channels/{subject}/messages/event") }],
    })
}

fn message(loaded: &Loaded, event: &Event) -> Value {
    let subject = event.subject.as_str();
    let schema = loaded.schemas.get(subject);
    let mut message = json!({
        "name": subject,
        "title": schema.and_then(|s| s.value["title"].as_str()).unwrap_or(subject),
        "summary": event.trigger,
        "contentType": content_type(event.encoding != Encoding::Json),
        "tags": [{ "name": event.kind.as_str() }],
    });
    match (&event.encoding, schema) {
        (Encoding::Protobuf(name), _) => message["x-protobuf-message"] = json!(name),
        (Encoding::Json, Some(schema)) => {
            message["payload"] = payload(loaded, schema.inlined());
            message["x-schema-uri"] = json!(schema.uri());
            let examples = schema.examples().iter().enumerate();
            let examples = examples.map(|(n, payload)| example::message(loaded, event, n, payload));
            message["examples"] = examples.map(|example| json!({ "payload": example })).collect();
        }
        (Encoding::Json, None) => {}
    }
    if let Some(deprecation) = &event.deprecated {
        message["x-deprecated"] = json!({
            "since": deprecation.since,
            "replacedBy": deprecation.replaced_by,
        });
    }
    message
}

/// The message is the envelope; the event's own schema describes its `payload`.
fn payload(loaded: &Loaded, schema: Value) -> Value {
    if loaded.envelope.is_none() {
        return schema;
    }
    json!({
        "allOf": [
            { "$ref": "#/components/schemas/envelope" },
            { "type": "object", "properties": { "payload": schema } },
        ],
    })
}

fn content_type(protobuf: bool) -> &'static str {
    if protobuf { "application/x-protobuf" } else { "application/json" }
}
