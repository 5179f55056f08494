//! What a released event is beside its schema: its message, its ordering key, its envelope.

use chapar_core::catalog::{Event, Place};

use chapar_compat::{Request, Schema, Severity};

use super::released::{Contract, key_of, message_of};
use super::{GateFinding, Work, steps};

impl Work<'_> {
    /// A released version keeps its message and its ordering key.
    pub(super) fn identity(&mut self, old: &Contract, event: &Event) {
        let at = (event.subject.as_str(), Some(&event.place));
        let next = self.old.latest(event.subject.event_type()).saturating_add(1);
        let message = message_of(event);
        if old.message != message {
            let shown = |message: &Option<String>| {
                message.as_ref().map_or("JSON".to_owned(), |name| format!("the message {name}"))
            };
            let reason = format!(
                "its payload was {} and is {}, which released readers cannot read; the change \
                 needs v{next}",
                shown(&old.message),
                shown(&message)
            );
            let steps = steps::bump(&self.new.catalog, event, next);
            self.add(("message-changed", Severity::Breaking), at, reason, steps);
        }
        let key = key_of(event);
        if let Some(was) = old.key.as_ref().filter(|was| **was != key) {
            let reason = match key.as_str() {
                "none" => format!(
                    "its ordering key was {was:?} and it has none: readers that \
                                   rely on the order get it in any order"
                ),
                key => format!(
                    "its ordering key was {was:?} and is {key:?}: events before and \
                                after the change are not ordered among each other"
                ),
            };
            let steps = vec![
                format!("say key = \"{was}\" again"),
                format!("or ship v{next} with the other key, published beside this version"),
            ];
            self.add(("ordering-key-changed", Severity::Breaking), at, reason, steps);
        }
    }

    /// The ordering key of every event that has one is made with the template of the profile.
    pub(super) fn key_template(&mut self) {
        let now = self.new.catalog.profile.key_template.as_str();
        let Some(was) = self.old.key_template.as_ref().filter(|was| *was != now) else { return };
        let has_key = |old: &&Contract| old.key.as_deref() != Some("none");
        let count = self.old.contracts.values().filter(has_key).count();
        if count == 0 {
            return;
        }
        let reason = format!(
            "the key_template was {was:?} and is {now:?}, which changes the ordering key of \
             {count} events: events before and after the change are not ordered among each other"
        );
        let next = vec![
            format!("say key_template = {was:?} again"),
            "or stop every producer, let consumers read what is in transit, then release the \
             template alone"
                .to_owned(),
        ];
        let place = self.beside_the_catalog("profile.toml");
        self.add(("ordering-key-changed", Severity::Breaking), ("", Some(&place)), reason, next);
    }

    /// The start of a file of the system, by its path beside the folder `catalog`.
    fn beside_the_catalog(&self, file: &str) -> Place {
        let declared = self.new.catalog.events().next().map(|event| event.place.file.clone());
        let folder = declared.as_deref().and_then(|path| path.rsplit_once("catalog/"));
        Place::start(format!("{}{file}", folder.map_or("", |(folder, _)| folder)))
    }

    /// Every reader of every event reads the envelope, so the strict rules apply.
    pub(super) fn envelope(&mut self) {
        let Some(before) = &self.old.envelope else { return };
        let name = self.new.catalog.system.envelope.as_deref().unwrap_or("envelope");
        let file = format!("event-schemas/{name}.json");
        let place = self.beside_the_catalog(&file);
        let Some(now) = &self.new.envelope else {
            let reason = "the schema of the envelope is gone or cannot be used".to_owned();
            let next = vec!["put it back as it was released".to_owned()];
            return self.add(
                ("envelope-removed", Severity::Breaking),
                ("", Some(&place)),
                reason,
                next,
            );
        };
        if *before == now.text {
            return;
        }
        let sides =
            (Schema::parse(&file, before.as_bytes()), Schema::parse(&file, now.text.as_bytes()));
        let (Ok(before), Ok(now)) = sides else {
            let reason = "the two schemas of the envelope cannot be compared".to_owned();
            let next = vec!["run `chapar catalog check` and repair what it finds".to_owned()];
            return self.add(
                ("schema-unusable", Severity::Unknown),
                ("", Some(&place)),
                reason,
                next,
            );
        };
        let request = Request::new(&before, &now).kind(chapar_compat::Kind::Integration);
        for found in chapar_compat::diff(&request).findings {
            let next = match found.severity {
                Severity::Note => Vec::new(),
                _ => vec![
                    format!("put {file} back as it was released"),
                    "add fields, and leave those that readers know".to_owned(),
                ],
            };
            self.findings.push(GateFinding {
                rule: found.rule,
                severity: found.severity,
                subject: String::new(),
                pointer: found.pointer,
                reason: format!("in the envelope of every event: {}", found.reason),
                counterexample: found.counterexample,
                next,
                place: Some(place.clone()),
            });
        }
    }
}
