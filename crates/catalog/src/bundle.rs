//! The bundle that runtimes load: the checked contracts in one file.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine};
use chapar_core::bundle::{Bundle, Contract, DualPublish, EnvelopeSchema};
use chapar_core::catalog::{Encoding, PayloadStyle};
use prost_reflect::{FileDescriptor, MessageDescriptor};
use sha2::{Digest, Sha256};

use crate::Loaded;
use crate::schema::hex;

/// The bundle of a system's contracts, by subject.
pub fn bundle(loaded: &Loaded) -> Bundle {
    let catalog = &loaded.catalog;
    let contracts = catalog.events().filter_map(|event| {
        let (message, uri, schema) = match &event.encoding {
            Encoding::Json => {
                let schema = loaded.schemas.get(event.subject.as_str())?;
                (None, schema.uri(), schema.text.clone())
            }
            Encoding::Protobuf(name) => {
                let schema = described(&loaded.protos.message(name)?);
                let hash = hex(&Sha256::digest(schema.as_bytes()));
                let uri = format!("schemas://{}#sha256-{hash}", catalog.schema_path(event));
                (Some(name.clone()), uri, schema)
            }
        };
        Some(Contract {
            subject: event.subject.as_str().to_owned(),
            owner: event.owner.clone(),
            thin: event.payload == PayloadStyle::Thin,
            deprecated: event.deprecated.as_ref().map(|deprecated| {
                format!("since {}, read {} instead", deprecated.since, deprecated.replaced_by)
            }),
            message,
            key: Some(event.key.clone().unwrap_or_else(|| "none".to_owned())),
            dual_publish: event.dual_publish.as_ref().and_then(|dual| {
                let subject = catalog.before(event)?.subject.to_string();
                Some(DualPublish { subject, convert: dual.convert.clone() })
            }),
            stamped: catalog.is_read_with_others(event),
            uri,
            earlier: Vec::new(),
            schema,
        })
    });
    let mut contracts: Vec<Contract> = contracts.collect();
    contracts.sort_by(|a, b| a.subject.cmp(&b.subject));
    Bundle {
        format: Bundle::FORMAT,
        system: catalog.profile.name.clone(),
        version: catalog.system.version.clone(),
        key_template: Some(catalog.profile.key_template.as_str().to_owned()),
        envelope: loaded
            .envelope
            .as_ref()
            .map(|schema| EnvelopeSchema { uri: schema.uri(), schema: schema.text.clone() }),
        contracts,
    }
}

/// The file of a message and everything it imports, in the order of their names.
fn described(message: &MessageDescriptor) -> String {
    let mut files: BTreeMap<String, FileDescriptor> = BTreeMap::new();
    let mut open = vec![message.parent_file()];
    while let Some(file) = open.pop() {
        if files.insert(file.name().to_owned(), file.clone()).is_none() {
            open.extend(file.dependencies());
        }
    }
    // A `FileDescriptorSet` is its files in sequence, each as field 1. It is encoded by hand
    // because the descriptor types drop unknown options, including constraints.
    let mut set = Vec::new();
    for file in files.values() {
        let bytes = file.encode_to_vec();
        set.push(1 << 3 | 2);
        let mut length = bytes.len();
        while length >= 0x80 {
            set.push(length as u8 | 0x80);
            length >>= 7;
        }
        set.push(length as u8);
        set.extend_from_slice(&bytes);
    }
    BASE64_STANDARD.encode(set)
}
