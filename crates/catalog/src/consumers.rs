//! Consumer contracts: what consumers read, and whether the schemas still guarantee it.

mod promise;

use std::path::{Component, Path};

use chapar_core::catalog::{ConsumerContract, Encoding, Mistake, Place, Reads, Rule};
use prost_reflect::DynamicMessage;
use serde_json::Value;

use self::promise::{Promise, in_message, in_schema, listed};
use crate::Loaded;
use crate::load::{LoadError, MAX_FILE, files, shown, text};
use crate::schema::{MAX_SCHEMA, syntax};

/// A broken consumer contract.
#[derive(Debug, Clone, PartialEq)]
pub struct Breach {
    /// The consumer.
    pub consumer: String,
    /// The event.
    pub subject: String,
    /// The field; empty if a whole example is refused.
    pub pointer: String,
    /// The reason.
    pub reason: String,
    /// An example of the consumer, and its file.
    pub example: Option<(String, Value)>,
    /// Where the consumer declares what it reads.
    pub place: Place,
}

impl Breach {
    /// The sentence for reports.
    pub fn message(&self) -> String {
        let Breach { consumer, subject, pointer, reason, .. } = self;
        let what =
            if pointer.is_empty() { subject.clone() } else { format!("{pointer} of {subject}") };
        let example = self.example.as_ref().map(|(file, _)| format!("; see its example {file}"));
        format!("{consumer} reads {what}, {reason}{}", example.unwrap_or_default())
    }
}

impl Loaded {
    /// Which services have a contract about which subjects.
    pub fn reads(&self) -> impl Iterator<Item = (&str, &str)> {
        self.consumers.iter().flat_map(|contract| {
            contract.reads.iter().map(|reads| (contract.service.as_str(), reads.subject.as_str()))
        })
    }

    /// Every consumer contract that the schemas break.
    pub fn breaches(&self) -> Vec<Breach> {
        let mut breaches = Vec::new();
        for contract in &self.consumers {
            for reads in &contract.reads {
                self.breached(&contract.service, reads, &mut breaches);
            }
        }
        breaches
    }

    fn breached(&self, consumer: &str, reads: &Reads, breaches: &mut Vec<Breach>) {
        let Some(event) = self.catalog.event(&reads.subject) else { return };
        let mut add = |pointer: &str, reason: String, example: Option<&str>| {
            let example = example.and_then(|file| Some((file, self.examples.get(file)?)));
            breaches.push(Breach {
                consumer: consumer.to_owned(),
                subject: reads.subject.clone(),
                pointer: pointer.to_owned(),
                reason,
                example: example.map(|(file, payload)| (file.to_owned(), payload.clone())),
                place: reads.place.clone(),
            });
        };
        let schema = self.schemas.get(&reads.subject);
        let message = match &event.encoding {
            Encoding::Protobuf(name) => self.protos.message(name),
            Encoding::Json => None,
        };
        let promise = |pointer: &str| match (schema, &message) {
            (Some(schema), _) => Some(in_schema(&schema.value, pointer)),
            (None, Some(message)) => Some(in_message(message, pointer)),
            // A missing schema is already reported as a mistake.
            (None, None) => None,
        };
        let showing = |pointer: &str| {
            let shows = |file: &&String| {
                self.examples.get(*file).is_some_and(|payload| found(payload, pointer))
            };
            reads.examples.iter().find(shows).map(String::as_str)
        };
        let wanted = reads.fields.iter().map(|pointer| (pointer, true));
        for (pointer, always) in wanted.chain(reads.optional.iter().map(|p| (p, false))) {
            let reason = match promise(pointer) {
                Some(Promise::Absent) => "which its schema does not have",
                Some(Promise::Sometimes) if always => "which its schema does not require",
                _ => continue,
            };
            add(pointer, reason.to_owned(), showing(pointer));
        }
        for (pointer, handled) in &reads.values {
            let Some(schema) = schema else { continue };
            let reason = match listed(&schema.value, pointer) {
                None => "of which it handles some values, and its schema allows any".to_owned(),
                Some(allowed) => {
                    let new: Vec<String> =
                        allowed.into_iter().filter(|value| !handled.contains(value)).collect();
                    if new.is_empty() {
                        continue;
                    }
                    format!("and does not handle {}, which its schema allows", new.join(", "))
                }
            };
            add(pointer, reason, showing(pointer));
        }
        for file in &reads.examples {
            let Some(payload) = self.examples.get(file) else { continue };
            let refusal = match (schema, &message) {
                (Some(schema), _) => schema.first_refusal(payload),
                (None, Some(message)) => {
                    let read = DynamicMessage::deserialize(message.clone(), payload);
                    read.err().map(|error| (String::new(), error.to_string()))
                }
                (None, None) => None,
            };
            if let Some((pointer, why)) = refusal {
                add(&pointer, format!("and its schema refuses the example: {why}"), Some(file));
            }
        }
    }

