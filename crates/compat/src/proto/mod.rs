//! Protobuf: the breaking rules of `buf`, by their names, over descriptors.
//!
//! Protobuf readers ignore what they do not know and have no ranges or patterns, so what breaks is a list of rules
//! and not an inclusion. `FILE` protects generated code, `WIRE_JSON` both encodings, `WIRE` only the binary one.

mod compare;
mod constraint;
mod field;
mod reach;
mod rules;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::DescriptorPool;
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

pub use self::constraint::{TIGHTENED, WIDENED};
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
        Protos::parse_with(files, |_| None)
    }

    /// Compiles sources whose further imports come from `import`, by their name in the import
    /// statement. Of the imported files only what the fields of the given ones use is compared.
    pub fn parse_with(
        files: &[(&str, &[u8])],
        import: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Result<Protos, InputError> {
        let mut sources = BTreeMap::new();
        for (name, bytes) in files {
            let source = text(name, bytes)?;
            source::check(name, source)?;
            File::from_source(name, source).map_err(|error| located(name, source, &error))?;
            sources.insert((*name).to_owned(), source.to_owned());
        }
        let own: Vec<String> = sources.keys().cloned().collect();
        let mut resolver = ChainFileResolver::new();
        resolver.add(Sources(sources.clone()));
        resolver.add(Imports(import));
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
        let mut pool = DescriptorPool::new();
        for set in sets {
            // Decoded by the pool, which keeps options that are extensions: the constraints.
            pool.decode_file_descriptor_set(set.as_slice())
                .map_err(|error| broken(error.to_string()))?;
        }
        let names: BTreeSet<String> = pool.files().map(|file| file.name().to_owned()).collect();
        let own = names.into_iter().filter(|name| !name.starts_with("google/protobuf/")).collect();
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
    for (rule, pointer, reason) in compare::constraints(old, new) {
        let tighter = rule == TIGHTENED;
        let (severity, consequence) = if tighter {
            (Severity::Breaking, "events that were valid are refused")
        } else {
            (Severity::Note, "readers with the released constraint refuse what is valid now")
        };
        findings.push(Finding {
            rule: rule.to_owned(),
            severity,
            pointer,
            reason: format!("{reason}: {consequence}"),
            counterexample: None,
        });
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

/// Files from outside, held to the same limits.
struct Imports<F>(F);

impl<F: Fn(&str) -> Option<Vec<u8>> + Send + Sync> FileResolver for Imports<F> {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let bytes = (self.0)(name).ok_or_else(|| protox::Error::file_not_found(name))?;
        let source = text(name, &bytes).map_err(protox::Error::new)?;
        source::check(name, source).map_err(protox::Error::new)?;
        File::from_source(name, source)
    }
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
    let mut reason = error.to_string().replace('\n', " ");
    if error.is_file_not_found() {
        reason.push_str("; say with --proto-path which folder imports are relative to");
    }
    InputError::syntax(file, place.unwrap_or(last), reason)
}
