//! `billing-service`: keeps the books of a booking.

use chapar::prelude::*;

use crate::Config;
use crate::events::{
    BookingConfirmed, BookingConfirmedStatus, FolioChargePosted, FolioChargePostedRequired,
    FolioOpened, FolioOpenedRequired,
};

/// The service's name.
pub const SERVICE: &str = "billing-service";

/// The service, which opens a folio for every confirmed booking.
pub fn service(config: &Config) -> Service {
    Service::new(SERVICE).consumer(config.consumer("booking-confirmed").on(open_folio))
}

async fn open_folio(booking: BookingConfirmed, cx: &mut Cx) -> Handled {
    const OPEN: &str = "insert into billing_folios (tenant, folio, reservation, opened_at) \
        values (:tenant, $1, $2, $3)";
    let BookingConfirmed { reservation_id, status, guest, amount_minor, currency, .. } = booking;
    let folio_id = format!("folio_{reservation_id}");
    let now = cx.now().as_microsecond();
    cx.execute(OPEN, params![folio_id, reservation_id, now]).await?;
    post(cx, &folio_id, "charge", ("guest", "revenue"), amount_minor).await?;
    if status == BookingConfirmedStatus::Confirmed {
        post(cx, &folio_id, "payment", ("card_clearing", "guest"), amount_minor).await?;
    }
    let opened = FolioOpenedRequired {
        reservation_id: reservation_id.clone(),
        folio_id: folio_id.clone(),
        guest_id: guest.guest_id,
    };
    cx.emit(FolioOpened::from(opened)).await?;
    // A folio has many charges, and one for the stay.
    let intent = format!("{folio_id}:stay");
    let charge = FolioChargePostedRequired { reservation_id, folio_id, amount_minor, currency };
    cx.emit(FolioChargePosted::from(charge).draft().idempotency_key(intent)).await
}

/// Both sides in one statement: an entry that does not balance cannot be written.
async fn post(
    cx: &mut Cx,
    folio: &str,
    entry: &str,
    (debit, credit): (&str, &str),
    amount_minor: i64,
) -> Handled {
    const POST: &str = "insert into billing_ledger (tenant, folio, entry, account, amount_minor) \
        values (:tenant, $1, $2, $3, $5), (:tenant, $1, $2, $4, -$5)";
    cx.execute(POST, params![folio, entry, debit, credit, amount_minor]).await?;
    applied()
}
