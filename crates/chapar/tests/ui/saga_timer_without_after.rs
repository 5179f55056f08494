use chapar::prelude::*;

#[derive(SagaTimer)]
enum Timer {
    /// Cancels the booking.
    Allocation,
}

fn main() {}
