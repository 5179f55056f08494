//! `lock-integration-service`: issues keys for paid bookings.

use chapar::{App, Cx, EffectOutcome, EffectTask, Event, Failure};
use serde::{Deserialize, Serialize};

use crate::Config;
use crate::events::{
    BookingConfirmed, BookingConfirmedStatus, KeyCredentialIssued, LockVendorError,
};

/// The service's name.
pub const SERVICE: &str = "lock-integration-service";

const ISSUE_KEY: &str = "lock.issue_key";

/// Registers what the locks do when a booking is confirmed.
pub fn register(app: App, config: &Config) -> App {
    let consumer = config.consumer("lock-integration-service.booking-confirmed").on(request_key);
    let issue = EffectTask::new(SERVICE, ISSUE_KEY, config.vendors.locks(), key_issued);
    app.consumer(SERVICE, consumer).effect(config.task(issue))
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyRequest {
    reservation_id: String,
    room_id: String,
}

async fn request_key(booking: BookingConfirmed, cx: &mut Cx) -> Result<(), Failure> {
    // Who pays on arrival gets the key on arrival.
    if booking.status == BookingConfirmedStatus::ConfirmedCashPending {
        cx.noop();
        return Ok(());
    }
    let key = format!("key_{}:issue", booking.reservation_id);
    let (reservation_id, room_id) = (booking.reservation_id, booking.room_id);
    cx.effect(ISSUE_KEY, &key, &KeyRequest { reservation_id, room_id }).await
}

async fn key_issued(outcome: EffectOutcome, cx: &mut Cx) -> Result<(), Failure> {
    const ISSUED: &str = "insert into lock_keys (tenant, reservation, credential, issued_at) \
        values ($1, $2, $3, $4)";
    let KeyRequest { reservation_id, room_id } = serde_json::from_value(outcome.request)?;
    let answer = match outcome.result {
        Ok(answer) => answer,
        Err(reason) => {
            let intent = format!("{reservation_id}:key_error");
            let error = LockVendorError::new(reservation_id, room_id, reason);
            return cx.emit(error.for_tenant(cx.tenant()).idempotency_key(intent)).await;
        }
    };
    let credential_id = answer["reference"].as_str().unwrap_or_default().to_owned();
    let args = vec![
        cx.tenant().as_str().into(),
        (&reservation_id).into(),
        (&credential_id).into(),
        cx.now().as_microsecond().into(),
    ];
    cx.tx().execute(ISSUED, args).await?;
    let intent = format!("{reservation_id}:key");
    let issued = KeyCredentialIssued::new(reservation_id, credential_id, room_id);
    cx.emit(issued.for_tenant(cx.tenant()).idempotency_key(intent)).await
}
