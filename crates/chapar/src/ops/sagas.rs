//! Sagas from outside: what one waits for, trying again, and cancelling.

use std::collections::BTreeMap;

use chapar_core::Cause;
use chapar_sql::{
    AuditEntry, Conn, DeclaredTimer, DueTimer, EffectCard, HeldEvent, HistoryEntry, SagaCard,
    SagaRow, SagaSummary, Store, StoreError, Tables,
};
use jiff::{SignedDuration, Timestamp};

use super::replay::remembered_since;
use crate::saga::Compensation;

/// The timer by which an operator cancels a saga; see
/// [`Saga::cancelled_by_operator`](crate::saga::Saga::cancelled_by_operator).
pub const CANCEL: &str = "cancel";

/// The most events of a story that are looked at.
pub(super) const STORY: i64 = 10_000;

/// A saga with everything that an operator needs to decide about it.
#[derive(Debug, Clone)]
pub struct SagaView {
    /// The saga.
    pub card: SagaCard,
    /// Every transition, the oldest first.
    pub history: Vec<HistoryEntry>,
    /// What it waits for, the next first.
    pub waits_for: Vec<Waiting>,
    /// What was done and is not undone, by name, the oldest first.
    pub compensations: Vec<String>,
}

/// Something that a saga waits for.
#[derive(Debug, Clone)]
pub enum Waiting {
    /// A timer, and who does what when it fires, as far as a program has declared it.
    Timer(DueTimer, Option<DeclaredTimer>),
    /// A call to the outside.
    Effect(EffectCard),
    /// An event of its correlation that is dead-lettered, parked or stashed.
    Held(HeldEvent),
    /// An event of its story that could not be published.
    Outbox {
        /// The event.
        event_id: String,
        /// Its topic.
        topic: String,
        /// Why.
        error: String,
    },
}

/// Why nothing is done to a saga.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SagaError {
    /// There is none.
    #[error("there is no saga {0} with the key {1}; `chapar find {1}` looks elsewhere")]
    Unknown(String, String),
    /// Several tenants have a saga of this key.
    #[error("saga {saga} {key} exists for the tenants {tenants}; name one of them as TENANT:{key}")]
    Ambiguous {
        /// The kind of saga.
        saga: String,
        /// The key.
        key: String,
        /// The tenants.
        tenants: String,
    },
    /// It has ended.
    #[error("CH3024: the saga {saga} {key} has ended as {outcome}; nothing can be done to it")]
    Ended {
        /// Its kind.
        saga: String,
        /// Its key.
        key: String,
        /// How.
        outcome: String,
    },
    /// Nothing of it has failed.
    #[error(
        "CH3025: nothing of the saga {0} {1} has failed or waits for another attempt; `chapar sagas show` says what it waits for"
    )]
    NothingToRetry(String, String),
    /// No program knows how to cancel it.
    #[error(
        "CH3026: no program has declared how to cancel {0}: give Saga::cancelled_by_operator a step, or end it with --abandon and undo by hand"
    )]
    NotCancellable(String),
    /// It was asked for before.
    #[error("the saga {0} {1} is being cancelled already")]
    BeingCancelled(String, String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The saga's row cannot be decoded.
    #[error("the saga cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

/// Filter; `None` matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SagaFilter {
    /// Their kind.
    pub saga: Option<String>,
    /// Their state.
    pub state: Option<String>,
    /// How they ended: `open`, `stuck`, `completed`, `compensated` or `partial`.
    pub outcome: Option<String>,
}

/// A saga with its armed timers and its transitions, the oldest first.
#[derive(Debug, Clone)]
pub struct SagaHistory {
    /// The saga.
    pub card: SagaCard,
    /// Its timers, the next first.
    pub timers: Vec<DueTimer>,
    /// Every transition.
    pub history: Vec<HistoryEntry>,
}

/// The newest sagas that a filter means.
pub async fn list_sagas(
    store: &Store,
    filter: &SagaFilter,
    limit: i64,
) -> Result<Vec<SagaCard>, StoreError> {
    let SagaFilter { saga, state, outcome } = filter;
    let mut tx = store.begin_read().await?;
    let cards =
        tx.sagas().list(saga.as_deref(), state.as_deref(), outcome.as_deref(), limit).await?;
    tx.rollback().await?;
    Ok(cards)
}

/// How many sagas are in which state.
pub async fn saga_states(store: &Store) -> Result<Vec<SagaSummary>, StoreError> {
    let mut tx = store.begin_read().await?;
    let states = tx.sagas().summary().await?;
    tx.rollback().await?;
    Ok(states)
}

