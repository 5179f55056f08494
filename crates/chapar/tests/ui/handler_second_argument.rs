use chapar::prelude::*;

#[derive(Event, Serialize, Deserialize)]
#[event("shop.order.placed.v1", id = order)]
struct OrderPlaced {
    order: String,
}

async fn place(_: OrderPlaced, _: &Cx) -> Handled {
    applied()
}

fn main() {
    let _ = Consumer::new("orders").on(place);
}
