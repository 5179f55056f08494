//! The oldest unlocked rows, by several relays at once.

use anyhow::Result;
use sqlx::Connection;

use super::{Design, Desk, Row, row};

pub(super) struct SkipLocked;

impl Design for SkipLocked {
    async fn turn(&mut self, desk: &mut Desk) -> Result<usize> {
        const READ: &str = concat!(
            "select ",
            row!(),
            " from chapar.outbox o \
             where not exists (select 1 from mutant.marks m where m.seq = o.seq) \
             order by o.written_at limit 10 for update of o skip locked"
        );
        const MARK: &str = "insert into mutant.marks (seq) select unnest($1::bigint[]) \
             on conflict do nothing";
        let Desk { connection, broker, owner } = desk;
        let mut tx = connection.begin().await?;
        let rows: Vec<Row> = sqlx::query_as(READ).fetch_all(&mut *tx).await?;
        let messages: Result<Vec<_>> = rows.iter().map(Row::outgoing).collect();
        for receipt in chapar_core::port::Transport::publish(broker, messages?).await {
            receipt.map_err(|error| anyhow::anyhow!("{owner}: {error}"))?;
        }
        let published: Vec<i64> = rows.iter().map(|row| row.seq).collect();
        sqlx::query(MARK).bind(published).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(rows.len())
    }
}
