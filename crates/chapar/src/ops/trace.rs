//! The story of a correlation: what caused what, when, and what became of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chapar_sql::{
    EffectCard, HeldEvent, HistoryEntry, Reception, SagaCard, Store, StoreError, StoryEvent, Tables,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::sagas::{STORY, effects_of};

/// Everything that belongs to one correlation.
#[derive(Debug, Clone)]
pub struct Story {
    /// The correlation.
    pub correlation: String,
    /// Its events: each stands before those that it has caused.
    pub events: Vec<Node>,
    /// The sagas that belong to it, each with its history.
    pub sagas: Vec<(SagaCard, Vec<HistoryEntry>)>,
    /// There were more events than are looked at.
    pub cut: bool,
}

/// An event in a story.
#[derive(Debug, Clone)]
pub struct Node {
    /// The event.
    pub event: StoryEvent,
    /// The service that its topic belongs to.
    pub service: String,
    /// How many events lie between it and the first.
    pub depth: usize,
    /// What consumers did with it.
    pub receptions: Vec<Reception>,
    /// Where it is or was dead-lettered, parked or stashed.
    pub held: Vec<HeldEvent>,
    /// The calls to the outside that it caused.
    pub effects: Vec<EffectCard>,
}

/// Gathers a story from the stores of one system's services; none if no store knows it.
pub async fn story(stores: &[Store], correlation: &str) -> Result<Option<Story>, StoreError> {
    let mut parts = Parts::default();
    for store in stores {
        let mut tx = store.begin_read().await?;
        let mut conn = tx.conn();
        let events = conn.story().events(correlation, STORY).await?;
        parts.cut |= events.len() as i64 == STORY;
        for card in conn.sagas().of_story(correlation).await? {
            let history = conn.sagas().history(&card.saga, &card.key, &card.tenant).await?;
            parts.sagas.push((card, history));
        }
        parts.events.extend(events);
        tx.rollback().await?;
    }
    let ids: Vec<String> = parts.events.iter().map(|event| event.event_id.clone()).collect();
    let tenants: BTreeSet<String> = parts.events.iter().map(|e| e.tenant.clone()).collect();
    let began = parts.events.iter().map(|event| event.written_at).min();
    for store in stores {
        let mut tx = store.begin_read().await?;
        let mut conn = tx.conn();
        parts.receptions.extend(conn.story().receptions(ids.clone()).await?);
        parts.held.extend(conn.story().held_events(ids.clone()).await?);
        for tenant in &tenants {
            let since = began.unwrap_or_default();
            parts.effects.extend(effects_of(&mut conn, correlation, tenant, since).await?);
        }
        tx.rollback().await?;
    }
    Ok(parts.into_story(correlation))
}

#[derive(Default)]
struct Parts {
    events: Vec<StoryEvent>,
    sagas: Vec<(SagaCard, Vec<HistoryEntry>)>,
    receptions: Vec<Reception>,
    held: Vec<HeldEvent>,
    effects: Vec<(EffectCard, Option<String>)>,
    cut: bool,
}

impl Parts {
    fn into_story(mut self, correlation: &str) -> Option<Story> {
        if self.events.is_empty() && self.sagas.is_empty() {
            return None;
        }
        self.events.sort_by_key(|event| (event.written_at, event.seq));
        let mut seen = HashSet::new();
        self.events.retain(|event| seen.insert(event.event_id.clone()));
        let shared = shared_prefix(&self.events);
        let mut children: HashMap<Option<String>, Vec<usize>> = HashMap::new();
        for (index, event) in self.events.iter().enumerate() {
            // What was caused from outside of the story begins it, as does what a timer set off.
            let parent = event.causation_id.clone();
            let parent = parent.filter(|id| seen.contains(id) && *id != event.event_id);
            children.entry(parent).or_default().push(index);
        }
        let mut order = Vec::with_capacity(self.events.len());
        let roots = children.remove(&None).unwrap_or_default();
        let mut stack: Vec<(usize, usize)> =
            roots.into_iter().rev().map(|root| (root, 0)).collect();
        while let Some((index, depth)) = stack.pop() {
            order.push((index, depth));
            let id = Some(self.events[index].event_id.clone());
            for child in children.remove(&id).unwrap_or_default().into_iter().rev() {
                stack.push((child, depth + 1));
            }
        }
        // Forged causes can form a circle; all events are shown even then.
        let mut left: Vec<usize> = children.into_values().flatten().collect();
        left.sort_unstable();
        order.extend(left.into_iter().map(|index| (index, 0)));
        let Parts { events, sagas, receptions, held, effects, cut } = self;
        let node = |(index, depth): (usize, usize)| {
            let event: StoryEvent = events[index].clone();
            let id = &event.event_id;
            Node {
                service: service(&event.topic, shared),
                depth,
                receptions: receptions.iter().filter(|r| r.event_id == *id).cloned().collect(),
                held: held.iter().filter(|b| b.event_id == *id).cloned().collect(),
                effects: effects
                    .iter()
                    .filter(|(_, cause)| cause.as_ref() == Some(id))
                    .map(|(effect, _)| effect.clone())
                    .collect(),
                event,
            }
        };
        let events = order.into_iter().map(node).collect();
        Some(Story { correlation: correlation.to_owned(), events, sagas, cut })
    }
}

