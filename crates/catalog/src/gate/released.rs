//! The released side: the catalog of a revision, or a bundle, which has fewer facts.

use std::collections::{BTreeMap, BTreeSet};

use base64::prelude::{BASE64_STANDARD, Engine};
use chapar_core::Profile;
use chapar_core::bundle::Bundle;
use chapar_core::catalog::{Catalog, Encoding, Event, Kind, Mistake, Place, Rule};
use sha2::{Digest, Sha256};

use crate::Loaded;
use crate::schema::hex;

/// The released contracts.
#[derive(Debug, Clone, Default)]
pub struct Released {
    pub(super) contracts: BTreeMap<String, Contract>,
    /// Which services had a contract about which subjects; unknown for a bundle.
    pub(super) reads: BTreeSet<(String, String)>,
    /// The schema of the envelope; unknown for older bundles.
    pub(super) envelope: Option<String>,
    /// The template of the ordering keys; unknown for older bundles.
    pub(super) key_template: Option<String>,
    /// Mistakes that may hide a contract.
    pub(super) unread: Vec<Mistake>,
}

#[derive(Debug, Clone)]
pub(super) struct Contract {
    pub(super) event_type: String,
    pub(super) version: u32,
    pub(super) owner: String,
    /// Unknown for a bundle.
    pub(super) kind: Option<Kind>,
    /// The Protobuf message; none for JSON.
    pub(super) message: Option<String>,
    /// The field of the ordering key, or `none`; unknown for older bundles.
    pub(super) key: Option<String>,
    pub(super) deprecated: bool,
    pub(super) replaced_by: Option<String>,
    /// Unknown for a bundle; it may have any reader.
    pub(super) consumers: Option<Vec<String>>,
    pub(super) schema: Option<String>,
    pub(super) place: Option<Place>,
}

/// Why a bundle cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It has another format.
    #[error("it has the format {0}, and this program reads {form}", form = Bundle::FORMAT)]
    Format(u32),
    /// It belongs to another system.
    #[error("it holds the contracts of {0:?}, not of {1:?}")]
    System(String, String),
    /// A contract has a subject that is invalid in the system.
    #[error("{0}")]
    Subject(String),
    /// A schema was changed without its address.
    #[error("the schema of {0} is not the one that its address names; the bundle was changed")]
    Hash(String),
    /// A message's descriptors cannot be read.
    #[error("the descriptors of {0} are not base64; make the bundle again")]
    Descriptors(String),
}

impl Released {
    /// The contracts of a catalog.
    pub fn of_catalog(loaded: &Loaded) -> Released {
        let contracts = loaded.catalog.events().map(|event| {
            let subject = event.subject.to_string();
            let consumers = event.consumers.iter().map(|consumer| consumer.service.clone());
            let contract = Contract {
                event_type: event.subject.event_type().to_owned(),
                version: event.subject.version(),
                owner: event.owner.clone(),
                kind: Some(event.kind),
                message: message_of(event),
                key: Some(key_of(event)),
                deprecated: event.deprecated.is_some(),
                replaced_by: event.deprecated.as_ref().map(|d| d.replaced_by.clone()),
                consumers: Some(consumers.collect()),
                schema: loaded.schemas.get(&subject).map(|schema| schema.text.clone()),
                place: Some(event.place.clone()),
            };
            (subject, contract)
        });
        let contracts = contracts.collect();
        let unread = loaded.mistakes.iter().filter(|mistake| hides(mistake)).cloned().collect();
        let own = |(service, subject): (&str, &str)| (service.to_owned(), subject.to_owned());
        let envelope = loaded.envelope.as_ref().map(|schema| schema.text.clone());
        let key_template = Some(loaded.catalog.profile.key_template.as_str().to_owned());
        let reads = loaded.reads().map(own).collect();
        Released { contracts, reads, envelope, key_template, unread }
    }

    /// The contracts of a bundle of the system that has this profile.
    pub fn of_bundle(bundle: &Bundle, profile: &Profile) -> Result<Released, BundleError> {
        if bundle.format != Bundle::FORMAT {
            return Err(BundleError::Format(bundle.format));
        }
        if bundle.system != profile.name {
            return Err(BundleError::System(bundle.system.clone(), profile.name.clone()));
        }
        let mut contracts = BTreeMap::new();
        for contract in &bundle.contracts {
            if !names(&contract.uri, &contract.schema) {
                return Err(BundleError::Hash(contract.subject.clone()));
            }
            if contract.message.is_some() && BASE64_STANDARD.decode(&contract.schema).is_err() {
                return Err(BundleError::Descriptors(contract.subject.clone()));
            }
            let subject = profile
                .subject(&contract.subject)
                .map_err(|error| BundleError::Subject(error.to_string()))?;
            let old = Contract {
                event_type: subject.event_type().to_owned(),
                version: subject.version(),
                owner: contract.owner.clone(),
                kind: None,
                message: contract.message.clone(),
                key: contract.key.clone(),
                deprecated: contract.deprecated.is_some(),
                replaced_by: None,
                consumers: None,
                schema: Some(contract.schema.clone()),
                place: None,
            };
            contracts.insert(contract.subject.clone(), old);
        }
        let envelope = match &bundle.envelope {
            Some(envelope) if !names(&envelope.uri, &envelope.schema) => {
                return Err(BundleError::Hash("the envelope".to_owned()));
            }
            envelope => envelope.as_ref().map(|envelope| envelope.schema.clone()),
        };
        let key_template = bundle.key_template.clone();
        Ok(Released { contracts, envelope, key_template, ..Released::default() })
    }

    /// How many contracts there are.
    pub fn len(&self) -> usize {
        self.contracts.len()
    }

    /// Whether nothing was released yet.
    pub fn is_empty(&self) -> bool {
        self.contracts.is_empty()
    }

    /// The latest version of an event; 0 where there is none.
    pub(super) fn latest(&self, event_type: &str) -> u32 {
        let versions = self.contracts.values().filter(|old| old.event_type == event_type);
        versions.map(|old| old.version).max().unwrap_or(0)
    }
}

/// Whether an address has the hash of this text.
fn names(uri: &str, schema: &str) -> bool {
    let hash = hex(&Sha256::digest(schema.as_bytes()));
    uri.ends_with(&format!("#sha256-{hash}"))
}

/// Whether a mistake may hide events of the catalog.
fn hides(mistake: &Mistake) -> bool {
    let rules = [
        Rule::Unreadable,
        Rule::Syntax,
        Rule::TooLarge,
        Rule::Subject,
        Rule::MissingField,
        Rule::WrongValue,
    ];
    mistake.place.file.ends_with(".toml") && rules.contains(&mistake.rule)
}

/// The Protobuf message of an event.
pub(super) fn message_of(event: &Event) -> Option<String> {
    match &event.encoding {
        Encoding::Protobuf(message) => Some(message.clone()),
        Encoding::Json => None,
    }
}

/// The ordering key of an event as its catalog file spells it.
pub(super) fn key_of(event: &Event) -> String {
    event.key.clone().unwrap_or_else(|| "none".to_owned())
}

/// The path of an event's schema in its system.
pub(super) fn path_of(catalog: &Catalog, event: &Event) -> String {
    format!("event-schemas/{}.json", catalog.schema_path(event))
}
