//! The keyword `format`: an assertion, as the registry and the catalog check it.
//!
//! A format that validators do not know is an annotation.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};

/// Every format that a validator of draft 2020-12 may know, with texts that have it.
const SAMPLES: [(&str, &[&str]); 19] = [
    ("date", &["2026-01-31"]),
    ("date-time", &["2026-01-31T12:00:00Z"]),
    ("duration", &["P1D", "PT2H"]),
    ("email", &["someone@example.com"]),
    ("hostname", &["a", "example.com"]),
    ("idn-email", &["someone@example.com", "é@example.com"]),
    ("idn-hostname", &["a", "example.com", "bücher.example"]),
    ("ipv4", &["192.0.2.1"]),
    ("ipv6", &["2001:db8::1"]),
    ("iri", &["https://example.com/é", "https://example.com/a"]),
    ("iri-reference", &["", "/a", "é"]),
    ("json-pointer", &["", "/a"]),
    ("regex", &["", "a", "^[a-z]+$"]),
    ("relative-json-pointer", &["0", "1/a"]),
    ("time", &["12:00:00Z"]),
    ("uri", &["https://example.com/a", "urn:a:b"]),
    ("uri-reference", &["", "/a"]),
    ("uri-template", &["", "a", "/a/{b}"]),
    ("uuid", &["0190d6f2-7b1c-7c3e-8a4d-5b6c7d8e9f00"]),
];

/// Texts of which each format refuses at least one.
const WRONG: [&str; 8] = ["?", " ", "{", "\\", "a b", "[", "(", "-"];

static ASSERTED: LazyLock<BTreeMap<&'static str, Validator>> = LazyLock::new(|| {
    let known = SAMPLES.iter().filter_map(|(format, _)| {
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .should_validate_formats(true)
            .build(&json!({ "format": format }))
            .ok()?;
        let asserted = WRONG.iter().any(|text| !validator.is_valid(&json!(text)));
        asserted.then_some((*format, validator))
    });
    known.collect()
});

/// The format that a schema asserts.
pub(crate) fn asserted(part: &Map<String, Value>) -> Option<&'static str> {
    let format = part.get("format")?.as_str()?;
    ASSERTED.get_key_value(format).map(|(format, _)| *format)
}

/// Whether a value has an asserted format. Only texts have one to break.
pub(crate) fn fits(format: &str, value: &Value) -> bool {
    ASSERTED.get(format).is_none_or(|validator| validator.is_valid(value))
}

/// Texts that have a format.
pub(crate) fn samples(format: &str) -> &'static [&'static str] {
    SAMPLES.iter().find(|(known, _)| *known == format).map_or(&[], |(_, samples)| samples)
}

/// Texts that do not have a format.
pub(crate) fn wrong(format: &str) -> impl Iterator<Item = Value> {
    WRONG.iter().map(|text| json!(text)).filter(move |text| !fits(format, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_asserted_format_has_samples_on_both_sides() {
        assert!(ASSERTED.len() >= 17, "{:?}", ASSERTED.keys());
        for format in ASSERTED.keys() {
            assert!(!samples(format).is_empty(), "{format}");
            for text in samples(format) {
                assert!(fits(format, &json!(text)), "{format}: {text}");
            }
            assert!(wrong(format).count() > 0, "{format}");
        }
        assert_eq!(asserted(json!({ "format": "room-number" }).as_object().unwrap()), None);
    }
}
