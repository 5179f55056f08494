//! Forgetting what a consumer has applied, long after anybody could deliver it again.

use std::time::Duration;

use crate::error::StoreError;
use crate::outbox::Keep;
use crate::store::{Backend, Store};

/// How long a dead letter is kept after it was closed, and never less than until it is exported.
const DEAD_LETTERS: Duration = Duration::from_secs(14 * 24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);
/// How many rows go in one transaction.
const AT_ONCE: i64 = 5000;

/// Refuses what would make a consumer apply an event twice.
pub(crate) fn check(keep: &Keep) -> Result<(), StoreError> {
    let refuse = |what: String| Err(StoreError::Retention(what));
    if keep.inbox < DEAD_LETTERS {
        return refuse(format!(
            "the inbox remembers events for {:?}; keep them for at least 14 days, as long as dead \
             letters lie, so that a replay does not apply an event twice",
            keep.inbox
        ));
    }
    if keep.inbox < keep.published {
        return refuse(format!(
            "the inbox remembers events for {:?}, and published ones can be published again for \
             {:?}; let the inbox remember at least as long, or they are applied twice",
            keep.inbox, keep.published
        ));
    }
    if keep.responses < HOUR {
        return refuse(format!(
            "intents that consumers have carried out are kept for {:?}; keep them for at least an \
             hour, so that a caller's retries find the first response",
            keep.responses
        ));
    }
    Ok(())
}

impl Store {
    /// Forgets what is older than `keep` says; returns how many rows of the inbox and how many
    /// intents. How far a consumer is with its keys is not forgotten.
    pub(crate) async fn keep_inbox(&self, keep: &Keep) -> Result<(i64, i64), StoreError> {
        let (inbox, intents, letters) = match self.backend() {
            Backend::Postgres => (
                "delete from chapar.inbox where ctid = any(array(select ctid from chapar.inbox \
                 where processed_at < clock_timestamp() - $1 * interval '1 microsecond' limit $2))",
                "delete from chapar.inbox_intents where ctid = any(array(select ctid from chapar.inbox_intents \
                 where created_at < clock_timestamp() - $1 * interval '1 microsecond' limit $2))",
                "delete from chapar.dead_letters where id = any(array(select id from chapar.dead_letters \
                 where status = 'closed' and exported_at is not null \
                 and closed_at < clock_timestamp() - $1 * interval '1 microsecond' limit $2))",
            ),
            Backend::Sqlite => (
                "delete from chapar_inbox where (consumer, event_id) in (select consumer, event_id \
                 from chapar_inbox where processed_at < cast(unixepoch('subsec') * 1000000 as integer) - $1 \
                 limit $2)",
                "delete from chapar_inbox_intents where (consumer, tenant, idempotency_key) in ( \
                 select consumer, tenant, idempotency_key from chapar_inbox_intents \
                 where created_at < cast(unixepoch('subsec') * 1000000 as integer) - $1 limit $2)",
                "delete from chapar_dead_letters where id in (select id from chapar_dead_letters \
                 where status = 'closed' and exported_at is not null \
                 and closed_at < cast(unixepoch('subsec') * 1000000 as integer) - $1 limit $2)",
            ),
        };
        // An open letter waits for somebody, however long that takes.
        self.forget(letters, DEAD_LETTERS).await?;
        Ok((self.forget(inbox, keep.inbox).await?, self.forget(intents, keep.responses).await?))
    }

    async fn forget(&self, delete: &'static str, after: Duration) -> Result<i64, StoreError> {
        let after = i64::try_from(after.as_micros()).unwrap_or(i64::MAX);
        let mut forgotten = 0;
        loop {
            let mut tx = self.begin_engine().await?;
            let gone = tx.execute(delete, vec![after.into(), AT_ONCE.into()]).await? as i64;
            tx.commit().await?;
            forgotten += gone;
            if gone < AT_ONCE {
                return Ok(forgotten);
            }
        }
    }
}
