use inboxed::{Delivery, idempotent};
use serde::Deserialize;
use sqlx::SqliteConnection;

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

#[idempotent(key = delivery.headers().get("message-id"))]
async fn queue_fulfilment(order: OrderPlaced, delivery: &Delivery, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    println!("attempt {}", delivery.attempt());
    sqlx::query("UPDATE orders SET state = 'queued' WHERE id = ?").bind(order.order_id).execute(tx).await?;
    Ok(())
}

fn main() {
    let _ = queue_fulfilment;
}