/// A saga with its history, or `None` if there is none; [`view_saga`] also finds out what it waits
/// for, which takes longer.
pub async fn saga_history(
    store: &Store,
    saga: &str,
    key: &str,
) -> Result<Option<SagaHistory>, StoreError> {
    let mut tx = store.begin_read().await?;
    let Some(card) = tx.sagas().named(saga, key).await?.into_iter().next() else {
        return Ok(None);
    };
    let timers = tx.timers().of_saga(saga, &card.key, &card.tenant).await?;
    let history = tx.sagas().history(saga, &card.key, &card.tenant).await?;
    tx.rollback().await?;
    Ok(Some(SagaHistory { card, timers, history }))
}

/// Looks at a saga.
pub async fn view_saga(store: &Store, saga: &str, key: &str) -> Result<SagaView, SagaError> {
    let mut tx = store.begin_engine().await?;
    let view = view(&mut tx.conn(), saga, key).await;
    tx.rollback().await?;
    view
}

/// Tries again what has failed of a saga's story: its open dead letters are delivered again, its
/// calls to the outside that wait for another attempt are made now, and outcomes that could not be
/// recorded are recorded. A call that a worker is making is left to it. Returns a description of
/// each retried item.
pub async fn retry_saga(
    store: &Store,
    saga: &str,
    key: &str,
    actor: &str,
    reason: &str,
) -> Result<Vec<String>, SagaError> {
    let mut tx = store.begin_engine().await?;
    let view = view(&mut tx.conn(), saga, key).await?;
    let mut set_going = Vec::new();
    for waiting in &view.waits_for {
        match waiting {
            Waiting::Held(HeldEvent { letter: Some(id), consumer, .. }) => {
                let since = Some(remembered_since(Timestamp::now()));
                if tx.letters().ask_for_replay(vec![id.clone()], None, since).await? > 0 {
                    set_going.push(format!("dead letter {id} goes to {consumer} again"));
                }
            }
            Waiting::Effect(effect) => {
                let now = Timestamp::now();
                if tx.effects().hurry(effect.id, now).await? {
                    set_going.push(super::effects::set_going(effect));
                }
            }
            _ => {}
        }
    }
    if set_going.is_empty() {
        return Err(SagaError::NothingToRetry(saga.to_owned(), key.to_owned()));
    }
    audit(&mut tx.conn(), "saga.retry", &view.card, actor, reason, set_going.len()).await?;
    tx.commit().await?;
    Ok(set_going)
}

/// Cancels a saga: its program undoes what was done, in one transaction of its own.
///
/// With `abandon`, no undo step runs. The saga ends as `partial`, its timers are disarmed, and
/// what it returns is left to people to undo.
pub async fn cancel_saga(
    store: &Store,
    saga: &str,
    key: &str,
    abandon: bool,
    actor: &str,
    reason: &str,
) -> Result<Vec<String>, SagaError> {
    let mut tx = store.begin_engine().await?;
    let view = view(&mut tx.conn(), saga, key).await?;
    // The row is locked from here: a transaction that works on the saga has finished or waits.
    let (key, tenant) = (&*view.card.key, &*view.card.tenant);
    let row = tx.sagas().load(saga, key, tenant, "").await?;
    let mut row = row.ok_or_else(|| SagaError::Unknown(saga.to_owned(), key.to_owned()))?;
    still_open(row.outcome.as_deref(), saga, key)?;
    let mut timers: BTreeMap<String, i64> = serde_json::from_str(&row.timers)?;
    let armed = tx.timers().of_saga(saga, key, tenant).await?;
    let armed = armed.into_iter().find(|timer| timer.name == CANCEL);
    let cancellable = tx.timers().declared(saga).await?.iter().any(|t| t.name == CANCEL);
    let left = match abandon {
        true => {
            for name in std::mem::take(&mut timers).into_keys() {
                tx.timers().disarm(saga, key, tenant, &name).await?;
            }
            row.outcome = Some("partial".to_owned());
            view.compensations
        }
        false if !cancellable => return Err(SagaError::NotCancellable(saga.to_owned())),
        // A step that ran and did not end the saga leaves no timer; one that failed is tried again.
        false if armed.as_ref().is_some_and(|timer| timer.attempts == 0) => {
            return Err(SagaError::BeingCancelled(saga.to_owned(), key.to_owned()));
        }
        false => {
            let timer = DueTimer {
                saga: saga.to_owned(),
                key: key.to_owned(),
                name: CANCEL.to_owned(),
                tenant: row.tenant.clone(),
                generation: row.version + 1,
                due_at: Timestamp::now(),
                attempts: 0,
            };
            timers.insert(CANCEL.to_owned(), timer.generation);
            tx.timers().arm(&timer).await?;
            Vec::new()
        }
    };
    row.version += 1;
    row.timers = serde_json::to_string(&timers)?;
    tx.sagas().update(&row).await?;
    let what = if abandon { "abandoned" } else { "cancellation asked for" };
    tx.sagas().add_history(&row, &note(&row, format!("{what} by {actor}"), reason)).await?;
    let action = if abandon { "saga.abandon" } else { "saga.cancel" };
    audit(&mut tx.conn(), action, &view.card, actor, reason, left.len()).await?;
    tx.commit().await?;
    store.nudge();
    Ok(left)
}

