//! The booking saga: held → allocated → confirmed, or back.

use chapar::saga::{Found, Outcome, Saga, SagaKind};
use chapar::{App, Cx, Failure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::SERVICE;
use crate::Config;
use crate::events::{
    AllocationCommitted, BookingCancelled, BookingCancelledReason as Reason, BookingConfirmed,
    BookingConfirmedStatus, Guest, IntentCaptured, IntentCapturedRail, IntentFailed,
    LockVendorError, OversellBlocked, Price, Stay,
};

pub(super) const BOOKING: SagaKind = SagaKind::new("booking", 1);
pub(super) const ALLOCATION_DEADLINE: &str = "allocation_deadline";
pub(super) const HELD: &str = "held";

const ALLOCATED: &str = "allocated";
const CANCELLED: &str = "cancelled";
const RELEASE_ALLOCATION: &str = "release_allocation";

/// What the saga must know to confirm or to cancel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Booking {
    pub(super) stay: Stay,
    pub(super) guest: Guest,
    pub(super) price: Price,
}

pub(super) fn register_answers(app: App, config: &Config) -> App {
    // One consumer for all topics of the saga: events of one booking are applied one after
    // the other, so no answer of a later step overtakes that of an earlier one.
    let consumer = config
        .consumer("reservation-service.booking-saga")
        .on(allocated)
        .on(not_available)
        .on(paid)
        .on(not_paid)
        .on(no_key)
        .lanes(2);
    app.consumer(SERVICE, consumer)
}

pub(super) fn register_deadlines(app: App) -> App {
    let does = "the booking is cancelled, unless a room was allocated";
    app.timer_that(SERVICE, BOOKING, ALLOCATION_DEADLINE, does, deadline_passed).on_cancel(
        SERVICE,
        BOOKING,
        cancelled_by_hand,
    )
}

async fn allocated(event: AllocationCommitted, cx: &mut Cx) -> Result<(), Failure> {
    // After the deadline this is noise: inventory has seen the cancellation, or will.
    let Some(mut saga) = under_way(cx, &event.reservation_id).await? else { return Ok(()) };
    saga.disarm(cx, ALLOCATION_DEADLINE).await?;
    // Recorded now, because the payment comes next and only it can fail from here.
    saga.undo_with(RELEASE_ALLOCATION, json!({ "allocationId": event.allocation_id }));
    saga.go(cx, ALLOCATED, "the room is allocated, the payment may come").await
}

async fn not_available(event: OversellBlocked, cx: &mut Cx) -> Result<(), Failure> {
    match under_way(cx, &event.reservation_id).await? {
        Some(saga) => cancel(saga, Reason::NoAvailability, cx).await,
        None => Ok(()),
    }
}

async fn paid(event: IntentCaptured, cx: &mut Cx) -> Result<(), Failure> {
    // A capture after the cancellation is for the payment service to give back.
    let Some(saga) = under_way(cx, &event.reservation_id).await? else { return Ok(()) };
    let status = match event.rail {
        IntentCapturedRail::CashPending => BookingConfirmedStatus::ConfirmedCashPending,
        _ => BookingConfirmedStatus::Confirmed,
    };
    set_state(cx, saga.key(), status.as_str(), None).await?;
    let Booking { stay, guest, price } = saga.data.clone();
    cx.emit(BookingConfirmed::new(
        saga.key().to_owned(),
        status,
        stay.property_id,
        stay.room_id,
        stay.check_in,
        stay.nights,
        guest,
        price.amount_minor,
        price.currency,
    ))
    .await?;
    saga.end(cx, status.as_str(), Outcome::Completed, "the payment is captured").await
}

async fn not_paid(event: IntentFailed, cx: &mut Cx) -> Result<(), Failure> {
    match under_way(cx, &event.reservation_id).await? {
        Some(saga) => cancel(saga, Reason::PaymentFailed, cx).await,
        None => Ok(()),
    }
}

/// The booking stands without a key: people at the front desk hand one out.
async fn no_key(event: LockVendorError, cx: &mut Cx) -> Result<(), Failure> {
    const QUEUE: &str = "insert into manual_key_queue (tenant, reservation, reason, queued_at) \
        values ($1, $2, $3, $4) on conflict do nothing";
    let args = vec![
        cx.tenant().as_str().into(),
        event.reservation_id.into(),
        event.reason.into(),
        cx.now().as_microsecond().into(),
    ];
    cx.tx().execute(QUEUE, args).await?;
    Ok(())
}

async fn deadline_passed(reservation: String, cx: &mut Cx) -> Result<(), Failure> {
    match under_way(cx, &reservation).await? {
        Some(saga) if saga.state() == HELD => cancel(saga, Reason::HoldExpired, cx).await,
        _ => Ok(()),
    }
}

async fn cancelled_by_hand(reservation: String, cx: &mut Cx) -> Result<(), Failure> {
    match under_way(cx, &reservation).await? {
        Some(saga) => cancel(saga, Reason::PropertyRequest, cx).await,
        None => Ok(()),
    }
}

/// The saga, unless it has ended and the event is late.
async fn under_way(cx: &mut Cx, reservation: &str) -> Result<Option<Saga<Booking>>, Failure> {
    match Saga::load(cx, BOOKING, reservation).await? {
        Found::Active(saga) => Ok(Some(saga)),
        Found::Ended(_) => {
            cx.noop();
            Ok(None)
        }
        // The saga starts in the transaction of the first event, so it cannot come later.
        Found::Missing => Err(Failure::rule(format!("there is no booking {reservation}"))),
    }
}

/// Undoes what was done. The room is inventory's to give back, which it does on the event.
async fn cancel(mut saga: Saga<Booking>, reason: Reason, cx: &mut Cx) -> Result<(), Failure> {
    let mut allocation_id = None;
    for step in saga.compensations() {
        match step.name.as_str() {
            RELEASE_ALLOCATION => {
                allocation_id = step.data["allocationId"].as_str().map(str::to_owned);
            }
            unknown => {
                return Err(saga.stuck(Failure::rule(format!("nobody knows how to {unknown}"))));
            }
        }
    }
    let Booking { stay, guest, .. } = saga.data.clone();
    let mut event = BookingCancelled::new(
        saga.key().to_owned(),
        reason,
        stay.property_id,
        stay.room_id,
        stay.check_in,
        stay.nights,
        guest,
    );
    event.allocation_id = allocation_id;
    let reason = reason.as_str();
    set_state(cx, saga.key(), CANCELLED, Some(reason)).await.map_err(|f| saga.stuck(f))?;
    cx.emit(event).await.map_err(|f| saga.stuck(f))?;
    saga.end(cx, CANCELLED, Outcome::Compensated, reason).await
}

async fn set_state(
    cx: &mut Cx,
    reservation: &str,
    state: &str,
    reason: Option<&str>,
) -> Result<(), Failure> {
    const SET: &str =
        "update reservations set state = $3, reason = $4 where tenant = $1 and id = $2";
    let tenant = cx.tenant().as_str().into();
    let args = vec![tenant, reservation.into(), state.into(), reason.into()];
    match cx.tx().execute(SET, args).await? {
        1 => Ok(()),
        _ => Err(Failure::rule(format!("there is no reservation {reservation}"))),
    }
}
