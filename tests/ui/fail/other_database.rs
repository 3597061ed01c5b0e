use inboxed::testing::NoStore;
use inboxed::{Consumer, Inbox, idempotent};
use serde::Deserialize;
use sqlx::SqliteConnection;

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

#[idempotent(key = "order:{order_id}")]
async fn queue_fulfilment(order: OrderPlaced, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    sqlx::query("UPDATE orders SET state = 'queued' WHERE id = ?").bind(order.order_id).execute(tx).await?;
    Ok(())
}

fn shop(inbox: Inbox<NoStore>) -> Consumer<NoStore> {
    Consumer::new("shop", inbox).handle("orders", queue_fulfilment)
}

fn main() {
    let _ = shop;
}
