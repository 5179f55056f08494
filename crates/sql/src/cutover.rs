//! Who reads a topic, and who has left it for the version after.

use jiff::Timestamp;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::value::Value;

/// A subscription that was attached to a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicReader {
    /// The subscription: the name of the consumer.
    pub subscription: String,
    /// The service whose consumer it is.
    pub service: String,
    /// When it was attached for the first time.
    pub first_seen: Timestamp,
    /// When it was attached last.
    pub last_seen: Timestamp,
}

impl Conn<'_> {
    /// Notes that a subscription is attached to its topics, now.
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
        // Sorted, so that processes of one subscription wait in the same order.
        let mut topics: Vec<&String> = topics.iter().collect();
        topics.sort();
        for topic in topics {
            self.run(&NOTE, vec![topic.into(), subscription.into(), service.into()]).await?;
        }
        Ok(())
    }

    /// Every subscription that was ever attached to a topic, by name.
    pub async fn topic_readers(&mut self, topic: &str) -> Result<Vec<TopicReader>, StoreError> {
        static READERS: Statement = Statement::new(
            "select subscription, service, first_seen, last_seen from chapar.topic_readers \
             where topic = $1 order by subscription",
        );
        let rows = self.query(&READERS, vec![topic.into()]).await?;
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

    /// Forgets a topic's readers, once it is retired.
    pub async fn forget_readers(&mut self, topic: &str) -> Result<(), StoreError> {
        static FORGET: Statement =
            Statement::new("delete from chapar.topic_readers where topic = $1");
        self.run(&FORGET, vec![topic.into()]).await?;
        Ok(())
    }

    /// Records that a service has left a topic for the version after; false where that was known.
    pub async fn record_cutover(&mut self, topic: &str, service: &str) -> Result<bool, StoreError> {
        static RECORD: Statement = Statement::new(
            "insert into chapar.cutovers (topic, service, recorded_at) \
             values ($1, $2, clock_timestamp()) on conflict do nothing",
        );
        let args: Vec<Value> = vec![topic.into(), service.into()];
        Ok(self.run(&RECORD, args).await? > 0)
    }
}
