//! Marks rows before publishing them.

use anyhow::Result;

use super::{Design, Desk, Row, row};

pub(super) struct MarkBeforePublish;

impl Design for MarkBeforePublish {
    async fn turn(&mut self, desk: &mut Desk) -> Result<usize> {
        const READ: &str = concat!(
            "select ",
            row!(),
            " from chapar.outbox o \
             where not exists (select 1 from mutant.marks m where m.seq = o.seq) \
             order by o.seq limit 200"
        );
        const MARK: &str = "insert into mutant.marks (seq) select unnest($1::bigint[])";
        if !desk.is_alone().await? {
            return Ok(0);
        }
        let rows: Vec<Row> = sqlx::query_as(READ).fetch_all(&mut desk.connection).await?;
        let seqs: Vec<i64> = rows.iter().map(|row| row.seq).collect();
        sqlx::query(MARK).bind(seqs).execute(&mut desk.connection).await?;
        desk.publish(&rows).await?;
        Ok(rows.len())
    }
}
