//! What is wrong with an input, and where.

use thiserror::Error;

/// A schema that cannot be compared. The text names the file and, where there is one, the line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InputError {
    /// The text is not JSON, not Protobuf, or not text.
    #[error("{file}:{line}:{column}: {reason}")]
    Syntax {
        /// The file as it was named by the caller.
        file: String,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What is wrong there.
        reason: String,
    },
    /// The text can be read, but it is no schema that can be used.
    #[error("{file}: at {pointer}: {reason}")]
    Schema {
        /// The file as it was named by the caller.
        file: String,
        /// A JSON pointer into the schema; `#` is the whole of it.
        pointer: String,
        /// What is wrong there.
        reason: String,
    },
    /// One side is JSON Schema and the other Protobuf.
    #[error(
        "{old} and {new} are not in the same language: compare JSON Schema with JSON Schema, proto with proto"
    )]
    Mixed {
        /// The old file.
        old: String,
        /// The new file.
        new: String,
    },
}

impl InputError {
    pub(crate) fn syntax(
        file: &str,
        (line, column): (usize, usize),
        reason: impl Into<String>,
    ) -> InputError {
        InputError::Syntax { file: file.to_owned(), line, column, reason: reason.into() }
    }

    pub(crate) fn schema(file: &str, pointer: &str, reason: impl Into<String>) -> InputError {
        let pointer = if pointer.is_empty() { "#" } else { pointer };
        InputError::Schema {
            file: file.to_owned(),
            pointer: pointer.to_owned(),
            reason: reason.into(),
        }
    }

    /// The line, where the error has one.
    pub fn line(&self) -> Option<usize> {
        match self {
            InputError::Syntax { line, .. } => Some(*line),
            _ => None,
        }
    }
}
