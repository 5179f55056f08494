//! Reading the outbox by a cursor: new rows, or those of a republish request.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use chapar_core::port::{Chunk, OutboxDraft, OutboxRow, Track, Tried};
use chapar_core::{Headers, Id};
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::cursor::{At, Line, Place, Window};
use crate::outbox::republish;
use crate::statement::Statement;
use crate::store::Store;
use crate::tables::Tables;
use crate::value::Row;

/// A chunk ends after this many bytes, whatever the number of rows.
const MOST_BYTES: usize = 4 << 20;
/// Rows with more bytes of body and headers are left out of the answer and fetched by themselves, as
/// many as the chunk takes. A chunk of small rows has none, and pays one comparison for each row.
const LARGE: i64 = 16 << 10;

pub(super) async fn read(
    store: &Store,
    life: &str,
    tracks: &[Track],
    limit: usize,
) -> Result<Chunk, StoreError> {
    let mut chunk = match store.relay_connection().await? {
        Some(mut conn) => on_postgres(&mut conn, life, tracks, limit).await?,
        None => on_sqlite(store, tracks, limit).await?,
    };
    join_equal(&mut chunk.tracks);
    Ok(chunk)
}

/// Tracks at the same position continue as one.
fn join_equal(tracks: &mut Vec<Track>) {
    let mut joined: Vec<Track> = Vec::with_capacity(tracks.len());
    for track in tracks.drain(..) {
        match joined.iter_mut().find(|other| other.cursor == track.cursor) {
            Some(other) => {
                other.shards.extend(track.shards);
                other.version += 1;
            }
            None => joined.push(track),
        }
    }
    *tracks = joined;
}

fn moved(track: &Track, mut place: Place) -> Track {
    let cursor = place.to_cursor();
    let version = track.version + i64::from(cursor != track.cursor);
    let republishing = place.requests().republishing();
    Track { id: track.id, version, shards: track.shards.clone(), cursor, republishing }
}

async fn on_postgres(
    conn: &mut PgConnection,
    life: &str,
    tracks: &[Track],
    limit: usize,
) -> Result<Chunk, StoreError> {
    let mut rows: Vec<OutboxRow> = Vec::new();
    let mut next = Vec::with_capacity(tracks.len());
    let (mut room, mut bytes, mut any_parked) = (limit, 0, false);
    let mut places = Vec::with_capacity(tracks.len());
    let mut opened: Option<Window> = None;
    for track in tracks {
        let at = At::parse(&track.cursor)?;
        let shards: Vec<i16> = track.shards.iter().map(|shard| *shard as i16).collect();
        if at.window.is_none() && opened.is_none() && at.requests.current.is_none() {
            opened = open(conn, life, &at, &shards).await?;
        }
        places.push((track, at, shards));
    }
    for (track, mut at, shards) in places {
        if at.requests.current.is_some() {
            if room > 0 && bytes <= MOST_BYTES {
                let mut place = Place::Postgres(Box::new(at.clone()));
                let again = again(&mut Conn::Postgres(&mut *conn), track, &mut place, room).await?;
                at.requests = *place.requests();
                room -= again.len();
                bytes += again.iter().map(OutboxRow::size).sum::<usize>();
                rows.extend(again);
            }
            next.push((track, at));
            continue;
        }
        // One window for all tracks without one brings them to the same position.
        if at.window.is_none() && opened.is_some() {
            at.window.clone_from(&opened);
            at.late = Some(late(conn, &at).await?);
        }
        if let Some(window) = &at.window
            && room > 0
        {
            let mut read = window_rows(conn, life, &at, window, &shards, room).await?;
            let all = read.len() < room;
            let cut = cut(&mut read, &mut bytes)?;
            let mut large = large_parts(conn, &read).await?;
            for row in read {
                let (row, parked) = postgres_row(&row, &mut large)?;
                at.after = row.seq;
                any_parked |= parked;
                room -= 1;
                rows.push(row);
            }
            if all && !cut {
                at.close();
            }
        }
        next.push((track, at));
    }
    share_floors(&mut next);
    let next =
        next.into_iter().map(|(track, at)| moved(track, Place::Postgres(Box::new(at)))).collect();
    if any_parked {
        const BEHIND: &str = "select distinct ordering_key from chapar.outbox_parked \
             where ordering_key = any($1)";
        let keys: Vec<&str> = rows.iter().filter_map(|row| row.key.as_deref()).collect();
        let behind: Vec<String> =
            sqlx::query_scalar(BEHIND).bind(keys).fetch_all(&mut *conn).await?;
        mark_behind(&mut rows, &behind.into_iter().collect());
    }
    Ok(Chunk { rows, tracks: next })
}