/// Whether all topics begin with the name of their system.
fn shared_prefix(events: &[StoryEvent]) -> bool {
    let first = |topic: &str| topic.split('.').next().map(str::to_owned);
    let names: BTreeSet<_> = events.iter().map(|event| first(&event.topic)).collect();
    names.len() == 1 && events.iter().all(|event| event.topic.split('.').count() > 3)
}

fn service(topic: &str, shared: bool) -> String {
    topic.split('.').nth(usize::from(shared)).unwrap_or(topic).to_owned()
}

impl Node {
    /// Its topic without the names of system and service.
    pub fn title(&self) -> &str {
        let topic = &self.event.topic;
        let rest = topic.split_once(&format!("{}.", self.service)).map(|(_, rest)| rest);
        rest.filter(|rest| !rest.is_empty()).unwrap_or(topic)
    }
}

impl Story {
    /// When it began.
    pub fn began(&self) -> Timestamp {
        let events = self.events.iter().map(|node| node.event.written_at);
        let sagas = self.sagas.iter().map(|(card, _)| card.started_at);
        events.chain(sagas).min().unwrap_or_default()
    }

    /// When the last thing in it happened.
    pub fn ended(&self) -> Timestamp {
        let events = self.events.iter().flat_map(|node| {
            let received = node.receptions.iter().map(|reception| reception.processed_at);
            let called = node.effects.iter().filter_map(|effect| effect.finished_at);
            let held = node.held.iter().map(|held| held.since);
            let own = std::iter::once(node.event.written_at).chain(node.event.published_at);
            own.chain(received).chain(called).chain(held).collect::<Vec<_>>()
        });
        let sagas = self.sagas.iter().flat_map(|(_, history)| history.iter().map(|h| h.at));
        events.chain(sagas).max().unwrap_or_default()
    }

    /// How many of its events are dead-lettered, parked or stashed now.
    pub fn held(&self) -> usize {
        let held = self.events.iter().flat_map(|node| &node.held);
        held.filter(|held| held.status != "closed").count()
    }

    /// The services that take part, by name.
    pub fn services(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self.events.iter().map(|node| node.service.as_str()).collect();
        names.into_iter().collect()
    }

