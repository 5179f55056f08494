//! What a consumer decides by: read in one statement, in the transaction that applies a batch.

use sha2::{Digest, Sha256};

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::{Consumers, Inbox};

/// What is known of a consumer and of some of its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxFacts {
    /// How often the consumer was moved.
    pub epoch: i64,
    /// An operator has paused it.
    pub paused: bool,
    /// Tenant, key, line and number of each mark.
    pub marks: Vec<(String, String, String, i64)>,
    /// Tenant and key of open dead letters that block their key.
    pub letters: Vec<(String, String)>,
    /// Tenant and key of open dead letters that do not.
    pub flagged: Vec<(String, String)>,
    /// Tenant, key and first id of parked events.
    pub parked: Vec<(String, String, i64)>,
}

impl Inbox<'_> {
    /// Reads the facts of a consumer. `placed` are those of the keys whose events have a place.
    pub async fn facts(
        &mut self,
        consumer: &str,
        keys: Vec<String>,
        placed: Vec<String>,
    ) -> Result<InboxFacts, StoreError> {
        static FACTS: Statement = Statement::new(
            "select 'epoch', '', '', '', epoch from chapar.consumer_epochs where consumer = $1 \
             union all select 'paused', '', '', '', 0 from chapar.pauses where consumer = $1 \
             union all select 'mark', tenant, ordering_key, line, last_seq from chapar.inbox_marks \
             where consumer = $1 and ordering_key = any($3) \
             union all select case when blocks_key then 'letter' else 'flag' end, tenant, \
             ordering_key, '', 0 from chapar.dead_letters \
             where consumer = $1 and ordering_key = any($2) and status <> 'closed' \
             group by blocks_key, tenant, ordering_key \
             union all select 'parked', tenant, ordering_key, '', min(id) from chapar.parked \
             where consumer = $1 and ordering_key = any($2) group by tenant, ordering_key",
        );
        let mut facts = InboxFacts::default();
        let args = vec![consumer.into(), keys.into(), placed.into()];
        for row in self.0.query(&FACTS, args).await? {
            let (tenant, key): (String, String) = (row.get(1)?, row.get(2)?);
            match row.get::<String>(0)?.as_str() {
                "epoch" => facts.epoch = row.get(4)?,
                "paused" => facts.paused = true,
                "mark" => facts.marks.push((tenant, key, row.get(3)?, row.get(4)?)),
                "letter" => facts.letters.push((tenant, key)),
                "flag" => facts.flagged.push((tenant, key)),
                _ => facts.parked.push((tenant, key, row.get(4)?)),
            }
        }
        Ok(facts)
    }
}

impl Consumers<'_> {
    /// How often a consumer was moved.
    pub async fn epoch(&mut self, consumer: &str) -> Result<i64, StoreError> {
        static EPOCH: Statement =
            Statement::new("select epoch from chapar.consumer_epochs where consumer = $1");
        let rows = self.0.query(&EPOCH, vec![consumer.into()]).await?;
        rows.first().map_or(Ok(0), |row| row.get(0))
    }

    /// Waits until no batch of a consumer is under way, and lets none begin before this
    /// transaction ends.
    pub async fn hold_batches(&mut self, consumer: &str) -> Result<(), StoreError> {
        const LOCK: &str = "select pg_catalog.pg_advisory_xact_lock($1)";
        if let Conn::Postgres(_) = &self.0 {
            self.0.execute(LOCK, vec![batch_lock(consumer).into()]).await?;
        }
        Ok(())
    }

    /// Has every process discard what it fetched for a consumer, and subscribe again.
    pub async fn move_on(&mut self, consumer: &str) -> Result<(), StoreError> {
        static MOVE: Statement = Statement::new(
            "insert into chapar.consumer_epochs as e (consumer, epoch) values ($1, 1) \
             on conflict (consumer) do update set epoch = e.epoch + 1",
        );
        self.0.run(&MOVE, vec![consumer.into()]).await?;
        Ok(())
    }
}

/// The advisory lock that every batch of a consumer shares.
pub(crate) fn batch_lock(consumer: &str) -> i64 {
    let digest = Sha256::digest(format!("chapar batch\n{consumer}"));
    digest.iter().take(8).fold(0i64, |hash, byte| (hash << 8) | i64::from(*byte))
}
