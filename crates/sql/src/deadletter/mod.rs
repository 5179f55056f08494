mod copies;
mod runs;
mod triage;

use std::collections::HashSet;

use bytes::Bytes;
use jiff::Timestamp;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::inbox::Arrival;
use crate::statement::Statement;
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
}

/// The edited form of a failed event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct EditedLetter {
    pub headers: String,
    pub body: Bytes,
    pub by: String,
    pub at: Timestamp,
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
             run, outcome, note, closed_by, closed_at from chapar.dead_letters d ",
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

impl Conn<'_> {
    /// Stores a dead letter; storing it again for the same position changes nothing.
    pub async fn bury(&mut self, letter: &NewDeadLetter) -> Result<(), StoreError> {
        static BURY: Statement = Statement::new(
            "insert into chapar.dead_letters (id, consumer, event_id, tenant, topic, log_partition, \
             log_offset, headers, body, ordering_key, kind, error, fingerprint, class, attempts, \
             first_failed_at, last_failed_at, blocks_key) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, \
             $10, $11, $12, $13, $14, $15, $16, $17, $18) on conflict do nothing",
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
        ]);
        self.run(&BURY, args).await?;
        Ok(())
    }

    /// Which of these keys of a consumer are parked, by a dead letter or by parked followers.
    pub async fn blocked_keys(
        &mut self,
        consumer: &str,
        keys: Vec<String>,
    ) -> Result<HashSet<String>, StoreError> {
        static BLOCKED: Statement = Statement::new(
            "select ordering_key from chapar.dead_letters where consumer = $1 \
             and status <> 'closed' and blocks_key and ordering_key = any($2) \
             union select ordering_key from chapar.parked where consumer = $1 \
             and ordering_key = any($2)",
        );
        let rows = self.query(&BLOCKED, vec![consumer.into(), keys.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Which of these keys of a consumer have an open dead letter that does not park them.
    pub async fn flagged_keys(
        &mut self,
        consumer: &str,
        keys: Vec<String>,
    ) -> Result<HashSet<String>, StoreError> {
        static FLAGGED: Statement = Statement::new(
            "select distinct ordering_key from chapar.dead_letters where consumer = $1 \
             and status <> 'closed' and not blocks_key and ordering_key = any($2)",
        );
        let rows = self.query(&FLAGGED, vec![consumer.into(), keys.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
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
        self.run(&PARK, args).await?;
        Ok(())
    }

    /// The newest open dead letters of all consumers, with the number of followers.
    pub async fn open_dead_letters(&mut self, limit: i64) -> Result<Vec<DeadLetter>, StoreError> {
        // Selected by id first: sorting all open letters would read their bodies too.
        static OPEN: Statement = letters!(
            "where id in (select id from chapar.dead_letters where status <> 'closed' \
             order by last_failed_at desc, id desc limit $1) order by last_failed_at desc, id desc"
        );
        let rows = self.query(&OPEN, vec![limit.into()]).await?;
        rows.iter().map(letter).collect()
    }

    /// The dead letters of a consumer for which a replay was requested.
    pub async fn replay_requests(
        &mut self,
        consumer: &str,
        limit: i64,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        static ASKED: Statement =
            letters!("0", "where consumer = $1 and status = 'replay' order by id limit $2");
        let rows = self.query(&ASKED, vec![consumer.into(), limit.into()]).await?;
        rows.iter().map(letter).collect()
    }

    /// Closes dead letters whose events have been applied.
    pub async fn close_applied_letters(&mut self, ids: Vec<String>) -> Result<(), StoreError> {
        static CLOSE: Statement = Statement::new(
            "update chapar.dead_letters set status = 'closed', outcome = 'applied', \
             closed_at = clock_timestamp() where id = any($1) and status <> 'closed'",
        );
        if !ids.is_empty() {
            self.run(&CLOSE, vec![ids.into()]).await?;
        }
        Ok(())
    }

    /// Reopens a dead letter whose replay failed. Its recorded fix is removed, since it did not
    /// help.
    pub async fn reopen_dead_letter(
        &mut self,
        id: &str,
        consumer: &str,
        topic: &str,
        failure: &LetterFailure,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        static REOPEN: Statement = Statement::new(
            "update chapar.dead_letters set status = 'open', kind = $2, error = $3, \
             fingerprint = $4, last_failed_at = $5, attempts = attempts + 1, fix = null, \
             fixed = $6 where id = $1 and status = 'replay'",
        );
        self.know_group(consumer, topic, failure).await?;
        let args = vec![
            id.into(),
            (&failure.kind).into(),
            (&failure.error).into(),
            (&failure.fingerprint).into(),
            now.into(),
            false.into(),
        ];
        self.run(&REOPEN, args).await?;
        Ok(())
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
        self.run(&KNOW, args).await?;
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
        let rows = self.query(&RELEASED, vec![consumer.into(), limit.into()]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The first parked follower of a key.
    pub async fn first_parked(
        &mut self,
        consumer: &str,
        key: &str,
    ) -> Result<Option<Parked>, StoreError> {
        static FIRST: Statement = Statement::new(
            "select id, event_id, tenant, topic, log_partition, log_offset, headers, body, ordering_key \
             from chapar.parked where consumer = $1 and ordering_key = $2 order by id limit 1",
        );
        let rows = self.query(&FIRST, vec![consumer.into(), key.into()]).await?;
        let parked =
            |row: &Row| Ok(Parked { id: row.get(0)?, arrival: Arrival::from_row(row, 1)? });
        rows.first().map(parked).transpose()
    }

    /// Removes a parked follower that has been applied or has become a dead letter itself.
    pub async fn unpark(&mut self, id: i64) -> Result<(), StoreError> {
        static UNPARK: Statement = Statement::new("delete from chapar.parked where id = $1");
        self.run(&UNPARK, vec![id.into()]).await?;
        Ok(())
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
    let edited = match (row.get(21)?, row.get(22)?, row.get(23)?, row.get(24)?) {
        (Some(headers), Some(body), Some(by), Some(at)) => {
            Some(EditedLetter { headers, body, by, at })
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
    })
}
