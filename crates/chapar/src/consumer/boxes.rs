//! What becomes of an event that failed: tried again, stashed, or put among the dead letters.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use chapar_core::machine::failure::{FailureClass, FailurePolicy};
use chapar_core::machine::fingerprint::{fingerprint, shape};
use chapar_core::machine::retry::Next;
use chapar_sql::{Arrival, LetterFailure, NewDeadLetter};
use futures_util::future::join_all;
use jiff::Timestamp;
use tracing::{error, warn};

use crate::consumer::batch::{Applied, Failed, Item, Release};
use crate::consumer::runner::Runner;
use crate::failure::Failure;

/// How long letters are delivered before the runner looks around.
const RELEASE_FOR: Duration = Duration::from_secs(2);

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
                let (topic, failure) = (&item.arrival.topic, self.how(item, failure));
                tx.conn().reopen_dead_letter(id, consumer, topic, &failure, now).await?;
            }
            released => {
                let letter = self.letter(item, failure, first, now);
                tx.conn().bury(&letter).await?;
                if self.copies {
                    tx.conn().want_letter_copy(&letter.id).await?;
                }
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
            failure: self.how(item, failure),
            attempts: item.attempts.max(1),
            first_failed_at: first,
            last_failed_at: now,
            blocks_key: self.parks(item),
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

    /// Puts stashed events whose saga never came among the dead letters.
    async fn expire_stash(&self) -> Result<(), Failure> {
        let now = self.chapar.clock().now();
        let mut tx = self.chapar.store().begin_engine().await?;
        for stashed in tx.conn().take_expired_stash(&self.consumer.name, now, 100).await? {
            let (saga, key) = (&stashed.saga, &stashed.key);
            let failure = Failure::terminal(format!("saga {saga} {key} did not start in time"));
            let item = self.boxed(stashed.arrival);
            // Its followers were let pass when it was stashed; they are not held back now.
            let letter = self.letter(&item, &failure, now, now);
            let letter = NewDeadLetter { blocks_key: false, ..letter };
            tx.conn().bury(&letter).await?;
            if self.copies {
                tx.conn().want_letter_copy(&letter.id).await?;
            }
            self.metrics.add_dead_letters(1);
        }
        tx.commit().await?;
        Ok(())
    }

    /// Delivers again what an operator asked for, and then what waited behind it.
    pub(crate) async fn release(&self) -> Result<(), Failure> {
        const AT_ONCE: i64 = 100;
        let consumer = &self.consumer.name;
        let mut tx = self.chapar.store().begin_read().await?;
        let started = tx.conn().stash_of_started(consumer, AT_ONCE).await?;
        let expired = tx.conn().stash_expired(consumer, self.chapar.clock().now()).await?;
        tx.rollback().await?;
        if expired {
            self.expire_stash().await?;
        }
        for stashed in started {
            let item = self.released(stashed.arrival, Release::Stash(stashed.id)).await;
            self.apply_released(vec![item]).await?;
        }
        // With a limit: an operator may pause the consumer, and parked followers wait for their turn.
        let began = Instant::now();
        while self.release_letters().await? && began.elapsed() < RELEASE_FOR {}
        let mut tx = self.chapar.store().begin_read().await?;
        let keys = tx.conn().released_keys(consumer, AT_ONCE).await?;
        tx.rollback().await?;
        for key in keys {
            while let Some((id, arrival)) = self.next_parked(&key).await? {
                let item = self.released(arrival, Release::Parked(id)).await;
                if !self.apply_released(vec![item]).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Delivers letters again, in as many transactions at a time as there are lanes. Says whether
    /// there may be more.
    async fn release_letters(&self) -> Result<bool, Failure> {
        let (lanes, together) = (self.consumer.lanes.max(1), self.consumer.together().max(1));
        let mut tx = self.chapar.store().begin_read().await?;
        let limit = lanes * together;
        let letters = tx.conn().replay_requests(&self.consumer.name, limit as i64).await?;
        tx.rollback().await?;
        let more = letters.len() == limit;
        let mut items = Vec::with_capacity(letters.len());
        for letter in letters {
            items.push(self.released(letter.to_deliver(), Release::Letter(letter.id)).await);
        }
        // Letters of one key stay in the order in which they were buried, in one lane; letters of
        // one tenant are neighbours, because changing the tenant costs round trips.
        items.sort_by(|a, b| a.arrival.tenant.cmp(&b.arrival.tenant));
        let share = items.len().div_ceil(lanes).max(1);
        let mut batches: Vec<Vec<Item>> = vec![Vec::new(); lanes];
        let mut lane_of: HashMap<String, usize> = HashMap::new();
        for (place, item) in items.into_iter().enumerate() {
            let lane = match &item.arrival.ordering_key {
                Some(key) => *lane_of.entry(key.clone()).or_insert(place / share),
                None => place / share,
            };
            batches[lane].push(item);
        }
        for batch in &mut batches {
            // A key's letters must be neighbours, too, and a key belongs to one tenant.
            batch.sort_by(|a, b| {
                let key = |item: &Item| item.arrival.ordering_key.clone();
                a.arrival.tenant.cmp(&b.arrival.tenant).then_with(|| key(a).cmp(&key(b)))
            });
        }
        let lane = async |batch: Vec<Item>| -> Result<(), Failure> {
            for together in batch.chunks(together) {
                self.apply_released(together.to_vec()).await?;
            }
            Ok(())
        };
        for applied in join_all(batches.into_iter().map(lane)).await {
            applied?;
        }
        Ok(more)
    }

    async fn next_parked(&self, key: &str) -> Result<Option<(i64, Arrival)>, Failure> {
        let mut tx = self.chapar.store().begin_read().await?;
        let parked = tx.conn().first_parked(&self.consumer.name, key).await?;
        tx.rollback().await?;
        Ok(parked.map(|parked| (parked.id, parked.arrival)))
    }

    /// One attempt: what fails again goes back into the box. What follows it in its key stays
    /// asked for. Says whether all went well.
    async fn apply_released(&self, items: Vec<Item>) -> Result<bool, Failure> {
        let (mut applied, mut failed) = (Applied::default(), Vec::new());
        self.apply(items, &mut applied, &mut failed).await;
        self.metrics.add_applied(applied.applied);
        self.metrics.add_duplicates(applied.duplicates);
        let well = failed.is_empty();
        let now = self.chapar.clock().now();
        for Failed { mut item, failure, .. } in failed {
            item.attempts += 1;
            self.bury(&item, &failure, now, now).await?;
        }
        Ok(well)
    }
}
