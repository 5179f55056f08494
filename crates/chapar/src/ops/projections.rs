//! Asking for read models to be built again.

use chapar_sql::{AuditEntry, ProjectionCard, Store, StoreError};

/// What to do with a read model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildKind {
    /// Build it again from the beginning, and serve that.
    Rebuild,
    /// Build it again from its last snapshot, and serve that.
    FromSnapshot,
    /// Build it again, compare, and serve what was served.
    GameDay,
}

impl BuildKind {
    fn as_str(self) -> &'static str {
        match self {
            BuildKind::Rebuild => "rebuild",
            BuildKind::FromSnapshot => "tail",
            BuildKind::GameDay => "game-day",
        }
    }
}

/// Why nothing is built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// There is none.
    #[error("no read model {0} is kept on this store; `chapar projections list` shows which are")]
    Unknown(String),
    /// Another request came first.
    #[error("CH3027: {0} is being built already; `chapar projections list` shows how far it is")]
    Busy(String),
    /// There is no snapshot.
    #[error("CH3023: {0} has no snapshot yet; build it from the beginning")]
    NoSnapshot(String),
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Asks the process that keeps a read model to build it again.
pub async fn ask_for_build(
    store: &Store,
    projection: &str,
    kind: BuildKind,
    actor: &str,
    reason: &str,
) -> Result<(), ProjectionError> {
    let card = projection_card(store, projection).await?;
    if kind == BuildKind::FromSnapshot && card.snapshot_at.is_none() {
        return Err(ProjectionError::NoSnapshot(projection.to_owned()));
    }
    let mut tx = store.begin_engine().await?;
    if !tx.conn().ask_for_build(projection, kind.as_str(), actor, reason).await? {
        return Err(ProjectionError::Busy(projection.to_owned()));
    }
    let detail = serde_json::json!({
        "kind": kind.as_str(), "documents": card.docs, "events": card.events,
    });
    let detail = detail.to_string();
    let action = "projection.build";
    let entry = AuditEntry { actor, action, target: projection, reason, detail: &detail };
    tx.conn().audit(&entry).await?;
    tx.commit().await?;
    Ok(())
}

/// A read model as it stands.
pub async fn projection_card(
    store: &Store,
    projection: &str,
) -> Result<ProjectionCard, ProjectionError> {
    let mut tx = store.begin_read().await?;
    let cards = tx.conn().projections().await?;
    tx.rollback().await?;
    let card = cards.into_iter().find(|card| card.projection == projection);
    card.ok_or_else(|| ProjectionError::Unknown(projection.to_owned()))
}
