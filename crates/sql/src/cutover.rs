//! Which consumers read a topic, and which have cut over to the next version.

use jiff::Timestamp;

use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::Consumers;
use crate::value::Value;

/// A subscription that was active on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicReader {
    /// The subscription: the name of the consumer.
    pub subscription: String,
    /// The service of the consumer.
    pub service: String,
    /// When it was first active.
    pub first_seen: Timestamp,
    /// When it was last active.
    pub last_seen: Timestamp,
}

impl Consumers<'_> {
    /// Records that a subscription is active on its topics now.
    pub async fn note_reader(
        &mut self,
        subscription: &str,
        service: &str,
        topics: &[String],
    ) -> Result<(), StoreError> {
        static NOTE: Statement = Statement::new(
            "insert into chapar.topic_readers (topic, subscription, service, first_seen, last_seen) \
             values ($1, $2, $3, clock_timestamp(), clock_timestamp()) \
             on conflict (topic, subscription) do update set service = excluded.service, \
             last_seen = excluded.last_seen",
        );
        // Sorted, so that processes of one subscription lock rows in the same order.
        let mut topics: Vec<&String> = topics.iter().collect();
        topics.sort();
        for topic in topics {
            self.0.run(&NOTE, vec![topic.into(), subscription.into(), service.into()]).await?;
        }
        Ok(())
    }

    /// Every subscription that was ever active on a topic, by name.
    pub async fn topic_readers(&mut self, topic: &str) -> Result<Vec<TopicReader>, StoreError> {
        static READERS: Statement = Statement::new(
            "select subscription, service, first_seen, last_seen from chapar.topic_readers \
             where topic = $1 order by subscription",
        );
        let rows = self.0.query(&READERS, vec![topic.into()]).await?;
        let reader = |row: &crate::value::Row| {
            Ok(TopicReader {
                subscription: row.get(0)?,
                service: row.get(1)?,
                first_seen: row.get(2)?,
                last_seen: row.get(3)?,
            })
        };
        rows.iter().map(reader).collect()
    }

    /// Removes a topic's readers, once it is retired.
    pub async fn forget_readers(&mut self, topic: &str) -> Result<(), StoreError> {
        static FORGET: Statement =
            Statement::new("delete from chapar.topic_readers where topic = $1");
        self.0.run(&FORGET, vec![topic.into()]).await?;
        Ok(())
    }

    /// Records that a service has cut over from a topic to the next version; false if already
    /// recorded.
    pub async fn record_cutover(&mut self, topic: &str, service: &str) -> Result<bool, StoreError> {
        static RECORD: Statement = Statement::new(
            "insert into chapar.cutovers (topic, service, recorded_at) \
             values ($1, $2, clock_timestamp()) on conflict do nothing",
        );
        let args: Vec<Value> = vec![topic.into(), service.into()];
        Ok(self.0.run(&RECORD, args).await? > 0)
    }
}
