//! A lease on paper: whoever holds it gives places to what has committed, publishes by place, and moves the place on by
//! as many as it has published. With one holder at a time this is right.

use anyhow::Result;
use sqlx::Connection;

use super::{Design, Desk, Row, row};

pub(super) struct LeaseWithoutEpoch;

/// Checked before it reads, and never again.
const LEASE: &str = "update mutant.lease set owner = $1, \
     expires_at = clock_timestamp() + interval '2 seconds' \
     where owner = $1 or expires_at < clock_timestamp() returning place";

impl Design for LeaseWithoutEpoch {
    async fn turn(&mut self, desk: &mut Desk) -> Result<usize> {
        const QUEUE: &str = "insert into mutant.queue (place, seq) \
             select coalesce((select max(place) from mutant.queue), 0) + row_number() over (order by o.seq), o.seq \
             from chapar.outbox o \
             where not exists (select 1 from mutant.queue q where q.seq = o.seq)";
        const READ: &str = concat!(
            "select ",
            row!(),
            " from mutant.queue q join chapar.outbox o on o.seq = q.seq \
             where q.place > $1 order by q.place limit 50"
        );
        const GO_ON: &str = "update mutant.lease set place = place + $1";
        let owner = desk.owner.clone();
        let held: Option<(i64,)> =
            sqlx::query_as(LEASE).bind(&owner).fetch_optional(&mut desk.connection).await?;
        let Some((place,)) = held else { return Ok(0) };
        let mut tx = desk.connection.begin().await?;
        // One hand at a time gives places.
        sqlx::query("lock table mutant.queue in exclusive mode").execute(&mut *tx).await?;
        sqlx::query(QUEUE).execute(&mut *tx).await?;
        tx.commit().await?;
        let rows: Vec<Row> =
            sqlx::query_as(READ).bind(place).fetch_all(&mut desk.connection).await?;
        desk.publish(&rows).await?;
        let count = i64::try_from(rows.len())?;
        sqlx::query(GO_ON).bind(count).execute(&mut desk.connection).await?;
        Ok(rows.len())
    }
}
