//! The rules that `chapar.emit` checks.

use chapar_core::Profile;
use chapar_sql::{Store, StoreError, Tables};
use serde_json::json;

use super::{Operator, audit};
use crate::registry::Registry;

/// Writes the rules of a profile to the database, and the events of a catalog where one is given, so
/// that `chapar.emit` refuses inside the caller's transaction. An app does this when it starts.
/// The audit log gets an entry if anything changed. SQLite has no `chapar.emit`, and no rules.
pub async fn write_rules(
    store: &Store,
    profile: &Profile,
    registry: Option<&Registry>,
    by: Operator<'_>,
) -> Result<(), StoreError> {
    let catalog = registry.map(Registry::known);
    let mut tx = store.begin_engine().await?;
    if chapar_sql::write_rules(&mut tx, profile, catalog.as_deref()).await? {
        let detail = json!({ "events": catalog.map(|events| events.len()) });
        audit(&mut tx.conn(), by, "rules.write", &profile.name, &detail).await?;
    }
    tx.commit().await
}
