//! Orders by orchestration: one saga directs payment, stock and shipping. It undoes what was done
//! in reverse when a later step fails, and gives up when the carrier does not answer in time.
#![allow(clippy::print_stdout, reason = "a program prints")]

use chapar::prelude::*;
use chapar_examples::{app, until};

#[derive(Event, Serialize, Deserialize)]
#[event("orders.order.placed", id = order, intent = "{order}:placed")]
struct OrderPlaced {
    order: String,
    cents: i64,
    address: String,
}

#[derive(Event, Serialize, Deserialize)]
#[event("orders.order.closed", id = order, intent = "{order}:closed")]
struct OrderClosed {
    order: String,
    state: String,
}

#[derive(Effect, Serialize, Deserialize)]
#[effect("card.charge", key = "{order}:charge", answer = String)]
struct Charge {
    order: String,
    cents: i64,
}

#[derive(Effect, Serialize, Deserialize)]
#[effect("card.refund", key = "{order}:refund")]
struct Refund {
    order: String,
}

#[derive(Effect, Serialize, Deserialize)]
#[effect("carrier.book", key = "{order}:shipment", answer = String)]
struct Ship {
    order: String,
    address: String,
}

#[derive(Saga, Serialize, Deserialize)]
#[saga("order", key = order, state = State, timer = Timer, undo = Undo)]
struct Order {
    order: String,
    address: String,
}

#[derive(SagaState)]
enum State {
    Charging,
    Shipping,
    Shipped,
    Cancelled,
}

#[derive(SagaTimer)]
enum Timer {
    /// Cancels the order unless the carrier has taken it.
    #[timer(after = "2s")]
    Shipment,
}

#[derive(SagaUndo, Serialize, Deserialize)]
enum Undo {
    Refund,
    Restock,
}

fn saga() -> Saga<Order> {
    Saga::new()
        .starts(placed)
        .effect(EffectTask::new(charge), |call: &Charge| &call.order, charged)
        .effect(EffectTask::new(book).attempts(1), |call: &Ship| &call.order, shipped)
        .timer(Timer::Shipment, |order| cancel(order, "the carrier did not answer"))
        .undo(undo)
}

fn placed(event: OrderPlaced) -> Start<Order> {
    let OrderPlaced { order, cents, address } = event;
    let charge = Charge { order: order.clone(), cents };
    Start::new(Order { order, address }, State::Charging).effect(charge)
}

fn charged(outcome: EffectOutcome<Charge>, saga: &Order) -> Step<Order> {
    if let Err(reason) = outcome.result {
        return cancel(saga, &reason);
    }
    const TAKE: &str = "update stock set pieces = pieces - 1 where tenant = :tenant";
    let (order, address) = (saga.order.clone(), saga.address.clone());
    Step::to(State::Shipping)
        .execute(TAKE, params![])
        .effect(Ship { order, address })
        .undo_with(Undo::Refund)
        .undo_with(Undo::Restock)
        .arm(Timer::Shipment)
}

fn shipped(outcome: EffectOutcome<Ship>, saga: &Order) -> Step<Order> {
    match outcome.result {
        Ok(_) => Step::complete(State::Shipped).emit(closed(saga, "shipped")),
        Err(reason) => cancel(saga, &reason),
    }
}

fn cancel(saga: &Order, reason: &str) -> Step<Order> {
    Step::compensate(State::Cancelled, reason).emit(closed(saga, &format!("cancelled: {reason}")))
}

/// The newest first: the pieces go back, then the money.
fn undo(undo: Undo, saga: &Order) -> Step<Order> {
    const PUT_BACK: &str = "update stock set pieces = pieces + 1 where tenant = :tenant";
    match undo {
        Undo::Restock => Step::stay().execute(PUT_BACK, params![]),
        Undo::Refund => Step::stay().effect(Refund { order: saga.order.clone() }),
    }
}

fn closed(saga: &Order, state: &str) -> OrderClosed {
    OrderClosed { order: saga.order.clone(), state: state.to_owned() }
}

// The vendors, called outside of any transaction.

async fn charge(charge: Charge, attempt: Attempt) -> Result<String, Failure> {
    match (charge.cents, attempt.number) {
        (cents, _) if cents > 50_000 => Err(Failure::terminal("the card was declined")),
        (_, 1) => Err(Failure::retry("the card processor is busy")),
        _ => Ok(attempt.idempotency_key),
    }
}

async fn refund(refund: Refund, _: Attempt) -> Result<(), Failure> {
    println!("{} refunded", refund.order);
    Ok(())
}

async fn book(ship: Ship, attempt: Attempt) -> Result<String, Failure> {
    match ship.address.as_str() {
        "the moon" => Err(Failure::terminal("no carrier goes there")),
        "far away" => std::future::pending().await,
        _ => Ok(attempt.idempotency_key),
    }
}

const TABLES: &str = "
    create table orders (tenant text not null, id text not null, state text not null,
        primary key (tenant, id));
    create table stock (tenant text not null primary key, pieces bigint not null)";

async fn place(chapar: &Chapar, tenant: &Tenant, placed: OrderPlaced) -> Handled {
    const INSERT: &str = "insert into orders (tenant, id, state) values (:tenant, $1, 'placed')";
    let work = async |cx: &mut Cx| {
        cx.execute(INSERT, params![placed.order]).await?;
        cx.emit(placed).await
    };
    chapar.command(tenant).run(work).await
}

async fn close(event: OrderClosed, cx: &mut Cx) -> Handled {
    const SET: &str = "update orders set state = $2 where tenant = :tenant and id = $1";
    cx.execute(SET, params![event.order, event.state]).await?;
    applied()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = app()
        .profile(Profile::named("shop"))
        .migrate([Migration::new(1, "shop", TABLES).protect(["orders", "stock"])])
        .service(Service::new("orders").consumer(Consumer::new("closed").on(close)))
        .service(Service::new("checkout").saga(saga()).effect(EffectTask::new(refund)))
        .start()
        .await?;
    let (orders, acme) = (running.chapar("orders"), "acme".parse::<Tenant>()?);
    const FILL: &str = "insert into stock (tenant, pieces) values (:tenant, 10)";
    orders.command(&acme).run(async |cx| cx.execute(FILL, params![]).await).await?;
    let wanted = [
        ("o1", 4_200, "Kabul", "shipped"),
        ("o2", 99_000, "Herat", "cancelled: the card was declined"),
        ("o3", 1_300, "the moon", "cancelled: no carrier goes there"),
        ("o4", 2_600, "far away", "cancelled: the carrier did not answer"),
    ];
    for (order, cents, address, state) in wanted {
        let placed = OrderPlaced { order: order.into(), cents, address: address.into() };
        place(&orders, &acme, placed).await?;
        // The latest order; each is waited for before the next is placed.
        const STATE: &str =
            "select state from orders where tenant = :tenant order by id desc limit 1";
        until(&orders, &acme, STATE, state).await?;
        println!("{order} {state}");
    }
    const PIECES: &str = "select cast(pieces as text) from stock where tenant = :tenant";
    until(&orders, &acme, PIECES, "9").await?;
    println!("9 of 10 pieces are left");
    running.stop(std::time::Duration::from_secs(10)).await;
    Ok(())
}
