//! `notification-service`: tells guests what became of their booking.

use chapar::prelude::*;
use chapar::{Draft, StoreError};

use crate::Config;
use crate::events::{
    BookingCancelled, BookingConfirmed, Guest, MessageBounced, MessageBouncedRequired,
    MessageDispatched, MessageDispatchedRequired,
};
use crate::vendor::Reference;

/// The service's name.
pub const SERVICE: &str = "notification-service";

/// The consumer that writes to guests.
pub const CONSUMER: &str = "notification-service.booking-outcome";

/// The service, which writes to guests.
pub fn service(config: &Config) -> Service {
    let messages = config.vendors.messages();
    // Messages are independent of each other, so one that cannot be written delays none.
    Service::new(SERVICE)
        .consumer(config.consumer(CONSUMER).on(confirmed).on(cancelled).unordered())
        .effect(config.task(EffectTask::new(messages.answering::<Message>())).then(sent))
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

#[derive(Debug, Effect, Serialize, Deserialize)]
#[effect("notification.send", key = message_id, answer = Reference)]
#[serde(rename_all = "camelCase")]
struct Message {
    message_id: String,
    reservation_id: String,
    guest_id: String,
    locale: String,
    template: String,
    subject: String,
}

async fn confirmed(booking: BookingConfirmed, cx: &mut Cx) -> Handled {
    send(cx, "confirmed", booking.reservation_id, booking.guest).await
}

async fn cancelled(booking: BookingCancelled, cx: &mut Cx) -> Handled {
    send(cx, "cancelled", booking.reservation_id, booking.guest).await
}

async fn send(cx: &mut Cx, kind: &str, reservation_id: String, guest: Guest) -> Handled {
    const TEMPLATE: &str =
        "select subject from notification_templates where locale = $1 and kind = $2";
    let Guest { guest_id, locale, .. } = guest;
    let Some(subject) = cx.fetch_optional(TEMPLATE, params![locale, kind]).await? else {
        return Err(Failure::terminal(format!(
            "there is no template {kind:?} in the language {locale:?}; \
             add it to notification_templates and replay"
        )));
    };
    let message_id = format!("msg_{reservation_id}_{kind}");
    let template = kind.to_owned();
    cx.effect(Message { message_id, reservation_id, guest_id, locale, template, subject }).await
}

async fn sent(outcome: EffectOutcome<Message>, cx: &mut Cx) -> Handled {
    const RECORD: &str = "insert into notification_messages \
        (tenant, message, reservation, kind, state) values (:tenant, $1, $2, $3, $4)";
    let Message { message_id, reservation_id, template, locale, .. } = outcome.request;
    let state = if outcome.result.is_ok() { "dispatched" } else { "bounced" };
    cx.execute(RECORD, params![message_id, reservation_id, template, state]).await?;
    let intent = message_id.clone();
    let told: Draft = match outcome.result {
        Ok(_) => MessageDispatched::from(MessageDispatchedRequired {
            reservation_id,
            message_id,
            template,
            locale,
        })
        .draft(),
        Err(reason) => {
            let bounced = MessageBouncedRequired { reservation_id, message_id, reason };
            MessageBounced::from(bounced).draft()
        }
    };
    cx.emit(told.idempotency_key(intent)).await
}
