//! The place of an event in its key: reading it, and recording how far the key is.

use std::collections::HashMap;
use std::sync::MutexGuard;
use std::time::Duration;

use chapar_core::machine::order::{Hole, Place};
use chapar_core::machine::stamps::{HEADER, Stamp};
use chapar_core::{Envelope, Headers};
use chapar_sql::{InboxFloor, InboxHole, InboxMark, StoreError, Tables, Tx};
use jiff::Timestamp;
use tracing::warn;

use crate::consumer::gap::{Gap, Missing};
use crate::consumer::item::Item;
use crate::consumer::runner::Runner;
use crate::cx::Cx;
use crate::failure::Failure;

impl Runner {
    /// The place of a message in its key, as its stamp or, where that is declared, the version
    /// of its aggregate tells it. `spread`: its key may be in several partitions.
    pub(crate) fn place(
        &self,
        topic: &str,
        headers: &Headers,
        envelope: Option<&Envelope>,
        spread: bool,
    ) -> Option<Place> {
        if !self.consumer.ordered {
            return None;
        }
        if let Some(stamp) = headers.get(HEADER).and_then(Stamp::read) {
            let place = Place::by_stamp(&stamp, topic, self.consumer.handlers.keys());
            return Some(place.spread(spread));
        }
        let envelope = envelope.filter(|_| self.consumer.by_version)?;
        let aggregate = envelope.aggregate.as_ref()?;
        let name = format!("{} {}", aggregate.kind, aggregate.id);
        Some(Place::by_version(&name, aggregate.version?))
    }

    /// Learns where this consumer came in on the topics of items, before they are looked at.
    pub(crate) async fn note_floors(&self, items: &[Item]) -> Result<(), StoreError> {
        let mut lower: HashMap<&str, i64> = HashMap::new();
        {
            let floors = self.floors();
            for item in items {
                let Some(seq) = item.place.as_ref().and_then(Place::stamped) else { continue };
                let topic = item.arrival.topic.as_str();
                if floors.get(topic).is_none_or(|floor| seq < floor.first_seq) {
                    let known = lower.entry(topic).or_insert(seq);
                    *known = seq.min(*known);
                }
            }
        }
        if lower.is_empty() {
            return Ok(());
        }
        let now = self.chapar.clock().now();
        let mut lower: Vec<(&str, i64)> = lower.into_iter().collect();
        lower.sort_unstable();
        let mut tx = self.chapar.store().begin_engine().await?;
        for (topic, seq) in lower {
            tx.inbox().lower_floor(&self.consumer.name, topic, seq, now).await?;
        }
        let known = tx.inbox().floors(&self.consumer.name).await?;
        tx.commit().await?;
        *self.floors() = known.into_iter().map(|floor| (floor.topic.clone(), floor)).collect();
        Ok(())
    }

    pub(crate) fn floors(&self) -> MutexGuard<'_, HashMap<String, InboxFloor>> {
        self.floors.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What the declared policy does before an event whose wait is over.
    pub(crate) async fn over_gap(
        &self,
        cx: &mut Cx,
        item: &Item,
        skips: &[Hole],
    ) -> Result<(), Failure> {
        let (false, Some((key, place))) = (skips.is_empty(), item.placed()) else {
            return Ok(());
        };
        let (consumer, tenant) = (&self.consumer.name, &item.arrival.tenant);
        warn!(
            consumer,
            event_id = item.arrival.event_id,
            tenant_id = tenant,
            number = place.number,
            "goes on without an event that belongs before this one"
        );
        for skipped in skips {
            let hole = InboxHole {
                ordering_key: key.to_owned(),
                line: skipped.line.clone(),
                low: skipped.low,
                high: skipped.high,
            };
            cx.engine().await?.inbox().dig_hole(consumer, tenant, &hole).await?;
        }
        self.metrics.add_gaps(1);
        if let Gap::Fetch { fetch, .. } = &self.consumer.gap {
            let missing = Missing { key: key.to_owned(), number: place.number };
            if let Ok(envelope) = &item.envelope {
                cx.turn_to(envelope.clone(), false);
            }
            cx.serve().await?;
            let fetch = fetch.clone();
            self.execution()
                .call(cx, |cx: &mut Cx| Box::pin(async move { fetch(missing, cx).await }))
                .await?;
        }
        Ok(())
    }

    /// Moves the marks of a tenant's items forward, also over what is left out before them: the
    /// next event of the key need not wait for that again.
    pub(crate) async fn mark<'a>(
        &self,
        tx: &mut Tx,
        tenant: &str,
        items: impl Iterator<Item = (&'a Item, &'a [Hole])>,
    ) -> Result<(), Failure> {
        let mut marks = Vec::new();
        for (item, skips) in items {
            let Some((key, place)) = item.placed() else { continue };
            let mut mark = |line: &str, last_seq| {
                marks.push(InboxMark {
                    ordering_key: key.to_owned(),
                    line: line.to_owned(),
                    last_seq,
                })
            };
            for skipped in skips {
                mark(&skipped.line, skipped.high);
            }
            mark(&place.line, place.number);
        }
        Ok(tx.inbox().advance_marks(&self.consumer.name, tenant, marks).await?)
    }

    /// An event is held now: those after it need not wait for it, and its number stays
    /// open for it.
    pub(crate) async fn pass_over(&self, tx: &mut Tx, item: &Item) -> Result<(), Failure> {
        let Some((key, place)) = item.placed() else { return Ok(()) };
        let tenant = &item.arrival.tenant;
        self.mark(tx, tenant, std::iter::once((item, &[][..]))).await?;
        let (ordering_key, line) = (key.to_owned(), place.line.clone());
        let hole = InboxHole { ordering_key, line, low: place.number, high: place.number };
        Ok(tx.inbox().dig_hole(&self.consumer.name, tenant, &hole).await?)
    }

    /// An event that was left out has been applied.
    pub(crate) async fn fill(&self, tx: &mut Tx, item: &Item) -> Result<(), Failure> {
        let Some((key, place)) = item.known_place() else { return Ok(()) };
        let (consumer, tenant) = (&self.consumer.name, &item.arrival.tenant);
        Ok(tx.inbox().fill_hole(consumer, tenant, key, &place.line, place.number).await?)
    }

    /// When an item that waits is looked at again: soon at first, less often later.
    pub(crate) fn look_again(&self, item: &Item, now: Timestamp) -> Timestamp {
        let since = item.held_since.unwrap_or(now);
        let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        let left = self.consumer.gap.limit().saturating_sub(waited);
        let pause = (waited / 4).clamp(Duration::from_millis(20), Duration::from_millis(500));
        now.saturating_add(pause.min(left.max(Duration::from_millis(1)))).unwrap_or(now)
    }
}

impl Item {
    /// Its key and place, unless it was held: then its turn was decided before.
    pub(crate) fn placed(&self) -> Option<(&str, &Place)> {
        self.known_place().filter(|_| self.released.is_none())
    }

    fn known_place(&self) -> Option<(&str, &Place)> {
        Some((self.arrival.ordering_key.as_deref()?, self.place.as_ref()?))
    }
}

/// Puts the items of a key into the order of their numbers, where all have comparable ones.
pub(crate) fn arrange(items: &mut [Item]) {
    let Some(first) = items.first().and_then(|item| item.place.clone()) else { return };
    let comparable = |item: &Item| item.place.as_ref().is_some_and(|at| at.comparable(&first));
    if items.iter().all(comparable) {
        items.sort_by_key(|item| item.place.as_ref().map_or(0, |place| place.number));
    }
}
