//! `bff-backoffice-service`: the board at the front desk, with who arrives when.

use std::collections::BTreeMap;

use chapar::prelude::*;
use chapar::{Tx, read_model};
use jiff::civil::Date;

use crate::Config;
use crate::events::{BookingCancelled, BookingConfirmed};

/// The service's name.
pub const SERVICE: &str = "bff-backoffice-service";
/// The read model's name.
pub const BOARD: &str = "bff-backoffice-service.arrivals";

/// Who arrives at a property on a day, by booking.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// The bookings.
    pub bookings: BTreeMap<String, Arrival>,
}

/// A booking that arrives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The room.
    pub room: String,
    /// How many nights.
    pub nights: i64,
}

/// The service, which keeps the board.
pub fn service(config: &Config) -> Service {
    let board = Projection::<Arrivals>::new(BOARD)
        .on(
            |event: &BookingConfirmed| day(&event.property_id, event.check_in),
            |day, event| {
                let arrival = Arrival { room: event.room_id.clone(), nights: event.nights };
                let bookings = &mut day.get_or_insert_default().bookings;
                bookings.insert(event.reservation_id.clone(), arrival);
            },
        )
        .on(
            |event: &BookingCancelled| day(&event.property_id, event.check_in),
            |day, event| {
                // Most were never confirmed, and are not on the board.
                let Some(arrivals) = day else { return };
                arrivals.bookings.remove(&event.reservation_id);
                if arrivals.bookings.is_empty() {
                    *day = None;
                }
            },
        );
    Service::new(SERVICE).projection_with(board, |consumer| config.patience(consumer))
}

/// Who arrives at a property of a tenant on a day.
pub async fn arrivals(
    tx: &mut Tx,
    tenant: &Tenant,
    property: &str,
    on: Date,
) -> Result<Arrivals, Failure> {
    let found = read_model(tx, BOARD, tenant, &day(property, on)).await?;
    Ok(found.unwrap_or_default())
}

fn day(property: &str, on: Date) -> String {
    format!("{property} {on}")
}
