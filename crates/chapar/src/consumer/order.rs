//! Keeping the order of a key over topics and processes: who may go, who waits, who is too late.

use std::collections::{HashMap, HashSet};
use std::sync::MutexGuard;
use std::time::Duration;

use chapar_core::machine::failure::FailureKind;
use chapar_core::machine::order::{Place, Progress, Standing};
use chapar_core::machine::stamps::{HEADER, Stamp};
use chapar_core::{Envelope, Headers};
use chapar_sql::{InboxFloor, InboxHole, InboxMark, StoreError, Tx};
use jiff::Timestamp;
use tracing::warn;

use crate::consumer::batch::Item;
use crate::consumer::gap::{Gap, Missing};
use crate::consumer::runner::Runner;
use crate::cx::Cx;
use crate::failure::Failure;

/// What becomes of each item of a batch, by its place in it.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Something before it is missing, or it stands behind one that waits.
    pub(crate) held: HashSet<usize>,
    /// Its number was passed before, and it is in no hole.
    pub(crate) old: HashSet<usize>,
    /// It was left out before, and comes now.
    pub(crate) fills: HashSet<usize>,
    /// Its wait is over; what is missing of its own line is left out.
    gaps: HashMap<usize, Option<(i64, i64)>>,
}

impl Runner {
    /// The place of a message in its key, as its stamp or, where that is declared, the version
    /// of its aggregate tells it.
    pub(crate) fn place(
        &self,
        topic: &str,
        headers: &Headers,
        envelope: Option<&Envelope>,
    ) -> Option<Place> {
        if !self.consumer.ordered {
            return None;
        }
        if let Some(stamp) = headers.get(HEADER).and_then(Stamp::read) {
            return Some(Place::by_stamp(&stamp, topic, self.consumer.handlers.keys()));
        }
        let envelope = envelope.filter(|_| self.consumer.by_version)?;
        let aggregate = envelope.aggregate.as_ref()?;
        let name = format!("{} {}", aggregate.kind, aggregate.id);
        Some(Place::by_version(&name, aggregate.version?))
    }

