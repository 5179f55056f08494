//! Applying a batch: claim, handlers and emitted events in one transaction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chapar_core::convert::DUAL_PUBLISH_OF;
use chapar_core::dialect::Message;
use chapar_core::machine::failure::{FailureKind, FailurePolicy};
use chapar_core::machine::order::Place;
use chapar_core::port::{AckToken, BoxFuture, Delivery};
use chapar_core::{Envelope, rules};
use chapar_sql::{Arrival, Tx};
use jiff::Timestamp;
use tracing::warn;

use crate::consumer::Handling;
use crate::consumer::order::Turns;
use crate::consumer::runner::Runner;
use crate::cx::Cx;
use crate::execution::Execution;
use crate::failure::Failure;
use crate::registry::SchemaRefusal;

/// A delivery on its way through a consumer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Item {
    /// What to acknowledge it by, unless it comes out of a box.
    pub(crate) token: Option<AckToken>,
    pub(crate) arrival: Arc<Arrival>,
    pub(crate) envelope: Result<Arc<Envelope>, Unusable>,
    pub(crate) attempts: u32,
    pub(crate) first_failed_at: Option<Timestamp>,
    /// The event is known to be next in its key, although others of the key are parked.
    pub(crate) released: Option<Release>,
    /// Its place among the events of its key, if it says so.
    pub(crate) place: Option<Place>,
    /// Since when it waits for one before it.
    pub(crate) held_since: Option<Timestamp>,
}

/// Why a message cannot be given to a handler.
#[derive(Debug, Clone)]
pub(crate) struct Unusable {
    kind: FailureKind,
    reason: String,
    /// Id and tenant, where nothing but the payload is in doubt.
    known: Option<(String, String)>,
    /// Set where a newer bundle could help.
    unknown_schema: Option<String>,
}

/// Which box a released item comes out of.
#[derive(Debug, Clone)]
pub(crate) enum Release {
    Letter(String),
    Parked(i64),
    Stash(i64),
}

/// How a batch ended.
#[derive(Default)]
pub(crate) struct Applied {
    pub(crate) applied: u64,
    pub(crate) duplicates: u64,
    pub(crate) parked: u64,
    /// Too late to be applied, and recorded.
    pub(crate) late: u64,
    /// What waits for events that belong before it; its transaction went on without.
    pub(crate) held: Vec<Item>,
}

/// An item that failed, after everything else of the batch was dealt with.
pub(crate) struct Failed {
    pub(crate) item: Item,
    pub(crate) failure: Failure,
    /// The rest of its key, untouched.
    pub(crate) followers: Vec<Item>,
}

impl Runner {
    pub(crate) async fn item(&self, delivery: Delivery) -> Item {
        let Delivery { token, topic, key, headers, body, .. } = delivery;
        let message = Message { topic: Some(topic), headers, body };
        let envelope = self.decode_or_learn(&message).await;
        let Message { topic, headers, body } = message;
        let topic = topic.unwrap_or_default();
        let known = envelope.as_ref().ok().map(|envelope| &**envelope);
        let place = self.place(&topic, &headers, known);
        let position = token.position;
        let (event_id, tenant) = match &envelope {
            Ok(envelope) => (fact(envelope), envelope.tenant.as_str().to_owned()),
            // What cannot be read has no id; its place is as good a name.
            Err(unusable) => unusable.known.clone().unwrap_or_else(|| {
                (format!("{}-{}", position.partition, position.offset), "platform".to_owned())
            }),
        };
        let arrival = Arrival {
            event_id,
            tenant,
            topic,
            ordering_key: key,
            partition: position.partition,
            offset: position.offset,
            headers: serde_json::to_string(&headers).unwrap_or_else(|_| "[]".into()),
            body,
        };
        Item {
            arrival: Arc::new(arrival),
            envelope,
            attempts: 0,
            first_failed_at: None,
            released: None,
            place,
            held_since: None,
            token: Some(token),
        }
    }

