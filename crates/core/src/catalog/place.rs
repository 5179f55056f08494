//! Positions in files, and mistakes with their position.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// A file's name and text.
///
/// A catalog is read from these and not from a disk, so that a test, an editor and a loader use the
/// same function.
#[derive(Debug, Clone)]
pub struct Source {
    file: Arc<str>,
    text: Arc<str>,
    /// Where each line starts, so that finding a position is a binary search.
    lines: Arc<[usize]>,
}

/// A line and a column of a file, both counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// The file, as named by the caller.
    #[serde(serialize_with = "as_text")]
    pub file: Arc<str>,
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// One mistake in a catalog.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mistake {
    /// The position.
    #[serde(flatten)]
    pub place: Place,
    /// The rule it breaks.
    pub rule: Rule,
    /// What is wrong, and what to do.
    pub message: String,
}

/// The longest message, in characters.
const MAX_MESSAGE: usize = 400;

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $name:literal,)*) => {
        /// The rules of a catalog. A name never changes its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rule { $($(#[$doc])* $rule,)* }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Rule] = &[$(Rule::$rule,)*];

            /// The stable name, such as `duplicate-subject`.
            pub fn as_str(self) -> &'static str {
                match self { $(Rule::$rule => $name,)* }
            }
        }
    };
}

rules! {
    /// A file that cannot be read at all, or is not UTF-8.
    Unreadable = "unreadable",
    /// A syntax error in TOML, JSON or Protobuf.
    Syntax = "syntax",
    /// A file or a value larger than its limit.
    TooLarge = "too-large",
    /// A mandatory field is missing.
    MissingField = "missing-field",
    /// An unknown field, usually a typo.
    UnknownField = "unknown-field",
    /// A value of the wrong type, or not one of the allowed ones.
    WrongValue = "wrong-value",
    /// A service that the system does not have.
    UnknownService = "unknown-service",
    /// A file whose name does not match its service, or two files for one service.
    MisplacedService = "misplaced-service",
    /// A subject that breaks the grammar and is not listed as an exception.
    Subject = "subject",
    /// The same subject twice.
    DuplicateSubject = "duplicate-subject",
    /// A subject of another service.
    Owner = "owner",
    /// An unknown retention class, or not the one that the rules give the subject.
    Retention = "retention",
    /// An unknown region.
    Residency = "residency",
    /// The same consumer twice, or a service that consumes its own event.
    Consumer = "consumer",
    /// A consumer's contract about a topic that the catalog lacks.
    Unregistered = "unregistered",
    /// A consumer accepts a version that is not published, or not the one it is listed for.
    AcceptedVersion = "accepted-version",
    /// An integration event without a consumer.
    NoConsumers = "no-consumers",
    /// A cross-tenant topic outside the register, or a reader that is not in it.
    CrossTenant = "cross-tenant",
    /// An AI event that does not declare provenance.
    Provenance = "provenance",
    /// An event without a tenant that is not in the list of platform subjects.
    Untenanted = "untenanted",
    /// A dual publication without an older version, too short, or without a conversion.
    DualPublish = "dual-publish",
    /// A deprecated event without a date or an existing replacement.
    Deprecation = "deprecation",
    /// An event in another encoding than its system.
    Encoding = "encoding",
    /// An event without its schema or Protobuf message, or the reverse.
    MissingSchema = "missing-schema",
    /// A schema file that no event refers to.
    OrphanSchema = "orphan-schema",
    /// A schema that is not valid JSON Schema 2020-12.
    Schema = "schema",
    /// A constraint of a Protobuf field that is not supported, so it would not be enforced.
    Constraint = "unsupported-constraint",
    /// A schema whose `$id` is not its address.
    SchemaId = "schema-id",
    /// A schema that accepts an empty object.
    AcceptsEmpty = "accepts-empty",
    /// A reference to another document.
    RemoteRef = "remote-ref",
    /// Cyclic references.
    RefCycle = "ref-cycle",
    /// No example, or one that its own schema refuses.
    Example = "example",
    /// An ordering key that the schema does not require.
    OrderingKey = "ordering-key",
}

impl Source {
    /// Text under a file's name.
    pub fn new(file: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let breaks = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(breaks).collect();
        Source { file: file.into(), text, lines }
    }

    /// The file's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The position of a byte offset; offsets past the end mean the end.
    pub fn place(&self, byte: usize) -> Place {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        let line = self.lines.partition_point(|start| *start <= byte);
        let start = self.lines[line - 1];
        let column = self.text[start..byte].chars().count() + 1;
        Place { file: Arc::clone(&self.file), line, column }
    }

    /// A mistake at the beginning of a span.
    pub fn mistake(&self, span: Range<usize>, rule: Rule, message: impl Into<String>) -> Mistake {
        self.place(span.start).mistake(rule, message)
    }
}

impl Place {
    /// The beginning of a file.
    pub fn start(file: impl Into<Arc<str>>) -> Self {
        Place { file: file.into(), line: 1, column: 1 }
    }

    /// A mistake here.
    pub fn mistake(&self, rule: Rule, message: impl Into<String>) -> Mistake {
        let mut message = message.into();
        // A message may quote its input, which may be a whole file.
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
            message.truncate(end);
            message.push('…');
        }
        Mistake { place: self.clone(), rule, message }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.place, self.message, self.rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

fn as_text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}
