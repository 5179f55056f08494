//! Who owns which partition of a subscription: leases with an epoch, shared out evenly.

use std::collections::BTreeMap;
use std::time::Instant;

use chapar_core::machine::flight::Flight;

use super::subscription::{Owned, SqlSubscription, State};
use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::value::Value;

impl SqlSubscription {
    /// Renews what this process owns, gives back what is more than its fair share, and takes
    /// what is less and nobody owns.
    ///
    /// The share is the number of partitions over that of live processes, rounded up. Whoever
    /// has more stops reading from the surplus and lets go of a partition once nothing of it is
    /// in flight, so that nothing is delivered twice because somebody joined.
    pub(super) async fn keep_leases(&self, state: &mut State) -> Result<(), StoreError> {
        let lease = self.transport.lease;
        if state.leased_at.is_some_and(|at| at.elapsed() < lease / 3) {
            return Ok(());
        }
        let asked_at = Instant::now();
        let mut tx = self.transport.store.begin_engine().await?;
        let mut conn = tx.conn();
        let fair = self.renew(&mut conn).await?;
        let surplus = state.owned.len().saturating_sub(fair);
        let keep = state.owned.len() - surplus;
        for (index, (partition, owned)) in state.owned.iter_mut().enumerate() {
            owned.leaving = index >= keep;
            if owned.leaving && owned.flight.in_flight() == 0 {
                self.give_back(&mut conn, *partition, owned).await?;
            }
        }
        self.take(&mut conn, fair).await?;
        let held = self.held(&mut conn, state).await?;
        tx.commit().await?;
        state.owned = held;
        state.leased_at = Some(asked_at);
        Ok(())
    }

    /// Leaves: partitions and membership are free for others at once.
    pub(super) async fn release(&self) -> Result<(), StoreError> {
        static RELEASE: Statement = Statement::new(
            "update chapar.cursors set owner = null, expires_at = clock_timestamp() \
             where subscription = $1 and owner = $2",
        );
        static LEAVE: Statement =
            Statement::new("delete from chapar.members where subscription = $1 and owner = $2");
        let mut tx = self.transport.store.begin_engine().await?;
        tx.conn().run(&RELEASE, self.names()).await?;
        tx.conn().run(&LEAVE, self.names()).await?;
        tx.commit().await
    }

    /// Says that this process lives and keeps what it has; returns its fair share.
    async fn renew(&self, conn: &mut Conn<'_>) -> Result<usize, StoreError> {
        static LIVE: Statement = Statement::new(
            "insert into chapar.members (subscription, owner, expires_at) \
             values ($1, $2, clock_timestamp() + $3 * interval '1 microsecond') \
             on conflict (subscription, owner) do update set expires_at = excluded.expires_at",
        );
        // Somebody who sleeps in the middle of his own renewal must not hold up the others.
        static BURY: Statement = Statement::new(
            "delete from chapar.members where subscription = $1 and owner in \
             (select owner from chapar.members where subscription = $1 \
             and expires_at <= clock_timestamp() for update skip locked)",
        );
        static RENEW: Statement = Statement::new(
            "update chapar.cursors set expires_at = clock_timestamp() + $3 * interval '1 microsecond' \
             where subscription = $1 and owner = $2 and expires_at > clock_timestamp()",
        );
        static SHARE: Statement = Statement::new(
            "select (select count(*) from chapar.cursors where subscription = $1), \
             (select count(*) from chapar.members where subscription = $1 \
             and expires_at > clock_timestamp())",
        );
        conn.run(&LIVE, self.terms()).await?;
        conn.run(&BURY, vec![(&self.spec.name).into()]).await?;
        conn.run(&RENEW, self.terms()).await?;
        let rows = conn.query(&SHARE, vec![(&self.spec.name).into()]).await?;
        let Some(row) = rows.first() else { return Ok(0) };
        let (partitions, live): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok((partitions as usize).div_ceil(live.max(1) as usize))
    }

    async fn give_back(
        &self,
        conn: &mut Conn<'_>,
        partition: u32,
        owned: &Owned,
    ) -> Result<(), StoreError> {
        static GIVE_BACK: Statement = Statement::new(
            "update chapar.cursors set owner = null, acked_offset = $3, \
             expires_at = clock_timestamp() \
             where subscription = $1 and log_partition = $2 and epoch = $4",
        );
        let acked = owned.flight.acked() as i64;
        let args =
            vec![(&self.spec.name).into(), partition.into(), acked.into(), owned.epoch.into()];
        conn.run(&GIVE_BACK, args).await?;
        Ok(())
    }

    async fn take(&self, conn: &mut Conn<'_>, fair: usize) -> Result<(), StoreError> {
        static MINE: Statement = Statement::new(
            "select count(*) from chapar.cursors where subscription = $1 and owner = $2",
        );
        // The limit is on a materialized list: a planner that ran the subquery twice would
        // take twice as many.
        static TAKE: Statement = Statement::new(
            "with free as materialized (select log_partition as home from chapar.cursors \
             where subscription = $1 and expires_at <= clock_timestamp() \
             order by log_partition limit $4 for update skip locked) \
             update chapar.cursors set owner = $2, epoch = epoch + 1, \
             expires_at = clock_timestamp() + $3 * interval '1 microsecond' \
             where subscription = $1 and log_partition in (select home from free)",
        );
        // One that had lapsed and that nobody took is ours no longer, and is not counted.
        static LAPSED: Statement = Statement::new(
            "update chapar.cursors set owner = null \
             where subscription = $1 and owner = $2 and expires_at <= clock_timestamp()",
        );
        conn.run(&LAPSED, self.names()).await?;
        let rows = conn.query(&MINE, self.names()).await?;
        let mine: i64 = rows.first().map(|row| row.get(0)).transpose()?.unwrap_or(0);
        let room = (fair as i64).saturating_sub(mine);
        if room > 0 {
            let mut args = self.terms();
            args.push(room.into());
            conn.run(&TAKE, args).await?;
        }
        Ok(())
    }

    async fn held(
        &self,
        conn: &mut Conn<'_>,
        state: &mut State,
    ) -> Result<BTreeMap<u32, Owned>, StoreError> {
        static HELD: Statement = Statement::new(
            "select log_partition, acked_offset, epoch from chapar.cursors \
             where subscription = $1 and owner = $2",
        );
        let mut held = BTreeMap::new();
        for row in conn.query(&HELD, self.names()).await? {
            let (partition, acked, epoch) =
                (row.get::<i64>(0)? as u32, row.get::<i64>(1)? as u64, row.get::<i64>(2)?);
            let owned = match state.owned.remove(&partition) {
                Some(owned) if owned.epoch == epoch => owned,
                // Taken anew: everything after the cursor is delivered again.
                _ => Owned {
                    epoch,
                    flight: Flight::new(acked, self.spec.ack_deadline),
                    flushed: acked,
                    leaving: false,
                },
            };
            held.insert(partition, owned);
        }
        Ok(held)
    }

    fn names(&self) -> Vec<Value> {
        vec![(&self.spec.name).into(), (&*self.transport.owner).into()]
    }

    fn terms(&self) -> Vec<Value> {
        let mut terms = self.names();
        terms.push((self.transport.lease.as_micros() as i64).into());
        terms
    }
}
