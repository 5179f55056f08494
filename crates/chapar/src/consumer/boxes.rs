//! What becomes of an event that failed: tried again, stashed, or put among the dead letters.

use chapar_core::machine::failure::FailurePolicy;
use chapar_core::machine::retry::Next;
use chapar_sql::{Arrival, NewDeadLetter};
use jiff::Timestamp;
use tracing::{error, warn};

use crate::consumer::batch::{Applied, Failed, Item, Release};
use crate::consumer::runner::Runner;
use crate::failure::Failure;

/// What the runner does with the items of a failed key.
pub(crate) enum Verdict {
    /// Try the items again, not before then.
    Retry { items: Vec<Item>, at: Timestamp },
    /// The first items are dealt with; go on with the others now.
    GoOn { dealt: Vec<Item>, rest: Vec<Item> },
    /// The consumer's policy says to stop.
    Stop(Vec<Item>),
}

impl Runner {
    pub(crate) async fn judge(&self, failed: Failed) -> Result<Verdict, Failure> {
        let Failed { mut item, failure, followers } = failed;
        let now = self.chapar.clock().now();
        if let Some((saga, key)) = failure.early_for() {
            self.stash(&item, saga, key, now).await?;
            return Ok(Verdict::GoOn { dealt: vec![item], rest: followers });
        }
        let first = *item.first_failed_at.get_or_insert(now);
        if let Some(at) = self.trip(&failure, now) {
            // The downstream is away, which says nothing about the event: no attempt is spent.
            let items = std::iter::once(item).chain(followers).collect();
            return Ok(Verdict::Retry { items, at });
        }
        if failure.is_counted() {
            item.attempts += 1;
        }
        if failure.kind().is_retryable()
            && let Next::RetryAt(at) =
                self.consumer.retry.after(item.attempts.max(1), first, now, fastrand::f64())
        {
            self.metrics.add_retries(1);
            warn!(
                consumer = self.consumer.name,
                event_id = item.arrival.event_id,
                tenant_id = item.arrival.tenant,
                retry_count = item.attempts,
                error = failure.message(),
                "will try again"
            );
            let items = std::iter::once(item).chain(followers).collect();
            return Ok(Verdict::Retry { items, at });
        }
        if self.consumer.on_failure == FailurePolicy::Stop {
            let items = std::iter::once(item).chain(followers).collect();
            return Ok(Verdict::Stop(items));
        }
        self.bury(&item, &failure, first, now).await?;
        // Where its key is blocked now, the followers find that out, and whether it is their turn.
        Ok(Verdict::GoOn { dealt: vec![item], rest: followers })
    }

    /// Tells the breaker of a failure; until when to rest, if that opens it.
    fn trip(&self, failure: &Failure, now: Timestamp) -> Option<Timestamp> {
        let mut breaker = self.breaker().filter(|_| failure.kind().is_retryable())?;
        let was_resting = breaker.rests_until(now).is_some();
        let until = breaker.failed(now)?;
        if !was_resting {
            let downstream = self.consumer.breaker.as_ref().map(|(name, _)| name.as_str());
            let (consumer, error) = (&self.consumer.name, failure.message());
            warn!(consumer, downstream, error, "rests, because the downstream is away");
            self.metrics.add_breaks(1);
        }
        Some(until)
    }

    fn parks(&self, item: &Item) -> bool {
        self.consumer.on_failure == FailurePolicy::ParkKey
            && self.consumer.ordered
            && item.arrival.ordering_key.is_some()
    }

