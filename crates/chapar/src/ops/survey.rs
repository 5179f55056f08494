//! Counts over all tables: for the console, and for the census on a run.

use chapar_sql::{Census, DeadLetter, SagaCard, Store, StoreError, Subscribed, Survey, Tables};
use jiff::Timestamp;

/// What the console shows, read in one transaction.
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// How much lies where.
    pub counts: Survey,
    /// The newest open dead letters.
    pub letters: Vec<DeadLetter>,
    /// The sagas that moved last.
    pub sagas: Vec<SagaCard>,
}

/// Reads the overview, with at most so many letters and sagas.
pub async fn overview(store: &Store, letters: i64, sagas: i64) -> Result<Overview, StoreError> {
    let mut tx = store.begin_read().await?;
    let counts = tx.survey().counts().await?;
    let letters = tx.letters().open(letters).await?;
    let sagas = tx.sagas().recent(sagas).await?;
    tx.rollback().await?;
    Ok(Overview { counts, letters, sagas })
}

/// Whether anything was lost. Where a broker has the cursors, `broker` names its subscriptions.
pub async fn census(store: &Store, broker: Option<&[Subscribed]>) -> Result<Census, StoreError> {
    let mut tx = store.begin_read().await?;
    let census = match broker {
        None => tx.survey().census().await?,
        Some(subscriptions) => tx.survey().census_over_broker(subscriptions).await?,
    };
    tx.rollback().await?;
    Ok(census)
}

/// How much is still on its way; 0 once a run has settled.
pub async fn under_way(store: &Store, broker: Option<&[Subscribed]>) -> Result<i64, StoreError> {
    let now = Timestamp::now();
    let mut tx = store.begin_read().await?;
    let count = match broker {
        None => tx.survey().under_way(now).await?,
        Some(subscriptions) => tx.survey().under_way_over_broker(subscriptions, now).await?,
    };
    tx.rollback().await?;
    Ok(count)
}
