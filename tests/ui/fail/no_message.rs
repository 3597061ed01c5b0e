use inboxed::idempotent;
use sqlx::SqliteConnection;

#[idempotent(key = "order:{order_id}")]
async fn queue_fulfilment(tx: &mut SqliteConnection) -> inboxed::Result<()> {
    sqlx::query("UPDATE orders SET state = 'queued'").execute(tx).await?;
    Ok(())
}

fn main() {
    let _ = queue_fulfilment;
}
