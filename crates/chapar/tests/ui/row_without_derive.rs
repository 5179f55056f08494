use chapar::prelude::*;

struct Room {
    number: i64,
}

async fn rooms(cx: &mut Cx) -> Result<Vec<Room>, Failure> {
    cx.fetch_all("select number from rooms where tenant = :tenant", params![]).await
}

fn main() {}
