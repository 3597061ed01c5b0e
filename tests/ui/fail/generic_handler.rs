use inboxed::idempotent;
use serde::Deserialize;
use sqlx::SqliteConnection;

#[derive(Deserialize)]
struct OrderPlaced<T> {
    order_id: T,
}

#[idempotent(key = "order:{order_id}")]
async fn queue_fulfilment<T: Into<i64>>(order: OrderPlaced<T>, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    sqlx::query("UPDATE orders SET state = 'queued' WHERE id = ?").bind(order.order_id.into()).execute(tx).await?;
    Ok(())
}

fn main() {
    let _ = queue_fulfilment;
}
