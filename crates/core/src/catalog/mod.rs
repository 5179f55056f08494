//! The catalog: every event of a system, who publishes it, who reads it, and how it is kept.
//!
//! A system writes one small TOML file per service and one for itself. This module is the
//! model behind them, the reader that finds every mistake at once with its line, and the
//! rules between events; it does no I/O. Payload schemas and everything generated from a catalog
//! are in the crate `chapar-catalog`.
//!
//! ```
//! use chapar_core::Profile;
//! use chapar_core::catalog::{Catalog, Source, System};
//!
//! let file = Source::new("catalog/billing-service.toml", r#"
//!     service = "billing-service"
//!     summary = "Folios and invoices."
//!
//!     [[events]]
//!     subject = "melmastoon.billing.folio.closed.v1"
//!     trigger = "The folio is closed at check-out."
//!     kind = "integration"
//!     key = "folioId"
//!     retention = "cold"
//!     volume = "low"
//!     consumers = ["payment-gateway-service"]
//! "#);
//! let profile = Profile::from_toml(include_str!("../../../../systems/melmastoon/profile.toml"))?;
//! let (catalog, mistakes) = Catalog::read(System::default(), profile, &[file]);
//! assert!(mistakes.is_empty());
//! assert_eq!(catalog.events().count(), 1);
//! # Ok::<(), chapar_core::profile::ProfileError>(())
//! ```

mod check;
mod contract;
mod fields;
mod place;
mod read;
mod system;

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

pub use contract::{ConsumerContract, Reads};
pub use place::{Mistake, Place, Rule, Source};
pub use system::{Sink, System, Vendor};

use crate::convert::Conversion;
use crate::profile::{DialectName, Profile};
use crate::subject::Subject;

/// The events of one system.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// The system's own declarations.
    pub system: System,
    /// The system's profile.
    pub profile: Profile,
    /// The services that publish events, by name.
    pub services: Vec<Service>,
}

/// A service and the events it owns.
#[derive(Debug, Clone)]
pub struct Service {
    /// Its directory, such as `reservation-service`.
    pub name: String,
    /// What it is for, in a sentence.
    pub summary: String,
    /// The group it belongs to in documents and graphs.
    pub group: String,
    /// What it publishes.
    pub events: Vec<Event>,
    /// Its code: files and folders, relative to the system's folder.
    pub code: Declared,
    /// The services that it calls synchronously and waits for.
    pub calls: Declared,
    /// Where it is declared.
    pub place: Place,
}

/// Names from a list in a file, and the position of the list.
#[derive(Debug, Clone)]
pub struct Declared {
    /// The names.
    pub names: Vec<String>,
    /// The position of the list, or of its owner if there is none.
    pub place: Place,
}

/// One version of one event.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its subject, which is also its topic.
    pub subject: Subject,
    /// The only service that publishes it.
    pub owner: String,
    /// What happened when it is published.
    pub trigger: String,
    /// Domain event or integration event.
    pub kind: Kind,
    /// The payload field with the id of its ordering key; `None` is a declared choice.
    pub key: Option<String>,
    /// Its retention class.
    pub retention: String,
    /// The region it must stay in; without one, its tenant's region.
    pub residency: Option<String>,
    /// The expected rate.
    pub volume: Volume,
    /// Fat or thin payload.
    pub payload: PayloadStyle,
    /// The encoding of the payload.
    pub encoding: Encoding,
    /// Whether its envelope carries AI provenance.
    pub provenance: bool,
    /// Whether it happens at most once per key, which makes the key its idempotency key.
    pub once: bool,
    /// Whether it belongs to the platform instead of a tenant.
    pub untenanted: bool,
    /// Set if it is deprecated: no new consumer should read it.
    pub deprecated: Option<Deprecation>,
    /// How it is published together with the previous version during dual publication.
    pub dual_publish: Option<DualPublish>,
    /// Who reads it.
    pub consumers: Vec<Consumer>,
    /// Changes within the version.
    pub changes: Vec<Change>,
    /// Where it is declared.
    pub place: Place,
}

