//! A hand-written consumer with the same guarantees: claims, parked keys, tenant isolation, many events in a
//! transaction. The statements are exactly those that the consumer runs, prepared once, with nothing around them.

use std::borrow::Cow;
use std::collections::HashSet;

use anyhow::{Context as _, Result, ensure};
use chapar_core::port::Delivery;
use serde::Deserialize;
use sqlx::{Connection, PgConnection, Postgres, Row, Transaction};

use super::feed::Feed;
use super::{BATCH, CONSUMER, INSERT, INSERT_SET, Modified};

const BECOME: &str =
    "select set_config('role', 'chapar_engine', true), set_config('app.tenant_id', $1, true)";
const BLOCKED: &str = "select ordering_key from chapar.dead_letters where consumer = $1 \
    and status <> 'closed' and blocks_key and ordering_key = any($2) \
    union select ordering_key from chapar.parked where consumer = $1 \
    and ordering_key = any($2)";
const CLAIM: &str = "insert into chapar.inbox (consumer, event_id, tenant, topic, result) \
    select $1, e.id, $2, e.topic, 'ok' from unnest($3::text[], $4::text[]) as e(id, topic) \
    on conflict do nothing returning event_id";

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(rename = "eventId", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "tenantId", borrow)]
    tenant: Cow<'a, str>,
    payload: Modified,
}

/// Consumes until the feed is empty.
pub(super) async fn consume(store: &str, feed: &Feed, set: bool) -> Result<()> {
    let mut conn = PgConnection::connect(store).await?;
    loop {
        let deliveries = feed.take(BATCH);
        if deliveries.is_empty() {
            return Ok(conn.close().await?);
        }
        let mut events: Vec<(&Delivery, Body<'_>)> = Vec::with_capacity(deliveries.len());
        for delivery in &deliveries {
            events.push((delivery, serde_json::from_slice(&delivery.body)?));
        }
        events.sort_by(|(_, a), (_, b)| a.tenant.cmp(&b.tenant));
        let mut tx = conn.begin().await?;
        for group in events.chunk_by_mut(|(_, a), (_, b)| a.tenant == b.tenant) {
            apply(&mut tx, group, set).await?;
        }
        tx.commit().await?;
        feed.acknowledge(deliveries.len());
    }
}

async fn apply(
    tx: &mut Transaction<'_, Postgres>,
    group: &mut [(&Delivery, Body<'_>)],
    set: bool,
) -> Result<()> {
    let tenant = group.first().context("no group is empty")?.1.tenant.clone();
    sqlx::query(BECOME).bind(&*tenant).execute(&mut **tx).await?;
    let keys: Vec<&str> = group.iter().filter_map(|(at, _)| at.key.as_deref()).collect();
    let blocked = sqlx::query(BLOCKED).bind(CONSUMER).bind(keys).fetch_all(&mut **tx).await?;
    ensure!(blocked.is_empty(), "nothing was parked in this turn");
    group.sort_by(|(_, a), (_, b)| a.id.cmp(&b.id));
    let (ids, topics): (Vec<&str>, Vec<&str>) =
        group.iter().map(|(at, body)| (&*body.id, at.topic.as_str())).unzip();
    let query = sqlx::query(CLAIM).bind(CONSUMER).bind(&*tenant).bind(ids).bind(topics);
    let mut fresh = HashSet::with_capacity(group.len());
    for row in query.fetch_all(&mut **tx).await? {
        fresh.insert(row.try_get::<String, _>(0)?);
    }
    let events = group.iter().map(|(_, body)| body).filter(|body| fresh.contains(&*body.id));
    let events: Vec<&Modified> = events.map(|body| &body.payload).collect();
    if set {
        let numbers: Vec<i64> = events.iter().map(|event| event.n).collect();
        let bookings: Vec<&str> = events.iter().map(|event| event.booking.as_str()).collect();
        let notes: Vec<&str> = events.iter().map(|event| event.note.as_str()).collect();
        let query = sqlx::query(INSERT_SET).bind(&*tenant).bind(numbers).bind(bookings).bind(notes);
        query.execute(&mut **tx).await?;
        return Ok(());
    }
    for Modified { n, booking, note } in events {
        let query = sqlx::query(INSERT).bind(&*tenant).bind(n).bind(booking).bind(note);
        query.execute(&mut **tx).await?;
    }
    Ok(())
}
