//! `payment-gateway-service`: captures the money of a booking that has its room.
//!
//! What is to be paid is told by `booking.held`, when by `allocation.committed`. The service
//! keeps its own copy of the first instead of having inventory pass amounts around that are
//! none of its business. Both are of one ordering key and come in order; the row is written so
//! that the other order would do as well: whichever completes it begins the payment.

use chapar::sql::{Row, Value};
use chapar::{App, Cx, EffectOutcome, EffectTask, Failure};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::Config;
use crate::events::{
    AllocationCommitted, BookingCancelled, BookingHeld, IntentCaptured, IntentCapturedRail,
    IntentCreated, IntentFailed, IntentRefunded, Price, Rail,
};

/// The service's name.
pub const SERVICE: &str = "payment-gateway-service";

const CAPTURE: &str = "payment.capture";
const REFUND: &str = "payment.refund";
const CASH: &str = "cash";

/// Registers what payment does in the booking flow, and its calls to the card vendor.
pub fn register(app: App, config: &Config) -> App {
    let consumer = config
        .consumer("payment-gateway-service.booking-payment")
        .on(know_price)
        .on(know_room)
        .on(give_back)
        .lanes(2);
    let capture = EffectTask::new(SERVICE, CAPTURE, config.vendors.cards(), captured);
    let refund = EffectTask::new(SERVICE, REFUND, config.vendors.refunds(), refunded);
    app.consumer(SERVICE, consumer).effect(config.task(capture)).effect(config.task(refund))
}

/// What a call to the card vendor is about.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Charge {
    reservation_id: String,
    #[serde(flatten)]
    price: Price,
}

async fn know_price(held: BookingHeld, cx: &mut Cx) -> Result<(), Failure> {
    const KNOW: &str = "insert into payment_intents \
        (tenant, reservation, amount_minor, currency, rail) values ($1, $2, $3, $4, $5) \
        on conflict (tenant, reservation) do update set amount_minor = excluded.amount_minor, \
        currency = excluded.currency, rail = excluded.rail";
    let mut args = intent(cx, &held.reservation_id);
    args.extend([held.amount_minor.into(), held.currency.into(), held.rail.as_str().into()]);
    cx.tx().execute(KNOW, args).await?;
    begin(cx, &held.reservation_id).await
}

async fn know_room(allocation: AllocationCommitted, cx: &mut Cx) -> Result<(), Failure> {
    const KNOW: &str = "insert into payment_intents (tenant, reservation, allocated) \
        values ($1, $2, 1) on conflict (tenant, reservation) do update set allocated = 1";
    let args = intent(cx, &allocation.reservation_id);
    cx.tx().execute(KNOW, args).await?;
    begin(cx, &allocation.reservation_id).await
}

/// Begins the payment once price and room are known, unless the booking is off by then.
async fn begin(cx: &mut Cx, reservation: &str) -> Result<(), Failure> {
    const BEGIN: &str = "update payment_intents set state = 'created' \
        where tenant = $1 and reservation = $2 and state = 'waiting' and allocated = 1 \
        and cancelled = 0 and amount_minor is not null returning amount_minor, currency, rail";
    let args = intent(cx, reservation);
    let Some(row) = cx.tx().fetch_optional(BEGIN, args).await? else { return Ok(()) };
    let (price, cash) = (price(&row)?, row.get::<String>(2)? == CASH);
    cx.emit(IntentCreated::new(
        reservation.to_owned(),
        intent_id(reservation),
        price.amount_minor,
        price.currency.clone(),
        if cash { Rail::Cash } else { Rail::Card },
    ))
    .await?;
    if cash {
        set_state(cx, reservation, "captured").await?;
        return emit_captured(cx, reservation, price, IntentCapturedRail::CashPending).await;
    }
    let charge = Charge { reservation_id: reservation.to_owned(), price };
    cx.effect(CAPTURE, &format!("{}:capture", intent_id(reservation)), &charge).await
}

