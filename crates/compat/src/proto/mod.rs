//! Protobuf: the breaking rules of `buf`, by their names, over descriptors.
//!
//! Protobuf readers ignore what they do not know and have no ranges or patterns, so what breaks is a list of rules
//! and not an inclusion. `FILE` protects generated code, `WIRE_JSON` both encodings, `WIRE` only the binary one.

mod compare;
mod field;
mod rules;

use std::collections::BTreeMap;

use prost_reflect::DescriptorPool;
use prost_reflect::prost::Message;
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

pub use self::rules::{LEFT_OUT, Rule};
use crate::error::InputError;
use crate::load::text;
use crate::report::{Finding, Report, Severity};

/// How much must stay as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Category {
    /// Generated code, file by file: the strictest, and the default.
    #[default]
    File,
    /// The binary encoding and JSON.
    WireJson,
    /// The binary encoding.
    Wire,
}

/// Compiled `.proto` files.
#[derive(Debug, Clone)]
pub struct Protos {
    /// The first file as it was named.
    file: String,
    pool: DescriptorPool,
    /// The files that were given, without what they import from Google's own.
    own: Vec<String>,
}

impl Protos {
    /// Compiles sources that import each other by name; `google/protobuf/*.proto` is there without being given.
    pub fn parse(files: &[(&str, &[u8])]) -> Result<Protos, InputError> {
        let mut sources = BTreeMap::new();
        for (name, bytes) in files {
            let source = text(name, bytes)?;
            if nesting(source) > 100 {
                return Err(InputError::syntax(
                    name,
                    (1, 1),
                    "braces are nested more than 100 deep",
                ));
            }
            File::from_source(name, source).map_err(|error| located(name, source, &error))?;
            sources.insert((*name).to_owned(), source.to_owned());
        }
        let own: Vec<String> = sources.keys().cloned().collect();
        let mut resolver = ChainFileResolver::new();
        resolver.add(Sources(sources.clone()));
        resolver.add(GoogleFileResolver::new());
        let mut compiler = Compiler::with_file_resolver(resolver);
        for name in &own {
            let source = sources.get(name).map_or("", String::as_str);
            compiler.open_file(name).map_err(|error| located(name, source, &error))?;
        }
        let file = files.first().map_or(String::new(), |(name, _)| (*name).to_owned());
        Ok(Protos { file, pool: compiler.descriptor_pool(), own })
    }
}

impl Protos {
    /// The files of several encoded `FileDescriptorSet`s, which may have files in common; what comes from
    /// `google/protobuf` does not count as given.
    pub fn described(name: &str, sets: &[Vec<u8>]) -> Result<Protos, InputError> {
        let broken = |reason: String| InputError::schema(name, "", reason);
        let mut files: BTreeMap<String, FileDescriptorProto> = BTreeMap::new();
        for set in sets {
            let set = FileDescriptorSet::decode(set.as_slice())
                .map_err(|error| broken(error.to_string()))?;
            files.extend(set.file.into_iter().map(|file| (file.name().to_owned(), file)));
        }
        let own =
            files.keys().filter(|name| !name.starts_with("google/protobuf/")).cloned().collect();
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_protos(files.into_values())
            .map_err(|error| broken(error.to_string()))?;
        Ok(Protos { file: name.to_owned(), pool, own })
    }
}

/// Compares two sets of files under one category.
pub fn diff(old: &Protos, new: &Protos, category: Category) -> Report {
    let mut findings: Vec<Finding> = Vec::new();
    for (rule, pointer, reason) in compare::all(old, new) {
        if rule.is_in(category) {
            let rule = rule.id().to_owned();
            findings.push(Finding {
                rule,
                severity: Severity::Breaking,
                pointer,
                reason,
                counterexample: None,
            });
        }
    }
    Report::of(findings, &old.file, 0)
}

struct Sources(BTreeMap<String, String>);

impl FileResolver for Sources {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.get(name) {
            Some(source) => File::from_source(name, source),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

/// The parser recurses, so the depth is bounded before it starts.
fn nesting(source: &str) -> usize {
    let mut depth: usize = 0;
    let mut deepest = 0;
    for byte in source.bytes() {
        match byte {
            b'{' | b'[' | b'(' | b'<' => depth += 1,
            b'}' | b']' | b')' | b'>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// protox writes `file:line:column` first where it knows it.
fn located(file: &str, source: &str, error: &protox::Error) -> InputError {
    let debug = format!("{error:?}");
    let place = debug.lines().find_map(|line| {
        let rest = line.split_once(&format!("{file}:"))?.1;
        let mut numbers = rest.split(|one: char| !one.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    });
    // Without a place the trouble is the end of the file more often than its start.
    let last = (source.lines().count().max(1), 1);
    InputError::syntax(file, place.unwrap_or(last), error.to_string().replace('\n', " "))
}
