//! Set-up files of brokers, for teams that do not use `chapar topology apply`.

mod kafka;
mod terraform;

use std::collections::BTreeMap;

pub use kafka::kafka;
pub use terraform::terraform;

/// File names and their content.
pub type Files = BTreeMap<String, String>;

/// Why there are no files.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A push service that reads nothing.
    #[error("{service} is listed for push, but reads nothing; the readers are {readers}")]
    ReadsNothing {
        /// The service.
        service: String,
        /// Those that read something.
        readers: String,
    },
    /// The catalog cannot be serialised.
    #[error("the catalog cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}
