//! Fingerprints group failures: those that differ only in numbers, ids and quoted values are the
//! same.

use sha2::{Digest, Sha256};

use crate::machine::failure::FailureKind;

/// Only this many characters of an error count.
const LONGEST: usize = 500;

/// An error without the parts that vary between events: quoted values become `'…'`, and words with
/// a digit `#`.
///
/// ```
/// use chapar_core::machine::fingerprint::shape;
/// assert_eq!(shape("no room 12 for \"Ada\" in res_7f3a"), "no room # for '…' in #");
/// ```
pub fn shape(error: &str) -> String {
    let mut shape = String::new();
    let mut quoted: Option<char> = None;
    let mut word = String::new();
    let mut before = ' ';
    for c in error.chars() {
        if let Some(quote) = quoted {
            if c == quote {
                quoted = None;
                shape.push_str("'…'");
                before = c;
            }
            continue;
        }
        // An apostrophe inside a word does not open a quotation.
        let opens = matches!(c, '"' | '`') || (c == '\'' && !before.is_alphanumeric());
        if opens {
            put(&mut shape, &mut word);
            quoted = Some(c);
        } else if c.is_whitespace() {
            put(&mut shape, &mut word);
            if !shape.is_empty() && !shape.ends_with(' ') {
                shape.push(' ');
            }
        } else if matches!(c, ',' | ';' | ':' | '(' | ')' | '[' | ']' | '{' | '}' | '=' | '/') {
            put(&mut shape, &mut word);
            shape.push(c);
        } else {
            word.push(c);
        }
        before = c;
    }
    put(&mut shape, &mut word);
    if quoted.is_some() {
        // Never closed: the rest may be anything.
        shape.push('…');
    }
    let end = shape.trim_end().char_indices().nth(LONGEST).map_or(shape.len(), |(end, _)| end);
    shape.truncate(end);
    shape.truncate(shape.trim_end().len());
    shape
}

fn put(shape: &mut String, word: &mut String) {
    let numbered = word.chars().any(|c| c.is_ascii_digit());
    shape.push_str(if numbered { "#" } else { word });
    word.clear();
}

/// The fingerprint of a failure: the same for every event that fails like this one.
pub fn fingerprint(consumer: &str, topic: &str, kind: FailureKind, shape: &str) -> String {
    let mut hash = Sha256::new();
    for part in [consumer, topic, kind.as_str(), shape] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_event_to_event_is_left_out() {
        let cases = [
            ("room 12 is taken", "room # is taken"),
            ("room 'Blue' is taken by \"a 1 b\"", "room '…' is taken by '…'"),
            ("0198f2c4-5e6a-7b1c-8d2e-3f4a5b6c7d8e: gone", "#: gone"),
            ("it isn't there, 3 times", "it isn't there, # times"),
            ("amount=12.50 EUR", "amount=# EUR"),
            ("a  \t b\n", "a b"),
            ("never \"closed", "never …"),
            ("", ""),
        ];
        for (error, expected) in cases {
            assert_eq!(shape(error), expected, "{error}");
        }
    }

    #[test]
    fn a_shape_is_its_own_shape_unless_it_was_cut() {
        for error in ["room 12 of \"x\"", "a: b: (c)", "0-12 is no envelope"] {
            let once = shape(error);
            let text = once.replace("'…'", "\"other\"").replace('#', "99");
            assert_eq!(shape(&text), once);
        }
        assert_eq!(shape(&"é".repeat(2000)).chars().count(), LONGEST);
    }

    #[test]
    fn consumer_topic_kind_and_shape_each_make_another() {
        let one = fingerprint("c", "t", FailureKind::Transient, "away");
        assert_eq!(one.len(), 16);
        assert_eq!(one, fingerprint("c", "t", FailureKind::Transient, "away"));
        for other in [
            fingerprint("d", "t", FailureKind::Transient, "away"),
            fingerprint("c", "u", FailureKind::Transient, "away"),
            fingerprint("c", "t", FailureKind::Timeout, "away"),
            fingerprint("c", "t", FailureKind::Transient, "awa"),
            fingerprint("ct", "", FailureKind::Transient, "away"),
        ] {
            assert_ne!(one, other);
        }
    }
}
