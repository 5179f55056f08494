//! Decoding and encoding: files, pipes, header lines, descriptors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use chapar_core::dialect::{
    Binding, CloudEvents, DecodeError, Dialect as _, FlatJson, InlineProtobuf, MAX_MESSAGE,
    Message, MetadataJson,
};
use chapar_core::{Envelope, Headers, Profile};
use clap::{Args, ValueEnum};
use prost_reflect::DescriptorPool;
use protox::Compiler;
use protox::file::{ChainFileResolver, FileResolver, GoogleFileResolver};
use serde_json::value::RawValue;

use super::{DialectName, Trouble, name, note};
use crate::profiles::{self, Shipped};

/// The dialects that can be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Dialect {
    /// JSON whose less common fields are in `metadata`, such as the hotel's.
    MetadataJson,
    /// JSON with all its fields at the top level, such as the learning platform's.
    FlatJson,
    /// CloudEvents 1.0, everything in one JSON object.
    Cloudevents,
    /// CloudEvents 1.0, attributes in headers.
    CloudeventsBinary,
    /// Protobuf with the envelope inside the message, such as the bank's.
    InlineProtobuf,
}

/// The spelling of the headers of binary CloudEvents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BindingName {
    /// `ce-` headers, percent-encoded.
    Http,
    /// `ce_` headers in UTF-8.
    Kafka,
    /// `ce-` headers, percent-encoded.
    Nats,
    /// `ce-` attributes in UTF-8.
    Pubsub,
}

/// The source of an event, and what is needed to decode it.
#[derive(Args)]
pub(crate) struct Source {
    /// The file with the event; `-` reads stdin.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,

    /// The topic the event came on; required for inline-protobuf.
    #[arg(long)]
    pub(super) topic: Option<String>,

    /// The spelling of the headers of cloudevents-binary [default: http].
    #[arg(long, value_enum)]
    binding: Option<BindingName>,

    /// The system's profile: melmastoon, meridian, learning, invoicing, or a TOML file.
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,

    /// A folder with the .proto files of inline-protobuf messages [default: the bank's own].
    #[arg(long, value_name = "DIR")]
    proto_path: Option<PathBuf>,
}

/// An encoded event.
pub(super) struct Written {
    pub(super) bytes: Vec<u8>,
    /// Information that is not in the bytes.
    pub(super) topic: Option<String>,
}

impl Source {
    /// Reads at most one byte more than the maximum size of an event.
    pub(super) fn read(&self) -> Result<Bytes, Trouble> {
        let mut bytes = Vec::new();
        let limit = MAX_MESSAGE as u64 + 1;
        let read = if self.is_stdin() {
            if io::stdin().is_terminal() {
                note("reading an event from stdin; Ctrl-D ends it");
            }
            io::stdin().lock().take(limit).read_to_end(&mut bytes)
        } else {
            File::open(&self.file).and_then(|file| file.take(limit).read_to_end(&mut bytes))
        };
        let place = self.place();
        read.map_err(|error| {
            Trouble::Usage(format!("{place} cannot be read: {error}; give a file, or - for stdin"))
        })?;
        if bytes.is_empty() {
            return Err(Trouble::Event(format!("{place} is empty; one event is expected")));
        }
        if bytes.len() > MAX_MESSAGE {
            let reason = "has more than 16 MiB; an event is far smaller, and this reads one event";
            return Err(Trouble::Event(format!("{place} {reason}")));
        }
        Ok(bytes.into())
    }

    /// The requested dialect, or the detected one.
    pub(super) fn dialect(&self, asked: Option<Dialect>, input: &[u8]) -> Result<Dialect, Trouble> {
        asked.or_else(|| guess(input)).ok_or_else(|| {
            let known: Vec<String> = Dialect::value_variants().iter().map(|d| name(*d)).collect();
            Trouble::Usage(format!(
                "{} does not look like an event of any dialect; say which it is with --from, one of \
                 {} (inline-protobuf also needs --topic)",
                self.place(),
                known.join(", ")
            ))
        })
    }

