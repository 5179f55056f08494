//! What the hotel is built from is what its files say.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::path::Path;

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
