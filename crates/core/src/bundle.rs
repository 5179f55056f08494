//! A released bundle: a system's contracts in one file that runtimes load.

use serde::{Deserialize, Serialize};

use crate::convert::Conversion;

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
    /// The full name of its message, where it is Protobuf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How it is published beside the version before, while both travel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dual_publish: Option<DualPublish>,
    /// Somebody reads several subjects of its aggregate, so that its place among them is stamped
    /// on it where the transport does not keep the order between topics.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stamped: bool,
    /// Its schema's address with the SHA-256 of its text.
    pub uri: String,
    /// The addresses of earlier revisions of the same version. Their events are still on the
    /// way, and the gate has seen to it that this schema reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
    /// The schema, to the letter: the hash is of these bytes. Of a message it is the base64 of
    /// the `FileDescriptorSet` with its file and everything imported there.
    pub schema: String,
}

impl Contract {
    /// Whether an event whose envelope names this schema can be read by this contract. An
    /// address without a hash names no particular schema.
    pub fn knows(&self, uri: &str) -> bool {
        !uri.contains("#sha256-")
            || self.uri == uri
            || self.earlier.iter().any(|known| known == uri)
    }
}

/// The version that is published beside a newer one, from the same fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DualPublish {
    /// The versioned subject of the older one.
    pub subject: String,
    /// The way from the newer to the older.
    pub convert: Conversion,
}

impl Bundle {
    /// The form that this program writes and reads.
    pub const FORMAT: u32 = 1;

    /// Takes over what was released before: its schemas are earlier revisions of those here.
    pub fn follow(&mut self, before: &Bundle) {
        for contract in &mut self.contracts {
            let Some(old) = before.contracts.iter().find(|old| old.subject == contract.subject)
            else {
                continue;
            };
            let known = old.earlier.iter().chain(std::iter::once(&old.uri));
            contract.earlier = known.filter(|uri| **uri != contract.uri).cloned().collect();
        }
    }
}