fn still_open(outcome: Option<&str>, saga: &str, key: &str) -> Result<(), SagaError> {
    match outcome {
        None | Some("stuck") => Ok(()),
        Some(outcome) => Err(SagaError::Ended {
            saga: saga.to_owned(),
            key: key.to_owned(),
            outcome: outcome.to_owned(),
        }),
    }
}

fn note(row: &SagaRow, cause: String, note: &str) -> HistoryEntry {
    HistoryEntry {
        version: row.version,
        at: Timestamp::now(),
        from_state: Some(row.state.clone()),
        to_state: row.state.clone(),
        cause,
        event_id: None,
        note: note.to_owned(),
    }
}

async fn audit(
    conn: &mut Conn<'_>,
    action: &str,
    card: &SagaCard,
    actor: &str,
    reason: &str,
    count: usize,
) -> Result<(), StoreError> {
    let target = format!("{}/{}", card.saga, card.key);
    let detail = serde_json::json!({
        "tenant": card.tenant, "state": card.state, "outcome": card.outcome, "count": count,
    });
    let detail = detail.to_string();
    conn.audit_log()
        .record(&AuditEntry { actor, action, target: &target, reason, detail: &detail })
        .await
}

async fn view(conn: &mut Conn<'_>, saga: &str, key: &str) -> Result<SagaView, SagaError> {
    let mut named = conn.sagas().named(saga, key).await?;
    if named.len() > 1 {
        let tenants: Vec<String> = named.into_iter().map(|card| card.tenant).collect();
        let (saga, key, tenants) = (saga.to_owned(), key.to_owned(), tenants.join(", "));
        return Err(SagaError::Ambiguous { saga, key, tenants });
    }
    let card = named.pop().ok_or_else(|| SagaError::Unknown(saga.to_owned(), key.to_owned()))?;
    let (key, tenant) = (&*card.key.clone(), &*card.tenant.clone());
    let history = conn.sagas().history(saga, key, tenant).await?;
    let mut view = SagaView { card, history, waits_for: Vec::new(), compensations: Vec::new() };
    let compensations = conn.sagas().compensations(saga, key, tenant).await?;
    let recorded: Vec<Compensation> = serde_json::from_str(&compensations)?;
    view.compensations = recorded.into_iter().map(|step| step.name).collect();
    let SagaView { card, waits_for, .. } = &mut view;
    let declared = conn.timers().declared(saga).await?;
    for timer in conn.timers().of_saga(saga, key, tenant).await? {
        let does = declared.iter().find(|declared| declared.name == timer.name).cloned();
        waits_for.push(Waiting::Timer(timer, does));
    }
    let events = conn.story().events(&card.correlation_id, STORY).await?;
    for event in &events {
        if let Some(error) = event.parked.clone() {
            let (event_id, topic) = (event.event_id.clone(), event.topic.clone());
            waits_for.push(Waiting::Outbox { event_id, topic, error });
        }
    }
    let ids = events.into_iter().map(|event| event.event_id).collect();
    let held =
        conn.story().held_events(ids).await?.into_iter().filter(|held| held.status != "closed");
    waits_for.extend(held.map(Waiting::Held));
    let effects = effects_of(conn, &card.correlation_id, &card.tenant, card.started_at).await?;
    let open = effects.into_iter().filter(|(effect, _)| effect.finished_at.is_none());
    waits_for.extend(open.map(|(effect, _)| Waiting::Effect(effect)));
    Ok(view)
}

/// The calls to the outside of a story, each with the event that caused it.
pub(super) async fn effects_of(
    conn: &mut Conn<'_>,
    correlation: &str,
    tenant: &str,
    since: Timestamp,
) -> Result<Vec<(EffectCard, Option<String>)>, StoreError> {
    // Clocks of processes and database may differ a little.
    let from = since.saturating_sub(SignedDuration::from_mins(1)).unwrap_or(since);
    let effects = conn.effects().between(tenant, from, far(since)).await?;
    let of_story = effects.into_iter().filter_map(|effect| {
        let cause: Cause = serde_json::from_slice(&effect.cause).ok()?;
        let causation = cause.causation.map(|id| id.to_string());
        (cause.correlation.to_string() == correlation).then_some((effect, causation))
    });
    Ok(of_story.collect())
}

/// Upper bound on how long a correlation stays active.
fn far(since: Timestamp) -> Timestamp {
    since.saturating_add(SignedDuration::from_hours(24 * 365)).unwrap_or(since)
}
