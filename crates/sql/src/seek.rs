//! Seeking: previewing and moving a consumer's cursors over the log.

use std::collections::BTreeMap;

use chapar_core::port::SeekTo;
use jiff::Timestamp;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::log::topics;
use crate::statement::Statement;
use crate::tables::{Inbox, LogCursors, Tables};
use crate::value::{Row, Value};

/// A range of a partition of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The partition.
    pub partition: u32,
    /// The first offset in it.
    pub first: i64,
    /// The first offset after it.
    pub end: i64,
    /// The consumer's cursor in this partition.
    pub acked: i64,
}

/// Events of a range, counted by topic, tenant and state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StretchCount {
    /// Their topic.
    pub topic: String,
    /// Their tenant.
    pub tenant: String,
    /// Whether the consumer's cursor has passed them.
    pub passed: bool,
    /// Whether the inbox knows them as applied.
    pub applied: bool,
    /// How many there are.
    pub count: i64,
}

/// The events that a seek applies to; an empty list means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Of these topics.
    pub topics: Vec<String>,
    /// Of these tenants.
    pub tenants: Vec<String>,
}

impl Scope {
    /// Whether it matches everything.
    pub fn is_all(&self) -> bool {
        self.topics.is_empty() && self.tenants.is_empty()
    }

    /// Whether it matches an event.
    pub fn has(&self, topic: &str, tenant: &str) -> bool {
        let within =
            |list: &[String], item: &str| list.is_empty() || list.iter().any(|i| i == item);
        within(&self.topics, topic) && within(&self.tenants, tenant)
    }

    fn args(&self) -> [Value; 4] {
        [
            self.topics.is_empty().into(),
            self.topics.clone().into(),
            self.tenants.is_empty().into(),
            self.tenants.clone().into(),
        ]
    }
}

