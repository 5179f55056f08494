//! A lease without an epoch: its holder numbers committed rows, publishes by number, and twice a second writes how far
//! it has come. With one holder at a time this is correct.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Design, Desk, Row, row};

#[derive(Default)]
pub(super) struct LeaseWithoutEpoch {
    /// Published, but not written yet.
    ahead: i64,
    written_at: Option<Instant>,
}

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
        const WRITE_DOWN: &str = "update mutant.lease set place = place + $1";
        if self.written_at.is_none_or(|at| at.elapsed() > Duration::from_millis(500)) {
            // The mistake: the lease is not checked here.
            sqlx::query(WRITE_DOWN).bind(self.ahead).execute(&mut desk.connection).await?;
            (self.ahead, self.written_at) = (0, Some(Instant::now()));
        }
        let lease = sqlx::query_as(LEASE).bind(&desk.owner);
        let held: Option<(i64,)> = lease.fetch_optional(&mut desk.connection).await?;
        let Some((place,)) = held else {
            self.ahead = 0;
            return Ok(0);
        };
        sqlx::query(QUEUE).execute(&mut desk.connection).await?;
        let read = sqlx::query_as(READ).bind(place + self.ahead);
        let rows: Vec<Row> = read.fetch_all(&mut desk.connection).await?;
        desk.publish(&rows).await?;
        self.ahead += i64::try_from(rows.len())?;
        Ok(rows.len())
    }
}
