//! The audit log: who did what, when and why.

use chapar_sql::{AuditEntry, AuditFilter, AuditLine, Conn, Store, StoreError, Tables};

use super::Operator;

/// The newest entries of the audit log that a filter means.
pub async fn audit_lines(
    store: &Store,
    filter: &AuditFilter,
    limit: i64,
) -> Result<Vec<AuditLine>, StoreError> {
    let mut tx = store.begin_read().await?;
    let lines = tx.audit_log().lines(filter, limit).await?;
    tx.rollback().await?;
    Ok(lines)
}

/// Records an action, in the transaction of the action.
pub(super) async fn audit(
    conn: &mut Conn<'_>,
    by: Operator<'_>,
    action: &str,
    target: &str,
    detail: &serde_json::Value,
) -> Result<(), StoreError> {
    let detail = detail.to_string();
    let (actor, reason) = (by.name, by.reason);
    conn.audit_log().record(&AuditEntry { actor, action, target, reason, detail: &detail }).await
}
