//! Set-up files of brokers, for those who manage them by other means than `chapar topology apply`.

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
    /// A service is to be pushed to that reads nothing.
    #[error("{service} is to be pushed to, but reads nothing; the readers are {readers}")]
    ReadsNothing {
        /// The service.
        service: String,
        /// Those that read something.
        readers: String,
    },
    /// What the catalog says does not fit into the files.
    #[error("the catalog cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}
