//! Consumers whose events are applied by a service outside, which is called before the claim.

use chapar_core::machine::admission::Decision;
use chapar_core::machine::failure::FailureKind;
use chapar_sql::Tables;

use crate::consumer::Consumer;
use crate::consumer::admission::Admission;
use crate::consumer::item::Item;
use crate::consumer::runner::Runner;
use crate::failure::Failure;

impl Consumer {
    /// Pushes the events of some topics to a service, over HTTP. Needs the feature `push`.
    ///
    /// The service is called at least once for each event, one event of a key at a time and in
    /// order; it tells copies apart by the id. No transaction is open during the call, and the
    /// event is claimed after it. [`Consumer::lanes`] says how many calls are made at once,
    /// [`Consumer::timeout`] how long each may take. All else is as for any consumer: attempts,
    /// dead letters, parked keys, replay.
    #[cfg(feature = "push")]
    pub fn push<T: Into<String>>(
        mut self,
        topics: impl IntoIterator<Item = T>,
        endpoint: &crate::push::Endpoint,
    ) -> Self {
        for topic in topics.into_iter().map(Into::into) {
            let applied: std::sync::Arc<super::Handler> =
                std::sync::Arc::new(|_, _| Box::pin(async { Ok(()) }));
            self = self.handling_itself(&topic, applied);
            self.outside.insert(topic, endpoint.clone());
        }
        self
    }

    /// How many events go into one transaction: one where a service outside is called, since a
    /// failure of the next must not have it called again.
    pub(crate) fn together(&self) -> usize {
        if self.outside.is_empty() { self.batch } else { 1 }
    }
}

impl Runner {
    /// Calls the services outside that some of the items are for. No transaction is open.
    ///
    /// Says how many items may be applied now. One for which no service was called, because its
    /// key is blocked, may not, also if another process unblocks the key before it is parked.
    pub(crate) async fn call_outside(&self, items: &[Item]) -> Result<u64, Failure> {
        let mut may_apply = 0;
        for item in items {
            let Some(endpoint) = self.consumer.outside.get(&item.arrival.topic) else {
                may_apply += 1;
                continue;
            };
            // What cannot be read becomes a dead letter without a call.
            if item.envelope.is_err() || self.is_settled(item).await? {
                continue;
            }
            let (name, limit) = (&self.consumer.name, self.consumer.timeout);
            let (profile, clock) = (self.chapar.profile(), self.chapar.clock());
            let call = endpoint.call(profile, clock, name, &item.arrival, limit);
            let called = tokio::time::timeout(limit, call).await;
            called.unwrap_or_else(|_| {
                let message = format!("the service took longer than {limit:?}");
                Err(Failure::new(FailureKind::Timeout, message))
            })?;
            may_apply += 1;
        }
        Ok(may_apply)
    }

    /// Whether the event is not to be applied now: it was applied before, comes too late, or waits
    /// for an earlier one or a dead letter of its key.
    async fn is_settled(&self, item: &Item) -> Result<bool, Failure> {
        let (name, event) = (&self.consumer.name, &item.arrival.event_id);
        let mut tx = self.chapar.store().begin_read().await?;
        let applied = tx.inbox().is_applied(name, &item.arrival.tenant, event).await?;
        let admitted = match self.admit(&mut tx, std::slice::from_ref(item)).await? {
            Admission::Decided(decided) => {
                matches!(decided.decisions[..], [Decision::Apply { .. }])
            }
            Admission::Paused | Admission::Moved => false,
        };
        tx.rollback().await?;
        Ok(applied || !admitted)
    }
}
