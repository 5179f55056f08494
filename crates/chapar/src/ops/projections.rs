//! Asking for read models to be built again.

use chapar_sql::{ProjectionCard, Store, StoreError, Tables};
use serde_json::json;

use super::{Operator, audit};

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
    if !tx.projections().ask_for_build(projection, kind.as_str(), actor, reason).await? {
        return Err(ProjectionError::Busy(projection.to_owned()));
    }
    let detail = json!({
        "kind": kind.as_str(), "documents": card.docs, "events": card.events,
    });
    let by = Operator { name: actor, reason };
    audit(&mut tx.conn(), by, "projection.build", projection, &detail).await?;
    tx.commit().await?;
    Ok(())
}

/// A read model as it stands.
pub async fn projection_card(
    store: &Store,
    projection: &str,
) -> Result<ProjectionCard, ProjectionError> {
    let cards = list_projections(store).await?;
    let card = cards.into_iter().find(|card| card.projection == projection);
    card.ok_or_else(|| ProjectionError::Unknown(projection.to_owned()))
}

/// The read models that are kept on a store.
pub async fn list_projections(store: &Store) -> Result<Vec<ProjectionCard>, StoreError> {
    let mut tx = store.begin_read().await?;
    let cards = tx.projections().list().await?;
    tx.rollback().await?;
    Ok(cards)
}

/// Withdraws a requested build that no process has begun. Returns whether there was one.
pub async fn withdraw_build(
    store: &Store,
    projection: &str,
    by: Operator<'_>,
) -> Result<bool, StoreError> {
    let mut tx = store.begin_engine().await?;
    let withdrawn = tx.projections().withdraw_build(projection).await?;
    if withdrawn {
        audit(&mut tx.conn(), by, "projection.withdraw", projection, &json!({})).await?;
    }
    tx.commit().await?;
    Ok(withdrawn)
}
