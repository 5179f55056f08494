//! What the hotel is built from is what its files say.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::collections::BTreeMap;
use std::path::Path;

use chapar::Event;
use chapar_catalog::load;
use melmastoon::events::*;
use serde_json::Value;

#[test]
fn the_payload_types_are_those_of_the_schemas() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let current = chapar_catalog::rust::source(&chapar_catalog::load(folder).unwrap());
    let committed = std::fs::read_to_string(folder.join("src/events/generated.rs")).unwrap();
    assert!(
        current == committed,
        "make them anew: chapar catalog rust --system melmastoon \
         --out systems/melmastoon/src/events/generated.rs"
    );
}

#[test]
fn consumers_read_what_their_contracts_say_no_more_and_no_less() {
    type Reads = fn(&Value) -> bool;
    fn reads<E: serde::de::DeserializeOwned>(payload: &Value) -> bool {
        E::deserialize(payload).is_ok()
    }
    let handlers: BTreeMap<&str, Reads> = BTreeMap::from([
        (BookingHeld::SUBJECT, reads::<BookingHeld> as Reads),
        (BookingCancelled::SUBJECT, reads::<BookingCancelled>),
        (AllocationCommitted::SUBJECT, reads::<AllocationCommitted>),
    ]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let hotel = load(folder).unwrap();
    assert_eq!(hotel.breaches(), []);
    let contracts: Vec<_> = hotel.consumers.iter().flat_map(|contract| &contract.reads).collect();
    assert_eq!(contracts.len(), handlers.len());
    for contract in contracts {
        let handles = handlers[contract.subject.as_str()];
        for file in &contract.examples {
            let text = std::fs::read_to_string(folder.join("consumers").join(file)).unwrap();
            let whole: Value = serde_json::from_str(&text).unwrap();
            assert!(handles(&whole), "{file} is not what the handler takes");
            for (pointers, needed) in [(&contract.fields, true), (&contract.optional, false)] {
                for pointer in pointers {
                    let without = without(&whole, pointer);
                    assert_eq!(!handles(&without), needed, "{pointer} of {}", contract.subject);
                }
            }
            let only = contract.optional.iter().fold(whole, |all, pointer| without(&all, pointer));
            let fields: usize = leaves(&only);
            assert_eq!(
                fields,
                contract.fields.len(),
                "{file} shows a field that no contract lists"
            );
        }
    }
}

fn without(payload: &Value, pointer: &str) -> Value {
    let mut payload = payload.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    payload.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
    payload
}

fn leaves(value: &Value) -> usize {
    value.as_object().map_or(1, |fields| fields.values().map(leaves).sum())
}

#[test]
fn the_bundle_that_the_hotel_runs_on_is_what_its_files_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let loaded = chapar_catalog::load(folder).unwrap();
    let current = serde_json::to_string_pretty(&chapar_catalog::bundle(&loaded)).unwrap() + "\n";
    let committed = std::fs::read_to_string(folder.join("contracts.json")).unwrap();
    assert!(
        current == committed,
        "make it anew: chapar schema bundle --system melmastoon --out systems/melmastoon/contracts.json"
    );
}
