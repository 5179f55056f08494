//! The declarations of a system as a whole.

use super::Declared;
use super::fields::Fields;
use super::place::{Mistake, Place, Rule, Source};
use crate::profile::Pattern;

/// The file `catalog.toml` of a system: what concerns no single service.
#[derive(Debug, Clone, Default)]
pub struct System {
    /// The file of the profile, relative to this one. Default `profile.toml`.
    pub profile: String,
    /// The name in documents.
    pub title: String,
    /// What it is, in a sentence or two.
    pub summary: String,
    /// The version of the catalog as a whole, for documents.
    pub version: String,
    /// The path of the envelope's own schema under `event-schemas`, without its extension.
    pub envelope: Option<String>,
    /// The groups of services, in the order used in documents and graphs.
    pub groups: Vec<String>,
    /// Services that read every topic except their own, such as an audit trail.
    pub readers_of_all: Vec<String>,
    /// Readers that are not services, such as a warehouse import.
    pub sinks: Vec<Sink>,
    /// The account that publishes for a service, as a template over `{service}`.
    pub publisher: Option<String>,
    /// The account that subscribes for a service, as a template over `{service}`.
    pub subscriber: Option<String>,
    /// The minimum window of dual publication, in days. Default 14.
    pub dual_publish_days: Option<u16>,
    /// Whether an enum of an integration event may get values within a version. Its readers must
    /// ignore values that they do not know. Default false.
    pub widened_enums: bool,
    /// Code that belongs to no single service: files and folders, relative to the system's folder.
    pub code: Option<Declared>,
    /// The vendors whose code is confined to an adapter.
    pub vendors: Vec<Vendor>,
    /// The position of `readers_of_all`.
    pub place: Option<Place>,
}

/// A vendor. Only its adapter may name it in code.
#[derive(Debug, Clone)]
pub struct Vendor {
    /// Its name.
    pub name: String,
    /// Text that identifies its code, such as `stripe::`.
    pub marks: Vec<String>,
    /// The files and folders that may contain it, relative to the system's folder.
    pub adapter: Declared,
}

/// A reader that is not a service.
#[derive(Debug, Clone)]
pub struct Sink {
    /// Its account.
    pub name: String,
    /// The subjects it may read.
    pub subjects: Vec<Pattern>,
}

impl System {
    /// The minimum window of dual publication, in days.
    pub fn least_dual_publish_days(&self) -> u16 {
        self.dual_publish_days.unwrap_or(14)
    }

    /// Reads the file. A part that cannot be parsed is left empty and reported as a mistake.
    pub fn read(file: &Source) -> (Self, Vec<Mistake>) {
        let mut mistakes = Vec::new();
        let system = Fields::of_file(file, &mut mistakes, |mut fields| {
            let mut system = System {
                profile: fields.optional_text("profile").unwrap_or_else(|| "profile.toml".into()),
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
                widened_enums: fields.flag("widened_enums"),
                code: Some(fields.declared("code")),
                vendors: Vec::new(),
                place: Some(fields.place("readers_of_all")),
            };
            for template in ["publisher", "subscriber"] {
                let Some((text, span)) = fields.peek_text(template) else { continue };
                if !text.contains("{service}") {
                    let message = format!(
                        "{template} is the same account for every service; add {{service}}"
                    );
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
