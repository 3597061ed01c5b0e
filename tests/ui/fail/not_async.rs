use inboxed::idempotent;
use serde::Deserialize;
use sqlx::SqliteConnection;

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

#[idempotent(key = "order:{order_id}")]
fn queue_fulfilment(order: OrderPlaced, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    println!("order {} on {tx:?}", order.order_id);
    Ok(())
}

fn main() {
    let _ = queue_fulfilment;
}