    /// An item that comes out of one of the boxes inside of a transaction, where nothing is
    /// fetched.
    pub(crate) fn boxed(&self, arrival: Arrival) -> Item {
        let message = in_box(&arrival);
        let envelope = self.decode(&message);
        self.unboxed(arrival, &message, envelope, None)
    }

    /// An item that is let out of one of the boxes.
    pub(crate) async fn released(&self, arrival: Arrival, release: Release) -> Item {
        let message = in_box(&arrival);
        let envelope = self.decode_or_learn(&message).await;
        self.unboxed(arrival, &message, envelope, Some(release))
    }

    fn unboxed(
        &self,
        arrival: Arrival,
        message: &Message,
        envelope: Result<Arc<Envelope>, Unusable>,
        released: Option<Release>,
    ) -> Item {
        let known = envelope.as_ref().ok().map(|envelope| &**envelope);
        let place = self.place(&arrival.topic, &message.headers, known);
        Item {
            envelope,
            token: None,
            arrival: Arc::new(arrival),
            attempts: 0,
            first_failed_at: None,
            released,
            place,
            held_since: None,
        }
    }

    /// Reads a message; if it names a schema that the registry does not have, the bundle is
    /// fetched again first.
    async fn decode_or_learn(&self, message: &Message) -> Result<Arc<Envelope>, Unusable> {
        let decoded = self.decode(message);
        if let Err(Unusable { unknown_schema: Some(uri), .. }) = &decoded
            && let (Some(registry), Some(topic)) = (self.chapar.registry(), &message.topic)
        {
            return match registry.learn(topic, uri).await {
                Ok(()) => self.decode(message),
                Err(why) => decoded.map_err(|unusable| {
                    let reason = format!("{}: {why}", unusable.reason);
                    Unusable { reason, ..unusable }
                }),
            };
        }
        decoded
    }

    fn decode(&self, message: &Message) -> Result<Arc<Envelope>, Unusable> {
        let unusable = |kind| {
            move |reason: String| Unusable { kind, reason, known: None, unknown_schema: None }
        };
        let envelope = self.chapar.dialect().decode(message).map_err(|error| error.to_string());
        let envelope = envelope.map_err(unusable(FailureKind::Undecodable))?;
        self.check(&envelope, message).map_err(unusable(FailureKind::RuleViolation))?;
        if let (Some(registry), Some(topic)) = (self.chapar.registry(), &message.topic) {
            let checked = registry.check_read(topic, &envelope).and_then(|()| {
                registry.check_message(topic, &message.body).map_err(SchemaRefusal::Invalid)
            });
            checked.map_err(|refusal| {
                let (id, tenant) = (envelope.id.to_string(), envelope.tenant.as_str().to_owned());
                Unusable {
                    kind: FailureKind::SchemaInvalid,
                    reason: refusal.to_string(),
                    known: Some((id, tenant)),
                    unknown_schema: match refusal {
                        SchemaRefusal::UnknownSchema(uri) => Some(uri),
                        SchemaRefusal::Invalid(_) => None,
                    },
                }
            })?;
        }
        Ok(Arc::new(envelope))
    }

