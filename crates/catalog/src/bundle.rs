//! The bundle that runtimes load: what is in the files, checked and in one piece.

use chapar_core::bundle::{Bundle, Contract};
use chapar_core::catalog::PayloadStyle;

use crate::Loaded;

/// The bundle of a system's JSON contracts, by subject.
///
/// Events in Protobuf are not in it: their schema is the descriptor that the dialect has.
pub fn bundle(loaded: &Loaded) -> Bundle {
    let catalog = &loaded.catalog;
    let contracts = catalog.events().filter_map(|event| {
        let schema = loaded.schemas.get(event.subject.as_str())?;
        Some(Contract {
            subject: event.subject.as_str().to_owned(),
            owner: event.owner.clone(),
            thin: event.payload == PayloadStyle::Thin,
            deprecated: event.deprecated.as_ref().map(|deprecated| {
                format!("since {}, read {} instead", deprecated.since, deprecated.replaced_by)
            }),
            uri: schema.uri(),
            earlier: Vec::new(),
            schema: schema.text.clone(),
        })
    });
    let mut contracts: Vec<Contract> = contracts.collect();
    contracts.sort_by(|a, b| a.subject.cmp(&b.subject));
    Bundle {
        format: Bundle::FORMAT,
        system: catalog.profile.name.clone(),
        version: catalog.system.version.clone(),
        contracts,
    }
}
