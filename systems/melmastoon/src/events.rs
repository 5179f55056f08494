//! What the services tell each other.
//!
//! The payloads are [generated] from the schemas; here is what the booking flow uses of them.
//! Allocation, payment intent, folio, key and message of a booking go by its id: they share one
//! ordering key, and a consumer of several of them sees the whole story of a booking in
//! the order in which it happened.

pub mod generated;

use chapar::prelude::*;
use jiff::civil::Date;

pub use generated::billing::{
    FolioChargePosted, FolioChargePostedRequired, FolioOpened, FolioOpenedRequired,
};
pub use generated::inventory::{
    AllocationCommitted, AllocationReleased, AllocationReleasedReason, AllocationReleasedRequired,
    OversellBlocked, OversellBlockedRequired,
};
pub use generated::lock_integration::{
    KeyCredentialIssued, KeyCredentialIssuedRequired, VendorError as LockVendorError,
    VendorErrorRequired as LockVendorErrorRequired,
};
pub use generated::notification::{
    MessageBounced, MessageBouncedRequired, MessageDispatched, MessageDispatchedRequired,
};
pub use generated::payment::{
    IntentCaptured, IntentCapturedRail, IntentCapturedRequired, IntentCreated,
    IntentCreatedRequired, IntentFailed, IntentFailedRequired, IntentRefunded,
    IntentRefundedRequired,
};
pub use generated::reservation::{
    BookingCancelled, BookingCancelledReason, BookingCancelledRequired, BookingConfirmed,
    BookingConfirmedRequired, BookingConfirmedStatus, BookingHeld, BookingHeldRequired,
};
pub use generated::{Guest, GuestRequired, Rail};

/// The topics of the booking flow.
pub const TOPICS: &[&str] = &[
    BookingHeld::SUBJECT,
    BookingConfirmed::SUBJECT,
    BookingCancelled::SUBJECT,
    AllocationCommitted::SUBJECT,
    AllocationReleased::SUBJECT,
    OversellBlocked::SUBJECT,
    IntentCreated::SUBJECT,
    IntentCaptured::SUBJECT,
    IntentFailed::SUBJECT,
    IntentRefunded::SUBJECT,
    FolioOpened::SUBJECT,
    FolioChargePosted::SUBJECT,
    KeyCredentialIssued::SUBJECT,
    LockVendorError::SUBJECT,
    MessageDispatched::SUBJECT,
    MessageBounced::SUBJECT,
];

/// Which room, and when: four fields that several events have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Stay {
    pub property_id: String,
    pub room_id: String,
    pub check_in: Date,
    pub nights: i64,
}

impl Stay {
    /// The first night, in days since 1970, as the tables keep it.
    pub(crate) fn first_night(&self) -> i64 {
        const EPOCH: Date = Date::constant(1970, 1, 1);
        i64::from((self.check_in - EPOCH).get_days())
    }
}

/// What it costs, in the currency's smallest unit: two fields that several events have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names say it")]
pub struct Price {
    pub amount_minor: i64,
    pub currency: String,
}

impl BookingHeld {
    /// Which room is wanted, and when.
    pub fn stay(&self) -> Stay {
        Stay {
            property_id: self.property_id.clone(),
            room_id: self.room_id.clone(),
            check_in: self.check_in,
            nights: self.nights,
        }
    }
}

/// Why a room is free again, told by why its booking is off.
impl From<BookingCancelledReason> for AllocationReleasedReason {
    fn from(reason: BookingCancelledReason) -> Self {
        match reason {
            BookingCancelledReason::GuestRequest => Self::GuestRequest,
            BookingCancelledReason::PropertyRequest => Self::PropertyRequest,
            BookingCancelledReason::HoldExpired => Self::HoldExpired,
            BookingCancelledReason::PaymentFailed => Self::PaymentFailed,
            BookingCancelledReason::NoAvailability => Self::NoAvailability,
            BookingCancelledReason::Fraud => Self::Fraud,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_fits_the_grammar_of_the_platform() {
        let profile = crate::profile();
        for topic in generated::SUBJECTS {
            profile.subject(topic).unwrap();
        }
        assert!(TOPICS.iter().all(|topic| generated::SUBJECTS.contains(topic)));
    }

    #[test]
    fn every_example_of_the_schemas_passes_through_its_type_unchanged() {
        let bundle: serde_json::Value = serde_json::from_str(crate::CONTRACTS).unwrap();
        let contracts = bundle["contracts"].as_array().unwrap();
        assert_eq!(contracts.len(), generated::SUBJECTS.len());
        for contract in contracts {
            let subject = contract["subject"].as_str().unwrap();
            let schema: serde_json::Value =
                serde_json::from_str(contract["schema"].as_str().unwrap()).unwrap();
            for example in schema["examples"].as_array().unwrap() {
                let after = generated::round_trip(subject, example.clone()).unwrap();
                let mut example = example.clone();
                // Where it is optional, the types leave out what the envelope says.
                if after.get("tenantId").is_none() {
                    example.as_object_mut().unwrap().remove("tenantId");
                }
                assert_eq!(after, example, "{subject}");
            }
        }
    }

    #[test]
    fn a_payload_is_flat_and_in_camel_case() {
        let event = AllocationCommitted {
            reservation_id: "res_1".into(),
            allocation_id: "alloc_1".into(),
            property_id: "house-1".into(),
            room_id: "101".into(),
            check_in: Date::constant(2027, 1, 2),
            nights: 2,
        };
        let json = serde_json::to_value(&event).unwrap();
        let expected = serde_json::json!({"reservationId": "res_1", "allocationId": "alloc_1",
            "propertyId": "house-1", "roomId": "101", "checkIn": "2027-01-02", "nights": 2});
        assert_eq!(json, expected);
    }
}
