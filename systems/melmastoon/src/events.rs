//! What the services tell each other.
//!
//! Allocation, payment intent, folio, key and message of a booking exist once per booking, so
//! all of them go by its id: they share one ordering key, and whoever subscribes to several of
//! them sees the whole story of a booking in the order in which it happened.

use chapar::Event;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

/// Which room, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names say it")]
pub struct Stay {
    pub property_id: String,
    pub room_id: String,
    pub check_in: Date,
    pub nights: u32,
}

impl Stay {
    /// The first night, in days since 1970, as the tables keep it.
    pub(crate) fn first_night(&self) -> i64 {
        const EPOCH: Date = Date::constant(1970, 1, 1);
        i64::from((self.check_in - EPOCH).get_days())
    }
}

/// Who stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names say it")]
pub struct Guest {
    pub guest_id: String,
    /// The language of the guest's messages.
    pub locale: String,
}

/// What it costs, in the currency's smallest unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names say it")]
pub struct Price {
    pub amount_minor: i64,
    pub currency: String,
}

/// How the guest wants to pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rail {
    /// By card, now.
    Card,
    /// In cash, on arrival.
    Cash,
}

/// How a payment was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapturedRail {
    /// The card was charged.
    Card,
    /// The cash is still to come.
    CashPending,
}

/// How a booking is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// Paid.
    Confirmed,
    /// To be paid on arrival; no key before that.
    ConfirmedCashPending,
}

impl Confirmation {
    /// The name in tables and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Confirmation::Confirmed => "confirmed",
            Confirmation::ConfirmedCashPending => "confirmed_cash_pending",
        }
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $subject:literal of $aggregate:literal, once as $intent:literal
       { $($(#[$attr:meta])* $field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase")]
            #[allow(missing_docs, reason = "the names say it")]
            pub struct $name {
                pub reservation_id: String,
                $($(#[$attr])* pub $field: $type,)*
            }

            impl Event for $name {
                const SUBJECT: &'static str = $subject;
                const AGGREGATE: &'static str = $aggregate;

                fn aggregate_id(&self) -> String {
                    self.reservation_id.clone()
                }

                fn intent(&self) -> Option<String> {
                    Some(format!("{}:{}", self.reservation_id, $intent))
                }
            }
        )*

        /// The topics of the booking flow.
        pub const TOPICS: &[&str] = &[$($subject),*];
    };
}

events! {
    /// A room is held for a guest; the booking saga has begun.
    BookingHeld = "melmastoon.reservation.booking.held.v1" of "booking", once as "held" {
        #[serde(flatten)] stay: Stay,
        guest: Guest,
        #[serde(flatten)] price: Price,
        rail: Rail,
        hold_expires_at: Timestamp,
    }

    /// The booking stands.
    BookingConfirmed = "melmastoon.reservation.booking.confirmed.v1" of "booking", once as "confirmed" {
        status: Confirmation,
        #[serde(flatten)] stay: Stay,
        guest: Guest,
        #[serde(flatten)] price: Price,
    }

    /// The booking is off, and whoever did something for it undoes it.
    BookingCancelled = "melmastoon.reservation.booking.cancelled.v1" of "booking", once as "cancelled" {
        reason: String,
        #[serde(flatten)] stay: Stay,
        guest: Guest,
        #[serde(skip_serializing_if = "Option::is_none", default)] allocation_id: Option<String>,
    }

    /// The room is the booking's for all its nights.
    AllocationCommitted = "melmastoon.inventory.allocation.committed.v1" of "allocation", once as "allocated" {
        allocation_id: String,
        #[serde(flatten)] stay: Stay,
    }

    /// The room is free again.
    AllocationReleased = "melmastoon.inventory.allocation.released.v1" of "allocation", once as "released" {
        allocation_id: String,
        nights_released: i64,
        reason: String,
    }

    /// The room could not be sold.
    OversellBlocked = "melmastoon.inventory.oversell.blocked.v1" of "allocation", once as "blocked" {
        #[serde(flatten)] stay: Stay,
        reason: String,
    }

    /// A payment is about to be captured.
    IntentCreated = "melmastoon.payment.intent.created.v1" of "intent", once as "intent" {
        intent_id: String,
        #[serde(flatten)] price: Price,
        rail: Rail,
    }

    /// The payment is captured, or promised in cash.
    IntentCaptured = "melmastoon.payment.intent.captured.v1" of "intent", once as "captured" {
        intent_id: String,
        #[serde(flatten)] price: Price,
        rail: CapturedRail,
    }

    /// The payment is refused for good.
    IntentFailed = "melmastoon.payment.intent.failed.v1" of "intent", once as "failed" {
        intent_id: String,
        reason: String,
    }

    /// The money of a cancelled booking went back.
    IntentRefunded = "melmastoon.payment.intent.refunded.v1" of "intent", once as "refunded" {
        intent_id: String,
        #[serde(flatten)] price: Price,
    }

    /// The booking has an account.
    FolioOpened = "melmastoon.billing.folio.opened.v1" of "folio", once as "folio" {
        folio_id: String,
        guest_id: String,
    }

    /// The stay is charged to the account.
    ChargePosted = "melmastoon.billing.folio.charge_posted.v1" of "folio", once as "charge" {
        folio_id: String,
        #[serde(flatten)] price: Price,
    }

    /// The guest's key works.
    KeyIssued = "melmastoon.lock_integration.key_credential.issued.v1" of "key_credential", once as "key" {
        credential_id: String,
        room_id: String,
    }

    /// The lock's vendor did not issue a key.
    LockVendorError = "melmastoon.lock_integration.vendor.error.v1" of "key_credential", once as "key_error" {
        room_id: String,
        reason: String,
    }

    /// A message was handed to its provider.
    MessageDispatched = "melmastoon.notification.message.dispatched.v1" of "message", once as "message" {
        message_id: String,
        template: String,
        locale: String,
    }

    /// A provider did not take a message.
    MessageBounced = "melmastoon.notification.message.bounced.v1" of "message", once as "bounce" {
        message_id: String,
        reason: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chapar::Profile;

    #[test]
    fn every_topic_fits_the_grammar_of_the_platform() {
        let profile = Profile::builtin("melmastoon").unwrap();
        for topic in TOPICS {
            profile.subject(topic).unwrap();
        }
    }

    #[test]
    fn a_payload_is_flat_and_in_camel_case() {
        let stay = Stay {
            property_id: "house-1".into(),
            room_id: "101".into(),
            check_in: Date::constant(2027, 1, 2),
            nights: 2,
        };
        let reservation_id = "res_1".to_owned();
        let event = AllocationCommitted { reservation_id, allocation_id: "alloc_1".into(), stay };
        let json = serde_json::to_value(&event).unwrap();
        let expected = serde_json::json!({"reservationId": "res_1", "allocationId": "alloc_1",
            "propertyId": "house-1", "roomId": "101", "checkIn": "2027-01-02", "nights": 2});
        assert_eq!(json, expected);
        assert_eq!(event.stay.first_night(), 20_820);
    }
}
