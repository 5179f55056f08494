//! `billing-service`: keeps the books of a booking.

use chapar::sql::Value;
use chapar::{App, Cx, Event, Failure};

use crate::Config;
use crate::events::{BookingConfirmed, BookingConfirmedStatus, FolioChargePosted, FolioOpened};

/// The service's name.
pub const SERVICE: &str = "billing-service";

/// Registers what billing does when a booking is confirmed.
pub fn register(app: App, config: &Config) -> App {
    let consumer = config.consumer("billing-service.booking-confirmed").on(open_folio);
    app.consumer(SERVICE, consumer)
}

async fn open_folio(booking: BookingConfirmed, cx: &mut Cx) -> Result<(), Failure> {
    const OPEN: &str = "insert into billing_folios (tenant, folio, reservation, opened_at) \
        values ($1, $2, $3, $4)";
    let folio_id = format!("folio_{}", booking.reservation_id);
    let args = vec![
        cx.tenant().as_str().into(),
        (&folio_id).into(),
        (&booking.reservation_id).into(),
        cx.now().as_microsecond().into(),
    ];
    cx.tx().execute(OPEN, args).await?;
    let amount = booking.amount_minor;
    post(cx, &folio_id, "charge", ("guest", "revenue"), amount).await?;
    if booking.status == BookingConfirmedStatus::Confirmed {
        post(cx, &folio_id, "payment", ("card_clearing", "guest"), amount).await?;
    }
    let reservation_id = booking.reservation_id.clone();
    let guest_id = booking.guest.guest_id;
    cx.emit(FolioOpened::new(reservation_id, folio_id.clone(), guest_id)).await?;
    let BookingConfirmed { reservation_id, amount_minor, currency, .. } = booking;
    // A folio has many charges, and one for the stay.
    let intent = format!("{folio_id}:stay");
    let charge = FolioChargePosted::new(reservation_id, folio_id, amount_minor, currency);
    cx.emit(charge.for_tenant(cx.tenant()).idempotency_key(intent)).await
}

/// Both sides in one statement: an entry that does not balance cannot be written.
async fn post(
    cx: &mut Cx,
    folio: &str,
    entry: &str,
    (debit, credit): (&str, &str),
    amount_minor: i64,
) -> Result<(), Failure> {
    const POST: &str = "insert into billing_ledger (tenant, folio, entry, account, amount_minor) \
        values ($1, $2, $3, $4, $6), ($1, $2, $3, $5, -$6)";
    let args: Vec<Value> = vec![
        cx.tenant().as_str().into(),
        folio.into(),
        entry.into(),
        debit.into(),
        credit.into(),
        amount_minor.into(),
    ];
    cx.tx().execute(POST, args).await?;
    Ok(())
}
