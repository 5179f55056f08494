//! Where something stands in a file, and what is wrong there.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// A file's name and text.
///
/// A catalog is read from these and not from a disk, so that a test, an editor and a loader
/// use the same door.
#[derive(Debug, Clone)]
pub struct Source {
    file: Arc<str>,
    text: Arc<str>,
    /// Where each line starts, so that a place costs a search and not a scan.
    lines: Arc<[usize]>,
}

/// A line and a column of a file, both counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// The file, as it was named to the reader.
    #[serde(serialize_with = "as_text")]
    pub file: Arc<str>,
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// One thing that is wrong with a catalog.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mistake {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// Which rule it breaks.
    pub rule: Rule,
    /// What is wrong, and what to do.
    pub message: String,
}

/// The longest message, in characters.
const MAX_MESSAGE: usize = 400;

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $name:literal,)*) => {
        /// The rules of a catalog. Their names never change their meaning.
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
    /// Not TOML, not JSON, not Protobuf: half-written files end here.
    Syntax = "syntax",
    /// A file or a value larger than its limit.
    TooLarge = "too-large",
    /// A field that must be there and is not.
    MissingField = "missing-field",
    /// A field that nobody reads, usually a typing mistake.
    UnknownField = "unknown-field",
    /// A value of another kind, or none of the allowed ones.
    WrongValue = "wrong-value",
    /// A service that the system does not have.
    UnknownService = "unknown-service",
    /// A file that holds another service than its name says, or two files for one service.
    MisplacedService = "misplaced-service",
    /// A subject that the grammar refuses and no exception names.
    Subject = "subject",
    /// The same subject twice.
    DuplicateSubject = "duplicate-subject",
    /// A subject whose service is not the one that publishes it.
    Owner = "owner",
    /// A retention class that the system does not have, or not the one of its rules.
    Retention = "retention",
    /// A region that the system does not have.
    Residency = "residency",
    /// The same consumer twice, or a service that consumes its own event.
    Consumer = "consumer",
    /// A consumer's contract about a topic that the catalog lacks.
    Unregistered = "unregistered",
    /// A consumer accepts a version that no one publishes, or not the one it is listed for.
    AcceptedVersion = "accepted-version",
    /// An integration event that nobody consumes.
    NoConsumers = "no-consumers",
    /// A cross-tenant topic outside the register, or a reader that is not in it.
    CrossTenant = "cross-tenant",
    /// An AI event that does not promise provenance.
    Provenance = "provenance",
    /// An event of no tenant that the system's list for the platform lacks.
    Untenanted = "untenanted",
    /// A window of two versions without an older one, too short, or without a way between them.
    DualPublish = "dual-publish",
    /// A deprecated event without a date or a replacement that exists.
    Deprecation = "deprecation",
    /// An event that speaks another encoding than its system.
    Encoding = "encoding",
    /// An event without its schema or Protobuf message, or the other way round.
    MissingSchema = "missing-schema",
    /// A schema file that no event of the catalog names.
    OrphanSchema = "orphan-schema",
    /// A schema that is not valid JSON Schema 2020-12.
    Schema = "schema",
    /// A constraint of a Protobuf field that nobody would enforce.
    Constraint = "unsupported-constraint",
    /// A schema whose `$id` is not the address it is known by.
    SchemaId = "schema-id",
    /// A schema that lets an empty object through.
    AcceptsEmpty = "accepts-empty",
    /// A reference to another document.
    RemoteRef = "remote-ref",
    /// References that lead back to where they came from.
    RefCycle = "ref-cycle",
    /// No example, or one that its own schema refuses.
    Example = "example",
    /// An ordering key that the payload need not have.
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

    /// The place of a byte; past the end it is the end.
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
        // A message may quote what it complains about, and that may be a whole file.
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