    /// Reads the contracts of consumers and their examples.
    pub(crate) fn read_consumers(&mut self, folder: &Path) -> Result<(), LoadError> {
        for path in files(folder, "toml", 1)? {
            let source = match text(&path, MAX_FILE) {
                Ok(source) => source,
                Err(mistake) => {
                    self.mistakes.push(mistake);
                    continue;
                }
            };
            let (contract, mistakes) = ConsumerContract::read(&source, &self.catalog.profile);
            self.mistakes.extend(mistakes);
            let Some(contract) = contract else { continue };
            for reads in &contract.reads {
                self.registered(&contract.service, reads);
                for file in &reads.examples {
                    match example(folder, file, &reads.place) {
                        Ok(payload) => {
                            self.complete(reads, file, &payload);
                            self.examples.insert(file.clone(), payload);
                        }
                        Err(mistake) => self.mistakes.push(mistake),
                    }
                }
            }
            self.consumers.push(contract);
        }
        Ok(())
    }

    /// A contract must refer to an event of the catalog that lists the service as a consumer.
    fn registered(&mut self, service: &str, reads: &Reads) {
        let subject = &reads.subject;
        let Some(event) = self.catalog.event(subject) else {
            let message = format!("{service} reads {subject}, which is not in the catalog");
            self.mistakes.push(reads.place.mistake(Rule::Unregistered, message));
            return;
        };
        if !self.catalog.readers(event).any(|reader| reader == service) {
            let message = format!("{service} is not listed as a consumer of {subject}");
            self.mistakes.push(reads.place.mistake(Rule::Consumer, message));
        }
    }

    /// An example must contain every field that the contract reads.
    fn complete(&mut self, reads: &Reads, file: &str, payload: &Value) {
        for pointer in reads.fields.iter().filter(|pointer| !found(payload, pointer)) {
            let message = format!("the example {file} has no {pointer}, which is read");
            self.mistakes.push(reads.place.mistake(Rule::Example, message));
        }
    }
}

fn example(folder: &Path, file: &str, place: &Place) -> Result<Value, Mistake> {
    let inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
    let path = folder.join(file);
    if !inside {
        let message = format!("the example {file:?} is outside the folder of the contracts");
        return Err(place.mistake(Rule::Example, message));
    }
    if !path.is_file() {
        let message = format!("there is no example {}", shown(&path));
        return Err(place.mistake(Rule::Example, message));
    }
    let source = text(&path, MAX_SCHEMA)?;
    serde_json::from_str(source.text()).map_err(|error| syntax(&source, &error))
}

/// Whether a payload has a value at a pointer; a `*` stands for every item of a list.
fn found(payload: &Value, pointer: &str) -> bool {
    let Some((first, rest)) = pointer.split_once("/*") else {
        return payload.pointer(pointer).is_some();
    };
    let Some(Value::Array(items)) = payload.pointer(first) else { return false };
    rest.is_empty() || items.iter().all(|item| found(item, rest))
}
