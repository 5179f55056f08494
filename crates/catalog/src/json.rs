//! Positions of the values in a JSON text.

use std::collections::{HashMap, HashSet};

/// The byte offset of every value, by JSON pointer; and duplicate keys.
#[derive(Debug, Default)]
pub(crate) struct Spots {
    at: HashMap<String, usize>,
    /// Pointer and byte offset of each duplicate key.
    pub(crate) repeated: Vec<(String, usize)>,
}

impl Spots {
    /// Scans a text that is valid JSON. The parser that validated it has bounded its depth.
    pub(crate) fn of(text: &str) -> Self {
        let mut scan = Scan { text: text.as_bytes(), at: 0, spots: Spots::default() };
        scan.value(&mut String::new());
        scan.spots
    }

    /// The byte offset of a value, or of the nearest enclosing one.
    pub(crate) fn byte(&self, pointer: &str) -> usize {
        let mut pointer = pointer;
        loop {
            if let Some(at) = self.at.get(pointer) {
                return *at;
            }
            match pointer.rfind('/') {
                Some(end) => pointer = &pointer[..end],
                None => return 0,
            }
        }
    }
}

/// A key escaped for a pointer.
pub(crate) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    spots: Spots,
}

impl Scan<'_> {
    fn peek(&mut self) -> u8 {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied().unwrap_or_default()
    }

    fn value(&mut self, path: &mut String) {
        let first = self.peek();
        self.spots.at.insert(path.clone(), self.at);
        match first {
            b'{' => self.object(path),
            b'[' => self.array(path),
            b'"' => {
                self.string();
            }
            _ => {
                let end = |b: &u8| b",]}".contains(b) || b.is_ascii_whitespace();
                while self.text.get(self.at).is_some_and(|b| !end(b)) {
                    self.at += 1;
                }
            }
        }
    }

    fn object(&mut self, path: &mut String) {
        self.at += 1;
        let mut keys: HashSet<String> = HashSet::new();
        while self.peek() == b'"' {
            let start = self.at;
            let key = self.string();
            let length = path.len();
            path.push('/');
            path.push_str(&escape(&key));
            if !keys.insert(key) {
                self.spots.repeated.push((path.clone(), start));
            }
            self.skip(b':');
            self.value(path);
            path.truncate(length);
            self.skip(b',');
        }
        self.skip(b'}');
    }

    fn array(&mut self, path: &mut String) {
        self.at += 1;
        let mut index = 0;
        while !matches!(self.peek(), b']' | 0) {
            let length = path.len();
            path.push_str(&format!("/{index}"));
            self.value(path);
            path.truncate(length);
            self.skip(b',');
            index += 1;
        }
        self.skip(b']');
    }

    fn string(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'\\' => self.at += 2,
                b'"' => break,
                _ => self.at += 1,
            }
        }
        self.at = (self.at + 1).min(self.text.len());
        serde_json::from_slice(&self.text[start..self.at]).unwrap_or_default()
    }

    fn skip(&mut self, byte: u8) {
        if self.peek() == byte {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_place_and_a_missing_one_its_parents() {
        let text = r#"{ "a/b": [1, {"c\"": "x, ]"}], "d": {} , "d": null}"#;
        let spots = Spots::of(text);
        assert!(text[spots.byte("/a~1b/1/c\"")..].starts_with("\"x, ]\""));
        assert!(text[spots.byte("/a~1b/1/none/here")..].starts_with("{\"c"));
        assert_eq!(spots.repeated, [("/d".to_owned(), text.rfind("\"d\"").unwrap())]);
    }
}
