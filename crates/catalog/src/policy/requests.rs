//! Events used as request and reply: an event states a fact and is not a call that waits for an
//! answer.

use serde_json::Value;

use super::{Found, Policy};
use crate::Loaded;

/// Last words of a subject that ask or answer instead of stating a fact.
const VERBS: &[&str] =
    &["request", "query", "command", "response", "reply", "responded", "replied", "answered"];

/// Payload fields that hold a reply address.
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
                    "{subject} carries the reply address {name:?}; use an API \
                     for that, and publish what has happened"
                );
                found.add(Policy::RequestReply, &event.place, message);
            }
        }
    }
}
