//! Consumer contracts: what a consumer declares that it reads.

use std::collections::BTreeSet;

use super::fields::Fields;
use super::place::{Mistake, Place, Rule, Source};
use super::read::{known_service, named_like};
use crate::profile::Profile;

/// A consumer's contract: the fields it reads of each event, and events as it expects them.
///
/// The consumer writes it; the producer's gate checks it.
#[derive(Debug, Clone)]
pub struct ConsumerContract {
    /// The consuming service.
    pub service: String,
    /// What it reads.
    pub reads: Vec<Reads>,
}

/// What a consumer reads of one version of one event.
#[derive(Debug, Clone)]
pub struct Reads {
    /// The event.
    pub subject: String,
    /// JSON pointers to fields that must be in every event; `*` stands for each item of a list.
    pub fields: Vec<String>,
    /// JSON pointers to optional fields.
    pub optional: Vec<String>,
    /// The only values that the consumer handles, by the pointer of their field.
    pub values: Vec<(String, Vec<String>)>,
    /// Files with payloads that the consumer accepts, relative to the folder of the contracts.
    pub examples: Vec<String>,
    /// Where it is declared.
    pub place: Place,
}

impl ConsumerContract {
    /// Reads a file, with every mistake in it.
    pub fn read(file: &Source, profile: &Profile) -> (Option<Self>, Vec<Mistake>) {
        let mut mistakes = Vec::new();
        let contract = Fields::of_file(file, &mut mistakes, |mut fields| {
            let service = fields.text("service");
            if let Some(name) = &service {
                known_service(&mut fields, "service", name, profile);
                named_like(&mut fields, file, name);
            }
            let mut reads: Vec<Reads> = Vec::new();
            let mut subjects = BTreeSet::new();
            fields.tables("reads", |mut table| {
                let subject = table.text("subject");
                let (fields, optional) = (table.texts("fields"), table.optional_texts("optional"));
                let examples = table.texts("examples");
                let mut values = Vec::new();
                table.tables("values", |mut of| {
                    values.extend(of.text("field").map(|field| (field, of.texts("only"))));
                    of.finish();
                });
                let listed: Vec<String> = values.iter().map(|(field, _)| field.clone()).collect();
                let pointers = [("fields", &fields), ("optional", &optional), ("values", &listed)];
                for (name, pointers) in pointers {
                    for pointer in pointers.iter().filter(|pointer| !is_pointer(pointer)) {
                        let message =
                            format!("{pointer:?} is not a JSON pointer such as \"/guest/name\"");
                        table.mistake(table.span_of(name), Rule::WrongValue, message);
                    }
                }
                if table.has("examples") && examples.is_empty() {
                    let message = "examples is empty: give at least one event as it is expected";
                    table.mistake(table.span_of("examples"), Rule::Example, message);
                }
                if let Some(subject) = subject {
                    if !subjects.insert(subject.clone()) {
                        let message = format!("{subject} is there twice");
                        table.mistake(table.span_of("subject"), Rule::DuplicateSubject, message);
                    }
                    let place = table.place("subject");
                    reads.push(Reads { subject, fields, optional, values, examples, place });
                }
                table.finish();
            });
            fields.finish();
            Some(ConsumerContract { service: service?, reads })
        });
        (contract, mistakes)
    }
}

/// Whether a text is a JSON pointer to a place inside a document.
pub(super) fn is_pointer(text: &str) -> bool {
    let escaped = |part: &str| part.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(|p| !p.is_empty() && escaped(p)))
}