/// Keeps as many rows as a chunk takes, and at least one; returns whether any were left out.
fn cut(rows: &mut Vec<PgRow>, bytes: &mut usize) -> Result<bool, StoreError> {
    for n in 0..rows.len() {
        if *bytes > MOST_BYTES {
            rows.truncate(n);
            return Ok(true);
        }
        let size: i64 = rows[n].try_get_unchecked(10)?;
        *bytes += usize::try_from(size).unwrap_or(0) + 256;
    }
    Ok(false)
}

/// Headers and body of the large rows, by number.
type LargeParts = HashMap<i64, (String, Vec<u8>)>;

async fn large_parts(conn: &mut PgConnection, rows: &[PgRow]) -> Result<LargeParts, StoreError> {
    const PARTS: &str = "select seq, headers, body from chapar.outbox where seq = any($1)";
    let mut large: Vec<i64> = Vec::new();
    for row in rows {
        if row.try_get_unchecked::<i64, _>(10)? > LARGE {
            large.push(row.try_get_unchecked(0)?);
        }
    }
    if large.is_empty() {
        return Ok(HashMap::new());
    }
    let parts = sqlx::query(PARTS).bind(large).fetch_all(conn).await?;
    parts.iter().map(|row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?)))).collect()
}

/// Tracks at the same position may have different floors: the lowest is right for all.
fn share_floors(places: &mut [(&Track, At)]) {
    for n in 1..places.len() {
        let (before, rest) = places.split_at_mut(n);
        let (_, at) = &mut rest[0];
        for (_, other) in before {
            if at.is_where(other) && at.floor > other.floor {
                at.take_floor(other);
            } else if at.is_where(other) {
                other.take_floor(at);
            }
        }
    }
}

/// The next rows of a republish request.
async fn again(
    conn: &mut Conn<'_>,
    track: &Track,
    place: &mut Place,
    room: usize,
) -> Result<Vec<OutboxRow>, StoreError> {
    let shards = track.shards.iter().map(|shard| i64::from(*shard)).collect();
    republish::read(conn, place, shards, room, MOST_BYTES).await
}

fn mark_behind(rows: &mut [OutboxRow], keys: &HashSet<String>) {
    for row in rows.iter_mut().filter(|row| row.republish.is_none()) {
        row.behind = row.key.as_ref().is_some_and(|key| keys.contains(key));
    }
}

async fn open(
    conn: &mut PgConnection,
    life: &str,
    at: &At,
    shards: &[i16],
) -> Result<Option<Window>, StoreError> {
    const OPEN: &str = "select seq, xid::text, snapshot::text, top \
         from chapar.open_window($1::text::pg_snapshot, $2::text::xid8, $3, $4, $5, $6)";
    let opened = sqlx::query(OPEN)
        .bind(&at.seen)
        .bind(at.seen_xid.to_string())
        .bind(at.seen_seq)
        .bind(at.floor)
        .bind(shards)
        .bind(life)
        .fetch_optional(conn)
        .await?;
    let Some(row) = opened else { return Ok(None) };
    let wrong = |_| StoreError::Cell { column: 1, expected: "a transaction's id" };
    let xid: String = row.try_get(1)?;
    Ok(Some(Window {
        upto_seq: row.try_get(0)?,
        upto_xid: xid.parse().map_err(wrong)?,
        upto: row.try_get(2)?,
        upto_top: row.try_get(3)?,
    }))
}