    async fn stash(
        &self,
        item: &Item,
        saga: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let consumer = &self.consumer.name;
        let until = now.saturating_add(self.consumer.stash_for).unwrap_or(Timestamp::MAX);
        let mut tx = self.chapar.store().begin(&item.arrival.tenant).await?;
        tx.conn().stash(consumer, saga, key, &item.arrival, until).await?;
        self.pass_over(&mut tx, item).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn bury(
        &self,
        item: &Item,
        failure: &Failure,
        first: Timestamp,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let consumer = &self.consumer.name;
        error!(
            consumer,
            event_id = item.arrival.event_id,
            tenant_id = item.arrival.tenant,
            topic = item.arrival.topic,
            retry_count = item.attempts,
            error = failure.message(),
            "dead-lettered"
        );
        let mut tx = self.chapar.store().begin_engine().await?;
        match &item.released {
            Some(Release::Letter(id)) => {
                tx.conn().reopen_dead_letter(id, failure.message(), now).await?;
            }
            released => {
                let letter = self.letter(item, failure, first, now);
                tx.conn().bury(&letter).await?;
                self.pass_over(&mut tx, item).await?;
                match released {
                    Some(Release::Parked(id)) => tx.conn().unpark(*id).await?,
                    Some(Release::Stash(id)) => tx.conn().remove_stashed(*id).await?,
                    _ => {}
                }
                self.metrics.add_dead_letters(1);
            }
        }
        if let Some((saga, key)) = failure.stuck_saga() {
            crate::saga::mark_stuck(&mut tx, saga, key, failure.message(), now).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    fn letter(
        &self,
        item: &Item,
        failure: &Failure,
        first: Timestamp,
        now: Timestamp,
    ) -> NewDeadLetter {
        NewDeadLetter {
            id: self.chapar.new_id().to_string(),
            consumer: self.consumer.name.clone(),
            arrival: Arrival::clone(&item.arrival),
            kind: failure.kind().as_str().to_owned(),
            error: failure.message().to_owned(),
            fingerprint: fingerprint(&self.consumer.name, failure),
            attempts: item.attempts.max(1),
            first_failed_at: first,
            last_failed_at: now,
            blocks_key: self.parks(item),
        }
    }

    /// Puts stashed events whose saga never came among the dead letters.
    async fn expire_stash(&self) -> Result<(), Failure> {
        let now = self.chapar.clock().now();
        let mut tx = self.chapar.store().begin_engine().await?;
        for stashed in tx.conn().take_expired_stash(&self.consumer.name, now, 100).await? {
            let (saga, key) = (&stashed.saga, &stashed.key);
            let failure = Failure::rule(format!("saga {saga} {key} did not start in time"));
            let item = self.boxed(stashed.arrival);
            // Its followers were let pass when it was stashed; they are not held back now.
            let letter = self.letter(&item, &failure, now, now);
            tx.conn().bury(&NewDeadLetter { blocks_key: false, ..letter }).await?;
            self.metrics.add_dead_letters(1);
        }
        tx.commit().await?;
        Ok(())
    }

    /// Delivers again what somebody asked for, and then what waited behind it.
    pub(crate) async fn release(&self) -> Result<(), Failure> {
        const AT_ONCE: i64 = 100;
        let consumer = &self.consumer.name;
        let mut tx = self.chapar.store().begin_read().await?;
        let letters = tx.conn().replay_requests(consumer, AT_ONCE).await?;
        let keys = tx.conn().released_keys(consumer, AT_ONCE).await?;
        let started = tx.conn().stash_of_started(consumer, AT_ONCE).await?;
        let expired = tx.conn().stash_expired(consumer, self.chapar.clock().now()).await?;
        tx.rollback().await?;
        if expired {
            self.expire_stash().await?;
        }
        for stashed in started {
            let item = self.released(stashed.arrival, Release::Stash(stashed.id)).await;
            self.apply_released(item).await?;
        }
        for letter in letters {
            let item = self.released(letter.arrival, Release::Letter(letter.id)).await;
            self.apply_released(item).await?;
        }
        for key in keys {
            while let Some((id, arrival)) = self.next_parked(&key).await? {
                let item = self.released(arrival, Release::Parked(id)).await;
                if !self.apply_released(item).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn next_parked(&self, key: &str) -> Result<Option<(i64, Arrival)>, Failure> {
        let mut tx = self.chapar.store().begin_read().await?;
        let parked = tx.conn().first_parked(&self.consumer.name, key).await?;
        tx.rollback().await?;
        Ok(parked.map(|parked| (parked.id, parked.arrival)))
    }

    /// One attempt: an event that fails again goes back into the box.
    async fn apply_released(&self, item: Item) -> Result<bool, Failure> {
        let (mut applied, mut failed) = (Applied::default(), Vec::new());
        self.apply(vec![item], &mut applied, &mut failed).await;
        self.metrics.add_applied(applied.applied);
        self.metrics.add_duplicates(applied.duplicates);
        let Some(Failed { mut item, failure, .. }) = failed.pop() else { return Ok(true) };
        let now = self.chapar.clock().now();
        item.attempts += 1;
        self.bury(&item, &failure, now, now).await?;
        Ok(false)
    }
}

/// Failures that differ only in ids and numbers are one failure.
fn fingerprint(consumer: &str, failure: &Failure) -> String {
    let mut shape = String::new();
    for word in failure.message().split_whitespace() {
        if word.chars().any(|c| c.is_ascii_digit()) {
            shape.push('#');
        } else {
            shape.push_str(word);
        }
        shape.push(' ');
    }
    format!("{consumer}|{}|{}", failure.kind().as_str(), shape.trim_end())
}
