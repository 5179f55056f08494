//! Marks: the last sequence number of each subject of a key, from which order stamps are made.

use std::collections::BTreeMap;

use chapar_core::port::{Cursor, KeyMarks, Track};

use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::cursor::{At, Line, Place, Requests, Since};
use crate::statement::Statement;
use crate::store::Backend;
use crate::value::Row;

/// How far the marks of some shards are written: the cursor, and the version of its row.
type Marked = Option<(String, i64)>;

/// Brings the marks of the tracks' shards up to the tracks.
///
/// Marks can be computed from the rows; they are stored so that a relay that takes over need not
/// read all of them. One statement collects them from the rows that were passed since the last
/// call, so a relay need not keep track of them.
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
        // Republishing does not move the position.
        let mut place = Place::parse(conn.backend(), &track.cursor)?;
        *place.requests() = Requests::default();
        let cursor = place.to_cursor();
        for (marked, shards) in so_far(conn, track).await? {
            match &marked {
                Some((marked, _)) if *marked == cursor.0 => continue,
                Some((marked, _)) => gather(conn, marked, &cursor, &shards, topics).await?,
                // No topic was stamped before: marks begin here.
                None => {}
            }
            write(conn, &cursor, shards, marked).await?;
        }
    }
    Ok(())
}

/// The shards of a track, grouped by how far their marks are written.
async fn so_far(
    conn: &mut Conn<'_>,
    track: &Track,
) -> Result<BTreeMap<Marked, Vec<i64>>, StoreError> {
    // The latest version is found first, however many an old snapshot keeps alive.
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
    cursor: &Cursor,
    shards: &[i64],
    topics: &[String],
) -> Result<(), StoreError> {
    // The numbers that the marks do not cover, and the transactions that were running then and have
    // written. Collecting a row twice is harmless, as long as it was passed. The second part is
    // skipped when there are no such transactions, and selects by them alone otherwise: by its
    // upper bound, the planner would read all rows behind it.
    const POSTGRES: &str = "with late as materialized (select array( \
             select chapar.come_late($3::text::pg_snapshot, $4::text::xid8, $10)) as ids), \
         passed as materialized (select o.ordering_key, o.topic, o.seq from ( \
         (select o.ordering_key, o.topic, o.seq, o.xid, o.shard from chapar.outbox o \
             where o.seq > $1 and o.seq <= $2) \
         union all \
         (select o.ordering_key, o.topic, o.seq, o.xid, o.shard from chapar.outbox o \
             where (select cardinality(ids) > 0 from late) \
             and o.seq > $10 and o.seq + 0 <= $1 and o.xid = any((select ids from late)::xid8[])) \
         ) o where o.ordering_key is not null and o.shard = any($5) and o.topic = any($6) \
         and (pg_visible_in_snapshot(o.xid, (select $7::text::pg_snapshot)) \
             or (o.seq <= $8 and pg_visible_in_snapshot(o.xid, (select $9::text::pg_snapshot))))), \
         last as materialized (select ordering_key, topic, max(seq) as seq from passed \
             group by 1, 2), \
         earlier as (insert into chapar.earlier_marks (ordering_key, topic, seq) \
             select p.ordering_key, p.topic, p.seq from passed p join last l \
                 on l.ordering_key = p.ordering_key and l.topic = p.topic and p.seq < l.seq \
             union select m.ordering_key, m.topic, m.seq from last l join chapar.key_marks m \
                 on m.ordering_key = l.ordering_key and m.topic = l.topic and m.seq < l.seq \
             on conflict do nothing) \
         insert into chapar.key_marks (ordering_key, topic, seq) \
         select ordering_key, topic, seq from last order by 1, 2 \
         on conflict (ordering_key, topic) do update set seq = excluded.seq \
         where chapar.key_marks.seq < excluded.seq";
    macro_rules! passed {
        () => {
            "(select ordering_key, topic, seq, max(seq) over (partition by ordering_key, topic) \
                 as last from chapar_outbox \
             where seq > $1 and seq <= $2 and ordering_key is not null \
             and shard in (select value from json_each($3)) \
             and topic in (select value from json_each($4))) p"
        };
    }
    const SQLITE_EARLIER: &str = concat!(
        "insert into chapar_earlier_marks (ordering_key, topic, seq) \
         select ordering_key, topic, seq from ",
        passed!(),
        " where seq < last \
         union select m.ordering_key, m.topic, m.seq from ",
        passed!(),
        " join chapar_key_marks m on m.ordering_key = p.ordering_key and m.topic = p.topic \
         where p.seq = p.last and m.seq < p.last on conflict do nothing"
    );
    const SQLITE: &str = concat!(
        "insert into chapar_key_marks (ordering_key, topic, seq) \
         select ordering_key, topic, seq from ",
        passed!(),
        " where seq = last on conflict (ordering_key, topic) do update set seq = excluded.seq \
         where seq < excluded.seq"
    );
    let topics = topics.to_vec();
    if conn.backend() == Backend::Sqlite {
        let (from, to) = (Line::parse_text(marked)?.after, Line::parse(cursor)?.after);
        let args = vec![from.into(), to.into(), shards.to_vec().into(), topics.into()];
        conn.execute(SQLITE_EARLIER, args.clone()).await?;
        conn.execute(SQLITE, args).await?;
        return Ok(());
    }
    let at = At::parse(cursor)?;
    let marked = At::parse_text(marked)?;
    let Since { after, running, running_below } = marked.since();
    // No row is visible in an empty snapshot.
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
    cursor: &Cursor,
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
    conn.execute(sql, vec![shards.into(), version.into(), (&cursor.0).into()]).await?;
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
