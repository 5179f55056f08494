//! `analytics-service`: every event of the flow as a fact, and totals per tenant.

use std::sync::Arc;

use chapar::Envelope;
use chapar::prelude::*;

use crate::Config;
use crate::events::{BookingCancelled, BookingConfirmed, TOPICS};

/// The service's name.
pub const SERVICE: &str = "analytics-service";

/// The service, which records facts.
pub fn service(config: &Config) -> Service {
    // Sums do not depend on the order. One lane with large batches, because two would wait for
    // each other on the rows of the totals.
    let facts = config.consumer("booking-facts").on_any(TOPICS, record);
    Service::new(SERVICE).consumer(facts.unordered().batch(500).max_in_flight(2000))
}

async fn record(event: Arc<Envelope>, cx: &mut Cx) -> Handled {
    const FACT: &str = "insert into analytics_facts \
        (event_id, topic, tenant, aggregate, occurred_at) values ($1, $2, :tenant, $3, $4)";
    let topic = event.subject();
    let aggregate = event.aggregate.as_ref().map_or("", |aggregate| aggregate.id.as_str());
    let occurred_at = event.occurred_at.as_microsecond();
    cx.execute(FACT, params![event.id.to_string(), topic, aggregate, occurred_at]).await?;
    match topic.as_str() {
        BookingConfirmed::SUBJECT => {
            let booking: BookingConfirmed = event.payload.parse().or_terminal()?;
            add(cx, 1, 0, booking.amount_minor).await
        }
        BookingCancelled::SUBJECT => add(cx, 0, 1, 0).await,
        _ => applied(),
    }
}

async fn add(cx: &mut Cx, confirmed: i64, cancelled: i64, revenue: i64) -> Handled {
    const ADD: &str = "insert into analytics_totals (tenant, confirmed, cancelled, revenue_minor) \
        values (:tenant, $1, $2, $3) on conflict (tenant) do update set \
        confirmed = analytics_totals.confirmed + excluded.confirmed, \
        cancelled = analytics_totals.cancelled + excluded.cancelled, \
        revenue_minor = analytics_totals.revenue_minor + excluded.revenue_minor";
    cx.execute(ADD, params![confirmed, cancelled, revenue]).await?;
    applied()
}
