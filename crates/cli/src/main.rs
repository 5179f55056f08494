//! The command `chapar`.
fn main() {}
