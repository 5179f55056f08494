//! What becomes of an event that failed: tried again, stashed, or put among the dead letters.

use chapar_core::machine::failure::{FailureClass, FailureKind, FailurePolicy};
use chapar_core::machine::fingerprint::{fingerprint, shape};
use chapar_core::machine::retry::Next;
use chapar_sql::{Arrival, Deferral, LetterFailure, NewDeadLetter, Tables, Tx};
use jiff::Timestamp;
use tracing::{error, warn};

use crate::consumer::item::{Item, Release};
use crate::consumer::runner::Runner;
use crate::failure::Failure;

/// What is done with an item that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is stashed until its saga starts.
    Stash,
    /// It is tried again then, with the rest of its key behind it.
    Retry(Timestamp),
    /// It becomes a dead letter.
    Bury,
    /// The consumer's policy says to stop.
    Stop,
}

impl Runner {
    /// Decides what becomes of an item that failed, and counts the attempt.
    pub(crate) fn fate(&self, item: &mut Item, failure: &Failure) -> Fate {
        let now = self.chapar.clock().now();
        if failure.early_for().is_some() && !matches!(item.released, Some(Release::Letter { .. })) {
            return Fate::Stash;
        }
        let first = *item.first_failed_at.get_or_insert(now);
        if let Some(at) = self.trip(failure, now) {
            // An outage is not the event's fault: do not count the attempt.
            return Fate::Retry(at);
        }
        if failure.is_counted() {
            item.attempts += 1;
        }
        let next = self.consumer.retry.after(item.attempts.max(1), first, now, fastrand::f64());
        match next {
            Next::RetryAt(at) if failure.kind().is_retryable() => {
                self.metrics.add_retries(1);
                warn!(
                    consumer = self.consumer.name,
                    event_id = item.arrival.event_id,
                    tenant_id = item.arrival.tenant,
                    retry_count = item.attempts,
                    error = failure.message(),
                    "will try again"
                );
                Fate::Retry(at)
            }
            _ if self.consumer.on_failure == FailurePolicy::Stop => Fate::Stop,
            _ => Fate::Bury,
        }
    }

    /// Tells the breaker of a failure; until when to rest, if that opens it.
    fn trip(&self, failure: &Failure, now: Timestamp) -> Option<Timestamp> {
        let mut breaker = self.breaker().filter(|_| failure.kind().is_retryable())?;
        let was_resting = breaker.rests_until(now).is_some();
        let until = breaker.failed(now)?;
        if !was_resting {
            let downstream = self.consumer.breaker.as_ref().map(|(name, _)| name.as_str());
            let (consumer, error) = (&self.consumer.name, failure.message());
            warn!(consumer, downstream, error, "circuit breaker opened: downstream unavailable");
            self.metrics.add_breaks(1);
        }
        Some(until)
    }

    /// Stores an item that failed: with `retry_at` to be tried again from there, outside of the
    /// consumer's window, and else as a dead letter. Nothing is stored if another process has
    /// dealt with the event meanwhile, or an operator has moved the consumer.
    pub(crate) async fn store_failed(
        &self,
        item: &Item,
        failure: &Failure,
        retry_at: Option<Timestamp>,
    ) -> Result<(), Failure> {
        let deferral = retry_at.map(|retry_at| Deferral { tries: item.attempts, retry_at });
        let (consumer, tenant) = (&self.consumer.name, &item.arrival.tenant);
        let mut tx = self.chapar.store().begin_batch(consumer).await?;
        if item.released.is_none() {
            let facts = tx.inbox().facts(consumer, vec![], vec![]).await?;
            let moved = item.epoch.is_some_and(|epoch| epoch != facts.epoch);
            if moved || tx.inbox().is_applied(consumer, tenant, &item.arrival.event_id).await? {
                return Ok(tx.rollback().await?);
            }
        }
        if !self.bury(&mut tx, item, failure, deferral).await? {
            return Ok(tx.rollback().await?);
        }
        if let (Some((saga, key)), None) = (failure.stuck_saga(), deferral) {
            let now = self.chapar.clock().now();
            let of = (saga.as_str(), key.as_str(), tenant.as_str());
            crate::saga::mark_stuck(&mut tx, of, failure.message(), now).await?;
        }
        tx.commit().await?;
        if deferral.is_none() {
            self.report_buried(item, failure);
        }
        Ok(())
    }

