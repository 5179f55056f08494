mod copies;
mod runs;
mod triage;

use std::collections::HashSet;

use bytes::Bytes;
use chapar_core::Headers;
use jiff::Timestamp;

use crate::error::StoreError;
use crate::inbox::Arrival;
use crate::outbox::from_json_pairs;
use crate::statement::Statement;
use crate::tables::Letters;
use crate::value::Row;

pub use runs::ReplayRun;
pub use triage::{LetterCount, LetterCursor, LetterFilter, LetterGroup};

/// An event that failed for good, to be stored as a dead letter.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct NewDeadLetter {
    pub id: String,
    pub consumer: String,
    pub arrival: Arrival,
    pub failure: LetterFailure,
    pub attempts: u32,
    pub first_failed_at: Timestamp,
    pub last_failed_at: Timestamp,
    /// Whether the followers of its key are parked behind it.
    pub blocks_key: bool,
    /// Set while its attempts are not used up: it is retried from here.
    pub deferral: Option<Deferral>,
}

/// When a letter is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct Deferral {
    /// Attempts that have failed.
    pub tries: u32,
    pub retry_at: Timestamp,
}

/// How an event failed.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct LetterFailure {
    pub kind: String,
    /// The error with its causes.
    pub error: String,
    /// The error without the parts that vary between events.
    pub shape: String,
    /// The fingerprint of its group.
    pub fingerprint: String,
    /// The class, if it follows from the kind.
    pub class: Option<String>,
}

/// A dead letter, open or closed.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct DeadLetter {
    pub id: String,
    pub consumer: String,
    /// The event as it arrived.
    pub arrival: Arrival,
    pub kind: String,
    pub error: String,
    pub fingerprint: String,
    pub attempts: i64,
    pub first_failed_at: Timestamp,
    pub last_failed_at: Timestamp,
    /// `open`, `replay` while a replay is requested, `closed`.
    pub status: String,
    /// How many events of its key are parked behind it.
    pub followers: i64,
    pub blocks_key: bool,
    pub class: Option<String>,
    /// The recorded fix, if its class requires one for a replay.
    pub fix: Option<String>,
    /// The edited message, delivered instead of the original.
    pub edited: Option<EditedLetter>,
    /// The last run that requested its replay.
    pub run: Option<String>,
    /// `applied`, `quarantined` or `deleted`, once it is closed.
    pub outcome: Option<String>,
    pub note: Option<String>,
    pub closed_by: Option<String>,
    pub closed_at: Option<Timestamp>,
    /// Failed attempts of the replay under way.
    pub tries: i64,
    /// When its next attempt is due, if it has to wait for it.
    pub retry_at: Option<Timestamp>,
    /// It has never been open: its first attempts are not used up.
    pub deferred: bool,
}

/// The edited form of a failed event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct EditedLetter {
    pub headers: Headers,
    pub body: Bytes,
    pub by: String,
    pub at: Timestamp,
}

/// An event that was applied in an edited form.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct AppliedEdit {
    pub event_id: String,
    pub partition: u32,
    pub offset: u64,
    pub headers: Headers,
    pub body: Bytes,
}

/// A follower parked behind a dead letter of its key.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct Parked {
    pub id: i64,
    pub arrival: Arrival,
}

/// The columns that [`letter`] reads, with the expression that counts the followers.
macro_rules! letters {
    ($followers:literal, $rest:literal) => {
        Statement::new(concat!(
            "select id, consumer, kind, error, attempts, first_failed_at, last_failed_at, status, ",
            $followers,
            ", event_id, tenant, topic, log_partition, log_offset, headers, body, ordering_key, \
             fingerprint, blocks_key, class, fix, edited_headers, edited_body, edited_by, edited_at, \
             run, outcome, note, closed_by, closed_at, tries, retry_at, deferred from chapar.dead_letters d ",
            $rest
        ))
    };
    ($rest:literal) => {
        letters!(
            "(select count(*) from chapar.parked p where p.consumer = d.consumer \
             and p.ordering_key = d.ordering_key)",
            $rest
        )
    };
}
use letters;

