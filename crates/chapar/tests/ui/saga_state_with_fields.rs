use chapar::prelude::*;

#[derive(SagaState)]
enum State {
    Held,
    Cancelled { reason: String },
}

fn main() {}
