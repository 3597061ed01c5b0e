use inboxed::{State, idempotent};
use serde::Deserialize;
use sqlx::SqliteConnection;

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

#[derive(Clone)]
struct Shop {
    name: String,
}

#[idempotent(key = order.order_id)]
async fn queue_fulfilment(
    order: OrderPlaced,
    State(shop): State<Shop>,
    tx: &mut SqliteConnection,
) -> inboxed::Result<()> {
    sqlx::query("UPDATE orders SET state = 'queued', shop = ? WHERE id = ?")
        .bind(shop.name)
        .bind(order.order_id)
        .execute(tx)
        .await?;
    Ok(())
}

fn main() {
    let _ = queue_fulfilment;
}
