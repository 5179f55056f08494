//! An axum service that appends inside its request. A new order shows "processing" until the
//! warehouse has applied its event.
//!
//! ```sh
//! curl -X POST localhost:8080/orders/o1
//! curl localhost:8080/orders/o1
//! ```
#![allow(clippy::print_stdout, reason = "a program prints")]

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use chapar::prelude::*;
use chapar_examples::app;

#[derive(Event, Serialize, Deserialize)]
#[event("shop.order.placed", id = order, intent = "{order}:placed")]
struct OrderPlaced {
    order: String,
}

#[derive(Event, Serialize, Deserialize)]
#[event("warehouse.order.packed", id = order, intent = "{order}:packed")]
struct OrderPacked {
    order: String,
}

#[derive(FromRow, Serialize)]
struct Order {
    id: String,
    state: String,
}

const TABLES: &str = "create table orders (tenant text not null, id text not null,
    state text not null, primary key (tenant, id))";

/// The row and the event commit before the request is answered.
async fn place(
    State(shop): State<Shop>,
    Path(order): Path<String>,
) -> Result<(StatusCode, Json<Order>), StatusCode> {
    const INSERT: &str = "insert into orders (tenant, id, state) \
        values (:tenant, $1, 'processing') on conflict do nothing";
    let work = async |cx: &mut Cx| {
        if cx.execute(INSERT, params![order]).await? == 1 {
            cx.emit(OrderPlaced { order: order.clone() }).await?;
        }
        applied()
    };
    shop.chapar.command(&shop.tenant).run(work).await.map_err(unavailable)?;
    Ok((StatusCode::ACCEPTED, Json(Order { id: order, state: "processing".into() })))
}

async fn look(
    State(shop): State<Shop>,
    Path(order): Path<String>,
) -> Result<Json<Order>, StatusCode> {
    const SELECT: &str = "select id, state from orders where tenant = :tenant and id = $1";
    let command = shop.chapar.command(&shop.tenant);
    let work = async |cx: &mut Cx| cx.fetch_optional::<Order>(SELECT, params![order]).await;
    let found = command.run(work).await.map_err(unavailable)?;
    found.map(Json).ok_or(StatusCode::NOT_FOUND)
}

fn unavailable(_: Failure) -> StatusCode {
    StatusCode::SERVICE_UNAVAILABLE
}

/// The warehouse packs, and the shop hears of it.
async fn pack(placed: OrderPlaced, cx: &mut Cx) -> Handled {
    cx.emit(OrderPacked { order: placed.order }).await
}

async fn packed(packed: OrderPacked, cx: &mut Cx) -> Handled {
    const SET: &str = "update orders set state = 'packed' where tenant = :tenant and id = $1";
    cx.execute(SET, params![packed.order]).await?;
    applied()
}

#[derive(Clone)]
struct Shop {
    chapar: Chapar,
    tenant: Tenant,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = app()
        .profile(Profile::named("shop"))
        .migrate([Migration::new(1, "shop", TABLES).protect(["orders"])])
        .service(Service::new("shop").consumer(Consumer::new("packed").on(packed)))
        .service(Service::new("warehouse").consumer(Consumer::new("placed").on(pack)))
        .start()
        .await?;
    // A real service takes the tenant from the request's token.
    let shop = Shop { chapar: running.chapar("shop"), tenant: "acme".parse()? };
    let routes = Router::new().route("/orders/{order}", post(place).get(look)).with_state(shop);
    let port = std::env::var("PORT").unwrap_or_else(|_| "8080".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, routes).with_graceful_shutdown(ctrl_c()).await?;
    running.stop(std::time::Duration::from_secs(10)).await;
    println!("stopped");
    Ok(())
}
