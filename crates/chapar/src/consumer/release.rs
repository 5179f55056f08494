//! Releasing dead letters, parked and stashed events.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use chapar_sql::{NewDeadLetter, Tables};
use futures_util::future::join_all;

use crate::consumer::batch::{Applied, Failed};
use crate::consumer::failed::Fate;
use crate::consumer::item::{Item, Release};
use crate::consumer::runner::Runner;
use crate::failure::Failure;

/// How long letters are delivered before the runner looks around.
const RELEASE_FOR: Duration = Duration::from_secs(2);
/// How many stashed events, or keys, are looked at in one turn.
const AT_ONCE: i64 = 100;

impl Runner {
    /// Delivers again what an operator asked for, and then what waited behind it.
    pub(crate) async fn release(&self) -> Result<(), Failure> {
        let consumer = &self.consumer.name;
        let mut tx = self.chapar.store().begin_read().await?;
        let started = tx.stash().of_started(consumer, AT_ONCE).await?;
        let expired = tx.stash().has_expired(consumer, self.chapar.clock().now()).await?;
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
        let keys = tx.letters().released_keys(consumer, AT_ONCE).await?;
        tx.rollback().await?;
        for key in keys {
            loop {
                let parked = self.next_parked(&key).await?;
                if parked.is_empty() || !self.apply_released(parked).await? {
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
        let limit = lanes * together;
        let now = self.chapar.clock().now();
        let mut tx = self.chapar.store().begin_read().await?;
        let letters = tx.letters().replay_requests(&self.consumer.name, now, limit as i64).await?;
        tx.rollback().await?;
        let more = letters.len() == limit;
        let mut items = Vec::with_capacity(letters.len());
        for letter in letters {
            let (tries, deferred) = (letter.tries, letter.deferred);
            let first_failed_at = Some(letter.first_failed_at).filter(|_| deferred);
            let arrival = letter.to_deliver();
            let item = self.released(arrival, Release::Letter { id: letter.id, deferred }).await;
            let attempts = u32::try_from(tries).unwrap_or(0);
            items.push(Item { attempts, first_failed_at, ..item });
        }
        for applied in join_all(self.shared_out(items, lanes).into_iter().map(|batch| async move {
            for together in batch.chunks(together) {
                self.apply_released(together.to_vec()).await?;
            }
            Ok::<(), Failure>(())
        }))
        .await
        {
            applied?;
        }
        Ok(more)
    }

    /// Shares letters out. Those of one key stay in the order in which they were buried, in one
    /// lane; those of one tenant are neighbours, because changing the tenant costs round trips.
    fn shared_out(&self, mut items: Vec<Item>, lanes: usize) -> Vec<Vec<Item>> {
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
        batches
    }

    async fn next_parked(&self, key: &str) -> Result<Vec<Item>, Failure> {
        let (consumer, limit) = (&self.consumer.name, self.consumer.together() as i64);
        let mut tx = self.chapar.store().begin_read().await?;
        let parked = tx.letters().first_parked(consumer, key, limit).await?;
        tx.rollback().await?;
        let mut items = Vec::with_capacity(parked.len());
        for parked in parked {
            items.push(self.released(parked.arrival, Release::Parked(parked.id)).await);
        }
        Ok(items)
    }

    /// Applies released items. What fails has the attempts of any event: it is tried again from
    /// its table, and what follows it in its key stays there. Says whether all went well.
    async fn apply_released(&self, items: Vec<Item>) -> Result<bool, Failure> {
        let (mut applied, mut failed) = (Applied::default(), Vec::new());
        self.apply(items, &mut applied, &mut failed).await;
        self.count(&applied);
        let well = failed.is_empty() && applied.left == 0 && applied.buried.is_empty();
        for Failed { mut item, failure, .. } in failed {
            match self.fate(&mut item, &failure) {
                Fate::Stash => self.stash(&item, &failure).await?,
                Fate::Retry(at) => self.store_failed(&item, &failure, Some(at)).await?,
                Fate::Bury | Fate::Stop => self.store_failed(&item, &failure, None).await?,
            }
        }
        Ok(well)
    }

    /// Puts stashed events whose saga never came among the dead letters.
    async fn expire_stash(&self) -> Result<(), Failure> {
        let now = self.chapar.clock().now();
        let mut tx = self.chapar.store().begin_engine().await?;
        let mut expired = Vec::new();
        for stashed in tx.stash().take_expired(&self.consumer.name, now, AT_ONCE).await? {
            let (saga, key) = (&stashed.saga, &stashed.key);
            let failure = Failure::terminal(format!("saga {saga} {key} did not start in time"));
            let item = self.stored(stashed.arrival);
            // Its followers were applied while it was stashed; they are not held back now.
            let letter = NewDeadLetter { blocks_key: false, ..self.letter(&item, &failure, now) };
            let id = tx.letters().bury(&letter).await?;
            if self.copies {
                tx.letters().want_copy(&id).await?;
            }
            expired.push((item, failure));
        }
        tx.commit().await?;
        for (item, failure) in expired {
            self.report_buried(&item, &failure);
        }
        Ok(())
    }
}
