//! What the service tells others of a booking.

use super::saga::Booking;
use crate::events::{
    BookingCancelled, BookingCancelledReason as Reason, BookingCancelledRequired, BookingConfirmed,
    BookingConfirmedRequired, BookingConfirmedStatus as Status, BookingHeld, BookingHeldRequired,
    Price, Rail, Stay,
};

impl Booking {
    pub(super) fn held(&self, rail: Rail, hold_expires_at: jiff::Timestamp) -> BookingHeld {
        let Booking { reservation: reservation_id, stay, guest, price, .. } = self.clone();
        let Stay { property_id, room_id, check_in, nights } = stay;
        let Price { amount_minor, currency } = price;
        BookingHeldRequired {
            reservation_id,
            property_id,
            room_id,
            check_in,
            nights,
            guest,
            amount_minor,
            currency,
            rail,
            hold_expires_at,
        }
        .into()
    }

    pub(super) fn confirmed(&self, status: Status) -> BookingConfirmed {
        let Booking { reservation: reservation_id, stay, guest, price, .. } = self.clone();
        let Stay { property_id, room_id, check_in, nights } = stay;
        let Price { amount_minor, currency } = price;
        BookingConfirmedRequired {
            reservation_id,
            status,
            property_id,
            room_id,
            check_in,
            nights,
            guest,
            amount_minor,
            currency,
        }
        .into()
    }

    pub(super) fn cancelled(&self, reason: Reason) -> BookingCancelled {
        let Booking { reservation: reservation_id, stay, guest, allocation, .. } = self.clone();
        let Stay { property_id, room_id, check_in, nights } = stay;
        let required = BookingCancelledRequired {
            reservation_id,
            reason,
            property_id,
            room_id,
            check_in,
            nights,
            guest,
        };
        BookingCancelled { allocation_id: allocation, ..required.into() }
    }
}
