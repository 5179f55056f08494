//! The headers of a message.

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

/// Names and values, in the order they were written; names may repeat.
///
/// They are in one allocation, which clones share: a message has several headers, and many messages
/// go through one process.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    /// Name and value of each header, each preceded by its length.
    memory: Bytes,
}

/// The integer type of a length.
type Length = u32;
/// The capacity to start with; the headers of most events fit into it.
const ROOM: usize = 256;

impl Headers {
    /// No headers.
    pub const fn new() -> Self {
        Headers { memory: Bytes::new() }
    }

    /// Appends a header to a buffer, which may hold other data before the headers.
    pub fn write(memory: &mut BytesMut, name: &str, value: &str) {
        for word in [name, value] {
            // No broker accepts a header of four gigabytes.
            let length = Length::try_from(word.len()).unwrap_or_default();
            memory.put_slice(&length.to_ne_bytes());
            memory.put_slice(&word.as_bytes()[..length as usize]);
        }
    }

    /// The headers that [`Headers::write`] wrote there.
    pub fn over(memory: Bytes) -> Self {
        Headers { memory }
    }

    /// Appends a header.
    pub fn push(&mut self, name: impl AsRef<str>, value: impl AsRef<str>) {
        self.extend([(name, value)]);
    }

    /// The first value of this name, case-sensitive.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut iter = self.iter();
        std::iter::from_fn(|| Some((iter.word()?, iter.word()?)))
            .find(|(known, _)| *known == name.as_bytes())
            .map(|(_, value)| text(value))
    }

    /// The names and values.
    pub fn iter(&self) -> Iter<'_> {
        Iter { rest: &self.memory }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// The bytes that they take in memory.
    pub fn size(&self) -> usize {
        self.memory.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }
}

/// The names and values of some [`Headers`].
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iter<'a> {
    fn word(&mut self) -> Option<&'a [u8]> {
        let (length, behind) = self.rest.split_first_chunk::<{ size_of::<Length>() }>()?;
        let (word, behind) = behind.split_at_checked(Length::from_ne_bytes(*length) as usize)?;
        self.rest = behind;
        Some(word)
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        Some((text(self.word()?), text(self.word()?)))
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = (&'a str, &'a str);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// It was valid UTF-8 when it was written.
fn text(word: &[u8]) -> &str {
    std::str::from_utf8(word).unwrap_or_default()
}

impl<N: AsRef<str>, V: AsRef<str>> Extend<(N, V)> for Headers {
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, headers: I) {
        let memory = std::mem::take(&mut self.memory).try_into_mut();
        let mut memory = memory.unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        if memory.capacity() == 0 {
            memory.reserve(ROOM);
        }
        for (name, value) in headers {
            Headers::write(&mut memory, name.as_ref(), value.as_ref());
        }
        self.memory = memory.freeze();
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        let mut all = Headers::new();
        all.extend(headers);
        all
    }
}

impl<N: AsRef<str>, V: AsRef<str>, const COUNT: usize> From<[(N, V); COUNT]> for Headers {
    fn from(headers: [(N, V); COUNT]) -> Self {
        headers.into_iter().collect()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// A text that can be written without copying it first.
#[derive(Deserialize)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("pairs of a name and a value")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<Headers, A::Error> {
                let mut memory = BytesMut::with_capacity(ROOM);
                while let Some((name, value)) = pairs.next_element::<(Word<'de>, Word<'de>)>()? {
                    Headers::write(&mut memory, &name.0, &value.0);
                }
                Ok(Headers::over(memory.freeze()))
            }
        }
        deserializer.deserialize_seq(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_keep_their_order_and_repeat() {
        let mut headers = Headers::from([("b", "1"), ("a", ""), ("b", "ü\"\n")]);
        assert_eq!((headers.len(), headers.get("b"), headers.get("A")), (3, Some("1"), None));
        let shared = headers.clone();
        headers.push("c", "4");
        assert_eq!(shared.len(), 3, "a clone is not changed");
        let pairs: Vec<_> = headers.iter().collect();
        assert_eq!(pairs, [("b", "1"), ("a", ""), ("b", "ü\"\n"), ("c", "4")]);
        let json = serde_json::to_string(&headers).unwrap();
        assert_eq!(json, r#"[["b","1"],["a",""],["b","ü\"\n"],["c","4"]]"#);
        assert_eq!(serde_json::from_str::<Headers>(&json).unwrap(), headers);
        assert_eq!(serde_json::from_slice::<Headers>(json.as_bytes()).unwrap(), headers);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::from_value::<Headers>(value).unwrap(), headers);
        assert!(serde_json::from_str::<Headers>(r#"[["b"]]"#).is_err());
    }

    #[test]
    fn memory_that_holds_no_headers_gives_none() {
        for memory in [&b"x"[..], &[255; 9], &[1, 0, 0, 0, b'a'], &[1, 0, 0, 0, 200, 0, 0, 0, 0]] {
            let headers = Headers::over(Bytes::copy_from_slice(memory));
            assert!(headers.iter().all(|(name, value)| name.is_empty() && value.is_empty()));
        }
    }
}