    /// The requested profile, or that of a system that writes the dialect.
    pub(super) fn profile(&self, dialect: Dialect) -> Result<Profile, Trouble> {
        let profile = match &self.profile {
            Some(asked) => profiles::load(asked),
            None => system_of(dialect)?.profile(),
        };
        profile.map_err(|error| Trouble::Usage(format!("{error:#}")))
    }

    pub(super) fn decode(
        &self,
        dialect: Dialect,
        profile: &Profile,
        input: Bytes,
    ) -> Result<Envelope, Trouble> {
        let decoded = match dialect {
            Dialect::MetadataJson => MetadataJson.decode(&self.text(&input)?),
            Dialect::FlatJson => FlatJson.decode(&self.text(&input)?),
            Dialect::Cloudevents => {
                cloud_event(CloudEvents::Structured, profile, &self.text(&input)?)
            }
            Dialect::CloudeventsBinary => {
                let message = self.parse_headers(&input)?;
                cloud_event(CloudEvents::Binary(self.binding_of(&message)), profile, &message)
            }
            Dialect::InlineProtobuf => {
                let Some(topic) = self.topic.clone() else {
                    let reason = "an inline-protobuf message does not say its type; give the topic it came \
                                  on, such as --topic current-account.account-created.v1";
                    return Err(Trouble::Usage(reason.into()));
                };
                let message = Message { topic: Some(topic), ..Message::from_body(input.clone()) };
                self.protobuf(profile)?.decode(&message)
            }
        };
        decoded.map_err(|error| self.undecodable(dialect, profile, &input, &error))
    }

    /// The envelope with its payload as JSON, if there is a descriptor for it.
    pub(super) fn readable(
        &self,
        dialect: Dialect,
        profile: &Profile,
        envelope: &Envelope,
    ) -> Result<Envelope, Trouble> {
        if dialect != Dialect::InlineProtobuf {
            return Ok(envelope.clone());
        }
        let readable = self.protobuf(profile)?.payload_to_json(envelope);
        readable.map_err(|error| Trouble::Event(format!("{}: {error}", self.place())))
    }

    pub(super) fn encode(
        &self,
        dialect: Dialect,
        binding: Option<BindingName>,
        envelope: &Envelope,
    ) -> Result<Written, Trouble> {
        let binding = binding.or(self.binding).unwrap_or(BindingName::Http).into();
        let encoded = match dialect {
            Dialect::MetadataJson => MetadataJson.encode(envelope),
            Dialect::FlatJson => FlatJson.encode(envelope),
            Dialect::Cloudevents => CloudEvents::Structured.encode(envelope),
            Dialect::CloudeventsBinary => CloudEvents::Binary(binding).encode(envelope),
            Dialect::InlineProtobuf => self.protobuf(&self.protobuf_profile()?)?.encode(envelope),
        };
        let message = encoded.map_err(|error| {
            Trouble::Event(format!("the event cannot be written in {}: {error}", name(dialect)))
        })?;
        match dialect {
            Dialect::CloudeventsBinary => {
                Ok(Written { bytes: print_headers(&message)?, topic: None })
            }
            Dialect::InlineProtobuf => {
                Ok(Written { bytes: message.body.into(), topic: message.topic })
            }
            _ => {
                let mut bytes = Vec::from(message.body);
                bytes.push(b'\n');
                Ok(Written { bytes, topic: None })
            }
        }
    }

    /// The profile whose messages are written: the requested one if it has this dialect.
    fn protobuf_profile(&self) -> Result<Profile, Trouble> {
        let profile = self.profile(Dialect::InlineProtobuf)?;
        if profile.dialect == DialectName::InlineProtobuf {
            return Ok(profile);
        }
        let system = system_of(Dialect::InlineProtobuf)?;
        system.profile().map_err(|error| Trouble::Usage(format!("{error:#}")))
    }

    fn protobuf(&self, profile: &Profile) -> Result<InlineProtobuf, Trouble> {
        let usage = |error: String| Trouble::Usage(error);
        let pool = match &self.proto_path {
            Some(folder) => compile_folder(folder).map_err(usage)?,
            None => compile_shipped(system_of(Dialect::InlineProtobuf)?.protos).map_err(usage)?,
        };
        InlineProtobuf::new(pool, profile).map_err(|error| {
            usage(format!("{error}; --proto-path names a folder with other .proto files"))
        })
    }

