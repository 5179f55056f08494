use chapar_core::Profile;

/// The profile of a system in `systems/`, for tests and benchmarks.
///
/// # Panics
/// If there is no such system.
pub fn profile(system: &str) -> Profile {
    let text = match system {
        "melmastoon" => include_str!("../../../systems/melmastoon/profile.toml"),
        "meridian" => include_str!("../../../systems/meridian/profile.toml"),
        "learning" => include_str!("../../../systems/learning/profile.toml"),
        "invoicing" => include_str!("../../../systems/invoicing/profile.toml"),
        _ => panic!("there is no system {system:?} with a profile"),
    };
    Profile::from_toml(text).expect("the profiles are tested to be valid")
}
