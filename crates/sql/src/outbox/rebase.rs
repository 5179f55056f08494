//! Rebasing: new cursors for an outbox whose transaction ids come from another cluster.

use serde_json::json;

use crate::audit::AuditEntry;
use crate::conn::Conn;
use crate::error::StoreError;
use crate::outbox::cursor::{At, Requests, Window};
use crate::outbox::{lease, life};
use crate::statement::Statement;
use crate::store::Backend;
use crate::tables::{OutboxRows, Tables};

/// The result of a rebase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebased {
    /// The events that are not published yet, and are published next.
    pub waiting: i64,
}

/// A position in this cluster behind which lies everything that has ended.
struct Now {
    snapshot: String,
    /// The id of this transaction, which the snapshot counts as running.
    xid: u64,
    seq: i64,
    top: i64,
}

impl OutboxRows<'_> {
    /// Gives the outbox of a restored dump cursors with the ids of this cluster, so that everything
    /// is published that the cursors from elsewhere do not cover. With `ids_kept`, after
    /// `pg_upgrade`, the cursors stay as they are. Returns `None` if they belong to this cluster.
    ///
    /// Nothing of this transaction may have been written before.
    pub async fn rebase(
        &mut self,
        ids_kept: bool,
        actor: &str,
        reason: &str,
    ) -> Result<Option<Rebased>, StoreError> {
        if self.0.backend() == Backend::Sqlite {
            return Ok(None);
        }
        // The order matters: see chapar.open_window.
        let seq = last_seq(&mut self.0).await?;
        let whereabouts = life::whereabouts(&mut self.0).await?;
        let found = match whereabouts.check(&mut self.0).await {
            Ok(()) => return Ok(None),
            Err(StoreError::Moved(found)) => found,
            Err(error) => return Err(error),
        };
        let waiting = if ids_kept {
            whereabouts.check_ids(&mut self.0).await?;
            0
        } else {
            let now = now(&mut self.0, seq, whereabouts.xid).await?;
            move_cursors(&mut self.0, &now).await?
        };
        end_leases(&mut self.0).await?;
        life::replace(&mut self.0).await?;
        let detail = json!({ "found": found, "ids_kept": ids_kept, "waiting": waiting });
        let (action, detail) = ("outbox.rebase", detail.to_string());
        self.0
            .audit_log()
            .record(&AuditEntry { actor, action, target: "outbox", reason, detail: &detail })
            .await?;
        Ok(Some(Rebased { waiting }))
    }
}

async fn last_seq(conn: &mut Conn<'_>) -> Result<i64, StoreError> {
    const LAST: &str =
        "select case when is_called then last_value else 0 end from chapar.outbox_seq";
    let rows = conn.fetch(LAST, vec![]).await?;
    rows.first().ok_or(StoreError::Cell { column: 0, expected: "a number" })?.get(0)
}

async fn now(conn: &mut Conn<'_>, seq: i64, xid: u64) -> Result<Now, StoreError> {
    let rows = conn.fetch("select pg_current_snapshot()::text", vec![]).await?;
    let row = rows.first().ok_or(StoreError::Cell { column: 0, expected: "a snapshot" })?;
    let snapshot = with_running(&row.get::<String>(0)?, xid);
    Ok(Now { snapshot, xid, seq, top: last_seq(conn).await? })
}

/// A snapshot in which the transaction `xid` is running. A transaction's own snapshot leaves its
/// own id out.
fn with_running(snapshot: &str, xid: u64) -> String {
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u64>().ok());
    let mut parts = snapshot.splitn(3, ':');
    let (xmin, xmax) = (number(parts.next()).unwrap_or(xid), number(parts.next()).unwrap_or(xid));
    let list = parts.next().unwrap_or_default();
    let mut running: Vec<u64> = list.split(',').filter_map(|id| id.parse().ok()).collect();
    if xid < xmax {
        running.push(xid);
        running.sort_unstable();
        running.dedup();
    }
    let running: Vec<String> = running.iter().map(u64::to_string).collect();
    format!("{}:{xmax}:{}", xmin.min(xid), running.join(","))
}

