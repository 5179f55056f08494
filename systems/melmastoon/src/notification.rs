//! `notification-service`: tells guests what became of their booking.

use chapar::{App, Chapar, Cx, EffectOutcome, EffectTask, Event, Failure, StoreError};
use serde::{Deserialize, Serialize};

use crate::Config;
use crate::events::{BookingCancelled, BookingConfirmed, Guest, MessageBounced, MessageDispatched};

/// The service's name.
pub const SERVICE: &str = "notification-service";

/// The consumer that writes to guests.
pub const CONSUMER: &str = "notification-service.booking-outcome";

const SEND: &str = "notification.send";

/// Registers the messages to guests.
pub fn register(app: App, config: &Config) -> App {
    // Messages are independent of each other, so one that cannot be written delays none.
    let consumer = config.consumer(CONSUMER).on(confirmed).on(cancelled).unordered();
    let send = EffectTask::new(SERVICE, SEND, config.vendors.messages(), sent);
    app.consumer(SERVICE, consumer).effect(config.task(send))
}

/// Adds a template, or changes its subject. Messages that failed for the lack of it can be
/// replayed then.
pub async fn add_template(
    chapar: &Chapar,
    locale: &str,
    kind: &str,
    subject: &str,
) -> Result<(), StoreError> {
    const ADD: &str = "insert into notification_templates (locale, kind, subject) \
        values ($1, $2, $3) on conflict (locale, kind) do update set subject = excluded.subject";
    let mut tx = chapar.begin(&chapar::Tenant::platform()).await?;
    tx.execute(ADD, vec![locale.into(), kind.into(), subject.into()]).await?;
    chapar.commit(tx).await
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    message_id: String,
    reservation_id: String,
    guest_id: String,
    locale: String,
    template: String,
    subject: String,
}

async fn confirmed(booking: BookingConfirmed, cx: &mut Cx) -> Result<(), Failure> {
    send(cx, "confirmed", booking.reservation_id, booking.guest).await
}

async fn cancelled(booking: BookingCancelled, cx: &mut Cx) -> Result<(), Failure> {
    send(cx, "cancelled", booking.reservation_id, booking.guest).await
}

async fn send(
    cx: &mut Cx,
    kind: &str,
    reservation_id: String,
    guest: Guest,
) -> Result<(), Failure> {
    const TEMPLATE: &str =
        "select subject from notification_templates where locale = $1 and kind = $2";
    let Guest { guest_id, locale, .. } = guest;
    let found = cx.tx().fetch_optional(TEMPLATE, vec![(&locale).into(), kind.into()]).await?;
    let Some(row) = found else {
        return Err(Failure::rule(format!(
            "there is no template {kind:?} in the language {locale:?}; \
             add it to notification_templates and replay"
        )));
    };
    let message = Message {
        message_id: format!("msg_{reservation_id}_{kind}"),
        reservation_id,
        guest_id,
        locale,
        template: kind.to_owned(),
        subject: row.get(0)?,
    };
    cx.effect(SEND, &message.message_id, &message).await
}

async fn sent(outcome: EffectOutcome, cx: &mut Cx) -> Result<(), Failure> {
    const RECORD: &str = "insert into notification_messages \
        (tenant, message, reservation, kind, state) values ($1, $2, $3, $4, $5)";
    let message: Message = serde_json::from_value(outcome.request)?;
    let state = if outcome.result.is_ok() { "dispatched" } else { "bounced" };
    let args = vec![
        cx.tenant().as_str().into(),
        (&message.message_id).into(),
        (&message.reservation_id).into(),
        (&message.template).into(),
        state.into(),
    ];
    cx.tx().execute(RECORD, args).await?;
    let Message { message_id, reservation_id, template, locale, .. } = message;
    let tenant = cx.tenant().clone();
    let intent = message_id.clone();
    let told = match outcome.result {
        Ok(_) => {
            MessageDispatched::new(reservation_id, message_id, template, locale).for_tenant(&tenant)
        }
        Err(reason) => MessageBounced::new(reservation_id, message_id, reason).for_tenant(&tenant),
    };
    cx.emit(told.idempotency_key(intent)).await
}
