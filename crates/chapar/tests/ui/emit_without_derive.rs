use chapar::prelude::*;

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    order: String,
}

async fn place(cx: &mut Cx) -> Handled {
    cx.emit(OrderPlaced { order: "o1".into() }).await
}

fn main() {}