/// Moves all cursors to `now`; returns how many rows lie before them. Those rows, and no others
/// above the floor, get the id of this transaction, which is not over at `now`.
async fn move_cursors(conn: &mut Conn<'_>, now: &Now) -> Result<i64, StoreError> {
    const TRACKS: &str = "select t.track, t.version, t.cursor, array_to_string(array( \
             select s.shard from chapar.shards s where s.track = t.track), ',') \
         from chapar.tracks t where t.version = (select max(l.version) from chapar.tracks l \
             where l.track = t.track)";
    const MARKED: &str = "select m.shard, m.version, m.cursor from chapar.marked m where m.version = \
         (select max(l.version) from chapar.marked l where l.shard = m.shard)";
    const WRITE: &str = "insert into chapar.tracks (track, version, cursor) values ($1, $2, $3)";
    const MARK: &str =
        "insert into chapar.marked (shard, version, cursor) values ($1::bigint, $2, $3)";
    let mut tracks: Vec<(i64, i64, At, Vec<i64>)> = Vec::new();
    for row in conn.fetch(TRACKS, vec![]).await? {
        let shards: String = row.get(3)?;
        let shards = shards.split(',').filter_map(|shard| shard.parse().ok()).collect();
        tracks.push((row.get(0)?, row.get(1)?, At::parse_text(&row.get::<String>(2)?)?, shards));
    }
    let mut marked: Vec<(i64, i64, At)> = Vec::new();
    for row in conn.fetch(MARKED, vec![]).await? {
        marked.push((row.get(0)?, row.get(1)?, At::parse_text(&row.get::<String>(2)?)?));
    }
    let floors = tracks.iter().map(|(_, _, at, _)| at.floor);
    let floor = floors.chain(marked.iter().map(|(_, _, at)| at.floor)).min().unwrap_or(0);
    let mut waiting = 0;
    for (track, version, at, shards) in tracks {
        waiting += renumber(conn, &at, floor, shards).await?;
        let cursor = now.at(floor, now.seq, at.requests).to_cursor();
        conn.execute(WRITE, vec![track.into(), (version + 1).into(), (&cursor.0).into()]).await?;
    }
    for (shard, version, at) in marked {
        // From the floor on they are gathered again, which is harmless.
        let cursor = now.at(floor, at.floor, Requests::default()).to_cursor();
        conn.execute(MARK, vec![shard.into(), (version + 1).into(), (&cursor.0).into()]).await?;
    }
    conn.execute(
        "delete from chapar.marked m where exists (select from chapar.marked l \
         where l.shard = m.shard and l.version > m.version)",
        vec![],
    )
    .await?;
    lease::forget_tracks(conn).await?;
    Ok(waiting)
}

/// Gives the rows above the floor ids that mean here what theirs meant elsewhere: that of this
/// transaction if they wait, and one that every snapshot can see if they are published.
async fn renumber(
    conn: &mut Conn<'_>,
    at: &At,
    floor: i64,
    shards: Vec<i64>,
) -> Result<i64, StoreError> {
    // Rows of this cluster have numbers above all that the cursor has seen, whatever their ids.
    macro_rules! published {
        () => {
            "((o.seq <= $3 and pg_visible_in_snapshot(o.xid, $4::text::pg_snapshot)) \
              or (o.seq <= $5 and pg_visible_in_snapshot(o.xid, $6::text::pg_snapshot)))"
        };
    }
    const WAITING: &str = concat!(
        "update chapar.outbox o set xid = pg_current_xact_id() \
         where o.seq > $1 and o.shard = any($2) and not ",
        published!()
    );
    const PUBLISHED: &str = concat!(
        "update chapar.outbox o set xid = '3' where o.seq > $1 and o.shard = any($2) \
         and o.xid <> pg_current_xact_id() and ",
        published!()
    );
    let (after, upto) = match &at.window {
        Some(Window { upto, .. }) => (at.after, upto.as_str()),
        None => (0, "1:1:"),
    };
    let args = vec![
        floor.into(),
        shards.into(),
        at.seen_top.into(),
        (&at.seen).into(),
        after.into(),
        upto.into(),
    ];
    let waiting = conn.execute(WAITING, args.clone()).await?;
    conn.execute(PUBLISHED, args).await?;
    Ok(i64::try_from(waiting).unwrap_or(i64::MAX))
}

/// The leases of a dump are of relays that are elsewhere.
async fn end_leases(conn: &mut Conn<'_>) -> Result<(), StoreError> {
    static LEASES: Statement = Statement::new("select epoch from chapar.relays");
    let rows = conn.query(&LEASES, vec![]).await?;
    let epochs = rows.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?;
    lease::bury(conn, epochs).await
}

impl Now {
    fn at(&self, floor: i64, seq: i64, requests: Requests) -> At {
        At {
            seen: self.snapshot.clone(),
            seen_xid: self.xid + 1,
            seen_seq: seq,
            seen_top: self.top,
            window: None,
            after: 0,
            late: None,
            floor,
            floor_xid: self.xid + 1,
            floor_next: seq.max(floor),
            requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_running_in_its_own_snapshot() {
        assert_eq!(with_running("100:100:", 100), "100:100:");
        assert_eq!(with_running("100:105:102", 101), "100:105:101,102");
        assert_eq!(with_running("103:105:103", 101), "101:105:101,103");
    }
}