    /// Moves an item from where it was stored to the dead letters. False if it is not there any
    /// more.
    pub(crate) async fn bury(
        &self,
        tx: &mut Tx,
        item: &Item,
        failure: &Failure,
        deferral: Option<Deferral>,
    ) -> Result<bool, Failure> {
        let consumer = &self.consumer.name;
        let now = self.chapar.clock().now();
        let letter = match &item.released {
            Some(Release::Letter { id, deferred }) => {
                let (how, of) = (self.how(item, failure), (&**consumer, &*item.arrival.topic));
                if !tx.letters().fail_again(id, of, &how, deferral, now).await? {
                    return Ok(false);
                }
                // The broker has a copy of one that was open before.
                Some(id.clone()).filter(|_| *deferred)
            }
            Some(Release::Parked(id)) if !tx.letters().unpark(*id).await? => return Ok(false),
            Some(Release::Stash(id)) if !tx.stash().remove(*id).await? => return Ok(false),
            _ => {
                let letter = NewDeadLetter { deferral, ..self.letter(item, failure, now) };
                let id = tx.letters().bury(&letter).await?;
                // A late one was passed already; its number must not be open for a copy of it.
                if failure.kind() != FailureKind::Late {
                    self.pass_over(tx, item).await?;
                }
                Some(id)
            }
        };
        if let (Some(letter), true, None) = (letter, self.copies, deferral) {
            tx.letters().want_copy(&letter).await?;
        }
        Ok(true)
    }

    /// Logs and counts a dead letter, once it is committed.
    pub(crate) fn report_buried(&self, item: &Item, failure: &Failure) {
        error!(
            consumer = self.consumer.name,
            event_id = item.arrival.event_id,
            tenant_id = item.arrival.tenant,
            topic = item.arrival.topic,
            retry_count = item.attempts,
            error = failure.message(),
            "dead-lettered"
        );
        if !matches!(item.released, Some(Release::Letter { deferred: false, .. })) {
            self.metrics.add_dead_letters(1);
        }
    }

    /// Stashes an event that came before its saga.
    pub(crate) async fn stash(&self, item: &Item, failure: &Failure) -> Result<(), Failure> {
        let (consumer, arrival) = (&self.consumer.name, &item.arrival);
        let Some((saga, key)) = failure.early_for() else { return Ok(()) };
        let now = self.chapar.clock().now();
        let until = now.saturating_add(self.consumer.stash_for).unwrap_or(Timestamp::MAX);
        let mut tx = self.chapar.store().begin_engine().await?;
        match &item.released {
            // Its saga has ended and been forgotten; it stays until its time is over.
            Some(Release::Stash(_)) => return Ok(tx.rollback().await?),
            Some(Release::Parked(id)) if !tx.letters().unpark(*id).await? => {
                return Ok(tx.rollback().await?);
            }
            _ => {}
        }
        tx.stash().put(consumer, saga, key, arrival, until).await?;
        self.pass_over(&mut tx, item).await?;
        Ok(tx.commit().await?)
    }

    pub(crate) fn letter(&self, item: &Item, failure: &Failure, now: Timestamp) -> NewDeadLetter {
        let parks = self.consumer.on_failure == FailurePolicy::ParkKey
            && self.consumer.ordered
            && item.arrival.ordering_key.is_some();
        NewDeadLetter {
            id: self.chapar.new_id().to_string(),
            consumer: self.consumer.name.clone(),
            arrival: Arrival::clone(&item.arrival),
            failure: self.how(item, failure),
            attempts: item.attempts.max(1),
            first_failed_at: item.first_failed_at.unwrap_or(now),
            last_failed_at: now,
            // Later events of its key were applied before a late one arrived.
            blocks_key: parks && failure.kind() != FailureKind::Late,
            deferral: None,
        }
    }

    fn how(&self, item: &Item, failure: &Failure) -> LetterFailure {
        let (kind, shape) = (failure.kind(), shape(failure.message()));
        LetterFailure {
            kind: kind.as_str().to_owned(),
            error: failure.message().to_owned(),
            fingerprint: fingerprint(&self.consumer.name, &item.arrival.topic, kind, &shape),
            class: kind.class().map(FailureClass::as_str).map(str::to_owned),
            shape,
        }
    }
}
