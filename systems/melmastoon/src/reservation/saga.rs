//! The booking saga: held → allocated → confirmed, or back.

use chapar::prelude::*;

use crate::Config;
use crate::events::{
    AllocationCommitted, BookingCancelledReason as Reason, BookingConfirmedStatus as Status, Guest,
    IntentCaptured, IntentCapturedRail, IntentFailed, LockVendorError, OversellBlocked, Price,
    Stay,
};

/// What the saga must know to confirm or to cancel.
#[derive(Debug, Clone, Saga, Serialize, Deserialize)]
#[saga("booking", version = 1, key = reservation, state = State, timer = Timer)]
pub(super) struct Booking {
    pub(super) reservation: String,
    pub(super) stay: Stay,
    pub(super) guest: Guest,
    pub(super) price: Price,
    pub(super) allocation: Option<String>,
}

#[derive(SagaState)]
pub(super) enum State {
    Held,
    Allocated,
    Confirmed,
    ConfirmedCashPending,
    Cancelled,
}

#[derive(SagaTimer)]
pub(super) enum Timer {
    /// Cancels the booking unless a room was allocated.
    #[timer(after = "30s")]
    Allocation,
    /// Cancels the booking unless it is paid.
    #[timer(after = "10m")]
    Hold,
}

pub(super) fn booking(config: &Config) -> Saga<Booking> {
    let config = config.clone();
    deadlines()
        .on(|e: &AllocationCommitted| &e.reservation_id, allocated)
        .on(|e: &OversellBlocked| &e.reservation_id, |_, b| cancel(b, Reason::NoAvailability))
        .on(|e: &IntentCaptured| &e.reservation_id, paid)
        .on(|e: &IntentFailed| &e.reservation_id, |_, b| cancel(b, Reason::PaymentFailed))
        .on_always(|e: &LockVendorError| &e.reservation_id, key_failed)
        .consumer(move |consumer| config.patience(consumer.lanes(2)))
}

/// The timers alone, which a process of its own can watch.
pub(super) fn deadlines() -> Saga<Booking> {
    Saga::new()
        .timer(Timer::Allocation, |b| cancel(b, Reason::HoldExpired).only_from([State::Held]))
        .timer(Timer::Hold, |b| cancel(b, Reason::HoldExpired))
        .cancelled_by_operator(|b| cancel(b, Reason::PropertyRequest))
}

fn allocated(event: AllocationCommitted, _: &Booking) -> Step<Booking> {
    Step::to(State::Allocated)
        .because("the room is allocated, the payment may come")
        .disarm(Timer::Allocation)
        .update(|booking: &mut Booking| booking.allocation = Some(event.allocation_id))
}

/// A capture after a cancellation is for the payment service to give back.
fn paid(event: IntentCaptured, booking: &Booking) -> Step<Booking> {
    let (state, status) = match event.rail {
        IntentCapturedRail::CashPending => {
            (State::ConfirmedCashPending, Status::ConfirmedCashPending)
        }
        _ => (State::Confirmed, Status::Confirmed),
    };
    Step::complete(state)
        .because("the payment is captured")
        .execute(SET_STATE, params![booking.reservation, state, None::<&str>])
        .emit(booking.confirmed(status))
}

/// The room is inventory's to give back, which it does on the event.
fn cancel(booking: &Booking, reason: Reason) -> Step<Booking> {
    Step::compensate(State::Cancelled, reason)
        .execute(SET_STATE, params![booking.reservation, State::Cancelled, reason])
        .emit(booking.cancelled(reason))
}

/// The booking stands without a key: the front desk hands one out.
fn key_failed(event: LockVendorError, booking: &Booking) -> Step<Booking> {
    const QUEUE: &str = "insert into manual_key_queue (tenant, reservation, reason, queued_at) \
        values (:tenant, $1, $2, :now) on conflict do nothing";
    Step::stay().execute(QUEUE, params![booking.reservation, event.reason])
}

const SET_STATE: &str =
    "update reservations set state = $2, reason = $3 where tenant = :tenant and id = $1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{
        BookingCancelled, BookingConfirmed, GuestRequired, IntentCapturedRequired,
    };

    fn held() -> Booking {
        Booking {
            reservation: "res_1".into(),
            stay: Stay {
                property_id: "house-1".into(),
                room_id: "101".into(),
                check_in: jiff::civil::date(2027, 1, 2),
                nights: 2,
            },
            guest: GuestRequired { guest_id: "guest_1".into(), locale: "fa".into() }.into(),
            price: Price { amount_minor: 12_000, currency: "USD".into() },
            allocation: None,
        }
    }

    #[test]
    fn a_failed_payment_cancels_the_booking() {
        let step = cancel(&held(), Reason::PaymentFailed);
        assert_eq!(step.outcome(), Outcome::Compensated(State::Cancelled));
        assert_eq!(step.emitted::<BookingCancelled>().reason, Reason::PaymentFailed);
    }

    #[test]
    fn a_cancelled_booking_names_the_allocation_to_release() {
        let event = AllocationCommitted {
            reservation_id: "res_1".into(),
            allocation_id: "alloc_1".into(),
            property_id: "house-1".into(),
            room_id: "101".into(),
            check_in: jiff::civil::date(2027, 1, 2),
            nights: 2,
        };
        let booking = allocated(event, &held()).applied_to(held());
        let step = cancel(&booking, Reason::PaymentFailed);
        let event = step.emitted::<BookingCancelled>();
        assert_eq!(event.allocation_id.as_deref(), Some("alloc_1"));
    }

    #[test]
    fn cash_on_arrival_confirms_without_a_key() {
        let event = IntentCapturedRequired {
            reservation_id: "res_1".into(),
            intent_id: "pay_res_1".into(),
            amount_minor: 12_000,
            currency: "USD".into(),
            rail: IntentCapturedRail::CashPending,
        };
        let step = paid(event.into(), &held());
        assert_eq!(step.outcome(), Outcome::Completed(State::ConfirmedCashPending));
        assert_eq!(step.emitted::<BookingConfirmed>().status, Status::ConfirmedCashPending);
    }
}
