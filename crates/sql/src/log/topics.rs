//! The topics of a subscription: what its processes read together.
//!
//! A process that joins adds its topics, and none takes those of another away: while a new version
//! is rolled out, old and new processes read one subscription. A topic is dropped when no living
//! process reads it. Where its partitions were then is recorded, so that nothing is missed if a
//! process reads it again, after a rollback or while the only one that reads it restarts.
//!
//! A topic that comes to a running subscription starts at the end of the log. Its earlier events lie
//! among events of other topics that have been applied, perhaps of the same key, and would come
//! after them. An operator who wants them seeks back.

use std::collections::BTreeSet;

use chapar_core::port::SubscriptionSpec;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;

/// Adds the topics of a process. A new subscription starts with the first retained message, so that
/// one that is created late misses nothing.
pub(super) async fn subscribe(
    conn: &mut Conn<'_>,
    spec: &SubscriptionSpec,
) -> Result<(), StoreError> {
    static TOPIC: Statement = Statement::new(
        "insert into chapar.subscriptions (subscription, topic) values ($1, $2) on conflict do nothing",
    );
    static CURSORS: Statement = Statement::new(
        "insert into chapar.cursors (subscription, log_partition, acked_offset) \
         select $1, log_partition, 0 from chapar.log_heads where true on conflict do nothing",
    );
    let mut added = Vec::new();
    for topic in &spec.topics {
        if conn.run(&TOPIC, vec![(&spec.name).into(), topic.into()]).await? == 1 {
            added.push(topic.clone());
        }
    }
    conn.run(&CURSORS, vec![(&spec.name).into()]).await?;
    if !added.is_empty() {
        start_at_end(conn, &spec.name, &added).await?;
        take_up(conn, &spec.name, added).await?;
    }
    Ok(())
}

/// Records where topics start that were added to a subscription whose partitions have been read.
/// The cursors cannot tell: they are behind what their owners have applied.
async fn start_at_end(
    conn: &mut Conn<'_>,
    subscription: &str,
    topics: &[String],
) -> Result<(), StoreError> {
    // No message is published until this commits. So the owners, which learn of the topic at the
    // same moment, have read nothing beyond these heads.
    static LOCK: Statement = Statement::new(
        "select log_partition from chapar.log_heads order by log_partition for update",
    );
    static START: Statement = Statement::new(
        "insert into chapar.topic_starts (subscription, topic, log_partition, from_offset) \
         select c.subscription, $2, c.log_partition, h.next_offset from chapar.cursors c \
         join chapar.log_heads h on h.log_partition = c.log_partition \
         where c.subscription = $1 and (c.epoch > 0 or c.acked_offset > 0) \
         and not exists (select 1 from chapar.dropped_topics d where d.subscription = $1 and d.topic = $2) \
         on conflict do nothing",
    );
    conn.query(&LOCK, vec![]).await?;
    for topic in topics {
        conn.run(&START, vec![subscription.into(), topic.into()]).await?;
    }
    Ok(())
}

/// After a seek every topic is read from the cursor on: in one partition, or in all.
pub(crate) async fn start_at_cursor(
    conn: &mut Conn<'_>,
    subscription: &str,
    partition: Option<u32>,
) -> Result<(), StoreError> {
    static FORGET: Statement = Statement::new(
        "delete from chapar.topic_starts where subscription = $1 \
         and log_partition = coalesce($2, log_partition)",
    );
    let partition = partition.map(i64::from);
    conn.run(&FORGET, vec![subscription.into(), partition.into()]).await?;
    Ok(())
}

/// Goes back to where topics were dropped. What other topics have since then is delivered again as
/// well, and found in the inbox.
async fn take_up(
    conn: &mut Conn<'_>,
    subscription: &str,
    topics: Vec<String>,
) -> Result<(), StoreError> {
    static DROPPED: Statement = Statement::new(
        "select log_partition, min(acked_offset) from chapar.dropped_topics \
         where subscription = $1 and topic = any($2) group by log_partition order by log_partition",
    );
    // A new epoch in any case: the owner may have read past events of the topic, and not written
    // its cursor yet.
    static BACK: Statement = Statement::new(
        "update chapar.cursors set acked_offset = case when acked_offset < $3 then acked_offset else $3 end, \
         owner = null, epoch = epoch + 1, expires_at = clock_timestamp() \
         where subscription = $1 and log_partition = $2",
    );
    static DELETE: Statement = Statement::new(
        "delete from chapar.dropped_topics where subscription = $1 and topic = any($2)",
    );
    let args = vec![subscription.into(), topics.clone().into()];
    for row in conn.query(&DROPPED, args.clone()).await? {
        let (partition, acked): (i64, i64) = (row.get(0)?, row.get(1)?);
        conn.run(&BACK, vec![subscription.into(), partition.into(), acked.into()]).await?;
    }
    conn.run(&DELETE, args).await?;
    Ok(())
}

/// The topics of a subscription.
pub(super) async fn read(
    conn: &mut Conn<'_>,
    subscription: &str,
) -> Result<BTreeSet<String>, StoreError> {
    static TOPICS: Statement =
        Statement::new("select topic from chapar.subscriptions where subscription = $1");
    let rows = conn.query(&TOPICS, vec![subscription.into()]).await?;
    rows.iter().map(|row| row.get(0)).collect()
}

/// Drops topics that no living process reads.
pub(super) async fn drop_unread(
    conn: &mut Conn<'_>,
    subscription: &str,
    topics: Vec<String>,
) -> Result<(), StoreError> {
    static RECORD: Statement = Statement::new(
        "insert into chapar.dropped_topics (subscription, topic, log_partition, acked_offset) \
         select s.subscription, s.topic, c.log_partition, c.acked_offset from chapar.subscriptions s \
         join chapar.cursors c on c.subscription = s.subscription \
         where s.subscription = $1 and s.topic = any($2) on conflict do nothing",
    );
    static DROP: Statement = Statement::new(
        "delete from chapar.subscriptions where subscription = $1 and topic = any($2)",
    );
    let args = vec![subscription.into(), topics.into()];
    conn.run(&RECORD, args.clone()).await?;
    conn.run(&DROP, args).await?;
    Ok(())
}
