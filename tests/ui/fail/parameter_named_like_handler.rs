use inboxed::idempotent;
use serde::Deserialize;
use sqlx::SqliteConnection;

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

#[idempotent(key = "order:{order_id}")]
async fn store(store: OrderPlaced, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    sqlx::query("INSERT INTO orders VALUES (?)").bind(store.order_id).execute(tx).await?;
    Ok(())
}

fn main() {
    let _ = store;
}