impl Letters<'_> {
    /// Stores a dead letter, and returns its id. A letter of the same event that is there already,
    /// open or closed, is reopened instead: a second failure never goes unrecorded.
    pub async fn bury(&mut self, letter: &NewDeadLetter) -> Result<String, StoreError> {
        static BURY: Statement = Statement::new(
            "insert into chapar.dead_letters as d (id, consumer, event_id, tenant, topic, log_partition, \
             log_offset, headers, body, ordering_key, kind, error, fingerprint, class, attempts, \
             first_failed_at, last_failed_at, blocks_key, status, tries, retry_at, deferred) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, \
             $19, $20, $21, $22) on conflict (consumer, event_id, tenant) do update \
             set topic = excluded.topic, log_partition = excluded.log_partition, \
             log_offset = excluded.log_offset, headers = excluded.headers, body = excluded.body, \
             ordering_key = excluded.ordering_key, kind = excluded.kind, error = excluded.error, \
             fingerprint = excluded.fingerprint, class = excluded.class, fix = null, fixed = $23, \
             attempts = d.attempts + excluded.attempts, last_failed_at = excluded.last_failed_at, \
             blocks_key = excluded.blocks_key, status = excluded.status, tries = excluded.tries, \
             retry_at = excluded.retry_at, deferred = excluded.deferred, edited_headers = null, \
             edited_body = null, edited_by = null, edited_at = null, run = null, outcome = null, \
             note = null, closed_by = null, closed_at = null, exported_at = null returning id",
        );
        let failure = &letter.failure;
        self.know_group(&letter.consumer, &letter.arrival.topic, failure).await?;
        let mut args = vec![(&letter.id).into(), (&letter.consumer).into()];
        args.extend(letter.arrival.columns());
        args.extend([
            letter.arrival.ordering_key.as_deref().into(),
            (&failure.kind).into(),
            (&failure.error).into(),
            (&failure.fingerprint).into(),
            failure.class.as_deref().into(),
            letter.attempts.into(),
            letter.first_failed_at.into(),
            letter.last_failed_at.into(),
            letter.blocks_key.into(),
            if letter.deferral.is_some() { "replay" } else { "open" }.into(),
            letter.deferral.map_or(0, |deferral| deferral.tries).into(),
            letter.deferral.map(|deferral| deferral.retry_at).into(),
            letter.deferral.is_some().into(),
            false.into(),
        ]);
        let rows = self.0.query(&BURY, args).await?;
        rows.first().map_or_else(|| Ok(letter.id.clone()), |row| row.get(0))
    }

    /// Parks a follower behind the dead letter of its key.
    pub async fn park(&mut self, consumer: &str, arrival: &Arrival) -> Result<(), StoreError> {
        static PARK: Statement = Statement::new(
            "insert into chapar.parked (consumer, event_id, tenant, topic, log_partition, log_offset, \
             headers, body, ordering_key, parked_at) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp()) on conflict do nothing",
        );
        let mut args = vec![consumer.into()];
        args.extend(arrival.columns());
        args.push(arrival.ordering_key.as_deref().into());
        self.0.run(&PARK, args).await?;
        Ok(())
    }

    /// The newest open dead letters of all consumers, with the number of followers.
    pub async fn open(&mut self, limit: i64) -> Result<Vec<DeadLetter>, StoreError> {
        // Selected by id first: sorting all open letters would read their bodies too.
        static OPEN: Statement = letters!(
            "where id in (select id from chapar.dead_letters where status <> 'closed' \
             order by last_failed_at desc, id desc limit $1) order by last_failed_at desc, id desc"
        );
        let rows = self.0.query(&OPEN, vec![limit.into()]).await?;
        rows.iter().map(letter).collect()
    }

    /// The dead letters of a consumer for which a replay was requested, and is due.
    pub async fn replay_requests(
        &mut self,
        consumer: &str,
        now: Timestamp,
        limit: i64,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        static ASKED: Statement = letters!(
            "0",
            "where consumer = $1 and status = 'replay' and (retry_at is null or retry_at <= $2) \
             order by id limit $3"
        );
        let rows = self.0.query(&ASKED, vec![consumer.into(), now.into(), limit.into()]).await?;
        rows.iter().map(letter).collect()
    }

    /// Closes dead letters whose events have been applied.
    pub async fn close_applied(&mut self, ids: Vec<String>) -> Result<(), StoreError> {
        static CLOSE: Statement = Statement::new(
            "update chapar.dead_letters set status = 'closed', outcome = 'applied', \
             closed_at = clock_timestamp() where id = any($1) and status <> 'closed'",
        );
        if !ids.is_empty() {
            self.0.run(&CLOSE, vec![ids.into()]).await?;
        }
        Ok(())
    }

    /// Locks the letters that are still to be replayed, until this transaction ends.
    pub async fn lock_replayed(&mut self, ids: Vec<String>) -> Result<HashSet<String>, StoreError> {
        static LOCK: Statement = Statement::new(
            "select id from chapar.dead_letters where id = any($1) and status = 'replay' \
             order by id for update",
        );
        let rows = self.0.query(&LOCK, vec![ids.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Locks the events that are still parked, until this transaction ends.
    pub async fn lock_parked(&mut self, ids: Vec<i64>) -> Result<HashSet<i64>, StoreError> {
        static LOCK: Statement = Statement::new(
            "select id from chapar.parked where id = any($1) order by id for update",
        );
        let rows = self.0.query(&LOCK, vec![ids.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Which of these events of a consumer are held: an open dead letter, parked or stashed.
    pub async fn held_among(
        &mut self,
        consumer: &str,
        events: Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        static HELD: Statement = Statement::new(
            "select event_id from chapar.dead_letters where consumer = $1 and event_id = any($2) \
             and status <> 'closed' \
             union select event_id from chapar.parked where consumer = $1 and event_id = any($2) \
             union select event_id from chapar.saga_stash where consumer = $1 and event_id = any($2)",
        );
        let rows = self.0.query(&HELD, vec![consumer.into(), events.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Records a failed replay. With a deferral it is tried again then; without, the letter is open
    /// again, and its recorded fix is removed, since it did not help. False if the letter is not
    /// being replayed any more.
    pub async fn fail_again(
        &mut self,
        id: &str,
        (consumer, topic): (&str, &str),
        failure: &LetterFailure,
        deferral: Option<Deferral>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        static REOPEN: Statement = Statement::new(
            "update chapar.dead_letters set status = 'open', kind = $2, error = $3, \
             fingerprint = $4, last_failed_at = $5, attempts = attempts + 1, fix = null, \
             fixed = $6, tries = 0, retry_at = null, deferred = $6 \
             where id = $1 and status = 'replay'",
        );
        static DEFER: Statement = Statement::new(
            "update chapar.dead_letters set kind = $2, error = $3, fingerprint = $4, \
             last_failed_at = $5, attempts = attempts + 1, tries = $6, retry_at = $7 \
             where id = $1 and status = 'replay'",
        );
        self.know_group(consumer, topic, failure).await?;
        let mut args = vec![
            id.into(),
            (&failure.kind).into(),
            (&failure.error).into(),
            (&failure.fingerprint).into(),
            now.into(),
        ];
        Ok(match deferral {
            None => {
                args.push(false.into());
                self.0.run(&REOPEN, args).await?
            }
            Some(Deferral { tries, retry_at }) => {
                args.extend([tries.into(), retry_at.into()]);
                self.0.run(&DEFER, args).await?
            }
        } == 1)
    }

    async fn know_group(
        &mut self,
        consumer: &str,
        topic: &str,
        failure: &LetterFailure,
    ) -> Result<(), StoreError> {
        static KNOW: Statement = Statement::new(
            "insert into chapar.dead_letter_groups (fingerprint, consumer, topic, kind, shape) \
             values ($1, $2, $3, $4, $5) on conflict do nothing",
        );
        let args = vec![
            (&failure.fingerprint).into(),
            consumer.into(),
            topic.into(),
            (&failure.kind).into(),
            (&failure.shape).into(),
        ];
        self.0.run(&KNOW, args).await?;
        Ok(())
    }

    /// The parked keys of a consumer whose dead letter is closed, so that they can be applied.
    pub async fn released_keys(
        &mut self,
        consumer: &str,
        limit: i64,
    ) -> Result<Vec<String>, StoreError> {
        static RELEASED: Statement = Statement::new(
            "select distinct ordering_key from chapar.parked p where consumer = $1 and not exists \
             (select 1 from chapar.dead_letters d where d.consumer = p.consumer \
              and d.ordering_key = p.ordering_key and d.status <> 'closed' and d.blocks_key) limit $2",
        );
        let rows = self.0.query(&RELEASED, vec![consumer.into(), limit.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The events that a consumer applied in an edited form. There are few: people edit them.
    pub async fn applied_edits(&mut self, consumer: &str) -> Result<Vec<AppliedEdit>, StoreError> {
        static EDITS: Statement = Statement::new(
            "select event_id, log_partition, log_offset, edited_headers, edited_body \
             from chapar.dead_letters where consumer = $1 and edited_body is not null \
             and outcome = 'applied'",
        );
        let edit = |row: &Row| {
            Ok(AppliedEdit {
                event_id: row.get(0)?,
                partition: row.get::<i64>(1)? as u32,
                offset: row.get::<i64>(2)? as u64,
                headers: from_json_pairs(&row.get::<String>(3)?),
                body: row.get(4)?,
            })
        };
        self.0.query(&EDITS, vec![consumer.into()]).await?.iter().map(edit).collect()
    }

    /// The first parked followers of a key, at most `limit`.
    pub async fn first_parked(
        &mut self,
        consumer: &str,
        key: &str,
        limit: i64,
    ) -> Result<Vec<Parked>, StoreError> {
        static FIRST: Statement = Statement::new(
            "select id, event_id, tenant, topic, log_partition, log_offset, headers, body, ordering_key \
             from chapar.parked where consumer = $1 and ordering_key = $2 order by id limit $3",
        );
        let rows = self.0.query(&FIRST, vec![consumer.into(), key.into(), limit.into()]).await?;
        let parked =
            |row: &Row| Ok(Parked { id: row.get(0)?, arrival: Arrival::from_row(row, 1)? });
        rows.iter().map(parked).collect()
    }

    /// Removes a parked follower that has been applied or has become a dead letter itself; false if
    /// it is not parked any more.
    pub async fn unpark(&mut self, id: i64) -> Result<bool, StoreError> {
        static UNPARK: Statement = Statement::new("delete from chapar.parked where id = $1");
        Ok(self.0.run(&UNPARK, vec![id.into()]).await? == 1)
    }
}

impl DeadLetter {
    /// What its consumer gets: the original event, or the edited one.
    pub fn to_deliver(&self) -> Arrival {
        let mut arrival = self.arrival.clone();
        if let Some(edited) = &self.edited {
            arrival.headers = edited.headers.clone();
            arrival.body = edited.body.clone();
        }
        arrival
    }
}

fn letter(row: &Row) -> Result<DeadLetter, StoreError> {
    let edited = match (row.get::<Option<String>>(21)?, row.get(22)?, row.get(23)?, row.get(24)?) {
        (Some(headers), Some(body), Some(by), Some(at)) => {
            Some(EditedLetter { headers: from_json_pairs(&headers), body, by, at })
        }
        _ => None,
    };
    Ok(DeadLetter {
        id: row.get(0)?,
        consumer: row.get(1)?,
        kind: row.get(2)?,
        error: row.get(3)?,
        attempts: row.get(4)?,
        first_failed_at: row.get(5)?,
        last_failed_at: row.get(6)?,
        status: row.get(7)?,
        followers: row.get(8)?,
        arrival: Arrival::from_row(row, 9)?,
        fingerprint: row.get(17)?,
        blocks_key: row.get(18)?,
        class: row.get(19)?,
        fix: row.get(20)?,
        edited,
        run: row.get(25)?,
        outcome: row.get(26)?,
        note: row.get(27)?,
        closed_by: row.get(28)?,
        closed_at: row.get(29)?,
        tries: row.get(30)?,
        retry_at: row.get(31)?,
        deferred: row.get(32)?,
    })
}
