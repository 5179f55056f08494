//! Reading a system's contracts from a disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use chapar_core::Profile;
use chapar_core::catalog::{
    Catalog, ConsumerContract, Encoding, Mistake, Place, Rule, Source, System,
};
use serde_json::Value;

use crate::proto::Protos;
use crate::schema::{MAX_SCHEMA, Schema};

/// The largest catalog file, in bytes.
pub(crate) const MAX_FILE: usize = 1024 * 1024;

/// The maximum depth of schema folders.
pub(crate) const MAX_DEPTH: usize = 16;

/// The contracts of a system.
#[derive(Debug)]
pub struct Loaded {
    /// Its events.
    pub catalog: Catalog,
    /// The schemas that could be used, by subject.
    pub schemas: BTreeMap<String, Schema>,
    /// The envelope's own schema, where the system has one.
    pub envelope: Option<Schema>,
    /// The Protobuf messages.
    pub protos: Protos,
    /// The consumer contracts.
    pub consumers: Vec<ConsumerContract>,
    /// The examples of those contracts, by their path below `consumers`.
    pub(crate) examples: BTreeMap<String, Value>,
    /// All mistakes, by file and line.
    pub mistakes: Vec<Mistake>,
}

/// Why a system cannot be checked at all.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is no system.
    #[error("{0} holds no catalog: catalog.toml is missing")]
    NoCatalog(PathBuf),
    /// A file or folder cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Loaded {
    /// The schema's address with the hash of its content.
    pub fn schema_uri(&self, subject: &str) -> Option<String> {
        self.schemas.get(subject).map(Schema::uri)
    }
}

