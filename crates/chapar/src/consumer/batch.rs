//! Applying a batch: admission, claim, handlers and emitted events in one transaction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chapar_core::Envelope;
use chapar_core::machine::admission::{Cause, Decision};
use chapar_core::machine::failure::FailureKind;
use chapar_core::machine::order::Hole;
use chapar_core::port::BoxFuture;
use chapar_sql::{Tables, Tx};

use crate::consumer::Handling;
use crate::consumer::admission::{Admission, Decided};
use crate::consumer::item::{Item, Release, unusable};
use crate::consumer::runner::Runner;
use crate::cx::Cx;
use crate::execution::Execution;
use crate::failure::Failure;

/// How a batch ended.
#[derive(Default)]
pub(crate) struct Applied {
    pub(crate) applied: u64,
    pub(crate) duplicates: u64,
    pub(crate) parked: u64,
    /// Became dead letters without being handled, with the reason.
    pub(crate) buried: Vec<(Item, Failure)>,
    /// What waits for events that belong before it; its transaction went on without.
    pub(crate) held: Vec<Item>,
    /// What waits because the consumer is paused.
    pub(crate) paused: Vec<Item>,
    /// An operator has moved the consumer: what was fetched before is discarded.
    pub(crate) moved: bool,
    /// What was released but not applied, because it was not its turn.
    pub(crate) left: u64,
}

/// An item that failed, after everything else of the batch was dealt with.
pub(crate) struct Failed {
    pub(crate) item: Item,
    pub(crate) failure: Failure,
    /// The rest of its key, untouched.
    pub(crate) followers: Vec<Item>,
}

/// An item that is applied, and what admission said of it.
struct Going<'a> {
    item: &'a Item,
    skips: &'a [Hole],
    fills: bool,
}

/// The events of a tenant that are this transaction's to apply.
struct Claimed {
    fresh: HashSet<String>,
    /// Those whose intent was carried out for another event.
    repeated: HashSet<String>,
}

/// What is written when all handlers of a tenant are done.
#[derive(Default)]
struct After<'a> {
    results: Vec<(&'a Item, &'static str)>,
    filled: Vec<&'a Item>,
    /// Those that are released.
    left: Vec<&'a Item>,
}

impl<'a> After<'a> {
    fn leave(&mut self, item: &'a Item) {
        if item.released.is_some() {
            self.left.push(item);
        }
    }
}

impl Applied {
    fn add(&mut self, other: Applied) {
        self.applied += other.applied;
        self.duplicates += other.duplicates;
        self.parked += other.parked;
        self.buried.extend(other.buried);
        self.held.extend(other.held);
        self.paused.extend(other.paused);
        self.moved |= other.moved;
        self.left += other.left;
    }
}

