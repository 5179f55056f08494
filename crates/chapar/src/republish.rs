//! Publishing again what a broker has lost. An operator asks, and the relays do it.

use std::time::Duration;

use chapar_sql::RepublishRequest;

use crate::StoreError;
use crate::chapar::Chapar;
use crate::ops::{Operator, Outbox};

impl Chapar {
    /// Asks the relays to publish everything again that was published within the time `ago`, under
    /// the same ids and with the same order stamps. Consumers skip what they have applied. Returns
    /// the number of the request, which is in the audit log.
    ///
    /// While a relay works through the request, the new and the parked events of its shards wait,
    /// so that each key stays in order. Events that an operator has dropped are left out.
    pub async fn republish(
        &self,
        ago: Duration,
        actor: &str,
        reason: &str,
    ) -> Result<i64, StoreError> {
        Outbox::of(self.store()).republish(ago, Operator { name: actor, reason }).await
    }

    /// The progress of a request; `None` if there is none with this number.
    pub async fn republish_request(&self, id: i64) -> Result<Option<RepublishRequest>, StoreError> {
        Outbox::of(self.store()).republish_request(id).await
    }

    /// Cancels a request. What was published again stays published. Returns whether there was one
    /// to cancel.
    pub async fn cancel_republish(
        &self,
        id: i64,
        actor: &str,
        reason: &str,
    ) -> Result<bool, StoreError> {
        Outbox::of(self.store()).cancel_republish(id, Operator { name: actor, reason }).await
    }
}
