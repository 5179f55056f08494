//! Subjects: the names of event contracts, in four grammars.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The subject grammar of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grammar {
    /// `<system>.<service>.<aggregate>.<verb_past>.v<n>`
    Prefixed,
    /// `<service>.<aggregate>.<event>.v<n>[.<partition>]`
    Partitioned,
    /// `<service>.<event-name>.v<n>` in kebab case
    Kebab,
    /// `<domain>.<entity>.<action>`, whose version is always 1
    Plain,
    /// Two or more segments of lower-case letters, digits, `_` and `-`, which may end in `.v<n>`
    Free,
}

/// A checked subject.
///
/// ```
/// use chapar_core::{Grammar, Subject};
/// let subject = Subject::parse(Grammar::Prefixed, "melmastoon.payment.intent.captured.v1")?;
/// assert_eq!((subject.service(), subject.version()), ("payment", 1));
/// let wrong = Subject::parse(Grammar::Prefixed, "melmastoon.payment.Intent.captured.v1");
/// assert_eq!(wrong.unwrap_err().segment(), "Intent");
/// # Ok::<(), chapar_core::SubjectError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subject {
    text: Box<str>,
    type_len: usize,
    service: Range<usize>,
    partition: Option<Range<usize>>,
    version: u32,
}

/// What is wrong with a subject, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("subject {subject:?}: {fault} ({position})", position = self.position())]
pub struct SubjectError {
    /// The text as given, shortened.
    pub subject: String,
    /// The bytes of the offending segment.
    pub span: Range<usize>,
    /// The error.
    pub fault: Fault,
}

/// The errors in a segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Too few or too many segments.
    #[error("has {found} segments, but the grammar is `{grammar}`")]
    Segments {
        /// How many there are.
        found: usize,
        /// The expected form.
        grammar: &'static str,
    },
    /// The first segment is not the system's prefix.
    #[error("must start with `{0}`")]
    Prefix(Box<str>),
    /// The service is unknown in this system.
    #[error("is not a service of this system")]
    UnknownService,
    /// Not lower-case words joined by underscores.
    #[error("must be snake_case: lower-case words joined by `_`")]
    SnakeCase,
    /// Not lower-case words joined by dashes.
    #[error("must be kebab-case: lower-case words joined by `-`")]
    KebabCase,
    /// Not a fact that already happened.
    #[error("must be past tense: an event is a fact that already happened")]
    PastTense,
    /// Not `v` and a number from 1 without leading zeros.
    #[error("must be a version such as `v1`")]
    Version,
    /// Empty, or longer than a subject may be.
    #[error("must have 1 to {MAX_SUBJECT} bytes")]
    Length,
    /// A partition that is not a plain token.
    #[error("must be a partition of letters, digits, `_` or `-`")]
    Partition,
}

/// The longest subject, in bytes; close to the limits of Google Pub/Sub and Kafka.
pub const MAX_SUBJECT: usize = 249;

impl Subject {
    /// Parses a subject that keeps every rule of the grammar, of any system and service.
    pub fn parse(grammar: Grammar, text: &str) -> Result<Self, SubjectError> {
        Parser::new(text, grammar, Names { system: None, services: &|_| true })?.parse()
    }

    /// Like [`Subject::parse`], for the system of this name, which knows its services.
    pub fn parse_among(
        grammar: Grammar,
        system: &str,
        services: &dyn Fn(&str) -> bool,
        text: &str,
    ) -> Result<Self, SubjectError> {
        Parser::new(text, grammar, Names { system: Some(system), services })?.parse()
    }

    /// Accepts a subject outside the grammar, because a catalog lists it as an exception. Only
    /// length, characters and the version are checked. `prefix` is the first segment of a system's
    /// subjects where its grammar has one; the service is the segment after it.
    pub fn exception(prefix: Option<&str>, text: &str) -> Result<Self, SubjectError> {
        let names = Names { system: prefix, services: &|_| true };
        let parser = Parser::new(text, Grammar::Plain, names)?;
        for segment in &parser.segments {
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
            if segment.is_empty() || !text[segment.clone()].bytes().all(plain) {
                return Err(parser.fault(segment.clone(), Fault::SnakeCase));
            }
        }
        let service = match parser.segments.as_slice() {
            [first, second, _, ..] if Some(&text[first.clone()]) == prefix => second.clone(),
            [first, _, ..] => first.clone(),
            _ => return Err(parser.segments_fault("at least two segments")),
        };
        let last = parser.segments.last().expect("checked above").clone();
        match version_of(&text[last.clone()]) {
            Some(version) => Ok(Subject {
                text: text.into(),
                type_len: last.start - 1,
                service,
                partition: None,
                version,
            }),
            None => Ok(Subject {
                text: text.into(),
                type_len: text.len(),
                service,
                partition: None,
                version: 1,
            }),
        }
    }

    /// The whole subject.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The subject without version and partition: an envelope's event type.
    pub fn event_type(&self) -> &str {
        &self.text[..self.type_len]
    }