    /// Decides who of a tenant's items may go. Marks are read before the boxes are looked into:
    /// the transaction that stored an event as letter, parked or stashed committed both.
    pub(crate) async fn turns(&self, tx: &mut Tx, items: &[Item]) -> Result<Turns, Failure> {
        let mut turns = Turns::default();
        let tenant = &items[0].arrival.tenant;
        let mut keys: Vec<String> =
            items.iter().filter_map(|item| item.placed()).map(|(key, _)| key.to_owned()).collect();
        keys.dedup();
        if keys.is_empty() {
            return Ok(turns);
        }
        let mut known: HashMap<String, Progress> = HashMap::new();
        for mark in tx.conn().inbox_marks(&self.consumer.name, tenant, keys.clone()).await? {
            known.entry(mark.ordering_key).or_default().learn(mark.line, mark.last_seq);
        }
        let now = self.chapar.clock().now();
        let mut waiting: HashSet<&str> = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let Some(key) = item.arrival.ordering_key.as_deref() else { continue };
            if item.released.is_some() {
                continue;
            }
            if waiting.contains(key) {
                turns.held.insert(index);
                continue;
            }
            let Some(place) = &item.place else { continue };
            let progress = known.entry(key.to_owned()).or_default();
            match progress.standing(place) {
                Standing::Next => {}
                Standing::Old => {
                    turns.old.insert(index);
                }
                Standing::Early if self.is_where_we_came_in(progress, place, now) => {}
                Standing::Early if self.may_wait(item, now) => {
                    turns.held.insert(index);
                    waiting.insert(key);
                    continue;
                }
                Standing::Early => {
                    turns.gaps.insert(index, progress.hole_before(place));
                }
            }
            progress.pass(place);
        }
        if !turns.old.is_empty() {
            let mut holes = tx.conn().inbox_holes(&self.consumer.name, tenant, keys).await?;
            holes.extend(turns.gaps.iter().filter_map(|(index, gap)| {
                let (key, place) = items[*index].placed()?;
                let (low, high) = (*gap)?;
                Some(InboxHole {
                    ordering_key: key.to_owned(),
                    line: place.line.clone(),
                    low,
                    high,
                })
            }));
            for (index, item) in items.iter().enumerate() {
                if turns.old.contains(&index) && take_out(&mut holes, item) {
                    turns.old.remove(&index);
                    turns.fills.insert(index);
                }
            }
        }
        Ok(turns)
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
            tx.conn().lower_floor(&self.consumer.name, topic, seq, now).await?;
        }
        let known = tx.conn().floors(&self.consumer.name).await?;
        tx.commit().await?;
        *self.floors() = known.into_iter().map(|floor| (floor.topic.clone(), floor)).collect();
        Ok(())
    }

    fn floors(&self) -> MutexGuard<'_, HashMap<String, InboxFloor>> {
        self.floors.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether all that is missing is older than the first event this consumer ever got on its
    /// topic. Partitions deliver that first one at different times, so this is believed only
    /// after as long as an event would have been waited for.
    fn is_where_we_came_in(&self, progress: &Progress, place: &Place, now: Timestamp) -> bool {
        let floors = self.floors();
        let prehistory = |topic: &str, number: i64| {
            floors.get(topic).is_some_and(|floor| {
                let age = Duration::try_from(now.duration_since(floor.since)).unwrap_or_default();
                number < floor.first_seq && age >= self.consumer.gap.limit()
            })
        };
        progress.standing(&place.without(prehistory)) == Standing::Next
    }

    fn may_wait(&self, item: &Item, now: Timestamp) -> bool {
        let waited = item.held_since.map_or(Duration::ZERO, |since| {
            Duration::try_from(now.duration_since(since)).unwrap_or_default()
        });
        waited < self.consumer.gap.limit()
    }

    /// What the declared policy does before an event whose wait is over.
    pub(crate) async fn over_gap(
        &self,
        cx: &mut Cx,
        turns: &Turns,
        index: usize,
        item: &Item,
    ) -> Result<(), Failure> {
        let (Some(hole), Some((key, place))) = (turns.gaps.get(&index), item.placed()) else {
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
        if let Some((low, high)) = *hole {
            let (ordering_key, line) = (key.to_owned(), place.line.clone());
            let hole = InboxHole { ordering_key, line, low, high };
            cx.tx().conn().dig_hole(consumer, tenant, &hole).await?;
        }
        self.metrics.add_gaps(1);
        if let Gap::Fetch { fetch, .. } = &self.consumer.gap {
            let missing = Missing { key: key.to_owned(), number: place.number };
            if let Ok(envelope) = &item.envelope {
                cx.turn_to(envelope.clone(), false);
            }
            let limit = self.consumer.timeout;
            let late =
                || Failure::new(FailureKind::Timeout, format!("fetching took over {limit:?}"));
            tokio::time::timeout(limit, fetch(missing, cx)).await.map_err(|_| late())??;
        }
        Ok(())
    }

    /// Moves the marks of a tenant's items forward.
    pub(crate) async fn mark<'a>(
        &self,
        tx: &mut Tx,
        tenant: &str,
        items: impl Iterator<Item = &'a Item>,
    ) -> Result<(), Failure> {
        let mark = |item: &Item| {
            let (key, place) = item.placed()?;
            let (ordering_key, line) = (key.to_owned(), place.line.clone());
            Some(InboxMark { ordering_key, line, last_seq: place.number })
        };
        let marks = items.filter_map(mark).collect();
        Ok(tx.conn().advance_marks(&self.consumer.name, tenant, marks).await?)
    }

    /// An event has gone into a box: those after it need not wait for it, and its number stays
    /// open for it.
    pub(crate) async fn pass_over(&self, tx: &mut Tx, item: &Item) -> Result<(), Failure> {
        let Some((key, place)) = item.placed() else { return Ok(()) };
        let tenant = &item.arrival.tenant;
        self.mark(tx, tenant, std::iter::once(item)).await?;
        let (ordering_key, line) = (key.to_owned(), place.line.clone());
        let hole = InboxHole { ordering_key, line, low: place.number, high: place.number };
        Ok(tx.conn().dig_hole(&self.consumer.name, tenant, &hole).await?)
    }

    /// An event that was left out has been applied.
    pub(crate) async fn fill(&self, tx: &mut Tx, item: &Item) -> Result<(), Failure> {
        let Some((key, place)) = item.known_place() else { return Ok(()) };
        let (consumer, tenant) = (&self.consumer.name, &item.arrival.tenant);
        Ok(tx.conn().fill_hole(consumer, tenant, key, &place.line, place.number).await?)
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
    /// Its key and place, unless it comes out of a box: then its turn was decided before.
    fn placed(&self) -> Option<(&str, &Place)> {
        self.known_place().filter(|_| self.released.is_none())
    }

    fn known_place(&self) -> Option<(&str, &Place)> {
        Some((self.arrival.ordering_key.as_deref()?, self.place.as_ref()?))
    }
}

/// Takes an item's number out of the hole it lies in, if it does.
fn take_out(holes: &mut Vec<InboxHole>, item: &Item) -> bool {
    let Some((key, place)) = item.placed() else { return false };
    let at = holes.iter().position(|hole| {
        hole.ordering_key == key
            && hole.line == place.line
            && (hole.low..=hole.high).contains(&place.number)
    });
    let Some(at) = at else { return false };
    let hole = holes.swap_remove(at);
    holes.push(InboxHole { high: place.number - 1, ..hole.clone() });
    holes.push(InboxHole { low: place.number + 1, ..hole });
    true
}

/// Puts the items of a key into the order of their numbers, where all have comparable ones.
pub(crate) fn arrange(items: &mut [Item]) {
    let Some(first) = items.first().and_then(|item| item.place.clone()) else { return };
    let comparable = |item: &Item| item.place.as_ref().is_some_and(|at| at.comparable(&first));
    if items.iter().all(comparable) {
        items.sort_by_key(|item| item.place.as_ref().map_or(0, |place| place.number));
    }
}
