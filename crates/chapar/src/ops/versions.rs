//! Versions of events: who still reads an old one, and retiring it.

use std::collections::BTreeMap;

use chapar_sql::{Store, StoreError, Tables, TopicReader};
use serde_json::{Value, json};

use super::{Operator, audit};

/// The versions of events that consumers of a store read, for operators.
#[derive(Debug, Clone)]
pub struct Versions {
    store: Store,
}

/// A service that no longer reads an old version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The old version.
    pub subject: String,
    /// What replaces it.
    pub replaced_by: String,
    /// The service.
    pub service: String,
}

impl Versions {
    /// The versions that a store knows of.
    pub fn of(store: &Store) -> Self {
        Versions { store: store.clone() }
    }

    /// The subscriptions that have read each of these topics.
    pub async fn readers(
        &self,
        topics: &[String],
    ) -> Result<BTreeMap<String, Vec<TopicReader>>, StoreError> {
        let mut tx = self.store.begin_engine().await?;
        let mut readers = BTreeMap::new();
        for topic in topics {
            readers.insert(topic.clone(), tx.consumers().topic_readers(topic).await?);
        }
        tx.rollback().await?;
        Ok(readers)
    }

    /// Records which services have left an old version, once each. Returns those that were new.
    pub async fn record_cutovers(
        &self,
        departures: Vec<Departure>,
        by: Operator<'_>,
    ) -> Result<Vec<Departure>, StoreError> {
        let mut tx = self.store.begin_engine().await?;
        let mut recorded = Vec::new();
        for departure in departures {
            let Departure { subject, replaced_by, service } = &departure;
            if tx.consumers().record_cutover(subject, service).await? {
                let detail = json!({ "service": service, "replacedBy": replaced_by });
                audit(&mut tx.conn(), by, "catalog.cutover", subject, &detail).await?;
                recorded.push(departure);
            }
        }
        tx.commit().await?;
        Ok(recorded)
    }

    /// Retires a version: its readers are forgotten, and `detail` is in the audit log.
    pub async fn retire(
        &self,
        subject: &str,
        detail: &Value,
        by: Operator<'_>,
    ) -> Result<(), StoreError> {
        let mut tx = self.store.begin_engine().await?;
        audit(&mut tx.conn(), by, "catalog.retire", subject, detail).await?;
        tx.consumers().forget_readers(subject).await?;
        tx.commit().await
    }

    /// Records that incompatible contracts of a system were accepted against the gate.
    pub async fn record_bypass(
        &self,
        system: &str,
        detail: &Value,
        by: Operator<'_>,
    ) -> Result<(), StoreError> {
        let mut tx = self.store.begin_engine().await?;
        audit(&mut tx.conn(), by, "schema.check.bypass", system, detail).await?;
        tx.commit().await
    }
}
