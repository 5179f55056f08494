//! Which store a command works on, and opening it.
//!
//! `--store` comes from `CHAPAR_STORE`, or else from `DATABASE_URL`, which other programs use too.
//! `chapar up` ignores the latter: it would write its hotel into the database of another program.

use std::sync::OnceLock;

use chapar::{Store, StoreError, StoreOptions};

/// The default of `--store`.
pub(crate) fn database_url() -> Option<&'static str> {
    static URL: OnceLock<Option<String>> = OnceLock::new();
    let url = URL.get_or_init(|| std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()));
    url.as_deref()
}

/// Whether `--store` or its variable must be given.
pub(crate) fn is_required() -> bool {
    database_url().is_none()
}

/// Opens a store that exists. An operator waits for the answer: a server that refuses connections
/// is reported at once.
pub(crate) async fn open(url: &str) -> Result<Store, StoreError> {
    Store::open(url, &StoreOptions { create: false, ..at_once() }).await
}

/// Opens a store, and creates its file if it is missing.
pub(crate) async fn open_or_create(url: &str) -> Result<Store, StoreError> {
    Store::open(url, &at_once()).await
}

/// The file of a SQLite store, if it does not exist.
pub(crate) fn missing_file(url: &str) -> Option<&str> {
    let file = url.strip_prefix("sqlite:").filter(|file| !file.contains(":memory:"))?;
    let file = file.trim_start_matches("//").split('?').next().unwrap_or(file);
    (!std::path::Path::new(file).exists()).then_some(file)
}

fn at_once() -> StoreOptions {
    StoreOptions { wait_for_server: false, ..StoreOptions::default() }
}
