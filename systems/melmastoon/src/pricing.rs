//! `pricing-service`: remembers what was quoted. Nobody waits for it.

use chapar::{App, Cx, Failure};

use crate::Config;
use crate::events::BookingHeld;

/// The service's name.
pub const SERVICE: &str = "pricing-service";

/// Registers the recording of quotes.
pub fn register(app: App, config: &Config) -> App {
    let consumer = config.consumer("pricing-service.quote-snapshot").on(record).unordered();
    app.consumer(SERVICE, consumer)
}

async fn record(held: BookingHeld, cx: &mut Cx) -> Result<(), Failure> {
    const RECORD: &str = "insert into pricing_quotes \
        (tenant, reservation, nights, amount_minor, currency, quoted_at) \
        values ($1, $2, $3, $4, $5, $6)";
    let args = vec![
        cx.tenant().as_str().into(),
        held.reservation_id.into(),
        held.nights.into(),
        held.amount_minor.into(),
        held.currency.into(),
        cx.now().as_microsecond().into(),
    ];
    cx.tx().execute(RECORD, args).await?;
    Ok(())
}
