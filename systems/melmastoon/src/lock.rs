//! `lock-integration-service`: issues keys for paid bookings.

use chapar::prelude::*;

use crate::Config;
use crate::events::{
    BookingConfirmed, BookingConfirmedStatus, KeyCredentialIssued, KeyCredentialIssuedRequired,
    LockVendorError, LockVendorErrorRequired,
};
use crate::vendor::Reference;

/// The service's name.
pub const SERVICE: &str = "lock-integration-service";

/// The service, which calls the vendor of the locks.
pub fn service(config: &Config) -> Service {
    let locks = config.vendors.locks();
    Service::new(SERVICE)
        .consumer(config.consumer("booking-confirmed").on(request_key))
        .effect(config.task(EffectTask::new(locks.answering::<IssueKey>())).then(key_issued))
}

#[derive(Debug, Effect, Serialize, Deserialize)]
#[effect("lock.issue_key", key = "key_{reservation_id}:issue", answer = Reference)]
#[serde(rename_all = "camelCase")]
struct IssueKey {
    reservation_id: String,
    room_id: String,
}

async fn request_key(booking: BookingConfirmed, cx: &mut Cx) -> Handled {
    // A guest who pays on arrival gets the key on arrival.
    if booking.status == BookingConfirmedStatus::ConfirmedCashPending {
        return cx.noop();
    }
    let BookingConfirmed { reservation_id, room_id, .. } = booking;
    cx.effect(IssueKey { reservation_id, room_id }).await
}

async fn key_issued(outcome: EffectOutcome<IssueKey>, cx: &mut Cx) -> Handled {
    const ISSUED: &str = "insert into lock_keys (tenant, reservation, credential, issued_at) \
        values (:tenant, $1, $2, $3)";
    let IssueKey { reservation_id, room_id } = outcome.request;
    let credential_id = match outcome.result {
        Ok(Reference { reference }) => reference,
        Err(reason) => {
            let intent = format!("{reservation_id}:key_error");
            let error = LockVendorErrorRequired { reservation_id, room_id, reason };
            return cx.emit(LockVendorError::from(error).draft().idempotency_key(intent)).await;
        }
    };
    let now = cx.now().as_microsecond();
    cx.execute(ISSUED, params![reservation_id, credential_id, now]).await?;
    let intent = format!("{reservation_id}:key");
    let issued = KeyCredentialIssuedRequired { reservation_id, credential_id, room_id };
    cx.emit(KeyCredentialIssued::from(issued).draft().idempotency_key(intent)).await
}
