//! Source text, split into what the policies look for. No language is parsed.

/// Code without its comment lines, and its quoted texts.
pub(super) struct Text {
    /// Every byte at its original offset; comment lines are blank.
    clean: String,
    /// The ranges of quoted texts.
    quoted: Vec<(usize, usize)>,
}

/// A text in quotes.
#[derive(Clone, Copy)]
pub(super) struct Literal<'t> {
    /// Where it begins.
    pub(super) at: usize,
    pub(super) text: &'t str,
}

impl Literal<'_> {
    pub(super) fn within(&self, at: usize, length: usize) -> bool {
        (at..at + length).contains(&self.at)
    }
}

/// Prefixes of comment lines.
const COMMENTS: &[&str] = &["//", "#", "--", "* ", "/*"];

/// The longest quoted text that may be a subject.
const LONGEST: usize = 200;

impl Text {
    pub(super) fn of(source: &str) -> Self {
        let mut clean = String::with_capacity(source.len());
        for line in source.split_inclusive('\n') {
            let start = line.trim_start();
            // A Rust attribute begins like a Python comment.
            let comment = COMMENTS.iter().any(|mark| start.starts_with(mark));
            if comment && !start.starts_with("#[") {
                clean.extend(line.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
            } else {
                clean.push_str(line);
            }
        }
        let quoted = quoted(&clean);
        Text { clean, quoted }
    }

    pub(super) fn clean(&self) -> &str {
        &self.clean
    }

    /// Quoted texts without blanks.
    pub(super) fn literals(&self) -> impl Iterator<Item = Literal<'_>> {
        self.quoted.iter().map(|(at, end)| Literal { at: *at, text: &self.clean[*at..*end] })
    }

    /// The offsets of a word that is not the end of a longer one.
    pub(super) fn words<'t>(&'t self, word: &'t str) -> impl Iterator<Item = usize> + 't {
        let joined = move |at: usize| {
            let first = word.chars().next().is_some_and(in_name);
            first && self.clean[..at].chars().next_back().is_some_and(in_name)
        };
        self.clean.match_indices(word).map(|(at, _)| at).filter(move |at| !joined(*at))
    }

    /// The offsets of a whole name within a range.
    pub(super) fn names(&self, name: &str, at: usize, length: usize) -> Vec<usize> {
        let end = (at + length).min(self.clean.len());
        let stretch = self.clean.get(at..end).unwrap_or_default();
        let whole = |place: &usize| {
            let before = stretch[..*place].chars().next_back();
            let after = stretch[*place + name.len()..].chars().next();
            !before.is_some_and(in_name) && !after.is_some_and(in_name)
        };
        let places = stretch.match_indices(name).map(|(place, _)| place).filter(whole);
        places.map(|place| at + place).collect()
    }

    /// The type whose subject stands at this place: `#[event("…")]` before a struct, `Type = "…"`,
    /// or the `SUBJECT` inside of an `impl Event for Type`.
    pub(super) fn type_of(&self, at: usize) -> Option<&str> {
        let attribute = self.clean[..at].trim_end_matches('"').trim_end();
        if attribute.ends_with(EVENT) {
            return self.struct_after(at);
        }
        let line = &self.clean[self.clean[..at].rfind('\n').map_or(0, |end| end + 1)..at];
        let before = line.trim_end_matches(['"', '\'', '`']).trim_end().strip_suffix('=')?;
        let before = before.trim_end();
        let start = before.rfind(|c: char| !in_name(c)).map_or(0, |end| end + 1);
        let name = &before[start..];
        if is_type(name) {
            return Some(name);
        }
        if !line.contains("SUBJECT") {
            return None;
        }
        let head = self.clean[..at].rfind("Event for ")? + "Event for ".len();
        let name = &self.clean[head..at];
        let name = &name[..name.find(|c: char| !in_name(c))?];
        is_type(name).then_some(name)
    }
}

/// How the attribute of `derive(Event)` begins.
pub(super) const EVENT: &str = "#[event(";

impl Text {
    /// The name of the struct that comes next.
    pub(super) fn struct_after(&self, at: usize) -> Option<&str> {
        let rest = &self.clean[at..];
        let name = &rest[rest.find("struct ")? + "struct ".len()..];
        let name = &name[..name.find(|c: char| !in_name(c))?];
        is_type(name).then_some(name)
    }
}

/// How far a call or a block is followed, in bytes.
const FURTHEST: usize = 64 * 1024;

/// The text between an open parenthesis and its partner.
pub(super) fn arguments(text: &str, start: usize) -> &str {
    let mut depth = 1_usize;
    for (at, byte) in text.bytes().enumerate().skip(start).take(FURTHEST) {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[start..at];
        }
    }
    &text[start..text.floor_char_boundary(start + FURTHEST)]
}

/// From here to the end of the next block in braces.
pub(super) fn block(text: &str, start: usize) -> &str {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate().skip(start).take(FURTHEST) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return &text[start..at],
            b'}' => depth -= 1,
            _ => {}
        }
    }
    &text[start..text.floor_char_boundary(start + FURTHEST)]
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `BookingHeld`, not `TOPIC` and not `subject`.
fn is_type(name: &str) -> bool {
    name.chars().next().is_some_and(char::is_uppercase) && name.chars().any(char::is_lowercase)
}

/// The ranges of quoted texts. A quote that is not closed on its line, such as a lifetime or an
/// apostrophe, is skipped.
fn quoted(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        if !b"\"'`".contains(byte) {
            continue;
        }
        let start = at + 1;
        let rest = bytes[start..].iter().take(LONGEST);
        let end = rest
            .clone()
            .position(|other| !(other.is_ascii_alphanumeric() || b"._-".contains(other)));
        if let Some(length) = end.filter(|length| *length > 0)
            && bytes[start + length] == *byte
        {
            found.push((start, start + length));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_of_every_kind_are_found_and_comments_are_not() {
        let text =
            Text::of("fn a<'a>() { x('b.c', `d`, \"e\"); } // \"f\"\n// \"g\"\n#[h(\"i\")]\n");
        let found: Vec<&str> = text.literals().map(|literal| literal.text).collect();
        assert_eq!(found, ["b.c", "d", "e", "f", "i"]);
    }

    #[test]
    fn a_type_is_known_by_its_macro_line_and_by_its_impl() {
        let source = "Held = \"a.held.v1\" of\nimpl chapar::Event for Gone {\n    \
                      const SUBJECT: &'static str = \"a.gone.v1\";\nconst TOPIC: &str = \"a.b.v1\";";
        let text = Text::of(source);
        let types: Vec<Option<&str>> =
            text.literals().map(|literal| text.type_of(literal.at)).collect();
        assert_eq!(types, [Some("Held"), Some("Gone"), None]);
        let text = Text::of("#[event(\n    \"a.held.v1\", id = a)]\npub struct Held { a: u8 }");
        assert_eq!(text.literals().find_map(|literal| text.type_of(literal.at)), Some("Held"));
    }

    #[test]
    fn arguments_end_with_their_parenthesis() {
        let text = "emit(a(b), (c)).d()";
        assert_eq!(arguments(text, 5), "a(b), (c)");
        assert_eq!(arguments("emit(a(", 5), "a(");
        assert_eq!(block("for X { a { b } } c }", 0), "for X { a { b } ");
    }
}
