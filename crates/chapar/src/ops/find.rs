//! Finding events, sagas and dead letters by an id or a key.

use chapar_sql::{Store, StoreError, StoryEvent, Tables};
use jiff::Timestamp;
use serde::Serialize;

/// A search result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchResult {
    /// What it was found as: `event`, `correlation`, `aggregate`, `idempotency key`, `saga`,
    /// `parked or stashed event`, `dead letter` or `applied event`.
    pub found_as: &'static str,
    /// What it is.
    pub what: String,
    /// Its tenant.
    pub tenant: String,
    /// When it was created.
    pub at: Option<Timestamp>,
    /// The command that shows more.
    pub next: String,
}

/// The most findings of a kind.
const MOST: i64 = 100;

/// Finds what there is of an event id, a correlation id, an aggregate id, an idempotency key, the
/// key of a saga or the id of a dead letter.
pub async fn find(store: &Store, wanted: &str) -> Result<Vec<SearchResult>, StoreError> {
    let mut tx = store.begin_read().await?;
    let mut conn = tx.conn();
    let mut found = Vec::new();
    if let Some(event) = conn.story().event(wanted).await? {
        found.push(of_event("event", &event));
    }
    for reception in conn.story().receptions(vec![wanted.to_owned()]).await? {
        found.push(SearchResult {
            found_as: "applied event",
            what: format!("{}: {}", reception.consumer, reception.result),
            tenant: reception.tenant,
            at: Some(reception.processed_at),
            next: format!("chapar consumers show {}", reception.consumer),
        });
    }
    let mut all = conn.story().held_events(vec![wanted.to_owned()]).await?;
    all.extend(conn.letters().card(wanted).await?);
    for held in all {
        let next = match &held.letter {
            Some(id) => format!("chapar dlq show {id}"),
            None => format!("chapar consumers show {}", held.consumer),
        };
        found.push(SearchResult {
            found_as: if held.letter.is_some() { "dead letter" } else { "parked or stashed event" },
            what: format!("{}: {} ({}): {}", held.consumer, held.kind, held.status, held.error),
            tenant: held.tenant,
            at: Some(held.since),
            next,
        });
    }
    let story = conn.story().events(wanted, MOST).await?;
    if let Some(first) = story.first() {
        let more = if story.len() as i64 == MOST { " or more" } else { "" };
        found.push(SearchResult {
            found_as: "correlation",
            what: format!("{}{more} events, the first is {}", story.len(), first.topic),
            tenant: first.tenant.clone(),
            at: Some(first.written_at),
            next: format!("chapar trace {wanted}"),
        });
    }
    let mut sagas = conn.sagas().with_key(wanted).await?;
    sagas.extend(conn.sagas().of_story(wanted).await?);
    for saga in sagas {
        let outcome = saga.outcome.as_deref().unwrap_or("under way");
        found.push(SearchResult {
            found_as: "saga",
            what: format!("{} {}: {} ({outcome})", saga.saga, saga.key, saga.state),
            tenant: saga.tenant,
            at: Some(saga.started_at),
            next: format!("chapar sagas show {} {}", saga.saga, saga.key),
        });
    }
    for (tenant, topic, event, at) in conn.story().with_intent(wanted).await? {
        found.push(SearchResult {
            found_as: "idempotency key",
            what: format!("{topic} {event}"),
            tenant,
            at: Some(at),
            next: format!("chapar find {event}"),
        });
    }
    for event in conn.story().of_aggregate(wanted, MOST).await? {
        found.push(of_event("aggregate", &event));
    }
    tx.rollback().await?;
    Ok(found)
}

fn of_event(found_as: &'static str, event: &StoryEvent) -> SearchResult {
    SearchResult {
        found_as,
        what: format!(
            "{} {} of {} {}",
            event.topic, event.event_id, event.aggregate_type, event.aggregate_id
        ),
        tenant: event.tenant.clone(),
        at: Some(event.written_at),
        next: format!("chapar trace {}", event.correlation_id),
    }
}
