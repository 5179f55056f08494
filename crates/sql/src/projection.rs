//! Read models: documents by key, in builds of which one is served.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::Projections;
use crate::value::{Row, Value};

/// A document of a read model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct Doc {
    pub tenant: String,
    pub key: String,
    /// As JSON; none removes it.
    pub doc: Option<String>,
}

/// The state of a read model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the tables")]
pub struct ProjectionCard {
    pub projection: String,
    pub build: i64,
    pub snapshot_every: i64,
    pub docs: i64,
    /// Events in it, within the inbox's retention.
    pub events: i64,
    /// The last applied event, and when.
    pub last_event: Option<String>,
    pub last_at: Option<Timestamp>,
    pub snapshot_at: Option<Timestamp>,
    pub snapshot_docs: Option<i64>,
    /// Events since the snapshot, or since the beginning.
    pub since_snapshot: i64,
    pub wanted: Option<String>,
    pub owner: Option<String>,
    pub done: i64,
    pub total: i64,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// How the last rebuild or game day ended.
    pub outcome: Option<String>,
    /// How long it took, in microseconds.
    pub micros: Option<i64>,
    pub differences: Option<i64>,
}

/// The position of an event of a read model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the tables")]
pub struct ProjectionMark {
    pub partition: u32,
    pub offset: u64,
    pub event_id: String,
}

/// The build that holds the snapshot.
pub const SNAPSHOT: i64 = 0;

