//! Ownership of partitions, stored in rows: `chapar.members` and `chapar.cursors`.
//!
//! What to do is decided by [`chapar_core::machine::ownership`]. Here is one turn of a member as
//! one transaction. Members take their turns at the same time, so each statement repeats the
//! condition that the plan relied on, and skips rows that another transaction has locked: a
//! process that is frozen in the middle of its turn must not block the others. Leases go by the
//! clock of the database.

use std::collections::{BTreeMap, BTreeSet};

use chapar_core::machine::flight::Flight;
use chapar_core::machine::ownership::{Claim, LeaseState, Reads, Roster, Standing};

use super::subscription::{Owned, SqlSubscription, State};
use super::topics;
use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::Tables;
use crate::value::{Row, Value};

impl SqlSubscription {
    /// Takes a turn if one is due: renews the lease, gives back what is more than a fair share,
    /// and takes what is free.
    pub(super) async fn keep_leases(&self, state: &mut State) -> Result<(), StoreError> {
        let asked_at = self.now();
        let State { member, .. } = state;
        if !member.is_due(asked_at) {
            return Ok(());
        }
        let mut tx = self.transport.store.begin_engine().await?;
        let mut conn = tx.conn();
        topics::subscribe(&mut conn, &self.spec).await?;
        self.renew(&mut conn).await?;
        let roster = self.roster(&mut conn).await?;
        let plan = member.plan(&roster, |owned| owned.flight.in_flight());
        if !plan.remove.is_empty() {
            self.remove_expired(&mut conn).await?;
        }
        for (partition, epoch) in &plan.give_back {
            let owned = member.held().get(partition).map(|held| &held.item);
            self.give_back(&mut conn, *partition, *epoch, owned).await?;
        }
        for (partition, epoch) in &plan.take {
            self.take(&mut conn, *partition, *epoch).await?;
        }
        let owned = self.owned(&mut conn).await?;
        tx.commit().await?;
        let epochs = owned.iter().map(|(partition, (epoch, _))| (*partition, *epoch)).collect();
        for (partition, epoch) in member.renewed(asked_at, &epochs).begun {
            // Everything after the cursor is delivered again.
            let acked = owned.get(&partition).map_or(0, |(_, acked)| *acked);
            let flight = Flight::new(acked, self.spec.ack_deadline);
            member.held_mut().begin(partition, epoch, Owned { flight, flushed: acked });
        }
        Ok(())
    }

