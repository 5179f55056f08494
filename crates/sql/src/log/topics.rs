//! The topics of a subscription: what its processes read together.
//!
//! A process that joins adds its topics, and none takes those of another away: while a new version
//! is rolled out, old and new processes read one subscription. A topic is dropped when no living
//! process reads it. Where its partitions were then is recorded, so that nothing is missed if a
//! process reads it again, after a rollback or while the only one that reads it restarts.
//!
//! A topic that comes to a running subscription starts at the cursors, which are behind what has been
//! applied. So its events are left out that lie before an applied event of the same key: they would
//! come out of order. An operator who wants them seeks back.

use std::collections::BTreeSet;

use chapar_core::port::SubscriptionSpec;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::Tables;

/// Adds the topics of a process. A new subscription starts with the first retained message, so that
/// one that is created late misses nothing.
///
/// The topics stay locked until the process is recorded as a member in the same transaction: in
/// between, another process would drop a topic that this one is about to read.
pub(super) async fn subscribe(
    conn: &mut Conn<'_>,
    spec: &SubscriptionSpec,
) -> Result<(), StoreError> {
    static LOCK: Statement = Statement::new(
        "select topic from chapar.subscriptions where subscription = $1 order by topic for share",
    );
    static TOPIC: Statement = Statement::new(
        "insert into chapar.subscriptions (subscription, topic) values ($1, $2) on conflict do nothing",
    );
    static CURSORS: Statement = Statement::new(
        "insert into chapar.cursors (subscription, log_partition, acked_offset) \
         select $1, log_partition, 0 from chapar.log_heads where true on conflict do nothing",
    );
    conn.query(&LOCK, vec![(&spec.name).into()]).await?;
    let mut added = Vec::new();
    for topic in &spec.topics {
        if conn.run(&TOPIC, vec![(&spec.name).into(), topic.into()]).await? == 1 {
            added.push(topic.clone());
        }
    }
    conn.run(&CURSORS, vec![(&spec.name).into()]).await?;
    if !added.is_empty() && is_read(conn, &spec.name).await? {
        fence(conn, &spec.name).await?;
        start_behind_applied(conn, &spec.name, &added).await?;
        take_up(conn, &spec.name, added).await?;
    }
    Ok(())
}

/// A process has owned a partition of the subscription, or an operator has set it somewhere.
async fn is_read(conn: &mut Conn<'_>, subscription: &str) -> Result<bool, StoreError> {
    static READ: Statement = Statement::new(
        "select 1 from chapar.cursors where subscription = $1 and (epoch > 0 or acked_offset > 0) limit 1",
    );
    Ok(!conn.query(&READ, vec![subscription.into()]).await?.is_empty())
}

/// Has every process discard what it fetched and read on from the cursors. Its fetched messages, and
/// what it knows of its position, leave out the topics that are being added.
async fn fence(conn: &mut Conn<'_>, subscription: &str) -> Result<(), StoreError> {
    static EPOCHS: Statement = Statement::new(
        "update chapar.cursors set owner = null, epoch = epoch + 1, expires_at = clock_timestamp() \
         where subscription = $1",
    );
    // A consumer has the name of its subscription.
    conn.consumers().hold_batches(subscription).await?;
    conn.consumers().move_on(subscription).await?;
    conn.run(&EPOCHS, vec![subscription.into()]).await?;
    Ok(())
}

/// Records behind which event each key starts in topics that were added: the last that was applied
/// beyond the cursor. A topic that was dropped before has its place already.
async fn start_behind_applied(
    conn: &mut Conn<'_>,
    subscription: &str,
    topics: &[String],
) -> Result<(), StoreError> {
    static START: Statement = Statement::new(
        "insert into chapar.topic_starts \
         (subscription, topic, log_partition, tenant, ordering_key, behind_offset) \
         select c.subscription, $2, l.log_partition, l.tenant, l.ordering_key, max(l.log_offset) \
         from chapar.cursors c \
         join chapar.log l on l.log_partition = c.log_partition and l.log_offset > c.acked_offset \
         join chapar.inbox i on i.consumer = c.subscription and i.event_id = l.event_id and i.tenant = l.tenant \
         and i.result <> 'reapply' \
         where c.subscription = $1 and l.ordering_key is not null \
         and not exists (select 1 from chapar.dropped_topics d where d.subscription = $1 and d.topic = $2) \
         group by c.subscription, l.log_partition, l.tenant, l.ordering_key \
         on conflict do nothing",
    );
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
    static BACK: Statement = Statement::new(
        "update chapar.cursors set acked_offset = $3 \
         where subscription = $1 and log_partition = $2 and acked_offset > $3",
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

/// Those of `topics` that no process is about to join with; they stay locked. A topic that another
/// process has locked at this moment is left for the next turn.
pub(super) async fn lock(
    conn: &mut Conn<'_>,
    subscription: &str,
    topics: Vec<String>,
) -> Result<BTreeSet<String>, StoreError> {
    static LOCK: Statement = Statement::new(
        "select topic from chapar.subscriptions where subscription = $1 and topic = any($2) \
         order by topic for update skip locked",
    );
    let rows = conn.query(&LOCK, vec![subscription.into(), topics.into()]).await?;
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
    if topics.is_empty() {
        return Ok(());
    }
    let args = vec![subscription.into(), topics.into()];
    conn.run(&RECORD, args.clone()).await?;
    conn.run(&DROP, args).await?;
    Ok(())
}
