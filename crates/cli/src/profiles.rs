//! Systems by name: those that come with the command, or the file of a profile.

use anyhow::{Context, Result};
use chapar_core::Profile;
use chapar_core::profile::DialectName;

/// A system that comes with the command.
pub(crate) struct Shipped {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    profile: &'static str,
    /// The bundle with its released contracts.
    pub(crate) contracts: Option<&'static str>,
    /// Its Protobuf files, by the name under which they are imported.
    pub(crate) protos: &'static [(&'static str, &'static str)],
}

const SHIPPED: [Shipped; 4] = [
    Shipped {
        name: "melmastoon",
        profile: include_str!("../../../systems/melmastoon/profile.toml"),
        contracts: Some(melmastoon::CONTRACTS),
        protos: &[],
    },
    Shipped {
        name: "meridian",
        profile: include_str!("../../../systems/meridian/profile.toml"),
        contracts: None,
        protos: &[
            (
                "buf/validate/validate.proto",
                include_str!("../../../systems/meridian/proto/buf/validate/validate.proto"),
            ),
            (
                "google/type/money.proto",
                include_str!("../../../systems/meridian/proto/google/type/money.proto"),
            ),
            (
                "meridian/common/v1/currency.proto",
                include_str!("../../../systems/meridian/proto/meridian/common/v1/currency.proto"),
            ),
            (
                "meridian/events/v1/current_account_events.proto",
                include_str!(
                    "../../../systems/meridian/proto/meridian/events/v1/current_account_events.proto"
                ),
            ),
        ],
    },
    Shipped {
        name: "learning",
        profile: include_str!("../../../systems/learning/profile.toml"),
        contracts: None,
        protos: &[],
    },
    Shipped {
        name: "invoicing",
        profile: include_str!("../../../systems/invoicing/profile.toml"),
        contracts: None,
        protos: &[],
    },
];

/// The profile of a shipped system, or of a file.
pub(crate) fn load(name: &str) -> Result<Profile> {
    if let Some(system) = shipped(name) {
        return system.profile();
    }
    let text = std::fs::read_to_string(name).with_context(|| {
        let systems: Vec<&str> = SHIPPED.iter().map(|system| system.name).collect();
        format!(
            "the profile {name:?} is none of {}, and cannot be read as a file",
            systems.join(", ")
        )
    })?;
    Profile::from_toml(&text).with_context(|| name.to_owned())
}

/// The shipped system of this name.
pub(crate) fn shipped(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|system| system.name == name)
}

/// The first shipped system that writes the dialect.
pub(crate) fn that_writes(dialect: DialectName) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|system| system.profile().is_ok_and(|profile| profile.dialect == dialect))
}

impl Shipped {
    pub(crate) fn profile(&self) -> Result<Profile> {
        Profile::from_toml(self.profile).with_context(|| self.name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_has_a_system_that_writes_it() {
        for (dialect, system) in [
            (DialectName::MetadataJson, "melmastoon"),
            (DialectName::InlineProtobuf, "meridian"),
            (DialectName::FlatJson, "learning"),
            (DialectName::CloudEvents, "invoicing"),
        ] {
            assert_eq!(that_writes(dialect).map(|shipped| shipped.name), Some(system));
        }
    }
}
