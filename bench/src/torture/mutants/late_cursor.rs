//! Cursors over an order that is not the order of commits.

use anyhow::Result;

use super::{Design, Desk, Row, row};

pub(super) struct SequenceCursor;

impl Design for SequenceCursor {
    async fn turn(&mut self, desk: &mut Desk) -> Result<usize> {
        const READ: &str = concat!(
            "select ",
            row!(),
            " from chapar.outbox o where o.seq > (select seq from mutant.cursor) \
             order by o.seq limit 200"
        );
        if !desk.is_alone().await? {
            return Ok(0);
        }
        let rows: Vec<Row> = sqlx::query_as(READ).fetch_all(&mut desk.connection).await?;
        desk.publish(&rows).await?;
        if let Some(last) = rows.last() {
            let go_on = "update mutant.cursor set seq = $1";
            sqlx::query(go_on).bind(last.seq).execute(&mut desk.connection).await?;
        }
        Ok(rows.len())
    }
}

pub(super) struct XminHorizon;

impl Design for XminHorizon {
    async fn turn(&mut self, desk: &mut Desk) -> Result<usize> {
        const READ: &str = concat!(
            "select ",
            row!(),
            " from chapar.outbox o, mutant.cursor c \
             where o.xid < pg_snapshot_xmin(pg_current_snapshot()) \
             and (o.xid, o.seq) > (c.xid, c.seq) order by o.xid, o.seq limit 200"
        );
        const GO_ON: &str = "update mutant.cursor c set xid = o.xid, seq = o.seq \
             from chapar.outbox o where o.seq = $1";
        if !desk.is_alone().await? {
            return Ok(0);
        }
        let rows: Vec<Row> = sqlx::query_as(READ).fetch_all(&mut desk.connection).await?;
        desk.publish(&rows).await?;
        if let Some(last) = rows.last() {
            sqlx::query(GO_ON).bind(last.seq).execute(&mut desk.connection).await?;
        }
        Ok(rows.len())
    }
}
