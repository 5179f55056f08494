//! Events as request and reply: an event is a fact, and nobody waits for an answer to a fact.

use serde_json::Value;

use super::{Found, Policy};
use crate::Loaded;

/// The last word of a subject that asks or answers, where a fact would say what has happened.
const VERBS: &[&str] =
    &["request", "query", "command", "response", "reply", "responded", "replied", "answered"];

/// Payload fields that say where an answer is awaited.
const ADDRESSES: &[&str] = &[
    "replyto",
    "replytopic",
    "replysubject",
    "replychannel",
    "responsetopic",
    "responsesubject",
    "callbacktopic",
    "callbackurl",
];

pub(super) fn check(loaded: &Loaded, found: &mut Found) {
    for event in loaded.catalog.events() {
        let subject = event.subject.as_str();
        let verb = event.subject.event_type().rsplit('.').next().unwrap_or_default();
        let verb = verb.rsplit(['_', '-']).next().unwrap_or_default();
        if VERBS.contains(&verb) {
            let message = format!(
                "{subject} asks or answers, as {verb:?} says; use an API for that, and publish what \
                 has happened"
            );
            found.add(Policy::RequestReply, &event.place, message);
        }
        let schema = loaded.schemas.get(subject);
        let fields = schema.and_then(|schema| schema.value.get("properties")?.as_object());
        for name in fields.into_iter().flat_map(serde_json::Map::<String, Value>::keys) {
            let plain = name.replace(['_', '-'], "").to_lowercase();
            if ADDRESSES.contains(&plain.as_str()) {
                let message = format!(
                    "{subject} carries {name:?}, where somebody waits for an answer; use an API \
                     for that, and publish what has happened"
                );
                found.add(Policy::RequestReply, &event.place, message);
            }
        }
    }
}
