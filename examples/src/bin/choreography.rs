//! Orders by choreography: each service listens and tells what it did, none directs the others.
//!
//! ```text
//! order placed → payment processed → stock reserved → shipment scheduled
//!              → payment failed → order cancelled
//! ```
#![allow(clippy::print_stdout, reason = "a program prints")]

use chapar::prelude::*;
use chapar_examples::{app, until};

#[derive(Event, Serialize, Deserialize)]
#[event("orders.order.placed", id = order, intent = "{order}:placed")]
struct OrderPlaced {
    order: String,
    sku: String,
    cents: i64,
}

#[derive(Event, Serialize, Deserialize)]
#[event("payments.payment.processed", id = order, intent = "{order}:processed")]
struct PaymentProcessed {
    order: String,
    sku: String,
}

#[derive(Event, Serialize, Deserialize)]
#[event("payments.payment.failed", id = order, intent = "{order}:failed")]
struct PaymentFailed {
    order: String,
    reason: String,
}

#[derive(Event, Serialize, Deserialize)]
#[event("stock.stock.reserved", id = order, intent = "{order}:reserved")]
struct StockReserved {
    order: String,
}

#[derive(Event, Serialize, Deserialize)]
#[event("shipping.shipment.scheduled", id = order, intent = "{order}:scheduled")]
struct ShipmentScheduled {
    order: String,
}

const TABLES: &str = "
    create table orders (tenant text not null, id text not null, state text not null,
        primary key (tenant, id));
    create table stock (tenant text not null, sku text not null, pieces bigint not null,
        primary key (tenant, sku))";

async fn place(chapar: &Chapar, tenant: &Tenant, order: &str, cents: i64) -> Handled {
    const INSERT: &str = "insert into orders (tenant, id, state) values (:tenant, $1, 'placed')";
    let placed = OrderPlaced { order: order.to_owned(), sku: "lamp".into(), cents };
    let work = async |cx: &mut Cx| {
        cx.execute(INSERT, params![order]).await?;
        cx.emit(placed).await
    };
    chapar.command(tenant).run(work).await
}

async fn pay(placed: OrderPlaced, cx: &mut Cx) -> Handled {
    let OrderPlaced { order, sku, cents } = placed;
    if cents > 50_000 {
        return cx.emit(PaymentFailed { order, reason: "above the limit".into() }).await;
    }
    cx.emit(PaymentProcessed { order, sku }).await
}

async fn reserve(paid: PaymentProcessed, cx: &mut Cx) -> Handled {
    const TAKE: &str =
        "update stock set pieces = pieces - 1 where tenant = :tenant and sku = $1 and pieces > 0";
    if cx.execute(TAKE, params![paid.sku]).await? == 0 {
        return Err(Failure::terminal(format!("{} is out of stock", paid.sku)));
    }
    cx.emit(StockReserved { order: paid.order }).await
}

async fn ship(reserved: StockReserved, cx: &mut Cx) -> Handled {
    cx.emit(ShipmentScheduled { order: reserved.order }).await
}

const SET: &str = "update orders set state = $2 where tenant = :tenant and id = $1";

async fn shipped(scheduled: ShipmentScheduled, cx: &mut Cx) -> Handled {
    cx.execute(SET, params![scheduled.order, "shipping"]).await?;
    applied()
}

async fn cancel(failed: PaymentFailed, cx: &mut Cx) -> Handled {
    cx.execute(SET, params![failed.order, format!("cancelled: {}", failed.reason)]).await?;
    applied()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = app()
        .profile(Profile::named("shop"))
        .migrate([Migration::new(1, "shop", TABLES).protect(["orders", "stock"])])
        .service(Service::new("orders").consumer(Consumer::new("order").on(shipped).on(cancel)))
        .service(Service::new("payments").consumer(Consumer::new("order").on(pay)))
        .service(Service::new("stock").consumer(Consumer::new("payment").on(reserve)))
        .service(Service::new("shipping").consumer(Consumer::new("stock").on(ship)))
        .start()
        .await?;
    let (orders, acme) = (running.chapar("orders"), "acme".parse::<Tenant>()?);
    const FILL: &str = "insert into stock (tenant, sku, pieces) values (:tenant, 'lamp', 10)";
    orders.command(&acme).run(async |cx| cx.execute(FILL, params![]).await).await?;
    place(&orders, &acme, "o1", 4_200).await?;
    place(&orders, &acme, "o2", 99_000).await?;

    const FIRST: &str = "select state from orders where tenant = :tenant and id = 'o1'";
    const SECOND: &str = "select state from orders where tenant = :tenant and id = 'o2'";
    until(&orders, &acme, FIRST, "shipping").await?;
    println!("o1 is shipping");
    until(&orders, &acme, SECOND, "cancelled: above the limit").await?;
    println!("o2 is cancelled: above the limit");
    running.stop(std::time::Duration::from_secs(10)).await;
    Ok(())
}
