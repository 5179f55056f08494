use chapar::prelude::*;

struct Room {
    number: u32,
}

async fn allocate(room: Room, cx: &mut Cx) -> Handled {
    cx.execute("insert into rooms (number) values ($1)", params![room]).await?;
    applied()
}

fn main() {}