/// Where the rows are that committed late. The statement has to run after the window's snapshot.
async fn late(conn: &mut PgConnection, at: &At) -> Result<(i64, i64), StoreError> {
    const SPAN: &str = "select after, upto \
         from chapar.late_span($1::text::pg_snapshot, $2::text::xid8, $3, $4)";
    if !at.may_come_late() {
        return Ok((0, 0));
    }
    let row = sqlx::query(SPAN)
        .bind(&at.seen)
        .bind(at.seen_xid.to_string())
        .bind(at.seen_seq)
        .bind(at.floor)
        .fetch_one(conn)
        .await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

async fn window_rows(
    conn: &mut PgConnection,
    life: &str,
    at: &At,
    window: &Window,
    shards: &[i16],
    limit: usize,
) -> Result<Vec<PgRow>, StoreError> {
    // Two ranges, each by its own index: numbers that were not given out at the last read, and
    // the transactions that were running then. A snapshot's text is parsed in a sub-select: once,
    // and not for each row.
    macro_rules! new {
        () => {
            "(select * from chapar.outbox o where o.seq > $1 \
                 and not pg_visible_in_snapshot(o.xid, (select $2::text::pg_snapshot)) \
                 and pg_visible_in_snapshot(o.xid, (select $3::text::pg_snapshot)) \
                 and o.shard = any($4) order by o.seq limit $5)"
        };
    }
    macro_rules! rows {
        ($from:expr) => {
            concat!(
                "select o.seq, o.event_id, o.topic, o.tenant, o.ordering_key, \
                     case when o.size <= 16384 then o.headers end, \
                     case when o.size <= 16384 then o.body end, o.written_at, case when o.sealed then null else json_build_array( \
                     o.aggregate_type, o.aggregate_id, o.idempotency_key, o.correlation_id, \
                     o.causation_id)::text end, exists (select from chapar.outbox_parked), o.size \
                 from (select o.*, octet_length(o.body)::bigint + octet_length(o.headers) as size \
                     from (",
                $from,
                ") o) o where (select chapar.check_life($6)) order by o.seq limit $5"
            )
        };
    }
    const NEW: &str = rows!(new!());
    const NEW_AND_LATE: &str = rows!(concat!(
        new!(),
        " union all \
         (select * from chapar.outbox o where o.seq > $7 and o.seq <= $8 \
             and (o.xid = any((select array(select pg_snapshot_xip($2::text::pg_snapshot)))::xid8[]) \
                 or (o.xid >= (select pg_snapshot_xmax($2::text::pg_snapshot)) \
                     and o.xid < (select $9::text::xid8))) \
             and pg_visible_in_snapshot(o.xid, (select $3::text::pg_snapshot)) \
             and o.shard = any($4) order by o.seq limit $5)"
    ));
    // Without late rows there is half as much to plan for each chunk.
    let (after, upto) = at.late();
    let late = after < upto;
    let mut query = sqlx::query(if late { NEW_AND_LATE } else { NEW })
        .bind(at.seen_seq.max(at.after))
        .bind(&at.seen)
        .bind(&window.upto)
        .bind(shards)
        .bind(limit as i64)
        .bind(life);
    if late {
        query = query.bind(after).bind(upto).bind(at.seen_xid.to_string());
    }
    Ok(query.fetch_all(conn).await?)
}

/// Unchecked: looking up the type of each column costs a third of the time of a read.
fn postgres_row(row: &PgRow, large: &mut LargeParts) -> Result<(OutboxRow, bool), StoreError> {
    let written_at: jiff_sqlx::Timestamp = row.try_get_unchecked(7)?;
    let seq: i64 = row.try_get_unchecked(0)?;
    let large = large.remove(&seq);
    let headers: Option<&str> = match &large {
        Some((headers, _)) => Some(headers),
        None => row.try_get_unchecked(5)?,
    };
    let headers = headers.ok_or(StoreError::Cell { column: 5, expected: "headers" })?;
    let texts =
        Texts { event_id: row.try_get_unchecked(1)?, headers, draft: row.try_get_unchecked(8)? };
    let (event_id, headers, draft, unreadable) = texts.read(seq);
    let body: Vec<u8> = match large {
        Some((_, body)) => body,
        None => row.try_get_unchecked(6)?,
    };
    let parsed = OutboxRow {
        seq,
        event_id,
        topic: row.try_get_unchecked(2)?,
        tenant: row.try_get_unchecked(3)?,
        key: row.try_get_unchecked(4)?,
        draft,
        headers,
        body: Bytes::from(body),
        behind: false,
        tried: Tried::default(),
        stamp: None,
        republish: None,
        unreadable,
        written_at: written_at.to_jiff(),
    };
    Ok((parsed, row.try_get_unchecked(9)?))
}

async fn on_sqlite(store: &Store, tracks: &[Track], limit: usize) -> Result<Chunk, StoreError> {
    static READ: Statement = Statement::new(
        "select seq, event_id, topic, tenant, ordering_key, headers, body, written_at, \
         case when sealed then null else json_array(aggregate_type, aggregate_id, \
         idempotency_key, correlation_id, causation_id) end, \
         exists (select 1 from chapar.outbox_parked p where p.ordering_key = o.ordering_key) \
         from chapar.outbox o where seq > $1 and shard = any($2) order by seq limit $3",
    );
    static LAST: Statement = Statement::new("select coalesce(max(seq), 0) from chapar.outbox");
    let mut tx = store.begin_read().await?;
    let last = tx.conn().query(&LAST, vec![]).await?;
    let last: i64 = last.first().map_or(Ok(0), |row| row.get(0))?;
    let mut rows = Vec::new();
    let mut next = Vec::with_capacity(tracks.len());
    let mut bytes = 0;
    for track in tracks {
        let mut at = Line::parse(&track.cursor)?;
        let room = limit - rows.len();
        if at.requests.current.is_some() {
            let mut place = Place::Sqlite(at);
            if room > 0 && bytes <= MOST_BYTES {
                let again = again(&mut tx.conn(), track, &mut place, room).await?;
                bytes += again.iter().map(OutboxRow::size).sum::<usize>();
                rows.extend(again);
            }
            next.push(moved(track, place));
            continue;
        }
        if at.after < last && room > 0 {
            let shards: Vec<i64> = track.shards.iter().map(|shard| i64::from(*shard)).collect();
            let args = vec![at.after.into(), shards.into(), (room as i64).into()];
            let read = tx.conn().query(&READ, args).await?;
            let mut all = read.len() < room;
            for row in &read {
                if bytes > MOST_BYTES {
                    all = false;
                    break;
                }
                let mut read = common_row(row)?;
                read.behind = row.get(9)?;
                bytes += read.size();
                at.after = read.seq;
                rows.push(read);
            }
            // The transaction reads one snapshot: no row up to `last` was missed.
            if all {
                at.after = at.after.max(last);
            }
        }
        next.push(moved(track, Place::Sqlite(at)));
    }
    tx.rollback().await?;
    Ok(Chunk { rows, tracks: next })
}

/// A row of either database: `seq, event_id, topic, tenant, ordering_key, headers, body,
/// written_at, draft`.
pub(super) fn common_row(row: &Row) -> Result<OutboxRow, StoreError> {
    let (event_id, headers): (String, String) = (row.get(1)?, row.get(5)?);
    let draft: Option<String> = row.get(8)?;
    let seq = row.get(0)?;
    let texts = Texts { event_id: &event_id, headers: &headers, draft: draft.as_deref() };
    let (event_id, headers, draft, unreadable) = texts.read(seq);
    Ok(OutboxRow {
        seq,
        event_id,
        topic: row.get(2)?,
        tenant: row.get(3)?,
        key: row.get(4)?,
        draft,
        headers,
        body: row.get(6)?,
        behind: false,
        tried: Tried::default(),
        stamp: None,
        republish: None,
        unreadable,
        written_at: row.get(7)?,
    })
}

/// The columns whose text has a form, which anyone who may append could miss.
struct Texts<'a> {
    event_id: &'a str,
    headers: &'a str,
    draft: Option<&'a str>,
}

