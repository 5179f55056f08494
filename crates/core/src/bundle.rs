//! A released bundle: a system's contracts in one file that runtimes load.

use serde::{Deserialize, Serialize};

/// The contracts of a system as they were released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// The form of this file; this program writes and reads [`Bundle::FORMAT`].
    pub format: u32,
    /// The system.
    pub system: String,
    /// The version of its contracts.
    pub version: String,
    /// Its events, by subject.
    pub contracts: Vec<Contract>,
}

/// The contract of one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// The versioned subject.
    pub subject: String,
    /// The only service that may publish it.
    pub owner: String,
    /// It carries a reference instead of the facts, and may be large.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thin: bool,
    /// Why it should not be used any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<String>,
    /// Its schema's address with the SHA-256 of its text.
    pub uri: String,
    /// The schema, to the letter: the hash is of these bytes.
    pub schema: String,
}

impl Bundle {
    /// The form that this program writes and reads.
    pub const FORMAT: u32 = 1;
}
