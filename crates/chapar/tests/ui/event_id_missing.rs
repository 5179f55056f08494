use chapar::prelude::*;

#[derive(Event, Serialize, Deserialize)]
#[event("shop.order.placed.v1")]
struct OrderPlaced {
    order: String,
}

fn main() {}
