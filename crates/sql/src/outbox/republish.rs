//! Republishing, the relay's side: requests are started and ended with the lease, their rows are
//! read before new ones, and the progress is part of the cursor.

use std::collections::{BTreeMap, HashMap};

use chapar_core::machine::stamps::Stamp;
use chapar_core::port::{OutboxRow, Republished, Track};
use jiff::Timestamp;
use serde_json::json;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::cursor::{Place, Republishing};
use crate::outbox::read::common_row;
use crate::statement::Statement;
use crate::store::Backend;

/// A request that is neither done nor cancelled.
struct Open {
    id: i64,
    from: i64,
    since: i64,
}

async fn open_requests(conn: &mut Conn<'_>) -> Result<Vec<Open>, StoreError> {
    static OPEN: Statement = Statement::new(
        "select id, from_seq, since from chapar.republish_requests where ended_at is null \
         order by id",
    );
    let rows = conn.query(&OPEN, vec![]).await?;
    let open = rows.iter().map(|row| {
        let since: Timestamp = row.get(2)?;
        Ok(Open { id: row.get(0)?, from: row.get(1)?, since: since.as_microsecond() })
    });
    open.collect()
}

/// Drops a request that was cancelled, and starts the next one that the track has not seen.
fn update(place: &mut Place, open: &[Open]) {
    let top = place.top();
    let requests = place.requests();
    let started = requests.started;
    requests.current.take_if(|_| open.iter().all(|request| request.id != started));
    if requests.current.is_some() {
        return;
    }
    if let Some(next) = open.iter().find(|request| request.id > started) {
        requests.started = next.id;
        requests.current =
            Some(Republishing { after: 0, from: next.from, upto: top, since: next.since });
    }
}

/// Brings the tracks of a lease up to date with the requests. Nothing of them is in flight.
pub(super) async fn start_and_drop(
    conn: &mut Conn<'_>,
    tracks: &mut [Track],
) -> Result<(), StoreError> {
    static WRITE: Statement =
        Statement::new("insert into chapar.tracks (track, version, cursor) values ($1, $2, $3)");
    static REPLACE: Statement =
        Statement::new("delete from chapar.tracks where track = $1 and version < $2");
    let open = open_requests(conn).await?;
    for track in tracks {
        let mut place = Place::parse(conn.backend(), &track.cursor)?;
        let before = place.clone();
        update(&mut place, &open);
        if place == before {
            continue;
        }
        track.version += 1;
        track.cursor = place.to_cursor();
        track.republishing = place.requests().republishing();
        let args = vec![track.id.into(), track.version.into(), (&track.cursor.0).into()];
        conn.run(&WRITE, args).await?;
        conn.run(&REPLACE, vec![track.id.into(), track.version.into()]).await?;
    }
    Ok(())
}

