//! Queries and actions of operators on dead letters.
//!
//! Consumer, topic, kind and error are the same for all letters of a group. A filter first finds
//! the groups, of which there are few, and then reads indexes that begin with the group, so that it
//! stays fast among a million letters.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{DeadLetter, EditedLetter, letter, letters};
use crate::error::StoreError;
use crate::outbox::to_json_pairs;
use crate::statement::Statement;
use crate::store::Backend;
use crate::tables::Letters;
use crate::value::Value;

/// A filter on open dead letters. An unset field matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LetterFilter {
    /// Only these, by their ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Of one group, by its fingerprint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Of a consumer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// Of a topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Of a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Of a kind of failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// A part of the error's shape, ignoring case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of a class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Last failed then or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Last failed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Letters with the same fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct LetterGroup {
    pub fingerprint: String,
    pub consumer: String,
    pub topic: String,
    pub kind: String,
    /// How many are open, including those with a requested replay.
    pub letters: i64,
    /// Of those, how many have a requested replay.
    pub asked: i64,
    pub first_failed_at: Timestamp,
    pub last_failed_at: Timestamp,
    /// The class of those that have one, and whether all have the same.
    pub class: Option<String>,
    pub classified: i64,
    pub mixed: bool,
    /// How many have a fix recorded.
    pub fixed: i64,
    /// The error of the newest.
    pub error: String,
}

/// Letters of a filter, counted by what decides on a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct LetterCount {
    pub status: String,
    pub class: Option<String>,
    pub fixed: bool,
    /// Whether the inbox still remembers if its event was applied.
    pub remembered: bool,
    pub letters: i64,
}

/// The progress through the letters of a filter, group by group, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterCursor {
    /// The group.
    pub group: String,
    /// When the last letter failed.
    pub at: Timestamp,
    /// The last letter.
    pub id: String,
}

impl Default for LetterCursor {
    fn default() -> Self {
        LetterCursor { group: String::new(), at: Timestamp::UNIX_EPOCH, id: String::new() }
    }
}

impl LetterFilter {
    /// One letter.
    pub fn one(id: impl Into<String>) -> Self {
        LetterFilter { ids: vec![id.into()], ..LetterFilter::default() }
    }

    /// Whether it matches every letter.
    pub fn is_empty(&self) -> bool {
        *self == LetterFilter::default()
    }

    fn by_group(&self) -> bool {
        let of_group = [&self.group, &self.consumer, &self.topic, &self.kind, &self.error];
        of_group.iter().any(|field| field.is_some())
    }

    fn since(&self) -> Timestamp {
        self.since.unwrap_or(Timestamp::UNIX_EPOCH)
    }

    fn until(&self) -> Timestamp {
        self.until.unwrap_or(Timestamp::MAX)
    }
}

fn text(field: &Option<String>) -> Value {
    field.clone().into()
}

