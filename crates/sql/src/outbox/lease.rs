//! Leases: relays share the shards equally, and an expired relay loses its own.

use std::collections::BTreeMap;
use std::time::Duration;

use chapar_core::port::{Cursor, Lease, Renewed, Shard, Track};

use crate::append::SHARDS;
use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::cursor::Place;
use crate::outbox::{micros, republish};
use crate::statement::Statement;
use crate::store::Backend;

pub(super) async fn lease(
    conn: &mut Conn<'_>,
    owner: &str,
    epoch: Option<i64>,
    ttl: Duration,
    life: u32,
) -> Result<Lease, StoreError> {
    static JOIN: Statement = Statement::new(
        "insert into chapar.relays (owner, expires_at) \
         values ($1, clock_timestamp() + $2 * interval '1 microsecond') returning epoch",
    );
    static DEAD: Statement = Statement::new(
        "select epoch from chapar.relays where expires_at <= clock_timestamp() and epoch <> $1 \
         order by epoch for update skip locked",
    );
    static HELD: Statement =
        Statement::new("select shard, track from chapar.shards where epoch = $1 order by shard");
    static FREE: Statement = Statement::new(
        "select shard, track from chapar.shards where epoch is null order by shard limit $1 \
         for update skip locked",
    );
    static GIVE_BACK: Statement =
        Statement::new("update chapar.shards set epoch = null, track = $1 where shard = any($2)");
    static TAKE: Statement =
        Statement::new("update chapar.shards set epoch = $3, track = $1 where shard = any($2)");
    let kept = match epoch {
        Some(epoch) if prolong(conn, epoch, ttl).await? => Some(epoch),
        _ => None,
    };
    let epoch = match kept {
        Some(epoch) => epoch,
        None => {
            let args = vec![owner.into(), micros(ttl).into()];
            let rows = conn.query(&JOIN, args).await?;
            rows.first().ok_or(StoreError::Cell { column: 0, expected: "an epoch" })?.get(0)?
        }
    };
    let dead = conn.query(&DEAD, vec![epoch.into()]).await?;
    let dead: Vec<i64> = dead.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?;
    bury(conn, dead).await?;
    let share = share(conn).await?;
    let held = shards(conn.query(&HELD, vec![epoch.into()]).await?)?;
    if held.len() > share {
        for (track, shards) in by_track(&held[share..]) {
            let copy = copy_track(conn, track).await?;
            conn.run(&GIVE_BACK, vec![copy.into(), shards.into()]).await?;
        }
    } else if held.len() < share {
        let missing = (share - held.len()) as i64;
        let free = shards(conn.query(&FREE, vec![missing.into()]).await?)?;
        for (track, shards) in by_track(&free) {
            let copy = copy_track(conn, track).await?;
            conn.run(&TAKE, vec![copy.into(), shards.into(), epoch.into()]).await?;
        }
    }
    forget_tracks(conn).await?;
    let mut tracks = tracks(conn, epoch).await?;
    republish::start_and_drop(conn, &mut tracks).await?;
    Ok(Lease { epoch, tracks, life })
}

pub(super) async fn renew(
    conn: &mut Conn<'_>,
    epoch: i64,
    ttl: Duration,
) -> Result<Option<Renewed>, StoreError> {
    static STANDING: Statement = Statement::new(
        "select (select count(*) from chapar.relays where expires_at <= clock_timestamp()), \
         (select count(*) from chapar.shards where epoch = $1), \
         (select count(*) from chapar.shards where epoch is null)",
    );
    if !prolong(conn, epoch, ttl).await? {
        return Ok(None);
    }
    let share = share(conn).await? as i64;
    let rows = conn.query(&STANDING, vec![epoch.into()]).await?;
    let row = rows.first().ok_or(StoreError::Cell { column: 0, expected: "counts" })?;
    let (dead, held, free): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    republish::note_relayed(conn).await?;
    republish::end_requests(conn).await?;
    let tracks = tracks(conn, epoch).await?;
    let unbalanced = dead > 0
        || held > share
        || (held < share && free > 0)
        || republish::has_work(conn, &tracks).await?;
    Ok(Some(if unbalanced { Renewed::Unbalanced } else { Renewed::Held }))
}

