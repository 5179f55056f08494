use chapar::prelude::*;

#[derive(Saga, Serialize, Deserialize)]
#[saga("booking", key = reservation)]
struct Booking {
    reservation: String,
}

fn main() {}