impl LogCursors<'_> {
    /// The next offset of each partition of the log.
    pub async fn heads(&mut self) -> Result<BTreeMap<u32, i64>, StoreError> {
        static HEADS: Statement =
            Statement::new("select log_partition, next_offset from chapar.log_heads");
        let rows = self.0.query(&HEADS, vec![]).await?;
        rows.iter().map(|row| Ok((row.get::<i64>(0)? as u32, row.get(1)?))).collect()
    }

    /// The offset of the first message of a partition that was published at or after a time.
    ///
    /// Offsets are assigned under a lock, so times ascend with them, and binary search finds it
    /// without an index.
    pub async fn offset_at(&mut self, partition: u32, at: Timestamp) -> Result<i64, StoreError> {
        static BOUNDS: Statement = Statement::new(
            "select coalesce((select min(log_offset) from chapar.log where log_partition = $1), \
             next_offset), next_offset from chapar.log_heads where log_partition = $1",
        );
        static NEXT: Statement = Statement::new(
            "select log_offset, published_at from chapar.log where log_partition = $1 \
             and log_offset >= $2 order by log_offset limit 1",
        );
        let rows = self.0.query(&BOUNDS, vec![partition.into()]).await?;
        let Some(row) = rows.first() else { return Ok(1) };
        let (mut low, mut high): (i64, i64) = (row.get(0)?, row.get(1)?);
        while low < high {
            let middle = low + (high - low) / 2;
            let rows = self.0.query(&NEXT, vec![partition.into(), middle.into()]).await?;
            match rows.first() {
                Some(row) if row.get::<Timestamp>(1)? < at => low = row.get::<i64>(0)? + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// The cursors of a subscription in each partition of the log; empty if it has none.
    pub async fn of(&mut self, subscription: &str) -> Result<BTreeMap<u32, i64>, StoreError> {
        static CURSORS: Statement = Statement::new(
            "select log_partition, acked_offset from chapar.cursors where subscription = $1 \
             order by log_partition",
        );
        let rows = self.0.query(&CURSORS, vec![subscription.into()]).await?;
        rows.iter().map(|row| Ok((row.get::<i64>(0)? as u32, row.get(1)?))).collect()
    }

    /// The range between a target and the end of the log, for each partition whose cursor would
    /// move.
    pub async fn stretches(
        &mut self,
        subscription: &str,
        to: SeekTo,
    ) -> Result<Vec<Stretch>, StoreError> {
        let cursors = self.of(subscription).await?;
        let mut stretches = Vec::new();
        for (partition, end) in self.heads().await? {
            let Some(&acked) = cursors.get(&partition) else { continue };
            let first = match to {
                SeekTo::Beginning => 1,
                SeekTo::End => end,
                SeekTo::Time(at) => self.offset_at(partition, at).await?,
                SeekTo::Position(at) if at.partition == partition => {
                    i64::try_from(at.offset).unwrap_or(i64::MAX).clamp(1, end)
                }
                SeekTo::Position(_) => continue,
            };
            stretches.push(Stretch { partition, first, end, acked });
        }
        Ok(stretches)
    }

    /// Counts the events of a consumer's topics in some ranges.
    pub async fn count_stretches(
        &mut self,
        consumer: &str,
        topics: &[String],
        stretches: &[Stretch],
    ) -> Result<Vec<StretchCount>, StoreError> {
        const POSTGRES: &str = "select l.topic, l.tenant, l.log_offset <= s.acked, \
             i.event_id is not null, count(*) \
             from unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) as s(part, first, past, acked) \
             join chapar.log l on l.log_partition = s.part and l.log_offset >= s.first and l.log_offset < s.past \
             left join chapar.inbox i on i.consumer = $1 and i.event_id = l.event_id and i.tenant = l.tenant and i.result <> 'reapply' \
             where l.topic = any($2) group by 1, 2, 3, 4";
        const SQLITE: &str = "select l.topic, l.tenant, l.log_offset <= (s.value ->> 3), \
             i.event_id is not null, count(*) \
             from json_each($3) s join chapar_log l on l.log_partition = (s.value ->> 0) \
             and l.log_offset >= (s.value ->> 1) and l.log_offset < (s.value ->> 2) \
             left join chapar_inbox i on i.consumer = $1 and i.event_id = l.event_id and i.tenant = l.tenant and i.result <> 'reapply' \
             where l.topic in (select value from json_each($2)) group by 1, 2, 3, 4";
        if let Conn::Postgres(_) = &mut self.0 {
            // Forces a hash join: with a million ids anything else is too slow.
            self.0.execute("set local work_mem = '256MB'", vec![]).await?;
        }
        let mut args: Vec<Value> = vec![consumer.into(), topics.to_vec().into()];
        args.extend(self.bounds(stretches));
        let rows = match &mut self.0 {
            Conn::Postgres(_) => self.0.fetch(POSTGRES, args).await?,
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => self.0.fetch(SQLITE, args).await?,
        };
        let count = |row: &Row| {
            Ok(StretchCount {
                topic: row.get(0)?,
                tenant: row.get(1)?,
                passed: row.get(2)?,
                applied: row.get(3)?,
                count: row.get(4)?,
            })
        };
        rows.iter().map(count).collect()
    }

    /// Sets the cursors of a subscription to the beginning of each range, for all its processes.
    pub async fn move_to(
        &mut self,
        subscription: &str,
        stretches: &[Stretch],
    ) -> Result<(), StoreError> {
        // A new epoch makes every owner read its cursor again before it acknowledges anything.
        static MOVE: Statement = Statement::new(
            "update chapar.cursors set acked_offset = $3, owner = null, epoch = epoch + 1, \
             expires_at = clock_timestamp() where subscription = $1 and log_partition = $2",
        );
        for stretch in stretches {
            let args =
                vec![subscription.into(), stretch.partition.into(), (stretch.first - 1).into()];
            self.0.run(&MOVE, args).await?;
            topics::start_at_cursor(&mut self.0, subscription, Some(stretch.partition)).await?;
        }
        Ok(())
    }

    pub(crate) async fn over_stretches(
        &mut self,
        postgres: &'static str,
        sqlite: &'static str,
        consumer: &str,
        topics: &[String],
        stretches: &[Stretch],
        scope: &Scope,
    ) -> Result<u64, StoreError> {
        let mut args: Vec<Value> = vec![consumer.into(), topics.to_vec().into()];
        args.extend(self.bounds(stretches));
        args.extend(scope.args());
        match &mut self.0 {
            Conn::Postgres(_) => self.0.execute(postgres, args).await,
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => self.0.execute(sqlite, args).await,
        }
    }

    /// Four arrays for PostgreSQL, one array of arrays for SQLite.
    fn bounds(&self, stretches: &[Stretch]) -> Vec<Value> {
        let rows: Vec<[i64; 4]> =
            stretches.iter().map(|s| [i64::from(s.partition), s.first, s.end, s.acked]).collect();
        match &self.0 {
            Conn::Postgres(_) => {
                (0..4).map(|n| rows.iter().map(|row| row[n]).collect::<Vec<i64>>().into()).collect()
            }
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) => vec![serde_json::to_string(&rows).unwrap_or_default().into()],
        }
    }
}

impl Inbox<'_> {
    /// Marks the events of some ranges that match a scope, so that the inbox accepts each of them
    /// once more. Returns how many.
    pub async fn expect_again(
        &mut self,
        consumer: &str,
        topics: &[String],
        stretches: &[Stretch],
        scope: &Scope,
    ) -> Result<u64, StoreError> {
        const POSTGRES: &str = "insert into chapar.inbox as i (consumer, event_id, tenant, topic, result) \
             select $1, l.event_id, l.tenant, l.topic, 'reapply' \
             from unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) as s(part, first, past, acked) \
             join chapar.log l on l.log_partition = s.part and l.log_offset >= s.first and l.log_offset < s.past \
             where l.topic = any($2) and ($7 or l.topic = any($8)) and ($9 or l.tenant = any($10)) \
             and (l.log_offset <= s.acked or exists (select 1 from chapar.inbox k \
                  where k.consumer = $1 and k.event_id = l.event_id and k.tenant = l.tenant)) \
             order by l.event_id \
             on conflict (consumer, event_id, tenant) do update set result = 'reapply', processed_at = clock_timestamp() \
             where i.result not in ('reapply', 'deleted')";
        const SQLITE: &str = "insert into chapar_inbox as i (consumer, event_id, tenant, topic, received_at, processed_at, result) \
             select $1, l.event_id, l.tenant, l.topic, cast(unixepoch('subsec') * 1000000 as integer), \
             cast(unixepoch('subsec') * 1000000 as integer), 'reapply' \
             from json_each($3) s join chapar_log l on l.log_partition = (s.value ->> 0) \
             and l.log_offset >= (s.value ->> 1) and l.log_offset < (s.value ->> 2) \
             where l.topic in (select value from json_each($2)) \
             and ($4 or l.topic in (select value from json_each($5))) \
             and ($6 or l.tenant in (select value from json_each($7))) \
             and (l.log_offset <= (s.value ->> 3) or exists (select 1 from chapar_inbox k \
                  where k.consumer = $1 and k.event_id = l.event_id and k.tenant = l.tenant)) \
             on conflict (consumer, event_id, tenant) do update set result = 'reapply', processed_at = excluded.processed_at \
             where i.result not in ('reapply', 'deleted')";
        self.0.cursors().over_stretches(POSTGRES, SQLITE, consumer, topics, stretches, scope).await
    }

    /// Marks events outside a scope as applied if the cursor has passed them and the inbox has
    /// forgotten them. Dead letters, parked and stashed events are left alone. Returns how many.
    pub async fn leave_out(
        &mut self,
        consumer: &str,
        topics: &[String],
        stretches: &[Stretch],
        scope: &Scope,
    ) -> Result<u64, StoreError> {
        const POSTGRES: &str = "insert into chapar.inbox (consumer, event_id, tenant, topic, result) \
             select $1, l.event_id, l.tenant, l.topic, 'skipped' \
             from unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) as s(part, first, past, acked) \
             join chapar.log l on l.log_partition = s.part and l.log_offset >= s.first \
             and l.log_offset < s.past and l.log_offset <= s.acked \
             where l.topic = any($2) and not (($7 or l.topic = any($8)) and ($9 or l.tenant = any($10))) \
             and not exists (select 1 from chapar.dead_letters d where d.consumer = $1 and d.event_id = l.event_id and d.tenant = l.tenant and d.status <> 'closed') \
             and not exists (select 1 from chapar.parked p where p.consumer = $1 and p.event_id = l.event_id and p.tenant = l.tenant) \
             and not exists (select 1 from chapar.saga_stash t where t.consumer = $1 and t.event_id = l.event_id and t.tenant = l.tenant) \
             order by l.event_id on conflict do nothing";
        const SQLITE: &str = "insert into chapar_inbox (consumer, event_id, tenant, topic, received_at, processed_at, result) \
             select $1, l.event_id, l.tenant, l.topic, cast(unixepoch('subsec') * 1000000 as integer), \
             cast(unixepoch('subsec') * 1000000 as integer), 'skipped' \
             from json_each($3) s join chapar_log l on l.log_partition = (s.value ->> 0) \
             and l.log_offset >= (s.value ->> 1) and l.log_offset < (s.value ->> 2) and l.log_offset <= (s.value ->> 3) \
             where l.topic in (select value from json_each($2)) \
             and not (($4 or l.topic in (select value from json_each($5))) \
                  and ($6 or l.tenant in (select value from json_each($7)))) \
             and not exists (select 1 from chapar_dead_letters d where d.consumer = $1 and d.event_id = l.event_id and d.tenant = l.tenant and d.status <> 'closed') \
             and not exists (select 1 from chapar_parked p where p.consumer = $1 and p.event_id = l.event_id and p.tenant = l.tenant) \
             and not exists (select 1 from chapar_saga_stash t where t.consumer = $1 and t.event_id = l.event_id and t.tenant = l.tenant) \
             on conflict do nothing";
        self.0.cursors().over_stretches(POSTGRES, SQLITE, consumer, topics, stretches, scope).await
    }

    /// Which of these events a consumer's inbox knows as applied.
    pub async fn applied_among(
        &mut self,
        consumer: &str,
        events: Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        static APPLIED: Statement = Statement::new(
            "select event_id from chapar.inbox where consumer = $1 and event_id = any($2) \
             and result <> 'reapply'",
        );
        let rows = self.0.query(&APPLIED, vec![consumer.into(), events.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// What the inbox knows of these events: true where an operator asked for it to be applied
    /// again.
    pub async fn claims_among(
        &mut self,
        consumer: &str,
        events: Vec<String>,
    ) -> Result<Vec<(String, bool)>, StoreError> {
        static CLAIMS: Statement = Statement::new(
            "select event_id, result = 'reapply' from chapar.inbox \
             where consumer = $1 and event_id = any($2)",
        );
        let rows = self.0.query(&CLAIMS, vec![consumer.into(), events.into()]).await?;
        rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    /// Lets a consumer apply events again that its inbox knows. Returns how many.
    pub async fn expect_events_again(
        &mut self,
        consumer: &str,
        mut events: Vec<String>,
    ) -> Result<u64, StoreError> {
        static EXPECT: Statement = Statement::new(
            "update chapar.inbox set result = 'reapply', processed_at = clock_timestamp() \
             where consumer = $1 and event_id = any($2) and result not in ('reapply', 'deleted')",
        );
        events.sort_unstable();
        self.0.run(&EXPECT, vec![consumer.into(), events.into()]).await
    }

    /// Forgets the intents of the events that a consumer is to apply again: each is a new attempt
    /// at the same intent, not a duplicate.
    pub async fn forget_intents(&mut self, consumer: &str) -> Result<u64, StoreError> {
        static FORGET: Statement = Statement::new(
            "delete from chapar.inbox_intents where consumer = $1 and exists (select 1 \
             from chapar.inbox i where i.consumer = $1 and i.result = 'reapply' \
             and i.event_id = chapar.inbox_intents.event_id)",
        );
        self.0.run(&FORGET, vec![consumer.into()]).await
    }

    /// The start of a consumer's inbox retention.
    pub async fn remembers_since(
        &mut self,
        consumer: &str,
    ) -> Result<Option<Timestamp>, StoreError> {
        static SINCE: Statement =
            Statement::new("select min(processed_at) from chapar.inbox where consumer = $1");
        let rows = self.0.query(&SINCE, vec![consumer.into()]).await?;
        rows.first().map_or(Ok(None), |row| row.get(0))
    }
}
