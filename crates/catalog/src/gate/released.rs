//! The old side: a revision's catalog, or a bundle that knows less.

use std::collections::{BTreeMap, BTreeSet};

use base64::prelude::{BASE64_STANDARD, Engine};
use chapar_core::Profile;
use chapar_core::bundle::Bundle;
use chapar_core::catalog::{Catalog, Event, Kind, Mistake, Place, Rule};
use sha2::{Digest, Sha256};

use crate::Loaded;

/// The contracts that others rely on already.
#[derive(Debug, Clone, Default)]
pub struct Released {
    pub(super) contracts: BTreeMap<String, Contract>,
    /// Which services had a contract about which subjects; a bundle does not say.
    pub(super) reads: BTreeSet<(String, String)>,
    /// What may hide a contract.
    pub(super) unread: Vec<Mistake>,
}

#[derive(Debug, Clone)]
pub(super) struct Contract {
    pub(super) event_type: String,
    pub(super) version: u32,
    pub(super) owner: String,
    /// A bundle does not say.
    pub(super) kind: Option<Kind>,
    pub(super) deprecated: bool,
    pub(super) replaced_by: Option<String>,
    /// A bundle does not say; it may be read by anybody.
    pub(super) consumers: Option<Vec<String>>,
    pub(super) schema: Option<String>,
    pub(super) place: Option<Place>,
}

/// Why a bundle cannot be compared with.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It is of another form.
    #[error("it has the form {0}, and this program reads {form}", form = Bundle::FORMAT)]
    Format(u32),
    /// It is another system's.
    #[error("it holds the contracts of {0:?}, not of {1:?}")]
    System(String, String),
    /// A contract has a name that the system does not know.
    #[error("{0}")]
    Subject(String),
    /// Somebody changed a schema without its address.
    #[error("the schema of {0} is not the one that its address names; the bundle was changed")]
    Hash(String),
    /// A message's descriptors cannot be read.
    #[error("the descriptors of {0} are not base64; make the bundle anew")]
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
        Released { contracts, reads: loaded.reads().map(own).collect(), unread }
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
            let digest = Sha256::digest(contract.schema.as_bytes());
            let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            if !contract.uri.ends_with(&format!("#sha256-{hash}")) {
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
                deprecated: contract.deprecated.is_some(),
                replaced_by: None,
                consumers: None,
                schema: Some(contract.schema.clone()),
                place: None,
            };
            contracts.insert(contract.subject.clone(), old);
        }
        Ok(Released { contracts, reads: BTreeSet::new(), unread: Vec::new() })
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

/// Whether a mistake may keep events out of the catalog.
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

/// Where an event's schema lies in its system.
pub(super) fn path_of(catalog: &Catalog, event: &Event) -> String {
    format!("event-schemas/{}.json", catalog.schema_path(event))
}
