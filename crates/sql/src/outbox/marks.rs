use std::collections::BTreeMap;

use chapar_core::port::{KeyMarks, Track};

use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::cursor::{At, Line, Since};
use crate::statement::Statement;
use crate::store::Backend;
use crate::value::Row;

/// How far the marks of some shards are written, and the key of the row that says so.
type Marked = Option<(String, i64)>;

/// Brings the marks of the tracks' shards up to the tracks.
///
/// The rows know what the marks are; the marks only spare whoever takes over a look at all of
/// them. So they are gathered here, from what was passed since the last time, and a relay need
/// not carry them along.
pub(super) async fn mark(
    conn: &mut Conn<'_>,
    tracks: &[Track],
    topics: &[String],
) -> Result<(), StoreError> {
    static NONE: Statement = Statement::new("delete from chapar.marked where shard = any($1)");
    for track in tracks {
        if topics.is_empty() {
            let shards: Vec<i64> = track.shards.iter().map(|shard| i64::from(*shard)).collect();
            conn.run(&NONE, vec![shards.into()]).await?;
            continue;
        }
        for (marked, shards) in so_far(conn, track).await? {
            match &marked {
                Some((cursor, _)) if *cursor == track.cursor.0 => continue,
                Some((cursor, _)) => gather(conn, cursor, track, &shards, topics).await?,
                // Nothing was stamped so far.
                None => {}
            }
            write(conn, track, shards, marked).await?;
        }
    }
    Ok(())
}

/// The shards of a track by how far their marks are written.
async fn so_far(
    conn: &mut Conn<'_>,
    track: &Track,
) -> Result<BTreeMap<Marked, Vec<i64>>, StoreError> {
    // The latest is found first, however many versions an old snapshot keeps alive.
    const POSTGRES: &str = "select s.shard, m.cursor, m.version from unnest($1) s(shard) \
         left join lateral (select cursor, version from chapar.marked m where m.shard = s.shard \
             order by version desc limit 1) m on true";
    const SQLITE: &str = "select s.value, m.cursor, m.version from json_each($1) s \
         left join chapar_marked m on m.shard = s.value";
    let sql = if conn.backend() == Backend::Postgres { POSTGRES } else { SQLITE };
    let shards: Vec<i64> = track.shards.iter().map(|shard| i64::from(*shard)).collect();
    let mut groups: BTreeMap<Marked, Vec<i64>> = BTreeMap::new();
    for row in conn.fetch(sql, vec![shards.into()]).await? {
        let marked = match (row.get(1)?, row.get(2)?) {
            (Some(cursor), Some(version)) => Some((cursor, version)),
            _ => None,
        };
        groups.entry(marked).or_default().push(row.get(0)?);
    }
    Ok(groups)
}

async fn gather(
    conn: &mut Conn<'_>,
    marked: &str,
    track: &Track,
    shards: &[i64],
    topics: &[String],
) -> Result<(), StoreError> {
    // Numbers that the marks do not cover, and transactions that were running then and have
    // written. More than what was passed since does no harm, as long as all of it was passed.
    // The second part is not looked at when there are none of them, and by them alone otherwise:
    // its upper bound would have the planner read all that lies behind.
    const POSTGRES: &str = "with late as materialized (select array( \
             select chapar.come_late($3::text::pg_snapshot, $4::text::xid8, $10)) as ids) \
         insert into chapar.key_marks (ordering_key, topic, seq) \
         select o.ordering_key, o.topic, max(o.seq) from ( \
         (select o.ordering_key, o.topic, o.seq, o.xid, o.shard from chapar.outbox o \
             where o.seq > $1 and o.seq <= $2) \
         union all \
         (select o.ordering_key, o.topic, o.seq, o.xid, o.shard from chapar.outbox o \
             where (select cardinality(ids) > 0 from late) \
             and o.seq > $10 and o.seq + 0 <= $1 and o.xid = any((select ids from late)::xid8[])) \
         ) o where o.ordering_key is not null and o.shard = any($5) and o.topic = any($6) \
         and (pg_visible_in_snapshot(o.xid, (select $7::text::pg_snapshot)) \
             or (o.seq <= $8 and pg_visible_in_snapshot(o.xid, (select $9::text::pg_snapshot)))) \
         group by 1, 2 order by 1, 2 \
         on conflict (ordering_key, topic) do update set seq = excluded.seq \
         where chapar.key_marks.seq < excluded.seq";
    const SQLITE: &str = "insert into chapar_key_marks (ordering_key, topic, seq) \
         select ordering_key, topic, max(seq) from chapar_outbox \
         where seq > $1 and seq <= $2 and ordering_key is not null \
         and shard in (select value from json_each($3)) \
         and topic in (select value from json_each($4)) group by 1, 2 \
         on conflict (ordering_key, topic) do update set seq = excluded.seq \
         where seq < excluded.seq";
    let topics = topics.to_vec();
    if conn.backend() == Backend::Sqlite {
        let (from, to) = (Line::parse_text(marked)?.after, Line::parse(&track.cursor)?.after);
        let args = vec![from.into(), to.into(), shards.to_vec().into(), topics.into()];
        conn.execute(SQLITE, args).await?;
        return Ok(());
    }
    let at = At::parse(&track.cursor)?;
    let marked = At::parse_text(marked)?;
    let Since { after, running, running_below } = marked.since();
    // Nothing is visible in an empty snapshot.
    let window = at.window.as_ref().map_or("1:1:", |window| &window.upto);
    let args = vec![
        after.into(),
        at.top().into(),
        running.into(),
        running_below.to_string().into(),
        shards.to_vec().into(),
        topics.into(),
        (&at.seen).into(),
        at.after.into(),
        window.into(),
        marked.floor.into(),
    ];
    conn.execute(POSTGRES, args).await?;
    Ok(())
}

async fn write(
    conn: &mut Conn<'_>,
    track: &Track,
    shards: Vec<i64>,
    before: Marked,
) -> Result<(), StoreError> {
    const POSTGRES: &str = "insert into chapar.marked (shard, version, cursor) \
         select shard, $2, $3 from unnest($1) s(shard)";
    const SQLITE: &str = "insert into chapar_marked (shard, version, cursor) \
         select value, $2, $3 from json_each($1)";
    static REPLACE: Statement =
        Statement::new("delete from chapar.marked where shard = any($1) and version = $2");
    if let Some((_, version)) = &before {
        conn.run(&REPLACE, vec![shards.clone().into(), (*version).into()]).await?;
    }
    let version = before.map_or(1, |(_, version)| version + 1);
    let sql = if conn.backend() == Backend::Postgres { POSTGRES } else { SQLITE };
    conn.execute(sql, vec![shards.into(), version.into(), (&track.cursor.0).into()]).await?;
    Ok(())
}

pub(super) async fn marks(
    conn: &mut Conn<'_>,
    keys: &[String],
) -> Result<Vec<KeyMarks>, StoreError> {
    static MARKS: Statement = Statement::new(
        "select ordering_key, topic, seq from chapar.key_marks where ordering_key = any($1) \
         order by ordering_key",
    );
    let mut marks: Vec<KeyMarks> = Vec::new();
    for row in conn.query(&MARKS, vec![keys.to_vec().into()]).await? {
        let (key, topic, seq): (String, String, i64) = cells(&row)?;
        match marks.last_mut() {
            Some(last) if last.key == key => {
                last.marks.insert(topic, seq);
            }
            _ => marks.push(KeyMarks { key, marks: BTreeMap::from([(topic, seq)]) }),
        }
    }
    Ok(marks)
}

fn cells(row: &Row) -> Result<(String, String, i64), StoreError> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}
