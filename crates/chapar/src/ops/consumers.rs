//! Consumers: how far they are, pausing and resuming them.

use std::collections::BTreeMap;

use chapar_sql::{Conn, ConsumerCard, Store, StoreError, Tables};
use jiff::Timestamp;
use serde_json::json;

use super::{Operator, audit};

/// The consumers that have run on a store, for operators.
#[derive(Debug, Clone)]
pub struct Consumers {
    store: Store,
}

/// One consumer with everything that is known about it.
#[derive(Debug, Clone)]
pub struct ConsumerView {
    /// Its name, its dead letters and whether it is paused.
    pub card: ConsumerCard,
    /// The topics that it reads.
    pub topics: Vec<String>,
    /// It never applies an event again.
    pub append_only: bool,
    /// The acknowledged offset of each partition; empty if a broker has the cursors.
    pub positions: BTreeMap<u32, i64>,
    /// How many events it is behind, where that is known.
    pub behind: Option<i64>,
    /// Since when its inbox remembers what it applied.
    pub remembers_since: Option<Timestamp>,
}

/// Why nothing is done to a consumer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// There is none.
    #[error("no consumer {0} has run on this store; `chapar consumers list` shows who has")]
    Unknown(String),
    /// It is paused.
    #[error("{0} is already paused")]
    Paused(String),
    /// It is not paused.
    #[error("{0} is not paused")]
    NotPaused(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Consumers {
    /// The consumers of a store.
    pub fn of(store: &Store) -> Self {
        Consumers { store: store.clone() }
    }

    /// All of them.
    pub async fn list(&self) -> Result<Vec<ConsumerCard>, StoreError> {
        let mut tx = self.store.begin_read().await?;
        let cards = tx.consumers().list().await?;
        tx.rollback().await?;
        Ok(cards)
    }

    /// One of them.
    pub async fn show(&self, consumer: &str) -> Result<ConsumerView, ConsumerError> {
        let mut tx = self.store.begin_read().await?;
        let mut conn = tx.conn();
        let card = card(&mut conn, consumer).await?;
        let topics = conn.consumers().topics_of(consumer).await?;
        let declared = conn.consumers().declared(consumer).await?;
        let append_only = declared.is_some_and(|declared| declared.append_only);
        let positions = conn.cursors().of(consumer).await?;
        let behind = match positions.is_empty() {
            true => None,
            false => Some(conn.cursors().lag(consumer).await?),
        };
        let remembers_since = conn.inbox().remembers_since(consumer).await?;
        tx.rollback().await?;
        Ok(ConsumerView { card, topics, append_only, positions, behind, remembers_since })
    }

    /// Every topic that a consumer of this store reads.
    pub async fn topics_read(&self) -> Result<Vec<String>, StoreError> {
        let mut tx = self.store.begin_read().await?;
        let topics = tx.consumers().topics_read().await?;
        tx.rollback().await?;
        Ok(topics)
    }

    /// Pauses a consumer in all its processes, which notice within a second.
    pub async fn pause(&self, consumer: &str, by: Operator<'_>) -> Result<(), ConsumerError> {
        let mut tx = self.store.begin_engine().await?;
        card(&mut tx.conn(), consumer).await?;
        if !tx.consumers().pause(consumer, by.reason).await? {
            return Err(ConsumerError::Paused(consumer.to_owned()));
        }
        audit(&mut tx.conn(), by, "consumer.pause", consumer, &json!({})).await?;
        Ok(tx.commit().await?)
    }

    /// Resumes a paused consumer.
    pub async fn resume(&self, consumer: &str, by: Operator<'_>) -> Result<(), ConsumerError> {
        let mut tx = self.store.begin_engine().await?;
        card(&mut tx.conn(), consumer).await?;
        if !tx.consumers().resume(consumer).await? {
            return Err(ConsumerError::NotPaused(consumer.to_owned()));
        }
        audit(&mut tx.conn(), by, "consumer.resume", consumer, &json!({})).await?;
        Ok(tx.commit().await?)
    }
}

async fn card(conn: &mut Conn<'_>, consumer: &str) -> Result<ConsumerCard, ConsumerError> {
    let cards = conn.consumers().list().await?;
    let card = cards.into_iter().find(|card| card.consumer == consumer);
    card.ok_or_else(|| ConsumerError::Unknown(consumer.to_owned()))
}