impl Projections<'_> {
    /// Registers a read model, or changes its snapshot interval.
    pub async fn declare(
        &mut self,
        projection: &str,
        snapshot_every: i64,
    ) -> Result<(), StoreError> {
        static DECLARE: Statement = Statement::new(
            "insert into chapar.projections (projection, snapshot_every) values ($1, $2) \
             on conflict (projection) do update set snapshot_every = excluded.snapshot_every",
        );
        self.0.run(&DECLARE, vec![projection.into(), snapshot_every.into()]).await?;
        Ok(())
    }

    /// The served build, locked in share mode until this transaction ends.
    pub async fn served_build(&mut self, projection: &str) -> Result<Option<i64>, StoreError> {
        const POSTGRES: &str =
            "select build from chapar.projections where projection = $1 for key share";
        const SQLITE: &str = "select build from chapar_projections where projection = $1";
        let sql = if let Conn::Postgres(_) = &mut self.0 { POSTGRES } else { SQLITE };
        let rows = self.0.fetch(sql, vec![projection.into()]).await?;
        rows.first().map(|row| row.get(0)).transpose()
    }

    /// The served build, locked exclusively until this transaction ends.
    pub async fn hold_build(&mut self, projection: &str) -> Result<Option<i64>, StoreError> {
        static HOLD: Statement =
            Statement::new("select build from chapar.projections where projection = $1 for update");
        let rows = self.0.query(&HOLD, vec![projection.into()]).await?;
        rows.first().map(|row| row.get(0)).transpose()
    }

    /// Some documents of a build.
    pub async fn docs(
        &mut self,
        projection: &str,
        build: i64,
        keys: Vec<String>,
    ) -> Result<Vec<Doc>, StoreError> {
        static DOCS: Statement = Statement::new(
            "select tenant, key, doc from chapar.projection_rows where projection = $1 \
             and build = $2 and key = any($3)",
        );
        let args = vec![projection.into(), build.into(), keys.into()];
        let rows = self.0.query(&DOCS, args).await?;
        rows.iter().map(doc).collect()
    }

    /// Writes documents of a build.
    pub async fn put_docs(
        &mut self,
        projection: &str,
        build: i64,
        docs: Vec<Doc>,
    ) -> Result<(), StoreError> {
        const POSTGRES: &str = "insert into chapar.projection_rows (projection, build, tenant, key, doc) \
             select $1, $2, e.tenant, e.key, e.doc from unnest($3::text[], $4::text[], $5::text[]) as e(tenant, key, doc) \
             on conflict (projection, build, tenant, key) do update set doc = excluded.doc";
        const SQLITE: &str = "insert into chapar_projection_rows (projection, build, tenant, key, doc) \
             select $1, $2, e.value ->> 0, e.value ->> 1, e.value ->> 2 from json_each($3) e where true \
             on conflict (projection, build, tenant, key) do update set doc = excluded.doc";
        static REMOVE: Statement = Statement::new(
            "delete from chapar.projection_rows where projection = $1 and build = $2 \
             and tenant = $3 and key = $4",
        );
        let mut rows: Vec<(String, String, String)> = Vec::new();
        for doc in docs {
            match doc.doc {
                Some(text) => rows.push((doc.tenant, doc.key, text)),
                None => {
                    let args =
                        vec![projection.into(), build.into(), doc.tenant.into(), doc.key.into()];
                    self.0.run(&REMOVE, args).await?;
                }
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        rows.sort_unstable();
        let mut args: Vec<Value> = vec![projection.into(), build.into()];
        if let Conn::Postgres(_) = &mut self.0 {
            let column = |n: usize| -> Vec<String> {
                let pick = |row: &(String, String, String)| match n {
                    0 => row.0.clone(),
                    1 => row.1.clone(),
                    _ => row.2.clone(),
                };
                rows.iter().map(pick).collect()
            };
            args.extend([column(0).into(), column(1).into(), column(2).into()]);
            self.0.execute(POSTGRES, args).await?;
        } else {
            args.push(serde_json::to_string(&rows).unwrap_or_default().into());
            self.0.execute(SQLITE, args).await?;
        }
        Ok(())
    }

    /// Records that the served build contains an event.
    pub async fn note_projected(
        &mut self,
        projection: &str,
        mark: &ProjectionMark,
    ) -> Result<(), StoreError> {
        static MARK: Statement = Statement::new(
            "insert into chapar.projection_marks as m (projection, log_partition, log_offset, \
             event_id, at) values ($1, $2, $3, $4, clock_timestamp()) \
             on conflict (projection, log_partition) do update set log_offset = excluded.log_offset, \
             event_id = excluded.event_id, at = excluded.at where m.log_offset < excluded.log_offset",
        );
        static TAIL: Statement = Statement::new(
            "insert into chapar.projection_tail (projection, log_partition, log_offset, event_id) \
             values ($1, $2, $3, $4) on conflict do nothing",
        );
        let args: Vec<Value> = vec![
            projection.into(),
            mark.partition.into(),
            (mark.offset as i64).into(),
            (&mark.event_id).into(),
        ];
        self.0.run(&MARK, args.clone()).await?;
        self.0.run(&TAIL, args).await?;
        Ok(())
    }

    /// How far the served build has come in each partition.
    pub async fn marks(&mut self, projection: &str) -> Result<BTreeMap<u32, u64>, StoreError> {
        static MARKS: Statement = Statement::new(
            "select log_partition, log_offset from chapar.projection_marks where projection = $1",
        );
        let rows = self.0.query(&MARKS, vec![projection.into()]).await?;
        rows.iter().map(|row| Ok((row.get::<i64>(0)? as u32, row.get::<i64>(1)? as u64))).collect()
    }

    /// The events applied to the served build since its last snapshot.
    pub async fn tail(&mut self, projection: &str) -> Result<Vec<ProjectionMark>, StoreError> {
        static TAIL: Statement = Statement::new(
            "select log_partition, log_offset, event_id from chapar.projection_tail \
             where projection = $1 order by log_partition, log_offset",
        );
        let rows = self.0.query(&TAIL, vec![projection.into()]).await?;
        let mark = |row: &Row| {
            Ok(ProjectionMark {
                partition: row.get::<i64>(0)? as u32,
                offset: row.get::<i64>(1)? as u64,
                event_id: row.get(2)?,
            })
        };
        rows.iter().map(mark).collect()
    }

    /// How many events were applied to the served build since its last snapshot.
    pub async fn tail_length(&mut self, projection: &str) -> Result<i64, StoreError> {
        static LENGTH: Statement =
            Statement::new("select count(*) from chapar.projection_tail where projection = $1");
        let rows = self.0.query(&LENGTH, vec![projection.into()]).await?;
        rows.first().map_or(Ok(0), |row| row.get(0))
    }

    /// Takes a snapshot of the served build and replaces the previous one. The build must be
    /// locked.
    pub async fn take_snapshot(&mut self, projection: &str) -> Result<(), StoreError> {
        static FORGET: Statement =
            Statement::new("delete from chapar.projection_tail where projection = $1");
        static SNAPSHOT_ROW: Statement = Statement::new(
            "insert into chapar.projection_snapshots as s (projection, events, marks, docs, taken_at) \
             values ($1, $2, $3, $4, clock_timestamp()) on conflict (projection) do update \
             set events = s.events + excluded.events, marks = excluded.marks, \
             docs = excluded.docs, taken_at = excluded.taken_at",
        );
        let Some(build) = self.hold_build(projection).await? else { return Ok(()) };
        let events = self.tail_length(projection).await?;
        let marks = serde_json::to_string(&self.marks(projection).await?);
        self.drop_build(projection, SNAPSHOT).await?;
        let docs = self.copy_build(projection, build, SNAPSHOT).await?;
        let args = vec![
            projection.into(),
            events.into(),
            marks.unwrap_or_default().into(),
            (docs as i64).into(),
        ];
        self.0.run(&SNAPSHOT_ROW, args).await?;
        self.0.run(&FORGET, vec![projection.into()]).await?;
        Ok(())
    }

    /// How far a read model had come in each partition when its last snapshot was taken.
    pub async fn snapshot_marks(
        &mut self,
        projection: &str,
    ) -> Result<Option<BTreeMap<u32, u64>>, StoreError> {
        static MARKS: Statement =
            Statement::new("select marks from chapar.projection_snapshots where projection = $1");
        let rows = self.0.query(&MARKS, vec![projection.into()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(serde_json::from_str(&row.get::<String>(0)?).ok())
    }

    /// Copies a build; returns how many documents it has.
    pub async fn copy_build(
        &mut self,
        projection: &str,
        from: i64,
        to: i64,
    ) -> Result<u64, StoreError> {
        static COPY: Statement = Statement::new(
            "insert into chapar.projection_rows (projection, build, tenant, key, doc) \
             select projection, $3, tenant, key, doc from chapar.projection_rows \
             where projection = $1 and build = $2",
        );
        self.0.run(&COPY, vec![projection.into(), from.into(), to.into()]).await
    }

    /// Removes a build.
    pub async fn drop_build(&mut self, projection: &str, build: i64) -> Result<(), StoreError> {
        static DROP: Statement = Statement::new(
            "delete from chapar.projection_rows where projection = $1 and build = $2",
        );
        self.0.run(&DROP, vec![projection.into(), build.into()]).await?;
        Ok(())
    }

    /// Switches to another build. The previous one must be locked.
    pub async fn serve_build(&mut self, projection: &str, build: i64) -> Result<(), StoreError> {
        static SERVE: Statement =
            Statement::new("update chapar.projections set build = $2 where projection = $1");
        self.0.run(&SERVE, vec![projection.into(), build.into()]).await?;
        Ok(())
    }

    /// How many documents differ between two builds.
    pub async fn differences(
        &mut self,
        projection: &str,
        one: i64,
        other: i64,
    ) -> Result<i64, StoreError> {
        static DIFFER: Statement = Statement::new(
            "select count(*) from (select tenant, key from \
                 (select tenant, key, doc from chapar.projection_rows where projection = $1 and build = $2 \
                  except select tenant, key, doc from chapar.projection_rows where projection = $1 and build = $3) a \
             union select tenant, key from \
                 (select tenant, key, doc from chapar.projection_rows where projection = $1 and build = $3 \
                  except select tenant, key, doc from chapar.projection_rows where projection = $1 and build = $2) b) d",
        );
        let rows = self.0.query(&DIFFER, vec![projection.into(), one.into(), other.into()]).await?;
        rows.first().map_or(Ok(0), |row| row.get(0))
    }

    /// Which of these events a read model contains, by its inbox.
    pub async fn projected_among(
        &mut self,
        projection: &str,
        events: Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        static HELD: Statement = Statement::new(
            "select event_id from chapar.inbox where consumer = $1 and event_id = any($2) \
             and result not in ('reapply', 'late', 'skipped', 'repeated')",
        );
        let rows = self.0.query(&HELD, vec![projection.into(), events.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// How many events a consumer has applied, within its inbox's retention.
    pub async fn applied_count(&mut self, consumer: &str) -> Result<i64, StoreError> {
        static COUNT: Statement =
            Statement::new("select count(*) from chapar.inbox where consumer = $1");
        let rows = self.0.query(&COUNT, vec![consumer.into()]).await?;
        rows.first().map_or(Ok(0), |row| row.get(0))
    }

    /// Requests a rebuild or a game day; false if one is in progress.
    pub async fn ask_for_build(
        &mut self,
        projection: &str,
        wanted: &str,
        actor: &str,
        reason: &str,
    ) -> Result<bool, StoreError> {
        static ASK: Statement = Statement::new(
            "update chapar.projections set wanted = $2, asked_by = $3, reason = $4, owner = null, \
             alive_until = null, done = 0, total = 0, started_at = null, finished_at = null, \
             outcome = null, micros = null, differences = null \
             where projection = $1 and wanted is null",
        );
        let args = vec![projection.into(), wanted.into(), actor.into(), reason.into()];
        Ok(self.0.run(&ASK, args).await? == 1)
    }

    /// Withdraws a request that no process has taken up; false if one has.
    pub async fn withdraw_build(&mut self, projection: &str) -> Result<bool, StoreError> {
        static WITHDRAW: Statement = Statement::new(
            "update chapar.projections set wanted = null where projection = $1 and owner is null \
             and wanted is not null",
        );
        Ok(self.0.run(&WITHDRAW, vec![projection.into()]).await? == 1)
    }

    /// Takes up a request, unless a live process already has; returns what it is.
    pub async fn take_up_build(
        &mut self,
        projection: &str,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<String>, StoreError> {
        static TAKE: Statement = Statement::new(
            "update chapar.projections set owner = $2, alive_until = $4, \
             started_at = coalesce(started_at, $3) where projection = $1 and wanted is not null \
             and (alive_until is null or alive_until < $3) returning wanted",
        );
        let args = vec![projection.into(), owner.into(), now.into(), until.into()];
        let rows = self.0.query(&TAKE, args).await?;
        rows.first().map(|row| row.get(0)).transpose()
    }

    /// Records the progress of a build; false if another process has taken it over.
    pub async fn build_progress(
        &mut self,
        projection: &str,
        owner: &str,
        done: i64,
        total: i64,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        static PROGRESS: Statement = Statement::new(
            "update chapar.projections set done = $3, total = $4, alive_until = $5 \
             where projection = $1 and owner = $2 and wanted is not null",
        );
        let args = vec![projection.into(), owner.into(), done.into(), total.into(), until.into()];
        Ok(self.0.run(&PROGRESS, args).await? == 1)
    }

    /// Records how a build ended.
    pub async fn finish_build(
        &mut self,
        projection: &str,
        owner: &str,
        outcome: &str,
        micros: i64,
        differences: Option<i64>,
    ) -> Result<(), StoreError> {
        static FINISH: Statement = Statement::new(
            "update chapar.projections set wanted = null, owner = null, alive_until = null, \
             finished_at = clock_timestamp(), outcome = $3, micros = $4, differences = $5 \
             where projection = $1 and owner = $2",
        );
        let args = vec![
            projection.into(),
            owner.into(),
            outcome.into(),
            micros.into(),
            differences.into(),
        ];
        self.0.run(&FINISH, args).await?;
        Ok(())
    }

    /// A document that is served.
    pub async fn read_model(
        &mut self,
        projection: &str,
        tenant: &str,
        key: &str,
    ) -> Result<Option<String>, StoreError> {
        static READ: Statement = Statement::new(
            "select doc from chapar.read_models where projection = $1 and tenant = $2 and key = $3",
        );
        let rows = self.0.query(&READ, vec![projection.into(), tenant.into(), key.into()]).await?;
        rows.first().map(|row| row.get(0)).transpose()
    }

    /// The read models of a store.
    pub async fn list(&mut self) -> Result<Vec<ProjectionCard>, StoreError> {
        static CARDS: Statement = Statement::new(
            "select p.projection, p.build, p.snapshot_every, \
             (select count(*) from chapar.projection_rows r where r.projection = p.projection and r.build = p.build), \
             (select count(*) from chapar.inbox i where i.consumer = p.projection), \
             (select m.event_id from chapar.projection_marks m where m.projection = p.projection order by m.at desc limit 1), \
             (select max(m.at) from chapar.projection_marks m where m.projection = p.projection), \
             s.taken_at, s.docs, \
             (select count(*) from chapar.projection_tail t where t.projection = p.projection), \
             p.wanted, p.owner, p.done, p.total, p.started_at, p.finished_at, p.outcome, p.micros, p.differences \
             from chapar.projections p left join chapar.projection_snapshots s on s.projection = p.projection \
             order by p.projection",
        );
        let rows = self.0.query(&CARDS, vec![]).await?;
        let card = |row: &Row| {
            Ok(ProjectionCard {
                projection: row.get(0)?,
                build: row.get(1)?,
                snapshot_every: row.get(2)?,
                docs: row.get(3)?,
                events: row.get(4)?,
                last_event: row.get(5)?,
                last_at: row.get(6)?,
                snapshot_at: row.get(7)?,
                snapshot_docs: row.get(8)?,
                since_snapshot: row.get(9)?,
                wanted: row.get(10)?,
                owner: row.get(11)?,
                done: row.get(12)?,
                total: row.get(13)?,
                started_at: row.get(14)?,
                finished_at: row.get(15)?,
                outcome: row.get(16)?,
                micros: row.get(17)?,
                differences: row.get(18)?,
            })
        };
        rows.iter().map(card).collect()
    }
}

fn doc(row: &Row) -> Result<Doc, StoreError> {
    Ok(Doc { tenant: row.get(0)?, key: row.get(1)?, doc: Some(row.get(2)?) })
}