/// Loads the system in a folder, with every mistake in it.
///
/// Only what makes checking impossible is an error; anything wrong inside a file is a mistake, and
/// reading continues.
pub fn load(folder: &Path) -> Result<Loaded, LoadError> {
    let system_file = folder.join("catalog.toml");
    if !system_file.is_file() {
        return Err(LoadError::NoCatalog(folder.to_owned()));
    }
    let mut mistakes = Vec::new();
    let (system, profile) = match text(&system_file, MAX_FILE) {
        Ok(source) => {
            let (system, found) = System::read(&source);
            mistakes.extend(found);
            let profile = profile(folder, &system, &mut mistakes);
            (system, profile)
        }
        Err(mistake) => {
            mistakes.push(mistake);
            (System::default(), None)
        }
    };
    // Without a valid profile the most general rules apply, so that other mistakes are still found.
    let known = profile.is_some();
    let profile = profile.unwrap_or_default();

    let mut sources = Vec::new();
    for path in files(&folder.join("catalog"), "toml", 1)? {
        match text(&path, MAX_FILE) {
            Ok(source) => sources.push(source),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    let (catalog, found) = Catalog::read(system, profile, &sources);
    if known {
        mistakes.extend(found);
    }
    let mut loaded = Loaded {
        catalog,
        schemas: BTreeMap::new(),
        envelope: None,
        protos: Protos::default(),
        consumers: Vec::new(),
        examples: BTreeMap::new(),
        mistakes,
    };
    if known {
        loaded.read_schemas(folder)?;
        let protos = folder.join("proto");
        let found = files(&protos, "proto", MAX_DEPTH)?;
        loaded.protos = Protos::compile(&protos, &found, &mut loaded.mistakes);
        loaded.protos.check(&loaded.catalog, &mut loaded.mistakes);
        loaded.try_conversions();
        loaded.read_consumers(&folder.join("consumers"))?;
    }
    loaded.mistakes.sort();
    loaded.mistakes.dedup();
    Ok(loaded)
}

impl Loaded {
    fn read_schemas(&mut self, folder: &Path) -> Result<(), LoadError> {
        let root = folder.join("event-schemas");
        let mut orphans: BTreeSet<PathBuf> = files(&root, "json", MAX_DEPTH)?.into_iter().collect();
        for event in self.catalog.events() {
            // An event in the wrong encoding is already reported.
            if event.encoding != Encoding::Json || self.catalog.profile.speaks_protobuf() {
                continue;
            }
            let name = self.catalog.schema_path(event);
            let path = root.join(format!("{name}.json"));
            if !orphans.remove(&path) && !path.is_file() {
                let message = format!("{} has no schema; write {}", event.subject, shown(&path));
                self.mistakes.push(event.place.mistake(Rule::MissingSchema, message));
                continue;
            }
            let id = format!("schemas://{name}");
            let key = event.key.as_deref();
            let schema = read_schema(&path, &id, key, &mut self.mistakes);
            self.schemas.extend(schema.map(|schema| (event.subject.to_string(), schema)));
        }
        if let Some(name) = &self.catalog.system.envelope {
            let path = root.join(format!("{name}.json"));
            orphans.remove(&path);
            let id = format!("schemas://{name}");
            self.envelope = read_schema(&path, &id, None, &mut self.mistakes);
        }
        // A file that could not be read may be the one that refers to the schema.
        let broken = |mistake: &Mistake| matches!(mistake.rule, Rule::Syntax | Rule::Unreadable);
        if !self.mistakes.iter().any(|m| broken(m) && m.place.file.ends_with(".toml")) {
            for path in orphans {
                let message = "no event of the catalog has this schema";
                self.mistakes.push(Place::start(shown(&path)).mistake(Rule::OrphanSchema, message));
            }
        }
        Ok(())
    }
}

fn read_schema(
    path: &Path,
    id: &str,
    key: Option<&str>,
    mistakes: &mut Vec<Mistake>,
) -> Option<Schema> {
    match text(path, MAX_SCHEMA) {
        Ok(source) => {
            let (schema, found) = Schema::read(&source, id, key);
            mistakes.extend(found);
            schema
        }
        Err(mistake) => {
            mistakes.push(mistake);
            None
        }
    }
}

/// The file next to the catalog.
fn profile(folder: &Path, system: &System, mistakes: &mut Vec<Mistake>) -> Option<Profile> {
    let file = match text(&folder.join(&system.profile), MAX_FILE) {
        Ok(file) => file,
        Err(mistake) => {
            mistakes.push(mistake);
            return None;
        }
    };
    match Profile::from_toml(file.text()) {
        Ok(profile) => Some(profile),
        Err(error) => {
            mistakes.push(file.mistake(0..0, Rule::WrongValue, error.to_string()));
            None
        }
    }
}

/// Every file with this extension, sorted. Links to folders are not followed, as they may form
/// cycles; pipes and the like are skipped, as reading them may not end.
pub(crate) fn files(folder: &Path, ending: &str, depth: usize) -> Result<Vec<PathBuf>, LoadError> {
    files_with(folder, &[ending], depth)
}

/// Every file with one of these extensions, likewise.
pub(crate) fn files_with(
    folder: &Path,
    endings: &[&str],
    depth: usize,
) -> Result<Vec<PathBuf>, LoadError> {
    let mut found = Vec::new();
    let mut open = vec![(folder.to_owned(), depth)];
    while let Some((folder, depth)) = open.pop() {
        let read = |source| LoadError::Read { path: folder.clone(), source };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(read(error)),
        };
        for entry in entries {
            let entry = entry.map_err(read)?;
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            if entry.file_type().map_err(read)?.is_dir() {
                if depth > 1 {
                    open.push((path, depth - 1));
                }
            } else if path.extension().is_some_and(|found| endings.iter().any(|e| found == *e))
                && path.is_file()
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file of bounded size.
pub(crate) fn text(path: &Path, most: usize) -> Result<Source, Mistake> {
    let name = shown(path);
    let start = Place::start(name.as_str());
    let mut bytes = Vec::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Err(start.mistake(Rule::Unreadable, error.to_string()));
    }
    if bytes.len() > most {
        let message = format!("the file is larger than {} KiB", most / 1024);
        return Err(start.mistake(Rule::TooLarge, message));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        let message = "the file starts with a byte-order mark; save it as plain UTF-8";
        return Err(start.mistake(Rule::Unreadable, message));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, text)),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let good = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
            let source = Source::new(name, good);
            Err(source.mistake(valid..valid, Rule::Unreadable, "the file is not UTF-8 here"))
        }
    }
}

/// A path with forward slashes, as used in annotations.
pub(crate) fn shown(path: &Path) -> String {
    let path = path.strip_prefix(".").unwrap_or(path);
    path.display().to_string().replace('\\', "/")
}
