//! Sagas from outside: what one waits for, trying again, and cancelling.

use std::collections::BTreeMap;

use chapar_core::Cause;
use chapar_sql::{
    AuditEntry, Boxed, Conn, DeclaredTimer, DueTimer, EffectCard, HistoryEntry, SagaCard, SagaRow,
    Store, StoreError,
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
    /// An event of its story in one of the boxes.
    Box(Boxed),
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
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The saga's row is not what it should be.
    #[error("the saga cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

/// Looks at a saga.
pub async fn view_saga(store: &Store, saga: &str, key: &str) -> Result<SagaView, SagaError> {
    let mut tx = store.begin_engine().await?;
    let view = view(&mut tx.conn(), saga, key).await;
    tx.rollback().await?;
    view
}

/// Tries again what has failed of a saga's story: its open dead letters are delivered again and
/// its calls to the outside are made now. Returns what was set going, in words.
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
            Waiting::Box(Boxed { letter: Some(id), consumer, .. }) => {
                let since = Some(remembered_since(Timestamp::now()));
                if tx.conn().ask_for_replay(vec![id.clone()], None, since).await? > 0 {
                    set_going.push(format!("dead letter {id} goes to {consumer} again"));
                }
            }
            Waiting::Effect(effect) => {
                let now = Timestamp::now();
                let (tenant, kind) = (&view.card.tenant, &effect.kind);
                if tx.conn().hurry_effect(tenant, kind, &effect.key, now).await? {
                    set_going.push(format!("{kind} {} is called now", effect.key));
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
/// With `abandon` no program is asked. The saga ends as `partial`, its timers are disarmed, and
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
    let row = tx.conn().load_saga(saga, key, "").await?;
    let mut row = row.ok_or_else(|| SagaError::Unknown(saga.to_owned(), key.to_owned()))?;
    still_open(row.outcome.as_deref(), saga, key)?;
    let mut timers: BTreeMap<String, i64> = serde_json::from_str(&row.timers)?;
    let cancellable = tx.conn().declared_timers(saga).await?.iter().any(|t| t.name == CANCEL);
    let left = match abandon {
        true => {
            for name in std::mem::take(&mut timers).into_keys() {
                tx.conn().disarm_timer(saga, key, &name).await?;
            }
            row.outcome = Some("partial".to_owned());
            view.compensations
        }
        false if !cancellable => return Err(SagaError::NotCancellable(saga.to_owned())),
        false if timers.contains_key(CANCEL) => {
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
            tx.conn().arm_timer(&timer).await?;
            Vec::new()
        }
    };
    row.version += 1;
    row.timers = serde_json::to_string(&timers)?;
    tx.conn().update_saga(&row).await?;
    let what = if abandon { "abandoned" } else { "cancellation asked for" };
    tx.conn().add_history(&row, &note(&row, format!("{what} by {actor}"), reason)).await?;
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
    conn.audit(&AuditEntry { actor, action, target: &target, reason, detail: &detail }).await
}

async fn view(conn: &mut Conn<'_>, saga: &str, key: &str) -> Result<SagaView, SagaError> {
    let card = conn.look_at_saga(saga, key).await?;
    let card = card.ok_or_else(|| SagaError::Unknown(saga.to_owned(), key.to_owned()))?;
    let history = conn.saga_history(saga, key).await?;
    let mut view = SagaView { card, history, waits_for: Vec::new(), compensations: Vec::new() };
    let compensations = conn.saga_compensations(saga, key).await?;
    let recorded: Vec<Compensation> = serde_json::from_str(&compensations)?;
    view.compensations = recorded.into_iter().map(|step| step.name).collect();
    let SagaView { card, waits_for, .. } = &mut view;
    let declared = conn.declared_timers(saga).await?;
    for timer in conn.timers_of_saga(saga, key).await? {
        let does = declared.iter().find(|declared| declared.name == timer.name).cloned();
        waits_for.push(Waiting::Timer(timer, does));
    }
    let events = conn.events_of_story(&card.correlation_id, STORY).await?;
    for event in &events {
        if let Some(error) = event.parked.clone() {
            let (event_id, topic) = (event.event_id.clone(), event.topic.clone());
            waits_for.push(Waiting::Outbox { event_id, topic, error });
        }
    }
    let ids = events.into_iter().map(|event| event.event_id).collect();
    let boxes = conn.boxes_of(ids).await?.into_iter().filter(|boxed| boxed.status != "closed");
    waits_for.extend(boxes.map(Waiting::Box));
    let effects = effects_of(conn, &card.correlation_id, &card.tenant, card.started_at).await?;
    let pending = effects.into_iter().filter(|(effect, _)| effect.status == "pending");
    waits_for.extend(pending.map(|(effect, _)| Waiting::Effect(effect)));
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
    let effects = conn.effects_between(tenant, from, far(since)).await?;
    let of_story = effects.into_iter().filter_map(|effect| {
        let cause: Cause = serde_json::from_slice(&effect.cause).ok()?;
        let causation = cause.causation.map(|id| id.to_string());
        (cause.correlation.to_string() == correlation).then_some((effect, causation))
    });
    Ok(of_story.collect())
}

/// Long after any story that began then is over.
fn far(since: Timestamp) -> Timestamp {
    since.saturating_add(SignedDuration::from_hours(24 * 365)).unwrap_or(since)
}