impl Runner {
    /// Applies items, bisecting to the ones that fail. Items of a key are neighbours and stay
    /// in order; a failed one comes back with the rest of its key.
    pub(crate) fn apply<'a>(
        &'a self,
        items: Vec<Item>,
        applied: &'a mut Applied,
        failed: &'a mut Vec<Failed>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if items.is_empty() {
                return;
            }
            let failure = match self.apply_all(&items).await {
                Ok(done) => return applied.add(done),
                Err(failure) => failure,
            };
            let mut items = items;
            if items.len() == 1 {
                let item = items.remove(0);
                failed.push(Failed { item, failure, followers: Vec::new() });
                return;
            }
            let right = items.split_off(items.len() / 2);
            let (before, held, paused) = (failed.len(), applied.held.len(), applied.paused.len());
            self.apply(items, applied, failed).await;
            // What follows a failed or a waiting item in its key must not be tried before it.
            let mut free = Vec::with_capacity(right.len());
            for item in right {
                let key = item.arrival.ordering_key.as_ref().filter(|_| self.consumer.ordered);
                let behind = key.and_then(|key| {
                    failed[before..]
                        .iter_mut()
                        .find(|failed| failed.item.arrival.ordering_key.as_ref() == Some(key))
                });
                let waits =
                    |held: &Item| key.is_some() && held.arrival.ordering_key.as_ref() == key;
                match behind {
                    Some(failed) => failed.followers.push(item),
                    None if applied.held[held..].iter().any(waits) => applied.held.push(item),
                    None if applied.paused[paused..].iter().any(waits) => applied.paused.push(item),
                    None => free.push(item),
                }
            }
            self.apply(free, applied, failed).await;
        })
    }

    /// One transaction for all, or nothing.
    async fn apply_all(&self, items: &[Item]) -> Result<Applied, Failure> {
        let may_apply = self.call_outside(items).await?;
        let mut done = Applied::default();
        let mut tx = self.chapar.store().begin_batch(&self.consumer.name).await?;
        self.serialize(&mut tx, items).await?;
        let decided = match self.admit(&mut tx, items).await? {
            Admission::Decided(decided) => decided,
            Admission::Paused => {
                let (released, paused): (Vec<_>, Vec<_>) =
                    items.iter().cloned().partition(|item| item.released.is_some());
                return Ok(Applied { left: released.len() as u64, paused, ..done });
            }
            Admission::Moved => return Ok(Applied { moved: true, ..done }),
        };
        let going = self.settle(&mut tx, items, &decided, &mut done).await?;
        // All claims come first: changing the role costs a round trip.
        let mut groups = Vec::new();
        for group in going.chunk_by(|a, b| a.item.arrival.tenant == b.item.arrival.tenant) {
            groups.push((group, self.claim(&mut tx, group).await?));
        }
        for (group, claimed) in groups {
            tx = self.apply_tenant(tx, group, claimed, &decided.flagged, &mut done).await?;
        }
        if done.applied > may_apply {
            return Err(Failure::released("its key was released while it was about to be parked"));
        }
        tx.commit().await?;
        self.chapar.store().nudge();
        Ok(done)
    }

    /// Carries out all decisions but those to apply, which it returns.
    async fn settle<'a>(
        &self,
        tx: &mut Tx,
        items: &'a [Item],
        decided: &'a Decided,
        done: &mut Applied,
    ) -> Result<Vec<Going<'a>>, Failure> {
        let mut going = Vec::with_capacity(items.len());
        for (item, decision) in items.iter().zip(&decided.decisions) {
            match decision {
                Decision::Apply { skips, fills } => {
                    going.push(Going { item, skips, fills: *fills });
                }
                Decision::Wait => done.held.push(item.clone()),
                Decision::Park => {
                    tx.letters().park(&self.consumer.name, &item.arrival).await?;
                    self.pass_over(tx, item).await?;
                    done.parked += 1;
                }
                Decision::Bury(cause) => {
                    let failure = match cause {
                        Cause::Unusable => unusable(item),
                        Cause::Late => Failure::new(
                            FailureKind::Late,
                            "a later event of its key was applied before this one arrived; \
                             a replay applies it now",
                        ),
                    };
                    if self.bury(tx, item, &failure, None).await? {
                        done.buried.push((item.clone(), failure));
                    }
                }
                Decision::Settled => {
                    let only = std::iter::once((item, &[][..]));
                    self.mark(tx, &item.arrival.tenant, only).await?;
                    done.duplicates += 1;
                }
                Decision::Leave => done.left += 1,
            }
        }
        Ok(going)
    }

    /// Claims the events of a tenant, and moves its marks.
    async fn claim(&self, tx: &mut Tx, going: &[Going<'_>]) -> Result<Claimed, Failure> {
        let consumer = &self.consumer.name;
        let tenant = &going[0].item.arrival.tenant;
        // An unusable one comes here only where a failure stops the consumer.
        if let Some(broken) = going.iter().find(|going| going.item.envelope.is_err()) {
            return Err(unusable(broken.item));
        }
        let mut facts = HashSet::new();
        let events: Vec<(&str, &str)> = going
            .iter()
            .map(|going| &going.item.arrival)
            .map(|arrival| (arrival.event_id.as_str(), arrival.topic.as_str()))
            // Of two versions of a fact the first is claimed, and the other finds it taken.
            .filter(|(fact, _)| facts.insert(*fact))
            .collect();
        let fresh = tx.inbox().claim(consumer, tenant, &events).await?;
        let repeated = self.repeated(tx, tenant, going, &fresh).await?;
        self.mark(tx, tenant, going.iter().map(|going| (going.item, going.skips))).await?;
        Ok(Claimed { fresh, repeated })
    }

    async fn apply_tenant(
        &self,
        tx: Tx,
        going: &[Going<'_>],
        claimed: Claimed,
        flagged: &HashSet<String>,
        done: &mut Applied,
    ) -> Result<Tx, Failure> {
        let cause = going[0].item.envelope.as_ref().map(|envelope| envelope.cause());
        let cause = cause.map_err(|_| unusable(going[0].item))?;
        let Claimed { mut fresh, repeated } = claimed;
        let mut cx = self.execution().context(tx, cause, &self.consumer.name);
        let mut after = After::default();
        let mut todo = Vec::with_capacity(going.len());
        for going in going {
            let event = &going.item.arrival.event_id;
            if !fresh.remove(event) {
                done.duplicates += 1;
                after.leave(going.item);
            } else if repeated.contains(event.as_str()) {
                done.duplicates += 1;
                after.results.push((going.item, "repeated"));
                after.leave(going.item);
            } else {
                todo.push(going);
            }
        }
        for run in todo.chunk_by(|a, b| self.share_a_call(a.item, b.item)) {
            for going in run {
                self.over_gap(&mut cx, going.item, going.skips).await?;
            }
            let items: Vec<&Item> = run.iter().map(|going| going.item).collect();
            self.handle(&mut cx, &items, &mut after).await?;
            for going in run {
                let key = going.item.arrival.ordering_key.as_ref();
                if going.fills {
                    after.filled.push(going.item);
                }
                if key.is_some_and(|key| flagged.contains(key)) {
                    after.results.push((going.item, "flagged"));
                }
                after.leave(going.item);
                done.applied += 1;
            }
        }
        self.write_after(&mut cx, after).await?;
        cx.flush().await?;
        Ok(cx.into_tx())
    }

    /// Writes what the handlers of a tenant left to be recorded, in the engine's role.
    async fn write_after(&self, cx: &mut Cx, after: After<'_>) -> Result<(), Failure> {
        let After { results, filled, left } = after;
        let consumer = &self.consumer.name;
        for (item, result) in results {
            let (tenant, event) = (&item.arrival.tenant, &item.arrival.event_id);
            cx.engine().await?.inbox().set_result(consumer, tenant, event, result).await?;
        }
        for item in filled {
            self.fill(cx.engine().await?, item).await?;
        }
        let mut letters = Vec::new();
        for item in left {
            self.leave_box(cx.engine().await?, item, &mut letters).await?;
        }
        if !letters.is_empty() {
            cx.engine().await?.letters().close_applied(letters).await?;
        }
        Ok(())
    }

    /// Takes the locks of all items before anything else is locked.
    async fn serialize(&self, tx: &mut Tx, items: &[Item]) -> Result<(), Failure> {
        let Some(value) = &self.consumer.serialize_by else { return Ok(()) };
        let mut names = Vec::with_capacity(items.len());
        for item in items {
            let Ok(envelope) = &item.envelope else { continue };
            let Some(value) = guarded_call(|| value(envelope))? else { continue };
            names.push(format!("{}\n{}\n{value}", self.consumer.name, item.arrival.tenant));
        }
        Ok(tx.inbox().lock_names(&names).await?)
    }

    /// The events whose intent was carried out for another event.
    async fn repeated(
        &self,
        tx: &mut Tx,
        tenant: &str,
        going: &[Going<'_>],
        fresh: &HashSet<String>,
    ) -> Result<HashSet<String>, Failure> {
        if !self.consumer.by_intent {
            return Ok(HashSet::new());
        }
        let mut first: HashMap<&str, &str> = HashMap::new();
        let mut repeated = HashSet::new();
        for going in going {
            let event = going.item.arrival.event_id.as_str();
            let Ok(envelope) = &going.item.envelope else { continue };
            let Some(intent) = envelope.idempotency_key.as_deref() else { continue };
            if fresh.contains(event) && *first.entry(intent).or_insert(event) != event {
                repeated.insert(event.to_owned());
            }
        }
        let intents = first.iter().map(|(intent, event)| (*intent, *event)).collect();
        let claimed = tx.inbox().take_intents(&self.consumer.name, tenant, intents).await?;
        let taken = first.into_iter().filter(|(intent, _)| !claimed.contains(*intent));
        repeated.extend(taken.map(|(_, event)| event.to_owned()));
        Ok(repeated)
    }

    /// Whether two neighbours go to a handler in one set.
    fn share_a_call(&self, a: &Item, b: &Item) -> bool {
        let unstashing = |item: &Item| matches!(item.released, Some(Release::Stash(_)));
        a.arrival.topic == b.arrival.topic
            && !unstashing(a)
            && !unstashing(b)
            && matches!(self.consumer.handlers.get(&a.arrival.topic), Some(Handling::Set(_)))
    }

    /// Handles one event, or a set of one topic.
    async fn handle<'a>(
        &self,
        cx: &mut Cx,
        run: &[&'a Item],
        after: &mut After<'a>,
    ) -> Result<(), Failure> {
        let first = run[0];
        let unstashing = matches!(first.released, Some(Release::Stash(_)));
        let mut envelopes = Vec::with_capacity(run.len());
        for item in run {
            envelopes.push(item.envelope.clone().map_err(|_| unusable(item))?);
        }
        cx.stand_at(&first.arrival);
        self.call(&first.arrival.topic, envelopes, unstashing, cx).await?;
        if cx.was_noop() {
            after.results.extend(run.iter().map(|item| (*item, "noop")));
        }
        self.handle_stashed(cx).await
    }

    /// Calls the handler of a topic.
    async fn call(
        &self,
        topic: &str,
        mut envelopes: Vec<Arc<Envelope>>,
        unstashing: bool,
        cx: &mut Cx,
    ) -> Result<(), Failure> {
        let execution = self.execution();
        match self.consumer.handlers.get(topic).cloned() {
            None => Err(Failure::terminal(format!("no handler for topic {topic}"))),
            Some(Handling::Set(handler)) => {
                cx.turn_to_set(envelopes.clone(), unstashing);
                cx.serve().await?;
                execution
                    .call(cx, |cx: &mut Cx| Box::pin(async move { handler(envelopes, cx).await }))
                    .await
            }
            Some(Handling::Own(handler)) => {
                let envelope = envelopes.swap_remove(0);
                cx.turn_to(envelope.clone(), unstashing);
                execution
                    .call(cx, |cx: &mut Cx| Box::pin(async move { handler(envelope, cx).await }))
                    .await
            }
            Some(Handling::Each(handler)) => {
                let envelope = envelopes.swap_remove(0);
                cx.turn_to(envelope.clone(), unstashing);
                cx.serve().await?;
                execution
                    .call(cx, |cx: &mut Cx| Box::pin(async move { handler(envelope, cx).await }))
                    .await
            }
        }
    }

    pub(crate) fn execution(&self) -> Execution {
        Execution {
            chapar: self.chapar.clone(),
            states: self.states.clone(),
            timeout: self.consumer.timeout,
        }
    }

    /// Sagas that have just started get the events that came before them.
    async fn handle_stashed(&self, cx: &mut Cx) -> Result<(), Failure> {
        for (saga, key) in cx.take_started() {
            let (consumer, tenant) = (&self.consumer.name, cx.tenant().clone());
            let stash = cx.engine().await?;
            let stashed = stash.stash().take(consumer, &saga, &key, tenant.as_str()).await?;
            for stashed in stashed {
                let item = self.stored(stashed.arrival);
                let event = (item.arrival.event_id.as_str(), item.arrival.topic.as_str());
                let (consumer, tenant) = (&self.consumer.name, &item.arrival.tenant);
                if cx.engine().await?.inbox().claim(consumer, tenant, &[event]).await?.is_empty() {
                    continue;
                }
                let envelope = item.envelope.clone().map_err(|_| unusable(&item))?;
                if self.consumer.by_intent
                    && let Some(intent) = &envelope.idempotency_key
                {
                    let intent = vec![(intent.as_str(), event.0)];
                    let mut inbox = cx.engine().await?.inbox();
                    if inbox.take_intents(consumer, tenant, intent).await?.is_empty() {
                        continue;
                    }
                }
                self.call(&item.arrival.topic, vec![envelope], true, cx).await?;
            }
        }
        Ok(())
    }

    /// Removes a held item; letters are closed together.
    async fn leave_box(
        &self,
        tx: &mut Tx,
        item: &Item,
        letters: &mut Vec<String>,
    ) -> Result<(), Failure> {
        self.fill(tx, item).await?;
        match &item.released {
            Some(Release::Letter { id, .. }) => letters.push(id.clone()),
            Some(Release::Parked(id)) => {
                tx.letters().unpark(*id).await?;
            }
            Some(Release::Stash(id)) => {
                tx.stash().remove(*id).await?;
            }
            None => {}
        }
        Ok(())
    }
}

/// Calls user code that is not async: a panic is a failure of its event.
fn guarded_call<T>(call: impl FnOnce() -> T) -> Result<T, Failure> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call))
        .map_err(|panic| Failure::retry(format!("panicked: {}", crate::execution::said(&*panic))))
}
