//! Scanning the code that a system declares.

mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use chapar_core::Profile;
use chapar_core::catalog::{Catalog, Declared, NotPublisher, Place, Source, Vendor};
use chapar_core::profile::IdempotencyRule;

use self::text::{EVENT, Text, arguments, block};
use super::{Found, Policy};
use crate::load::{LoadError, MAX_DEPTH, files_with, shown, text};

/// The extensions of scanned files.
const ENDINGS: &[&str] = &[
    "rs", "go", "java", "kt", "kts", "scala", "ts", "tsx", "js", "mjs", "cjs", "py", "rb", "cs",
    "php", "ex", "exs", "sql",
];

/// The largest file, in bytes. A larger one is an offence.
const MAX_CODE: usize = 4 * 1024 * 1024;

/// Publishing calls, each followed by its arguments in parentheses.
const PUBLISHING: &[&str] = &["emit(", "append(", "append_batch(", "Draft::new("];

/// The declared code of a system.
///
/// A text scan: it finds literal subjects and cannot see computed ones, which are refused when
/// the program runs. It also finds a type of [`Event`](chapar_core::Event) among the arguments of
/// `emit`, `append` and `Draft::new`, an event without an `intent`, and the mark of a vendor.
/// Comments on lines of their own do not count.
pub(super) struct Code<'a> {
    files: Vec<File<'a>>,
    /// The subject of each event type, by type name. A name that two types share is ambiguous and
    /// omitted.
    types: BTreeMap<String, String>,
}

struct File<'a> {
    /// The services whose code it is; empty for shared code.
    services: Vec<&'a str>,
    path: PathBuf,
    source: Source,
    text: Text,
}

/// Scans all code; returns the number of files.
pub(super) fn check(
    folder: &Path,
    catalog: &Catalog,
    found: &mut Found,
) -> Result<usize, LoadError> {
    let code = Code::read(folder, catalog, found)?;
    for file in &code.files {
        code.topics(file, catalog, found);
        code.published(file, catalog, found);
        for vendor in &catalog.system.vendors {
            foreign(file, vendor, folder, found);
        }
    }
    for vendor in &catalog.system.vendors {
        let _ = found_paths(folder, &vendor.adapter, found)?;
    }
    Ok(code.files.len())
}

impl<'a> Code<'a> {
    fn read(folder: &Path, catalog: &'a Catalog, found: &mut Found) -> Result<Self, LoadError> {
        let mut owners: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
        if let Some(declared) = &catalog.system.code {
            for path in found_paths(folder, declared, found)? {
                owners.entry(path).or_default();
            }
        }
        for service in &catalog.services {
            for path in found_paths(folder, &service.code, found)? {
                owners.entry(path).or_default().push(&service.name);
            }
        }
        let mut files = Vec::new();
        for (path, services) in owners {
            match text(&path, MAX_CODE) {
                Ok(source) => {
                    let text = Text::of(source.text());
                    files.push(File { services, path, source, text });
                }
                Err(mistake) => found.add(Policy::Catalog, &mistake.place, mistake.message),
            }
        }
        let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for file in &files {
            for literal in file.text.literals() {
                if subject_like(&catalog.profile, literal.text)
                    && let Some(name) = file.text.type_of(literal.at)
                {
                    types.entry(name.to_owned()).or_default().insert(literal.text.to_owned());
                }
            }
        }
        types.retain(|_, subjects| subjects.len() == 1);
        let one = |(name, subjects): (String, BTreeSet<String>)| {
            Some((name, subjects.into_iter().next()?))
        };
        let types = types.into_iter().filter_map(one).collect();
        Ok(Code { files, types })
    }

    /// Every subject in quotes must be in the catalog.
    fn topics(&self, file: &File<'_>, catalog: &Catalog, found: &mut Found) {
        for literal in file.text.literals() {
            if subject_like(&catalog.profile, literal.text) && catalog.event(literal.text).is_none()
            {
                let message = format!(
                    "{} is not in the catalog of {}; declare it in the file of its owner",
                    literal.text, catalog.profile.name
                );
                found.add(Policy::Unregistered, &file.place(literal.at), message);
            }
        }
    }

    /// Published events must be the service's own, and have a key and a tenant.
    fn published(&self, file: &File<'_>, catalog: &Catalog, found: &mut Found) {
        let demands = catalog.profile.idempotency == IdempotencyRule::Required;
        for word in PUBLISHING {
            for at in file.text.words(word) {
                let arguments = arguments(file.text.clean(), at + word.len());
                let stretch = (at, arguments.len() + word.len());
                let subjects = self.subjects(file, stretch, &catalog.profile);
                for (at, subject) in &subjects {
                    self.owned(file, *at, subject, catalog, found);
                    let platform = &catalog.profile.platform_subjects;
                    if arguments.contains("Tenant::platform()")
                        && !platform.iter().any(|pattern| pattern.matches(subject))
                        && catalog.profile.fixed_tenant.is_none()
                    {
                        let message = format!(
                            "{subject} is published for the platform, and platform_subjects does \
                             not list it"
                        );
                        found.add(Policy::Untenanted, &file.place(*at), message);
                    }
                }
                if demands && !subjects.is_empty() {
                    file.keyed(word, at, arguments, found);
                }
            }
        }
        if demands && !file.is_generated() {
            file.derived(&catalog.profile, found);
            for at in file.text.words("Event for ") {
                let block = block(file.text.clean(), at);
                if block.contains("SUBJECT") && !block.contains("fn intent") {
                    let name = block["Event for ".len()..].split(['{', ' ']).next();
                    let message = format!(
                        "{} has no intent(): derive an idempotency key from the business intent",
                        name.unwrap_or_default()
                    );
                    found.add(Policy::IdempotencyKey, &file.place(at), message);
                }
            }
        }
    }

