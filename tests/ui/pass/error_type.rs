use inboxed::idempotent;
use serde::Deserialize;
use sqlx::SqliteConnection;

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

#[derive(Debug, thiserror::Error)]
#[error("out of stock")]
struct OutOfStock;

#[idempotent(key = "order:{order_id}")]
async fn queue_fulfilment(order: OrderPlaced, tx: &mut SqliteConnection) -> Result<(), OutOfStock> {
    let query = sqlx::query("UPDATE orders SET state = 'queued' WHERE id = ?").bind(order.order_id);
    query.execute(tx).await.map_err(|_| OutOfStock)?;
    Ok(())
}

fn main() {
    let _ = queue_fulfilment;
}
