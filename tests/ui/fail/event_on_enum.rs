use inboxed::{Event, idempotent};
use serde::Deserialize;
use sqlx::SqliteConnection;

#[derive(Deserialize, Event)]
#[event(key = "order:{order_id}")]
enum OrderPlaced {
    Online { order_id: i64 },
    ByPhone { order_id: i64 },
}

#[idempotent]
async fn queue_fulfilment(order: OrderPlaced, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    let id = match order {
        OrderPlaced::Online { order_id } | OrderPlaced::ByPhone { order_id } => order_id,
    };
    sqlx::query("UPDATE orders SET state = 'queued' WHERE id = ?").bind(id).execute(tx).await?;
    Ok(())
}

fn main() {
    let _ = queue_fulfilment;
}