/// Removes relays and frees their shards. A relay that is still running finds its row gone.
pub(super) async fn bury(conn: &mut Conn<'_>, epochs: Vec<i64>) -> Result<(), StoreError> {
    static BURY: Statement = Statement::new("delete from chapar.relays where epoch = any($1)");
    static FREE: Statement =
        Statement::new("update chapar.shards set epoch = null where epoch = any($1)");
    if !epochs.is_empty() {
        conn.run(&BURY, vec![epochs.clone().into()]).await?;
        conn.run(&FREE, vec![epochs.into()]).await?;
    }
    Ok(())
}

/// Deletes tracks without shards, and replaced checkpoints whose relay died before it could delete
/// them. Either would keep the floor from rising.
pub(super) async fn forget_tracks(conn: &mut Conn<'_>) -> Result<(), StoreError> {
    static FORGET: Statement = Statement::new(
        "delete from chapar.tracks where track not in (select track from chapar.shards)",
    );
    static REPLACED: Statement = Statement::new(
        "delete from chapar.tracks where exists (select 1 from chapar.tracks l \
         where l.track = chapar.tracks.track and l.version > chapar.tracks.version)",
    );
    conn.run(&FORGET, vec![]).await?;
    conn.run(&REPLACED, vec![]).await?;
    Ok(())
}

async fn prolong(conn: &mut Conn<'_>, epoch: i64, ttl: Duration) -> Result<bool, StoreError> {
    static PROLONG: Statement = Statement::new(
        "update chapar.relays set expires_at = clock_timestamp() + $2 * interval '1 microsecond' \
         where epoch = $1",
    );
    Ok(conn.run(&PROLONG, vec![epoch.into(), micros(ttl).into()]).await? > 0)
}

/// The number of shards for each live relay.
async fn share(conn: &mut Conn<'_>) -> Result<usize, StoreError> {
    static LIVE: Statement =
        Statement::new("select count(*) from chapar.relays where expires_at > clock_timestamp()");
    let rows = conn.query(&LIVE, vec![]).await?;
    let live = rows.first().map_or(Ok(1), |row| row.get::<i64>(0))?.max(1) as usize;
    Ok(usize::from(SHARDS).div_ceil(live))
}

/// A new track at the position of another: two relays never move one cursor.
async fn copy_track(conn: &mut Conn<'_>, track: i64) -> Result<i64, StoreError> {
    const POSTGRES: &str = "insert into chapar.tracks (track, version, cursor) \
         (select nextval('chapar.track_ids'), 1, cursor from chapar.tracks where track = $1 \
         order by version desc limit 1) returning track";
    const SQLITE: &str = "insert into chapar_tracks (track, version, cursor) \
         select (select max(track) + 1 from chapar_tracks), 1, cursor from chapar_tracks \
         where track = $1 order by version desc limit 1 returning track";
    let sql = if conn.backend() == Backend::Postgres { POSTGRES } else { SQLITE };
    let rows = conn.fetch(sql, vec![track.into()]).await?;
    rows.first().ok_or(StoreError::Cell { column: 0, expected: "a track" })?.get(0)
}

async fn tracks(conn: &mut Conn<'_>, epoch: i64) -> Result<Vec<Track>, StoreError> {
    static TRACKS: Statement = Statement::new(
        "select s.shard, s.track, t.version, t.cursor from chapar.shards s join chapar.tracks t \
         on t.track = s.track and t.version = (select max(version) from chapar.tracks l \
             where l.track = s.track) where s.epoch = $1 order by s.track, s.shard",
    );
    let mut tracks: Vec<Track> = Vec::new();
    let backend = conn.backend();
    for row in conn.query(&TRACKS, vec![epoch.into()]).await? {
        let (shard, id) = (row.get::<i64>(0)? as Shard, row.get(1)?);
        match tracks.last_mut() {
            Some(track) if track.id == id => track.shards.push(shard),
            _ => {
                let cursor = Cursor(row.get(3)?);
                let republishing = Place::parse(backend, &cursor)?.requests().republishing();
                let (version, shards) = (row.get(2)?, vec![shard]);
                tracks.push(Track { id, version, shards, cursor, republishing });
            }
        }
    }
    Ok(tracks)
}

fn shards(rows: Vec<crate::value::Row>) -> Result<Vec<(i64, i64)>, StoreError> {
    rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

fn by_track(shards: &[(i64, i64)]) -> BTreeMap<i64, Vec<i64>> {
    let mut tracks: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (shard, track) in shards {
        tracks.entry(*track).or_default().push(*shard);
    }
    tracks
}