    /// As data.
    pub fn to_json(&self) -> Value {
        let began = self.began();
        let ms = |at: Timestamp| at.duration_since(began).as_micros() as f64 / 1000.0;
        let events: Vec<Value> = self
            .events
            .iter()
            .map(|node| {
                let event = &node.event;
                json!({
                    "event_id": event.event_id, "causation_id": event.causation_id,
                    "topic": event.topic, "service": node.service, "tenant": event.tenant,
                    "aggregate": event.aggregate_id, "depth": node.depth,
                    "written_at": event.written_at, "written_ms": ms(event.written_at),
                    "published_ms": event.published_at.map(ms), "parked": event.parked,
                    "consumers": node.receptions.iter().map(|r| json!({
                        "consumer": r.consumer, "result": r.result, "ms": ms(r.processed_at),
                    })).collect::<Vec<_>>(),
                    "held": node.held.iter().map(|b| json!({
                        "as": b.kind, "id": b.letter, "consumer": b.consumer,
                        "status": b.status, "error": b.error, "since_ms": ms(b.since),
                    })).collect::<Vec<_>>(),
                    "effects": node.effects.iter().map(|e| json!({
                        "kind": e.kind, "key": e.key, "status": e.status, "attempts": e.attempts,
                        "asked_ms": ms(e.created_at), "finished_ms": e.finished_at.map(ms),
                        "last_error": e.last_error,
                    })).collect::<Vec<_>>(),
                })
            })
            .collect();
        let sagas: Vec<Value> = self
            .sagas
            .iter()
            .map(|(card, history)| {
                json!({
                    "saga": card.saga, "key": card.key, "tenant": card.tenant, "state": card.state,
                    "outcome": card.outcome,
                    "history": history.iter().map(|step| json!({
                        "ms": ms(step.at), "from": step.from_state, "to": step.to_state,
                        "cause": step.cause, "note": step.note,
                    })).collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({
            "correlation_id": self.correlation, "began_at": began,
            "took_ms": ms(self.ended()), "events": events, "sagas": sagas,
            "held": self.held(), "cut": self.cut,
        })
    }

    /// As a tree for people.
    pub fn to_text(&self) -> String {
        let began = self.began();
        let mut text = String::new();
        let mut line = |parts: String| {
            text.push_str(parts.trim_end());
            text.push('\n');
        };
        let took = since(began, self.ended());
        let (events, services) = (self.events.len(), self.services().len());
        line(format!("correlation {}", self.correlation));
        let held = match self.held() {
            0 => "none held".to_owned(),
            some => format!("{some} dead-lettered, parked or stashed"),
        };
        line(format!("  {events} events of {services} services in {took}, {held}"));
        for (card, history) in &self.sagas {
            let outcome = card.outcome.as_deref().unwrap_or("under way");
            line(format!("saga {} {}: {} ({outcome})", card.saga, card.key, card.state));
            for step in history {
                let at = since(began, step.at);
                line(format!("  {at:>9}  → {}  {}", step.to_state, step.note));
            }
        }
        let last = self.last_of_siblings();
        let mut open: BTreeMap<usize, bool> = BTreeMap::new();
        for (index, node) in self.events.iter().enumerate() {
            let depth = node.depth;
            open.retain(|level, _| *level < depth);
            let stem: String = (0..depth)
                .map(|level| if open.get(&level) == Some(&true) { "│  " } else { "   " })
                .collect();
            let (knot, more) = if last[index] { ("└─ ", false) } else { ("├─ ", true) };
            open.insert(depth, more);
            let event = &node.event;
            let at = since(began, event.written_at);
            line(format!(
                "{at:>9}  {stem}{knot}{}  {}  {}",
                node.title(),
                node.service,
                event.aggregate_id
            ));
            let under = format!("{stem}{}  ", if more { "│" } else { " " });
            if let Some(error) = &event.parked {
                line(format!("{:>9}  {under}✗ not published: {error}", ""));
            }
            for reception in &node.receptions {
                let (at, who) = (since(began, reception.processed_at), &reception.consumer);
                let result = Some(&reception.result).filter(|result| *result != "ok");
                let result = result.map(|result| format!(" ({result})")).unwrap_or_default();
                line(format!("{at:>9}  {under}✓ {who}{result}"));
            }
            for held in &node.held {
                let (at, who) = (since(began, held.since), &held.consumer);
                let id = held.letter.as_deref().unwrap_or_default();
                let mark = if held.status == "closed" { "✓" } else { "✗" };
                let (kind, status) = (&held.kind, &held.status);
                line(format!(
                    "{at:>9}  {under}{mark} {who}: {kind} {id} ({status}): {}",
                    held.error
                ));
            }
            for effect in &node.effects {
                let at = since(began, effect.finished_at.unwrap_or(effect.created_at));
                let (kind, key, status) = (&effect.kind, &effect.key, &effect.status);
                let tries = effect.attempts;
                line(format!("{at:>9}  {under}⇢ {kind} {key}: {status}, {tries} attempts"));
            }
        }
        if self.cut {
            line(format!("only the first {STORY} events are shown"));
        }
        text
    }

    /// Whether each event is the last of those with its cause.
    fn last_of_siblings(&self) -> Vec<bool> {
        let mut last = vec![true; self.events.len()];
        for (index, node) in self.events.iter().enumerate() {
            let behind =
                self.events[index + 1..].iter().take_while(|other| other.depth >= node.depth);
            last[index] = !behind.into_iter().any(|other| other.depth == node.depth);
        }
        last
    }
}

/// The time between two moments, as short as it can be said.
pub(super) fn since(began: Timestamp, at: Timestamp) -> String {
    let ms = at.duration_since(began).as_micros() as f64 / 1000.0;
    match ms {
        ms if ms < 1000.0 => format!("{ms:.1} ms"),
        ms if ms < 120_000.0 => format!("{:.2} s", ms / 1000.0),
        ms if ms < 7_200_000.0 => format!("{:.1} min", ms / 60_000.0),
        ms => format!("{:.1} h", ms / 3_600_000.0),
    }
}