async fn captured(outcome: EffectOutcome, cx: &mut Cx) -> Result<(), Failure> {
    // The update takes the row's lock: a cancellation that comes at the same time is seen
    // here, or sees the capture itself.
    const CAPTURED: &str = "update payment_intents set state = $3 \
        where tenant = $1 and reservation = $2 and state = 'created' returning cancelled";
    const RECORD: &str = "insert into payment_captures \
        (tenant, reservation, amount_minor, reference, captured_at) values ($1, $2, $3, $4, $5)";
    let Charge { reservation_id, price } = serde_json::from_value(outcome.request)?;
    let mut args = intent(cx, &reservation_id);
    args.push(if outcome.result.is_ok() { "captured" } else { "failed" }.into());
    let Some(row) = cx.tx().fetch_optional(CAPTURED, args).await? else { return Ok(()) };
    let cancelled = row.get::<i64>(0)? == 1;
    let answer = match outcome.result {
        Ok(answer) => answer,
        Err(reason) => {
            let intent_id = intent_id(&reservation_id);
            return cx.emit(IntentFailed::new(reservation_id, intent_id, reason)).await;
        }
    };
    let mut args = intent(cx, &reservation_id);
    let reference = answer["reference"].as_str().unwrap_or_default();
    args.extend([price.amount_minor.into(), reference.into(), cx.now().as_microsecond().into()]);
    cx.tx().execute(RECORD, args).await?;
    emit_captured(cx, &reservation_id, price.clone(), IntentCapturedRail::Card).await?;
    if cancelled {
        return refund(cx, &reservation_id, price).await;
    }
    Ok(())
}

async fn give_back(cancelled: BookingCancelled, cx: &mut Cx) -> Result<(), Failure> {
    const CANCEL: &str = "insert into payment_intents (tenant, reservation, cancelled) \
        values ($1, $2, 1) on conflict (tenant, reservation) do update set cancelled = 1 \
        returning amount_minor, currency, rail, state";
    let args = intent(cx, &cancelled.reservation_id);
    let row = cx.tx().fetch_optional(CANCEL, args).await?;
    let captured = |row: &Row| row.get::<String>(3).is_ok_and(|state| state == "captured");
    let Some(row) = row.filter(captured) else {
        cx.noop();
        return Ok(());
    };
    if row.get::<String>(2)? == CASH {
        return set_state(cx, &cancelled.reservation_id, "voided").await;
    }
    refund(cx, &cancelled.reservation_id, price(&row)?).await
}

async fn refund(cx: &mut Cx, reservation: &str, price: Price) -> Result<(), Failure> {
    set_state(cx, reservation, "refunding").await?;
    let charge = Charge { reservation_id: reservation.to_owned(), price };
    cx.effect(REFUND, &format!("{}:refund", intent_id(reservation)), &charge).await
}

async fn refunded(outcome: EffectOutcome, cx: &mut Cx) -> Result<(), Failure> {
    let Charge { reservation_id, price } = serde_json::from_value(outcome.request)?;
    if let Err(reason) = outcome.result {
        // A failed refund does not bring the booking back; finance sees to it.
        error!(reservation = reservation_id, reason, "a refund failed");
        return set_state(cx, &reservation_id, "refund_failed").await;
    }
    set_state(cx, &reservation_id, "refunded").await?;
    let intent_id = intent_id(&reservation_id);
    let Price { amount_minor, currency } = price;
    cx.emit(IntentRefunded::new(reservation_id, intent_id, amount_minor, currency)).await
}

async fn emit_captured(
    cx: &mut Cx,
    reservation: &str,
    price: Price,
    rail: IntentCapturedRail,
) -> Result<(), Failure> {
    let intent_id = intent_id(reservation);
    let Price { amount_minor, currency } = price;
    let booking = reservation.to_owned();
    cx.emit(IntentCaptured::new(booking, intent_id, amount_minor, currency, rail)).await
}

async fn set_state(cx: &mut Cx, reservation: &str, state: &str) -> Result<(), Failure> {
    const SET: &str =
        "update payment_intents set state = $3 where tenant = $1 and reservation = $2";
    let mut args = intent(cx, reservation);
    args.push(state.into());
    cx.tx().execute(SET, args).await?;
    Ok(())
}

fn price(row: &Row) -> Result<Price, Failure> {
    Ok(Price { amount_minor: row.get(0)?, currency: row.get(1)? })
}

fn intent(cx: &Cx, reservation: &str) -> Vec<Value> {
    vec![cx.tenant().as_str().into(), reservation.into()]
}

/// There is one intent per booking.
fn intent_id(reservation: &str) -> String {
    format!("pay_{reservation}")
}