impl Letters<'_> {
    /// The groups that match a filter, sorted.
    pub async fn groups_of(&mut self, filter: &LetterFilter) -> Result<Vec<String>, StoreError> {
        static GROUPS: Statement = Statement::new(
            "select fingerprint from chapar.dead_letter_groups where ($1::text is null or fingerprint = $1) \
             and ($2::text is null or consumer = $2) and ($3::text is null or topic = $3) and ($4::text is null or kind = $4) \
             and ($5::text is null or lower(shape) like $5 escape '!') order by fingerprint",
        );
        let error = filter.error.as_ref().map(|part| {
            let part = part.to_lowercase().replace('!', "!!");
            format!("%{}%", part.replace('%', "!%").replace('_', "!_"))
        });
        let args = vec![
            text(&filter.group),
            text(&filter.consumer),
            text(&filter.topic),
            text(&filter.kind),
            text(&error),
        ];
        let mut groups: Vec<String> = self
            .0
            .query(&GROUPS, args)
            .await?
            .iter()
            .map(|row| row.get(0))
            .collect::<Result<_, StoreError>>()?;
        // The database's collation may differ from Rust's order, by which the cursor compares.
        groups.sort();
        Ok(groups)
    }

    /// The newest letters of a filter that failed before `before`, the last letter of the previous
    /// page.
    pub async fn page(
        &mut self,
        filter: &LetterFilter,
        before: Option<(Timestamp, String)>,
        limit: i64,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        static BY_ID: Statement =
            letters!("where id = any($1) order by last_failed_at desc, id desc");
        let ids = match filter.ids.is_empty() {
            true => self.letter_ids(filter, before, limit).await?,
            false => filter.ids.clone(),
        };
        self.0.query(&BY_ID, vec![ids.into()]).await?.iter().map(letter).collect()
    }

    async fn letter_ids(
        &mut self,
        filter: &LetterFilter,
        before: Option<(Timestamp, String)>,
        limit: i64,
    ) -> Result<Vec<String>, StoreError> {
        static BY_TIME: Statement = Statement::new(
            "select id from chapar.dead_letters where status <> 'closed' and last_failed_at >= $1 \
             and last_failed_at <= $2 and (last_failed_at, id) < ($2, $3) \
             order by last_failed_at desc, id desc limit $4",
        );
        static BY_TENANT: Statement = Statement::new(
            "select id from chapar.dead_letters where status <> 'closed' and last_failed_at >= $1 \
             and last_failed_at <= $2 and (last_failed_at, id) < ($2, $3) and tenant = $5 \
             and (not $6 or fingerprint = any($7)) and ($8::text is null or class = $8) \
             order by last_failed_at desc, id desc limit $4",
        );
        // Each group contributes its newest letters, straight from the index.
        const BY_GROUP_POSTGRES: &str = "select p.id from unnest($5::text[]) g cross join lateral ( \
             select d.id, d.last_failed_at from chapar.dead_letters d where d.status <> 'closed' \
             and d.fingerprint = g and d.last_failed_at >= $1 and d.last_failed_at <= $2 \
             and (d.last_failed_at, d.id) < ($2, $3) and ($6::text is null or d.class = $6) \
             order by d.last_failed_at desc, d.id desc limit $4) p \
             order by p.last_failed_at desc, p.id desc limit $4";
        const BY_GROUP_SQLITE: &str = "select d.id from json_each($5) g \
             join chapar_dead_letters d on d.id in (select x.id from chapar_dead_letters x \
             where x.status <> 'closed' and x.fingerprint = g.value and x.last_failed_at >= $1 \
             and x.last_failed_at <= $2 and (x.last_failed_at, x.id) < ($2, $3) \
             and ($6::text is null or x.class = $6) order by x.last_failed_at desc, x.id desc limit $4) \
             order by d.last_failed_at desc, d.id desc limit $4";
        let (at, id) = match before {
            Some((at, id)) if at < filter.until() => (at, id),
            // Nothing of that time itself: no id is smaller than the empty one.
            _ => (filter.until(), String::new()),
        };
        let mut args: Vec<Value> = vec![filter.since().into(), at.into(), id.into(), limit.into()];
        let rows = if filter.tenant.is_some() {
            let groups = self.groups_of(filter).await?;
            args.extend([text(&filter.tenant), filter.by_group().into(), groups.into()]);
            args.push(text(&filter.class));
            self.0.query(&BY_TENANT, args).await?
        } else if filter.by_group() || filter.class.is_some() {
            args.extend([self.groups_of(filter).await?.into(), text(&filter.class)]);
            let sql = match self.0.backend() {
                Backend::Postgres => BY_GROUP_POSTGRES,
                Backend::Sqlite => BY_GROUP_SQLITE,
            };
            self.0.fetch(sql, args).await?
        } else {
            self.0.query(&BY_TIME, args).await?
        };
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The letters that were closed last, newest first.
    pub async fn closed(&mut self, limit: i64) -> Result<Vec<DeadLetter>, StoreError> {
        static CLOSED: Statement = letters!(
            "where id in (select id from chapar.dead_letters where status = 'closed' \
             and closed_at is not null order by closed_at desc, id desc limit $1) \
             order by closed_at desc, id desc"
        );
        self.0.query(&CLOSED, vec![limit.into()]).await?.iter().map(letter).collect()
    }

    /// A letter, open or closed.
    pub async fn get(&mut self, id: &str) -> Result<Option<DeadLetter>, StoreError> {
        static ONE: Statement = letters!("where id = $1");
        self.0.query(&ONE, vec![id.into()]).await?.first().map(letter).transpose()
    }

    /// The largest groups, counted over the letters that match a filter.
    pub async fn groups(
        &mut self,
        filter: &LetterFilter,
        limit: i64,
    ) -> Result<Vec<LetterGroup>, StoreError> {
        static COUNT: Statement = Statement::new(
            "select fingerprint, count(*), count(*) filter (where status = 'replay'), \
             min(first_failed_at), max(last_failed_at), min(class), max(class), count(class), \
             count(*) filter (where fixed) from chapar.dead_letters \
             where status <> 'closed' and last_failed_at >= $1 and last_failed_at < $2 \
             and ($3::text is null or tenant = $3) and ($4::text is null or class = $4) \
             and (not $5 or fingerprint = any($6)) group by fingerprint \
             order by count(*) desc, fingerprint limit $7",
        );
        static DESCRIBE: Statement = Statement::new(
            "select fingerprint, consumer, topic, kind, (select error from chapar.dead_letters d \
             where d.fingerprint = g.fingerprint and d.status <> 'closed' \
             order by d.last_failed_at desc, d.id desc limit 1) \
             from chapar.dead_letter_groups g where fingerprint = any($1)",
        );
        let groups = self.groups_of(filter).await?;
        let args = vec![
            filter.since().into(),
            filter.until().into(),
            text(&filter.tenant),
            text(&filter.class),
            filter.by_group().into(),
            groups.into(),
            limit.into(),
        ];
        let counted = self.0.query(&COUNT, args).await?;
        let names = counted.iter().map(|row| row.get(0)).collect::<Result<Vec<String>, _>>()?;
        let described = self.0.query(&DESCRIBE, vec![names.into()]).await?;
        let mut found = Vec::with_capacity(counted.len());
        for row in &counted {
            let fingerprint: String = row.get(0)?;
            let mut group = LetterGroup {
                consumer: String::new(),
                topic: String::new(),
                kind: String::new(),
                letters: row.get(1)?,
                asked: row.get(2)?,
                first_failed_at: row.get(3)?,
                last_failed_at: row.get(4)?,
                class: row.get(5)?,
                mixed: row.get::<Option<String>>(5)? != row.get::<Option<String>>(6)?,
                classified: row.get(7)?,
                fixed: row.get(8)?,
                error: String::new(),
                fingerprint,
            };
            for about in &described {
                if about.get::<String>(0)? == group.fingerprint {
                    group.consumer = about.get(1)?;
                    group.topic = about.get(2)?;
                    group.kind = about.get(3)?;
                    group.error = about.get::<Option<String>>(4)?.unwrap_or_default();
                }
            }
            found.push(group);
        }
        Ok(found)
    }

    /// The letters that match a filter, counted by what decides on a replay.
    pub async fn count(
        &mut self,
        filter: &LetterFilter,
        remembered_since: Timestamp,
    ) -> Result<Vec<LetterCount>, StoreError> {
        static COUNT: Statement = Statement::new(
            "select status, class, fixed, first_failed_at >= $1, count(*) from chapar.dead_letters \
             where status <> 'closed' and last_failed_at >= $2 and last_failed_at < $3 \
             and ($4::text is null or tenant = $4) and ($5::text is null or class = $5) \
             and (not $6 or fingerprint = any($7)) and (not $8 or id = any($9)) \
             group by 1, 2, 3, 4 order by 1, 2, 3, 4",
        );
        let groups = self.groups_of(filter).await?;
        let args = vec![
            remembered_since.into(),
            filter.since().into(),
            filter.until().into(),
            text(&filter.tenant),
            text(&filter.class),
            filter.by_group().into(),
            groups.into(),
            (!filter.ids.is_empty()).into(),
            filter.ids.clone().into(),
        ];
        let count = |row: &crate::Row| {
            Ok(LetterCount {
                status: row.get(0)?,
                class: row.get(1)?,
                fixed: row.get(2)?,
                remembered: row.get(3)?,
                letters: row.get(4)?,
            })
        };
        self.0.query(&COUNT, args).await?.iter().map(count).collect()
    }

    /// The next open letters of a filter after a cursor, which is advanced; none at the end.
    /// `groups` are those of the filter.
    pub async fn next(
        &mut self,
        filter: &LetterFilter,
        groups: &[String],
        cursor: &mut LetterCursor,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        static NEXT: Statement = Statement::new(
            "select id, last_failed_at from chapar.dead_letters where status <> 'closed' \
             and fingerprint = $1 and (last_failed_at, id) > ($2, $3) and last_failed_at >= $4 \
             and last_failed_at < $5 and ($6::text is null or tenant = $6) and ($7::text is null or class = $7) \
             order by last_failed_at, id limit $8",
        );
        static NAMED: Statement = Statement::new(
            "select id from chapar.dead_letters where status <> 'closed' and id = any($1)",
        );
        if !filter.ids.is_empty() {
            // Sorted and taken in slices: the cursor needs only the last id.
            let mut ids = filter.ids.clone();
            ids.sort();
            ids.dedup();
            let from = ids.partition_point(|id| *id <= cursor.id);
            let slice: Vec<String> = ids[from..].iter().take(limit).cloned().collect();
            let Some(last) = slice.last() else { return Ok(slice) };
            cursor.id.clone_from(last);
            let rows = self.0.query(&NAMED, vec![slice.into()]).await?;
            return rows.iter().map(|row| row.get(0)).collect();
        }
        let mut found = Vec::new();
        for group in &groups[groups.partition_point(|group| *group < cursor.group)..] {
            if *group != cursor.group {
                *cursor = LetterCursor { group: group.clone(), ..LetterCursor::default() };
            }
            let args = vec![
                group.into(),
                cursor.at.into(),
                (&cursor.id).into(),
                filter.since().into(),
                filter.until().into(),
                text(&filter.tenant),
                text(&filter.class),
                ((limit - found.len()) as i64).into(),
            ];
            for row in self.0.query(&NEXT, args).await? {
                (cursor.id, cursor.at) = (row.get(0)?, row.get(1)?);
                found.push(cursor.id.clone());
            }
            if found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }

    /// Requests replays, for letters whose class allows it and, unless `reapply`, that are within
    /// the inbox's retention; returns how many.
    pub async fn ask_for_replay(
        &mut self,
        ids: Vec<String>,
        run: Option<&str>,
        remembered_since: Option<Timestamp>,
    ) -> Result<u64, StoreError> {
        static ASK: Statement = Statement::new(
            "update chapar.dead_letters set status = 'replay', run = $2, tries = 0, retry_at = null where id = any($1) \
             and status = 'open' and (class is null or class = 'vendor_outage' \
             or (class in ('schema_drift', 'consumer_bug') and fixed)) and first_failed_at >= $3",
        );
        let since = remembered_since.unwrap_or(Timestamp::UNIX_EPOCH);
        self.0.run(&ASK, vec![ids.into(), run.into(), since.into()]).await
    }

    /// Classifies letters, with the recorded fix if there is one; returns how many.
    pub async fn classify(
        &mut self,
        ids: Vec<String>,
        class: Option<&str>,
        fix: Option<&str>,
    ) -> Result<u64, StoreError> {
        static CLASSIFY: Statement = Statement::new(
            "update chapar.dead_letters set class = $2, fix = $3, fixed = $4 \
             where id = any($1) and status = 'open'",
        );
        let args = vec![ids.into(), class.into(), fix.into(), fix.is_some().into()];
        self.0.run(&CLASSIFY, args).await
    }

    /// Closes letters for good; their followers go on. Each is claimed in the inbox, so that no
    /// copy of its event is applied afterwards. With `erase` only the names of the events are kept.
    /// Returns how many; those that were applied meanwhile are not among them.
    pub async fn give_up(
        &mut self,
        ids: Vec<String>,
        erase: bool,
        actor: &str,
        note: &str,
    ) -> Result<u64, StoreError> {
        static CLOSE: Statement = Statement::new(
            "update chapar.dead_letters set status = 'closed', outcome = $2, closed_by = $3, \
             note = $4, closed_at = clock_timestamp(), deferred = $5 \
             where id = any($1) and status <> 'closed' returning id",
        );
        static CLAIM: Statement = Statement::new(
            "insert into chapar.inbox as i (consumer, event_id, tenant, topic, received_at, \
             processed_at, result) select consumer, event_id, tenant, topic, clock_timestamp(), \
             clock_timestamp(), outcome from chapar.dead_letters where id = any($1) \
             order by event_id on conflict (consumer, event_id, tenant) do update \
             set result = excluded.result where i.result = 'reapply'",
        );
        // A redelivery that was parked behind its own letter is a copy of the event as well.
        static UNPARK: Statement = Statement::new(
            "delete from chapar.parked where (consumer, event_id) in (select consumer, event_id \
             from chapar.dead_letters where id = any($1))",
        );
        static ERASE: Statement = Statement::new(
            "update chapar.dead_letters set headers = '[]', body = $2, edited_headers = null, \
             edited_body = null where id = any($1)",
        );
        let outcome = if erase { "deleted" } else { "quarantined" };
        let args = vec![ids.into(), outcome.into(), actor.into(), note.into(), false.into()];
        let rows = self.0.query(&CLOSE, args).await?;
        let closed = rows.iter().map(|row| row.get(0)).collect::<Result<Vec<String>, _>>()?;
        self.0.run(&CLAIM, vec![closed.clone().into()]).await?;
        self.0.run(&UNPARK, vec![closed.clone().into()]).await?;
        let count = closed.len() as u64;
        if erase {
            self.0.run(&ERASE, vec![closed.into(), Vec::<u8>::new().into()]).await?;
        }
        Ok(count)
    }

    /// Replaces the message that a letter delivers; the original is kept. A message that could not
    /// be decoded before gets its id and tenant. False if the letter is not open.
    pub async fn edit(
        &mut self,
        id: &str,
        event_id: &str,
        tenant: &str,
        edited: &EditedLetter,
    ) -> Result<bool, StoreError> {
        static EDIT: Statement = Statement::new(
            "update chapar.dead_letters set event_id = $2, tenant = $3, edited_headers = $4, \
             edited_body = $5, edited_by = $6, edited_at = $7, fix = 'edited', fixed = $8 \
             where id = $1 and status = 'open'",
        );
        let args = vec![
            id.into(),
            event_id.into(),
            tenant.into(),
            to_json_pairs(&edited.headers).into(),
            (&edited.body).into(),
            (&edited.by).into(),
            edited.at.into(),
            true.into(),
        ];
        Ok(self.0.run(&EDIT, args).await? == 1)
    }

    /// How many events are parked behind the open letters that match a filter.
    pub async fn count_followers(&mut self, filter: &LetterFilter) -> Result<i64, StoreError> {
        static COUNT: Statement = Statement::new(
            "select count(*) from chapar.parked p where exists (select 1 from chapar.dead_letters d \
             where d.consumer = p.consumer and d.ordering_key = p.ordering_key \
             and d.status <> 'closed' and d.blocks_key and d.last_failed_at >= $1 \
             and d.last_failed_at < $2 and ($3::text is null or d.tenant = $3) and ($4::text is null or d.class = $4) \
             and (not $5 or d.fingerprint = any($6)) and (not $7 or d.id = any($8)))",
        );
        let groups = self.groups_of(filter).await?;
        let args = vec![
            filter.since().into(),
            filter.until().into(),
            text(&filter.tenant),
            text(&filter.class),
            filter.by_group().into(),
            groups.into(),
            (!filter.ids.is_empty()).into(),
            filter.ids.clone().into(),
        ];
        let rows = self.0.query(&COUNT, args).await?;
        rows.first().map_or(Ok(0), |row| row.get(0))
    }
}
