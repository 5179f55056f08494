use chapar::prelude::*;

#[derive(Event, Serialize, Deserialize)]
#[event("shop.order.placed.v1", id = order, idempotency = "{order}:placed")]
struct OrderPlaced {
    order: String,
}

fn main() {}