    /// What the event is about: its type without the last segment.
    pub fn aggregate_type(&self) -> &str {
        let event = self.event_type();
        event.rsplit_once('.').map_or(event, |(aggregate, _)| aggregate)
    }

    /// The token of the owning service.
    pub fn service(&self) -> &str {
        &self.text[self.service.clone()]
    }

    /// The version, 1 where the grammar has none.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The trailing partition, where there is one.
    pub fn partition(&self) -> Option<&str> {
        self.partition.clone().map(|range| &self.text[range])
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl SubjectError {
    /// The offending segment.
    pub fn segment(&self) -> &str {
        self.subject.get(self.span.clone()).unwrap_or_default()
    }

    /// The subject with a line under it that points at the offending segment.
    pub fn pointer(&self) -> String {
        let before = self.subject.get(..self.span.start).unwrap_or_default();
        let under = self.segment().chars().count().max(1);
        format!("{}\n{}{}", self.subject, " ".repeat(before.chars().count()), "^".repeat(under))
    }

    fn position(&self) -> String {
        match self.segment() {
            "" => format!("at byte {}", self.span.start),
            segment => format!("at byte {}: {segment:?}", self.span.start),
        }
    }
}

impl Grammar {
    /// The form of a subject, for error messages and documents.
    pub fn form(self) -> &'static str {
        match self {
            Grammar::Prefixed => "<system>.<service>.<aggregate>.<verb_past>.v<n>",
            Grammar::Partitioned => "<service>.<aggregate>.<event>.v<n>[.<partition>]",
            Grammar::Kebab => "<service>.<event-name>.v<n>",
            Grammar::Plain => "<domain>.<entity>.<action>",
            Grammar::Free => "<segment>.<segment>[.<segment>…][.v<n>]",
        }
    }

    /// The same as a regular expression, for a system of this name that knows these services; none
    /// allows any.
    pub(crate) fn pattern(self, system: &str, services: &[&str]) -> String {
        const VERSION: &str = "v[1-9][0-9]{0,9}";
        let words = |joint: char| format!("[a-z][a-z0-9]*(?:{joint}[a-z0-9]+)*");
        let service = |any: String| match services {
            [] => any,
            services => format!("(?:{})", services.join("|")),
        };
        // One of the words is a verb in the past tense.
        let past = |joint: char| {
            let verbs = IRREGULAR.join("|");
            format!(
                "(?=[a-z])(?:[a-z0-9]+{joint})*(?:[a-z0-9]{{2,}}ed|{verbs})(?:{joint}[a-z0-9]+)*"
            )
        };
        let (snake, kebab) = (words('_'), words('-'));
        match self {
            Grammar::Prefixed => {
                let (service, past) = (service(snake.clone()), past('_'));
                // A name that is not snake_case is the prefix of no subject.
                let system = if lower_words(system, '_') { system } else { "(?!)" };
                format!("{system}\\.{service}\\.{snake}\\.{past}\\.{VERSION}")
            }
            Grammar::Partitioned => {
                let (service, past) = (service(snake.clone()), past('_'));
                format!("{service}\\.{snake}\\.{past}\\.{VERSION}(?:\\.[A-Za-z0-9_-]+)?")
            }
            Grammar::Kebab => {
                format!("{}\\.{}\\.{VERSION}", service(kebab), past('-'))
            }
            Grammar::Plain => {
                format!("{}\\.{kebab}\\.{}", service(kebab.clone()), past('-'))
            }
            Grammar::Free => {
                let segment = "[a-z0-9_-]+";
                format!("{}(?:\\.{segment})+", service(segment.to_owned()))
            }
        }
    }
}

/// The names that a system uses in its subjects.
#[derive(Clone, Copy)]
struct Names<'a> {
    system: Option<&'a str>,
    services: &'a dyn Fn(&str) -> bool,
}