    fn undecodable(
        &self,
        dialect: Dialect,
        profile: &Profile,
        input: &[u8],
        error: &DecodeError,
    ) -> Trouble {
        let mut reason = format!("{} is not a {} event: {error}", self.place(), name(dialect));
        match guess(input) {
            Some(other) if other != dialect => {
                reason += &format!("; it looks like {0}: try --from {0}", name(other));
            }
            _ => {}
        }
        let about_topic =
            matches!(error, DecodeError::UnknownType | DecodeError::UnknownMessage(_));
        if about_topic
            && let Some(topic) = &self.topic
            && let Err(error) = profile.subject(topic)
        {
            reason += &format!("\n--topic: {error}\n{}", error.pointer());
            return Trouble::Usage(reason);
        }
        Trouble::Event(reason)
    }

    /// The body of a text dialect.
    fn text(&self, input: &Bytes) -> Result<Message, Trouble> {
        if let Err(error) = std::str::from_utf8(input) {
            return Err(Trouble::Event(format!(
                "{} is not UTF-8 text: byte {} is wrong; if it is Protobuf, give --from inline-protobuf and \
                 --topic",
                self.place(),
                error.valid_up_to()
            )));
        }
        let body = input.strip_prefix(BYTE_ORDER_MARK).map(|rest| input.slice_ref(rest));
        let body = body.unwrap_or_else(|| input.clone());
        Ok(Message { topic: self.topic.clone(), ..Message::from_body(body) })
    }

    /// Header lines, an empty line, the body.
    fn parse_headers(&self, input: &Bytes) -> Result<Message, Trouble> {
        let mut headers = Headers::new();
        let mut rest: &[u8] = input.strip_prefix(BYTE_ORDER_MARK).unwrap_or(input);
        for number in 1.. {
            let (line, after) = split_line(rest);
            rest = after;
            if line.is_empty() {
                break;
            }
            let wrong = |reason: &str| {
                Trouble::Event(format!(
                    "line {number} of {} {reason}; headers are `Name: value`, then an empty line, \
                     then the body",
                    self.place()
                ))
            };
            let line = std::str::from_utf8(line).map_err(|_| wrong("is not UTF-8"))?;
            let (name, value) = line.split_once(':').ok_or_else(|| wrong("is no header"))?;
            if name.trim().is_empty() {
                return Err(wrong("has no name"));
            }
            let value = value.strip_prefix(' ').unwrap_or(value);
            headers.push(name.trim(), value);
        }
        Ok(Message { topic: self.topic.clone(), headers, body: input.slice_ref(rest) })
    }

    /// The requested binding; Kafka's is detected by its headers.
    fn binding_of(&self, message: &Message) -> Binding {
        match self.binding {
            Some(binding) => binding.into(),
            None if message.header("ce_specversion").is_some() => Binding::Kafka,
            None => Binding::Http,
        }
    }

    fn is_stdin(&self) -> bool {
        self.file == Path::new("-")
    }

    fn place(&self) -> String {
        if self.is_stdin() { "stdin".to_owned() } else { self.file.display().to_string() }
    }
}

impl From<BindingName> for Binding {
    fn from(name: BindingName) -> Self {
        match name {
            BindingName::Http => Binding::Http,
            BindingName::Kafka => Binding::Kafka,
            BindingName::Nats => Binding::Nats,
            BindingName::Pubsub => Binding::PubSub,
        }
    }
}

/// A shipped system that writes the dialect.
fn system_of(dialect: Dialect) -> Result<&'static Shipped, Trouble> {
    let written = match dialect {
        Dialect::MetadataJson => DialectName::MetadataJson,
        Dialect::FlatJson => DialectName::FlatJson,
        Dialect::Cloudevents | Dialect::CloudeventsBinary => DialectName::CloudEvents,
        Dialect::InlineProtobuf => DialectName::InlineProtobuf,
    };
    profiles::that_writes(written).ok_or_else(|| {
        Trouble::Usage(format!("no shipped system writes {}; give --profile", name(dialect)))
    })
}

