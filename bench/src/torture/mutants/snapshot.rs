//! A snapshot cursor, which is correct, above a low-water mark, which is not.

use anyhow::Result;
use sqlx::Connection;

use super::{Design, Desk, Row, row};

pub(super) struct SnapshotXmax;

impl Design for SnapshotXmax {
    async fn turn(&mut self, desk: &mut Desk) -> Result<usize> {
        // Below the mark it looks only for transactions that the last snapshot lists as running. The list ends at xmax,
        // which is the latest completed id plus one, and not the next to be assigned: a transaction that ran above it,
        // with a number below the mark, is missed.
        const MARK: &str = "select coalesce(max(pg_sequence_last_value(c.oid)), 0) from pg_class c \
             join pg_namespace n on n.oid = c.relnamespace \
             where n.nspname = 'chapar' and c.relkind = 'S' and c.relname like 'outbox%'";
        const READ: &str = concat!(
            "select ",
            row!(),
            " from chapar.outbox o, mutant.cursor c \
             where (o.seq > c.low or o.xid in (select pg_snapshot_xip(c.snapshot))) \
             and pg_visible_in_snapshot(o.xid, pg_current_snapshot()) \
             and not pg_visible_in_snapshot(o.xid, c.snapshot) order by o.seq"
        );
        const GO_ON: &str = "update mutant.cursor set snapshot = $1::pg_snapshot, low = $2";
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
