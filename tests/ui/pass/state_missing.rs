use inboxed::{Consumer, Inbox, State, idempotent};
use serde::Deserialize;
use sqlx::{Sqlite, SqliteConnection};

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

#[derive(Clone)]
struct Shop {
    name: String,
}

#[idempotent(key = "order:{order_id}")]
async fn queue_fulfilment(
    order: OrderPlaced,
    State(shop): State<Shop>,
    tx: &mut SqliteConnection,
) -> inboxed::Result<()> {
    sqlx::query("UPDATE orders SET shop = ? WHERE id = ?").bind(shop.name).bind(order.order_id).execute(tx).await?;
    Ok(())
}

fn shop(inbox: Inbox<Sqlite>) -> Consumer<Sqlite, Shop> {
    let shop = Shop { name: "north".to_owned() };
    Consumer::new("shop", inbox).state(shop).handle("orders", queue_fulfilment)
}

fn main() {
    let _ = shop;
}
