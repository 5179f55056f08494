//! Event and correlation ids.
//!
//! Chapar generates UUIDv7 and ULID; it accepts any other UUID and free strings from outside and
//! keeps them unchanged. A ULID is 16 bytes, so it doubles as a W3C trace id.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use ulid::Ulid;
use uuid::Uuid;

/// The longest foreign id that is accepted, in bytes.
pub const MAX_FOREIGN_ID: usize = 256;

/// An id of an event, a correlation, a causation or an outbox row.
///
/// Parsing and printing are inverse: an id that is not in the canonical spelling of a UUID or ULID
/// stays foreign, so that it is written exactly as it was read.
///
/// ```
/// use chapar_core::Id;
/// let id: Id = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse()?;
/// assert!(matches!(id, Id::Ulid(_)));
/// assert_eq!(id.to_string(), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
/// # Ok::<(), chapar_core::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    /// A UUID of any version in lower-case hyphenated spelling.
    Uuid(Uuid),
    /// A ULID in upper-case Crockford base 32.
    Ulid(Ulid),
    /// Any other id, made by a foreign system.
    Foreign(Box<str>),
}

/// The kind of id that a system generates for its own events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdKind {
    /// Time-ordered UUID, version 7.
    Uuidv7,
    /// Random UUID, version 4.
    Uuidv4,
    /// Time-ordered ULID.
    Ulid,
}

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("an id is empty; give a UUID, a ULID or another non-empty text")]
    Empty,
    /// The text is longer than [`MAX_FOREIGN_ID`].
    #[error("an id has {0} bytes; at most {MAX_FOREIGN_ID} are accepted")]
    TooLong(usize),
    /// The text holds a control character.
    #[error("an id holds a control character at byte {0}")]
    Control(usize),
    /// The text is not a 32-digit W3C trace id, or it is all zero.
    #[error("not a W3C trace id: 32 lower-case hex digits, not all zero, are expected")]
    TraceId,
}

impl Id {
    /// A UUIDv7 for the given time and 74 random bits.
    pub fn uuid_v7(unix_ms: u64, random: u128) -> Self {
        let bytes = random.to_be_bytes();
        let mut tail = [0; 10];
        tail.copy_from_slice(&bytes[..10]);
        Id::Uuid(uuid::Builder::from_unix_timestamp_millis(unix_ms, &tail).into_uuid())
    }

    /// A random UUID, version 4.
    pub fn uuid_v4(random: u128) -> Self {
        Id::Uuid(uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid())
    }

    /// A ULID for the given time and 80 random bits.
    pub fn ulid(unix_ms: u64, random: u128) -> Self {
        Id::Ulid(Ulid::from_parts(unix_ms, random))
    }

    /// The W3C trace id of the same 16 bytes, if this id has 16 bytes.
    ///
    /// The nil id has none: the W3C defines an all-zero trace id as invalid.
    pub fn trace_id(&self) -> Option<String> {
        let bits = match self {
            Id::Uuid(id) => id.as_u128(),
            Id::Ulid(id) => id.0,
            Id::Foreign(_) => return None,
        };
        (bits != 0).then(|| format!("{bits:032x}"))
    }

    /// The ULID of the 16 bytes of a W3C trace id.
    pub fn from_trace_id(trace_id: &str) -> Result<Self, IdError> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if trace_id.len() != 32 || !trace_id.bytes().all(hex) {
            return Err(IdError::TraceId);
        }
        match u128::from_str_radix(trace_id, 16) {
            Ok(0) | Err(_) => Err(IdError::TraceId),
            Ok(bits) => Ok(Id::Ulid(Ulid(bits))),
        }
    }
}

impl FromStr for Id {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.is_empty() {
            return Err(IdError::Empty);
        }
        if text.len() > MAX_FOREIGN_ID {
            return Err(IdError::TooLong(text.len()));
        }
        if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(IdError::Control(at));
        }
        // Only canonical spellings are stored as bytes: everything else must print as it was read.
        let mut canonical = [0; 36];
        if text.len() == 36
            && let Ok(id) = Uuid::try_parse(text)
            && id.as_hyphenated().encode_lower(&mut canonical) == text
        {
            return Ok(Id::Uuid(id));
        }
        if text.len() == ulid::ULID_LEN
            && let Ok(id) = Ulid::from_string(text)
            && id.to_string() == text
        {
            return Ok(Id::Ulid(id));
        }
        Ok(Id::Foreign(text.into()))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Uuid(id) => id.as_hyphenated().fmt(f),
            Id::Ulid(id) => id.fmt(f),
            Id::Foreign(text) => f.write_str(text),
        }
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn canonical_spellings_are_recognised_and_others_kept() {
        let kinds = [
            ("0190163d-8694-739b-aea5-966c26f8ad91", "uuid"),
            ("550e8400-e29b-41d4-a716-446655440000", "uuid"),
            ("550E8400-E29B-41D4-A716-446655440000", "foreign"),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "ulid"),
            ("01arz3ndektsv4rrffq69g5fav", "foreign"),
            ("trace-abc-123", "foreign"),
        ];
        for (text, kind) in kinds {
            let id: Id = text.parse().unwrap();
            let found = match id {
                Id::Uuid(_) => "uuid",
                Id::Ulid(_) => "ulid",
                Id::Foreign(_) => "foreign",
            };
            assert_eq!((found, id.to_string().as_str()), (kind, text));
        }
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        assert_eq!("".parse::<Id>(), Err(IdError::Empty));
        assert_eq!("a\nb".parse::<Id>(), Err(IdError::Control(1)));
        assert_eq!("x".repeat(257).parse::<Id>(), Err(IdError::TooLong(257)));
        for bad in ["", "0", &"0".repeat(32), &"F".repeat(32), &"g".repeat(32)] {
            assert_eq!(Id::from_trace_id(bad), Err(IdError::TraceId), "{bad}");
        }
    }

    #[test]
    fn our_own_uuids_say_their_version() {
        let Id::Uuid(v7) = Id::uuid_v7(1_700_000_000_000, u128::MAX) else { panic!() };
        let Id::Uuid(v4) = Id::uuid_v4(u128::MAX) else { panic!() };
        assert_eq!((v7.get_version_num(), v4.get_version_num()), (7, 4));
        assert!(Id::uuid_v7(1, u128::MAX) < Id::uuid_v7(2, 0), "time-ordered");
    }

    proptest! {
        #[test]
        fn a_ulid_is_a_trace_id_and_back(ms in 1u64..(1 << 48), random: u128) {
            let id = Id::ulid(ms, random);
            prop_assert_eq!(Id::from_trace_id(&id.trace_id().unwrap()).unwrap(), id);
        }

        #[test]
        fn any_accepted_text_prints_as_it_came(text in "\\PC{1,60}") {
            if let Ok(id) = text.parse::<Id>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