    /// Joins without taking a partition yet, so that its topics are those of a living process from
    /// the beginning.
    pub(super) async fn join(&self) -> Result<(), StoreError> {
        let mut tx = self.transport.store.begin_engine().await?;
        topics::subscribe(&mut tx.conn(), &self.spec).await?;
        self.renew(&mut tx.conn()).await?;
        tx.commit().await
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

    /// Joins or stays, and renews the leases that have not run out. One that has is taken again
    /// in a new epoch, since the process may have been frozen.
    async fn renew(&self, conn: &mut Conn<'_>) -> Result<(), StoreError> {
        static JOIN: Statement = Statement::new(
            "insert into chapar.members (subscription, owner, expires_at, topics) \
             values ($1, $2, clock_timestamp() + $3 * interval '1 microsecond', $4) \
             on conflict (subscription, owner) do update \
             set expires_at = excluded.expires_at, topics = excluded.topics",
        );
        static RENEW: Statement = Statement::new(
            "update chapar.cursors set expires_at = clock_timestamp() + $3 * interval '1 microsecond' \
             where subscription = $1 and owner = $2 and expires_at > clock_timestamp()",
        );
        let topics = serde_json::to_string(&self.spec.topics).unwrap_or_default();
        let mut terms = self.terms();
        terms.push(topics.into());
        conn.run(&JOIN, terms).await?;
        conn.run(&RENEW, self.terms()).await?;
        Ok(())
    }

    async fn roster(&self, conn: &mut Conn<'_>) -> Result<Roster<u32>, StoreError> {
        static CURSORS: Statement = Statement::new(
            "select log_partition, case when expires_at > clock_timestamp() then owner end, epoch \
             from chapar.cursors where subscription = $1",
        );
        let name = &self.spec.name;
        // In this order: a process that joins adds its topics and itself in one transaction.
        let mut read = topics::read(conn, name).await?;
        let mut members = self.members(conn).await?;
        let unread = unread(&read, &members);
        if !unread.is_empty() {
            let locked = topics::lock(conn, name, unread).await?;
            members = self.members(conn).await?;
            let unread = self::unread(&locked, &members);
            read.retain(|topic| !unread.contains(topic));
            topics::drop_unread(conn, name, unread).await?;
        }
        // Every partition has messages of every topic.
        let reads_all = |member: &Member| read.is_subset(&member.topics);
        let complete = members.iter().any(|member| member.lives() && reads_all(member));
        let mut roster = Roster::default();
        for member in members {
            let reads = match !complete || reads_all(&member) {
                true => Reads::All,
                false => Reads::Only(BTreeSet::new()),
            };
            roster.members.insert(member.owner, Standing { lease: member.lease, reads });
        }
        for row in conn.query(&CURSORS, vec![(&self.spec.name).into()]).await? {
            let claim = Claim { owner: row.get(1)?, epoch: row.get::<i64>(2)? as u64 };
            roster.partitions.insert(row.get::<i64>(0)? as u32, claim);
        }
        Ok(roster)
    }

    async fn members(&self, conn: &mut Conn<'_>) -> Result<Vec<Member>, StoreError> {
        static MEMBERS: Statement = Statement::new(
            "select owner, case when expires_at > clock_timestamp() then 1 else 0 end, topics \
             from chapar.members where subscription = $1",
        );
        let rows = conn.query(&MEMBERS, vec![(&self.spec.name).into()]).await?;
        let member = |row: &Row| {
            let lease = match row.get::<i64>(1)? {
                0 => LeaseState::Expired,
                _ => LeaseState::Valid,
            };
            let topics = serde_json::from_str(&row.get::<String>(2)?).unwrap_or_default();
            Ok(Member { owner: row.get(0)?, lease, topics })
        };
        rows.iter().map(member).collect()
    }

    async fn remove_expired(&self, conn: &mut Conn<'_>) -> Result<(), StoreError> {
        static REMOVE: Statement = Statement::new(
            "delete from chapar.members where subscription = $1 and owner in \
             (select owner from chapar.members where subscription = $1 \
             and expires_at <= clock_timestamp() for update skip locked)",
        );
        conn.run(&REMOVE, vec![(&self.spec.name).into()]).await?;
        Ok(())
    }

    async fn give_back(
        &self,
        conn: &mut Conn<'_>,
        partition: u32,
        epoch: u64,
        owned: Option<&Owned>,
    ) -> Result<(), StoreError> {
        static GIVE_BACK: Statement = Statement::new(
            "update chapar.cursors set owner = null, acked_offset = coalesce($4, acked_offset), \
             expires_at = clock_timestamp() \
             where subscription = $1 and log_partition = $2 and epoch = $3",
        );
        let acked = owned.map(|owned| owned.flight.acked() as i64);
        let args =
            vec![(&self.spec.name).into(), partition.into(), (epoch as i64).into(), acked.into()];
        conn.run(&GIVE_BACK, args).await?;
        Ok(())
    }

    async fn take(
        &self,
        conn: &mut Conn<'_>,
        partition: u32,
        epoch: u64,
    ) -> Result<(), StoreError> {
        static TAKE: Statement = Statement::new(
            "with free as materialized (select log_partition as home from chapar.cursors \
             where subscription = $1 and log_partition = $4 and epoch = $5 - 1 \
             and (owner = $2 or expires_at <= clock_timestamp()) for update skip locked) \
             update chapar.cursors set owner = $2, epoch = $5, \
             expires_at = clock_timestamp() + $3 * interval '1 microsecond' \
             where subscription = $1 and log_partition in (select home from free)",
        );
        let mut args = self.terms();
        args.extend([partition.into(), (epoch as i64).into()]);
        conn.run(&TAKE, args).await?;
        Ok(())
    }

    /// The partitions that this process owns, with epoch and cursor.
    async fn owned(&self, conn: &mut Conn<'_>) -> Result<BTreeMap<u32, (u64, u64)>, StoreError> {
        static OWNED: Statement = Statement::new(
            "select log_partition, epoch, acked_offset from chapar.cursors \
             where subscription = $1 and owner = $2 and expires_at > clock_timestamp()",
        );
        let mut owned = BTreeMap::new();
        for row in conn.query(&OWNED, self.names()).await? {
            let (epoch, acked) = (row.get::<i64>(1)? as u64, row.get::<i64>(2)? as u64);
            owned.insert(row.get::<i64>(0)? as u32, (epoch, acked));
        }
        Ok(owned)
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

/// A process of a subscription, as its row says.
struct Member {
    owner: String,
    lease: LeaseState,
    topics: BTreeSet<String>,
}

impl Member {
    fn lives(&self) -> bool {
        self.lease == LeaseState::Valid
    }
}

/// The topics that no living process reads.
fn unread(topics: &BTreeSet<String>, members: &[Member]) -> Vec<String> {
    let read = |topic: &String| members.iter().any(|m| m.lives() && m.topics.contains(topic));
    topics.iter().filter(|topic| !read(topic)).cloned().collect()
}