type Parts = (Id, Headers, Option<Box<OutboxDraft>>, Option<String>);

impl Texts<'_> {
    /// Their values, and what is wrong with them.
    fn read(&self, seq: i64) -> Parts {
        let (mut headers, mut draft, mut wrong) = (Headers::new(), None, None);
        match self.draft {
            Some(text) => match to_draft(text, self.headers) {
                Ok(read) => draft = Some(read),
                Err(error) => wrong = Some(error.to_string()),
            },
            None => match serde_json::from_str(self.headers) {
                Ok(read) => headers = read,
                Err(error) => wrong = Some(format!("its headers cannot be read: {error}")),
            },
        }
        let id = self.event_id.parse().unwrap_or_else(|error| {
            wrong = Some(format!("its event id cannot be used: {error}"));
            Id::Foreign(format!("row {seq} of the outbox").into())
        });
        (id, headers, draft, wrong)
    }
}

fn to_draft(draft: &str, facts: &str) -> Result<Box<OutboxDraft>, StoreError> {
    type Fields = (String, String, Option<String>, String, Option<String>);
    let (aggregate_type, aggregate_id, idempotency_key, correlation_id, causation_id): Fields =
        serde_json::from_str(draft)
            .map_err(|_| StoreError::Cell { column: 8, expected: "a draft" })?;
    Ok(Box::new(OutboxDraft {
        aggregate_type,
        aggregate_id,
        idempotency_key,
        correlation_id,
        causation_id,
        facts: facts.to_owned(),
    }))
}
