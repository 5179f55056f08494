//! A released bundle: a system's contracts in one file that runtimes load.

use serde::{Deserialize, Serialize};

use crate::convert::Conversion;

/// The contracts of a system as they were released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// The format of this file; this program writes and reads [`Bundle::FORMAT`].
    pub format: u32,
    /// The system.
    pub system: String,
    /// The version of its contracts.
    pub version: String,
    /// The template of its ordering keys; unknown in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_template: Option<String>,
    /// The schema of its envelope, if it declares one; unknown in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<EnvelopeSchema>,
    /// Its events, by subject.
    pub contracts: Vec<Contract>,
}

/// The schema of the envelope of a system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvelopeSchema {
    /// Its address, with the SHA-256 of its text.
    pub uri: String,
    /// Its text, byte for byte as it was hashed.
    pub schema: String,
}

/// The contract of one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// The versioned subject.
    pub subject: String,
    /// The only service that may publish it.
    pub owner: String,
    /// A thin event: it carries a reference instead of the facts, and may be large.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thin: bool,
    /// Set if the event is deprecated: the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<String>,
    /// The full name of its message, where it is Protobuf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The payload field with the id of its ordering key, or `none`; unknown in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How it is published together with the previous version during dual publication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dual_publish: Option<DualPublish>,
    /// A consumer reads several subjects of its aggregate, so the relay stamps its order among them
    /// if the transport does not keep order between topics.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stamped: bool,
    /// The address of its schema, with the SHA-256 of its text.
    pub uri: String,
    /// The addresses of earlier revisions of the same version. Their events may still be in
    /// transit; the gate checked that this schema accepts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
    /// The schema, byte for byte as it was hashed. For a Protobuf message, the base64 of the
    /// `FileDescriptorSet` with its file and all its imports.
    pub schema: String,
}

impl Contract {
    /// Whether an event whose envelope names this schema can be read with this contract. An address
    /// without a hash names no particular schema.
    pub fn knows(&self, uri: &str) -> bool {
        !uri.contains("#sha256-")
            || self.uri == uri
            || self.earlier.iter().any(|known| known == uri)
    }
}

/// The older version that is published together with a newer one, from the same fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DualPublish {
    /// The versioned subject of the older one.
    pub subject: String,
    /// The conversion from the newer version to the older.
    pub convert: Conversion,
}

impl Bundle {
    /// The format that this program writes and reads.
    pub const FORMAT: u32 = 1;

    /// Takes over the schemas of the previous release as earlier revisions of those here.
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
