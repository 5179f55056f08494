//! The Protobuf messages of systems that speak them.

use std::path::{Path, PathBuf};

use chapar_core::catalog::{Catalog, Encoding, Mistake, Place, Rule};
use chapar_core::constraint::Constraints;
use prost_reflect::{DescriptorPool, MessageDescriptor};
use protox::Compiler;

/// The compiled files under `proto`.
#[derive(Debug, Clone, Default)]
pub struct Protos {
    pool: Option<DescriptorPool>,
}

impl Protos {
    /// The message of a full name.
    pub fn message(&self, name: &str) -> Option<MessageDescriptor> {
        self.pool.as_ref()?.get_message_by_name(name)
    }

    /// Compiles every file, reporting errors per file.
    pub(crate) fn compile(folder: &Path, files: &[PathBuf], mistakes: &mut Vec<Mistake>) -> Self {
        if files.is_empty() {
            return Protos::default();
        }
        let mut compiler = match Compiler::new([folder]) {
            Ok(compiler) => compiler,
            Err(error) => {
                let place = Place::start(folder.display().to_string());
                mistakes.push(place.mistake(Rule::Unreadable, error.to_string()));
                return Protos::default();
            }
        };
        compiler.include_imports(true);
        for file in files {
            if let Err(error) = compiler.open_file(file) {
                mistakes.push(complaint(folder, file, &error));
            }
        }
        Protos { pool: Some(compiler.descriptor_pool()) }
    }

    /// Checks that every event's message exists and has its ordering key.
    pub(crate) fn check(&self, catalog: &Catalog, mistakes: &mut Vec<Mistake>) {
        for event in catalog.events() {
            let Encoding::Protobuf(name) = &event.encoding else { continue };
            let Some(message) = self.message(name) else {
                let message = format!("no file under proto declares the message {name}");
                mistakes.push(event.place.mistake(Rule::MissingSchema, message));
                continue;
            };
            // An unsupported constraint is a mistake: readers must be able to rely on every
            // constraint they see.
            if let Err(unsupported) = Constraints::of(&message) {
                mistakes.push(event.place.mistake(Rule::Constraint, unsupported.to_string()));
            }
            if let Some(key) = &event.key
                && message.get_field_by_name(key).is_none()
            {
                let message = format!("{name} has no field {key:?} for its ordering key");
                mistakes.push(event.place.mistake(Rule::OrderingKey, message));
            }
        }
    }
}

/// The compiler reports the position only in the debug form of its errors, as `file:line:column:`.
fn complaint(folder: &Path, file: &Path, error: &protox::Error) -> Mistake {
    let name = error.file().map_or_else(|| file.to_owned(), |name| folder.join(name));
    let mut place = Place::start(name.display().to_string());
    let text = format!("{error:?}");
    let mut parts = text.split(':').skip(1).map_while(|part| part.parse().ok());
    if let (Some(line), Some(column)) = (parts.next(), parts.next()) {
        (place.line, place.column) = (line, column);
    }
    place.mistake(Rule::Syntax, error.to_string())
}
