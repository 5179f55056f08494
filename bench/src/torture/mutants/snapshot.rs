//! A cursor that is a snapshot, which is right, above a low-water mark, which is not.

use anyhow::Result;
use sqlx::Connection;

use super::{Design, Desk, Row, row};

pub(super) struct SnapshotXmax;

impl Design for SnapshotXmax {
    async fn turn(&mut self, desk: &mut Desk) -> Result<usize> {
        // The mark is read before the snapshot, which is right; and it is believed when all transactions below xmax are
        // over, which is wrong: xmax is the latest that has completed and one, and not the next to be given.
        const MARK: &str = "select coalesce(max(pg_sequence_last_value(c.oid)), 0) from pg_class c \
             join pg_namespace n on n.oid = c.relnamespace \
             where n.nspname = 'chapar' and c.relkind = 'S' and c.relname like 'outbox%'";
        const READ: &str = concat!(
            "select ",
            row!(),
            " from chapar.outbox o, mutant.cursor c where o.seq > c.low \
             and pg_visible_in_snapshot(o.xid, pg_current_snapshot()) \
             and not pg_visible_in_snapshot(o.xid, c.snapshot) order by o.seq"
        );
        const GO_ON: &str = "update mutant.cursor set snapshot = $1::pg_snapshot, \
             low = case when next_xid <= pg_snapshot_xmin($1::pg_snapshot) then next_low else low end, \
             next_low = case when next_xid is null or next_xid <= pg_snapshot_xmin($1::pg_snapshot) \
                 then $2 else next_low end, \
             next_xid = case when next_xid is null or next_xid <= pg_snapshot_xmin($1::pg_snapshot) \
                 then pg_snapshot_xmax($1::pg_snapshot) else next_xid end";
        if !desk.is_alone().await? {
            return Ok(0);
        }
        let (mark,): (i64,) = sqlx::query_as(MARK).fetch_one(&mut desk.connection).await?;
        let mut tx = desk.connection.begin().await?;
        sqlx::query("set transaction isolation level repeatable read, read only")
            .execute(&mut *tx)
            .await?;
        let (now,): (String,) =
            sqlx::query_as("select pg_current_snapshot()::text").fetch_one(&mut *tx).await?;
        let rows: Vec<Row> = sqlx::query_as(READ).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        desk.publish(&rows).await?;
        sqlx::query(GO_ON).bind(&now).bind(mark).execute(&mut desk.connection).await?;
        Ok(rows.len())
    }
}