    /// The subjects among the arguments, in quotes or by type, with their positions.
    fn subjects<'s>(
        &'s self,
        file: &'s File<'_>,
        (at, length): (usize, usize),
        profile: &Profile,
    ) -> Vec<(usize, &'s str)> {
        let literals = file.text.literals().filter(|literal| literal.within(at, length));
        let mut subjects: Vec<(usize, &str)> = literals
            .filter(|literal| subject_like(profile, literal.text))
            .map(|literal| (literal.at, literal.text))
            .collect();
        for (name, subject) in &self.types {
            let places = file.text.names(name, at, length).into_iter();
            subjects.extend(places.map(|place| (place, subject.as_str())));
        }
        subjects
    }

    fn owned(
        &self,
        file: &File<'_>,
        at: usize,
        subject: &str,
        catalog: &Catalog,
        found: &mut Found,
    ) {
        let refused = |service: &&str| match catalog.may_publish(service, subject) {
            Err(refusal @ NotPublisher::Foreign { .. }) => Some(refusal.to_string()),
            _ => None,
        };
        // A file shared by several services passes if it is right for one of them.
        let refusals: Vec<String> = file.services.iter().filter_map(refused).collect();
        if refusals.len() == file.services.len()
            && let Some(refusal) = refusals.into_iter().next()
        {
            found.add(Policy::NotOwner, &file.place(at), refusal);
        }
    }
}

impl File<'_> {
    fn place(&self, at: usize) -> Place {
        self.source.place(at)
    }

    /// Whether `chapar catalog rust` generated it. If an event may happen more than once per key,
    /// only the emitting code knows the intent, and sets it there.
    fn is_generated(&self) -> bool {
        let mut lines = self.source.text().lines().take(2);
        lines.any(|line| line.starts_with("//! `chapar catalog rust`"))
    }

    /// A derived event must say its intent.
    fn derived(&self, profile: &Profile, found: &mut Found) {
        for at in self.text.words(EVENT) {
            let start = at + EVENT.len();
            let arguments = arguments(self.text.clean(), start);
            let mut literals = self.text.literals();
            let ours = literals.any(|literal| {
                literal.within(start, arguments.len()) && subject_like(profile, literal.text)
            });
            if ours && !arguments.contains("intent") {
                let message = format!(
                    "{} has no intent: add intent = \"…\" to its #[event], a key that is the same \
                     whenever the same is meant",
                    self.text.struct_after(at).unwrap_or("the event")
                );
                found.add(Policy::IdempotencyKey, &self.place(at), message);
            }
        }
    }

    /// A draft and `chapar.emit` must be given a key; typed events bring theirs.
    fn keyed(&self, word: &str, at: usize, arguments: &str, found: &mut Found) {
        let clean = self.text.clean();
        let sql = word == "emit(" && clean[..at].ends_with("chapar.");
        let given = match word {
            "Draft::new(" => statement(&clean[at..]).contains(".idempotency_key("),
            "emit(" if sql => arguments.contains("idempotency_key"),
            _ => true,
        };
        if !given {
            let message = "an event without an idempotency key: derive one from the business \
                           intent";
            found.add(Policy::IdempotencyKey, &self.place(at), message);
        }
    }
}

fn statement(text: &str) -> &str {
    text.split_once(';').map_or(text, |(statement, _)| statement)
}

/// Whether a text looks like a subject of the system, valid or not.
fn subject_like(profile: &Profile, text: &str) -> bool {
    let Some((name, version)) = text.rsplit_once(".v") else { return false };
    let versioned = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !versioned || !name.contains('.') || !name.chars().all(plain) {
        return false;
    }
    let ours = name.strip_prefix(profile.name.as_str()).is_some_and(|rest| rest.starts_with('.'));
    ours || profile.subject(text).is_ok()
}

/// The mark of a vendor outside its adapter.
fn foreign(file: &File<'_>, vendor: &Vendor, folder: &Path, found: &mut Found) {
    let mut adapter = vendor.adapter.names.iter().map(|path| plain(&folder.join(path)));
    let path = plain(&file.path);
    if adapter.any(|adapter| path.starts_with(adapter)) {
        return;
    }
    for mark in &vendor.marks {
        for at in file.text.words(mark) {
            let message = format!(
                "{mark:?} is {}'s, which only its adapter may name: {}",
                vendor.name,
                vendor.adapter.names.join(", ")
            );
            found.add(Policy::VendorCode, &file.place(at), message);
        }
    }
}

/// The files of a list of files and folders. A missing path is an offence: otherwise the check
/// would silently scan nothing.
fn found_paths(
    folder: &Path,
    declared: &Declared,
    found: &mut Found,
) -> Result<Vec<PathBuf>, LoadError> {
    let mut paths = Vec::new();
    for name in &declared.names {
        let path = folder.join(name);
        if Path::new(name).is_absolute() {
            let message = format!("{name:?} is absolute; name it as seen from the system's folder");
            found.add(Policy::Catalog, &declared.place, message);
        } else if path.is_dir() {
            paths.extend(files_with(&path, ENDINGS, MAX_DEPTH)?);
        } else if path.is_file() {
            paths.push(path);
        } else {
            let message = format!("there is no code at {}", shown(&path));
            found.add(Policy::Catalog, &declared.place, message);
        }
    }
    Ok(paths)
}

/// A normalised path, so that two spellings are equal.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}
