//! Events that a store still has, for checking them against a schema.

use bytes::Bytes;
use chapar_core::Headers;
use jiff::Timestamp;

use crate::error::StoreError;
use crate::outbox::from_json_pairs;
use crate::statement::Statement;
use crate::tables::OutboxRows;
use crate::value::Row;

/// An event that is kept in the log or in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEvent {
    /// Its id.
    pub event_id: String,
    /// Its topic.
    pub topic: String,
    /// Its headers on the wire.
    pub headers: Headers,
    /// Its bytes on the wire; for an event from `chapar.emit` that is not completed yet, only the
    /// payload.
    pub body: Bytes,
    /// Whether it is sealed.
    pub sealed: bool,
}

/// The progress of a walk over events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptCursor(Stretch);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stretch {
    Log(i64, i64),
    Outbox(i64),
    End,
}

impl Default for Stretch {
    fn default() -> Self {
        Stretch::Log(-1, -1)
    }
}

impl KeptCursor {
    /// Whether the walk is finished.
    pub fn is_at_end(&self) -> bool {
        self.0 == Stretch::End
    }
}

/// An event in the order in which it was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedEvent {
    /// Ascending.
    pub seq: i64,
    /// Its topic.
    pub topic: String,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// Its headers on the wire.
    pub headers: Headers,
    /// Its bytes on the wire.
    pub body: Bytes,
}

impl OutboxRows<'_> {
    /// The sealed events of the outbox after a position, where one process writes and none relays.
    pub async fn appended_after(&mut self, seq: i64) -> Result<Vec<AppendedEvent>, StoreError> {
        static AFTER: Statement = Statement::new(
            "select seq, topic, ordering_key, headers, body from chapar.outbox \
             where sealed and seq > $1 order by seq",
        );
        let rows = self.0.query(&AFTER, vec![seq.into()]).await?;
        let event = |row: &Row| {
            Ok(AppendedEvent {
                seq: row.get(0)?,
                topic: row.get(1)?,
                ordering_key: row.get(2)?,
                headers: from_json_pairs(&row.get::<String>(3)?),
                body: row.get(4)?,
            })
        };
        rows.iter().map(event).collect()
    }

    /// The next events of some topics since some time, at most `limit`; the returned cursor
    /// continues the walk. An event that is both in the log and in the outbox is returned once.
    pub async fn kept(
        &mut self,
        topics: &[String],
        since: Timestamp,
        cursor: KeptCursor,
        limit: i64,
    ) -> Result<(Vec<KeptEvent>, KeptCursor), StoreError> {
        static LOG: Statement = Statement::new(
            "select event_id, headers, body, log_partition, log_offset, topic from chapar.log \
             where topic = any($1) and published_at >= $2 \
             and (log_partition > $3 or (log_partition = $3 and log_offset > $4)) \
             order by log_partition, log_offset limit $5",
        );
        static OUTBOX: Statement = Statement::new(
            "select event_id, headers, body, seq, case when sealed then 1 else 0 end, topic \
             from chapar.outbox o where topic = any($1) and written_at >= $2 and seq > $3 \
             and not exists (select 1 from chapar.log l where l.event_id = o.event_id) \
             order by seq limit $4",
        );
        let more = |rows: &[Row]| i64::try_from(rows.len()).is_ok_and(|count| count == limit);
        match cursor.0 {
            Stretch::Log(partition, offset) => {
                let args = vec![
                    topics.to_vec().into(),
                    since.into(),
                    partition.into(),
                    offset.into(),
                    limit.into(),
                ];
                let rows = self.0.query(&LOG, args).await?;
                let next = match rows.last() {
                    Some(last) if more(&rows) => Stretch::Log(last.get(3)?, last.get(4)?),
                    _ => Stretch::Outbox(-1),
                };
                let events = rows.iter().map(|row| kept(row, true)).collect::<Result<_, _>>()?;
                Ok((events, KeptCursor(next)))
            }
            Stretch::Outbox(after) => {
                let args = vec![topics.to_vec().into(), since.into(), after.into(), limit.into()];
                let rows = self.0.query(&OUTBOX, args).await?;
                let next = match rows.last() {
                    Some(last) if more(&rows) => Stretch::Outbox(last.get(3)?),
                    _ => Stretch::End,
                };
                let events = rows.iter().map(|row| kept(row, row.get::<i64>(4)? == 1));
                Ok((events.collect::<Result<_, _>>()?, KeptCursor(next)))
            }
            Stretch::End => Ok((Vec::new(), cursor)),
        }
    }
}

fn kept(row: &Row, sealed: bool) -> Result<KeptEvent, StoreError> {
    let headers: String = row.get(1)?;
    Ok(KeptEvent {
        event_id: row.get(0)?,
        topic: row.get(5)?,
        // A draft has facts in place of headers.
        headers: if sealed { from_json_pairs(&headers) } else { Headers::new() },
        body: row.get(2)?,
        sealed,
    })
}
