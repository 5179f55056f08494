//! Which messages and enums belong to the contract: those of the given files and those that their
//! fields use, without what is only reached through options.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{EnumDescriptor, ExtensionDescriptor, FileDescriptor, Kind, MessageDescriptor};

use super::Protos;
use super::compare::{enums_of, extensions_of, messages_of};

/// The compared parts of one side.
pub(super) struct Reach {
    /// The given files.
    pub(super) files: BTreeMap<String, FileDescriptor>,
    pub(super) messages: BTreeMap<String, MessageDescriptor>,
    pub(super) enums: BTreeMap<String, EnumDescriptor>,
    /// Full names of the messages and enums in the given files that only options use.
    pub(super) options: BTreeSet<String>,
}

impl Reach {
    pub(super) fn of(protos: &Protos) -> Reach {
        let given = |name: &String| Some((name.clone(), protos.pool.get_file_by_name(name)?));
        let files: BTreeMap<String, FileDescriptor> = protos.own.iter().filter_map(given).collect();
        let mut by_options = Types::default();
        for extension in protos.pool.all_extensions().filter(is_option) {
            by_options.kind(&extension.kind());
        }
        let mut used = Types::default();
        for file in files.values() {
            for message in messages_of(file) {
                if !by_options.has(message.full_name()) {
                    used.message(message);
                }
            }
            for one in enums_of(file).into_iter().filter(|one| !by_options.has(one.full_name())) {
                used.enumeration(one);
            }
            for extension in extensions_of(file).iter().filter(|one| !is_option(one)) {
                used.kind(&extension.kind());
            }
        }
        let names = by_options.messages.keys().chain(by_options.enums.keys());
        let options = names.filter(|name| !used.has(name)).cloned().collect();
        Reach { files, messages: used.messages, enums: used.enums, options }
    }

    /// Whether a file only declares options: its own rules concern no event.
    pub(super) fn declares_options(&self, file: &FileDescriptor) -> bool {
        let messages = messages_of(file);
        let mut names = messages.iter().map(MessageDescriptor::full_name);
        extensions_of(file).iter().any(is_option)
            && names.all(|name| self.options.contains(name))
            && enums_of(file).iter().all(|one| self.options.contains(one.full_name()))
    }
}

/// Whether an extension adds an option, which no event contains.
pub(super) fn is_option(extension: &ExtensionDescriptor) -> bool {
    let extended = extension.containing_message();
    let name = extended.full_name().strip_prefix("google.protobuf.");
    name.is_some_and(|name| name.ends_with("Options"))
}

/// Messages and enums, with everything that the fields of the messages use.
#[derive(Default)]
struct Types {
    messages: BTreeMap<String, MessageDescriptor>,
    enums: BTreeMap<String, EnumDescriptor>,
}

impl Types {
    fn has(&self, name: &str) -> bool {
        self.messages.contains_key(name) || self.enums.contains_key(name)
    }

    fn kind(&mut self, kind: &Kind) {
        match kind {
            Kind::Message(message) => self.message(message.clone()),
            Kind::Enum(one) => self.enumeration(one.clone()),
            _ => {}
        }
    }

    fn message(&mut self, message: MessageDescriptor) {
        let mut open = vec![message];
        while let Some(message) = open.pop() {
            let name = message.full_name().to_owned();
            // Google's own come with the compiler.
            if is_google(&message.parent_file()) || self.messages.contains_key(&name) {
                continue;
            }
            for field in message.fields() {
                match field.kind() {
                    Kind::Message(inner) => open.push(inner),
                    Kind::Enum(one) => self.enumeration(one),
                    _ => {}
                }
            }
            self.messages.insert(name, message);
        }
    }

    fn enumeration(&mut self, one: EnumDescriptor) {
        if !is_google(&one.parent_file()) {
            self.enums.insert(one.full_name().to_owned(), one);
        }
    }
}

fn is_google(file: &FileDescriptor) -> bool {
    file.name().starts_with("google/protobuf/")
}
