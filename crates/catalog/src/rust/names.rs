//! Rust names for the names in schemas.

use std::collections::BTreeSet;

const KEYWORDS: [&str; 49] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
    "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return",
    "static", "struct", "trait", "true", "try", "type", "typeof", "union", "unsafe", "unsized",
    "use", "virtual", "where", "while", "yield",
];

/// `booking_held`, `guestId` and `guest-id` as `BookingHeld` and `GuestId`.
pub(super) fn type_name(text: &str) -> String {
    let mut name = String::new();
    for word in words(text) {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    match name.as_str() {
        "" => "Empty".to_owned(),
        // Names that are already taken in every file.
        "Self" | "String" | "Vec" | "Option" | "Some" | "None" | "Ok" | "Err" => name + "_",
        _ if name.starts_with(|first: char| first.is_ascii_digit()) => format!("N{name}"),
        _ => name,
    }
}

pub(super) fn variant_name(text: &str) -> String {
    type_name(text)
}

/// `guestId` as `guest_id`; keywords as raw identifiers such as `r#type`.
pub(super) fn field_name(text: &str) -> String {
    let name = words(text).join("_");
    match name.as_str() {
        "" => "empty".to_owned(),
        "self" | "super" | "crate" => name + "_",
        _ if KEYWORDS.contains(&name.as_str()) => format!("r#{name}"),
        _ if name.starts_with(|first: char| first.is_ascii_digit()) => format!("n{name}"),
        _ => name,
    }
}

/// The same names, with a number appended to duplicates.
pub(super) fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut number = |name: String| {
        let mut free = name.clone();
        let mut n = 2;
        while !seen.insert(free.clone()) {
            free = format!("{name}{n}");
            n += 1;
        }
        free
    };
    names.map(&mut number).collect()
}

/// A doc comment; empty if there is no text.
pub(super) fn doc(out: &mut String, indent: &str, text: &str) {
    // Escape characters that Markdown would treat as links or tags.
    let text = text.replace('[', "\\[").replace('<', "\\<");
    for line in text.trim().lines() {
        out.push_str(format!("{indent}/// {}", line.trim()).trim_end());
        out.push('\n');
    }
}

/// The words of a name, in lower case: `guestID2` is `guest`, `id2`.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    for letter in text.chars() {
        let starts = letter.is_ascii_uppercase() && !before.is_ascii_uppercase();
        if (starts || !letter.is_ascii_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_ascii_alphanumeric() {
            word.push(letter.to_ascii_lowercase());
        }
        before = letter;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_those_of_rust() {
        for (given, of_type, of_field) in [
            ("booking_held", "BookingHeld", "booking_held"),
            ("guestId", "GuestId", "guest_id"),
            ("reservationID", "ReservationId", "reservation_id"),
            ("no-show.fee", "NoShowFee", "no_show_fee"),
            ("type", "Type", "r#type"),
            ("self", "Self_", "self_"),
            ("2fa", "N2fa", "n2fa"),
            ("…", "Empty", "empty"),
        ] {
            assert_eq!(
                (type_name(given).as_str(), field_name(given).as_str()),
                (of_type, of_field)
            );
        }
    }

    #[test]
    fn what_would_be_the_same_is_numbered() {
        let names = ["a", "a", "b", "a"].into_iter().map(str::to_owned);
        assert_eq!(distinct(names), ["a", "a2", "b", "a3"]);
    }

    #[test]
    fn a_description_breaks_no_comment() {
        let mut out = String::new();
        doc(&mut out, "    ", "One <b>\n\n[two]");
        assert_eq!(out, "    /// One \\<b>\n    ///\n    /// \\[two]\n");
    }
}