/// The audience of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A fact inside its own context; other contexts read it at their own risk.
    Domain,
    /// A contract between contexts, with the strictest compatibility rules.
    Integration,
}

/// The expected rate of an event, which decides how many partitions a broker gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Volume {
    /// Under 1,000 a second.
    Low,
    /// Under 10,000 a second.
    Medium,
    /// More.
    High,
}

/// Fat or thin payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PayloadStyle {
    /// Everything its consumers need.
    Fat,
    /// An id and a reference, for data that would not fit.
    Thin,
}

/// The encoding of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoding {
    /// JSON, described by a JSON Schema.
    Json,
    /// A Protobuf message of this full name.
    Protobuf(String),
}

/// A deprecation: no new consumer should read the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deprecation {
    /// Since when, as `YYYY-MM-DD`.
    pub since: String,
    /// The subject to read instead.
    pub replaced_by: String,
}

/// The window of dual publication, in which a producer publishes two versions of each fact.
#[derive(Debug, Clone)]
pub struct DualPublish {
    /// The first day.
    pub since: Date,
    /// The day from which the older version may be retired.
    pub until: Date,
    /// The first release that publishes both; the older version is also in the next one.
    pub release: String,
    /// The conversion from this version to the previous one.
    pub convert: Conversion,
    /// Where it is declared.
    pub place: Place,
}

/// A service that reads an event.
#[derive(Debug, Clone)]
pub struct Consumer {
    /// The service.
    pub service: String,
    /// Its purpose.
    pub purpose: Option<String>,
    /// The versions of the event that it accepts.
    pub accepts: Vec<u32>,
    /// Where it is declared.
    pub place: Place,
}

/// A change within a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// When, as `YYYY-MM-DD`.
    pub date: String,
    /// What.
    pub note: String,
}

/// Why a service may not publish an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPublisher {
    /// The catalog does not declare it.
    #[error("{subject} is not in the catalog of {system}; declare it in the file of {service}")]
    Unknown {
        /// The subject.
        subject: String,
        /// The system.
        system: String,
        /// The service that tried to publish it.
        service: String,
    },
    /// It belongs to another service.
    #[error("{subject} belongs to {owner}; {service} may not publish it")]
    Foreign {
        /// The subject.
        subject: String,
        /// The owner.
        owner: String,
        /// The service that tried to publish it.
        service: String,
    },
}

impl Catalog {
    /// Reads a catalog and checks everything that needs no schema.
    ///
    /// The catalog holds what could be parsed, so that later checks report their mistakes in the
    /// same run. Use it only if there are no mistakes.
    pub fn read(system: System, profile: Profile, files: &[Source]) -> (Self, Vec<Mistake>) {
        let mut mistakes = Vec::new();
        let mut services: Vec<Service> = Vec::new();
        for file in files {
            services.extend(read::service(file, &profile, &mut mistakes));
        }
        services.sort_by(|a, b| a.name.cmp(&b.name));
        let catalog = Catalog { system, profile, services };
        check::between_events(&catalog, &mut mistakes);
        mistakes.sort();
        mistakes.dedup();
        (catalog, mistakes)
    }

