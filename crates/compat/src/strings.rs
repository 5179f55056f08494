//! Strings for tests of a schema: of a length, or such that a pattern matches them.

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Value, json};

use crate::formats;

/// What real payloads hold; a pattern that is too hard to invert often matches one of them.
const COMMON: [&str; 12] = [
    "",
    "a",
    "Z",
    "0",
    "-",
    "é",
    "abc",
    "ABC",
    "2026-01-31",
    "2026-01-31T12:00:00Z",
    "0190d6f2-7b1c-7c3e-8a4d-5b6c7d8e9f00",
    "someone@example.com",
];

/// Bytes of a string that is built from a pattern.
const LONGEST: usize = 5_000;

pub(crate) fn variants(
    patterns: &BTreeSet<&str>,
    formats: &BTreeSet<&'static str>,
    least: u64,
    most: Option<u64>,
) -> Vec<Value> {
    let mut strings: Vec<String> = Vec::new();
    for format in formats {
        strings.extend(formats::samples(format).iter().map(|text| (*text).to_owned()));
    }
    for pattern in patterns {
        strings.extend(matching(pattern));
    }
    strings.extend([least, least + 1].iter().chain(&most).filter_map(|length| repeated(*length)));
    strings.extend(COMMON.iter().map(|text| (*text).to_owned()));
    strings.retain(|text| {
        let length = text.chars().count() as u64;
        length >= least && most.is_none_or(|most| length <= most)
    });
    strings.dedup();
    let mut values: Vec<Value> = strings.into_iter().map(|text| json!(text)).collect();
    values.retain(|value| formats.iter().all(|format| formats::fits(format, value)));
    values.truncate(24);
    values
}

fn repeated(length: u64) -> Option<String> {
    (length <= 5_000).then(|| "a".repeat(usize::try_from(length).unwrap_or(0)))
}

/// Some strings that a pattern matches, as far as it can be parsed: short ones, long ones, other alternatives.
pub(crate) fn matching(pattern: &str) -> Vec<String> {
    let Ok(hir) = regex_syntax::parse(pattern) else { return Vec::new() };
    // The parser knows how long a match must be; nothing longer than this is ever written out.
    if hir.properties().minimum_len().is_none_or(|least| least > LONGEST) {
        return Vec::new();
    }
    let mut all: Vec<String> = (0..6)
        .filter_map(|choice| {
            let mut text = String::new();
            write(&hir, choice, &mut text).then_some(text)
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

/// `choice` picks the branch, the number of repetitions and the character; `false` where it gets too long.
fn write(hir: &Hir, choice: usize, out: &mut String) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(class) => out.extend(character(class, choice)),
        HirKind::Capture(capture) => return write(&capture.sub, choice, out),
        HirKind::Repetition(repetition) => {
            let least = repetition.min;
            let most =
                repetition.max.unwrap_or(least.saturating_add(2)).min(least.saturating_add(64));
            let times = if choice % 2 == 1 { most } else { least };
            for _ in 0..times {
                let before = out.len();
                if !write(&repetition.sub, choice, out) {
                    return false;
                }
                // An empty part stays empty, however often it is repeated.
                if out.len() == before {
                    return true;
                }
            }
        }
        HirKind::Concat(parts) => return parts.iter().all(|part| write(part, choice, out)),
        HirKind::Alternation(parts) => {
            return parts
                .get(choice % parts.len().max(1))
                .is_some_and(|part| write(part, choice, out));
        }
    }
    out.len() <= LONGEST
}

fn character(class: &Class, choice: usize) -> Option<char> {
    let ranges: Vec<(char, char)> = match class {
        Class::Unicode(class) => {
            class.ranges().iter().map(|range| (range.start(), range.end())).collect()
        }
        Class::Bytes(class) => class
            .ranges()
            .iter()
            .map(|range| (char::from(range.start()), char::from(range.end())))
            .collect(),
    };
    let readable = ['a', 'A', '0', 'x', '7', '-', ' '];
    let inside = |one: char| ranges.iter().any(|(low, high)| *low <= one && one <= *high);
    let preferred: Vec<char> = readable.into_iter().filter(|one| inside(*one)).collect();
    match preferred.get(choice / 2 % preferred.len().max(1)) {
        Some(one) => Some(*one),
        None => ranges.first().map(|(low, _)| *low),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_an_identifier_is_matched() {
        assert!(matching("^(evt|cmd)_[0-9a-f]{8}$").contains(&"evt_aaaaaaaa".to_owned()));
        assert!(matching("^(evt|cmd)_[0-9a-f]{8}$").contains(&"cmd_aaaaaaaa".to_owned()));
    }

    #[test]
    fn a_pattern_that_explodes_gives_nothing() {
        assert!(
            matching("((((a{1000}){1000}){1000}){1000})").iter().all(|text| text.len() <= 5_000)
        );
    }
}
