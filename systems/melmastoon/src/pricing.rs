//! `pricing-service`: remembers what was quoted. No other service waits for it.

use chapar::prelude::*;

use crate::Config;
use crate::events::BookingHeld;

/// The service's name.
pub const SERVICE: &str = "pricing-service";

/// The service, which records quotes.
pub fn service(config: &Config) -> Service {
    Service::new(SERVICE).consumer(config.consumer("quote-snapshot").on(record).unordered())
}

async fn record(held: BookingHeld, cx: &mut Cx) -> Handled {
    const RECORD: &str = "insert into pricing_quotes \
        (tenant, reservation, nights, amount_minor, currency, quoted_at) \
        values (:tenant, $1, $2, $3, $4, $5)";
    let BookingHeld { reservation_id, nights, amount_minor, currency, .. } = held;
    let now = cx.now().as_microsecond();
    cx.execute(RECORD, params![reservation_id, nights, amount_minor, currency, now]).await?;
    applied()
}