    /// Every event, by service and in the order of its file.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.services.iter().flat_map(|service| &service.events)
    }

    /// The services by group, in the system's order; groups it does not name come last.
    pub fn grouped(&self) -> Vec<(&str, Vec<&Service>)> {
        let mut groups: Vec<(&str, Vec<&Service>)> =
            self.system.groups.iter().map(|name| (name.as_str(), Vec::new())).collect();
        for service in &self.services {
            match groups.iter_mut().find(|(name, _)| *name == service.group) {
                Some((_, services)) => services.push(service),
                None => groups.push((&service.group, vec![service])),
            }
        }
        groups.retain(|(_, services)| !services.is_empty());
        groups
    }

    /// The event of a subject.
    pub fn event(&self, subject: &str) -> Option<&Event> {
        self.events().find(|event| event.subject.as_str() == subject)
    }

    /// The previous version of an event.
    pub fn before(&self, event: &Event) -> Option<&Event> {
        let subject = &event.subject;
        self.events()
            .filter(|other| other.subject.event_type() == subject.event_type())
            .filter(|other| other.subject.version() < subject.version())
            .max_by_key(|other| other.subject.version())
    }

    /// The versions of every event type, in order.
    pub fn versions(&self) -> BTreeMap<&str, Vec<&Event>> {
        let mut versions: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in self.events() {
            versions.entry(event.subject.event_type()).or_default().push(event);
        }
        for events in versions.values_mut() {
            events.sort_by_key(|event| event.subject.version());
        }
        versions
    }

    /// Whether a consumer reads this event and another one of its aggregate, so that their order
    /// matters.
    pub fn is_read_with_others(&self, event: &Event) -> bool {
        let aggregate = event.subject.aggregate_type();
        let mut others = self.events().filter(|other| {
            other.subject != event.subject && other.subject.aggregate_type() == aggregate
        });
        others.any(|other| {
            self.readers(event).any(|reader| self.readers(other).any(|also| also == reader))
        })
    }

    /// The readers of an event: its consumers, then the services that read everything.
    ///
    /// A service that reads everything does not read its own events: an audit service would
    /// otherwise record its own records without end.
    pub fn readers<'a>(&'a self, event: &'a Event) -> impl Iterator<Item = &'a str> {
        let named = move |service: &str| event.consumers.iter().any(|c| c.service == service);
        let all = self.system.readers_of_all.iter().map(String::as_str);
        let all = all.filter(move |service| *service != event.owner && !named(service));
        event.consumers.iter().map(|consumer| consumer.service.as_str()).chain(all)
    }

    /// Whether a service may publish a subject: it must be declared, and the service's own.
    pub fn may_publish(&self, service: &str, subject: &str) -> Result<&Event, NotPublisher> {
        match self.event(subject) {
            Some(event) if event.owner == service => Ok(event),
            Some(event) => Err(NotPublisher::Foreign {
                subject: subject.to_owned(),
                owner: event.owner.clone(),
                service: service.to_owned(),
            }),
            None => Err(NotPublisher::Unknown {
                subject: subject.to_owned(),
                system: self.profile.name.clone(),
                service: service.to_owned(),
            }),
        }
    }

    /// The subject without the system's name as prefix, if the grammar has one.
    pub fn short<'s>(&self, subject: &'s str) -> &'s str {
        self.profile.short(subject)
    }

    /// The address of an event's schema, without the hash of its content.
    ///
    /// It is also the path of the file under `event-schemas`: one folder per segment of the subject
    /// without the system's name, so `melmastoon.file.uploaded.v1`, which has no aggregate, is at
    /// `file/uploaded/v1`.
    pub fn schema_path(&self, event: &Event) -> String {
        let name = self.short(event.subject.event_type()).replace('.', "/");
        format!("{name}/v{}", event.subject.version())
    }
}

impl Profile {
    /// Whether its events are Protobuf messages.
    pub fn speaks_protobuf(&self) -> bool {
        self.dialect == DialectName::InlineProtobuf
    }
}

impl Encoding {
    /// The name in files and tables.
    pub fn as_str(&self) -> &'static str {
        match self {
            Encoding::Json => "json",
            Encoding::Protobuf(_) => "protobuf",
        }
    }
}

macro_rules! names {
    ($($type:ident { $($variant:ident = $name:literal),* })*) => {$(
        impl $type {
            /// Every choice, by the name that files use.
            pub const NAMES: &'static [(&'static str, $type)] =
                &[$(($name, $type::$variant)),*];

            /// The name that files use.
            pub fn as_str(self) -> &'static str {
                match self { $($type::$variant => $name),* }
            }
        }
    )*};
}

names! {
    Kind { Domain = "domain", Integration = "integration" }
    Volume { Low = "low", Medium = "medium", High = "high" }
    PayloadStyle { Fat = "fat", Thin = "thin" }
}
