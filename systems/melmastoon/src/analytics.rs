//! `analytics-service`: every event of the flow as a fact, and totals per tenant.

use std::sync::Arc;

use chapar::{App, Cx, Envelope, Event, Failure};

use crate::Config;
use crate::events::{BookingCancelled, BookingConfirmed, TOPICS};

/// The service's name.
pub const SERVICE: &str = "analytics-service";

/// Registers the recording of facts.
pub fn register(app: App, config: &Config) -> App {
    // Sums do not mind the order. One lane with large batches, because two would wait for each
    // other on the rows of the totals.
    let consumer = config
        .consumer("analytics-service.booking-facts")
        .on_any(TOPICS, record)
        .unordered()
        .batch(500)
        .max_in_flight(2000);
    app.consumer(SERVICE, consumer)
}

async fn record(event: Arc<Envelope>, cx: &mut Cx) -> Result<(), Failure> {
    const FACT: &str = "insert into analytics_facts \
        (event_id, topic, tenant, aggregate, occurred_at) values ($1, $2, $3, $4, $5)";
    let topic = event.subject();
    let aggregate = event.aggregate.as_ref().map_or("", |aggregate| aggregate.id.as_str());
    let args = vec![
        event.id.to_string().into(),
        (&topic).into(),
        event.tenant.as_str().into(),
        aggregate.into(),
        event.occurred_at.as_microsecond().into(),
    ];
    cx.tx().execute(FACT, args).await?;
    match topic.as_str() {
        BookingConfirmed::SUBJECT => {
            let booking: BookingConfirmed = event.payload.parse()?;
            add(cx, 1, 0, booking.amount_minor).await
        }
        BookingCancelled::SUBJECT => add(cx, 0, 1, 0).await,
        _ => Ok(()),
    }
}

async fn add(cx: &mut Cx, confirmed: i64, cancelled: i64, revenue: i64) -> Result<(), Failure> {
    const ADD: &str = "insert into analytics_totals (tenant, confirmed, cancelled, revenue_minor) \
        values ($1, $2, $3, $4) on conflict (tenant) do update set \
        confirmed = analytics_totals.confirmed + excluded.confirmed, \
        cancelled = analytics_totals.cancelled + excluded.cancelled, \
        revenue_minor = analytics_totals.revenue_minor + excluded.revenue_minor";
    let tenant = cx.tenant().as_str().into();
    cx.tx().execute(ADD, vec![tenant, confirmed.into(), cancelled.into(), revenue.into()]).await?;
    Ok(())
}
