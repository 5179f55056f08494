//! What is checked in the text of a `.proto` file before it is parsed.

use crate::error::InputError;

/// Braces inside braces; the parser recurses.
const DEEPEST: usize = 100;

pub(super) fn check(file: &str, source: &str) -> Result<(), InputError> {
    let mut depth: usize = 0;
    let mut first = true;
    for (at, word) in Words(source, 0) {
        match word {
            "{" | "[" | "(" | "<" => depth += 1,
            "}" | "]" | ")" | ">" => depth = depth.saturating_sub(1),
            "edition" if first => {
                let reason = "editions are not supported; say syntax = \"proto3\" or \"proto2\", \
                              with the features of the edition as labels and options";
                return Err(InputError::syntax(file, place(source, at), reason));
            }
            _ => {}
        }
        if depth > DEEPEST {
            let reason = format!("braces are nested more than {DEEPEST} deep");
            return Err(InputError::syntax(file, place(source, at), reason));
        }
        first = false;
    }
    Ok(())
}

fn place(source: &str, at: usize) -> (usize, usize) {
    let before = &source[..at];
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    (before.matches('\n').count() + 1, column + 1)
}

/// Words and signs with their place, without comments, white space and the content of strings.
struct Words<'a>(&'a str, usize);

impl<'a> Iterator for Words<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = &self.0[self.1..];
            let first = rest.chars().next()?;
            let start = self.1;
            let length = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if let Some(comment) = rest.strip_prefix("/*") {
                comment.find("*/").map_or(rest.len(), |end| end + 4)
            } else if first.is_alphanumeric() || first == '_' {
                let part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
                rest.find(|c| !part(c)).unwrap_or(rest.len())
            } else if first == '"' || first == '\'' {
                string(rest, first)
            } else {
                first.len_utf8()
            };
            self.1 += length;
            let word = &rest[..length];
            if !first.is_whitespace() && !word.starts_with("//") && !word.starts_with("/*") {
                return Some((start, word));
            }
        }
    }
}

/// The length of a string literal, quotes included.
fn string(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            // A string ends with its line; the parser says what is wrong.
            c if c == quote || c == '\n' => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}
