//! Tests of a service of one's own: in memory, without a broker, by a clock that the test turns.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use chapar::prelude::*;
use chapar::testing::Harness;

#[derive(Event, Serialize, Deserialize)]
#[event("shop.order.placed", id = order, intent = "{order}:placed")]
struct OrderPlaced {
    order: String,
}

#[derive(Event, Serialize, Deserialize)]
#[event("shop.order.paid", id = order, intent = "{order}:paid")]
struct OrderPaid {
    order: String,
}

#[derive(Event, Debug, PartialEq, Serialize, Deserialize)]
#[event("shop.order.expired", id = order, intent = "{order}:expired")]
struct OrderExpired {
    order: String,
}

#[derive(Saga, Serialize, Deserialize)]
#[saga("order", key = order, state = State, timer = Timer)]
struct Order {
    order: String,
}

#[derive(SagaState)]
enum State {
    Open,
    Paid,
    Expired,
}

#[derive(SagaTimer)]
enum Timer {
    /// Gives the pieces back unless the order is paid.
    #[timer(after = "15m")]
    Payment,
}

fn shop() -> Service {
    let order = Saga::new()
        .starts(|event: OrderPlaced| {
            Start::new(Order { order: event.order }, State::Open).arm(Timer::Payment)
        })
        .on(|event: &OrderPaid| &event.order, |_, _| Step::complete(State::Paid))
        .timer(Timer::Payment, expired);
    Service::new("shop").saga(order)
}

fn expired(order: &Order) -> Step<Order> {
    let event = OrderExpired { order: order.order.clone() };
    Step::compensate(State::Expired, "not paid in time").emit(event)
}

/// A step is a function: no database, no clock.
#[test]
fn an_order_that_is_not_paid_expires() {
    let step = expired(&Order { order: "o1".into() });
    assert_eq!(step.outcome(), Outcome::Compensated(State::Expired));
    assert_eq!(*step.emitted::<OrderExpired>(), OrderExpired { order: "o1".into() });
}

async fn harness() -> Harness {
    let app = App::connect("sqlite::memory:", "sql:").migrate([]).service(shop());
    Harness::of(app).await.unwrap()
}

#[tokio::test]
async fn an_order_expires_when_the_clock_says_so_and_not_before() {
    let (mut harness, acme) = (harness().await, "acme".parse().unwrap());
    harness.append(&acme, OrderPlaced { order: "o1".into() }).await.unwrap();
    harness.settle().await.unwrap();
    harness.turn(Duration::from_secs(14 * 60)).await.unwrap();
    assert!(harness.told("shop.order.expired").is_empty());
    harness.turn(Duration::from_secs(60)).await.unwrap();
    assert_eq!(harness.told("shop.order.expired").len(), 1);
}

#[tokio::test]
async fn an_event_that_comes_twice_is_applied_once() {
    let (mut harness, acme) = (harness().await, "acme".parse().unwrap());
    let placed = harness.append(&acme, OrderPlaced { order: "o1".into() }).await.unwrap();
    harness.replay_contract("shop.order-saga", &placed).await.unwrap();
}

#[tokio::test]
async fn a_payment_that_overtakes_its_order_waits_for_it() {
    let (mut harness, acme) = (harness().await, "acme".parse().unwrap());
    harness.append(&acme, OrderPaid { order: "o1".into() }).await.unwrap();
    harness.settle().await.unwrap();
    harness.append(&acme, OrderPlaced { order: "o1".into() }).await.unwrap();
    harness.settle().await.unwrap();
    harness.turn(Duration::from_secs(3600)).await.unwrap();
    assert!(harness.told("shop.order.expired").is_empty(), "it was paid");
    assert!(harness.letters().await.unwrap().is_empty());
}
