use chapar::prelude::*;

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order: String,
}

fn main() {}
