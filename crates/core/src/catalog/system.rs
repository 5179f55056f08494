//! What a system says about itself.

use super::Declared;
use super::fields::Fields;
use super::place::{Mistake, Place, Rule, Source};
use crate::profile::Pattern;

/// The file `catalog.toml` of a system: what belongs to no single service.
#[derive(Debug, Clone, Default)]
pub struct System {
    /// The profile: the name of a preset, or a file next to this one.
    pub profile: String,
    /// The name in documents.
    pub title: String,
    /// What it is, in a sentence or two.
    pub summary: String,
    /// The version of the catalog as a whole, for documents.
    pub version: String,
    /// Where the envelope's own schema lies under `event-schemas`, without its ending.
    pub envelope: Option<String>,
    /// The groups of services, in the order of documents and pictures.
    pub groups: Vec<String>,
    /// Services that read every topic but their own, such as an audit trail.
    pub readers_of_all: Vec<String>,
    /// Readers that are no services, such as the way into a warehouse.
    pub sinks: Vec<Sink>,
    /// The account that publishes for a service, as a template over `{service}`.
    pub publisher: Option<String>,
    /// The account that subscribes for a service, as a template over `{service}`.
    pub subscriber: Option<String>,
    /// How long two versions of an event travel side by side at least, in days. Default 14.
    pub dual_publish_days: Option<u16>,
    /// Where code lies that belongs to no single service: files and folders, seen from the
    /// system's folder.
    pub code: Option<Declared>,
    /// The outside parties whose code has one place.
    pub vendors: Vec<Vendor>,
    /// Where `readers_of_all` stands.
    pub place: Option<Place>,
}

/// An outside party. Only its adapter may name it in code.
#[derive(Debug, Clone)]
pub struct Vendor {
    /// Its name.
    pub name: String,
    /// What betrays it in code, such as `stripe::`.
    pub marks: Vec<String>,
    /// The files and folders that may, seen from the system's folder.
    pub adapter: Declared,
}

/// A reader that is no service.
#[derive(Debug, Clone)]
pub struct Sink {
    /// Its account.
    pub name: String,
    /// What it may read.
    pub subjects: Vec<Pattern>,
}

impl System {
    /// How long two versions of an event travel side by side at least, in days.
    pub fn least_dual_publish_days(&self) -> u16 {
        self.dual_publish_days.unwrap_or(14)
    }

    /// Reads the file. What could not be understood is empty, and a mistake.
    pub fn read(file: &Source) -> (Self, Vec<Mistake>) {
        let mut mistakes = Vec::new();
        let system = Fields::of_file(file, &mut mistakes, |mut fields| {
            let mut system = System {
                profile: fields.text("profile").unwrap_or_default(),
                title: fields.text("title").unwrap_or_default(),
                summary: fields.text("summary").unwrap_or_default(),
                version: fields.text("version").unwrap_or_default(),
                envelope: fields.optional_text("envelope"),
                groups: fields.optional_texts("groups"),
                readers_of_all: fields.optional_texts("readers_of_all"),
                publisher: fields.optional_text("publisher"),
                subscriber: fields.optional_text("subscriber"),
                sinks: Vec::new(),
                dual_publish_days: fields.days("dual_publish_days"),
                code: Some(fields.declared("code")),
                vendors: Vec::new(),
                place: Some(fields.place("readers_of_all")),
            };
            for template in ["publisher", "subscriber"] {
                let Some((text, span)) = fields.peek_text(template) else { continue };
                if !text.contains("{service}") {
                    let message = format!("{template} is one account for all; put {{service}} in");
                    fields.mistake(span, Rule::WrongValue, message);
                }
            }
            fields.tables("sinks", |mut sink| {
                let name = sink.text("name");
                let subjects = sink.texts("subjects");
                let subjects = subjects.iter().map(|text| Pattern::new(text.as_str())).collect();
                system.sinks.extend(name.map(|name| Sink { name, subjects }));
                sink.finish();
            });
            fields.tables("vendors", |mut vendor| {
                let name = vendor.text("name");
                let marks = vendor.texts("marks");
                let adapter = vendor.declared("adapter");
                system.vendors.extend(name.map(|name| Vendor { name, marks, adapter }));
                vendor.finish();
            });
            fields.finish();
            system
        });
        (system, mistakes)
    }
}
