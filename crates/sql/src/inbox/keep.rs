//! Retention of the inbox: forgetting applied events once they can no longer be redelivered.

use std::time::Duration;

use crate::error::StoreError;
use crate::outbox::Keep;
use crate::store::{Backend, Store};

/// How long a closed dead letter is kept; at least until it is exported.
const DEAD_LETTERS: Duration = Duration::from_secs(14 * 24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);
/// Rows deleted per transaction.
const AT_ONCE: i64 = 5000;

/// Refuses retention settings that could make a consumer apply an event twice.
pub(crate) fn check(keep: &Keep) -> Result<(), StoreError> {
    let refuse = |what: String| Err(StoreError::Retention(what));
    if keep.inbox < DEAD_LETTERS {
        return refuse(format!(
            "the inbox retention is {:?}; set at least 14 days, the retention of dead letters, so that \
             a replay does not apply an event twice",
            keep.inbox
        ));
    }
    if keep.inbox < keep.published {
        return refuse(format!(
            "the inbox retention is {:?}, but published events can be republished for {:?}; let the \
             inbox remember at least as long, or they are applied twice",
            keep.inbox, keep.published
        ));
    }
    if keep.responses < HOUR {
        return refuse(format!(
            "the retention of applied intents is {:?}; set at least an hour, so that a caller's \
             retries find the first response",
            keep.responses
        ));
    }
    Ok(())
}

impl Store {
    /// Deletes what is older than `keep`; returns how many inbox rows and how many intents. Marks
    /// of keys are kept.
    pub(crate) async fn keep_inbox(&self, keep: &Keep) -> Result<(i64, i64), StoreError> {
        let (inbox, intents, letters) = match self.backend() {
            Backend::Postgres => (
                "delete from chapar.inbox where ctid = any(array(select ctid from chapar.inbox \
                 where processed_at < clock_timestamp() - $1 * interval '1 microsecond' limit $2))",
                "delete from chapar.inbox_intents where ctid = any(array(select ctid from chapar.inbox_intents \
                 where created_at < clock_timestamp() - $1 * interval '1 microsecond' limit $2))",
                "delete from chapar.dead_letters where id = any(array(select id from chapar.dead_letters \
                 where status = 'closed' and exported_at is not null and edited_body is null \
                 and closed_at < clock_timestamp() - $1 * interval '1 microsecond' limit $2))",
            ),
            Backend::Sqlite => (
                "delete from chapar_inbox where (consumer, event_id, tenant) in (select consumer, event_id, tenant \
                 from chapar_inbox where processed_at < cast(unixepoch('subsec') * 1000000 as integer) - $1 \
                 limit $2)",
                "delete from chapar_inbox_intents where (consumer, tenant, idempotency_key) in ( \
                 select consumer, tenant, idempotency_key from chapar_inbox_intents \
                 where created_at < cast(unixepoch('subsec') * 1000000 as integer) - $1 limit $2)",
                "delete from chapar_dead_letters where id in (select id from chapar_dead_letters \
                 where status = 'closed' and exported_at is not null and edited_body is null \
                 and closed_at < cast(unixepoch('subsec') * 1000000 as integer) - $1 limit $2)",
            ),
        };
        // Open letters are never deleted; they wait for an operator. Nor are edited ones: a rebuilt
        // read model needs the edit.
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