fn cloud_event(
    form: CloudEvents,
    profile: &Profile,
    message: &Message,
) -> Result<Envelope, DecodeError> {
    if profile.lenient_reading { form.lenient().decode(message) } else { form.decode(message) }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The dialect detected from the bytes.
fn guess(input: &[u8]) -> Option<Dialect> {
    let input = input.strip_prefix(BYTE_ORDER_MARK).unwrap_or(input);
    if let Ok(fields) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(input) {
        let has = |field: &str| fields.contains_key(field);
        let object = |field: &str| fields.get(field).is_some_and(|raw| raw.get().starts_with('{'));
        return if has("specversion") {
            Some(Dialect::Cloudevents)
        } else if has("producedBy") || has("actorId") {
            Some(Dialect::MetadataJson)
        } else if object("source") || has("partitionKey") {
            Some(Dialect::FlatJson)
        } else {
            None
        };
    }
    let mut rest = input;
    loop {
        let (line, after) = split_line(rest);
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        if [&b"ce-specversion"[..], b"ce_specversion"].iter().any(|n| n.eq_ignore_ascii_case(name))
        {
            return Some(Dialect::CloudeventsBinary);
        }
        if line.is_empty() || name.len() == line.len() {
            return None;
        }
        rest = after;
    }
}

/// The first line without its line break, and the rest.
fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    let (line, rest) = match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &text[text.len()..]),
    };
    (line.strip_suffix(b"\r").unwrap_or(line), rest)
}

fn print_headers(message: &Message) -> Result<Vec<u8>, Trouble> {
    let mut bytes = Vec::new();
    for (name, value) in &message.headers {
        if value.contains(['\n', '\r']) {
            return Err(Trouble::Event(format!(
                "the header {name} holds a line break, which a header line cannot; use --to \
                 cloudevents, or a binding that escapes it: http or nats"
            )));
        }
        bytes.extend_from_slice(format!("{name}: {value}\n").as_bytes());
    }
    bytes.push(b'\n');
    bytes.extend_from_slice(&message.body);
    Ok(bytes)
}

/// The Protobuf files of a shipped system.
struct Embedded(&'static [(&'static str, &'static str)]);

impl FileResolver for Embedded {
    fn open_file(&self, name: &str) -> Result<protox::file::File, protox::Error> {
        match self.0.iter().find(|(known, _)| *known == name) {
            Some((name, source)) => protox::file::File::from_source(name, source),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

fn compile_shipped(
    protos: &'static [(&'static str, &'static str)],
) -> Result<DescriptorPool, String> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Embedded(protos));
    resolver.add(GoogleFileResolver::new());
    let files = protos.iter().map(|(name, _)| PathBuf::from(name));
    compile(Compiler::with_file_resolver(resolver), files)
}

fn compile_folder(folder: &Path) -> Result<DescriptorPool, String> {
    let mut files = Vec::new();
    find_protos(folder, &mut files)
        .map_err(|error| format!("--proto-path {}: {error}", folder.display()))?;
    if files.is_empty() {
        return Err(format!("--proto-path {}: there are no .proto files", folder.display()));
    }
    files.sort();
    let compiler = Compiler::new([folder]).map_err(|error| error.to_string())?;
    compile(compiler, files)
}

fn compile(
    mut compiler: Compiler,
    files: impl IntoIterator<Item = PathBuf>,
) -> Result<DescriptorPool, String> {
    compiler.include_imports(true);
    compiler.open_files(files).map_err(|error| match error.file() {
        Some(file) => format!("{file}: {error}"),
        None => error.to_string(),
    })?;
    DescriptorPool::from_file_descriptor_set(compiler.file_descriptor_set())
        .map_err(|error| error.to_string())
}

/// Every .proto file under a folder; links are not followed, as they may form cycles.
fn find_protos(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            find_protos(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path);
        }
    }
    Ok(())
}
