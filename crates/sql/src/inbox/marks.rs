//! Marks: how far a consumer has come with its keys; and holes: what it left out.

use jiff::Timestamp;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::Inbox;

/// How far a consumer has come with a key on one line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct InboxMark {
    pub ordering_key: String,
    pub line: String,
    pub last_seq: i64,
}

/// A number on a line of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct MarkPlace {
    pub tenant: String,
    pub ordering_key: String,
    pub line: String,
    pub number: i64,
}

/// A hole: numbers of a line that were left out, from `low` to `high` inclusive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct InboxHole {
    pub ordering_key: String,
    pub line: String,
    pub low: i64,
    pub high: i64,
}

/// Where a consumer started on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct InboxFloor {
    pub topic: String,
    pub first_seq: i64,
    pub since: Timestamp,
}

impl Inbox<'_> {
    /// Records a number that a consumer received on a topic; only a lower one than before changes
    /// anything.
    pub async fn lower_floor(
        &mut self,
        consumer: &str,
        topic: &str,
        seq: i64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        static LOWER: Statement = Statement::new(
            "insert into chapar.inbox_floors as f (consumer, topic, first_seq, since) \
             values ($1, $2, $3, $4) on conflict (consumer, topic) do update \
             set first_seq = excluded.first_seq, since = excluded.since \
             where f.first_seq > excluded.first_seq",
        );
        self.0.run(&LOWER, vec![consumer.into(), topic.into(), seq.into(), now.into()]).await?;
        Ok(())
    }

    /// Where a consumer started on its topics.
    pub async fn floors(&mut self, consumer: &str) -> Result<Vec<InboxFloor>, StoreError> {
        static FLOORS: Statement = Statement::new(
            "select topic, first_seq, since from chapar.inbox_floors where consumer = $1",
        );
        let rows = self.0.query(&FLOORS, vec![consumer.into()]).await?;
        let floor = |row: &crate::Row| {
            Ok(InboxFloor { topic: row.get(0)?, first_seq: row.get(1)?, since: row.get(2)? })
        };
        rows.iter().map(floor).collect()
    }

    /// How far a consumer has come with some keys of a tenant.
    pub async fn marks(
        &mut self,
        consumer: &str,
        tenant: &str,
        keys: Vec<String>,
    ) -> Result<Vec<InboxMark>, StoreError> {
        static MARKS: Statement = Statement::new(
            "select ordering_key, line, last_seq from chapar.inbox_marks \
             where consumer = $1 and tenant = $2 and ordering_key = any($3)",
        );
        let rows = self.0.query(&MARKS, vec![consumer.into(), tenant.into(), keys.into()]).await?;
        let mark = |row: &crate::Row| {
            Ok(InboxMark { ordering_key: row.get(0)?, line: row.get(1)?, last_seq: row.get(2)? })
        };
        rows.iter().map(mark).collect()
    }

    /// Moves marks forward, never back.
    pub async fn advance_marks(
        &mut self,
        consumer: &str,
        tenant: &str,
        mut marks: Vec<InboxMark>,
    ) -> Result<(), StoreError> {
        const POSTGRES: &str = "insert into chapar.inbox_marks as m (consumer, tenant, ordering_key, line, last_seq) \
             select $1, $2, e.key, e.line, e.seq from unnest($3::text[], $4::text[], $5::bigint[]) as e(key, line, seq) \
             on conflict (consumer, tenant, ordering_key, line) do update set last_seq = excluded.last_seq \
             where m.last_seq < excluded.last_seq";
        const SQLITE: &str = "insert into chapar_inbox_marks as m (consumer, tenant, ordering_key, line, last_seq) \
             select $1, $2, e.value ->> 0, e.value ->> 1, e.value ->> 2 from json_each($3) e where true \
             on conflict (consumer, tenant, ordering_key, line) do update set last_seq = excluded.last_seq \
             where m.last_seq < excluded.last_seq";
        // Sorted, so that two processes lock rows in the same order; one row per line, because a
        // statement may update it only once.
        marks.sort_unstable_by(|a, b| b.cmp(a));
        marks.dedup_by(|a, b| (&a.ordering_key, &a.line) == (&b.ordering_key, &b.line));
        if marks.is_empty() {
            return Ok(());
        }
        if let Conn::Postgres(conn) = &mut self.0 {
            let keys: Vec<&str> = marks.iter().map(|mark| mark.ordering_key.as_str()).collect();
            let lines: Vec<&str> = marks.iter().map(|mark| mark.line.as_str()).collect();
            let seqs: Vec<i64> = marks.iter().map(|mark| mark.last_seq).collect();
            let query = sqlx::query(POSTGRES).bind(consumer).bind(tenant);
            query.bind(keys).bind(lines).bind(seqs).execute(&mut **conn).await?;
            return Ok(());
        }
        let rows = marks.iter().map(|mark| (&mark.ordering_key, &mark.line, mark.last_seq));
        let rows = serde_json::to_string(&rows.collect::<Vec<_>>()).unwrap_or_default();
        self.0.execute(SQLITE, vec![consumer.into(), tenant.into(), rows.into()]).await?;
        Ok(())
    }

    /// Whether a consumer has marks.
    pub async fn has_marks(&mut self, consumer: &str) -> Result<bool, StoreError> {
        static ANY: Statement =
            Statement::new("select 1 from chapar.inbox_marks where consumer = $1 limit 1");
        Ok(!self.0.query(&ANY, vec![consumer.into()]).await?.is_empty())
    }

    /// Moves marks back to before these places, because their events are applied again.
    pub async fn rewind(
        &mut self,
        consumer: &str,
        mut places: Vec<MarkPlace>,
    ) -> Result<(), StoreError> {
        const POSTGRES: &str = "update chapar.inbox_marks m set last_seq = e.seq - 1 \
             from unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) as e(tenant, key, line, seq) \
             where m.consumer = $1 and m.ordering_key = e.key and m.tenant = e.tenant \
             and m.line = e.line and m.last_seq >= e.seq";
        const SQLITE: &str = "update chapar_inbox_marks as m set last_seq = (e.value ->> 3) - 1 \
             from json_each($2) e where m.consumer = $1 and m.ordering_key = e.value ->> 1 \
             and m.tenant = e.value ->> 0 and m.line = e.value ->> 2 and m.last_seq >= e.value ->> 3";
        // Ascending, so that the lowest number of each line is the one that stays.
        places.sort_unstable();
        places.dedup_by(|a, b| {
            (&a.tenant, &a.ordering_key, &a.line) == (&b.tenant, &b.ordering_key, &b.line)
        });
        if places.is_empty() {
            return Ok(());
        }
        if let Conn::Postgres(conn) = &mut self.0 {
            let texts = |text: fn(&MarkPlace) -> &str| places.iter().map(text).collect::<Vec<_>>();
            let query = sqlx::query(POSTGRES)
                .bind(consumer)
                .bind(texts(|place| &place.tenant))
                .bind(texts(|place| &place.ordering_key))
                .bind(texts(|place| &place.line))
                .bind(places.iter().map(|place| place.number).collect::<Vec<i64>>());
            query.execute(&mut **conn).await?;
            return Ok(());
        }
        let rows = places.iter().map(|at| (&at.tenant, &at.ordering_key, &at.line, at.number));
        let rows = serde_json::to_string(&rows.collect::<Vec<_>>()).unwrap_or_default();
        self.0.execute(SQLITE, vec![consumer.into(), rows.into()]).await?;
        Ok(())
    }

    /// The holes of some keys of a tenant.
    pub async fn holes(
        &mut self,
        consumer: &str,
        tenant: &str,
        keys: Vec<String>,
    ) -> Result<Vec<InboxHole>, StoreError> {
        static HOLES: Statement = Statement::new(
            "select ordering_key, line, low, high from chapar.inbox_holes \
             where consumer = $1 and tenant = $2 and ordering_key = any($3) order by line, low",
        );
        let rows = self.0.query(&HOLES, vec![consumer.into(), tenant.into(), keys.into()]).await?;
        let hole = |row: &crate::Row| {
            Ok(InboxHole {
                ordering_key: row.get(0)?,
                line: row.get(1)?,
                low: row.get(2)?,
                high: row.get(3)?,
            })
        };
        rows.iter().map(hole).collect()
    }

    /// Records a hole.
    pub async fn dig_hole(
        &mut self,
        consumer: &str,
        tenant: &str,
        hole: &InboxHole,
    ) -> Result<(), StoreError> {
        static DIG: Statement = Statement::new(
            "insert into chapar.inbox_holes (consumer, tenant, ordering_key, line, low, high) \
             values ($1, $2, $3, $4, $5, $6) on conflict do nothing",
        );
        let args = vec![
            consumer.into(),
            tenant.into(),
            (&hole.ordering_key).into(),
            (&hole.line).into(),
            hole.low.into(),
            hole.high.into(),
        ];
        self.0.run(&DIG, args).await?;
        Ok(())
    }

    /// Removes a number from its hole, because its event has arrived after all.
    pub async fn fill_hole(
        &mut self,
        consumer: &str,
        tenant: &str,
        key: &str,
        line: &str,
        number: i64,
    ) -> Result<(), StoreError> {
        static TAKE: Statement = Statement::new(
            "delete from chapar.inbox_holes where consumer = $1 and tenant = $2 and ordering_key = $3 \
             and line = $4 and low <= $5 and high >= $5 returning low, high",
        );
        let args = vec![consumer.into(), tenant.into(), key.into(), line.into(), number.into()];
        for row in self.0.query(&TAKE, args).await? {
            let (low, high): (i64, i64) = (row.get(0)?, row.get(1)?);
            for (low, high) in [(low, number - 1), (number + 1, high)] {
                if low <= high {
                    let (ordering_key, line) = (key.to_owned(), line.to_owned());
                    let rest = InboxHole { ordering_key, line, low, high };
                    self.dig_hole(consumer, tenant, &rest).await?;
                }
            }
        }
        Ok(())
    }
}