    /// What comes in keeps the same rules as what goes out. A size is the producer's matter:
    /// whether the event is declared thin is not known here.
    fn check(&self, envelope: &Envelope, message: &Message) -> Result<(), String> {
        let profile = self.chapar.profile();
        if let Some(topic) = &message.topic {
            let subject = profile.subject(topic).map_err(|error| error.to_string())?;
            rules::check_topic(envelope, &subject).map_err(|error| error.to_string())?;
        }
        rules::check(envelope, profile, true).map_err(|error| error.to_string())
    }

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
                Ok(done) => {
                    applied.applied += done.applied;
                    applied.duplicates += done.duplicates;
                    applied.parked += done.parked;
                    applied.late += done.late;
                    applied.held.extend(done.held);
                    return;
                }
                Err(failure) => failure,
            };
            let mut items = items;
            if items.len() == 1 {
                let item = items.remove(0);
                failed.push(Failed { item, failure, followers: Vec::new() });
                return;
            }
            let right = items.split_off(items.len() / 2);
            let (before, held) = (failed.len(), applied.held.len());
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
        let mut tx = self.chapar.store().begin_raw().await?;
        self.serialize(&mut tx, items).await?;
        for group in items.chunk_by(|a, b| a.arrival.tenant == b.arrival.tenant) {
            tx = self.apply_tenant(tx, group, &mut done).await?;
        }
        if done.applied > may_apply {
            return Err(Failure::released("its key was let go while it was about to be parked"));
        }
        tx.commit().await?;
        self.chapar.store().nudge();
        Ok(done)
    }

    async fn apply_tenant(
        &self,
        mut tx: Tx,
        items: &[Item],
        done: &mut Applied,
    ) -> Result<Tx, Failure> {
        let consumer = &self.consumer.name;
        let tenant = &items[0].arrival.tenant;
        tx.become_service(tenant).await?;
        let mut turns = self.turns(&mut tx, items).await?;
        self.expect_again(&mut tx, items, &mut turns).await?;
        let blocked = self.blocked(&mut tx, items).await?;
        let parks = |item: &Item| {
            item.released.is_none()
                && item.arrival.ordering_key.as_ref().is_some_and(|key| blocked.contains(key))
        };
        let mut going = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            if turns.held.contains(&index) {
                done.held.push(item.clone());
            } else if parks(item) && !turns.old.contains(&index) {
                tx.conn().park(consumer, &item.arrival).await?;
                self.pass_over(&mut tx, item).await?;
                done.parked += 1;
            } else {
                going.push((index, item));
            }
        }
        if going.is_empty() {
            return Ok(tx);
        }
        let mut facts = HashSet::new();
        let events: Vec<(&str, &str)> = going
            .iter()
            .map(|(_, item)| item)
            .filter(|item| item.envelope.is_ok())
            .map(|item| (item.arrival.event_id.as_str(), item.arrival.topic.as_str()))
            // Of two versions of a fact the first is claimed, and the other finds it taken.
            .filter(|(fact, _)| facts.insert(*fact))
            .collect();
        let flagged = self.flagged(&mut tx, items).await?;
        let mut fresh = tx.conn().claim(consumer, tenant, &events).await?;
        let repeated = self.repeated(&mut tx, tenant, &going, &fresh, &turns).await?;
        self.mark(&mut tx, tenant, going.iter().map(|(_, item)| *item)).await?;
        let mut cx = match going.iter().find_map(|(_, item)| item.envelope.as_ref().ok()) {
            Some(envelope) => self.execution().context(tx, envelope.cause(), consumer),
            None => return Err(unusable(going[0].1)),
        };
        let mut left = Vec::new();
        let mut todo = Vec::with_capacity(going.len());
        for (index, item) in going {
            if item.envelope.is_ok() && !fresh.remove(&item.arrival.event_id) {
                done.duplicates += 1;
                self.leave_box(&mut cx, item, &mut left).await?;
                continue;
            }
            if turns.old.contains(&index) && item.envelope.is_ok() {
                self.note_late(&mut cx, item).await?;
                done.late += 1;
                continue;
            }
            if repeated.contains(item.arrival.event_id.as_str()) {
                done.duplicates += 1;
                cx.tx().conn().set_result(consumer, &item.arrival.event_id, "repeated").await?;
                self.leave_box(&mut cx, item, &mut left).await?;
                continue;
            }
            todo.push((index, item));
        }
        for run in todo.chunk_by(|(_, a), (_, b)| self.share_a_call(a, b)) {
            for (index, item) in run {
                self.over_gap(&mut cx, &turns, *index, item).await?;
            }
            self.handle(&mut cx, run).await?;
            for (index, item) in run {
                if turns.fills.contains(index) {
                    self.fill(cx.tx(), item).await?;
                }
                if item.arrival.ordering_key.as_ref().is_some_and(|key| flagged.contains(key)) {
                    cx.tx().conn().set_result(consumer, &item.arrival.event_id, "flagged").await?;
                }
                self.leave_box(&mut cx, item, &mut left).await?;
                done.applied += 1;
            }
        }
        cx.tx().conn().close_applied_letters(left).await?;
        cx.flush().await?;
        Ok(cx.into_tx())
    }

    /// An old event that an operator asked for again does not count as late.
    async fn expect_again(
        &self,
        tx: &mut Tx,
        items: &[Item],
        turns: &mut Turns,
    ) -> Result<(), Failure> {
        if turns.old.is_empty() {
            return Ok(());
        }
        let old = turns.old.iter().map(|index| items[*index].arrival.event_id.clone()).collect();
        let again = tx.conn().expected_again(&self.consumer.name, old).await?;
        turns.old.retain(|index| !again.contains(&items[*index].arrival.event_id));
        Ok(())
    }

    /// A newer event of its line was dealt with long ago: applying this one would undo it.
    async fn note_late(&self, cx: &mut Cx, item: &Item) -> Result<(), Failure> {
        let (consumer, event_id) = (&self.consumer.name, &item.arrival.event_id);
        let (tenant_id, topic) = (&item.arrival.tenant, &item.arrival.topic);
        warn!(consumer, event_id, tenant_id, topic, "older than what was applied; recorded only");
        Ok(cx.tx().conn().set_result(consumer, event_id, "late").await?)
    }

    /// Takes the locks of all items before anything else is locked.
    async fn serialize(&self, tx: &mut Tx, items: &[Item]) -> Result<(), Failure> {
        let Some(value) = &self.consumer.serialize_by else { return Ok(()) };
        let name = |item: &Item| {
            let value = value(item.envelope.as_ref().ok()?)?;
            Some(format!("{}\n{}\n{value}", self.consumer.name, item.arrival.tenant))
        };
        let names: Vec<String> = items.iter().filter_map(name).collect();
        Ok(tx.conn().lock_names(&names).await?)
    }

    /// The events whose intent was carried out for another event.
    async fn repeated(
        &self,
        tx: &mut Tx,
        tenant: &str,
        going: &[(usize, &Item)],
        fresh: &HashSet<String>,
        turns: &Turns,
    ) -> Result<HashSet<String>, Failure> {
        if !self.consumer.by_intent {
            return Ok(HashSet::new());
        }
        let mut first: HashMap<&str, &str> = HashMap::new();
        let mut repeated = HashSet::new();
        for (index, item) in going {
            let event = item.arrival.event_id.as_str();
            let Ok(envelope) = &item.envelope else { continue };
            let Some(intent) = envelope.idempotency_key.as_deref() else { continue };
            if fresh.contains(event)
                && !turns.old.contains(index)
                && *first.entry(intent).or_insert(event) != event
            {
                repeated.insert(event.to_owned());
            }
        }
        let intents = first.iter().map(|(intent, event)| (*intent, *event)).collect();
        let claimed = tx.conn().take_intents(&self.consumer.name, tenant, intents).await?;
        let taken = first.into_iter().filter(|(intent, _)| !claimed.contains(*intent));
        repeated.extend(taken.map(|(_, event)| event.to_owned()));
        Ok(repeated)
    }

    async fn blocked(&self, tx: &mut Tx, items: &[Item]) -> Result<HashSet<String>, Failure> {
        if !self.consumer.ordered {
            return Ok(HashSet::new());
        }
        Ok(tx.conn().blocked_keys(&self.consumer.name, keys(items)).await?)
    }

    /// The keys whose events are applied behind a dead letter, and flagged.
    async fn flagged(&self, tx: &mut Tx, items: &[Item]) -> Result<HashSet<String>, Failure> {
        if self.consumer.on_failure != FailurePolicy::PassAndFlag {
            return Ok(HashSet::new());
        }
        Ok(tx.conn().flagged_keys(&self.consumer.name, keys(items)).await?)
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
    async fn handle(&self, cx: &mut Cx, run: &[(usize, &Item)]) -> Result<(), Failure> {
        let first = run[0].1;
        let unstashing = matches!(first.released, Some(Release::Stash(_)));
        let mut envelopes = Vec::with_capacity(run.len());
        for (_, item) in run {
            envelopes.push(item.envelope.clone().map_err(|_| unusable(item))?);
        }
        cx.stand_at(&first.arrival);
        self.call(&first.arrival.topic, envelopes, unstashing, cx).await?;
        if cx.was_noop() {
            for (_, item) in run {
                let (consumer, event) = (&self.consumer.name, &item.arrival.event_id);
                cx.tx().conn().set_result(consumer, event, "noop").await?;
            }
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
                execution
                    .call(cx, |cx: &mut Cx| Box::pin(async move { handler(envelopes, cx).await }))
                    .await
            }
            Some(Handling::Each(handler)) => {
                let envelope = envelopes.swap_remove(0);
                cx.turn_to(envelope.clone(), unstashing);
                execution
                    .call(cx, |cx: &mut Cx| Box::pin(async move { handler(envelope, cx).await }))
                    .await
            }
        }
    }

    fn execution(&self) -> Execution {
        Execution {
            chapar: self.chapar.clone(),
            states: self.states.clone(),
            timeout: self.consumer.timeout,
        }
    }

    /// Sagas that have just started get the events that came before them.
    async fn handle_stashed(&self, cx: &mut Cx) -> Result<(), Failure> {
        for (saga, key) in cx.take_started() {
            let stashed = cx.tx().conn().unstash(&self.consumer.name, &saga, &key).await?;
            for stashed in stashed {
                let item = self.boxed(stashed.arrival);
                let event = (item.arrival.event_id.as_str(), item.arrival.topic.as_str());
                let (consumer, tenant) = (&self.consumer.name, &item.arrival.tenant);
                if cx.tx().conn().claim(consumer, tenant, &[event]).await?.is_empty() {
                    continue;
                }
                let envelope = item.envelope.clone().map_err(|_| unusable(&item))?;
                if self.consumer.by_intent
                    && let Some(intent) = &envelope.idempotency_key
                {
                    let intent = vec![(intent.as_str(), event.0)];
                    if cx.tx().conn().take_intents(consumer, tenant, intent).await?.is_empty() {
                        continue;
                    }
                }
                self.call(&item.arrival.topic, vec![envelope], true, cx).await?;
            }
        }
        Ok(())
    }

    /// Takes an item out of its box; letters are closed together, in `left`.
    async fn leave_box(
        &self,
        cx: &mut Cx,
        item: &Item,
        left: &mut Vec<String>,
    ) -> Result<(), Failure> {
        if item.released.is_some() {
            self.fill(cx.tx(), item).await?;
        }
        match &item.released {
            Some(Release::Letter(id)) => left.push(id.clone()),
            Some(Release::Parked(id)) => cx.tx().conn().unpark(*id).await?,
            Some(Release::Stash(id)) => cx.tx().conn().remove_stashed(*id).await?,
            None => {}
        }
        Ok(())
    }
}

/// The name under which an event is claimed. Two versions of one fact have one, so that a
/// consumer of both applies whichever comes first, and one that changes over misses neither.
pub(crate) fn fact(envelope: &Envelope) -> String {
    let twin = envelope.metadata.get(DUAL_PUBLISH_OF).and_then(serde_json::Value::as_str);
    twin.map_or_else(|| envelope.id.to_string(), str::to_owned)
}

fn keys(items: &[Item]) -> Vec<String> {
    let mut keys: Vec<String> =
        items.iter().filter_map(|item| item.arrival.ordering_key.clone()).collect();
    keys.dedup();
    keys
}

fn in_box(arrival: &Arrival) -> Message {
    let headers = serde_json::from_str(&arrival.headers).unwrap_or_default();
    Message { topic: Some(arrival.topic.clone()), headers, body: arrival.body.clone() }
}

fn unusable(item: &Item) -> Failure {
    match &item.envelope {
        Err(unusable) => Failure::new(unusable.kind, &unusable.reason),
        Ok(_) => Failure::terminal("the event is usable"),
    }
}
