//! `payment-gateway-service`: captures the money of a booking that has its room.
//!
//! What is to be paid is told by `booking.held`, when by `allocation.committed`. The service
//! keeps its own copy of the first, so that inventory need not pass amounts around. Both are of
//! one ordering key and come in order; the row is written so that the other order would do as
//! well: whichever completes it begins the payment.

use chapar::prelude::*;
use tracing::error;

use crate::Config;
use crate::events::{
    AllocationCommitted, BookingCancelled, BookingHeld, IntentCaptured, IntentCapturedRail,
    IntentCapturedRequired, IntentCreated, IntentCreatedRequired, IntentFailed,
    IntentFailedRequired, IntentRefunded, IntentRefundedRequired, Price, Rail,
};
use crate::vendor::Reference;

/// The service's name.
pub const SERVICE: &str = "payment-gateway-service";

/// The service, with its calls to the card vendor.
pub fn service(config: &Config) -> Service {
    let payments = config.consumer("booking-payment").on(know_price).on(know_room).on(give_back);
    let (cards, refunds) = (config.vendors.cards(), config.vendors.refunds());
    Service::new(SERVICE)
        .consumer(payments.lanes(2))
        .effect(config.task(EffectTask::new(cards.answering::<Capture>())).then(captured))
        .effect(config.task(EffectTask::new(refunds.answering::<Refund>())).then(refunded))
}

#[derive(Debug, Effect, Serialize, Deserialize)]
#[effect("payment.capture", key = "pay_{reservation_id}:capture", answer = Reference)]
#[serde(rename_all = "camelCase")]
struct Capture {
    reservation_id: String,
    #[serde(flatten)]
    price: Price,
}

#[derive(Debug, Effect, Serialize, Deserialize)]
#[effect("payment.refund", key = "pay_{reservation_id}:refund", answer = Reference)]
#[serde(rename_all = "camelCase")]
struct Refund {
    reservation_id: String,
    #[serde(flatten)]
    price: Price,
}

async fn know_price(held: BookingHeld, cx: &mut Cx) -> Handled {
    const KNOW: &str = "insert into payment_intents \
        (tenant, reservation, amount_minor, currency, rail) values (:tenant, $1, $2, $3, $4) \
        on conflict (tenant, reservation) do update set amount_minor = excluded.amount_minor, \
        currency = excluded.currency, rail = excluded.rail";
    let BookingHeld { reservation_id, amount_minor, currency, rail, .. } = held;
    cx.execute(KNOW, params![reservation_id, amount_minor, currency, rail]).await?;
    begin(cx, reservation_id).await
}

async fn know_room(allocation: AllocationCommitted, cx: &mut Cx) -> Handled {
    const KNOW: &str = "insert into payment_intents (tenant, reservation, allocated) \
        values (:tenant, $1, 1) on conflict (tenant, reservation) do update set allocated = 1";
    cx.execute(KNOW, params![allocation.reservation_id]).await?;
    begin(cx, allocation.reservation_id).await
}

/// What a row says of the money.
#[derive(FromRow)]
struct Intent {
    amount_minor: i64,
    currency: String,
    rail: String,
}

impl Intent {
    fn is_cash(&self) -> bool {
        self.rail == Rail::Cash.as_str()
    }

    fn price(self) -> Price {
        Price { amount_minor: self.amount_minor, currency: self.currency }
    }
}

/// Begins the payment once price and room are known, unless the booking is off by then.
async fn begin(cx: &mut Cx, reservation_id: String) -> Handled {
    const BEGIN: &str = "update payment_intents set state = 'created' \
        where tenant = :tenant and reservation = $1 and state = 'waiting' and allocated = 1 \
        and cancelled = 0 and amount_minor is not null returning amount_minor, currency, rail";
    let begun = cx.fetch_optional::<Intent>(BEGIN, params![reservation_id]).await?;
    let Some(intent) = begun else { return applied() };
    let cash = intent.is_cash();
    let price = intent.price();
    let created = IntentCreatedRequired {
        reservation_id: reservation_id.clone(),
        intent_id: intent_id(&reservation_id),
        amount_minor: price.amount_minor,
        currency: price.currency.clone(),
        rail: if cash { Rail::Cash } else { Rail::Card },
    };
    cx.emit(IntentCreated::from(created)).await?;
    if cash {
        set_state(cx, &reservation_id, "captured").await?;
        return emit_captured(cx, reservation_id, price, IntentCapturedRail::CashPending).await;
    }
    cx.effect(Capture { reservation_id, price }).await
}

