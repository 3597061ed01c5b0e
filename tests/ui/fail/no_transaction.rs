use inboxed::idempotent;
use serde::Deserialize;

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

#[idempotent(key = "order:{order_id}")]
async fn queue_fulfilment(order: OrderPlaced) -> inboxed::Result<()> {
    println!("order {}", order.order_id);
    Ok(())
}

fn main() {
    let _ = queue_fulfilment;
}
