use std::collections::HashSet;

use jiff::Timestamp;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::inbox::Arrival;
use crate::statement::Statement;
use crate::value::Row;

/// An event that failed for good, on its way into the box.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct NewDeadLetter {
    pub id: String,
    pub consumer: String,
    pub arrival: Arrival,
    pub kind: String,
    pub error: String,
    pub fingerprint: String,
    pub attempts: u32,
    pub first_failed_at: Timestamp,
    pub last_failed_at: Timestamp,
    /// The followers of its key wait behind it.
    pub blocks_key: bool,
}

/// An event in the box.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct DeadLetter {
    pub id: String,
    pub consumer: String,
    pub arrival: Arrival,
    pub kind: String,
    pub error: String,
    pub attempts: i64,
    pub first_failed_at: Timestamp,
    pub last_failed_at: Timestamp,
    pub status: String,
    pub followers: i64,
}

/// A follower that waits behind a dead letter of its key.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct Parked {
    pub id: i64,
    pub arrival: Arrival,
}

impl Conn<'_> {
    /// Puts an event into the box; doing it again for the same place changes nothing.
    pub async fn bury(&mut self, letter: &NewDeadLetter) -> Result<(), StoreError> {
        static BURY: Statement = Statement::new(
            "insert into chapar.dead_letters (id, consumer, event_id, tenant, topic, log_partition, \
             log_offset, headers, body, ordering_key, kind, error, fingerprint, attempts, \
             first_failed_at, last_failed_at, blocks_key) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, \
             $10, $11, $12, $13, $14, $15, $16, $17) on conflict do nothing",
        );
        let mut args = vec![(&letter.id).into(), (&letter.consumer).into()];
        args.extend(letter.arrival.columns());
        args.extend([
            letter.arrival.ordering_key.as_deref().into(),
            (&letter.kind).into(),
            (&letter.error).into(),
            (&letter.fingerprint).into(),
            letter.attempts.into(),
            letter.first_failed_at.into(),
            letter.last_failed_at.into(),
            letter.blocks_key.into(),
        ]);
        self.run(&BURY, args).await?;
        Ok(())
    }

    /// Which of these keys of a consumer wait behind a dead letter or behind parked followers.
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

    /// Which of these keys of a consumer have an open dead letter that does not hold them back.
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

    /// The newest open dead letters of all consumers, with how many followers wait.
    pub async fn open_dead_letters(&mut self, limit: i64) -> Result<Vec<DeadLetter>, StoreError> {
        // Chosen by id first: sorting all open letters would carry their bodies along.
        static OPEN: Statement = Statement::new(
            "select id, consumer, kind, error, attempts, first_failed_at, last_failed_at, status, \
             (select count(*) from chapar.parked p where p.consumer = d.consumer \
              and p.ordering_key = d.ordering_key), \
             event_id, tenant, topic, log_partition, log_offset, headers, body, ordering_key \
             from chapar.dead_letters d where id in (select id from chapar.dead_letters \
             where status <> 'closed' order by last_failed_at desc limit $1) \
             order by last_failed_at desc",
        );
        let rows = self.query(&OPEN, vec![limit.into()]).await?;
        rows.iter().map(letter).collect()
    }

    /// Asks for an open dead letter to be delivered again; false if there is none of this id.
    pub async fn request_replay(&mut self, id: &str) -> Result<bool, StoreError> {
        static ASK: Statement = Statement::new(
            "update chapar.dead_letters set status = 'replay' where id = $1 and status = 'open'",
        );
        Ok(self.run(&ASK, vec![id.into()]).await? == 1)
    }

    /// The dead letters of a consumer that somebody asked to be delivered again.
    pub async fn replay_requests(
        &mut self,
        consumer: &str,
        limit: i64,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        static ASKED: Statement = Statement::new(
            "select id, consumer, kind, error, attempts, first_failed_at, last_failed_at, status, 0, \
             event_id, tenant, topic, log_partition, log_offset, headers, body, ordering_key \
             from chapar.dead_letters where consumer = $1 and status = 'replay' order by id limit $2",
        );
        let rows = self.query(&ASKED, vec![consumer.into(), limit.into()]).await?;
        rows.iter().map(letter).collect()
    }

    /// Closes a dead letter, because its event has been applied.
    pub async fn close_dead_letter(&mut self, id: &str) -> Result<(), StoreError> {
        static CLOSE: Statement =
            Statement::new("update chapar.dead_letters set status = 'closed' where id = $1");
        self.run(&CLOSE, vec![id.into()]).await?;
        Ok(())
    }

    /// Puts a dead letter back into the box, because its replay failed.
    pub async fn reopen_dead_letter(
        &mut self,
        id: &str,
        error: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        static REOPEN: Statement = Statement::new(
            "update chapar.dead_letters set status = 'open', error = $2, last_failed_at = $3, \
             attempts = attempts + 1 where id = $1",
        );
        self.run(&REOPEN, vec![id.into(), error.into(), now.into()]).await?;
        Ok(())
    }

    /// The parked keys of a consumer whose dead letter is closed: their turn has come.
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

    /// Removes a parked follower, because it has been applied or has become a letter itself.
    pub async fn unpark(&mut self, id: i64) -> Result<(), StoreError> {
        static UNPARK: Statement = Statement::new("delete from chapar.parked where id = $1");
        self.run(&UNPARK, vec![id.into()]).await?;
        Ok(())
    }
}

fn letter(row: &Row) -> Result<DeadLetter, StoreError> {
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
    })
}