/// Whether [`start_and_drop`] would change anything.
pub(super) async fn has_work(conn: &mut Conn<'_>, tracks: &[Track]) -> Result<bool, StoreError> {
    let open = open_requests(conn).await?;
    for track in tracks {
        let mut place = Place::parse(conn.backend(), &track.cursor)?;
        let before = place.clone();
        update(&mut place, &open);
        if place != before {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The share of a request that each shard has done, from 0 to 1.
pub(super) async fn shares(conn: &mut Conn<'_>, request: i64) -> Result<Vec<f64>, StoreError> {
    static CURSORS: Statement = Statement::new(
        "select t.cursor from chapar.shards s join chapar.tracks t on t.track = s.track \
         and t.version = (select max(version) from chapar.tracks l where l.track = s.track)",
    );
    let backend = conn.backend();
    let mut shares = Vec::new();
    for row in conn.query(&CURSORS, vec![]).await? {
        let mut place = Place::parse(backend, &chapar_core::port::Cursor(row.get(0)?))?;
        let requests = place.requests();
        shares.push(match &requests.current {
            _ if requests.started < request => 0.0,
            // A finished track has no current request: the last row alone does not finish it.
            Some(current) if requests.started == request => current.share().min(0.999),
            _ => 1.0,
        });
    }
    Ok(shares)
}

/// Ends the requests that all shards are done with.
pub(super) async fn end_requests(conn: &mut Conn<'_>) -> Result<(), StoreError> {
    static END: Statement = Statement::new(
        "update chapar.republish_requests set ended_at = clock_timestamp() \
         where id = $1 and ended_at is null",
    );
    for Open { id, .. } in open_requests(conn).await? {
        if shares(conn, id).await?.iter().all(|share| *share >= 1.0) {
            conn.run(&END, vec![id.into()]).await?;
        }
    }
    Ok(())
}

/// Notes about once a minute up to which row everything is published or parked, so that a request
/// finds what was published since a time.
pub(super) async fn note_relayed(conn: &mut Conn<'_>) -> Result<(), StoreError> {
    const POSTGRES: &str = "insert into chapar.relayed (floor) \
         select min((cursor::jsonb ->> 'floor')::bigint) from chapar.tracks \
         where not exists (select from chapar.relayed \
             where at > clock_timestamp() - interval '1 minute') \
         having count(*) > 0 on conflict do nothing";
    static SQLITE: Statement = Statement::new(
        "insert into chapar.relayed (at, floor) \
         select clock_timestamp(), min(cursor ->> 'after') from chapar.tracks \
         where not exists (select 1 from chapar.relayed \
             where at > clock_timestamp() - 60000000) \
         having count(*) > 0 on conflict do nothing",
    );
    match conn.backend() {
        Backend::Postgres => conn.execute(POSTGRES, vec![]).await?,
        Backend::Sqlite => conn.run(&SQLITE, vec![]).await?,
    };
    Ok(())
}

/// Adds what a checkpoint has republished to its requests.
pub(super) async fn count(
    conn: &mut Conn<'_>,
    republished: &BTreeMap<i64, Republished>,
) -> Result<(), StoreError> {
    static COUNT: Statement = Statement::new(
        "update chapar.republish_requests set published = published + $2, parked = parked + $3 \
         where id = $1",
    );
    for (request, Republished { published, parked }) in republished {
        let args = vec![(*request).into(), (*published as i64).into(), (*parked as i64).into()];
        conn.run(&COUNT, args).await?;
    }
    Ok(())
}

/// One read looks at no more numbers than this, however few of them are in the shards.
const SPAN: i64 = 100_000;

macro_rules! columns {
    () => {
        "select o.seq, o.event_id, o.topic, o.tenant, o.ordering_key, o.headers, o.body, \
             o.written_at, case when o.sealed then null else json_build_array(o.aggregate_type, \
             o.aggregate_id, o.idempotency_key, o.correlation_id, o.causation_id)::text end, \
             exists (select 1 from chapar.outbox_parked b \
                 where b.ordering_key = o.ordering_key and b.seq < o.seq) "
    };
}

macro_rules! all_rows {
    () => {
        "(select * from chapar.outbox_held union all select * from chapar.outbox) o "
    };
}

macro_rules! not_parked {
    () => {
        " and not exists (select 1 from chapar.outbox_parked p where p.seq = o.seq) "
    };
}

macro_rules! not_dropped {
    () => {
        " and not exists (select 1 from chapar.outbox_unparked u where u.seq = o.seq \
             and u.dropped) "
    };
}

/// Reads the next rows of the request that `place` is at, and moves `place` behind them. Rows
/// that wait, are parked or were dropped are left out.
pub(super) async fn read(
    conn: &mut Conn<'_>,
    place: &mut Place,
    shards: Vec<i64>,
    limit: usize,
    most_bytes: usize,
) -> Result<Vec<OutboxRow>, StoreError> {
    let request = place.requests().started;
    let Some(mut at) = place.requests().current else { return Ok(Vec::new()) };
    let parked_before = at.after < at.from.min(at.upto);
    let (found, end) = match parked_before {
        true => (unparked(conn, &at, shards, limit).await?, at.from.min(at.upto)),
        false => {
            let end = at.upto.min(at.after.max(at.from) + SPAN);
            (published(conn, place, &at, end, shards, limit).await?, end)
        }
    };
    let mut whole = found.len() < limit;
    let (mut rows, mut bytes) = (Vec::with_capacity(found.len()), 0);
    for row in &found {
        if bytes > most_bytes {
            whole = false;
            break;
        }
        let mut read = common_row(row)?;
        read.behind = row.get(9)?;
        read.republish = Some(request);
        bytes += read.size();
        at.after = read.seq;
        rows.push(read);
    }
    if whole {
        at.after = end;
    }
    place.requests().current = (at.after < at.upto).then_some(at);
    stamp(conn, &mut rows).await?;
    Ok(rows)
}

/// Rows that were written long before, and were published since the request's time because they
/// had been parked.
async fn unparked(
    conn: &mut Conn<'_>,
    at: &Republishing,
    shards: Vec<i64>,
    limit: usize,
) -> Result<Vec<crate::value::Row>, StoreError> {
    static ROWS: Statement = Statement::new(concat!(
        columns!(),
        "from chapar.outbox_unparked l join ",
        all_rows!(),
        "on o.seq = l.seq where l.seq > $1 and l.seq <= $2 and l.at >= $3 and not l.dropped \
             and o.shard = any($4)",
        not_parked!(),
        "order by o.seq limit $5"
    ));
    let since = Timestamp::from_microsecond(at.since).unwrap_or(Timestamp::UNIX_EPOCH);
    let upto = at.from.min(at.upto);
    let args =
        vec![at.after.into(), upto.into(), since.into(), shards.into(), (limit as i64).into()];
    conn.query(&ROWS, args).await
}

/// All rows up to `end` that lie behind the position of the track.
async fn published(
    conn: &mut Conn<'_>,
    place: &Place,
    at: &Republishing,
    end: i64,
    shards: Vec<i64>,
    limit: usize,
) -> Result<Vec<crate::value::Row>, StoreError> {
    const POSTGRES: &str = concat!(
        columns!(),
        "from ",
        all_rows!(),
        "where o.seq > $1 and o.seq <= $2 and o.shard = any($3) \
             and (o.seq <= $8 \
                 or pg_visible_in_snapshot(o.xid, (select $5::text::pg_snapshot)) \
                 or (o.seq <= $6 \
                     and pg_visible_in_snapshot(o.xid, (select $7::text::pg_snapshot))))",
        not_parked!(),
        not_dropped!(),
        "order by o.seq limit $4"
    );
    static SQLITE: Statement = Statement::new(concat!(
        columns!(),
        "from ",
        all_rows!(),
        "where o.seq > $1 and o.seq <= $2 and o.shard = any($3)",
        not_parked!(),
        not_dropped!(),
        "order by o.seq limit $4"
    ));
    let after = at.after.max(at.from);
    let mut args = vec![after.into(), end.into(), shards.into(), (limit as i64).into()];
    match place {
        Place::Sqlite(_) => conn.query(&SQLITE, args).await,
        Place::Postgres(at) => {
            // No row is visible in an empty snapshot.
            let window = at.window.as_ref().map_or("1:1:", |window| &window.upto);
            // All rows up to the floor are done, also those with ids of another cluster.
            args.extend([(&at.seen).into(), at.after.into(), window.into(), at.floor.into()]);
            conn.fetch(POSTGRES, args).await
        }
    }
}

/// Gives rows the stamps of their first publication: all marks of their keys below their numbers.
/// A row that has no mark itself was published without a stamp.
async fn stamp(conn: &mut Conn<'_>, rows: &mut [OutboxRow]) -> Result<(), StoreError> {
    macro_rules! marks {
        ($rows:literal) => {
            concat!(
                "select r.seq, m.topic, case when m.seq < r.seq then m.seq else \
                     (select max(e.seq) from chapar.earlier_marks e \
                         where e.ordering_key = m.ordering_key and e.topic = m.topic \
                         and e.seq < r.seq) end, \
                     m.topic = r.topic and (m.seq = r.seq or exists (select 1 \
                         from chapar.earlier_marks e where e.ordering_key = m.ordering_key \
                         and e.topic = m.topic and e.seq = r.seq)) \
                 from (",
                $rows,
                ") r join chapar.key_marks m on m.ordering_key = r.key"
            )
        };
    }
    const POSTGRES: &str = marks!(
        "select (e ->> 0)::bigint as seq, e ->> 1 as key, e ->> 2 as topic \
         from jsonb_array_elements($1::text::jsonb) e"
    );
    static SQLITE: Statement = Statement::new(marks!(
        "select e.value ->> 0 as seq, e.value ->> 1 as key, e.value ->> 2 as topic \
         from json_each($1) e"
    ));
    let keyed = rows.iter().filter(|row| row.key.is_some());
    let asked = keyed.map(|row| json!([row.seq, row.key, row.topic]));
    let asked = serde_json::Value::from_iter(asked).to_string();
    let found = match conn.backend() {
        Backend::Postgres => conn.fetch(POSTGRES, vec![asked.into()]).await?,
        Backend::Sqlite => conn.query(&SQLITE, vec![asked.into()]).await?,
    };
    let mut stamped: HashMap<i64, (bool, BTreeMap<String, i64>)> = HashMap::new();
    for row in &found {
        let (marked, after) = stamped.entry(row.get(0)?).or_default();
        *marked |= row.get::<bool>(3)?;
        if let Some(seq) = row.get::<Option<i64>>(2)? {
            after.insert(row.get(1)?, seq);
        }
    }
    for row in rows {
        let Some((true, after)) = stamped.remove(&row.seq) else { continue };
        row.stamp = Some(Stamp::write(row.seq, &Vec::from_iter(after)));
    }
    Ok(())
}
