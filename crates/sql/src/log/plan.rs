//! How the log differs from a catalog. Topics need no setup here; only subscriptions can differ.

use std::collections::BTreeMap;

use chapar_core::port::{Action, Difference, Topology, TransportError};

use super::{SqlTransport, unavailable};
use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::Tables;

impl SqlTransport {
    pub(super) async fn differences(
        &self,
        wanted: &Topology,
    ) -> Result<Vec<Difference>, TransportError> {
        let read = self.subscribed().await.map_err(unavailable)?;
        Ok(read.iter().filter_map(|(name, topics)| wanted.judge(name, topics)).collect())
    }

    async fn subscribed(&self) -> Result<BTreeMap<String, Vec<String>>, StoreError> {
        static ALL: Statement = Statement::new(
            "select subscription, topic from chapar.subscriptions order by subscription, topic",
        );
        let mut tx = self.store.begin_read().await?;
        let mut read: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in tx.conn().query(&ALL, vec![]).await? {
            read.entry(row.get(0)?).or_default().push(row.get(1)?);
        }
        Ok(read)
    }

    pub(super) async fn settle(&self, difference: &Difference) -> Result<(), TransportError> {
        let Action::Extra { .. } = difference.action else {
            let what = format!("the {} {}", difference.kind, difference.name);
            return Err(TransportError::Setup(format!("{what} cannot be changed here")));
        };
        match self.forget(&difference.name).await.map_err(unavailable)? {
            0 => Ok(()),
            living => Err(TransportError::Setup(format!(
                "{} is read by {living} processes; stop them first",
                difference.name
            ))),
        }
    }

    /// Deletes a subscription and its cursors, unless processes read it; returns how many do.
    async fn forget(&self, subscription: &str) -> Result<i64, StoreError> {
        static LIVING: Statement = Statement::new(
            "select count(*) from chapar.members where subscription = $1 \
             and expires_at > clock_timestamp()",
        );
        static MEMBERS: Statement =
            Statement::new("delete from chapar.members where subscription = $1");
        static CURSORS: Statement =
            Statement::new("delete from chapar.cursors where subscription = $1");
        static TOPICS: Statement =
            Statement::new("delete from chapar.subscriptions where subscription = $1");
        static DROPPED: Statement =
            Statement::new("delete from chapar.dropped_topics where subscription = $1");
        static STARTS: Statement =
            Statement::new("delete from chapar.topic_starts where subscription = $1");
        let mut tx = self.store.begin_engine().await?;
        let mut conn = tx.conn();
        let rows = conn.query(&LIVING, vec![subscription.into()]).await?;
        let living: i64 = rows.first().map(|row| row.get(0)).transpose()?.unwrap_or(0);
        if living == 0 {
            for delete in [&MEMBERS, &CURSORS, &TOPICS, &DROPPED, &STARTS] {
                conn.run(delete, vec![subscription.into()]).await?;
            }
        }
        tx.commit().await?;
        Ok(living)
    }
}
