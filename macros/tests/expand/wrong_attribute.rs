#[idempotent(key = "order", retries = 3)]
pub async fn queue_fulfilment(order: OrderPlaced, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    queue(order.order_id, tx).await
}