struct Parser<'a> {
    text: &'a str,
    grammar: Grammar,
    names: Names<'a>,
    segments: Vec<Range<usize>>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, grammar: Grammar, names: Names<'a>) -> Result<Self, SubjectError> {
        let mut parser = Parser { text, grammar, names, segments: Vec::with_capacity(5) };
        if text.is_empty() || text.len() > MAX_SUBJECT {
            return Err(parser.fault(0..text.len(), Fault::Length));
        }
        let mut start = 0;
        for part in text.split('.') {
            parser.segments.push(start..start + part.len());
            start += part.len() + 1;
        }
        Ok(parser)
    }

    fn parse(&self) -> Result<Subject, SubjectError> {
        let s = &self.segments;
        match (self.grammar, s.len()) {
            (Grammar::Prefixed, 5) => {
                self.words(0, snake, Fault::SnakeCase)?;
                if let Some(system) = self.names.system
                    && &self.text[s[0].clone()] != system
                {
                    return Err(self.fault(s[0].clone(), Fault::Prefix(system.into())));
                }
                self.service(1, snake, Fault::SnakeCase)?;
                self.words(2, snake, Fault::SnakeCase)?;
                self.past(3, snake, Fault::SnakeCase, '_')?;
                self.subject(1, 4, None)
            }
            (Grammar::Partitioned, 4 | 5) => {
                self.service(0, snake, Fault::SnakeCase)?;
                self.words(1, snake, Fault::SnakeCase)?;
                self.past(2, snake, Fault::SnakeCase, '_')?;
                let partition = s.get(4).cloned();
                if let Some(range) = &partition
                    && !token(&self.text[range.clone()])
                {
                    return Err(self.fault(range.clone(), Fault::Partition));
                }
                self.subject(0, 3, partition)
            }
            (Grammar::Kebab, 3) => {
                self.service(0, kebab, Fault::KebabCase)?;
                self.past(1, kebab, Fault::KebabCase, '-')?;
                self.subject(0, 2, None)
            }
            (Grammar::Plain, 3) => {
                self.service(0, kebab, Fault::KebabCase)?;
                self.words(1, kebab, Fault::KebabCase)?;
                self.past(2, kebab, Fault::KebabCase, '-')?;
                Ok(Subject {
                    text: self.text.into(),
                    type_len: self.text.len(),
                    service: s[0].clone(),
                    partition: None,
                    version: 1,
                })
            }
            // The whole of it is the event's type, so that a topic is spelled as the code spells it.
            (Grammar::Free, 2..) => {
                let subject = Subject::exception(None, self.text)?;
                if !(self.names.services)(subject.service()) {
                    return Err(self.fault(subject.service.clone(), Fault::UnknownService));
                }
                Ok(Subject { type_len: self.text.len(), ..subject })
            }
            _ => Err(self.segments_fault(self.grammar.form())),
        }
    }

    fn subject(
        &self,
        service: usize,
        version_at: usize,
        partition: Option<Range<usize>>,
    ) -> Result<Subject, SubjectError> {
        let span = self.segments[version_at].clone();
        let version = version_of(&self.text[span.clone()])
            .ok_or_else(|| self.fault(span.clone(), Fault::Version))?;
        Ok(Subject {
            text: self.text.into(),
            type_len: span.start - 1,
            service: self.segments[service].clone(),
            partition,
            version,
        })
    }

    fn service(&self, at: usize, spelling: Spelling, fault: Fault) -> Result<(), SubjectError> {
        let span = self.words(at, spelling, fault)?;
        let service = &self.text[span.clone()];
        if !(self.names.services)(service) {
            return Err(self.fault(span, Fault::UnknownService));
        }
        Ok(())
    }

    fn words(
        &self,
        at: usize,
        spelling: Spelling,
        fault: Fault,
    ) -> Result<Range<usize>, SubjectError> {
        let span = self.segments[at].clone();
        if spelling(&self.text[span.clone()]) { Ok(span) } else { Err(self.fault(span, fault)) }
    }

    fn past(
        &self,
        at: usize,
        spelling: Spelling,
        fault: Fault,
        joint: char,
    ) -> Result<(), SubjectError> {
        let span = self.words(at, spelling, fault)?;
        if self.text[span.clone()].split(joint).any(past_tense) {
            return Ok(());
        }
        Err(self.fault(span, Fault::PastTense))
    }

    fn segments_fault(&self, grammar: &'static str) -> SubjectError {
        let found = self.segments.len();
        self.fault(0..self.text.len(), Fault::Segments { found, grammar })
    }

    fn fault(&self, span: Range<usize>, fault: Fault) -> SubjectError {
        let mut end = self.text.len().min(MAX_SUBJECT + 1);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        SubjectError {
            subject: self.text[..end].to_owned(),
            span: span.start.min(end)..span.end.min(end),
            fault,
        }
    }
}

type Spelling = fn(&str) -> bool;

fn snake(text: &str) -> bool {
    lower_words(text, '_')
}

fn kebab(text: &str) -> bool {
    lower_words(text, '-')
}

fn lower_words(text: &str, joint: char) -> bool {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.split(joint).all(word)
}

fn token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

fn version_of(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('v')?;
    let plain = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

/// Sorted, for binary search.
const IRREGULAR: &[&str] = &[
    "begun",
    "bought",
    "bound",
    "broken",
    "brought",
    "built",
    "caught",
    "chosen",
    "cut",
    "done",
    "drawn",
    "fallen",
    "forgotten",
    "found",
    "frozen",
    "given",
    "gone",
    "grown",
    "held",
    "hidden",
    "kept",
    "known",
    "laid",
    "left",
    "lent",
    "lost",
    "made",
    "met",
    "paid",
    "put",
    "read",
    "run",
    "seen",
    "sent",
    "set",
    "shut",
    "sold",
    "spent",
    "split",
    "stolen",
    "taken",
    "thrown",
    "told",
    "unbound",
    "undone",
    "withdrawn",
    "won",
    "written",
];

fn past_tense(word: &str) -> bool {
    (word.len() > 3 && word.ends_with("ed")) || IRREGULAR.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_irregular_verbs_are_sorted() {
        assert!(super::IRREGULAR.is_sorted());
    }
}