async fn captured(outcome: EffectOutcome<Capture>, cx: &mut Cx) -> Handled {
    // The update takes the row's lock: a cancellation that comes at the same time is seen
    // here, or sees the capture itself.
    const CAPTURED: &str = "update payment_intents set state = $2 \
        where tenant = :tenant and reservation = $1 and state = 'created' returning cancelled";
    const RECORD: &str = "insert into payment_captures \
        (tenant, reservation, amount_minor, reference, captured_at) \
        values (:tenant, $1, $2, $3, $4)";
    let Capture { reservation_id, price } = outcome.request;
    let state = if outcome.result.is_ok() { "captured" } else { "failed" };
    let changed = cx.fetch_optional::<i64>(CAPTURED, params![reservation_id, state]).await?;
    let Some(cancelled) = changed else { return applied() };
    let Reference { reference } = match outcome.result {
        Ok(answer) => answer,
        Err(reason) => {
            let intent_id = intent_id(&reservation_id);
            let failed = IntentFailedRequired { reservation_id, intent_id, reason };
            return cx.emit(IntentFailed::from(failed)).await;
        }
    };
    let now = cx.now().as_microsecond();
    cx.execute(RECORD, params![reservation_id, price.amount_minor, reference, now]).await?;
    let rail = IntentCapturedRail::Card;
    emit_captured(cx, reservation_id.clone(), price.clone(), rail).await?;
    match cancelled {
        1 => refund(cx, reservation_id, price).await,
        _ => applied(),
    }
}

async fn give_back(cancelled: BookingCancelled, cx: &mut Cx) -> Handled {
    const CANCEL: &str = "insert into payment_intents (tenant, reservation, cancelled) \
        values (:tenant, $1, 1) on conflict (tenant, reservation) do update set cancelled = 1 \
        returning state";
    const MONEY: &str = "select amount_minor, currency, rail from payment_intents \
        where tenant = :tenant and reservation = $1";
    let reservation_id = cancelled.reservation_id;
    let state: String = cx.fetch_one(CANCEL, params![reservation_id]).await?;
    if state != "captured" {
        return cx.noop();
    }
    let intent: Intent = cx.fetch_one(MONEY, params![reservation_id]).await?;
    if intent.is_cash() {
        return set_state(cx, &reservation_id, "voided").await;
    }
    refund(cx, reservation_id, intent.price()).await
}

async fn refund(cx: &mut Cx, reservation_id: String, price: Price) -> Handled {
    set_state(cx, &reservation_id, "refunding").await?;
    cx.effect(Refund { reservation_id, price }).await
}

async fn refunded(outcome: EffectOutcome<Refund>, cx: &mut Cx) -> Handled {
    let Refund { reservation_id, price } = outcome.request;
    if let Err(reason) = outcome.result {
        // A failed refund does not bring the booking back; finance sees to it.
        error!(reservation = reservation_id, reason, "refund failed");
        return set_state(cx, &reservation_id, "refund_failed").await;
    }
    set_state(cx, &reservation_id, "refunded").await?;
    let (intent_id, Price { amount_minor, currency }) = (intent_id(&reservation_id), price);
    let refunded = IntentRefundedRequired { reservation_id, intent_id, amount_minor, currency };
    cx.emit(IntentRefunded::from(refunded)).await
}

async fn emit_captured(
    cx: &mut Cx,
    reservation_id: String,
    price: Price,
    rail: IntentCapturedRail,
) -> Handled {
    let (intent_id, Price { amount_minor, currency }) = (intent_id(&reservation_id), price);
    let captured =
        IntentCapturedRequired { reservation_id, intent_id, amount_minor, currency, rail };
    cx.emit(IntentCaptured::from(captured)).await
}

async fn set_state(cx: &mut Cx, reservation: &str, state: &str) -> Handled {
    const SET: &str =
        "update payment_intents set state = $2 where tenant = :tenant and reservation = $1";
    cx.execute(SET, params![reservation, state]).await?;
    applied()
}

/// There is one intent per booking.
fn intent_id(reservation: &str) -> String {
    format!("pay_{reservation}")
}
